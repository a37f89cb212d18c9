"""Variance: of a column, divided by the number of rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from reticent.query.kinds.base import (
    Form,
    Kind,
    Measure,
    Move,
    Sums,
    bounds,
    centred,
    column_aggregate,
    step_of,
    wide_summand,
)
from reticent.query.kinds.intervals import Estimate, Normal, half_width_factor, moved, ratio

if TYPE_CHECKING:
    from reticent.query.measure import Plan


def _moments(plan: Plan, sums: Sums) -> list[int]:
    low, high = bounds(plan.question)
    middle = low + high
    z, h = centred(plan, sums)
    z2 = 4 * sums.squares - 4 * middle * sums.x + middle * middle * sums.rows
    return [plan.on_grid(2 * h * z), plan.on_grid(2 * z2 - h * h * sums.rows)]


def _moments_and_rows(plan: Plan, sums: Sums) -> list[int]:
    return [*_moments(plan, sums), plan.weight * sums.rows]


def _move(h: int, low: int, high: int, replace: bool, cells: bool) -> Move:
    return Move(stay=16 * h**4, come=5 * h**4, weight=0)


def _counted_move(h: int, low: int, high: int, replace: bool, cells: bool) -> Move:
    weight = (4 if not replace else 3 if cells else 11) * h**4
    return _move(h, low, high, replace, cells)._replace(weight=weight)


def _of_public_rows(plan: Plan, values: list[float], sigma: float, confidence: float) -> Estimate:
    assert plan.question.data.rows is not None
    return _estimate(plan, values, Normal(float(plan.question.data.rows), 0.0), sigma, confidence)


def _of_counted_rows(plan: Plan, values: list[float], sigma: float, confidence: float) -> Estimate:
    return _estimate(plan, values, Normal(values[2] / plan.weight, sigma / plan.weight), sigma, confidence)


def _estimate(plan: Plan, values: list[float], rows: Normal, sigma: float, confidence: float) -> Estimate:
    """mean(z^2) - mean(z)^2 from sums of 2hz and of 2z^2 - h^2, |z| <= h.

    Each mean gets an interval that fails half as often, and the variance whatever these two allow. Where
    noise left mean(z^2) below mean(z)^2, which is impossible, its upper end is raised by as much as is
    missing: the interval then starts at zero and keeps its width.
    """
    low, high = bounds(plan.question)
    scale, h = math.ldexp(1.0, -plan.shift), float(high - low)
    first, second = (Normal(value * scale, sigma * scale) for value in values[:2])
    factor = half_width_factor((1 + confidence) / 2)
    mean = moved(ratio(first, rows, 2 * h * h, factor), 1 / (2 * h), 0.0)
    square = moved(ratio(second, rows, h * h, factor), 0.5, h * h / 2)
    most = max(mean.low**2, mean.high**2)
    least = 0.0 if mean.low <= 0 <= mean.high else min(mean.low**2, mean.high**2)
    value = min(h * h, max(0.0, square.value - mean.value**2))
    error = math.hypot(square.standard_error, 2 * mean.value * mean.standard_error)
    missing = max(0.0, mean.value**2 - square.value)
    bottom, top = max(0.0, square.low - most), min(h * h, max(0.0, square.high + missing - least))
    around = Estimate(value, error, min(bottom, value), max(top, value))  # without noise, doubles may differ
    return moved(around, step_of(plan.question) ** 2 / 4, 0.0)


def _error(plan: Plan, sigma: float, confidence: float, rows: float) -> float:
    """Half the width of the interval.

    One mean is known to within e_z, the other to within e_q, each failing half as often; mean(z) is taken to
    lie in the middle quarter of its range, since the worst case is rare and twice as dear.
    """
    low, high = bounds(plan.question)
    scale, h = math.ldexp(1.0, -plan.shift), float(high - low)
    sigma *= half_width_factor((1 + confidence) / 2) / half_width_factor(confidence)
    of_count = sigma / plan.weight if plan.weight else 0.0
    e_z = math.hypot(sigma * scale, 2 * h * h * of_count) / rows / (2 * h)
    e_q = math.hypot(sigma * scale, h * h * of_count) / rows / 2
    return (e_q + h / 2 * e_z) * step_of(plan.question) ** 2 / 4


SQUARES = Measure(
    name="squares",
    values=2,
    has_column=True,
    summand=wide_summand,
    squared=True,
    needs_rows=True,
    coordinates=_moments,
    move=_move,
    comes_without_filter=False,
    estimate=_of_public_rows,
    jointly=None,
    error=_error,
)

VARIANCE = Measure(
    name="variance",
    values=3,
    has_column=True,
    summand=wide_summand,
    squared=True,
    needs_rows=True,
    coordinates=_moments_and_rows,
    move=_counted_move,
    comes_without_filter=True,
    estimate=_of_counted_rows,
    jointly=None,
    error=_error,
)


def _range(plan: Plan) -> tuple[float, float]:
    """At most that of half of the rows at either end."""
    low, high = bounds(plan.question)
    return 0.0, ((high - low) * step_of(plan.question) / 2) ** 2


KIND = Kind(
    name="variance",
    measures=(SQUARES, VARIANCE),
    measured=lambda whole: SQUARES if whole else VARIANCE,
    needs_column=True,
    needs_of=False,
    needs_levels=False,
    needs_by=False,
    bins_column=False,
    is_rank=False,
    is_table=False,
    is_public=False,
    per_row=False,
    range=_range,
    title=lambda column, levels: f"variance of {column}",
    line=lambda column, levels: f"variance of {column}",
    forms=(Form("variance", ("column", "by"), {}),),
    aggregates={"VariancePop": column_aggregate("variance")},
    sql=("VAR_POP",),
    select=lambda column, of, levels: f"VAR_POP({column})",
    estimates=None,
    error=None,
)
