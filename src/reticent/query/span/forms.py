"""What a plan measures, as exact linear forms over unknown sums at corners.

The unknowns are, at every corner (`corners`), the number N of its rows and the sums S of a column's codes and
Q of their squares. Each coordinate of a measured vector is a sum of these with whole coefficients times a
scale, its grid; so is what a question asks for. Two rules make forms unique:

- Where the number of rows is public, N at the empty corner is that number: it goes into a constant. S there
  is not known.
- A column with few codes has no S and Q of its own: x = first + the sum of u[t] over its codes t above the
  first, x^2 = first^2 + the sum of (2t - 1) u[t], so a histogram of it answers its sum, mean and squares.
  Where a corner demands a column's last code, S and Q are that code, and its square, times N.

How a measure makes coordinates from sums is asked of the measure itself, so a new kind of question needs no
word here: its coordinates must be linear, which a test holds for every measure.

Reference: docs/mathematics.md 7.1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from reticent.query.declarations.datasets import DataSet
from reticent.query.kinds.base import Sums
from reticent.query.measure import Plan
from reticent.query.span.corners import (
    EVERYTHING,
    Corner,
    Polynomial,
    TooLarge,
    cells,
    joined,
    polynomial,
    product,
)

Unknown: TypeAlias = tuple[int, str, int, Corner]
"""Minus the power of x, the column (empty for N), the number of steps, and the corner.

They sort so that the first unknown of each cell of a table is one that no later cell has: tables are
triangular as they stand (`elimination`).
"""

FEW_CODES = 8  # of a column that has no sums of its own
MOST_VALUES = 2048  # coordinates of one vector
_MOST_TERMS = 1 << 15  # of all coordinates of one vector


@dataclass(frozen=True)
class Form:
    """scale * (sum of coefficient * unknown + constant), exactly.

    Attributes:
        terms: whole coefficients, none of them zero.
        constant: what public numbers make of it.
        scale: grid units of one unit; above zero.
    """

    terms: Mapping[Unknown, int]
    constant: int
    scale: Fraction


def forms(plan: Plan) -> tuple[Form, ...] | None:
    """The forms of a plan's vector, coordinate after coordinate; None if they are too large."""
    if plan.values > MOST_VALUES:
        return None
    try:
        return _forms(plan)
    except TooLarge:  # costs money, no truth: the question keeps to its own key
        return None


def _forms(plan: Plan) -> tuple[Form, ...]:
    question = plan.question
    where = polynomial(question.where, question.data)
    counted = where if question.column is not None else polynomial(question.of, question.data)
    rules = _coordinates(plan)
    found: list[Form] = []
    room = _MOST_TERMS
    for cell in cells(question.by, question.data):
        rows = product(where, cell)
        x = rows if counted is where else product(counted, cell)
        for weights, scale in rules:
            room -= len(rows)
            if room < 0:
                raise TooLarge
            found.append(_form(question.data, question.column, rows, x, weights, scale))
    return tuple(found)


def _coordinates(plan: Plan) -> list[tuple[Sums, Fraction]]:
    """How each coordinate of a cell weighs rows, x and squares, and its scale.

    Asked of the measure on a grid of one unit, where nothing is rounded; what a finer grid doubles is on it.
    """
    measure = plan.question.measured.coordinates
    plain, finer = (dataclasses.replace(plan, shift=shift) for shift in (0, 1))
    units = [Sums(1, 0, 0), Sums(0, 1, 0), Sums(0, 0, 1)]
    columns = [measure(plain, one) for one in units]
    doubled = [measure(finer, one) for one in units]
    grid = Fraction(2) ** plan.shift
    found = []
    for weights, twice in zip(zip(*columns, strict=True), zip(*doubled, strict=True), strict=True):
        on_grid = any(a != b for a, b in zip(weights, twice, strict=True))
        size = math.gcd(*weights) or 1
        found.append((Sums(*(one // size for one in weights)), size * (grid if on_grid else Fraction(1))))
    return found


def _form(
    data: DataSet, column: str | None, rows: Polynomial, x: Polynomial, weights: Sums, scale: Fraction
) -> Form:
    terms: dict[Unknown, int] = {}

    def add(corners: Mapping[Corner, int], times: int, power: int) -> None:
        if not times:
            return
        for corner, value in corners.items():
            for unknown, factor in _sums(data, column, power, corner):
                terms[unknown] = terms.get(unknown, 0) + times * value * factor

    add(rows, weights.rows, 0)
    add(x, weights.x, 1 if column is not None else 0)
    add(rows, weights.squares, 2)
    constant = 0
    if data.rows is not None:
        constant = terms.pop(count_of(EVERYTHING), 0) * data.rows
    return Form({unknown: value for unknown, value in terms.items() if value}, constant, scale)


def count_of(corner: Corner) -> Unknown:
    """The number of rows at a corner."""
    return 0, "", len(corner), corner


def _sums(data: DataSet, column: str | None, power: int, corner: Corner) -> list[tuple[Unknown, int]]:
    """The sum of x^power at a corner, in unknowns."""
    if not power:
        return [(count_of(corner), 1)]
    assert column is not None
    declared = data.column(column)
    first, last = declared.first, declared.last
    least = dict(corner).get(column, first)
    if least == last:
        return [(count_of(corner), int(last**power))]
    if last - first >= FEW_CODES:
        return [((-power, column, len(corner), corner), 1)]
    rise: Callable[[int], int] = (lambda code: 1) if power == 1 else (lambda code: 2 * code - 1)
    found = [(count_of(corner), int(least**power))]
    return [
        *found,
        *((count_of(joined(corner, ((column, code),))), rise(code)) for code in range(least + 1, last + 1)),
    ]
