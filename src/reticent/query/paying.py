"""Purchases in parts: a question is quoted before it is paid for, and measured and recorded after.

`Session.pay` puts the parts in order. The quote and the measurement take long if there are many cells. They
need no more than the declaration, the rows and the ledger, and may run in another process than the payment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from reticent.errors import LedgerError
from reticent.ledger import Grant, Reading
from reticent.query.accuracy import Accuracy
from reticent.query.plans import Asked


@dataclass(frozen=True)
class Due:
    """A quote for a question, computed from the declaration, the request and the ledger.

    Attributes:
        key: Key of the question in the ledger.
        bought: Units that were bought before.
        wanted: Units that the answer must be worth.
        cost: Most units that may be charged for the question: purchases only grow.
        is_free: True if nothing must be bought or measured for the question.
        amount: Units that must be bought under the key in all.
        combined: True if purchases of other questions reduce the units to buy.
        words: Text, grid and number of values of the question, for the ledger.
        since: Reading before a fresh draw, if nothing recorded may be reused.
    """

    key: str
    bought: int
    wanted: int
    cost: int
    is_free: bool
    amount: int
    combined: bool
    words: tuple[str, int, int]
    since: Reading | None = None


@dataclass(frozen=True)
class Paid:
    """A question that is bought and recorded as far as needed, so that its answer can be built.

    Attributes:
        bought: Units that were bought before.
        wanted: Units that the answer must be worth.
        grant: Grant of the ledger; None if nothing was missing.
        combined: True if purchases of other questions are part of the answer.
        since: Reading before a fresh draw, if nothing recorded may be reused.
    """

    bought: int
    wanted: int
    grant: Grant | None
    combined: bool = False
    since: Reading | None = None


class Hand(Protocol):
    """A worker that quotes a question before payment and measures it after; both can be repeated free."""

    def due(self, query: Asked, accuracy: Accuracy) -> Due:
        """Quote a question; raise an error if its rows cannot be opened, before anything is charged."""

    def record(self, query: Asked, grant: Grant) -> None:
        """Read rows, draw noise and record every measurement of a grant that is paid for and not recorded."""


def check_paid_for(key: str, grant: Grant | None) -> None:
    """Refuse to measure or answer one question for the payment of another.

    The key names the declaration and its version: a process that opened the data set after it was declared
    anew must not record its rows under an earlier payment.
    """
    if grant is not None and grant.key != key:
        raise LedgerError("the data set was declared anew after this was paid for; ask again")
