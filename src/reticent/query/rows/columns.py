"""Columns: what the owner declares about one, and the whole numbers that its values become.

Every value becomes a code between `first` and `last` before anything is computed from it: numbers are clamped
and counted in steps, categories are numbered in their declared order, and what is missing or cannot be read
becomes the declared value. So a query is integer arithmetic on a closed range, whatever the data holds. What
a cell says does not depend on how its column is stored (`reticent.tables.cells`).

What a cell means is decided by the declaration's format, too. In format 1 a category that is not declared
counts as missing, and a day in a column of numbers cannot be read. From format 2 on a category that is not
declared counts as `other`, which is one of the categories, and a day is the number of days since 1970-01-01.

Bounds, categories and steps are the owner's public knowledge. They are never inferred from the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import Any

from reticent.arguments import real
from reticent.errors import ParameterError, ParameterTypeError
from reticent.tables import cells

LARGEST_CODE = 1 << 31  # squares and sums of codes stay within 128 bits for any number of rows
MOST_CATEGORIES = 10_000
_STEPS_LOG2 = 20  # of a number without a declared step
_UNREADABLE = "unreadable "  # before the name of a column: says which of its cells cannot be read
STORED_TEXT = "text"
OTHER = "other"  # the category of all that is not declared, from format 2 on
_LONGEST_NAME = 100


class Kind(Enum):
    """What a column holds."""

    NUMBER = "number"
    INTEGER = "integer"
    CATEGORY = "category"
    BOOLEAN = "boolean"


@dataclass(frozen=True)
class Column:
    """One column as declared.

    Args:
        name: as it is called in the source.
        kind: what it holds.
        low: the least value of a number; smaller ones are raised to it.
        high: the largest value of a number.
        step: the resolution of a number; 1 for integers, for others by default a power of two near
            (high - low) / 2^20, or coarser far from zero.
        values: the categories, in order.
        missing: what a missing, unreadable or undeclared value becomes; by default the middle of the
            range, the last category (from format 2 on `other`), or false.
        format: Format of the declaration that the column belongs to (`DataSet.format`). From 2 on the
            categories have `other` among them, which is added behind them unless it is declared.
        stored: "text" if a database or Parquet file is known to store numbers or booleans as text; decides
            no code, only whether such a source is taken.

    Attributes:
        first: the least code.
        last: the largest code.
        says_missing: whether `missing` was declared, and not taken by default.
    """

    name: str
    kind: Kind
    low: float | None = None
    high: float | None = None
    step: float | None = None
    values: tuple[str, ...] = ()
    missing: float | str | bool | None = None
    format: int = 1
    stored: str | None = None
    first: int = field(init=False)
    last: int = field(init=False)
    says_missing: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        self._set("says_missing", self.missing is not None)
        longest = _LONGEST_NAME + (len(_UNREADABLE) if isinstance(self, ReadabilityColumn) else 0)
        if not isinstance(self.name, str) or not 0 < len(self.name) <= longest:
            raise ParameterError(f"columns: a name must be a text of 1 to {_LONGEST_NAME} characters")
        if not self.name.isprintable():
            raise ParameterError(f"columns: a name must be printable, got {self.name!r}")
        if not isinstance(self.kind, Kind):
            raise ParameterTypeError(f"{self._at('type')} must be a Kind, got {self.kind!r}")
        if self.stored is not None and (self.stored != STORED_TEXT or self.kind is Kind.CATEGORY):
            raise ParameterError(
                f"{self._at('stored')} must be text, for numbers and booleans alone, got {self.stored!r:.40}"
            )
        if self.kind in (Kind.NUMBER, Kind.INTEGER):
            self._check_number()
        else:
            self._check_categories()

    def _at(self, part: str) -> str:
        return f"columns.{self.name}.{part}"

    def _set(self, name: str, checked: Any) -> None:
        object.__setattr__(self, name, checked)

    def _check_number(self) -> None:
        if self.values:
            raise ParameterError(f"{self._at('values')} is for categories, {self.name} is {self.kind.value}")
        for part in ("low", "high"):
            if getattr(self, part) is None:
                raise ParameterError(f"{self._at(part)} must be a number, got nothing: state it from public "
                                     "knowledge, not from the data")  # fmt: skip
            self._set(part, real(self._at(part), getattr(self, part)))
        assert self.low is not None
        assert self.high is not None
        if not self.low < self.high:
            raise ParameterError(f"{self._at('high')} must be > low = {self.low:g}, got {self.high:g}")
        if self.kind is Kind.INTEGER:
            if self.step not in (None, 1):
                raise ParameterError(f"{self._at('step')} must be 1 for integers, got {self.step!r}")
            self._set("step", 1.0)
        else:
            if self.step is None:
                self._set("step", _step(self.low, self.high))
            self._set("step", real(self._at("step"), self.step, low=0.0, open_low=True))
        low, high = _exact(self.low) / self.unit, _exact(self.high) / self.unit
        if max(abs(low), abs(high)) > LARGEST_CODE:
            raise ParameterError(f"{self._at('step')} must leave at most 2^31 steps from zero to a bound, "
                                 f"got {self.step!r}")  # fmt: skip
        self._set("first", math.ceil(low) if self.kind is Kind.INTEGER else round(low))
        self._set("last", math.floor(high) if self.kind is Kind.INTEGER else round(high))
        if not self.first < self.last:
            raise ParameterError(f"{self._at('step')} must leave two values between low and high, "
                                 f"got {self.step!r}")  # fmt: skip
        if self.missing is None:
            self._set("missing", float(self.unit * ((self.first + self.last) // 2)))
        else:
            self._set("missing", real(self._at("missing"), self.missing, low=self.low, high=self.high))

    def _check_categories(self) -> None:
        for part in ("low", "high", "step"):
            if getattr(self, part) is not None:
                raise ParameterError(f"{self._at(part)} is for numbers, {self.name} is {self.kind.value}")
        if self.kind is Kind.BOOLEAN:
            if self.values not in ((), ("false", "true")):
                raise ParameterError(f"{self._at('values')} is for categories, {self.name} is boolean")
            self._set("values", ("false", "true"))
            if not isinstance(self.missing, (bool, type(None))):
                raise ParameterTypeError(f"{self._at('missing')} must be true or false, got {self.missing!r}")
            self._set("missing", bool(self.missing))
        else:
            self._check_values()
        self._set("first", 0)
        self._set("last", len(self.values) - 1)

    def _check_values(self) -> None:
        values = tuple(self.values)
        if self.format > 1 and OTHER not in values:
            values = (*values, OTHER)
        if not 1 < len(values) <= MOST_CATEGORIES + (self.format > 1):
            raise ParameterError(
                f"{self._at('values')} must be 2 to {MOST_CATEGORIES} categories, got {len(self.values)}"
            )
        for one in values:
            if not isinstance(one, str) or not 0 < len(one) <= _LONGEST_NAME or not one.isprintable():
                raise ParameterError(f"{self._at('values')} must be printable texts, got {one!r}")
        self._check_meanings(values)
        self._set("values", values)
        if self.missing is None:
            self._set("missing", OTHER if self.format > 1 else values[-1])
        elif self.missing not in values:
            raise ParameterError(f"{self._at('missing')} must be one of its values, got {self.missing!r}")

    def _check_meanings(self, values: tuple[str, ...]) -> None:
        """Refuse two that no cell could tell apart, since a column may be stored as text or as numbers."""
        said: dict[float | str | None, str] = {}
        for one in values:
            meaning = cells.meaning(one)
            if meaning is None:
                raise ParameterError(
                    f"{self._at('values')} must not be NaN, which is a missing value, got {one!r}"
                )
            if meaning in said:
                raise ParameterError(f"{self._at('values')} must be different from each other, as numbers "
                                     f"too, got {said[meaning]!r} and {one!r}")  # fmt: skip
            if isinstance(meaning, str) and meaning != one and not cells.is_exact(one):
                raise ParameterError(f"{self._at('values')} must be days, minutes or numbers of days where "
                                     f"they are times, got {one!r}")  # fmt: skip
            said[meaning] = one

    @property
    def unit(self) -> Fraction:
        """What one step of the code means, exactly: 1 for categories."""
        return _exact(self.step) if self.step is not None else Fraction(1)

    @property
    def possible(self) -> tuple[float, float]:
        """Between which numbers it lies: on the grid, and within declared bounds where these are off it."""
        low, high = float(self.first * self.unit), float(self.last * self.unit)
        if self.low is None or self.high is None:
            return low, high
        return max(low, self.low), min(high, self.high)

    @property
    def is_number(self) -> bool:
        """Whether sums of it mean something; a boolean counts as 0 and 1."""
        return self.kind is not Kind.CATEGORY

    @property
    def undeclared_code(self) -> int:
        """Return the code of a category that is not declared: that of `other`, in format 1 of `missing`."""
        return self.values.index(OTHER) if self.has_other else self.missing_code

    @property
    def has_other(self) -> bool:
        """Whether `other` takes what is not declared."""
        return self.kind is Kind.CATEGORY and self.format > 1

    def in_format(self, format_number: int) -> Column:
        """Return the column as a declaration of this format means it.

        Raises:
            ParameterError: The column was made for a later format.
        """
        if self.format == format_number:
            return self
        if self.format > format_number:
            raise ParameterError(f"{self._at('format')} must be at most {format_number}, got {self.format}")
        return replace(self, format=format_number, missing=self.missing if self.says_missing else None)

    @property
    def missing_code(self) -> int:
        """The code of what is missing."""
        if self.kind is Kind.CATEGORY:
            return self.values.index(str(self.missing))
        assert self.missing is not None
        return self.code(float(self.missing))

    def code(self, number: float) -> int:
        """The code of a number: clamped, in steps, rounded half to even, clamped again; NaN is missing.

        The arithmetic is that of doubles, as every engine does it (`prepare`), so a value next to the middle
        between two steps may go to either.
        """
        if math.isnan(number):
            return self.missing_code
        if self.step is not None:
            assert self.low is not None
            assert self.high is not None
            number = min(max(number, self.low), self.high) / self.step
        return min(self.last, max(self.first, round(min(max(number, self.first), self.last))))

    def meaning(self, code: int) -> float | str | bool:
        """What a code stands for."""
        if self.kind is Kind.CATEGORY:
            return self.values[code]
        if self.kind is Kind.BOOLEAN:
            return bool(code)
        unit = self.unit
        return code * unit.numerator / unit.denominator  # rounded once

    def declaration(self) -> dict[str, Any]:
        """Everything that decides the codes, for the canonical text of a question."""
        return {
            "name": self.name,
            "type": self.kind.value,
            "first": self.first,
            "last": self.last,
            "step": str(self.unit),
            "values": list(self.values),
            "missing": self.missing_code,
        }


@dataclass(frozen=True)
class ReadabilityColumn(Column):
    """A column that says of each cell of another one whether it cannot be read as it is declared.

    A cell cannot be read if it says something, and that is not what the column holds: a word among numbers.
    A cell that says nothing is missing, not unreadable. Every text is a category, so that only numbers and
    booleans have such a column. Questions about it are bought like all others (`reticent dataset check`).

    Args:
        checked: Kind of the column whose cells are looked at.
    """

    checked: Kind = Kind.NUMBER

    @classmethod
    def of(cls, column: Column) -> ReadabilityColumn:
        """Return the column that belongs to a column of numbers or booleans."""
        return cls(readability_name(column.name), Kind.BOOLEAN, format=column.format, checked=column.kind)

    def declaration(self) -> dict[str, Any]:
        """Return everything that decides the codes. No declared column has this type."""
        return super().declaration() | {"type": f"unreadable {self.checked.value}"}


def readability_name(name: str) -> str:
    """Return the name of the column that says which cells of a column cannot be read."""
    return f"{_UNREADABLE}{name}"


def _step(low: float, high: float) -> float:
    """A power of two: 2^20 to 2^21 steps between the bounds, and at most 2^31 from zero to one of them."""
    width = math.frexp(high / 2 - low / 2)[1]  # of half the width, since high - low may be infinite
    farthest = math.frexp(max(abs(low), abs(high)))[1]
    return math.ldexp(1.0, max(width - _STEPS_LOG2, farthest - 31))


@lru_cache(maxsize=1024)  # every label of every cell asks for the same step
def _exact(number: float) -> Fraction:
    """The number that the owner typed: 0.01 is a hundredth, not the nearest double."""
    return Fraction(repr(float(number)))
