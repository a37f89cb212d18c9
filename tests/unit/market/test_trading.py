"""Holds, sales, payments and refunds: each once, to the cent, and none without the one before."""

import contextlib
import sqlite3

import pytest

from reticent.collect.wire import batch
from reticent.errors import AccountConflict, BudgetExceeded, GuaranteeError, MixedGuarantees, ParameterError
from reticent.fleet.enrolment import Enrolment, Use
from reticent.ledger import Amount, SqlLedger, Terms, Unit, verify_ledger
from reticent.ledger.base import money
from reticent.market import escrow
from reticent.market.holds import Hold, ask
from reticent.market.outcomes import HoldOutcome, SaleOutcome
from reticent.market.seller import Seller
from reticent.market.store import SaleStore
from reticent.market.trading import Market
from reticent.privacy import Neighbours

from ..collect import fleet
from .trade import CLOSES, NOW, Clock, Stall, bill_of, faults


@pytest.fixture
def stall(tmp_path):
    found = Stall(tmp_path)
    yield found
    found.close()


def held_for(stall, number, held, place, now=NOW):
    (told,) = stall.market.hold([ask(fleet.enrolment(number), held.bill, place, now)])
    return told


def report_of(stall, number, held, place, **changes):
    from reticent.randomness import SimulationStream

    survey = held.surveys[place]
    stream = SimulationStream(number)
    return fleet.report(survey, fleet.enrolment(number), 0, {"speed": 50.0}, stream=stream, **changes)


# One sale


def test_a_sale_is_held_charged_drawn_stored_and_paid(stall):
    held = stall.offer()
    seller, bills = stall.seller()
    (sale,) = seller.sell(bills, {"speed": 50.0}, stall.market, now=NOW)
    assert (sale.place, sale.cents, sale.outcome) == (2, 70, SaleOutcome.COUNTED)
    account = stall.market.account(held)
    assert (account.paid, account.held, account.left, account.counts) == (70, 0, 930, (0, 0, 1))
    assert stall.store.reports(held, 2) == [sale.report]
    assert faults(stall.market) == []
    assert verify_ledger(stall.ledger).accounts == 1


def test_nothing_is_drawn_without_a_hold(stall, monkeypatch):
    """Planted: a seller who draws first has spent her budget when the market refuses."""
    stall.offer(deposit=30)  # pays for one report of the first level
    first, bills = stall.seller(1)
    assert [sale.place for sale in first.sell(bills, {}, stall.market, now=NOW)] == [0]
    second, bills = stall.seller(2)
    assert second.sell(bills, {}, stall.market, now=NOW) == []
    assert second._device.spent == 0.0
    monkeypatch.setattr(Seller, "_held", lambda self, bills, market, clock: {bills[0].id: 0})
    (sale,) = second.sell(bills, {}, stall.market, now=NOW)
    assert (sale.outcome, second._device.spent > 0.0) == (SaleOutcome.HOLD, True)


def test_a_menu_is_cut_at_what_is_left(stall):
    held = stall.offer(deposit=100)
    places = []
    for number in range(4):
        seller, bills = stall.seller(number)
        places += [sale.place for sale in seller.sell(bills, {}, stall.market, now=NOW)]
    assert places == [2, 0]  # 70, then 30 of the 30 that are left
    assert stall.market.account(held).left == 0
    assert faults(stall.market) == []


def test_what_was_drawn_is_sent_again_and_paid_once(stall):
    held = stall.offer()
    seller, bills = stall.seller()
    (first,) = seller.sell(bills, {"speed": 1.0}, stall.market, now=NOW)
    for _ in range(3):
        (again,) = seller.sell(bills, {"speed": 99.0}, stall.market, now=NOW)
        assert (again.report, again.outcome) == (first.report, SaleOutcome.DUPLICATE)
    assert stall.market.account(held).paid == 70
    assert stall.market.receive([first.report] * 5) == [SaleOutcome.DUPLICATE] * 5
    assert faults(stall.market) == []


def test_several_bills_share_one_budget(stall):
    """Two equal bills, a budget of 1: half to each pays 100, all to one 70."""
    stall.offer("one")
    stall.offer("two")
    seller, bills = stall.seller(lifetime=1.0)
    assert [sale.place for sale in seller.sell(bills, {}, stall.market, now=NOW)] == [1, 1]
    assert seller.for_sale == 0


