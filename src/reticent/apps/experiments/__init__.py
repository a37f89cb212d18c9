"""Redoing the figures of the documents."""

__all__: list[str] = []
