"""A small market in one process: its operator, bills, devices, and what is wrong with its books."""

import time

from reticent.collect.device import Device
from reticent.fleet.operator import Operator
from reticent.fleet.record import Record
from reticent.fleet.revocation import Revocations
from reticent.ledger import SqlLedger
from reticent.market.bills import billed
from reticent.market.escrow import Due, account_of, paid
from reticent.market.outcomes import HoldOutcome as HoldOutcome
from reticent.market.seller import Seller
from reticent.market.store import PAID, SaleStore
from reticent.market.trading import Market

from ..collect import fleet

CLOSES = fleet.START + 100_000
NOW = fleet.START + 10


def levels_of(name, epsilons, **changes):
    """Surveys of the same number, one for each epsilon."""
    return [
        fleet.single("OneBit", epsilon=epsilon, name=f"{name}-{place}", **{"periods": 1} | changes)
        for place, epsilon in enumerate(epsilons)
    ]


def bill_of(name="one", epsilons=(0.25, 0.5, 1.0), cents=(30, 50, 70), closes=CLOSES):
    """A bill and its surveys."""
    surveys = levels_of(name, epsilons)
    return billed(surveys, cents, name=name, version="1", purpose="to test", closes=closes), surveys


class Clock:
    """Shows what it is set to."""

    def __init__(self, now=NOW):
        self.now = now

    def __call__(self):
        return self.now


class Stall:
    """A market with its files in a folder."""

    def __init__(self, folder, clock=None, ledger=None):
        self.folder, self.clock = folder, clock or Clock()
        self.ledger = ledger or SqlLedger(folder / "ledger.sqlite")
        self.revocations = Revocations(folder / "revoked.sqlite")
        self.operator = Operator(fleet.MASTER, self.revocations, Record(self.ledger))
        self.store = SaleStore(folder / "market.sqlite")
        self.market = Market(self.store, self.operator, fleet.SIGNING, clock=self.clock)
        self.devices = []

    def offer(self, name="one", deposit=1000, hold_s=900, is_funded=True, **changes):
        """A published bill, by default with its deposit."""
        bill, surveys = bill_of(name, **changes)
        held = self.market.publish(bill, surveys, buyer="bert", deposit=deposit, hold_s=hold_s)
        if is_funded:
            self.market.fund(held)
        return held

    def seller(self, number=1, *, lifetime=5.0, price=20, taken=None, **changes):
        """A seller, and the bills that she considers."""
        path = self.folder / f"{number}.ledger"
        device = Device(path, fleet.enrolment(number), fleet.SIGNER, lifetime=lifetime)
        self.devices.append(device)
        seller = Seller(device, price=price, **changes)
        bills = [
            seller.take(*self.store.files(held))
            for held in (taken if taken is not None else self.store.bills().values())
        ]
        return seller, bills

    def close(self):
        for device in self.devices:
            device.close()
        self.store.close()
        self.revocations.close()
        self.ledger.close()


def faults(market):
    """What is wrong with the books of a market: every sale counted and paid once, sums to the cent."""
    found = []
    ledger = market.ledger
    for held in market.store.bills().values():
        purse = market.store.purse(held)
        sales = list(market.store.sales(held))
        due = {one.id: one for one, _ in sales if one.state == PAID}
        if not purse.funded:
            continue
        total = 0
        for one in due.values():
            cents = paid(ledger, Due(held.bill.id, one.id, one.cents))
            if cents != held.bill.levels[one.place].cents:
                found.append(f"a sale of {one.cents} cents was paid {cents}")
            total += cents
        who = [report[13:21] for _, report in sales]
        if len(set(who)) != len(who):
            found.append("an enrolment sold twice")
        spent = ledger.balance(account_of(held.bill.id)).spent
        account = market.account(held)
        if total + account.refund != spent:
            found.append(f"{spent} cents left the escrow, {total} for sales and {account.refund} back")
        if spent > held.deposit:
            found.append(f"{spent} cents of {held.deposit}")
        if sum(one.cents for one, _ in sales) != purse.sold:
            found.append("the sums of the market are not those of its sales")
    return found


def now():
    """The clock of the machine."""
    return time.time()
