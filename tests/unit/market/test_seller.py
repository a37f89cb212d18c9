"""Selling: bills that disagree with their surveys are refused; what is sold is sold once, and paid for."""

import json
import random
from fractions import Fraction

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.collect.collector import Collector
from reticent.collect.device import Device
from reticent.collect.wire import Outcome
from reticent.errors import BudgetExceeded, GuaranteeError, ParameterError, ParameterTypeError
from reticent.fleet.signing import signed
from reticent.market import Level
from reticent.market.bills import Bill, billed
from reticent.market.seller import Seller
from reticent.privacy import UNITS_PER_ONE

from ..collect import fleet
from . import trade
from .trade import CLOSES, NOW, Stall, levels_of


def bill_of(*given, **changes):
    """A bill, its file and those of its surveys."""
    bill, surveys = trade.bill_of(*given, **changes)
    return bill, signed(bill, fleet.SIGNING), [signed(one, fleet.SIGNING) for one in surveys]


@pytest.fixture
def stall(tmp_path):
    found = Stall(tmp_path)
    yield found
    found.close()


@pytest.fixture
def selling(stall):
    """Open a seller; closed after the test."""
    return lambda number=1, lifetime=1.0, **changes: stall.seller(
        number, lifetime=lifetime, taken=[], **changes
    )[0]


def spent(seller):
    return round(seller._device.spent, 9)


def test_a_sale_is_the_best_level_and_a_report_that_a_collector_would_count(stall, tmp_path):
    held = stall.offer()
    seller, bills = stall.seller(lifetime=1.0)
    (sale,) = seller.sell(bills, {"speed": 50.0}, stall.market, now=NOW)
    assert (sale.place, sale.cents) == (2, 70)  # 70 - 20, above 50 - 10 and 30 - 5
    assert spent(seller) == 1.0
    with Collector(tmp_path / "c.sqlite", fleet.MASTER, clock=lambda: NOW) as collector:
        for survey in stall.store.files(held)[1]:
            collector.collect(survey, fleet.SIGNER)
        assert collector.receive([sale.report, sale.report]) == [Outcome.COUNTED, Outcome.DUPLICATE]


def test_what_was_sold_is_given_again_and_never_sold_twice(stall):
    stall.offer()
    seller, bills = stall.seller()
    (first,) = seller.sell(bills, {"speed": 50.0}, stall.market, now=NOW)
    for now in (NOW, CLOSES + 1):
        (again,) = seller.sell(bills, {"speed": 90.0}, stall.market, now=now)
        assert (again.report, again.place) == (first.report, first.place)
    assert spent(seller) == 1.0
    seller._device.close()
    other, bills = stall.seller(price=100)  # another price, after a restart
    (again,) = other.sell(bills, {"speed": 90.0}, stall.market, now=NOW)
    assert again.report == first.report
    assert spent(other) == 1.0


def test_planted_a_seller_who_forgets_sells_twice(stall, monkeypatch):
    """The market refuses her the second time; her budget is gone."""
    stall.offer()
    seller, bills = stall.seller()
    seller.sell(bills, {"speed": 50.0}, stall.market, now=NOW)
    monkeypatch.setattr(Seller, "sold", lambda self, bill: None)
    monkeypatch.setattr(Seller, "_asked", lambda self, wanted, market, clock: [_HELD] * len(wanted))
    seller._price = Fraction(70)
    (sale,) = seller.sell(bills, {"speed": 50.0}, stall.market, now=NOW)
    assert spent(seller) > 1.0
    assert sale.cents == 0


_HELD = trade.HoldOutcome.COUNTED


def test_a_device_that_crashed_between_paying_and_drawing_sells_that_level(stall, monkeypatch):
    """Planted beside it: a look at what was drawn alone takes it for unsold, and pays for another level."""
    stall.offer()
    seller, bills = stall.seller()
    with monkeypatch.context() as patch:
        patch.setattr(Device, "_body", _crash)
        with pytest.raises(_Crashed):
            seller.sell(bills, {}, stall.market, now=NOW)
    assert spent(seller) == 1.0
    seller._price = Fraction(70)  # now another level would be best
    assert seller.sold(bills[0]) == 2
    with monkeypatch.context() as patch:
        patch.setattr(Device, "has_reported", _drawn_only)
        assert seller.sold(bills[0]) is None
    (sale,) = seller.sell(bills, {}, stall.market, now=NOW)
    assert (sale.place, sale.cents, spent(seller)) == (2, 70, 1.0)


class _Crashed(Exception):
    pass


def _crash(*_):
    raise _Crashed


def _drawn_only(self, survey, *, period):
    return self._memory(survey).remembered(period) is not None


def test_what_is_kept_back_is_not_sold(stall):
    stall.offer()
    seller, bills = stall.seller(lifetime=1.0, kept=0.6)
    (sale,) = seller.sell(bills, {}, stall.market, now=NOW)
    assert sale.place == 0
    assert spent(seller) == 0.25


def test_nothing_is_sold_below_its_price_or_after_the_end(stall):
    stall.offer()
    seller, bills = stall.seller(price=200)
    assert seller.sell(bills, {"speed": 50.0}, stall.market, now=NOW) == []
    cheap, bills = stall.seller(2)
    assert cheap.sell(bills, {"speed": 50.0}, stall.market, now=CLOSES) == []
    assert spent(seller) == spent(cheap) == 0.0


