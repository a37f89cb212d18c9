"""Measurement of a question: its vector, the sensitivity to one person, and the noise.

A question becomes exact sums of codes for each cell, the sums become one vector of whole numbers on a
fixed grid, and one discrete Gaussian covers the vector as a whole. Sensitivities come from the question that
is executed, never from a stored key (mathematics 4.5).

Per row in a cell, with x the code in [L, U], z = 2x - (L + U), h = U - L and w a weight chosen below:

| measured | coordinates          | shown as |
|----------|----------------------|----------|
| count    | 1                    | counts, proportions of a public n, quantiles |
| sum      | x                    | sums, means over a public n (then of x less the middle) |
| mean     | z, w                 | z sums over counts: the mean of a group whose size is private |
| share    | +1 or -1, w          | the share of a group whose size is private |
| squares  | 2hz, 2z^2 - h^2      | the variance over a public n |
| variance | 2hz, 2z^2 - h^2, w   | the variance of a group whose size is private |

Each of these is a `Measure` in the file of the kind that brought it (`kinds`).

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
from reticent.query.kinds.base import Sums, bounds, root_down
from reticent.query.kinds.count import COUNT
from reticent.query.kinds.total import SUM
from reticent.query.language.conditions import condition_sql
from reticent.query.language.questions import Question
from reticent.query.rows import bins
from reticent.randomness import Stream

GRID_BITS = 24  # the sensitivity is at least 2^24 grid units (mathematics 4.4)
LARGEST = (1 << 62) - 1  # largest recorded value


class Rows(bins.Relation, Protocol):
    """Prepared rows: integer columns between their declared bounds, and exact sums of them."""

    def tally(self, sql: str) -> list[tuple[int, ...]]:
        """Run one statement and return its rows as whole numbers."""

    def close(self) -> None:
        """Release the connection."""


@dataclass(frozen=True)
class Plan:
    """The measurement plan of a question: grid, weight and sensitivity.

    Attributes:
        shift: Power of two: 2^shift grid units are one unit of the table above; below zero sums are rounded.
        weight: Weight w, in grid units; 0 if there is none.
        sensitivity: Largest Euclidean distance between the vectors of neighbours, in grid units.
    """

    question: Question
    shift: int
    weight: int
    sensitivity: int

    @property
    def offset(self) -> int:
        """The offset subtracted from every x of a sum over all of a public number of rows.

        Without it the sum of many values far from zero and close together would not fit the grid.
        """
        question = self.question
        whole = question.data.rows is not None and question.where is True and not question.by
        return sum(bounds(question)) // 2 if whole and question.measured is SUM else 0

    @property
    def coordinates(self) -> int:
        """The number of values of one cell."""
        return self.question.measured.values

    @property
    def counts(self) -> tuple[int, float] | None:
        """The coordinate of a cell that counts its rows, and the rows per grid unit; None if none does."""
        if self.question.measured is COUNT:
            return 0, math.ldexp(1.0, -self.shift)
        return (self.coordinates - 1, 1 / self.weight) if self.weight else None

    @property
    def values(self) -> int:
        """The number of values of the vector."""
        return self.question.cells * self.coordinates

    def vector(self, rows: Rows) -> list[int]:
        """Compute the exact vector on the grid, cell after cell."""
        found = _sums(self.question, rows)
        empty = Sums(0, 0, 0)
        return [one for cell in range(self.question.cells) for one in self._cell(found.get(cell, empty))]

    def _cell(self, sums: tuple[int, int, int]) -> list[int]:
        return self.question.measured.coordinates(self, Sums(*sums))

    def on_grid(self, exact: int) -> int:
        """Convert an exact sum to grid units."""
        if self.shift >= 0:
            return exact << self.shift
        return (exact + (1 << (-self.shift - 1))) >> -self.shift

    def noise(self, information: int) -> DiscreteGaussian:
        """Return the mechanism of one measurement of so many units of mu^2."""
        data = self.question.data
        return DiscreteGaussian(
            self.sensitivity,
            Fraction(information, UNITS_PER_ONE),
            unit=f"one {data.unit}",
            neighbours=data.relation,
        )

    def measure(self, exact: list[int], information: int, rng: Stream | None = None) -> list[int]:
        """Draw one fresh measurement of the exact vector, for `information` units of mu^2."""
        # Clamping moves no two vectors apart. The ledger takes values below 2^62.
        within = np.array([min(LARGEST, max(-LARGEST, one)) for one in exact], dtype=np.int64)
        noisy = self.noise(information).perturb(within, rng)
        return [min(LARGEST, max(-LARGEST, one)) for one in noisy.tolist()]


def plan(question: Question) -> Plan:
    """Plan the measurement of a question: grid, weight and sensitivity, all from public numbers.

    Reference: mathematics 4.4 and 4.5.
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
    """Return the squared sensitivity to one row in grid units, rounded up, and the weight w.

    A row may change within its cell ("stay"), come or go ("pass": a filter, a person with fewer rows, add or
    remove), or move from one cell to another ("move": two passes at right angles).
    """
    data, measured = question.data, question.measured
    replace = data.relation is Neighbours.REPLACE_ONE
    grid = Fraction(4) ** shift
    low, high = bounds(question)
    move = measured.move(high - low, low, high, replace, bool(question.by))
    weight = root_down(move.weight * grid)
    passes = move.come * grid + weight * weight
    if not replace:
        return math.ceil(passes), weight
    filtered = question.where is not True or data.person is not None
    furthest = move.stay * grid
    if filtered or measured.comes_without_filter:
        furthest = max(furthest, passes)
    if question.by:
        furthest = max(furthest, 2 * passes)
    return math.ceil(furthest), weight


