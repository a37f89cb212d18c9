"""Prices of answers: the information needed for a tolerable error, or for (epsilon, delta).

Only public numbers go in, and none that changes: the declaration, with the public number of rows, and the
analyst's own guess. So a price is the same for every analyst at any time, and an answer once bought at an
error is free at that error for ever. Counts that were bought are public too, but noisy: a price based on
one would move as more is recorded, without bound if the count comes out near zero. The ledger's rule sets
the cost of an answer: the part that is not bought yet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from reticent.errors import ParameterError
from reticent.privacy.budget import MAX_UNITS
from reticent.query.estimates import spread
from reticent.query.kinds.base import linear_error
from reticent.query.kinds.intervals import half_width_factor
from reticent.query.kinds.listed import KIND
from reticent.query.kinds.variance import SQUARES
from reticent.query.language.tree import Query
from reticent.query.measure import Plan


def units_for_error(error: float, known_error: float, known_units: int) -> int:
    """Return the units at which the error is `error`, if it is `known_error` at `known_units`."""
    exact = (Fraction(known_error) / Fraction(error)) ** 2 * known_units
    return within("error", error, math.ceil(exact))


def within(name: str, given: float, units: int) -> int:
    """Return units that a ledger can hold, or raise ParameterError for the number they come from."""
    if not 0 < units <= MAX_UNITS:
        rule = "a larger" if (units > MAX_UNITS) == (name == "error") else "a smaller"
        raise ParameterError(f"{name} must be {rule} number for this question, got {given:g}")
    return units


def assumed_rows(query: Query, plan: Plan, guess: int | None) -> float | None:
    """Return the rows that a group is assumed to have: the guess, or an even part of a public number.

    None if neither is known. The rows of a quantile are those of all its bins: its error is an error of the
    rank among them.
    """
    if plan.question.measured is SQUARES:
        return float(plan.question.data.rows or 1)
    if guess is not None:
        return float(guess)
    public, is_rank = plan.question.data.rows, KIND[query.kind].is_rank
    if public is not None:
        return float(public) if is_rank else public / plan.question.cells
    depends = is_rank or plan.question.measured.error is not None
    return None if depends else 1.0


def rests_on_rows(query: Query, plan: Plan) -> bool:
    """Return True if the error depends on a number of rows that may be private."""
    if plan.question.measured is SQUARES:
        return False
    return KIND[query.kind].is_rank or plan.question.measured.error is not None


def is_useless(query: Query, plan: Plan, error: float) -> bool:
    """Return True if an interval of this half width contains every possible value."""
    kind = KIND[query.kind]
    if kind.is_rank:
        return error >= 0.5
    low, high = kind.range(plan)
    return error >= (high - low) / 2


def predicted_error(query: Query, plan: Plan, information: int, confidence: float, rows: float) -> float:
    """Return half the width of the interval at `information` units, for a group of so many rows."""
    kind, measured = KIND[query.kind], plan.question.measured
    sigma = half_width_factor(confidence) * spread(plan, information)
    if kind.error is not None:
        return kind.error(plan, sigma, rows)
    if measured.error is not None:
        return measured.error(plan, sigma, confidence, rows)
    return linear_error(kind, plan, sigma)


def sizes_at_least(query: Query, plan: Plan, vector: Sequence[float], information: int, factor: float) -> int:
    """Return a lower confidence bound of the smallest group's size, at least 0. Never used for prices."""
    place, scale = plan.counts or (0, 1.0)
    counts = [float(one) * scale for one in vector[place :: plan.coordinates]]
    sigma = spread(plan, information) * scale
    if KIND[query.kind].is_rank:  # a rank counts the rows of all bins
        counts, sigma = [sum(counts)], sigma * math.sqrt(len(counts))
    return max(0, math.floor(min(counts) - factor * sigma))
