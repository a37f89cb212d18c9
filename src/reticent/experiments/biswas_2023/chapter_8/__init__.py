"""Biswas 2023, chapter 8: federations of sellers."""

__all__: list[str] = []
