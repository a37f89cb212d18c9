"""What is said of an answer that is combined from several purchases: which, their weights, how to trust it.

The interval of a combined answer holds for a question that was fixed before anybody saw the noise that it is
made of. Whoever looks at recorded values and then asks about what stood out reuses the noise that made it
stand out. Two ways out are told with every such answer: what a fresh draw costs, and the interval that holds
for any question that is chosen from those purchases, however it is chosen.

Reference: Scheffe 1953: with r independent normal errors, all their combinations are at most
sqrt(chi2_r) standard deviations from zero at once, with the chance of the quantile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from reticent.query.kinds.intervals import half_width_factor
from reticent.query.language.tree import Query
from reticent.query.measure import Plan
from reticent.query.span import Estimate, combined_cells


@dataclass(frozen=True)
class Part:
    """A purchase that an answer is combined from.

    Attributes:
        key: of its question.
        question: the text that the key is named after.
        information: units recorded under it, that were used.
        measurements: their numbers.
        values: how many it has.
        noise: its part of the variance of the answer, from 0 to 1; over all cells, where there are several.
        weights: place in the answer's vector, place in the purchase's, and the exact weight, as a fraction.
    """

    key: str
    question: str
    information: int
    measurements: tuple[int, ...]
    values: int
    noise: float
    weights: tuple[tuple[int, int, str], ...]

    @property
    def span(self) -> tuple[float, float]:
        """The least and the largest weight."""
        found = [float(Fraction(one)) for _, _, one in self.weights]
        return min(found), max(found)


@dataclass(frozen=True)
class Combined:
    """How an answer was combined.

    Attributes:
        parts: the purchases, those with most of the noise first.
        question: the text of the question that was asked.
        rows: the public number of rows, if the declaration has one.
        values: recorded values of all these purchases.
        factor: standard errors to either end of `ends`.
        ends: for each cell, an interval that holds for any question chosen from these purchases.
        fresh_cost: units that an answer as exact would cost as a fresh draw.
    """

    parts: tuple[Part, ...]
    question: str
    rows: int | None
    values: int
    factor: float
    ends: tuple[tuple[float, float], ...]
    fresh_cost: int

    def to_json(self) -> dict[str, Any]:
        """Everything, with amounts as decimal strings of units and weights as fractions."""
        return {
            "parts": [
                {
                    "key": part.key,
                    "question": part.question,
                    "information": str(part.information),
                    "measurements": list(part.measurements),
                    "values": part.values,
                    "noise": part.noise,
                    "weights": [list(one) for one in part.weights],
                }
                for part in self.parts
            ],
            "question": self.question,
            "rows": self.rows,
            "values": self.values,
            "factor": self.factor,
            "ends": [list(one) for one in self.ends],
            "fresh_cost": str(self.fresh_cost),
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Combined:
        """What `to_json` told."""
        return cls(
            tuple(
                Part(
                    str(one["key"]),
                    str(one["question"]),
                    int(one["information"]),
                    tuple(int(number) for number in one["measurements"]),
                    int(one["values"]),
                    float(one["noise"]),
                    tuple((int(to), int(of), str(weight)) for to, of, weight in one["weights"]),
                )
                for one in given["parts"]
            ),
            str(given["question"]),
            None if given["rows"] is None else int(given["rows"]),
            int(given["values"]),
            float(given["factor"]),
            tuple((float(low), float(high)) for low, high in given["ends"]),
            int(given["fresh_cost"]),
        )


def combined(
    query: Query,
    plan: Plan,
    found: Sequence[Estimate],
    confidence: float,
    fresh_cost: int,
    look: Callable[[str], tuple[Plan, tuple[int, ...]]],
) -> Combined:
    """What is said of an answer.

    Args:
        query: what was asked.
        plan: how it would be measured.
        found: the estimates that it is made of.
        confidence: of its intervals.
        fresh_cost: units that a fresh draw would cost.
        look: from a key to how that purchase was measured, and the numbers of its recorded measurements.
    """
    keys = list(dict.fromkeys(key for one in found for key in one.keys))
    noise: dict[str, float] = dict.fromkeys(keys, 0.0)
    weights: dict[str, list[tuple[int, int, str]]] = {key: [] for key in keys}
    units: dict[str, int] = {}
    for place, one in enumerate(found):
        total = math.fsum(float(weight**2 * row.variance) for row, weight in one.weights) or 1.0
        for row, weight in one.weights:
            noise[row.key] += float(weight**2 * row.variance) / total / len(found)
            weights[row.key].append((place, row.coordinate, str(weight)))
            units[row.key] = row.information
    looked = {key: look(key) for key in keys}
    values = sum(purchase.values for purchase, _ in looked.values())
    factor = any_choice_factor(values, confidence)
    wider = (factor / half_width_factor(confidence)) ** 2
    ends = combined_cells(query, plan, [_Wider(one, wider) for one in found], confidence)  # type: ignore[misc]
    parts = [
        Part(
            key, purchase.question.text, units[key], numbers, purchase.values, noise[key], tuple(weights[key])
        )
        for key, (purchase, numbers) in looked.items()
    ]
    return Combined(
        tuple(sorted(parts, key=lambda part: -part.noise)),
        plan.question.text,
        plan.question.data.rows,
        values,
        factor,
        tuple((cell.estimate.low, cell.estimate.high) for cell in ends),
        fresh_cost,
    )


def worth(found: Sequence[Estimate]) -> int:
    """The units that an answer is worth: those of its least exact coordinate."""
    return min(one.information for one in found)


@dataclass(frozen=True)
class _Wider:
    """An estimate whose noise counts so many times, by its variance: its interval is wider by the root."""

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
    """sqrt(chi2_r) at the quantile of the confidence, r = values.

    Reference: Scheffe 1953.
    """
    wide = 10 * math.sqrt(2 * values) + 100
    low, high = max(0.0, values - wide), values + wide
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if _above(values, middle) > 1 - confidence else (low, middle)
    return math.sqrt(high)


def _above(r: int, x: float) -> float:
    """The chance that chi2 with r degrees of freedom is above x: a finite sum for whole r."""
    if x <= 0:
        return 1.0
    half, odd = x / 2, r % 2
    total = math.erfc(math.sqrt(half)) if odd else 0.0
    term = 0.5 * odd * math.log(half) - half - math.lgamma(1 + 0.5 * odd)  # log of the first one
    for k in range(r // 2):
        total += math.exp(term)
        term += math.log(half / (k + 1 + 0.5 * odd))
    return total
