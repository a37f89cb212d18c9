"""Zhao 2022, chapter 3: numbers, means and gradients under local privacy."""

__all__: list[str] = []
