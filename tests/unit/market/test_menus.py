"""Menus: what devices refuse, the exact choice, rounds that never spend more than there is."""

import itertools
import random
import tracemalloc
from fractions import Fraction

import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.market import Level, Linear, Log, Menu, best_levels
from reticent.market.menus import MOST_STATES, Choice
from reticent.market.rounds import honest, served
from reticent.privacy import UNITS_PER_ONE
from reticent.randomness import SimulationStream

PERCENT = UNITS_PER_ONE // 100


def drawn_menu(drawn, levels):
    count = drawn.randint(1, levels)
    units, cents = (sorted(drawn.sample(range(1, most), count)) for most in (60, 100))
    return Menu(tuple(Level(PERCENT * one, paid) for one, paid in zip(units, cents, strict=True)))


def best_of_all(menus, price, budget):
    """By trying everything."""
    most = Fraction(0)
    for places in itertools.product(*([None, *range(len(menu.levels))] for menu in menus)):
        chosen = [menu.levels[place] for menu, place in zip(menus, places, strict=True) if place is not None]
        units, cents = sum(level.units for level in chosen), sum(level.cents for level in chosen)
        if units <= budget:
            most = max(most, cents - Fraction(price) * units / UNITS_PER_ONE)
    return most


def behind(choose, cases, seed):
    """In how many random cases a way to choose is not the best, or spends too much."""
    drawn, found = random.Random(seed), 0
    for _ in range(cases):
        menus = [drawn_menu(drawn, 5) for _ in range(drawn.randint(1, 3))]
        price, budget = Fraction(drawn.randint(0, 300), drawn.randint(1, 7)), drawn.randint(0, 120) * PERCENT
        choice = choose(menus, price, budget)
        found += choice.units > budget or choice.gain != best_of_all(menus, price, budget)
    return found


def test_the_choice_is_the_best_there_is():
    assert behind(best_levels, 500, seed=1) == 0


@pytest.mark.slow
def test_the_choice_is_the_best_there_is_in_ten_thousand_cases():
    assert behind(best_levels, 10_000, seed=2) == 0


def test_planted_the_printed_knapsack_is_caught():
    """Eq. 7.3 takes each menu's honest level or nothing, though another level would fit."""

    def printed(menus, price, budget):
        honest_levels = []
        for menu in menus:
            place = best_levels([menu], price, 2**61).places[0]
            honest_levels.append(None if place is None else menu.levels[place])
        most = Choice((), 0, 0, Fraction(0))
        for kept in itertools.product((False, True), repeat=len(menus)):
            chosen = [
                level for level, keep in zip(honest_levels, kept, strict=True) if keep and level is not None
            ]
            units, cents = sum(one.units for one in chosen), sum(one.cents for one in chosen)
            gain = cents - Fraction(price) * units / UNITS_PER_ONE
            if units <= budget and gain > most.gain:
                most = Choice((), units, cents, gain)
        return most

    assert behind(printed, 200, seed=3) > 20


def test_two_buyers_and_a_budget_that_binds():
    """True price 0.5, two log offers of c = 1, budget 1: honesty gains .549, the best choice .92."""
    menu = Menu.of(Log(1.0), cents=10_000)
    choice = best_levels([menu, menu], 5_000, UNITS_PER_ONE)
    assert float(choice.gain) / 10_000 == pytest.approx(0.921, abs=2e-3)
    alone = best_levels([menu], 5_000, UNITS_PER_ONE)
    assert float(alone.gain) / 10_000 == pytest.approx(0.549, abs=2e-3)


