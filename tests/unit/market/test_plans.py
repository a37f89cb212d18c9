"""What a budget buys, against markets that are played through."""

import math

import numpy as np
import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.market.menus import best_levels
from reticent.market.offering import Wanted, epsilon_within, menu_of
from reticent.market.plans import Guess, menu_for, planned
from reticent.mechanisms.record import Category, Number
from reticent.privacy import MAX_UNITS, UNITS_PER_ONE
from reticent.privacy.budget import cost_units

from .trade import CLOSES, NOW

SPEED = Number("speed", (0.0, 130.0))


def wanted(menu, deposit=10_000, attributes=(SPEED,)):
    return Wanted("speeds", "to test", tuple(attributes), menu, deposit, CLOSES)


def test_the_menu_of_a_budget_spends_it_and_not_more():
    guess = Guess(1000, 40.0, 0.7)
    for budget in (1000, 5000, 20_000):
        found = planned(wanted(menu_for(guess, budget, levels=16), budget), guess, now=NOW)
        assert 0.75 * budget <= found.cents <= budget
        assert 0 < found.count <= 1000


def test_a_plan_is_what_happens():
    """Sellers with drawn prices, each picking for herself: within five standard deviations of the count."""
    guess, menu = Guess(4000, 40.0, 0.7), menu_of([(0.25, 12), (0.5, 20), (1.0, 30)])
    found = planned(wanted(menu, 10**6), guess, now=NOW)
    prices = 40.0 * np.exp(0.7 * np.random.default_rng(3).normal(size=4000))
    picked = [best_levels([menu], round(price * 1000) // 1000, MAX_UNITS).places[0] for price in prices]
    for place, expected in enumerate(found.sellers):
        share = expected / 4000
        spread = math.sqrt(4000 * share * (1 - share)) + 40  # prices were cut to whole cents
        assert abs(picked.count(place) - expected) < 5 * spread
    assert abs(picked.count(0) - found.sellers[2]) > 5 * 40 or found.sellers[0] == found.sellers[2]


def test_more_money_is_a_narrower_interval():
    guess = Guess(5000, 40.0)
    widths = [
        planned(wanted(menu_for(guess, budget), budget), guess, now=NOW).expected[0].half_width
        for budget in (2000, 20_000, 100_000)
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < widths[0] / 2


def test_several_attributes_share_the_reports():
    menu = menu_of([(0.5, 20), (1.0, 30)])
    guess = Guess(5000, 30.0)
    both = planned(wanted(menu, 10**6, (SPEED, Category("kind", ["car", "bus"]))), guess, now=NOW)
    alone = planned(wanted(menu, 10**6), guess, now=NOW)
    assert [one.name for one in both.expected] == ["speed", "kind"]
    assert both.expected[0].half_width > alone.expected[0].half_width


def test_nobody_sells_below_her_price():
    found = planned(wanted(menu_of([(1.0, 1)])), Guess(100, 1e6, 0.0), now=NOW)
    assert (found.count, found.cents, found.expected[0].half_width) == (0, 0, math.inf)


@pytest.mark.parametrize(
    "given",
    [(0, 1.0), (10, math.nan), (10, -1.0), (10, 0.0), (10, math.inf), (10, 1.0, math.nan), (1.5, 1.0)],
)
def test_bad_guesses_are_refused(given):
    with pytest.raises((ParameterError, ParameterTypeError)):
        Guess(*given)


@pytest.mark.parametrize("epsilon", [math.nan, math.inf, -1.0, 0.0, 1e309])
def test_bad_levels_are_refused(epsilon):
    with pytest.raises((ParameterError, ParameterTypeError), match=r"levels\[0\].epsilon must be"):
        menu_of([(epsilon, 1)])


def test_levels_are_rounded_down():
    for units in (1, 3, 10**12, 333_333_333_333, 999_999_999_999, 7 * 10**11 + 1, 20 * 10**12):
        assert cost_units(epsilon_within(units)) <= units
        assert cost_units(math.nextafter(epsilon_within(units), math.inf)) > units - 2
    for epsilon in (0.1, 0.3, 0.7, 1.1, 1 / 3):
        (level,) = menu_of([(epsilon, 5)]).levels
        assert level.units <= epsilon * UNITS_PER_ONE
        (drawn,) = wanted(menu_of([(epsilon, 5)])).drawn_up(NOW)[0].levels
        assert drawn.units <= level.units
