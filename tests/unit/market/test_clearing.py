"""The c of a budget: the numbers that are known, within the budget always, moved by nobody it pays."""

import math

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.market import Linear, Log, clearing_c, halves
from reticent.randomness import SimulationStream

PRICES = (0.2, 0.4, 0.5, 0.7, 0.9)
KNOWN = {
    Log: {0.5: 3.227700126245, 1: 2.402958679553, 2: 1.750571671831, 3: 1.386530431359, 5: 0.932356675844},
    Linear: {0.5: 1.699802364594, 1: 1.257172790348, 2: 0.897550979584, 3: 0.693185649479, 5: 0.462557153892},
}


@pytest.mark.parametrize("family", [Log, Linear])
@pytest.mark.parametrize("budget", [0.5, 1, 2, 3, 5])
def test_the_known_roots(family, budget):
    assert clearing_c(family, PRICES, budget) == pytest.approx(KNOWN[family][budget], rel=1e-11)


def overspent(find, draws, seed):
    """The most that a c pays above its budget, as a share of it, over random markets."""
    drawn, worst = np.random.default_rng(seed), -math.inf
    for _ in range(draws):
        family = (Log, Linear)[drawn.integers(2)]
        prices = drawn.gamma(0.5, 1.0, drawn.integers(1, 40)) * 10.0 ** drawn.integers(-3, 4)
        prices[drawn.random(prices.size) < 0.2] = 0.0
        budget = 10.0 ** drawn.uniform(-4.0, 5.0)
        scale = 10.0 ** drawn.uniform(-1.0, 1.0)
        c = find(family, prices, budget, scale)
        worst = max(worst, float(family(c, scale).payment(prices).sum()) / budget - 1.0)
    return worst


def ours(family, prices, budget, scale):
    return clearing_c(family, prices, budget, scale=scale)


def test_payments_are_within_the_budget_and_use_it():
    assert -1e-9 < overspent(ours, 1_000, seed=1) <= 0.0


@pytest.mark.slow
def test_payments_are_within_the_budget_in_a_hundred_thousand_markets():
    assert -1e-9 < overspent(ours, 100_000, seed=2) <= 0.0


def test_planted_the_printed_c_overspends():
    """H.4's linear c takes every seller for active: n - 2 budget c - c^2 sum p^2 = 0."""

    def printed(family, prices, budget, scale):
        squares = float(np.square(prices).sum())
        if family is Log or squares == 0.0:
            return ours(family, prices, budget, scale)
        money = budget / scale
        return len(prices) / (money + math.sqrt(money**2 + squares * len(prices)))

    assert overspent(printed, 300, seed=3) > 0.1
    assert printed(Linear, np.array(PRICES), 0.5, 1.0) == pytest.approx(1.42857, abs=1e-5)


def moved_by_its_own(find, seed):
    """Whether somebody's price moves the offer that pays her."""
    prices = np.random.default_rng(seed).uniform(0.1, 1.0, 12)
    for seller in range(12):
        raised = prices.copy()
        raised[seller] *= 1.5
        if find(prices, seller) != find(raised, seller):
            return True
    return False


def offer_of(prices, seller):
    first, for_first, for_others = halves(Log, prices, 3.0, rng=SimulationStream(5))
    return (for_first if first[seller] else for_others).c


def test_nobody_moves_the_c_that_pays_her():
    assert not moved_by_its_own(offer_of, seed=1)


def test_planted_c_from_ones_own_bid_is_caught():
    assert moved_by_its_own(lambda prices, seller: clearing_c(Log, prices, 3.0), seed=1)


@pytest.mark.parametrize(
    ("prices", "budget", "rule"),
    [
        ([], 1.0, "at least one seller"),
        ([1.0, math.nan], 1.0, "prices must be finite"),
        ([1.0, math.inf], 1.0, "prices must be finite"),
        ([-1.0], 1.0, "prices must be finite numbers >= 0"),
        ([1.0], 0.0, "budget must be > 0"),
        ([1.0], math.inf, "budget must be finite"),
    ],
)
def test_bad_markets_name_their_rule(prices, budget, rule):
    with pytest.raises(ParameterError, match=rule):
        clearing_c(Log, prices, budget)
