"""From a recorded vector to what a person asked for: values, standard errors, intervals.

Everything here is arithmetic on released numbers and public ones. Errors and intervals are those of the
noise: they say how far the answer may be from the exact answer on this data set, not from the world that the
data set is a sample of.

Reference: Fieller 1954 for the interval of a ratio of two normal estimates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, product
from statistics import NormalDist
from typing import Any

from reticent.privacy import discrete_gaussian_sigma
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query.language.questions import Grouping, Measured
from reticent.query.language.tree import Query
from reticent.query.measure import Plan, bounds, step_of


@dataclass(frozen=True)
class Estimate:
    """One number with its error: `low` and `high` hold the exact answer with the stated confidence."""

    value: float
    standard_error: float
    low: float
    high: float


@dataclass(frozen=True)
class Cell:
    """The estimate for one group. `labels` is empty when nothing was grouped."""

    labels: tuple[Any, ...]
    estimate: Estimate


def widest(cells: Sequence[Cell]) -> float:
    """Half the width of the widest interval."""
    return max((cell.estimate.high - cell.estimate.low) / 2 for cell in cells)


def spread(plan: Plan, information: int) -> float:
    """The standard deviation of each coordinate, in grid units, when `information` units are recorded."""
    return _sigma(plan.sensitivity, information)


@lru_cache(maxsize=4096)  # exact arithmetic, and asked for again with every free answer
def _sigma(sensitivity: int, information: int) -> float:
    return discrete_gaussian_sigma(sensitivity, Fraction(information, UNITS_PER_ONE))


def estimates(
    query: Query, plan: Plan, vector: Sequence[float], information: int, confidence: float
) -> list[Cell]:
    """What the query asked for, from the vector recorded with `information` units of mu^2.

    Cells come in the order of the query's groupings.
    """
    sigma = spread(plan, information)
    if query.kind == "quantile":
        return _quantiles(query, plan, [float(one) for one in vector], sigma, confidence)
    size = plan.coordinates
    if plan.question.measured in (Measured.COUNT, Measured.SUM):
        found = _sums(query, plan, vector, sigma, confidence)
    else:
        found = [
            _cell_estimate(plan, [float(one) for one in vector[i : i + size]], sigma, confidence)
            for i in range(0, len(vector), size)
        ]
    return [Cell(labels, found[cell]) for labels, cell in ordered_cells(query, plan)]


def ordered_cells(query: Query, plan: Plan) -> list[tuple[tuple[Any, ...], int]]:
    """The labels and the number of each cell, in the order in which the query names its groupings."""
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
    """Categories by name, bins as text: "20 to 40" holds 20 and not 40."""
    column = plan.question.data.column(grouping.column)
    if grouping.cuts is None:
        return [column.meaning(code) for code in range(column.first, column.last + 1)]
    edges = [column.first, *grouping.cuts]
    starts = [_plain(column.meaning(edge)) for edge in edges]
    ends = [*starts[1:], _plain(column.meaning(column.last))]
    return [f"{start} to {end}" for start, end in zip(starts, ends, strict=True)]


def _plain(number: float | str | bool) -> str:
    return f"{number:.12g}" if isinstance(number, float) else str(number)


@lru_cache(maxsize=1024)
def half_width_factor(confidence: float) -> float:
    """Standard errors between an estimate and either end of its interval."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _sums(
    query: Query, plan: Plan, vector: Sequence[float], sigma: float, confidence: float
) -> list[Estimate]:
    """Counts and sums, or shares and means over a public number of rows: there may be 65,536 of them."""
    question, scale = plan.question, math.ldexp(1.0, -plan.shift)
    unit, factor = step_of(question), half_width_factor(confidence)
    centre = float(plan.offset * (question.data.rows or 0))
    if query.kind in ("mean", "proportion"):
        assert question.data.rows is not None
        scale, centre = scale / question.data.rows, float(plan.offset)
    ends = _range(query, plan, unit)
    spread = sigma * scale * unit
    return [_linear((centre + float(one) * scale) * unit, spread, factor, *ends) for one in vector]


def _cell_estimate(plan: Plan, values: list[float], sigma: float, confidence: float) -> Estimate:
    question, scale = plan.question, math.ldexp(1.0, -plan.shift)
    measured, data = question.measured, question.data
    factor = half_width_factor(confidence)
    unit = step_of(question)
    low, high = bounds(plan.question)
    h = float(high - low)
    if measured in (Measured.MEAN, Measured.SHARE):
        top, bottom = (
            _Normal(values[0] * scale, sigma * scale),
            _Normal(values[1] / plan.weight, sigma / plan.weight),
        )
        ratio = _ratio(top, bottom, h, factor)
        if measured is Measured.SHARE:
            return _moved(ratio, 0.5, 0.5)
        return _moved(ratio, unit / 2, unit * (low + high) / 2)
    if measured is Measured.SQUARES:
        assert data.rows is not None
        bottom = _Normal(float(data.rows), 0.0)
    else:
        bottom = _Normal(values[2] / plan.weight, sigma / plan.weight)
    first, second = (_Normal(value * scale, sigma * scale) for value in values[:2])
    return _moved(_variance(first, second, bottom, h, confidence), unit * unit / 4, 0.0)


