"""Zhao 2022, chapter 4: noise that is reused, in the engine, behind a service and on a chain."""

__all__: list[str] = []
