"""Mean: of a column. Where the size of the group is private it is a ratio of two sums under one noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reticent.query.kinds.base import (
    Asked,
    Covariance,
    Form,
    Kind,
    Measure,
    Move,
    SqlReader,
    Sums,
    bounds,
    centred,
    column_summand,
    possible,
    step_of,
)
from reticent.query.kinds.intervals import Estimate, Normal, fit_to_range, half_width_factor, moved, ratio
from reticent.query.kinds.total import SUM

if TYPE_CHECKING:
    from reticent.query.measure import Plan


def ratio_coordinates(plan: Plan, sums: Sums) -> list[int]:
    """The sum of z = 2x - (low + high), and the rows with their weight."""
    z, _ = centred(plan, sums)
    return [plan.on_grid(z), plan.weight * sums.rows]


def ratio_move(h: int, low: int, high: int, replace: bool, cells: bool) -> Move:
    """Of such coordinates.

    Replacing one row without cells: h^2 + w^2 may reach 4 h^2 for nothing. With cells two such rows may.
    When rows come and go, w = h makes the error least in the worst case.
    """
    return Move(stay=4 * h * h, come=h * h, weight=(3 if replace and not cells else 1) * h * h)


def ratio_estimate(plan: Plan, values: list[float], sigma: float, confidence: float) -> Estimate:
    """The sum of z over the rows, from -h to h."""
    covariance = ((sigma * sigma, 0.0), (0.0, sigma * sigma))
    return ratio_jointly(plan, values, covariance, confidence, cut_only=False)


def ratio_jointly(
    plan: Plan, values: Sequence[float], covariance: Covariance, confidence: float, cut_only: bool
) -> Estimate:
    """Return the same from coordinates whose noises have a covariance."""
    scale = math.ldexp(1.0, -plan.shift)
    low, high = bounds(plan.question)
    top = Normal(values[0] * scale, math.sqrt(covariance[0][0]) * scale)
    bottom = Normal(values[1] / plan.weight, math.sqrt(covariance[1][1]) / plan.weight)
    both = covariance[0][1] * scale / plan.weight
    factor = half_width_factor(confidence)
    return ratio(top, bottom, float(high - low), factor, both, cut_only=cut_only)


def ratio_error(plan: Plan, sigma: float, confidence: float, rows: float) -> float:
    """Half the width of the interval of a ratio in a group of so many rows."""
    low, high = bounds(plan.question)
    scale = math.ldexp(1.0, -plan.shift)
    h = float(high - low)
    return math.hypot(sigma * scale, h * sigma / plan.weight) / rows * step_of(plan.question) / 2


def _estimate(plan: Plan, values: list[float], sigma: float, confidence: float) -> Estimate:
    return _in_units(plan, ratio_estimate(plan, values, sigma, confidence))


def _jointly(
    plan: Plan, values: Sequence[float], covariance: Covariance, confidence: float, cut_only: bool
) -> Estimate:
    return _in_units(plan, ratio_jointly(plan, values, covariance, confidence, cut_only), cut_only=cut_only)


def _in_units(plan: Plan, estimate: Estimate, *, cut_only: bool = False) -> Estimate:
    low, high = bounds(plan.question)
    unit = step_of(plan.question)
    in_units = moved(estimate, unit / 2, unit * (low + high) / 2)
    return fit_to_range(in_units, *possible(plan.question), cut_only=cut_only)


MEAN = Measure(
    name="mean",
    values=2,
    has_column=True,
    summand=column_summand,
    squared=False,
    needs_rows=True,
    coordinates=ratio_coordinates,
    move=ratio_move,
    comes_without_filter=True,
    estimate=_estimate,
    jointly=_jointly,
    error=ratio_error,
)


def _aggregate(read: SqlReader, node: Any) -> Asked:
    summed = read.of(node)
    rows = read.indicator(summed)
    return Asked("mean", read.column(summed)) if rows is None else Asked("proportion", of=rows)


KIND = Kind(
    name="mean",
    measures=(MEAN,),
    measured=lambda whole: SUM if whole else MEAN,
    needs_column=True,
    needs_of=False,
    needs_levels=False,
    needs_by=False,
    bins_column=False,
    is_rank=False,
    is_table=False,
    is_public=False,
    per_row=True,
    range=lambda plan: possible(plan.question),
    title=lambda column, levels: f"mean of {column}",
    line=lambda column, levels: f"mean of {column}",
    forms=(Form("mean", ("column", "by"), {}),),
    aggregates={"Avg": _aggregate},
    sql=("AVG",),
    select=lambda column, of, levels: f"AVG({column})",
    estimates=None,
    error=None,
)
