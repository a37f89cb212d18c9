"""Sum: of a column. Over all of a public number of rows it is taken about the middle, see `Plan.offset`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from reticent.query.kinds.base import (
    Asked,
    Form,
    Kind,
    Measure,
    Move,
    SqlReader,
    Sums,
    column_summand,
    possible,
)

if TYPE_CHECKING:
    from reticent.query.measure import Plan


def _coordinates(plan: Plan, sums: Sums) -> list[int]:
    return [plan.on_grid(sums.x - plan.offset * sums.rows)]


def _move(h: int, low: int, high: int, replace: bool, cells: bool) -> Move:
    return Move(stay=h * h, come=max(low * low, high * high), weight=0)


SUM = Measure(
    name="sum",
    values=1,
    has_column=True,
    summand=column_summand,
    squared=False,
    needs_rows=False,
    coordinates=_coordinates,
    move=_move,
    comes_without_filter=False,
    estimate=None,
    jointly=None,
    error=None,
)


def _range(plan: Plan) -> tuple[float, float]:
    """None or all of the rows may be in it: as many as are public, else any number."""
    (low, high), rows = possible(plan.question), plan.question.data.rows
    most = math.inf if rows is None else float(rows)
    return (low * most if low < 0 else 0.0), (high * most if high > 0 else 0.0)


def _aggregate(read: SqlReader, node: Any) -> Asked:
    summed = read.of(node)
    rows = read.indicator(summed)
    return Asked("sum", read.column(summed)) if rows is None else Asked("count", where=rows)


KIND = Kind(
    name="sum",
    measures=(SUM,),
    measured=lambda whole: SUM,
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
    title=lambda column, levels: f"sum of {column}",
    line=lambda column, levels: f"sum of {column}",
    forms=(Form("sum", ("column", "by"), {}),),
    aggregates={"Sum": _aggregate},
    sql=("SUM",),
    select=lambda column, of, levels: f"SUM({column})",
    estimates=None,
    error=None,
)
