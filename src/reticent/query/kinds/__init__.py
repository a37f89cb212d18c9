"""Kinds of questions: one file each, with all that the rest of the engine knows of it, in one list."""

__all__: list[str] = []
