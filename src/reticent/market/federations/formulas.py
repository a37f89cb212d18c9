"""Formulas for sellers who deal together: contributions, quotas, free riders and earnings.

Every member uses randomised response among k values at her own epsilon, and charges her own ledger for it.
The value of a federation's pooled reports is a matter of accuracy. `pooled_level` measures it as the
documents do; it is not the privacy of anybody.

One unit runs through a deal: the contribution of d reports at epsilon is d e^eps / (k - 1 + e^eps), the
number of them that are expected to be true. It is additive, so a quota in it makes a threshold game, whose
Shapley value splits the money.

Reference: Biswas 2023, Section 8.4, Eq. 8.1 and 8.2, Definitions 8.4.1 to 8.4.3, Algorithms 10 to 12.
Departure: the documents use three contributions (Algorithm 10, Example 8.4.1, Definition 8.4.1); here it is
    the example's. The catalysing parameter is at least 1 and a whole number, and never asks for more than a
    member's threshold (mathematics 5.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.market.shapley import threshold_values
from reticent.mechanisms.base import Floats

UNITS = 10**6  # units in the contribution of one true report
MOST_POINTS = 64  # points of one valuation
_ALIKE = Fraction(1, 10**9)  # cents by which equal shares may differ


def pooled_level(points: ArrayLike, epsilons: ArrayLike, k: int) -> float:
    """Return the level of one randomised response that errs as often as the pooled reports.

    The level measures accuracy only: each member has spent her own epsilon, independently of it.

    Reference: Biswas 2023, Eq. 8.1.
    """
    counts, levels = _members(points, epsilons)
    size = whole("k", k, low=2)
    counts, levels = counts[counts > 0.0], levels[counts > 0.0]
    least = float(levels.min())  # e^level itself is too large for a double beyond 709
    share = float((counts * np.exp(least - levels) / (1.0 + (size - 1.0) * np.exp(-levels))).sum())
    return least + math.log(float(counts.sum()) / share + (1.0 - size) * math.exp(-least))


def contribution(points: ArrayLike, epsilons: ArrayLike, k: int) -> Floats:
    """Return the expected number of true reports of each member."""
    counts, levels = _members(points, epsilons)
    return np.asarray(counts / (1.0 + (whole("k", k, low=2) - 1.0) * np.exp(-levels)))


def quota_of(points: int, level: float, k: int) -> int:
    """Return the contribution of a number of reports at a pooled level, in units, rounded down.

    With everybody's reports at their own epsilons, and the level that Eq. 8.1 gives them, it is the sum of
    the contributions: the pooled channel tells the truth as often as the members do on average.
    """
    return in_units(contribution([whole("points", points, low=1)], [level], k))[0]


class Worth(Protocol):
    """An increasing function from money to a level, and back."""

    def level(self, money: float) -> float:
        """Return the level that an amount of money buys: f."""

    def money(self, level: float) -> float:
        """Return the pay for a level: the inverse of f."""


@dataclass(frozen=True)
class Tabled:
    """An increasing f given by points: linear from the origin to the last point, constant after it.

    Attributes:
        points: Pairs of money and level, both increasing.
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.points) <= MOST_POINTS:
            raise ParameterError(f"a valuation must have 1 to {MOST_POINTS} points, got {len(self.points)}")
        for one in self.points:
            for name, number in zip(("money", "level"), one, strict=True):
                real(name, number, low=0.0, open_low=True)
        if any(one[0] >= other[0] or one[1] >= other[1] for one, other in pairwise(self.points)):
            raise ParameterError("a valuation must give more level for more money")

    def level(self, money: float) -> float:
        """Return the level that an amount of money buys: f."""
        return self._between(real("money", money, low=0.0), 0)

    def money(self, level: float) -> float:
        """Return the pay for a level, at most that of the last point: the inverse of f."""
        return self._between(real("level", level, low=0.0), 1)

    def _between(self, given: float, side: int) -> float:
        known = [0.0, *(one[side] for one in self.points)]
        return float(np.interp(given, known, [0.0, *(one[1 - side] for one in self.points)]))


@dataclass(frozen=True)
class Valuation:
    """The level that a buyer wants for her money: f(M) = k1 (e^(k2 M) - 1).

    Reference: Biswas 2023, Section 8.4.1.
    """

    k1: float
    k2: float

    def __post_init__(self) -> None:
        real("k1", self.k1, low=0.0, open_low=True)
        real("k2", self.k2, low=0.0, open_low=True)

    def level(self, money: float) -> float:
        """Return the level that an amount of money buys: f."""
        return self.k1 * math.expm1(self.k2 * real("money", money, low=0.0))

    def money(self, level: float) -> float:
        """Return the pay for a level: the inverse of f."""
        return math.log1p(real("level", level, low=0.0) / self.k1) / self.k2


