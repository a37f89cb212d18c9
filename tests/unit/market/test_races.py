"""Anything in any order: one deposit is never spent twice, and every cent is somewhere."""

import contextlib
import random

import pytest

from reticent.market.holds import ask
from reticent.market.outcomes import HoldOutcome, SaleOutcome
from reticent.market.store import Purse, SaleStore
from reticent.randomness import SimulationStream

from ..collect import fleet
from .trade import NOW, Stall, faults


def sell_after_holding(stall, numbers):
    """Hold for all enrolments, and only then sell; return how many were held and how many were paid."""
    (held,) = stall.store.bills().values()
    reporters = [
        number
        for number in numbers
        if stall.market.hold([ask(fleet.enrolment(number), held.bill, 1, NOW)])[0][0] is HoldOutcome.COUNTED
    ]
    paid = 0
    for number in reporters:
        report = fleet.report(held.surveys[1], fleet.enrolment(number), stream=SimulationStream(number))
        paid += stall.market.receive([report]) == [SaleOutcome.COUNTED]
    return len(reporters), paid


def test_holds_of_one_deposit_are_as_many_as_it_pays(tmp_path):
    """Two markets on the same files take turns, as two processes would."""
    with contextlib.closing(Stall(tmp_path)) as one, contextlib.closing(Stall(tmp_path)) as other:
        one.offer(deposit=50 * 20)
        assert sell_after_holding(one, range(12)) == (12, 12)
        assert sell_after_holding(other, range(12, 36)) == (8, 8)
        assert faults(one.market) == []


def test_planted_a_market_that_does_not_count_holds_is_caught(tmp_path, monkeypatch):
    """The ledger still pays no more than the deposit: sellers are promised what they never get."""
    monkeypatch.setattr(Purse, "left", property(lambda self: self.deposit - self.sold))
    monkeypatch.setattr(SaleStore, "keep", _without_sums)
    with contextlib.closing(Stall(tmp_path)) as stall:
        stall.offer(deposit=50 * 20)
        held, paid = sell_after_holding(stall, range(36))
        assert held == 36
        assert paid == 20  # the cap of the account
        assert faults(stall.market)


def _without_sums(self, held, purse):
    self._base.execute("UPDATE bill SET funded = 1 WHERE number = ?", (held.number,))


class Anything:
    """Whatever buyers and devices may do, in random order."""

    def __init__(self, stall, seed):
        self.stall, self.rng = stall, random.Random(seed)
        self.held, self.reports = {}, []

    def step(self):
        stall, rng = self.stall, self.rng
        bills = list(stall.store.bills().values())
        what = rng.random()
        if what < 0.04 or not bills:
            name = f"bill-{len(bills)}"
            cents = sorted(rng.sample(range(1, 200), 3))
            stall.offer(name, cents=cents, deposit=rng.randrange(cents[0], 900), is_funded=rng.random() < 0.9)
        elif what < 0.5:
            asks = []
            for _ in range(rng.randrange(1, 4)):
                held, number, place = rng.choice(bills), rng.randrange(30), rng.randrange(3)
                asks.append(ask(fleet.enrolment(number), held.bill, place, stall.clock.now + rng.random()))
                self.held[held.number, number] = place
            stall.market.hold(asks)
        elif what < 0.9 and self.held:
            reports = []
            for _ in range(rng.randrange(1, 4)):
                (bill, number), place = rng.choice(list(self.held.items()))
                held = bills[bill - 1]
                place = place if rng.random() < 0.8 else rng.randrange(3)
                stream = SimulationStream(number, path=(bill, place))
                reports.append(
                    fleet.report(held.surveys[place], fleet.enrolment(number), 0, {}, stream=stream)
                )
            stall.market.receive(reports + rng.sample(self.reports, min(1, len(self.reports))))
            self.reports += reports
        elif what < 0.95:
            stall.clock.now += rng.choice((1, 400, 1000))
        elif what < 0.98:
            stall.market.close(rng.choice(bills))
        else:
            stall.market.tend()


def played(folder, steps, seed):
    """What is wrong after so many steps, or on the way."""
    found = []
    with contextlib.closing(Stall(folder)) as stall:
        anything = Anything(stall, seed)
        for number in range(steps):
            anything.step()
            if number % 50 == 0:
                found += faults(stall.market)
        stall.clock.now += 2000
        for held in stall.store.bills().values():
            done = stall.market.close(held)
            if done.state != "closed" or (done.paid and done.paid + done.refund != held.deposit):
                found.append(f"{done} of {held.deposit}")
        found += faults(stall.market)
        sales = sum(sum(stall.store.counts(held)) for held in stall.store.bills().values())
    return found, sales


def test_anything_in_any_order_keeps_every_cent(tmp_path):
    found, sales = played(tmp_path, 300, seed=1)
    assert found == []
    assert sales > 20


@pytest.mark.slow
def test_anything_in_any_order_keeps_every_cent_in_full(tmp_path):
    for seed in range(10):
        place = tmp_path / str(seed)
        place.mkdir()
        assert played(place, 3000, seed=100 + seed)[0] == []


def test_planted_holds_that_are_never_released_are_caught(tmp_path, monkeypatch):
    """Closing would wait for ever."""
    monkeypatch.setattr(SaleStore, "release", lambda self, held, purse, now: None)
    assert any("closing" in one for one in played(tmp_path, 120, seed=1)[0])
