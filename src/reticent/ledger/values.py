"""The values of a measurement as text: for entries of the log, and for devices, which have none."""

from __future__ import annotations

from collections.abc import Sequence


def values_text(values: Sequence[int]) -> str:
    """A measurement's values as stored and committed to: decimal, comma separated."""
    return ",".join(str(value) for value in values)


def values_of(text: str) -> tuple[int, ...]:
    """Undo `values_text`."""
    return tuple(int(part) for part in text.split(",")) if text else ()