def test_a_menu_pays_what_the_offer_pays_and_never_more():
    for offer in (Log(1.3, 2.0), Linear(0.8)):
        menu = Menu.of(offer, cents=1_000)
        for level in menu.levels:
            epsilon = level.units / UNITS_PER_ONE
            assert level.cents <= 1_000 * float(offer.payment(offer.price_for(min(epsilon, offer.most))))


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: Menu(()), "1 to 64 levels"),
        (lambda: Menu((Level(2, 5), Level(3, 4))), "pay more for more epsilon"),
        (lambda: Menu((Level(2, 5), Level(2, 6))), "pay more for more epsilon"),
        (lambda: Level(0, 1), "units must be >= 1"),
        (lambda: Level(1, 0), "cents must be >= 1"),
        (lambda: Level(1, 10**16), "cents must be <= "),
        (lambda: Level(1.5, 1), "units must be a whole number"),
        (lambda: Menu.of(Log(1e9)), "less than one cent"),
        (lambda: best_levels([], -1, 5), "price must be"),
        (lambda: best_levels([], float("nan"), 5), "price must be"),
        (lambda: best_levels([Menu((Level(1, 1),))] * 65, 1, 5), "menus must be at most 64"),
    ],
)
def test_bad_menus_name_their_rule(make, rule):
    with pytest.raises((ParameterError, ParameterTypeError), match=rule):
        make()


def test_menus_made_to_keep_a_device_busy_are_refused_in_bounded_work(monkeypatch):
    monkeypatch.setattr("reticent.market.menus.MOST_STATES", 50)
    drawn = random.Random(4)
    menus = []
    for _ in range(30):
        units, cents = (sorted(drawn.sample(range(1, 10**9), 64)) for _ in range(2))
        menus.append(Menu(tuple(Level(u, c) for u, c in zip(units, cents, strict=True))))
    with pytest.raises(ParameterError, match="sell to fewer at once"):
        best_levels(menus, 10**12, 10**9)
    assert MOST_STATES > 50


def test_menus_made_to_fill_the_memory_of_a_device_are_refused_before(monkeypatch):
    monkeypatch.setattr("reticent.market.menus.MOST_STATES", 8_000)
    steps = [*(20**place for place in range(3)), 20**3]  # every sum of the first three is another
    menus = [
        Menu(tuple(Level(step * one, step * one) for one in range(1, count + 1)))
        for step, count in zip(steps, (19, 19, 19, 64), strict=True)
    ]
    tracemalloc.start()
    with pytest.raises(ParameterError, match="sell to fewer at once"):
        best_levels(menus, 0, 20**3 * 30 + 777)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 16_000 * 400  # bytes: states before and after, not 64 of each


# Rounds


def markets(serve, count, seed):
    """Over random rounds: how often money is lost or overspent, or a level sold that was not offered."""
    drawn, wrong = random.Random(seed), 0
    for case in range(count):
        size = drawn.randint(0, 12)
        menus = [drawn_menu(drawn, 6) if drawn.random() < 0.9 else None for _ in range(size)]
        picks = [honest(drawn.randint(0, 200), drawn.randint(0, 80) * PERCENT) for _ in range(size)]
        deposit = drawn.randint(0, 400)
        done = serve(menus, picks, deposit, SimulationStream(case))
        fits = all(
            level is None or (menu is not None and level in menu.levels)
            for level, menu in zip(done.sold, menus, strict=True)
        )
        wrong += not (
            fits and done.paid <= deposit and done.paid + done.refund == deposit and done.refund >= 0
        )
    return wrong


def test_rounds_pay_out_no_more_than_the_deposit():
    assert markets(lambda m, p, d, s: served(m, p, d, rng=s), 300, seed=1) == 0


@pytest.mark.slow
def test_a_hundred_thousand_rounds_pay_out_no_more_than_the_deposit():
    assert markets(lambda m, p, d, s: served(m, p, d, rng=s), 100_000, seed=2) == 0


def test_planted_menus_that_are_not_cut_overspend(monkeypatch):
    monkeypatch.setattr(Menu, "within", lambda self, cents: self)
    assert markets(lambda m, p, d, s: served(m, p, d, rng=s), 300, seed=1) > 0


def test_a_pick_that_was_not_offered_sells_nothing():
    menu = Menu((Level(5, 10),))
    done = served([menu], [lambda offered: Level(5, 11)], 100, rng=SimulationStream(1))
    assert done.sold == (None,)
    assert done.refund == 100
