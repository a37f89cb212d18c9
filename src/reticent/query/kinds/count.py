"""Count: how many rows. Also what histograms and quantiles measure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reticent.errors import ParameterError
from reticent.query.kinds.base import Asked, Form, Kind, Measure, Move, SqlReader, Sums, number_of_rows

if TYPE_CHECKING:
    from reticent.query.measure import Plan


def _coordinates(plan: Plan, sums: Sums) -> list[int]:
    return [plan.on_grid(sums.rows)]


COUNT = Measure(
    name="count",
    values=1,
    has_column=False,
    summand=None,
    squared=False,
    needs_rows=True,
    coordinates=_coordinates,
    move=lambda h, low, high, replace, cells: Move(stay=0, come=1, weight=0),
    comes_without_filter=True,
    estimate=None,
    jointly=None,
    error=None,
)


def _star(read: SqlReader, node: Any) -> Asked:
    read.only(node, "this", "big_int")
    if read.kind(read.part(node, "this")) != "Star":
        raise ParameterError(
            "sql: COUNT of a column is not answered: missing values are replaced as declared, so nothing is "
            "NULL; write COUNT(*)"
        )
    return Asked("count")


KIND = Kind(
    name="count",
    measures=(COUNT,),
    measured=lambda whole: COUNT,
    needs_column=False,
    needs_of=False,
    needs_levels=False,
    needs_by=False,
    bins_column=False,
    is_rank=False,
    is_table=False,
    is_public=True,
    per_row=False,
    range=number_of_rows,
    title=lambda column, levels: "number of rows",
    line=lambda column, levels: "count",
    forms=(Form("count", ("by",), {}),),
    aggregates={
        "Count": _star,
        "CountIf": lambda read, node: Asked("count", where=read.condition(read.of(node))),
    },
    sql=("COUNT(*)",),
    select=lambda column, of, levels: "COUNT(*)",
    estimates=None,
    error=None,
)
