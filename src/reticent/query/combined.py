"""Explanations of answers that are combined from several purchases: their weights and valid intervals.

The interval of a combined answer holds for a question that was fixed before anybody saw the noise that it is
made of. An analyst who looks at recorded values and then asks about a value that stood out reuses the noise
that made it stand out. So every such answer comes with two remedies: the cost of a fresh draw, and the
interval that holds for any question chosen from those purchases, however it is chosen.

Reference: Scheffe 1953: with r independent normal errors, all their combinations are at most
sqrt(chi2_r) standard deviations from zero at once, with the chance of the quantile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from reticent.arguments import whole
from reticent.query.kinds.intervals import half_width_factor
from reticent.query.language.tree import Query
from reticent.query.measure import Plan
from reticent.query.span import Estimate, combined_cells
from reticent.query.span.certificate import certify

_MOST_WEIGHTS = 1 << 14  # in a certificate of an answer
MAX_UNITS = 1 << 256  # largest amount in a reply: no ledger counts further


@dataclass(frozen=True)
class Part:
    """A purchase that an answer is combined from.

    Attributes:
        key: Key of the purchased question.
        question: Text that the key is derived from.
        information: Units recorded under the key that were used.
        measurements: Numbers of the recorded measurements.
        values: Number of recorded values.
        noise: Share of the answer's variance, from 0 to 1; over all cells, if there are several.
        least: Smallest weight of any of its values, in units of the count or sum.
        most: Largest weight of any of its values.
    """

    key: str
    question: str
    information: int
    measurements: tuple[int, ...]
    values: int
    noise: float
    least: float
    most: float


@dataclass(frozen=True)
class Combined:
    """An account of how an answer was combined from purchases.

    Attributes:
        parts: Purchases, in falling order of their share of the noise.
        question: Text of the question that was asked.
        values: Number of recorded values of all these purchases.
        factor: Standard errors to either end of `ends`.
        ends: Intervals, one for each cell, that hold for any question chosen from these purchases.
        fresh_cost: Units that an equally exact answer would cost as a fresh draw.
        certificate: Exact weights and their result, which anybody can check (`span.certificate`); None if
            there are too many weights, or the ledger does not number the measurements.
    """

    parts: tuple[Part, ...]
    question: str
    values: int
    factor: float
    ends: tuple[tuple[float, float], ...]
    fresh_cost: int
    certificate: Mapping[str, Any] | None

    @property
    def reuses_others(self) -> bool:
        """True if the answer contains noise that was drawn for another question."""
        return any(part.question != self.question for part in self.parts)

    @property
    def title(self) -> str:
        """A sentence that names the purchases of the answer."""
        if not self.parts:
            return "known without any purchase, from the declaration"
        if not self.reuses_others:
            return "combined from its own purchase and the public number of rows"
        return f"combined from {len(self.parts)} purchase{'' if len(self.parts) == 1 else 's'}"

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON, with amounts as decimal strings of units and weights as fractions."""
        return {
            "parts": [
                {
                    "key": part.key,
                    "question": part.question,
                    "information": str(part.information),
                    "measurements": list(part.measurements),
                    "values": part.values,
                    "noise": part.noise,
                    "least": part.least,
                    "most": part.most,
                }
                for part in self.parts
            ],
            "question": self.question,
            "values": self.values,
            "factor": self.factor,
            "ends": [list(one) for one in self.ends],
            "fresh_cost": str(self.fresh_cost),
            "certificate": self.certificate,
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Combined:
        """Parse the account from the output of `to_json`."""
        return cls(
            tuple(
                Part(
                    str(one["key"]),
                    str(one["question"]),
                    _count(one["information"]),
                    tuple(_count(number) for number in one["measurements"]),
                    _count(one["values"]),
                    float(one["noise"]),
                    float(one["least"]),
                    float(one["most"]),
                )
                for one in given["parts"]
            ),
            str(given["question"]),
            _count(given["values"]),
            float(given["factor"]),
            tuple((float(low), float(high)) for low, high in given["ends"]),
            _count(given["fresh_cost"]),
            given["certificate"],
        )


def _count(value: Any) -> int:
    """Parse a number of units, values or measurements from a service's reply."""
    return whole("count", int(value), low=0, high=MAX_UNITS)


def combined(
    query: Query,
    plan: Plan,
    found: Sequence[Estimate],
    confidence: float,
    fresh_cost: int,
    looked: Mapping[str, tuple[Plan, tuple[int, ...]]],
    head: tuple[int, str] | None,
) -> Combined:
    """Build the account of how an answer was combined.

    Args:
        query: Query that was answered.
        plan: Measurement plan of the query.
        found: Estimates that the answer is made of.
        confidence: Confidence of the intervals.
        fresh_cost: Units that a fresh draw would cost.
        looked: Plan and numbers of the recorded measurements of each purchase in the estimates, by key.
        head: Entries and root of the log; None if the ledger has no log.
    """
    values = sum(purchase.values for purchase, _ in looked.values())
    factor, ends = ends_of(query, plan, found, confidence, values)
    parts = [_part(key, *looked[key], found) for key in looked]
    certificate = None
    numbered = all(numbers for _, numbers in looked.values())
    if numbered and sum(len(one.rows) for one in found) <= _MOST_WEIGHTS:
        size, root = head or (None, None)
        numbers = {key: listed for key, (_, listed) in looked.items()}
        certificate = certify(plan, found, measurements=numbers, log_size=size, log_root=root)
    return Combined(
        tuple(sorted(parts, key=lambda part: -part.noise)),
        plan.question.text,
        values,
        factor,
        ends,
        fresh_cost,
        certificate,
    )


def ends_of(
    query: Query,
    plan: Plan,
    found: Sequence[Estimate],
    confidence: float,
    values: int,
    *,
    cut_only: bool = False,
) -> tuple[float, tuple[tuple[float, float], ...]]:
    """Return the factor and the ends of each cell that hold for any question chosen from so many values."""
    factor = any_choice_factor(values, confidence)
    wider = (factor / half_width_factor(confidence)) ** 2
    wide = [_Wider(one, wider) for one in found]
    cells = combined_cells(query, plan, wide, confidence, cut_only=cut_only)  # type: ignore[arg-type]
    return factor, tuple((cell.estimate.low, cell.estimate.high) for cell in cells)


def _part(key: str, plan: Plan, numbers: tuple[int, ...], found: Sequence[Estimate]) -> Part:
    """Return the contribution of a purchase to an answer."""
    noise, units, weights = 0.0, 0, []
    for one in found:
        parts = [(row, float(weight)) for row, weight in zip(one.rows, one.weights, strict=True)]
        total = math.fsum(weight**2 * float(row.variance) for row, weight in parts) or 1.0
        for row, weight in parts:
            if row.key == key:
                noise += weight**2 * float(row.variance) / total / len(found)
                units = row.information
                weights.append(weight)
    return Part(
        *(key, plan.question.text, units, numbers, plan.values),
        *(noise, min(weights), max(weights)),
    )


def weights(part: Part) -> str:
    """Format the range of the weights of a purchase's values."""
    if part.least == part.most:
        return f"weight {part.least:.3g}"
    return f"weights {part.least:.3g} to {part.most:.3g}"


def worth(found: Sequence[Estimate]) -> int:
    """Return the units that an answer is worth: those of its least exact coordinate."""
    return min(one.information for one in found)


@dataclass(frozen=True)
class _Wider:
    """An estimate with its variance multiplied by a factor, so that its interval is wider by the root."""

    one: Estimate
    times: float

    @property
    def value(self) -> Fraction:
        return self.one.value

    @property
    def variance(self) -> float:
        return self.one.variance * self.times

    def covariance(self, other: _Wider) -> float:
        return self.one.covariance(other.one) * self.times


@lru_cache(maxsize=1024)
def any_choice_factor(values: int, confidence: float) -> float:
    """Return sqrt(chi2_r) at the quantile of the confidence, r = values.

    Reference: Scheffe 1953.
    """
    wide = 10 * math.sqrt(2 * values) + 100
    low, high = max(0.0, values - wide), values + wide
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if _above(values, middle) > 1 - confidence else (low, middle)
    return math.sqrt(high)


def _above(r: int, x: float) -> float:
    """Return the probability that chi2 with r degrees of freedom exceeds x: a finite sum for whole r."""
    if x <= 0:
        return 1.0
    half, odd = x / 2, r % 2
    total = math.erfc(math.sqrt(half)) if odd else 0.0
    term = 0.5 * odd * math.log(half) - half - math.lgamma(1 + 0.5 * odd)  # log of the first one
    for k in range(r // 2):
        total += math.exp(term)
        term += math.log(half / (k + 1 + 0.5 * odd))
    return total