def test_the_choice_does_not_see_the_data(stall):
    stall.offer()
    places = set()
    for number, value in enumerate((None, 0.0, 130.0, float("nan"), "text")):
        seller, bills = stall.seller(number)
        (sale,) = seller.sell(bills, {"speed": value}, stall.market, now=NOW)
        places.add(sale.place)
    assert places == {2}


def test_a_budget_that_another_program_spent_sells_nothing(stall, monkeypatch):
    held = stall.offer()
    seller, bills = stall.seller(lifetime=1.0)
    other = seller._device.take(signed(fleet.single("OneBit", epsilon=0.9, periods=1), fleet.SIGNING))
    choice = Seller._choice

    def late(self, menus):
        places = choice(self, menus)
        seller._device.report(other, {}, period=0)
        return places

    monkeypatch.setattr(Seller, "_choice", late)
    with pytest.raises(BudgetExceeded):
        seller.sell(bills, {}, stall.market, now=NOW)
    assert spent(seller) == 0.9
    account = stall.market.account(held)
    assert (account.paid, account.held) == (0, 70)  # free again when the hold ends


# Bills that are refused


def refused(seller, file, surveys):
    before = seller._device.left
    with pytest.raises((GuaranteeError, ParameterError, ParameterTypeError)) as said:
        seller.take(file, surveys)
    assert seller._device.left == before
    assert "\n" not in str(said.value)
    return str(said.value)


def test_bills_that_disagree_with_their_surveys_are_refused(selling):
    seller, (bill, file, surveys) = selling(), bill_of()
    other = [signed(one, fleet.SIGNING) for one in levels_of("other", (0.25, 0.5, 1.0))]
    assert "another survey" in refused(seller, file, [surveys[0], surveys[1], other[2]])
    assert "3 levels, got 2" in refused(seller, file, surveys[:2])
    dearer = Bill(
        bill.name, "1", "to test", CLOSES, (*bill.levels[:2], Level(UNITS_PER_ONE // 2 + 1, 70)), bill.surveys
    )
    assert "its survey takes" in refused(seller, signed(dearer, fleet.SIGNING), surveys)


def test_bills_of_more_reports_or_of_other_questions_are_refused():
    two = levels_of("two", (0.25, 0.5), periods=2)
    words = {"name": "two", "version": "1", "purpose": "to test", "closes": CLOSES}
    with pytest.raises(GuaranteeError, match="asks for 2 reports"):
        billed(two, (1, 2), **words)
    mixed = [
        fleet.single("OneBit", epsilon=0.25, periods=1),
        fleet.single("KRR", epsilon=0.5, periods=1),
    ]
    with pytest.raises(GuaranteeError, match="something else than level 0"):
        billed(mixed, (1, 2), **words)


def test_bills_of_others_are_refused(selling):
    seller, (bill, _, surveys) = selling(), bill_of()
    stranger = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    assert "signed by somebody else" in refused(seller, signed(bill, stranger), surveys)
    seller, bill = selling(number=2), bill_of()[0]
    with pytest.raises(ParameterError, match="one that this seller took"):
        seller.sell([bill], {}, None, now=NOW)


def mutated(drawn, text):
    """A bill's text with one thing changed."""
    given = json.loads(text)
    level = drawn.choice(given["levels"])
    odd = [None, -1, 0, 1.5, "x", 10**30, True, [], {}, 2**62, float(10**15)]
    change = drawn.randrange(6)
    if change == 0:
        level[drawn.choice(["cents", "units", "survey"])] = drawn.choice(odd)
    elif change == 1:
        given[drawn.choice(list(given))] = drawn.choice(odd)
    elif change == 2:
        given["levels"].reverse()
    elif change == 3:
        level["cents"], level["units"] = 1, level["units"] + drawn.randrange(1, 10**12)
    elif change == 4:
        given["levels"] = given["levels"] * drawn.choice([0, 2, 40])
    else:
        level[drawn.choice(["cents", "more"])] = drawn.choice(odd)
    return json.dumps(given, sort_keys=True, separators=(",", ":")).encode()


class Forged:
    """A text that is signed whatever it says."""

    field, head = Bill.field, Bill.head

    def __init__(self, text):
        self.text = text


def wrongly_taken(seller, count, seed):
    drawn, found = random.Random(seed), 0
    bill, _, surveys = bill_of()
    for _ in range(count):
        text = mutated(drawn, bill.text)
        if text == bill.text:
            continue
        try:
            taken = seller.take(signed(Forged(text), fleet.SIGNING), surveys)
        except (GuaranteeError, ParameterError, ParameterTypeError):
            continue
        units = [level.units for level in taken.levels]
        cents = [level.cents for level in taken.levels]
        found += units != [250000000000, 500000000000, 1000000000000] or cents != sorted(set(cents))
    return found


def test_bad_bills_are_refused(selling):
    seller = selling()
    assert wrongly_taken(seller, 300, seed=1) == 0
    assert spent(seller) == 0.0


@pytest.mark.slow
def test_ten_thousand_bad_bills_are_refused(selling):
    seller = selling()
    assert wrongly_taken(seller, 10_000, seed=2) == 0
    assert spent(seller) == 0.0


def test_planted_a_seller_who_does_not_compare_takes_them(selling, monkeypatch):
    monkeypatch.setattr("reticent.market.seller.check_surveys", lambda bill, surveys: None)
    assert wrongly_taken(selling(), 300, seed=1) > 0


@pytest.mark.parametrize("price", [-1, 1.5, float("nan"), True, "3", 10**13])
def test_bad_prices_are_refused(selling, price):
    with pytest.raises(ParameterError, match="price must be"):
        selling(price=price)