def test_a_bill_without_money_leaves_the_budget_to_others(stall):
    poor, rich = stall.offer("one", deposit=30), stall.offer("two")
    first, bills = stall.seller(1, taken=[poor])
    assert [one.place for one in first.sell(bills, {}, stall.market, now=NOW)] == [0]
    seller, bills = stall.seller(2, lifetime=1.0)
    (sale,) = seller.sell(bills, {}, stall.market, now=NOW)
    assert (sale.bill, sale.place) == (rich.bill, 2)


def test_only_what_is_for_sale_is_sold(stall):
    stall.offer()
    with pytest.raises(GuaranteeError, match="asks about speed, which is not for sale"):
        stall.seller(sells=frozenset({"kind"}))
    seller, bills = stall.seller(2, sells=frozenset({"speed"}))
    assert seller.quote(bills, now=NOW) == [2]
    assert seller._device.spent == 0.0


# Holds


def held_by_an_old_copy(stall, folder):
    """What the market's file of before a sale promises, once the ledger has paid 50 of 100 cents."""
    stall.offer(deposit=100)
    with contextlib.closing(sqlite3.connect(folder / "market.sqlite")) as base:
        base.execute("VACUUM INTO ?", (str(folder / "old.sqlite"),))
    seller, bills = stall.seller(price=60)
    assert [one.cents for one in seller.sell(bills, {}, stall.market, now=NOW)] == [50]
    with contextlib.closing(SaleStore(folder / "old.sqlite")) as store:
        market = Market(store, stall.operator, fleet.SIGNING, clock=stall.clock)
        (old,) = store.bills().values()
        wanted = ((2, 1), (3, 0))
        asks = [ask(fleet.enrolment(number), old.bill, place, NOW) for number, place in wanted]
        return [outcome for one in asks for outcome, _ in market.hold([one])]


def test_an_old_copy_of_the_file_promises_no_more_than_the_ledger_holds(stall, tmp_path):
    assert held_by_an_old_copy(stall, tmp_path) == [HoldOutcome.COUNTED, HoldOutcome.MONEY]


def test_planted_a_market_that_asks_its_own_file_alone_is_caught(stall, tmp_path, monkeypatch):
    monkeypatch.setattr(Market, "unpaid", lambda self, held: held.deposit)
    assert held_by_an_old_copy(stall, tmp_path) == [HoldOutcome.COUNTED, HoldOutcome.COUNTED]


def test_a_hold_is_the_same_until_it_ends_and_free_then(stall):
    held = stall.offer(deposit=100)
    outcome, file = held_for(stall, 1, held, 2)
    hold = Hold.verified(file, fleet.SIGNER)
    assert (outcome, hold.cents, hold.expires) == (HoldOutcome.COUNTED, 70, NOW + 900)
    assert held_for(stall, 1, held, 2) == (outcome, file)
    assert held_for(stall, 1, held, 0) == (HoldOutcome.OTHER, None)  # not asked later
    assert held_for(stall, 2, held, 1) == (HoldOutcome.MONEY, None)
    assert stall.market.account(held).held == 70
    stall.clock.now = NOW + 900
    assert stall.market.receive([report_of(stall, 1, held, 2)]) == [SaleOutcome.HOLD]
    assert held_for(stall, 2, held, 1, NOW + 900)[0] is HoldOutcome.COUNTED
    assert stall.market.account(held).held == 50
    assert held_for(stall, 1, held, 2, NOW + 900)[0] is HoldOutcome.MONEY


def test_a_later_ask_takes_the_place_of_a_hold_and_a_replayed_one_does_not(stall):
    held = stall.offer(deposit=100)
    first = ask(fleet.enrolment(1), held.bill, 2, NOW)
    later = ask(fleet.enrolment(1), held.bill, 1, NOW + 0.001)
    assert [outcome.value for outcome, _ in stall.market.hold([first, later, first])] == [
        "held",
        "held",
        "other",
    ]
    assert stall.market.account(held).held == 50
    assert stall.market.receive([report_of(stall, 1, held, 1)]) == [SaleOutcome.COUNTED]
    assert stall.market.hold([later]) == [(HoldOutcome.SOLD, None)]
    assert faults(stall.market) == []


