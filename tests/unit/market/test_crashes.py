"""Crashes of service, device and buyer: each sale is charged, counted and paid once, or not at all."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from reticent.collect.device import Device
from reticent.market import escrow
from reticent.market.outcomes import SaleOutcome
from reticent.market.seller import Seller
from reticent.market.store import PAID, STORED, SaleStore
from reticent.privacy import UNITS_PER_ONE

from ...support.crash_points import DURABLE_CALLS, enumerate_crashes
from ..collect import fleet
from .trade import NOW, Stall, faults

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

DEPOSITS = (10**6, 900)
EARLY, LATE = 7001, 7002  # devices: one that sold before, one that sells while a process is ended


def sell(stall, number=LATE):
    """Let a device sell to a market in the same process; return its charge in units."""
    path = stall.folder / f"{number}.ledger"
    with contextlib.closing(Device(path, fleet.enrolment(number), fleet.SIGNER, lifetime=2.0)) as device:
        seller = Seller(device, price=20)
        bills = [seller.take(*stall.store.files(held)) for held in stall.store.bills().values()]
        seller.sell(bills, {"speed": 50.0}, stall.market, now=NOW)
        return round(device.spent * UNITS_PER_ONE)


def close_bill(stall):
    """Let the buyer close the smaller bill."""
    stall.market.close(list(stall.store.bills().values())[1])


def faults_in_the_end(folder):
    """Let everybody sell in peace and close all bills; return what is wrong then."""
    wrong = []
    with contextlib.closing(Stall(folder)) as stall:
        stall.market.settle()
        charged = {number: sell(stall, number) for number in (EARLY, LATE)}
        stall.clock.now += 1000  # a hold that was not used is free again
        for held in stall.store.bills().values():
            account = stall.market.close(held)
            if (account.state, account.paid + account.refund) != ("closed", held.deposit):
                wrong.append(f"{account.paid} and {account.refund} are not {held.deposit}: {account.state}")
        wrong += faults(stall.market)
        for number, units in charged.items():
            sold = stall.market.earned(fleet.enrolment(number).id)
            due = sum(held.bill.levels[sale.place].units for held, sale in sold if sale.state == PAID)
            if units != due:
                wrong.append(f"device {number} was charged {units} for sales of {due}")
            wrong += [f"device {number}: stored, not paid" for _, sale in sold if sale.state == STORED]
    return wrong


@pytest.fixture
def market_folder(tmp_path):
    """A market with two bills, to one of which a device has sold."""
    folder = tmp_path / "start"
    folder.mkdir()
    with contextlib.closing(Stall(folder)) as stall:
        for number, deposit in enumerate(DEPOSITS):
            stall.offer(f"bill-{number}", deposit=deposit)
        sell(stall, EARLY)
    return folder


def faults_after_crashes(start, work, calls=DURABLE_CALLS):
    """End a process that works in a copy of a folder at each of its points; yield what was wrong after it.

    The marks that devices keep outside of their folder are put back too.
    """
    live, marks = start.with_name("live"), Path(os.environ["XDG_STATE_HOME"])
    kept_marks = start.with_name("marks")
    marks.mkdir(exist_ok=True, parents=True)
    shutil.copytree(start, live)
    shutil.copytree(marks, kept_marks)
    for point in enumerate_crashes(work, prepare=lambda: Stall(live), calls=calls):
        yield point, faults_in_the_end(live)
        for copy, original in ((live, start), (marks, kept_marks)):
            shutil.rmtree(copy)
            shutil.copytree(original, copy)


@pytest.mark.parametrize("work", [sell, close_bill])
def test_a_crash_at_any_point_loses_and_doubles_nothing(market_folder, work):
    points = 0
    for point, wrong in faults_after_crashes(market_folder, work):
        assert wrong == [], str(point)
        points += 1
    assert points > 20


def test_planted_payments_under_fresh_keys_are_caught(market_folder, monkeypatch):
    """A payment that is tried again after a crash is made twice."""
    key_of = escrow.key_of
    monkeypatch.setattr(escrow, "key_of", lambda sale: key_of(sale) + os.urandom(4).hex())
    assert any(wrong for _, wrong in faults_after_crashes(market_folder, sell, {"pay"}))


def test_planted_marks_before_payments_are_caught(market_folder, monkeypatch):
    """A sale is marked as paid, and then paid: a crash in between pays nobody."""
    pay, mark, waiting = escrow.pay, SaleStore.mark, []

    def pay_later(ledger, dues):
        waiting.append((ledger, dues))
        return [None] * len(dues)

    def mark_first(self, sales):
        mark(self, sales)
        while waiting:
            pay(*waiting.pop())

    monkeypatch.setattr(escrow, "pay", pay_later)
    monkeypatch.setattr(SaleStore, "mark", mark_first)
    assert any(wrong for _, wrong in faults_after_crashes(market_folder, sell, {"SaleStore.mark"}))


def test_what_was_stored_when_the_service_died_is_paid_at_its_next_start(tmp_path, monkeypatch):
    """Between storing and paying, and between paying and marking."""
    from .test_trading import held_for, report_of

    for number, (owner, name) in enumerate(((escrow, "pay"), (SaleStore, "mark"))):
        place = tmp_path / name
        place.mkdir()
        stall = Stall(place)
        held = stall.offer()
        held_for(stall, number, held, 2)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, _killed)
            with pytest.raises(KeyboardInterrupt):
                stall.market.receive([report_of(stall, number, held, 2)])
        assert stall.store.counts(held) == [0, 0, 0]
        stall.close()
        stall = Stall(place)
        assert stall.market.settle() == 1
        assert stall.market.settle() == 0
        assert stall.market.receive([report_of(stall, number, held, 2)]) == [SaleOutcome.DUPLICATE]
        assert stall.market.account(held).paid == 70
        assert faults(stall.market) == []
        stall.close()


def _killed(*_):
    raise KeyboardInterrupt