def _root_up(exact: int) -> int:
    root = math.isqrt(exact)
    return root if root * root == exact else root + 1


# Sums


def _sums(question: Question, rows: Rows) -> dict[int, Sums]:
    """Return the sums of each cell that has rows, by cell number."""
    found = rows.tally(statement(question, rows))
    return {cell: Sums(count, first, second) for cell, count, first, second in found}


def statement(question: Question, rows: Rows) -> str:
    """Return the SQL that sums a question, with integer columns and integer constants only.

    Every row is read and weighed whatever it holds (no WHERE that an engine could use to skip rows).
    """
    where = condition_sql(question.where, rows.names)
    measured = question.measured
    x = measured.summand and measured.summand(question, rows)
    if question.by:
        relation, number = bins.numbered(question.by, question.data, rows)
        cell = f"CASE WHEN {where} THEN {number} ELSE -1 END"
        inner = f"SELECT {cell} AS cell, {x or '0'} AS x FROM {relation}"  # noqa: S608
        first, second = _both_sums(question, rows, x and "x")
        return f"SELECT cell, COUNT(*), {first}, {second} FROM ({inner}) AS cells GROUP BY cell"  # noqa: S608
    if question.where is True:
        count, (first, second) = "COUNT(*)", _both_sums(question, rows, x)
    else:
        count = f"SUM(CASE WHEN {where} THEN 1 ELSE 0 END)"
        first, second = _both_sums(question, rows, x, f"CASE WHEN {where} THEN {{}} ELSE 0 END")
    if not measured.needs_rows and question.where is not True:
        count = "0"
    return f"SELECT 0, {count}, {first}, {second} FROM {rows.relation}"  # noqa: S608


def _both_sums(question: Question, rows: Rows, x: str | None, counted: str = "{}") -> tuple[str, str]:
    """Return the sums of x and of its squares as SQL, as far as needed, over the counted rows."""
    if x is None:
        return "0", "0"
    largest = max(map(abs, bounds(question)))
    first = bins.summed(counted.format(x), largest, rows.engine)
    if not question.measured.squared:
        return first, "0"
    return first, bins.summed(counted.format(f"{x} * {x}"), largest * largest, rows.engine)
