"""Whole markets, simulated: sellers pick levels of a menu by their prices, and intervals cover the truth."""

import math

import numpy as np
import pytest

from reticent.estimation import combined_frequencies
from reticent.market import Log, Menu
from reticent.market.rounds import honest, served
from reticent.mechanisms.categorical import KRR
from reticent.privacy import UNITS_PER_ONE
from reticent.randomness import SimulationStream

SHARES = np.array([0.5, 0.3, 0.15, 0.05])
CATEGORIES = ("a", "b", "c", "d")
SELLERS, CENTS, DEPOSIT = 400, 1_000, 800_000
MENU = Menu.of(Log(1.2, 4.0), cents=CENTS, levels=6)


def interval_of(seed, told=lambda epsilon: epsilon, cheaper=0):
    """One market: the interval of the first category, and how many levels were sold.

    Args:
        seed: of prices, data and noise.
        told: the epsilon that the estimate takes for the one of a level.
        cheaper: cents by which sellers of the first category ask less; by default prices tell nothing.
    """
    drawn, stream = np.random.default_rng(seed), SimulationStream(seed)
    data = drawn.choice(SHARES.size, SELLERS, p=SHARES)
    prices = drawn.normal(0.6 * CENTS, 0.4 * CENTS, SELLERS) - cheaper * (data == 0)
    prices = np.clip(prices, 0, None).astype(int)
    sold = served([MENU] * SELLERS, [honest(int(price)) for price in prices], DEPOSIT, rng=stream)
    assert sold.paid + sold.refund == DEPOSIT
    levels = []
    for level in MENU.levels:
        mine = data[[one == level for one in sold.sold]]
        if mine.size:
            epsilon = level.units / UNITS_PER_ONE
            counts = np.bincount(
                KRR(epsilon=epsilon, categories=CATEGORIES).sample([CATEGORIES[one] for one in mine], stream),
                minlength=SHARES.size,
            )
            said = math.exp(told(epsilon))
            p, q = said / (SHARES.size - 1 + said), 1 / (SHARES.size - 1 + said)
            levels.append((counts, int(mine.size), p, q))
    found = combined_frequencies(levels, confidence=0.95)
    return float(found.lower[0]), float(found.upper[0]), len(levels)


def missed(markets, **changes):
    """In how many markets the interval misses the share of the first category."""
    found = [interval_of(seed, **changes) for seed in range(markets)]
    assert max(levels for _, _, levels in found) > 1  # levels were mixed
    return sum(not low <= SHARES[0] <= high for low, high, _ in found)


def test_intervals_cover():
    """At most 5 % may miss: 7 or more of 30 with a chance below 6e-4."""
    assert missed(30) <= 6


@pytest.mark.slow
def test_intervals_cover_in_a_thousand_markets():
    """5 % and five standard deviations of the count: false-alarm rate below 1e-6."""
    assert missed(1_000) <= 50 + 5 * math.sqrt(1_000 * 0.05 * 0.95)


def test_planted_reports_taken_as_they_are_are_caught():
    """As if nothing had been perturbed: shares too near to even, in intervals that are too narrow."""
    assert missed(30, told=lambda epsilon: 30.0) > 6


def test_prices_that_depend_on_the_data_are_not_covered():
    """What limits.md says: who sells is then no sample of everybody."""
    assert missed(30, cheaper=CENTS) > 6
