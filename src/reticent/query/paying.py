"""Promise, pay, release, in parts: what is due is known before anybody pays, and recorded after.

`Session.pay` puts them in order. The first and the last take long where there are many cells, need no more
than the declaration, the rows and the ledger, and may be done by another hand than the one that pays.
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
    """What a question needs, from the declaration, the request and the ledger.

    Attributes:
        key: of the question, in the ledger.
        bought: units that were bought before.
        wanted: units that the answer must be worth.
        cost: the most that may be charged for it: what is bought only grows.
        is_free: whether nothing must be bought or measured for it.
        amount: units that must be bought under the key in all.
        combined: whether others' purchases make that less.
        words: the question's text, its grid and its number of values, for the ledger.
        since: what was recorded before, if nothing of it may be reused.
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
    """A question that is bought and recorded, as far as it must be. It only remains to tell the answer.

    Attributes:
        bought: units that were bought before.
        wanted: units that the answer must be worth.
        grant: what the ledger was asked for; None if nothing was missing.
        combined: whether others' purchases are part of it.
        since: what was recorded before, if nothing of it may be reused.
    """

    bought: int
    wanted: int
    grant: Grant | None
    combined: bool = False
    since: Reading | None = None


class Hand(Protocol):
    """Who does what comes before and after paying. Either may be done again, by anybody, for nothing."""

    def due(self, query: Asked, accuracy: Accuracy) -> Due:
        """What a question needs; an error if its rows are out of reach, so that it costs nothing."""

    def record(self, query: Asked, grant: Grant) -> None:
        """Read rows, draw noise and record it, for all that is paid for and not recorded."""


def check_paid_for(key: str, grant: Grant | None) -> None:
    """Refuse to measure or answer one question for the payment of another.

    The key names the declaration and its version: a process that opened the data set after it was declared
    anew must not record its rows under what was paid for before.
    """
    if grant is not None and grant.key != key:
        raise LedgerError("the data set was declared anew after this was paid for; ask again")
