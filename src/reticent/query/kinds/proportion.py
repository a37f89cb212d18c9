"""Proportion: the share of some rows among others. Of a public number of rows it is a count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reticent.query.kinds.base import Covariance, Form, Kind, Measure
from reticent.query.kinds.count import COUNT
from reticent.query.kinds.intervals import Estimate, moved
from reticent.query.kinds.mean import (
    ratio_coordinates,
    ratio_error,
    ratio_estimate,
    ratio_jointly,
    ratio_move,
)

if TYPE_CHECKING:
    from reticent.query.language.questions import Question
    from reticent.query.measure import Plan, Rows


def _summand(question: Question, rows: Rows) -> str:
    from reticent.query.language.conditions import condition_sql  # which knows queries, and they their kinds

    return f"CASE WHEN {condition_sql(question.of, rows.names)} THEN 1 ELSE 0 END"


def _estimate(plan: Plan, values: list[float], sigma: float, confidence: float) -> Estimate:
    return moved(ratio_estimate(plan, values, sigma, confidence), 0.5, 0.5)


def _jointly(
    plan: Plan, values: Sequence[float], covariance: Covariance, confidence: float, cut_only: bool
) -> Estimate:
    return moved(ratio_jointly(plan, values, covariance, confidence, cut_only), 0.5, 0.5)


SHARE = Measure(
    name="share",
    values=2,
    has_column=False,
    summand=_summand,
    squared=False,
    needs_rows=True,
    coordinates=ratio_coordinates,
    move=ratio_move,
    comes_without_filter=True,
    estimate=_estimate,
    jointly=_jointly,
    error=ratio_error,
)

KIND = Kind(
    name="proportion",
    measures=(SHARE,),
    measured=lambda whole: COUNT if whole else SHARE,
    needs_column=False,
    needs_of=True,
    needs_levels=False,
    needs_by=False,
    bins_column=False,
    is_rank=False,
    is_table=False,
    is_public=False,
    per_row=True,
    range=lambda plan: (0.0, 1.0),
    title=lambda column, levels: "share of",
    line=lambda column, levels: "share of",
    forms=(Form("proportion", ("of", "by"), {"of": "of must be a condition: say whose share is asked"}),),
    aggregates={},  # AVG of a condition, see `mean`
    sql=(),
    select=lambda column, of, levels: f"AVG(CASE WHEN {of} THEN 1 ELSE 0 END)",
    estimates=None,
    error=None,
)
