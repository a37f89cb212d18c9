"""Biswas 2023, chapter 6: what shared gradients reveal."""

__all__: list[str] = []
