"""The money of a bill in the ledger: an account in whole cents, its deposit the cap, a request for each sale.

One log, one witness and one `verify` for privacy and for money. A sale that is paid under its key is never
paid again, whatever crashed in between; all payments together never pass the deposit, whichever process pays.
At the end the refund is charged like any payment, so that payments and refund are the deposit to the cent,
and nothing can be paid any more.

Accounts are called escrow:<id of the bill>, keys sale:<id of the sale>. An id of a sale is no enrolment's:
it is drawn from the operator's secret (`holds.sale_id`), and tells nobody else whose sale it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from reticent.arguments import whole
from reticent.errors import KeyUsed, LedgerError
from reticent.ledger.base import Balance, Grant, Ledger, Order, Terms, Unit, money, payment_key
from reticent.market.bills import Bill
from reticent.market.menus import MOST_CENTS
from reticent.privacy.neighbours import Neighbours

ESCROW, SALE, REFUND = "escrow:", "sale:", "refund"


class Due(NamedTuple):
    """A payment that is due for a sale.

    Attributes:
        bill: Id of the bill that pays.
        sale: Id of the sale.
        cents: Cents that are due for the sale in all.
    """

    bill: bytes
    sale: bytes
    cents: int


@lru_cache(maxsize=1024)
def account_of(bill: bytes) -> str:
    """Return the name of a bill's account."""
    return f"{ESCROW}{bill.hex()}"


def key_of(sale: bytes) -> str:
    """Return the key of a sale's payment."""
    return f"{SALE}{sale.hex()}"


def open_escrow(ledger: Ledger, bill: Bill, deposit: int) -> Balance:
    """Open the account of a bill, or find it open with this deposit.

    Raises:
        AccountConflict: it is open with another deposit.
    """
    cap = whole("deposit", deposit, low=1, high=MOST_CENTS)
    subject = f"the deposit of bill {bill.name}, in cents"
    return ledger.open(Terms(account_of(bill.id), Unit.MONEY, Neighbours.NONE, subject, cap))


def pay(ledger: Ledger, dues: Sequence[Due]) -> list[Grant | LedgerError]:
    """Pay each once; what was paid before costs nothing.

    Returns:
        For each its grant, or why nothing was paid: the deposit does not hold it.
    """
    amounts = {cents: money(cents) for cents in {due.cents for due in dues}}
    return ledger.request_many(
        [Order(account_of(due.bill), key_of(due.sale), amounts[due.cents]) for due in dues]
    )


def paid(ledger: Ledger, due: Due) -> int:
    """Return the cents that were paid for a sale."""
    found = ledger.reading(account_of(due.bill), key_of(due.sale))
    return found.information + found.pending


def refund(ledger: Ledger, bill: bytes) -> int:
    """Give the unspent deposit back to the buyer, once, and return the cents that went back.

    Make sure first that no payment is under way. A payment that is under way all the same finds nothing left.
    """
    name = account_of(bill)
    while (left := ledger.balance(name).remaining) and not refunded(ledger, bill):
        try:
            ledger.charge(name, REFUND, money(left))
        except KeyUsed:  # another process was first
            break
        except LedgerError:
            if ledger.balance(name).remaining == left:  # else somebody was paid meanwhile
                raise
    return refunded(ledger, bill)


def refunded(ledger: Ledger, bill: bytes) -> int:
    """Return the cents that went back to the buyer."""
    return ledger.reading(account_of(bill), payment_key(REFUND)).information