def test_a_hold_that_took_the_place_of_an_ended_one_is_not_freed_with_it(stall):
    """In one batch: one who comes again after the end, and one for whom ended holds must be freed."""
    held = stall.offer(deposit=140)
    held_for(stall, 1, held, 2)
    held_for(stall, 2, held, 2)
    stall.clock.now = later = NOW + 901
    asks = [ask(fleet.enrolment(one), held.bill, 2, later) for one in (1, 3)]
    assert [outcome.value for outcome, _ in stall.market.hold(asks)] == ["held", "held"]
    assert stall.market.account(held).held == stall.store.held_cents(held) == 140
    assert faults(stall.market) == []


def test_a_late_report_is_sold_with_a_new_hold_and_nothing_is_lost(stall):
    held = stall.offer()
    seller, bills = stall.seller()
    slow = _Slow(stall)
    (late,) = seller.sell(bills, {}, slow, now=NOW)
    assert late.outcome is SaleOutcome.HOLD
    (sale,) = seller.sell(bills, {}, stall.market, now=stall.clock.now)
    assert (sale.outcome, sale.report) == (SaleOutcome.COUNTED, late.report)
    assert seller._device.spent == pytest.approx(1.0)
    assert stall.market.account(held).paid == 70
    assert faults(stall.market) == []


class _Slow:
    """A way to the market that takes longer than a hold."""

    def __init__(self, stall):
        self.stall, self.hold = stall, stall.market.hold

    def receive(self, reports):
        self.stall.clock.now += 901
        return self.stall.market.receive(reports)


def test_asks_that_are_not_genuine_hold_nothing(stall):
    held = stall.offer()
    good = ask(fleet.enrolment(1), held.bill, 0, NOW)
    stranger = Enrolment(fleet.enrolment(2).id, bytes(32))
    other, _ = bill_of("other")
    wrong = {
        HoldOutcome.TAG: [ask(stranger, held.bill, 0, NOW), good[:-1] + bytes([good[-1] ^ 1])],
        HoldOutcome.CLOCK: [ask(fleet.enrolment(1), held.bill, 0, NOW - 601)],
        HoldOutcome.BILL: [ask(fleet.enrolment(1), other, 0, NOW)],
        HoldOutcome.LENGTH: [good + b"x", good[:-1]],
        HoldOutcome.VERSION: [b"\x07" + good[1:], b""],
        HoldOutcome.LEVEL: [tagged(1, good[:17] + b"\x40" + good[18:-16])],
    }
    for outcome, asks in wrong.items():
        for told in stall.market.hold(asks):
            assert told == (outcome, None)
    stall.revocations.revoke(fleet.enrolment(1).id)
    assert stall.market.hold([good]) == [(HoldOutcome.REVOKED, None)]
    assert stall.market.account(held).held == 0


def tagged(number, content):
    from reticent.fleet.enrolment import tag

    return content + tag(fleet.enrolment(number).key, Use.HOLD, content)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cents": 69}, "the hold must be of cents 70, got 69"),
        ({"units": 2 * 10**12}, "the hold must be of units"),
        ({"place": 1}, "the hold must be of place 2, got 1"),
        ({"reporter": bytes(8)}, "the hold must be of reporter"),
        ({"bill": bytes(8)}, "the hold must be of bill"),
        ({"expires": NOW}, "the hold ended 0 seconds ago"),
    ],
)
def test_a_hold_that_is_not_what_was_asked_for_draws_nothing(stall, changes, words):
    stall.offer()
    seller, bills = stall.seller()

    class Lying:
        def hold(self, asks):
            ((_, file),) = stall.market.hold(asks)
            hold = Hold.verified(file, fleet.SIGNER)
            return [(HoldOutcome.COUNTED, type(hold)(**vars(hold) | changes).signed(fleet.SIGNING))]

    with pytest.raises(GuaranteeError, match=words):
        seller.sell(bills, {}, Lying(), now=NOW)
    assert seller._device.spent == 0.0


def test_a_hold_that_somebody_else_signed_draws_nothing(stall):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    stall.offer()
    seller, bills = stall.seller()
    other = Ed25519PrivateKey.from_private_bytes(bytes(32))

    class Forged:
        def hold(self, asks):
            ((outcome, file),) = stall.market.hold(asks)
            return [(outcome, Hold.verified(file, fleet.SIGNER).signed(other))]

    with pytest.raises(GuaranteeError, match="signed by somebody else"):
        seller.sell(bills, {}, Forged(), now=NOW)
    assert seller._device.spent == 0.0


