"""How much information an answer needs: from the error that somebody can live with, or from (epsilon, delta).

Only public numbers go in, and none that changes: the declaration, with the public number of rows, and the
analyst's own guess. So a price is the same whoever asks for it and whenever, and what was once bought at an
error is free at that error for ever. Counts that were bought are public too, but noisy: a price resting on
one would move as more is recorded, without bound where it comes out near zero. What an answer costs is the
ledger's rule: the part that is not bought yet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.privacy import Budget, mu_of
from reticent.privacy.budget import MAX_UNITS, cap_units
from reticent.query.declarations.datasets import MOST_ROWS
from reticent.query.estimates import spread
from reticent.query.kinds.base import linear_error
from reticent.query.kinds.intervals import half_width_factor
from reticent.query.kinds.listed import KIND
from reticent.query.kinds.variance import SQUARES
from reticent.query.language.tree import Query
from reticent.query.measure import Plan

CONFIDENCE = 0.95
_REFERENCE = 10**12  # units of mu^2 at which errors are predicted and then scaled


@dataclass(frozen=True)
class Accuracy:
    """How exact an answer shall be: by error, by (epsilon, delta), or by information in mu^2.

    Args:
        error: half the width of the interval, in the units of the answer (of the rank, from 0 to 1, for
            quantiles), for each group.
        epsilon: with `delta`, the privacy parameters of this answer alone.
        delta: by default that of the data set's budget.
        information: mu^2.
        confidence: of every interval.
        rows: a guess of how many rows a group has, where their number is private.
    """

    error: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    information: float | None = None
    confidence: float = CONFIDENCE
    rows: int | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("error", "epsilon", "information") if getattr(self, name) is not None]
        if len(given) != 1:
            said = " and ".join(given) or "nothing"
            raise ParameterError(f"accuracy must be one of error, epsilon or information, got {said}")
        if self.delta is not None and self.epsilon is None:
            raise ParameterError("delta must come with epsilon")
        for name in given:
            real(name, getattr(self, name), low=0.0, open_low=True)
        if self.delta is not None:
            real("delta", self.delta, low=0.0, high=1.0, open_low=True, open_high=True)
        checked_confidence(self.confidence)
        if self.rows is not None:
            whole("rows", self.rows, low=1, high=MOST_ROWS)

    def units(self, query: Query, plan: Plan, budget: Budget, rows: float | None) -> int:
        """The information, in ledger units, that makes an answer as exact as asked.

        Args:
            query: what is shown.
            plan: what is measured.
            budget: whose delta is the default.
            rows: how many rows a group is taken to have, see `assumed_rows`; not None with an error.
        """
        if self.error is not None:
            assert rows is not None
            reference = predicted_error(query, plan, _REFERENCE, self.confidence, rows)
            return units_for_error(self.error, reference, _REFERENCE)
        if self.information is not None:
            return _within("information", self.information, cap_units(self.information))
        assert self.epsilon is not None
        mu = mu_of(self.epsilon, budget.delta if self.delta is None else self.delta)
        return _within("epsilon", self.epsilon, cap_units(Fraction(mu) ** 2))


def checked_confidence(confidence: float) -> float:
    """A confidence that an interval may have."""
    return real("confidence", confidence, low=0.5, high=0.999999, open_high=True)


def units_for_error(error: float, known_error: float, known_units: int) -> int:
    """The units at which the error is `error`, when it is `known_error` at `known_units`."""
    exact = (Fraction(known_error) / Fraction(error)) ** 2 * known_units
    return _within("error", error, math.ceil(exact))


def _within(name: str, given: float, units: int) -> int:
    if not 0 < units <= MAX_UNITS:
        rule = "a larger" if (units > MAX_UNITS) == (name == "error") else "a smaller"
        raise ParameterError(f"{name} must be {rule} number for this question, got {given:g}")
    return units


def assumed_rows(query: Query, plan: Plan, guess: int | None) -> float | None:
    """How many rows a group is taken to have: as guessed, or an even part of a public number; else None.

    The rows of a quantile are those of all its bins: its error is one of the rank among them.
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


def predicted_error(query: Query, plan: Plan, information: int, confidence: float, rows: float) -> float:
    """Half the width of the interval at `information` units, for a group of so many rows."""
    kind, measured = KIND[query.kind], plan.question.measured
    sigma = half_width_factor(confidence) * spread(plan, information)
    if kind.error is not None:
        return kind.error(plan, sigma, rows)
    if measured.error is not None:
        return measured.error(plan, sigma, confidence, rows)
    return linear_error(kind, plan, sigma)


def sizes_at_least(query: Query, plan: Plan, vector: Sequence[float], information: int, factor: float) -> int:
    """The lower end of the interval for the smallest group's size, at least 0. For people, not for prices."""
    place, scale = plan.counts or (0, 1.0)
    counts = [float(one) * scale for one in vector[place :: plan.coordinates]]
    sigma = spread(plan, information) * scale
    if KIND[query.kind].is_rank:  # it is one among the rows of all bins
        counts, sigma = [sum(counts)], sigma * math.sqrt(len(counts))
    return max(0, math.floor(min(counts) - factor * sigma))
