"""Biswas 2023, chapter 3: places under PRIVIC."""

__all__: list[str] = []