def _range(query: Query, plan: Plan, unit: float) -> tuple[float, float]:
    """Between which numbers the exact answer must lie, from public facts."""
    if query.kind == "proportion":
        return 0.0, 1.0
    rows = plan.question.data.rows
    if query.kind == "mean":
        low, high = bounds(plan.question)
        return low * unit, high * unit
    if query.kind in ("count", "histogram"):
        return 0.0, math.inf if rows is None else float(rows)
    return -math.inf, math.inf


@dataclass(frozen=True)
class _Normal:
    """An estimate with normal noise."""

    value: float
    sigma: float


def _linear(value: float, sigma: float, factor: float, low: float, high: float) -> Estimate:
    """The value is left unbiased; the interval is cut to what is possible."""
    ends = (min(high, max(low, value - factor * sigma)), min(high, max(low, value + factor * sigma)))
    return Estimate(value, sigma, *ends)


def _moved(estimate: Estimate, factor: float, offset: float) -> Estimate:
    return Estimate(
        offset + factor * estimate.value,
        factor * estimate.standard_error,
        offset + factor * estimate.low,
        offset + factor * estimate.high,
    )


def _ratio(top: _Normal, bottom: _Normal, h: float, factor: float) -> Estimate:
    """Return top / bottom, known to lie within [-h, h].

    The interval is every r that the two numbers do not contradict: |top - r bottom| at most `factor`
    standard errors. If the group may be empty as far as the noise tells, nothing is excluded.
    Reference: Fieller 1954.
    """
    if bottom.value <= factor * bottom.sigma or bottom.value <= 0:
        value = min(h, max(-h, top.value / bottom.value)) if bottom.value > 0 else 0.0
        return Estimate(value, h, -h, h)
    value = min(h, max(-h, top.value / bottom.value))
    error = math.hypot(top.sigma, value * bottom.sigma) / bottom.value
    a = bottom.value**2 - (factor * bottom.sigma) ** 2
    b = top.value * bottom.value
    c = top.value**2 - (factor * top.sigma) ** 2
    root = math.sqrt(max(0.0, b * b - a * c))
    return Estimate(value, error, min(h, max(-h, (b - root) / a)), min(h, max(-h, (b + root) / a)))


def _variance(first: _Normal, second: _Normal, bottom: _Normal, h: float, confidence: float) -> Estimate:
    """mean(z^2) - mean(z)^2 from sums of 2hz and of 2z^2 - h^2, |z| <= h.

    Each mean gets an interval that fails half as often, and the variance whatever these two allow.
    """
    factor = half_width_factor((1 + confidence) / 2)
    mean = _moved(_ratio(first, bottom, 2 * h * h, factor), 1 / (2 * h), 0.0)
    square = _moved(_ratio(second, bottom, h * h, factor), 0.5, h * h / 2)
    most = max(mean.low**2, mean.high**2)
    least = 0.0 if mean.low <= 0 <= mean.high else min(mean.low**2, mean.high**2)
    value = min(h * h, max(0.0, square.value - mean.value**2))
    error = math.hypot(square.standard_error, 2 * mean.value * mean.standard_error)
    low, high = max(0.0, square.low - most), min(h * h, max(0.0, square.high - least))
    return Estimate(value, error, min(low, high), high)


def _quantiles(query: Query, plan: Plan, counts: list[float], sigma: float, confidence: float) -> list[Cell]:
    """Quantiles read off the recorded histogram, linear within a bin.

    With T_j = (rows below edge j) - level * (all rows), the quantile lies in the first bin at whose upper
    edge T_j >= 0. The interval ends where T_j is still, or already, that many standard errors away; each
    end fails with probability at most (1 - confidence) / 2, whatever the other edges show.
    """
    grouping = plan.question.by[0]
    column = plan.question.data.column(grouping.column)
    assert grouping.cuts is not None
    codes = [column.first, *grouping.cuts, column.last]
    edges = [float(code * column.unit) for code in codes]
    bins, factor = len(counts), half_width_factor(confidence)
    below = [0.0, *accumulate(counts)]
    cells = []
    for level in query.levels:
        t = [below[j] - level * below[-1] for j in range(bins + 1)]
        errors = [sigma * math.sqrt(j * (1 - level) ** 2 + (bins - j) * level**2) for j in range(bins + 1)]
        low = next((j for j in range(1, bins) if t[j] >= -factor * errors[j]), bins) - 1
        high = next((j for j in range(bins - 1, 0, -1) if t[j] <= factor * errors[j]), 0) + 1
        value = _crossing(t, edges)
        error = (edges[high] - edges[low]) / (2 * factor)
        cells.append(Cell((level,), Estimate(value, error, min(edges[low], value), max(edges[high], value))))
    return cells


def _crossing(t: list[float], edges: list[float]) -> float:
    """Where T, made to rise, first reaches zero."""
    risen = list(accumulate(t, max))
    for j in range(1, len(risen)):
        if risen[j] >= 0:
            before, after = min(risen[j - 1], 0.0), risen[j]
            part = -before / (after - before) if after > before else 0.0
            return edges[j - 1] + part * (edges[j] - edges[j - 1])
    return edges[-1]
