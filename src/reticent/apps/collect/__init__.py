"""Surveys of devices: commands, API, pages, demonstrations."""

__all__: list[str] = []