# Reports that are not paid


def test_foreign_replayed_and_second_reports_are_refused_and_nothing_is_lost(stall):
    held, other = stall.offer(), stall.offer("two")
    held_for(stall, 1, held, 1)
    held_for(stall, 2, held, 1)
    mine = report_of(stall, 1, held, 1)
    assert stall.market.receive([report_of(stall, 3, held, 1)]) == [SaleOutcome.HOLD]  # holds nothing
    assert stall.market.receive([report_of(stall, 1, held, 2)]) == [SaleOutcome.LEVEL]
    assert stall.market.receive([report_of(stall, 1, other, 1)]) == [SaleOutcome.HOLD]
    forged = bytearray(mine)
    forged[-1] ^= 1
    assert stall.market.receive([bytes(forged), b"", b"x" * 60]) == [
        SaleOutcome.TAG,
        SaleOutcome.LENGTH,
        SaleOutcome.VERSION,
    ]
    assert stall.market.account(held).paid == 0
    assert stall.market.receive([mine]) == [SaleOutcome.COUNTED]
    another = report_of(stall, 1, held, 1, nonce=bytes(range(8)))
    assert stall.market.receive([mine, another]) == [SaleOutcome.DUPLICATE, SaleOutcome.SECOND]
    stall.revocations.revoke(fleet.enrolment(2).id)
    assert stall.market.receive([report_of(stall, 2, held, 1)]) == [SaleOutcome.REVOKED]
    account = stall.market.account(held)
    assert (account.paid, account.held, account.counts) == (50, 50, (0, 1, 0))
    assert faults(stall.market) == []


def test_a_deposit_that_the_ledger_does_not_hold_counts_nothing(stall, monkeypatch):
    """The file was put back to before a sale: the ledger pays no second time out of one deposit."""
    monkeypatch.setattr(Market, "unpaid", lambda self, held: held.deposit)  # whatever was promised
    held = stall.offer(deposit=70)
    held_for(stall, 1, held, 2)
    assert stall.market.receive([report_of(stall, 1, held, 2)]) == [SaleOutcome.COUNTED]
    with stall.store.writing() as base:
        base.execute("DELETE FROM sale")
        base.execute("UPDATE bill SET sold = 0")
    held_for(stall, 2, held, 2)
    report = report_of(stall, 2, held, 2)
    assert stall.market.receive([report]) == [SaleOutcome.MONEY]
    assert stall.market.receive([report]) == [SaleOutcome.MONEY]
    assert stall.market.account(held).counts == (0, 0, 0)
    assert stall.ledger.balance(escrow.account_of(held.bill.id)).spent == 70


# The end


def test_closing_waits_for_holds_and_gives_the_rest_back_to_the_cent(stall):
    held = stall.offer()
    held_for(stall, 1, held, 2)
    held_for(stall, 2, held, 0)
    assert stall.market.close(held).state == "closing"
    assert held_for(stall, 3, held, 0) == (HoldOutcome.CLOSED, None)
    assert stall.market.receive([report_of(stall, 1, held, 2)]) == [SaleOutcome.COUNTED]
    stall.clock.now = NOW + 901
    for _ in range(2):
        done = stall.market.close(held)
        assert (done.state, done.paid, done.refund, done.left) == ("closed", 70, 930, 0)
    assert stall.market.receive([report_of(stall, 2, held, 0)]) == [SaleOutcome.HOLD]
    assert done.paid + done.refund == held.deposit
    assert faults(stall.market) == []


def test_planted_a_refund_while_money_is_held_is_caught(stall, monkeypatch):
    """A market that gives everything back at once cannot pay for what it promised."""
    held = stall.offer()
    held_for(stall, 1, held, 2)
    escrow.refund(stall.ledger, held.bill.id)
    assert stall.market.receive([report_of(stall, 1, held, 2)]) == [SaleOutcome.MONEY]


def test_what_has_ended_is_closed_by_itself(stall):
    held, waiting = stall.offer(), stall.offer("two", is_funded=False)
    stall.clock.now = CLOSES
    stall.market.tend()
    assert stall.market.account(held).state == "closed"
    assert stall.market.account(held).refund == 1000
    assert stall.market.account(waiting).paid == 0


