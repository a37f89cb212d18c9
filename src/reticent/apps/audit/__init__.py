"""Measuring whether mechanisms keep what they claim."""

__all__: list[str] = []
