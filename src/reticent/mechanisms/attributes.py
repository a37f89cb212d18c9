"""Attributes of a record: numbers within bounds, and categories out of a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.numeric.base import checked_bounds

if TYPE_CHECKING:
    from reticent.mechanisms.categorical.base import Label


def _checked_name(name: Any) -> None:
    if not isinstance(name, str):
        raise ParameterTypeError(f"name must be text, got {name!r}")
    if not name or not name.isprintable():
        raise ParameterError(f"name must be printable and not empty, got {name!r}")


@dataclass(frozen=True)
class Number:
    """A numeric attribute: values outside the bounds are clamped, missing ones become their middle."""

    name: str
    bounds: tuple[float, float] = (-1.0, 1.0)

    def __post_init__(self) -> None:
        _checked_name(self.name)
        object.__setattr__(self, "bounds", checked_bounds(self.bounds))

    @property
    def middle(self) -> float:
        """The middle of the bounds."""
        return self.bounds[0] / 2.0 + self.bounds[1] / 2.0

    @property
    def half(self) -> float:
        """Half the width of the bounds."""
        return self.bounds[1] / 2.0 - self.bounds[0] / 2.0


@dataclass(frozen=True)
class Category:
    """A categorical attribute: unknown and missing values become the fallback (by default the first)."""

    name: str
    values: int | Sequence[Label]
    fallback: Label | None = None

    def __post_init__(self) -> None:
        from reticent.mechanisms.categorical.base import Categories  # of devices that report one

        _checked_name(self.name)
        labels = Categories(self.values, self.fallback).labels
        if labels is not None:
            object.__setattr__(self, "values", labels)


Attribute = Number | Category
