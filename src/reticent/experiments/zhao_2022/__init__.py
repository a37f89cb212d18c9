"""Zhao 2022: the figures and tables of the thesis, by chapter."""

__all__: list[str] = []
