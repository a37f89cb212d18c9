"""Comparing mechanisms, and saying a guarantee in other units."""

__all__: list[str] = []
