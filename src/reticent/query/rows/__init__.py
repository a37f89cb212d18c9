"""Rows: sources of every kind as one small table of whole numbers, made-up ones included."""

__all__: list[str] = []
