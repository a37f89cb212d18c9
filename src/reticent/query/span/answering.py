"""From combined estimates to what a person asked for: values, standard errors, intervals.

The same arithmetic as `estimates` does on one recorded vector, with a variance of its own for each coordinate
and the covariance of those of a cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from reticent.query.estimates import ordered_cells
from reticent.query.kinds.base import Covariance, Kind, linear_estimates
from reticent.query.kinds.intervals import Cell
from reticent.query.kinds.intervals import Estimate as Interval
from reticent.query.kinds.listed import KIND
from reticent.query.language.tree import Query
from reticent.query.measure import Plan
from reticent.query.span.weights import Estimate


def is_combined(query: Query, plan: Plan) -> bool:
    """Whether a question is answered from the span: variances and quantiles keep to their own keys."""
    measured = plan.question.measured
    return KIND[query.kind].estimates is None and (measured.estimate is None or measured.jointly is not None)


def combined_cells(
    query: Query, plan: Plan, found: Sequence[Estimate], confidence: float, *, cut_only: bool = False
) -> list[Cell]:
    """Return the answer to a query, cell after cell in the order of its groupings.

    Args:
        query: Query for which `is_combined`.
        plan: Plan of its question.
        found: Estimate of each coordinate.
        confidence: Confidence of the intervals.
        cut_only: Whether intervals follow the rule of earlier releases (`kinds.intervals`).
    """
    kind, jointly = KIND[query.kind], plan.question.measured.jointly
    if jointly is None:
        cells = [_linear(kind, plan, one, confidence, cut_only) for one in found]
    else:
        size = plan.coordinates
        groups = [found[start : start + size] for start in range(0, len(found), size)]
        cells = [
            jointly(plan, [float(one.value) for one in group], covariance(group), confidence, cut_only)
            for group in groups
        ]
    return [Cell(labels, cells[place]) for labels, place in ordered_cells(query, plan)]


def covariance(group: Sequence[Estimate]) -> Covariance:
    """Of the coordinates of a cell."""
    return [[one.variance if one is other else one.covariance(other) for other in group] for one in group]


def _linear(kind: Kind, plan: Plan, part: Estimate, confidence: float, cut_only: bool) -> Interval:
    (cell,) = linear_estimates(
        kind, plan, [float(part.value)], math.sqrt(part.variance), confidence, cut_only=cut_only
    )
    return cell
