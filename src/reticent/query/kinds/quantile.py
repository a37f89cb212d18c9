"""Quantile: read off a histogram of the column. Errors are of the rank."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from reticent.errors import ParameterError
from reticent.query.kinds.base import Asked, Form, Kind, SqlReader, anything
from reticent.query.kinds.count import COUNT
from reticent.query.kinds.intervals import Cell, Estimate, fit_to_range, half_width_factor

if TYPE_CHECKING:
    from reticent.query.language.tree import Query
    from reticent.query.measure import Plan

_ROUNDING = 1e-9  # of a code: a share that doubles put just above a whole number of codes


def _estimates(query: Query, plan: Plan, counts: list[float], sigma: float, confidence: float) -> list[Cell]:
    """Return the quantiles of each level, read off the recorded histogram.

    The quantile of level p is the least code at or below which at least a share p of the rows lie, so it is a
    value of the declared domain: a whole number for integers, a multiple of the step for other numbers. With
    T_j = (rows below edge j) - p * (all rows), it lies in the first bin at whose upper edge T_j >= 0. Within
    a bin of several codes, every code is taken to have as many rows as every other.

    The interval ends where T_j is still, or already, that many standard errors away; each end fails with
    probability at most (1 - confidence) / 2, whatever the other edges show. Where exactly p of the rows end
    at an edge, it holds all codes that some definition calls the quantile.

    The standard error counts a code as one step wide, so it is above zero where the interval is one code.
    """
    grouping = plan.question.by[0]
    column = plan.question.data.column(grouping.column)
    assert grouping.cuts is not None
    starts = [column.first, *grouping.cuts, column.last + 1]
    bins, factor = len(counts), half_width_factor(confidence)
    below = [0.0, *accumulate(counts)]
    fitted = [0.0, *fit_rising(below[1:-1]), below[-1]]
    cells = []
    for level in query.levels:
        target = level * below[-1]
        errors = [sigma * math.sqrt(j * (1 - level) ** 2 + (bins - j) * level**2) for j in range(bins + 1)]
        low = next((j for j in range(1, bins) if below[j] - target >= -factor * errors[j]), bins) - 1
        high = next((j for j in range(bins - 1, 0, -1) if below[j] - target <= factor * errors[j]), 0)
        code = _quantile_code(fitted, target, starts)
        first, last = min(starts[low], code), max(starts[high + 1] - 1, code)
        value, least, most = (float(one * column.unit) for one in (code, first, last))
        error = float((last + 1 - first) * column.unit) / (2 * factor)
        cells.append(Cell((level,), fit_to_range(Estimate(value, error, least, most), *column.possible)))
    return cells


def _quantile_code(fitted: list[float], target: float, starts: list[int]) -> int:
    """Return the least code at or below which `target` rows lie, by fitted numbers of rows below each edge.

    Args:
        fitted: Rows below the first code of each bin, and all rows; rising except at its two ends.
        target: Level times all rows.
        starts: First code of each bin, and the code after the last.
    """
    bins = len(fitted) - 1
    place = bisect_left(fitted, target, 1, bins) - 1
    first, width = starts[place], starts[place + 1] - starts[place]
    before, after = fitted[place], fitted[place + 1]
    share = (target - before) / (after - before) if after > before else 1.0
    return first + min(width, max(1, math.ceil(share * width - _ROUNDING))) - 1


def fit_rising(values: Sequence[float]) -> list[float]:
    """Return the rising sequence of least squared distance to `values`.

    The first edge at which noisy sums reach a level is biased downwards, and the last one upwards. The fit
    treats both directions alike.

    Reference: pool adjacent violators, Ayer et al. 1955.
    """
    means: list[float] = []
    sizes: list[int] = []
    for value in values:
        means.append(value)
        sizes.append(1)
        while len(means) > 1 and means[-2] > means[-1]:
            mean, size = means.pop(), sizes.pop()
            means[-1] += (mean - means[-1]) * size / (sizes[-1] + size)
            sizes[-1] += size
    return [mean for mean, size in zip(means, sizes, strict=True) for _ in range(size)]


def _error(plan: Plan, sigma: float, rows: float) -> float:
    return sigma * math.ldexp(1.0, -plan.shift) * math.sqrt(plan.question.cells) / 2 / rows


def _title(column: str | None, levels: Sequence[float]) -> str:
    said = ", ".join(f"{100 * level:.6g} %" for level in levels)
    return f"median of {column}" if said == "50 %" else f"quantiles {said} of {column}"


def _line(column: str | None, levels: Sequence[float]) -> str:
    said = [f"{level:g}" for level in levels]
    return f"median of {column}" if said == ["0.5"] else f"quantile {', '.join(said)} of {column}"


def _percentile(read: SqlReader, node: Any) -> Asked:
    read.only(node, "this", "expression")
    levels = _levels(read, read.part(node, "expression"))
    return Asked("quantile", read.column(read.part(node, "this")), levels=levels)


def _within_group(read: SqlReader, node: Any) -> Asked:
    """PERCENTILE_CONT(level) WITHIN GROUP (ORDER BY column)."""
    read.only(node, "this", "expression")
    order = read.part(node, "expression")
    if read.kind(read.part(node, "this")) != "PercentileCont" or read.kind(order) != "Order":
        raise read.refused(read.part(node, "this"))
    read.only(order, "expressions")
    listed = read.listed(order, "expressions")
    if len(listed) != 1:
        raise ParameterError("sql: WITHIN GROUP must be ORDER BY one column")
    read.only(listed[0], "this", "nulls_first")
    levels = _levels(read, read.of(read.part(node, "this")))
    return Asked("quantile", read.column(read.part(listed[0], "this")), levels=levels)


def _median(read: SqlReader, node: Any) -> Asked:
    return Asked("quantile", read.column(read.of(node)), levels=(0.5,))


def _levels(read: SqlReader, node: Any) -> tuple[float, ...]:
    listed = read.listed(node, "expressions") if read.kind(node) == "Array" else [node]
    return tuple(read.constant(one) for one in listed)  # checked with the query


KIND = Kind(
    name="quantile",
    measures=(),
    measured=lambda whole: COUNT,
    needs_column=True,
    needs_of=False,
    needs_levels=True,
    needs_by=False,
    bins_column=True,
    is_rank=True,
    is_table=False,
    is_public=False,
    per_row=False,
    range=anything,
    title=_title,
    line=_line,
    forms=(
        Form("median", ("column",), {}, levels="0.5"),
        Form("quantile", ("column", "levels"), {}, levels="0.25, 0.5, 0.75"),
    ),
    aggregates={"Median": _median, "PercentileCont": _percentile, "WithinGroup": _within_group},
    sql=("MEDIAN", "QUANTILE_CONT"),
    select=lambda column, of, levels: f"QUANTILE_CONT({column}, {list(levels)})",
    estimates=_estimates,
    error=_error,
)