def test_an_all_paid_bill_has_no_refund(stall):
    held = stall.offer(deposit=70)
    held_for(stall, 1, held, 2)
    stall.market.receive([report_of(stall, 1, held, 2)])
    done = stall.market.close(held)
    assert (done.state, done.refund, done.paid) == ("closed", 0, 70)


# Bills


def test_bills_without_their_deposit_sell_nothing(stall):
    held = stall.offer(is_funded=False)
    assert held_for(stall, 1, held, 0) == (HoldOutcome.CLOSED, None)
    assert stall.market.account(held).state == "waiting"
    stall.market.fund(held)
    stall.market.fund(held)
    assert held_for(stall, 1, held, 0)[0] is HoldOutcome.COUNTED


def test_a_bill_that_was_closed_takes_no_deposit(stall):
    held = stall.offer(is_funded=False)
    assert stall.market.close(held).state == "closed"
    with pytest.raises(ParameterError, match="it takes no deposit"):
        stall.market.fund(held)
    assert stall.ledger.accounts() == []


def test_publishing_again_changes_nothing_and_another_deposit_is_refused(stall):
    bill, surveys = bill_of()
    first = stall.market.publish(bill, surveys, buyer="bert", deposit=100)
    assert stall.market.publish(bill, surveys, buyer="bert", deposit=100) == first
    with pytest.raises(AccountConflict, match="another deposit or buyer"):
        stall.market.publish(bill, surveys, buyer="bert", deposit=101)
    with pytest.raises(ParameterError, match="deposit must be"):
        stall.market.publish(*bill_of("two"), buyer="bert", deposit=29)
    with pytest.raises(ParameterError, match="closes must be in the future"):
        stall.market.publish(*bill_of("two", closes=NOW), buyer="bert", deposit=100)
    with pytest.raises(GuaranteeError, match="another survey"):
        stall.market.publish(bill, bill_of("two")[1], buyer="bert", deposit=100)


def test_a_changed_file_is_not_used(stall, tmp_path):
    stall.offer()
    with stall.store.writing() as base:
        base.execute(
            "UPDATE level SET text = CAST(replace(text, 'to test', 'to harm') AS BLOB) WHERE place = 1"
        )
    from reticent.errors import LedgerDamaged

    other = SaleStore(tmp_path / "market.sqlite")
    with pytest.raises(LedgerDamaged, match="survey that was changed"):
        other.bills()
    other.close()


# Money is no privacy


def test_money_and_privacy_are_never_added_up(tmp_path):
    with pytest.raises(MixedGuarantees, match="NONE for money"):
        Terms("a", Unit.MONEY, Neighbours.REPLACE_ONE, "cents", 100)
    with pytest.raises(MixedGuarantees, match="NONE for money"):
        Amount(1, Unit.EPSILON, Neighbours.NONE)
    ledger = SqlLedger(tmp_path / "l.sqlite")
    ledger.open(Terms("escrow:1", Unit.MONEY, Neighbours.NONE, "cents", 100))
    ledger.open(Terms("a", Unit.EPSILON, Neighbours.ANY_TWO_VALUES, "one", 100))
    with pytest.raises(MixedGuarantees):
        ledger.request("a", "k", money(1))
    with pytest.raises(MixedGuarantees):
        ledger.request("escrow:1", "k", Amount(1, Unit.EPSILON, Neighbours.ANY_TWO_VALUES))
    ledger.request("escrow:1", "k", money(60))
    with pytest.raises(BudgetExceeded):
        ledger.request("escrow:1", "l", money(41))
    assert verify_ledger(ledger).accounts == 2
    ledger.close()


def test_two_markets_on_one_file_sell_one_deposit(stall, tmp_path):
    held = stall.offer(deposit=100)
    store = SaleStore(tmp_path / "market.sqlite")
    other = Market(store, stall.operator, fleet.SIGNING, clock=Clock())
    assert held_for(stall, 1, held, 2)[0] is HoldOutcome.COUNTED
    assert other.hold([ask(fleet.enrolment(2), held.bill, 1, NOW)]) == [(HoldOutcome.MONEY, None)]
    assert other.receive([report_of(stall, 1, held, 2)]) == [SaleOutcome.COUNTED]
    assert stall.market.receive([report_of(stall, 1, held, 2)]) == [SaleOutcome.DUPLICATE]
    assert faults(other) == []
    store.close()


def test_batches_are_those_of_surveys():
    assert batch([b"ab"]) == b"\x00\x02ab"
