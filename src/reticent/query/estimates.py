"""Estimates from a recorded vector: values, standard errors and intervals of a query.

Everything here is arithmetic on released numbers and public ones. Errors and intervals are those of the
noise: they say how far the answer may be from the exact answer on this data set, not from the world that the
data set is a sample of.
The file of each kind (`kinds`) interprets its cells; the arithmetic of intervals is in `kinds.intervals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any

from reticent.privacy import discrete_gaussian_sigma
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query.kinds.base import linear_estimates
from reticent.query.kinds.intervals import Cell
from reticent.query.kinds.listed import KIND
from reticent.query.language.questions import Grouping
from reticent.query.language.tree import Query
from reticent.query.measure import Plan


def widest(cells: Sequence[Cell]) -> float:
    """Return half the width of the widest interval."""
    return max((cell.estimate.high - cell.estimate.low) / 2 for cell in cells)


def spread(plan: Plan, information: int) -> float:
    """Return the standard deviation of each coordinate, in grid units, at `information` recorded units."""
    return _sigma(plan.sensitivity, information)


@lru_cache(maxsize=4096)  # exact arithmetic, needed again for every free answer
def _sigma(sensitivity: int, information: int) -> float:
    return discrete_gaussian_sigma(sensitivity, Fraction(information, UNITS_PER_ONE))


def estimates(
    query: Query, plan: Plan, vector: Sequence[float], information: int, confidence: float
) -> list[Cell]:
    """Estimate the cells of a query from the vector recorded with `information` units of mu^2.

    Cells come in the order of the query's groupings.
    """
    sigma = spread(plan, information)
    kind, measured = KIND[query.kind], plan.question.measured
    if kind.estimates is not None:
        return kind.estimates(query, plan, [float(one) for one in vector], sigma, confidence)
    if measured.estimate is None:
        found = linear_estimates(kind, plan, vector, sigma, confidence)
    else:
        size = plan.coordinates
        found = [
            measured.estimate(plan, [float(one) for one in vector[i : i + size]], sigma, confidence)
            for i in range(0, len(vector), size)
        ]
    return [Cell(labels, found[cell]) for labels, cell in ordered_cells(query, plan)]


def ordered_cells(query: Query, plan: Plan) -> list[tuple[tuple[Any, ...], int]]:
    """Return the labels and the number of each cell, in the order of the query's groupings."""
    groupings = {grouping.column: grouping for grouping in plan.question.by}
    strides: dict[str, int] = {}
    stride = 1
    for grouping in reversed(plan.question.by):
        strides[grouping.column] = stride
        stride *= grouping.cells
    axes = [
        [(label, i * strides[by.column]) for i, label in enumerate(_labels(plan, groupings[by.column]))]
        for by in query.by
    ]
    return [(tuple(label for label, _ in one), sum(place for _, place in one)) for one in product(*axes)]


def _labels(plan: Plan, grouping: Grouping) -> list[Any]:
    """Return the labels of a grouping: names of categories, or bins, where "20 to 40" excludes 40."""
    column = plan.question.data.column(grouping.column)
    if grouping.cuts is None:
        return [column.meaning(code) for code in range(column.first, column.last + 1)]
    edges = [column.first, *grouping.cuts]
    starts = [_plain(column.meaning(edge)) for edge in edges]
    ends = [*starts[1:], _plain(column.meaning(column.last))]
    return [f"{start} to {end}" for start, end in zip(starts, ends, strict=True)]


def _plain(number: float | str | bool) -> str:
    return f"{number:.12g}" if isinstance(number, float) else str(number)
