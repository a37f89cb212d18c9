"""Kill -9 of devices that share one lifetime, at random moments: never more is told than was paid."""

import itertools
import multiprocessing
import os
import random
from fractions import Fraction

import pytest

from reticent.errors import BudgetExceeded

from ..unit.restored import folder, no_waiting
from ..unit.test_lifetime import NAMES, TOTAL, price, rooms, spent

__all__ = ["folder", "no_waiting", "rooms"]  # fixtures

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
FORK = multiprocessing.get_context("fork")


def report_all(rooms, path, paper):
    file = os.open(paper, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number, name in itertools.product(range(20), NAMES):
        try:
            with rooms[name].open(path) as device:
                rooms[name].report(device, number)
                os.write(file, f"{name} {number}\n".encode())
        except BudgetExceeded:
            continue
    os._exit(0)


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_at_any_moment(rooms, folder, race_counter, kills):
    path, paper, rng = folder / "ledger", folder.parent / "told.txt", random.Random(kills)
    with rooms["collect"].open(path, total=TOTAL):
        pass
    for kill in range(kills + 1):
        child = FORK.Process(target=report_all, args=(rooms, path, paper))
        child.start()
        child.join(None if kill == kills else rng.random() * 0.4)
        child.kill()
        child.join()
    told = set(paper.read_text().split("\n")) - {""}
    race_counter.report(f"{kills} kills, {len(told)} reports")
    assert sum(price(line.split()[0]) for line in told) <= spent(path) <= Fraction(TOTAL.epsilon)
    assert {line.split()[0] for line in told} == set(NAMES)
    assert Fraction(TOTAL.epsilon) - spent(path) < max(map(price, NAMES))
