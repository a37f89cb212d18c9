"""Conditions as polynomials: which rows count, in a form that no way of writing can change.

With u[c, t] = 1 where the code of column c is at least t, and 0 else, a range of codes is a difference of two
such steps, `and` is a product and `or` is p + q - pq. Of two steps of one column the product is the higher,
so every condition is a sum of *corners*, products with at most one step of each column, with whole
coefficients. Corners are linearly independent as functions of the codes, so the polynomial is unique: two
conditions hold for the same combinations of codes if and only if their polynomials are equal. That is the
complete normal form that `conditions` does not have; keys of the ledger stay as they are, and questions that
are equal here and differ there meet in the span of what was bought (`joint`).

Reference: docs/mathematics.md 7.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from reticent.query.declarations.datasets import DataSet
from reticent.query.language.conditions import All, Among, Condition
from reticent.query.language.questions import Grouping
from reticent.query.rows.columns import Column

Corner: TypeAlias = tuple[tuple[str, int], ...]
"""Columns with a least code each, sorted by name; the empty one holds for every row."""
Polynomial: TypeAlias = dict[Corner, int]

MOST_TERMS = 512  # of one polynomial
_MOST_PRODUCTS = 1 << 14  # of two corners, on the way to one polynomial
EVERYTHING: Corner = ()


class TooLarge(Exception):
    """A polynomial with more terms than are worth it. Caught within this package."""


def polynomial(condition: Condition, data: DataSet) -> Polynomial:
    """The polynomial of a condition.

    Raises:
        TooLarge: it has too many terms, or takes too many products to find.
    """
    return _Multiplier(data).of(condition)


def product(one: Mapping[Corner, int], other: Mapping[Corner, int]) -> Polynomial:
    """The polynomial of the rows for which both hold."""
    found: Polynomial = {}
    for left, a in one.items():
        for right, b in other.items():
            corner = joined(left, right)
            found[corner] = found.get(corner, 0) + a * b
    return {corner: value for corner, value in found.items() if value}


def joined(one: Corner, other: Corner) -> Corner:
    """The rows of both corners: where they name one column, the higher code decides."""
    if not one:
        return other
    if not other:
        return one
    least = dict(one)
    for column, code in other:
        if least.get(column, code) <= code:
            least[column] = code
    return tuple(sorted(least.items()))


def cells(by: Sequence[Grouping], data: DataSet) -> list[Polynomial]:
    """The polynomial of each cell that groupings make, in the order of a measured vector."""
    found: list[Polynomial] = [{EVERYTHING: 1}]
    for grouping in by:
        column = data.column(grouping.column)
        starts = range(column.first, column.last + 1) if grouping.cuts is None else grouping.cuts
        edges = [column.first, *(one for one in starts if one > column.first), column.last + 1]
        axis = [_ranges(column, [(low, high - 1)]) for low, high in pairwise(edges)]
        found = [product(before, one) for before in found for one in axis]
    return found


def _ranges(column: Column, ranges: Iterable[tuple[int, int]]) -> Polynomial:
    """Ranges of codes that neither touch nor overlap."""
    found: Polynomial = {}
    for low, high in ranges:
        for code, sign in ((low, 1), (high + 1, -1)):
            if code > column.last:
                continue
            corner = ((column.name, code),) if code > column.first else EVERYTHING
            found[corner] = found.get(corner, 0) + sign
    return {corner: value for corner, value in found.items() if value}


class _Multiplier:
    """Multiplies conditions out, with a bound on the work."""

    def __init__(self, data: DataSet) -> None:
        self._data = data
        self._left = _MOST_PRODUCTS

    def of(self, condition: Condition) -> Polynomial:
        if isinstance(condition, bool):
            return {EVERYTHING: 1} if condition else {}
        if isinstance(condition, Among):
            found = _ranges(self._data.column(condition.column), condition.ranges)
            return self._checked(found)
        parts = sorted((self.of(part) for part in condition.parts), key=len)
        total = parts[0]
        for part in parts[1:]:
            both = self._product(total, part)
            total = both if isinstance(condition, All) else self._checked(_sum(_sum(total, part), both, -1))
        return total

    def _product(self, one: Polynomial, other: Polynomial) -> Polynomial:
        self._left -= len(one) * len(other)
        if self._left < 0:
            raise TooLarge
        return self._checked(product(one, other))

    def _checked(self, found: Polynomial) -> Polynomial:
        if len(found) > MOST_TERMS:
            raise TooLarge
        return found


def _sum(one: Polynomial, other: Polynomial, times: int = 1) -> Polynomial:
    found = dict(one)
    for corner, value in other.items():
        found[corner] = found.get(corner, 0) + times * value
    return {corner: value for corner, value in found.items() if value}
