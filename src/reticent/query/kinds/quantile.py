"""Quantile: read off a histogram of the column. Errors are of the rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from reticent.errors import ParameterError
from reticent.query.kinds.base import Asked, Form, Kind, SqlReader, anything
from reticent.query.kinds.count import COUNT
from reticent.query.kinds.intervals import Cell, Estimate, cut, half_width_factor

if TYPE_CHECKING:
    from reticent.query.language.tree import Query
    from reticent.query.measure import Plan


def _estimates(query: Query, plan: Plan, counts: list[float], sigma: float, confidence: float) -> list[Cell]:
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
        found = Estimate(value, error, min(edges[low], value), max(edges[high], value))
        cells.append(Cell((level,), cut(found, *column.possible)))
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
