"""Biswas 2023, chapter 7: prices for privacy."""

__all__: list[str] = []
