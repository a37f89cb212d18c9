"""Measured values as text, for entries of the log and for devices, which have no log."""

from __future__ import annotations

from collections.abc import Sequence


def values_text(values: Sequence[int]) -> str:
    """Format a measurement's values as stored and committed to: decimal, comma separated."""
    return ",".join(str(value) for value in values)


def values_of(text: str) -> tuple[int, ...]:
    """Parse the values that `values_text` formatted."""
    return tuple(int(part) for part in text.split(",")) if text else ()