def deal_share(valuation: Worth, levels: Sequence[float], budget: float) -> float:
    """Return the share w of every federation's highest level that a budget buys; 1 if it buys all.

    The share is rounded down, so that the payments at it are within the budget.

    Reference: Biswas 2023, Eq. 8.2.
    """
    if not levels:
        raise ParameterError("levels must be of at least one federation, got none")
    money = real("budget", budget, low=0.0)

    def paid(share: float) -> float:
        return math.fsum(valuation.money(share * level) for level in levels)

    if paid(1.0) <= money:
        return 1.0
    low, high = 0.0, 1.0
    while True:
        middle = (low + high) / 2.0
        if not low < middle < high:
            return low
        if paid(middle) <= money:
            low = middle
        else:
            high = middle


def saving(points: float, threshold: float, used: float) -> float:
    """Return a member's saving in a year: points times (threshold - epsilon used), at least zero.

    Reference: Biswas 2023, Definition 8.4.2, a summand of it.
    """
    return max(0.0, points * (threshold - used))


def catalysed(epsilon: float, savings: float, points: float, threshold: float) -> float:
    """Return the epsilon that a member is asked for next, given her last epsilon and her savings.

    It is N times the last one, where N = max(1, ceil(savings / (points threshold))), at most her threshold.

    Reference: Biswas 2023, Section 8.4.2 and Algorithm 11.
    """
    per_year = real("points", points, low=0.0, open_low=True) * real(
        "threshold", threshold, low=0.0, open_low=True
    )
    times = max(1, math.ceil(real("savings", savings, low=0.0) / per_year))
    return min(threshold, times * real("epsilon", epsilon, low=0.0))


def free_riders(savings: Sequence[float], tolerated: float) -> list[int]:
    """Return the indices of the members who saved at least what is tolerated.

    Reference: Biswas 2023, Definition 8.4.3. A higher tolerance has fewer of them; Section 8.5.2 says more.
    """
    most = real("tolerated", tolerated, low=0.0, open_low=True)
    return [place for place, saved in enumerate(savings) if saved >= most]


def earnings(
    contributions: Sequence[int], quota: int, cents: int, *, earlier_rule: bool = False
) -> list[int]:
    """Divide cents among members by Shapley value, into whole cents that sum to the total.

    Remaining cents go to the largest fractions, then to the first members.

    Args:
        contributions: Contribution of each member, a whole number of the deal's unit (`in_units`).
        quota: Quota of the deal, in the same unit.
        cents: Cents that the federation was paid.
        earlier_rule: Divide as earlier releases did; see `threshold_values`.

    Returns:
        Cents of each member; all zero if the quota was missed: then the deal is void.
    """
    money = whole("cents", cents, low=0)
    values = threshold_values(contributions, quota, earlier_rule=earlier_rule)
    if not values.any():
        return [0] * len(values)
    shares = [Fraction(value) for value in values.tolist()]
    all_of_it = sum(shares)  # 1 up to rounding, which would matter if there are many cents
    exact = [share * money / all_of_it for share in shares]
    paid = [math.floor(one + _ALIKE) for one in exact]
    # Rounding makes equal fractions equal on every machine, whatever the last digits of a sum.
    order = sorted(range(len(paid)), key=lambda place: (round(paid[place] - exact[place], 9), place))
    for place in order[: money - sum(paid)]:
        paid[place] += 1
    return paid


def in_units(contributions: ArrayLike) -> list[int]:
    """Convert contributions to millionths of a true report, rounded down."""
    return [math.floor(UNITS * float(one)) for one in np.asarray(contributions, dtype=np.float64)]


def _members(points: ArrayLike, epsilons: ArrayLike) -> tuple[Floats, Floats]:
    counts, levels = np.asarray(points, dtype=np.float64), np.asarray(epsilons, dtype=np.float64)
    if counts.ndim != 1 or counts.shape != levels.shape or not counts.size:
        raise ParameterError(
            f"points and epsilons must be of the same members, got shapes {counts.shape} and {levels.shape}"
        )
    for name, held in (("points", counts), ("epsilons", levels)):
        if not (float(held.min()) >= 0.0 and float(held.max()) < math.inf):
            raise ParameterError(f"{name} must be finite numbers >= 0")
    if not counts.any():
        raise ParameterError("points must not all be zero")
    return counts, levels
