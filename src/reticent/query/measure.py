"""Measuring: the vector that a question needs, how far one person can move it, and the noise.

A question becomes exact sums of codes for each cell, the sums become one vector of whole numbers on a
fixed grid, and one discrete Gaussian covers the vector as a whole. Sensitivities come from the question that
is executed, never from a stored key (MATH.md 7.5).

Per row in a cell, with x the code in [L, U], z = 2x - (L + U), h = U - L and w a weight chosen below:

| measured | coordinates          | shown as |
|----------|----------------------|----------|
| count    | 1                    | counts, proportions of a public n, quantiles |
| sum      | x                    | sums, means over a public n (then of x less the middle) |
| mean     | z, w                 | z sums over counts: the mean of a group whose size is private |
| share    | +1 or -1, w          | the share of a group whose size is private |
| squares  | 2hz, 2z^2 - h^2      | the variance over a public n |
| variance | 2hz, 2z^2 - h^2, w   | the variance of a group whose size is private |

Not here: what the numbers mean to a person (`estimates`), what they cost (`prices`, the ledger).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from reticent.mechanisms.gaussian import DiscreteGaussian
from reticent.privacy import Neighbours
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query.language.conditions import condition_sql
from reticent.query.language.questions import Measured, Question
from reticent.query.rows import bins
from reticent.randomness import Stream

GRID_BITS = 24  # the sensitivity is at least 2^24 grid units (MATH.md 7.4)
LARGEST = (1 << 62) - 1  # of one recorded value


class Rows(bins.Relation, Protocol):
    """Prepared rows: integer columns between their declared bounds, and exact sums of them."""

    def tally(self, sql: str) -> list[tuple[int, ...]]:
        """The rows of one statement, as whole numbers."""

    def close(self) -> None:
        """Release the connection."""


@dataclass(frozen=True)
class Plan:
    """How a question is measured.

    Attributes:
        shift: 2^shift grid units are one unit of the table above; below zero sums are rounded.
        weight: w, in grid units; 0 where there is none.
        sensitivity: the largest Euclidean distance between the vectors of neighbours, in grid units.
    """

    question: Question
    shift: int
    weight: int
    sensitivity: int

    @property
    def offset(self) -> int:
        """What is taken off every x of a sum over all of a public number of rows.

        Without it the sum of many values far from zero and close together would not fit the grid.
        """
        question = self.question
        whole = question.data.rows is not None and question.where is True and not question.by
        return sum(bounds(question)) // 2 if whole and question.measured is Measured.SUM else 0

    @property
    def coordinates(self) -> int:
        """Values of one cell."""
        return self.question.measured.values

    @property
    def counts(self) -> tuple[int, float] | None:
        """Which coordinate of a cell counts its rows, and how many rows a grid unit is; None if none does."""
        if self.question.measured is Measured.COUNT:
            return 0, math.ldexp(1.0, -self.shift)
        return (self.coordinates - 1, 1 / self.weight) if self.weight else None

    @property
    def values(self) -> int:
        """Values of the vector."""
        return self.question.cells * self.coordinates

    def vector(self, rows: Rows) -> list[int]:
        """The exact vector on the grid, cell after cell."""
        found = _sums(self.question, rows)
        empty = (0, 0, 0)
        return [one for cell in range(self.question.cells) for one in self._cell(found.get(cell, empty))]

    def _cell(self, sums: tuple[int, int, int]) -> list[int]:
        """The coordinates of one cell from (rows, sum of x, sum of x^2); for shares x is 0 or 1."""
        rows, first, second = sums
        measured = self.question.measured
        if measured is Measured.COUNT:
            return [self._on_grid(rows)]
        if measured is Measured.SUM:
            return [self._on_grid(first - self.offset * rows)]
        low, high = bounds(self.question)
        middle, h = low + high, high - low
        z = 2 * first - middle * rows
        if measured in (Measured.MEAN, Measured.SHARE):
            return [self._on_grid(z), self.weight * rows]
        z2 = 4 * second - 4 * middle * first + middle * middle * rows
        moments = [self._on_grid(2 * h * z), self._on_grid(2 * z2 - h * h * rows)]
        return moments if measured is Measured.SQUARES else [*moments, self.weight * rows]

    def _on_grid(self, exact: int) -> int:
        if self.shift >= 0:
            return exact << self.shift
        return (exact + (1 << (-self.shift - 1))) >> -self.shift

    def noise(self, information: int) -> DiscreteGaussian:
        """The mechanism that one measurement of this many units of mu^2 runs."""
        data = self.question.data
        return DiscreteGaussian(
            self.sensitivity,
            Fraction(information, UNITS_PER_ONE),
            unit=f"one {data.unit}",
            neighbours=data.relation,
        )

    def measure(self, exact: list[int], information: int, rng: Stream | None = None) -> list[int]:
        """One fresh measurement of the exact vector, for `information` units of mu^2."""
        # Clamping moves no two vectors apart. The ledger takes values below 2^62.
        within = np.array([min(LARGEST, max(-LARGEST, one)) for one in exact], dtype=np.int64)
        noisy = self.noise(information).perturb(within, rng)
        return [min(LARGEST, max(-LARGEST, one)) for one in noisy.tolist()]


def plan(question: Question) -> Plan:
    """How to measure a question: grid, weight and sensitivity, all from public numbers.

    Reference: MATH.md 7.4 and 7.5.
    """
    whole, _ = _distance2(question, 0)
    shift = GRID_BITS + 1 - max(1, math.isqrt(whole)).bit_length()
    squared, weight = _distance2(question, shift)
    bound = question.data.contribution
    sensitivity = _root_up(squared) * bound
    if shift < 0:  # rounding moves each changed coordinate by less than one more unit
        changed = question.measured.values * (2 * bound if question.by else 1)
        sensitivity += math.isqrt(changed) + 1
    return Plan(question, shift, weight, sensitivity)


def _distance2(question: Question, shift: int) -> tuple[int, int]:
    """The squared sensitivity to one row in grid units, rounded up, and the weight w.

    A row may change within its cell ("stay"), come or go ("pass": a filter, a person with fewer rows, add or
    remove), or move from one cell to another ("move": two passes at right angles).
    """
    data, measured = question.data, question.measured
    replace = data.relation is Neighbours.REPLACE_ONE
    grid = Fraction(4) ** shift
    low, high = bounds(question)
    h = high - low
    weight = 0
    if measured is Measured.COUNT:
        stay, passing = 0, 1
    elif measured is Measured.SUM:
        stay, passing = h * h, max(low * low, high * high)
    elif measured in (Measured.MEAN, Measured.SHARE):
        stay, passing = 4 * h * h, h * h
        # Replacing one row without cells: h^2 + w^2 may reach 4 h^2 for nothing. With cells two such rows
        # may. When rows come and go, w = h makes the error least in the worst case.
        weight = _root_down((3 if replace and not question.by else 1) * h * h * grid)
    else:
        stay, passing = 16 * h**4, 5 * h**4
        if measured is Measured.VARIANCE:
            weight = _root_down((4 if not replace else 3 if question.by else 11) * h**4 * grid)
    passes = passing * grid + weight * weight
    if not replace:
        return math.ceil(passes), weight
    filtered = question.where is not True or data.person is not None
    furthest = stay * grid
    if filtered or measured in (Measured.MEAN, Measured.SHARE, Measured.VARIANCE, Measured.COUNT):
        furthest = max(furthest, passes)
    if question.by:
        furthest = max(furthest, 2 * passes)
    return math.ceil(furthest), weight


def bounds(question: Question) -> tuple[int, int]:
    """The codes between which x lies: those of the column, or 0 and 1 for a share."""
    if question.column is None:
        return 0, 1
    column = question.data.column(question.column)
    return column.first, column.last


def step_of(question: Question) -> float:
    """What one step of x means; 1 for counts and shares."""
    return 1.0 if question.column is None else float(question.data.column(question.column).unit)


def _root_up(exact: int) -> int:
    root = math.isqrt(exact)
    return root if root * root == exact else root + 1


def _root_down(exact: Fraction) -> int:
    return math.isqrt(math.floor(exact))


# Sums


def _sums(question: Question, rows: Rows) -> dict[int, tuple[int, int, int]]:
    """(rows, sum of x, sum of x^2) of each cell that has rows."""
    found = rows.tally(statement(question, rows))
    return {cell: (count, first, second) for cell, count, first, second in found}


def statement(question: Question, rows: Rows) -> str:
    """The SQL that sums a question: integer columns and integer constants only.

    Every row is read and weighed whatever it holds (no WHERE that an engine could use to skip rows).
    """
    where = condition_sql(question.where, rows.names)
    x = _summand(question, rows)
    squared = question.measured in (Measured.SQUARES, Measured.VARIANCE)
    if question.by:
        relation, number = bins.numbered(question.by, question.data, rows)
        cell = f"CASE WHEN {where} THEN {number} ELSE -1 END"
        inner = f"SELECT {cell} AS cell, {x or '0'} AS x FROM {relation}"  # noqa: S608
        square = "SUM(x * x)" if squared else "0"
        first = "SUM(x)" if x else "0"
        return f"SELECT cell, COUNT(*), {first}, {square} FROM ({inner}) AS cells GROUP BY cell"  # noqa: S608
    if question.where is True:
        count, first, second = "COUNT(*)", f"SUM({x})", f"SUM({x} * {x})"
    else:
        count = f"SUM(CASE WHEN {where} THEN 1 ELSE 0 END)"
        first = f"SUM(CASE WHEN {where} THEN {x} ELSE 0 END)"
        second = f"SUM(CASE WHEN {where} THEN {x} * {x} ELSE 0 END)"
    if question.measured is Measured.SUM and question.where is not True:
        count = "0"
    return (
        f"SELECT 0, {count}, {first if x else '0'}, {second if squared else '0'} "  # noqa: S608
        f"FROM {rows.relation}"
    )


def _summand(question: Question, rows: Rows) -> str | None:
    if question.measured is Measured.COUNT:
        return None
    if question.measured is Measured.SHARE:
        return f"CASE WHEN {condition_sql(question.of, rows.names)} THEN 1 ELSE 0 END"
    assert question.column is not None
    name = rows.names[question.column]
    squared = question.measured in (Measured.SQUARES, Measured.VARIANCE)
    return f"CAST({name} AS BIGINT)" if squared else name
