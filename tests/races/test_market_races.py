"""Processes that sell to one market at once: one deposit is never spent twice."""

import contextlib
import multiprocessing

import pytest

from reticent.market.holds import ask
from reticent.market.outcomes import HoldOutcome, SaleOutcome
from reticent.market.store import Purse, SaleStore
from reticent.randomness import SimulationStream

from ..unit.collect import fleet
from ..unit.market.test_races import _without_sums
from ..unit.market.trade import NOW, Stall, faults

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

FORK = multiprocessing.get_context("fork")


def sell_many(folder, numbers, pipe, plant):
    """Hold and sell for some enrolments; tell how many were paid."""
    plant()
    stall = Stall(folder)
    (held,) = stall.store.bills().values()
    pipe.recv()
    paid = 0
    for number in numbers:
        ((outcome, _),) = stall.market.hold([ask(fleet.enrolment(number), held.bill, 1, NOW)])
        if outcome is HoldOutcome.COUNTED:
            report = fleet.report(held.surveys[1], fleet.enrolment(number), stream=SimulationStream(number))
            paid += stall.market.receive([report]) == [SaleOutcome.COUNTED]
    pipe.send(paid)
    stall.close()


def raced(folder, *, processes=3, each=12, sales=20, plant=lambda: None):
    """How many sales were paid out of a deposit for so many, and what is wrong then."""
    with contextlib.closing(Stall(folder)) as stall:
        stall.offer(deposit=50 * sales)
    children = []
    for one in range(processes):
        here, there = FORK.Pipe()
        numbers = range(one * each, (one + 1) * each)
        child = FORK.Process(target=sell_many, args=(folder, numbers, there, plant))
        child.start()
        there.close()
        children.append((child, here))
    for _, pipe in children:
        pipe.send("go")
    paid = 0
    for child, pipe in children:
        with contextlib.suppress(EOFError):  # one that fell over an error of its own
            paid += pipe.recv()
        child.join()
    with contextlib.closing(Stall(folder)) as stall:
        stall.market.settle()
        return paid, faults(stall.market)


def test_processes_that_sell_one_deposit_spend_it_once(tmp_path):
    assert raced(tmp_path) == (20, [])


def test_planted_a_market_that_does_not_count_holds_is_caught(tmp_path, race_counter):
    """The ledger still pays no more than the deposit: sellers are promised what they never get."""

    def plant():
        Purse.left = property(lambda self: self.deposit - self.sold)
        SaleStore.keep = _without_sums

    def attempt(number):
        place = tmp_path / str(number)
        place.mkdir()
        paid, found = raced(place, plant=plant)
        assert paid <= 20  # the cap of the account
        return found

    race_counter.repeat_until_caught(attempt, max_attempts=50)
