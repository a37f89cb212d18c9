"""The books of a market, done again: every tampered row, payment and deposit is told."""

import pytest

from reticent.ledger.base import money
from reticent.market import escrow
from reticent.market.checking import checked
from reticent.market.holds import ask
from reticent.randomness import SimulationStream

from ..collect import fleet
from .trade import NOW, Stall


def stocked(folder):
    """A market with three bills: open, closed, waiting; five sales."""
    stall = Stall(folder)
    one, two = stall.offer("one"), stall.offer("two", deposit=200)
    stall.offer("three", is_funded=False)
    for number, (held, place) in enumerate(((one, 0), (one, 2), (two, 1), (two, 0), (one, 1))):
        sell(stall, number, held, place)
    stall.market.hold([ask(fleet.enrolment(9), one.bill, 0, NOW)])
    stall.market.close(two)
    return stall


def sell(stall, number, held, place):
    stall.market.hold([ask(fleet.enrolment(number), held.bill, place, NOW)])
    report = fleet.report(held.surveys[place], fleet.enrolment(number), stream=SimulationStream(number))
    return stall.market.receive([report])


def books(stall):
    return checked(stall.store, stall.operator, fleet.SIGNER)


@pytest.fixture
def stall(tmp_path):
    found = stocked(tmp_path)
    yield found
    found.close()


def test_books_in_order(stall):
    found = books(stall)
    assert found.faults == ()
    assert (found.bills, found.sales, found.cents, found.refunds, found.waiting) == (3, 5, 230, 120, 0)


TAMPERED = {
    "a sale is gone": "DELETE FROM sale WHERE place = 2",
    "a sale is of another level": "UPDATE sale SET place = 1 WHERE place = 2",
    "a sale is of another bill": "UPDATE sale SET bill = 2 WHERE place = 2",
    "a sale is dearer": "UPDATE sale SET cents = cents + 1 WHERE place = 2",
    "a report is another": "UPDATE sale SET report = (SELECT max(report) FROM sale) WHERE place = 2",
    "a report is shorter": "UPDATE sale SET report = substr(report, 1, length(report) - 1) WHERE place = 2",
    "a report is nothing": "UPDATE sale SET report = zeroblob(60) WHERE place = 2",
    "a sale was not paid": "UPDATE sale SET state = 2 WHERE place = 2",
    "a sale is of somebody else": "UPDATE sale SET id = x'00112233445566778899aabbccddeeff' WHERE place = 2",
    "the sum of the sales": "UPDATE bill SET sold = sold - 1 WHERE number = 1",
    "the sum of the holds": "UPDATE bill SET held = held + 1 WHERE number = 1",
    "a bill was not funded": "UPDATE bill SET funded = 1 WHERE number = 3",
    "a deposit is another": "UPDATE bill SET deposit = deposit + 1 WHERE number = 1",
    "an open bill is closed": "UPDATE bill SET state = 2 WHERE number = 1",
    "a file is another": "UPDATE bill SET file = (SELECT file FROM bill WHERE number = 2) WHERE number = 1",
    "a survey's file": "UPDATE level SET file = CAST('{}' AS BLOB) WHERE place = 1",
}


@pytest.mark.parametrize("how", TAMPERED)
def test_what_is_tampered_with_is_told(stall, how):
    with stall.store.writing() as base:
        base.execute(TAMPERED[how])
    stall.store.close()
    stall.store = type(stall.store)(stall.folder / "market.sqlite")
    found = books(stall)
    assert found.faults
    assert all("\n" not in one for one in found.faults)


def test_payments_for_nothing_are_told(stall):
    (held, *_) = stall.store.bills().values()
    stall.ledger.request(escrow.account_of(held.bill.id), "sale:" + "0" * 32, money(5))
    assert any("5 cents" in one or "cents left its account" in one for one in books(stall).faults)


def test_an_escrow_of_no_bill_is_told(stall):
    from .trade import bill_of

    escrow.open_escrow(stall.ledger, bill_of("nobody")[0], 10)
    assert any("is of no bill" in one for one in books(stall).faults)


def test_planted_a_market_that_pays_by_the_place_after_is_told(tmp_path, monkeypatch):
    """Everybody is paid one cent more than the level says."""
    pay = escrow.pay
    monkeypatch.setattr(
        escrow,
        "pay",
        lambda ledger, dues: pay(ledger, [escrow.Due(d.bill, d.sale, d.cents + 1) for d in dues]),
    )
    stall = stocked(tmp_path)
    monkeypatch.undo()
    assert len([one for one in books(stall).faults if "were paid" in one]) == 5
    stall.close()
