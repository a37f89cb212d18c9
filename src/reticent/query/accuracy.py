"""The accuracy that an answer shall have, and the purchases that it may reuse, as one value.

Functions for people take an `Accuracy` or its fields as keyword arguments, `ask(query, error=3)`. An HTTP
request, a form and a command line are turned into an `Accuracy` where they are parsed. Costs are in `prices`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TypedDict, cast

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.privacy import Budget, mu_of
from reticent.privacy.budget import cap_units
from reticent.query.declarations.datasets import MOST_ROWS
from reticent.query.language.tree import Query, shown
from reticent.query.measure import Plan
from reticent.query.prices import predicted_error, units_for_error, within

CONFIDENCE = 0.95
SPAN, KEY, NONE = REUSES = ("span", "key", "none")
_REFERENCE = 10**12  # units of mu^2 at which errors are predicted and then scaled


class Words(TypedDict, total=False):
    """The fields of an `Accuracy` as keyword arguments of a call."""

    error: float | None
    epsilon: float | None
    delta: float | None
    information: float | None
    confidence: float
    rows: int | None
    reuse: str


@dataclass(frozen=True)
class Accuracy:
    """The accuracy of an answer: by error, by (epsilon, delta), or by information in mu^2.

    Args:
        error: Half the width of the interval, in the units of the answer (of the rank, from 0 to 1, for
            quantiles), for each group.
        epsilon: Privacy parameter of this answer alone, together with `delta`.
        delta: Privacy parameter; the delta of the data set's budget by default.
        information: Information in mu^2.
        confidence: Confidence of every interval.
        rows: Guess of the number of rows in a group, if that number is private.
        reuse: Earlier purchases that may be part of the answer: "span", all measurements of the data set;
            "key", measurements of the question itself; "none", a fresh draw.
    """

    error: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    information: float | None = None
    confidence: float = CONFIDENCE
    rows: int | None = None
    reuse: str = SPAN

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
        checked_reuse(self.reuse)

    def units(self, query: Query, plan: Plan, budget: Budget, rows: float | None) -> int:
        """Return the information, in ledger units, that an answer of this accuracy needs.

        Args:
            query: Query to answer.
            plan: Measurement plan of the query.
            budget: Budget of the data set, whose delta is the default.
            rows: Number of rows that a group is assumed to have, see `assumed_rows`; not None with an error.
        """
        if self.error is not None:
            assert rows is not None
            reference = predicted_error(query, plan, _REFERENCE, self.confidence, rows)
            return units_for_error(self.error, reference, _REFERENCE)
        if self.information is not None:
            return within("information", self.information, cap_units(self.information))
        assert self.epsilon is not None
        mu = mu_of(self.epsilon, budget.delta if self.delta is None else self.delta)
        return within("epsilon", self.epsilon, cap_units(Fraction(mu) ** 2))

    @classmethod
    def of(cls, given: Accuracy | None, words: Words) -> Accuracy:
        """Return an accuracy, given either as an `Accuracy` or by its fields, not both."""
        if given is None:
            return cls(**words)
        if words:
            raise ParameterError(f"accuracy must be given as one or word by word, got {', '.join(words)} too")
        return given

    def words(self) -> Words:
        """Return the fields that are set, as keyword arguments."""
        given = {name: one for name, one in asdict(self).items() if one is not None}
        if self.reuse == SPAN:
            del given["reuse"]
        return cast(Words, given)


def checked_reuse(reuse: str, *known: str) -> str:
    """Return the reuse option, or raise ParameterError if it is unknown."""
    if reuse not in (known or REUSES):
        raise ParameterError(f"reuse must be one of {', '.join(known or REUSES)}, got {shown(reuse)}")
    return reuse


def checked_confidence(confidence: float) -> float:
    """Return the confidence, or raise ParameterError if no interval can have it."""
    return real("confidence", confidence, low=0.5, high=0.999999, open_high=True)
