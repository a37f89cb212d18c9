"""Histogram: how many rows in each category or bin."""

from __future__ import annotations

from reticent.query.kinds.base import Form, Kind, number_of_rows
from reticent.query.kinds.count import COUNT

KIND = Kind(
    name="histogram",
    measures=(),
    measured=lambda whole: COUNT,
    needs_column=False,
    needs_of=False,
    needs_levels=False,
    needs_by=True,
    bins_column=False,
    is_rank=False,
    is_table=True,
    is_public=False,
    per_row=False,
    range=number_of_rows,
    title=lambda column, levels: "number of rows",
    line=lambda column, levels: "histogram",
    forms=(
        Form("histogram", ("by",), {"by": "by must name a column: say for each of what rows are counted"}),
    ),
    aggregates={},  # COUNT(*) with GROUP BY is the count of each group
    sql=(),
    select=lambda column, of, levels: "COUNT(*)",
    estimates=None,
    error=None,
)
