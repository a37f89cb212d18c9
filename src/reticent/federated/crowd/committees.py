"""The chances of a committee: that it is captured, that it stalls.

Hostile stake of share h wins H seats and honest stake G, independently; many small units make both Poisson
(mathematics 6.3). More than two thirds of the seats that were taken decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, fsum, lgamma, log

from reticent.arguments import real, whole
from reticent.federated.crowd.lottery.seats import MOST_EXPECTED

_NEGLIGIBLE = 1e-30  # of a chance: what is left out of a sum


@dataclass(frozen=True)
class Chances:
    """The chances of one committee to be captured or to stall.

    Attributes:
        captured: Chance that hostile seats alone decide.
        stalled: Chance that honest seats alone do not decide, so that the hostile ones can block everything.
    """

    captured: float
    stalled: float


def chances(hostile: float, expected: int, *, least: int = 1) -> Chances:
    """Return the chances that a committee is captured or stalls.

    Args:
        hostile: Share of all stake that obeys an attacker, or is silent.
        expected: seats on average.
        least: seats without which nothing is decided.

    Departure: stakes are finitely many units, and seats binomial instead of Poisson, which makes both chances
        smaller, with 20 seats and a fifth of 1,000 units by 13 % and 2 %.
    """
    real("hostile", hostile, low=0, high=1)
    whole("expected", expected, low=1, high=MOST_EXPECTED)
    whole("least", least, low=1, high=expected)
    bad, good = _poisson(hostile * expected), _poisson((1 - hostile) * expected)
    captured, stalled = [], []
    for h, chance_h in enumerate(bad):
        for g, chance_g in enumerate(good):
            taken = h + g if h + g >= least else 0
            if taken and 3 * h > 2 * taken:
                captured.append(chance_h * chance_g)
            if not (taken and 3 * g > 2 * taken):
                stalled.append(chance_h * chance_g)
    return Chances(fsum(captured), fsum(stalled))


def _poisson(mean: float) -> list[float]:
    """Return the probabilities of 0, 1, 2, ... until the remaining ones are negligible."""
    if mean == 0:
        return [1.0]
    found: list[float] = []
    number = 0
    while number <= mean or found[-1] > _NEGLIGIBLE:
        found.append(exp(-mean + number * log(mean) - lgamma(number + 1)))
        number += 1
    return found
