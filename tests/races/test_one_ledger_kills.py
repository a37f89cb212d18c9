"""Openers of one declaration, or of one population, at once; killed and started again (T24).

Every opener buys parts of the budget until it is refused. However they come together, exactly the budget is
sold: what a killed process had paid for may never be answered, nor what was drawn while the account moved.
"""

import contextlib
import itertools
import multiprocessing
import os
import random

import pytest

from reticent.errors import ReticentError

from ..service import test_one_ledger as one_ledger
from ..service import test_one_population as one_population
from ..service.test_one_ledger import declaration
from ..service.test_one_population import desk, tables

__all__ = ["declaration", "desk", "tables"]  # fixtures

FORK = multiprocessing.get_context("fork")


def buy_until_refused(purchases, note):
    """Run in a process of its own: buy, and write down each answer that came."""
    file = os.open(note, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with contextlib.suppress(ReticentError):
        for answer in purchases():
            os.write(file, f"{answer}\n".encode())
    os._exit(0)


def run_together(openers, note, kills, *, pause_s, seed=24):
    """Start all openers at once, kill some of them and start them again; return what was answered.

    Args:
        openers: Functions by name; each takes a number and buys until it is refused.
        note: File for the answers.
        kills: Number of kills.
        pause_s: Longest time between two kills.
        seed: Seed of the moments.
    """
    rng, numbers = random.Random(seed), itertools.count(1)

    def start(name):
        number = next(numbers)
        child = FORK.Process(target=buy_until_refused, args=(lambda: openers[name](number), note))
        child.start()
        return child

    running = {name: start(name) for name in openers}
    for _ in range(kills):
        name = rng.choice(list(openers))
        running[name].join(rng.random() * pause_s)
        running[name].kill()
        running[name].join()
        running[name] = start(name)
    for child in running.values():
        child.join()
    for name in openers:  # whatever the account's move cut off
        start(name).join()
    return set(note.read_text().splitlines()) if note.exists() else set()


@pytest.mark.parametrize("kills", [0, 12, pytest.param(300, marks=pytest.mark.slow)])
def test_one_budget_is_sold_once(declaration, tmp_path, race_counter, kills):
    openers = {
        name: lambda number, buy=buy: buy(declaration, range(number, 1000, 7))
        for name, buy in one_ledger.BUY.items()
    }
    answered = run_together(openers, tmp_path / "answered.txt", kills, pause_s=0.5)
    part = one_ledger.part_of(declaration)
    race_counter.report(f"{kills} kills, {len(answered)} answers")
    assert one_ledger.spent(declaration) // part == one_ledger.PARTS
    assert len(answered) <= one_ledger.PARTS
    if not kills:
        assert len(answered) == one_ledger.PARTS - one_ledger.units_closed(declaration) // part


@pytest.mark.parametrize("kills", [0, 12, pytest.param(150, marks=pytest.mark.slow)])
def test_one_cap_holds_over_two_tables_and_a_survey(desk, tmp_path, race_counter, kills):
    openers = {
        name: lambda number, name=name, buy=buy: (f"{name} {x}" for x in buy(desk, range(number, 1000, 9)))
        for name, buy in one_population.BUY.items()
    }
    answered = run_together(openers, tmp_path / "shown.txt", kills, pause_s=0.6)
    balance, held, survey = one_population.account(desk)
    part, each = one_population.part_of(desk[0]), one_population.period_price(desk)
    periods = {line for line in answered if line.startswith("survey")}
    race_counter.report(f"{kills} kills, {len(answered)} answers")
    assert len(answered - periods) * part + len(periods) * each <= balance.spent <= balance.terms.cap
    assert balance.remaining < min(part, each)  # all of it was asked for
    assert sum(units for _, units in held) == balance.spent
    assert len(periods) <= sum(name.startswith(survey) for name, _ in held)
