"""A market's verbs: publish a bill, hold money for a device, take its report, pay, give the rest back.

Each is idempotent, and each step is on the disk before the next begins: money is held, then the report is
stored, then the ledger pays under the key of the sale, then the sale is marked. A crash leaves a sale at one
of these steps; `settle` goes on from there, as does the device that sends its report again. What is not paid
is not counted, and never given to the buyer.

What is paid for is a genuine report of the right form that came in time. Whether it tells the truth nobody
can see: a liar is paid like everybody else.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.arguments import whole
from reticent.collect.judging import judged
from reticent.collect.survey import Survey
from reticent.collect.wire import SHORTEST, VERSION
from reticent.errors import BudgetExceeded, LedgerError, ParameterError, UnknownAccount
from reticent.fleet.enrolment import Use
from reticent.fleet.intake import Intake
from reticent.fleet.operator import Operator
from reticent.fleet.signing import signed
from reticent.ledger.base import Ledger
from reticent.market import escrow, holds
from reticent.market.bills import Bill, check_surveys
from reticent.market.holds import NEAR_S, Hold, sale_id
from reticent.market.menus import MOST_CENTS
from reticent.market.outcomes import HoldOutcome, SaleOutcome
from reticent.market.store import (
    CLOSED,
    CLOSING,
    OPEN,
    PAID,
    REFUSED,
    STORED,
    HeldBill,
    OpenHold,
    Purse,
    SaleStore,
    Sold,
)

HOLD_S = 900  # how long money is held for a device
MOST_HOLD_S = 7 * 86_400


@dataclass(frozen=True)
class BillAccount:
    """The state of a bill and its money, in cents.

    Attributes:
        state: State of the bill: waiting (for its deposit), open, closing or closed.
        deposit: Cents that the buyer paid in.
        held: Cents held for devices that have not sent their reports yet.
        paid: Cents paid to sellers.
        refund: Cents that went back to the buyer.
        counts: Number of the reports of each level that were paid for.
    """

    state: str
    deposit: int
    held: int
    paid: int
    refund: int
    counts: tuple[int, ...]

    @property
    def left(self) -> int:
        """The cents that are free for further sales, or go back to the buyer."""
        return self.deposit - self.held - self.paid - self.refund


class ReportForms:
    """The form of reports to levels of bills."""

    use, outcomes, start_bytes, reporter = Use.SURVEY, SaleOutcome, 9, slice(13, 21)

    def __init__(self, store: SaleStore) -> None:
        self._known = store.by_survey

    def fault(self, length: int, start: bytes) -> SaleOutcome | None:
        """Return the fault of all reports of a length and beginning, or None."""
        if start[:1] != bytes([VERSION]) or length < SHORTEST:
            return SaleOutcome.VERSION if start and start[:1] != bytes([VERSION]) else SaleOutcome.LENGTH
        found = self._known.get(start[1:9])
        if found is None:
            return SaleOutcome.SURVEY
        held, place = found
        return None if length <= held.layouts[place].longest else SaleOutcome.LENGTH


class _Delivery(NamedTuple):
    """A report of the right form."""

    at: int  # in the caller's list
    held: HeldBill
    place: int
    sale: bytes
    report: bytes


class _HoldDesk:
    """Asks for the levels of one bill, in a transaction."""

    def __init__(self, market: Market, held: HeldBill, now: int) -> None:
        self._market, self._store, self.held, self._now = market, market.store, held, now
        self._purse = self._store.purse(held)
        self._unpaid = market.unpaid(held)
        self._sold: dict[bytes, tuple[int, int, bytes, int]] = {}
        self._kept: dict[bytes, OpenHold] = {}
        self._fresh: dict[bytes, OpenHold] = {}

    def look(self, sales: Sequence[bytes]) -> None:
        """Find what is known of some sales."""
        self._sold = self._store.sales_of(self.held, sales)
        self._kept = self._store.holds_of(self.held, sales)

    def held_for(self, ask: bytes, sale: bytes) -> Hold | HoldOutcome:
        """Return the hold of a genuine ask."""
        now, bill, purse = self._now, self.held.bill, self._purse
        reporter, place, asked = ask[9:17], ask[17], int.from_bytes(ask[18:26], "big")
        if place >= len(bill.levels):
            return HoldOutcome.LEVEL
        if abs(1000 * now - asked) > 1000 * NEAR_S:
            return HoldOutcome.CLOCK
        if sale in self._sold:
            return HoldOutcome.SOLD
        level, before = bill.levels[place], self._kept.get(sale)
        if before is not None and before.expires > now:
            if before.place == place:
                return Hold(bill.id, sale, reporter, place, level.units, level.cents, before.expires)
            if before.asked >= asked:
                return HoldOutcome.OTHER
        if not self._market.is_open(self.held, purse):
            return HoldOutcome.CLOSED
        if purse.left + (0 if before is None else before.cents) < level.cents:
            self._release()
        freed = self._kept[sale].cents if sale in self._kept else 0
        if min(purse.left, self._unpaid - purse.held) + freed < level.cents:
            return HoldOutcome.MONEY
        expires = now + self.held.hold_s
        self._kept[sale] = self._fresh[sale] = OpenHold(sale, place, level.cents, expires, asked)
        purse.held += level.cents - freed
        return Hold(bill.id, sale, reporter, place, level.units, level.cents, expires)

    def _release(self) -> None:
        """Free what has ended; what took the place of an ended hold in this batch is written before."""
        self._store.put_holds(self.held, self._fresh.values())
        self._fresh.clear()
        self._store.release(self.held, self._purse, self._now)
        self._kept = {sale: one for sale, one in self._kept.items() if one.expires > self._now}

    def write(self) -> None:
        """Write what was held."""
        self._store.put_holds(self.held, self._fresh.values())
        self._store.keep(self.held, self._purse)


class Market:
    """The market of an operator.

    Args:
        store: File of the market.
        operator: Operator who knows the devices, and whose ledger holds the money.
        key: Private key that signs bills and holds; devices trust its public half.
        clock: Function that returns the time in seconds since 1970.
    """

    def __init__(
        self,
        store: SaleStore,
        operator: Operator,
        key: Ed25519PrivateKey,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store, self._operator, self._key, self._clock = store, operator, key, clock
        self._intake = Intake(operator.master, operator.revocations)
        self._forms = ReportForms(store)

    @property
    def ledger(self) -> Ledger:
        """The ledger that holds the money."""
        return self._operator.record.ledger

    @property
    def operator(self) -> Operator:
        """The operator who runs the market."""
        return self._operator

    def now(self) -> float:
        """Return the time of the market's clock."""
        return self._clock()

    def knows_ask(self, ask: bytes) -> bytes | None:
        """Return the id of the enrolment that asks for a hold; None if the ask is not genuine."""
        return self._intake.reporter(ask, holds.Forms(self.store.bills()))

    def knows_report(self, report: bytes) -> bytes | None:
        """Return the id of the enrolment whose report this is; None if it is not genuine, or of no bill."""
        return self._intake.reporter(report, self._forms)

    # Bills

    def publish(
        self, bill: Bill, surveys: Sequence[Survey], *, buyer: str, deposit: int, hold_s: int = HOLD_S
    ) -> HeldBill:
        """Sign a bill and its surveys, and keep them; devices may sell once the deposit is there (`fund`).

        Raises:
            ParameterError, GuaranteeError: the surveys are not those of the bill, the deposit does not pay
                for one report, or the bill has ended.
        """
        check_surveys(bill, surveys)
        least = min(level.cents for level in bill.levels)
        cents = whole("deposit", deposit, low=least, high=MOST_CENTS)
        whole("hold_s", hold_s, low=1, high=MOST_HOLD_S)
        if bill.closes <= self._clock():
            raise ParameterError(f"closes must be in the future, got {bill.closes}")
        pairs = [(one, signed(one, self._key)) for one in surveys]
        file = signed(bill, self._key)
        return self.store.add(bill, file, pairs, buyer=buyer, deposit=cents, hold_s=hold_s)

    def fund(self, held: HeldBill) -> BillAccount:
        """Say that the deposit is there: its account is opened, and devices may sell.

        Raises:
            ParameterError: the bill was closed before; it takes no money.
        """
        with self.store.writing():
            purse = self.store.purse(held)
            if not purse.funded and purse.state != OPEN:
                raise ParameterError(f"bill {held.bill.name} is closed: it takes no deposit")
            escrow.open_escrow(self.ledger, held.bill, held.deposit)
            purse.funded = True
            self.store.keep(held, purse)
        return self.account(held)

    def is_open(self, held: HeldBill, purse: Purse | None = None) -> bool:
        """Whether devices may ask for its levels."""
        found = self.store.purse(held) if purse is None else purse
        return found.funded and found.state == OPEN and self._clock() < held.bill.closes

    def unpaid(self, held: HeldBill) -> int:
        """The cents that the ledger can still pay: fewer than its own file says if this is an older copy."""
        try:
            return self.ledger.balance(escrow.account_of(held.bill.id)).remaining
        except UnknownAccount:
            return 0

    def account(self, held: HeldBill) -> BillAccount:
        """Return the state of a bill and its money."""
        purse, counts = self.store.purse(held), tuple(self.store.counts(held))
        if not purse.funded:
            state = "waiting" if purse.state == OPEN else "closed"
            return BillAccount(state, held.deposit, 0, 0, 0, counts)
        state = ("open", "closing", "closed")[purse.state]
        back = escrow.refunded(self.ledger, held.bill.id)
        spent = self.ledger.balance(escrow.account_of(held.bill.id)).spent
        return BillAccount(state, held.deposit, purse.held, spent - back, back, counts)

    # Devices

    def hold(self, asks: Sequence[bytes]) -> list[tuple[HoldOutcome, bytes | None]]:
        """Set money aside for devices: what became of each ask, and the signed hold of those that have one.

        Asking again for what is held gives the same hold. None raises for what it holds.

        Raises:
            LedgerError: nothing could be written; nothing is held.
        """
        bills = self.store.bills()
        outcomes, admitted = self._intake.admitted(asks, holds.Forms(bills))
        found: list[tuple[HoldOutcome, bytes | None]] = [(outcome, None) for outcome in outcomes]
        made: list[tuple[int, Hold]] = []
        if admitted:
            with self.store.writing():
                for alike in admitted:
                    desk = _HoldDesk(self, bills[alike.start[1:]], int(self._clock()))
                    wanted = [(at, asks[at], self._sale(desk.held, asks[at][9:17])) for at in alike.places]
                    desk.look([sale for _, _, sale in wanted])
                    for at, ask, sale in wanted:
                        told = desk.held_for(ask, sale)
                        if isinstance(told, Hold):
                            made.append((at, told))
                        else:
                            found[at] = (told, None)
                    desk.write()
        for at, hold in made:
            found[at] = (HoldOutcome.COUNTED, hold.signed(self._key))
        return found

    def _sale(self, held: HeldBill, reporter: bytes) -> bytes:
        return sale_id(self._operator.master, held.bill.id, reporter)

    def receive(self, reports: Sequence[bytes]) -> list[SaleOutcome]:
        """Take reports in for which money is held, and pay for them; what became of each.

        Raises:
            LedgerError: something could not be written. What is stored is paid later; send all of it again.
        """
        self.store.bills()
        outcomes, admitted = self._intake.admitted(reports, self._forms)
        good: list[_Delivery] = []
        master = self._operator.master
        for alike in admitted:
            held, place = self.store.by_survey[alike.start[1:9]]
            found = judged(held.layouts[place], alike.rows, first_period)
            for reason, rows in found.refused:
                for at in alike.places[rows].tolist():
                    outcomes[at] = SaleOutcome[reason.name]
            for at in alike.places[found.kept].tolist():
                sale = sale_id(master, held.bill.id, reports[at][13:21])
                good.append(_Delivery(at, held, place, sale, reports[at]))
        if good:
            self._pay(self._stored(sorted(good, key=lambda one: one.at), outcomes), outcomes)
        return outcomes

    def _stored(self, good: Sequence[_Delivery], outcomes: list[SaleOutcome]) -> list[tuple[Sold, list[int]]]:
        """Store what is new, once; returns what must be paid, with its places in the caller's list."""
        due: dict[tuple[int, bytes], tuple[Sold, list[int]]] = {}
        now = int(self._clock())
        by_bill: dict[int, list[_Delivery]] = {}
        for one in good:
            by_bill.setdefault(one.held.number, []).append(one)
        with self.store.writing():
            for number, those in by_bill.items():
                held, sales = those[0].held, [one.sale for one in those]
                known, kept = self.store.sales_of(held, sales), self.store.holds_of(held, sales)
                purse, fresh = self.store.purse(held), list[tuple[int, bytes, int, int, bytes, int]]()
                for one in those:
                    before = known.get(one.sale)
                    if before is not None:
                        outcomes[one.at] = _again(before, one)
                        if before[3] == STORED and outcomes[one.at] is SaleOutcome.DUPLICATE:
                            sold = Sold(number, one.sale, before[0], before[1], STORED)
                            due.setdefault((number, one.sale), (sold, []))[1].append(one.at)
                        continue
                    hold = kept.get(one.sale)
                    if hold is None or hold.expires <= now:
                        outcomes[one.at] = SaleOutcome.HOLD
                        continue
                    if hold.place != one.place:
                        outcomes[one.at] = SaleOutcome.LEVEL
                        continue
                    purse.held, purse.sold = purse.held - hold.cents, purse.sold + hold.cents
                    known[one.sale] = (one.place, hold.cents, one.report, STORED)
                    fresh.append((number, one.sale, *known[one.sale]))
                    due[number, one.sale] = (
                        Sold(number, one.sale, one.place, hold.cents, STORED),
                        [one.at],
                    )
                self.store.put_sales(held, fresh)
                self.store.keep(held, purse)
        return list(due.values())

    def _pay(self, due: Sequence[tuple[Sold, list[int]]], outcomes: list[SaleOutcome]) -> None:
        for (_, places), state in zip(due, self._paid([one for one, _ in due]), strict=True):
            if state == REFUSED:
                for at in places:
                    outcomes[at] = SaleOutcome.MONEY

    def _paid(self, sales: Sequence[Sold]) -> list[int]:
        """Pay stored sales, and mark what became of each."""
        by_number = {held.number: held for held in self.store.bills().values()}
        dues = [escrow.Due(by_number[one.bill].bill.id, one.id, one.cents) for one in sales]
        states = []
        for grant in escrow.pay(self.ledger, dues):
            if isinstance(grant, LedgerError) and not isinstance(grant, BudgetExceeded):
                raise grant
            states.append(REFUSED if isinstance(grant, LedgerError) else PAID)
        self.store.mark(list(zip(sales, states, strict=True)))
        return states

    # What nobody waits for

    def settle(self) -> int:
        """Go on where a crash left sales: pay what is stored; returns how many there were."""
        waiting = self.store.stored()
        if waiting:
            self._paid(waiting)
        return len(waiting)

    def close(self, held: HeldBill) -> BillAccount:
        """End a bill: no more holds; once the last one has ended or was used, the rest goes back.

        Closing again goes on where it stands, and changes nothing once all is done.
        """
        with self.store.writing():
            purse = self.store.purse(held)
            purse.state = max(purse.state, CLOSING)
            self.store.release(held, purse, int(self._clock()))
            self.store.keep(held, purse)
        if purse.state == CLOSING and not purse.held:
            waiting = self.store.stored(held)
            if waiting:
                self._paid(waiting)
            with contextlib.suppress(UnknownAccount):  # its deposit never came
                escrow.refund(self.ledger, held.bill.id)
            with self.store.writing():
                purse = self.store.purse(held)
                purse.state = CLOSED
                self.store.keep(held, purse)
        return self.account(held)

    def tend(self) -> None:
        """Settle, and close what has ended."""
        self.settle()
        now = self._clock()
        for held in list(self.store.bills().values()):
            purse = self.store.purse(held)
            if purse.state != CLOSED and (purse.state == CLOSING or now >= held.bill.closes):
                self.close(held)

    def earned(self, reporter: bytes) -> list[tuple[HeldBill, Sold]]:
        """Return the sales of an enrolment."""
        found = []
        for held in self.store.bills().values():
            one = self.store.sale(held, sale_id(self._operator.master, held.bill.id, reporter))
            if one is not None:
                found.append((held, one))
        return found


def first_period(periods: Any) -> Any:
    """A level is one report: the first and only period."""
    return np.asarray(periods == 0)


def _again(before: tuple[Any, ...], one: _Delivery) -> SaleOutcome:
    """Return the outcome of a report whose sale is stored already."""
    place, _, report, state = before
    if place != one.place or report != one.report:
        return SaleOutcome.SECOND
    return SaleOutcome.MONEY if state == REFUSED else SaleOutcome.DUPLICATE
