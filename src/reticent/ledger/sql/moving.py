"""Migration of an account between SQL ledgers: nothing is lost, doubled, or left to spend in the old one.

1. `hand_over` closes the account in the old ledger, in one transaction. Pending measurements are closed in
   "void" entries, so that values that are just being drawn are refused and never leave; the whole remaining
   budget is charged, under a key that names the new ledger.
2. `take_over` repeats every measurement, with its values, in the new ledger, in one transaction. What the new
   account spent already stays spent: the sum counts. Measurements above the cap are not repeated; the rest of
   the cap is charged instead: no budget is left then, and the key says by how much the sum exceeds the cap.

After a crash both may be run again: `hand_over` then finds nothing left to close, `take_over` its own mark.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from reticent.errors import AccountConflict, LedgerError, UnknownAccount
from reticent.ledger import entries
from reticent.ledger.base import Terms
from reticent.ledger.merkle import EMPTY_ROOT
from reticent.ledger.sql.batch import Batch
from reticent.ledger.sql.ledger import SqlLedger

_MOVED = "moved to "
_MEASUREMENTS = (
    "SELECT b.name, m.number, m.information, m.recorded FROM measurement m JOIN bought b ON b.id = m.bought "
    "JOIN account a ON a.id = b.account WHERE a.name = ? ORDER BY m.number"
)


_LEFT = "SELECT count(*) FROM bought b JOIN account a ON a.id = b.account WHERE a.name = ? AND b.name LIKE ?"


@dataclass(frozen=True)
class History:
    """The purchases of an account, in order.

    Attributes:
        terms: Terms of the account.
        spent: Units spent, without those that closed the account.
        recorded: Key, information and values of each measurement.
        texts: Texts of questions, by their keys.
        lost: Units that bought nothing: their measurements were paid for and closed.
        mark: Identifier of this history, equal for equal histories only.
    """

    terms: Terms
    spent: int
    recorded: tuple[tuple[str, int, tuple[int, ...]], ...]
    lost: int
    mark: str
    texts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Taken:
    """The result of taking over a history: the units charged now, and the units above the cap."""

    charged: int
    over: int


def hand_over(ledger: SqlLedger, account: str, to: str, terms: Terms) -> History:
    """Close an account for good, and return its purchases.

    Args:
        ledger: Ledger that the account leaves.
        account: Name of the account.
        to: Description of the new ledger; part of a key.
        terms: Terms of the account that will take over the purchases.

    Raises:
        AccountConflict: the accounts differ in more than name and subject. Nothing was written.
    """
    check_same(ledger.balance(account).terms, terms)
    key = _MOVED + to.encode("unicode_escape").decode()

    def work(batch: Batch) -> None:
        held = batch.known(account)
        batch.close_pending(entries.head_text(0, EMPTY_ROOT), held.id)
        if held.terms.cap - held.spent >= held.terms.minimum:
            batch.pay(held.terms, key, held.terms.cap - held.spent, None)

    ledger.transact(work)
    balance = ledger.balance(account)
    rows = ledger.rows(_MEASUREMENTS, (account,))
    if rows and rows[-1][0].startswith(_MOVED) and balance.remaining < balance.terms.minimum:
        del rows[-1]
    text = f"{ledger.account_mark(account)} {[(number, information) for _, number, information, _ in rows]}"
    recorded = tuple(
        (name, information, entries.values_of(values))
        for name, _, information, values in rows
        if values is not None
    )
    spent = sum(information for _, _, information, _ in rows)
    return History(
        balance.terms,
        spent,
        recorded,
        spent - sum(information for _, information, _ in recorded),
        hashlib.sha256(text.encode()).hexdigest()[:32],
        tuple(ledger.worded(account).texts.items()),
    )


def take_over(ledger: SqlLedger, terms: Terms, history: History) -> Taken:
    """Add a history, once, to an account of the same terms; name and subject may differ."""
    check_same(history.terms, terms)
    mark, texts = f"taken:{history.mark}", dict(history.texts)

    def work(batch: Batch) -> Taken:
        held = batch.known(terms.name)
        if batch.is_answered(held.id, mark):
            return Taken(0, 0)
        before, over, idempotency = held.spent, 0, [mark]

        def once() -> str | None:  # the first charge bears the mark
            return idempotency.pop() if idempotency else None

        for key, information, values in history.recorded:
            if held.spent + information > terms.cap:
                over += information
                continue
            bought = batch.requested(held.id, key)
            grant = batch.request(terms, key, bought + information, once(), texts.get(key, ""))
            batch.fulfil(grant.pending[-1].number, values)
        lost = min(history.lost, terms.cap - held.spent)
        over += history.lost - lost
        left = terms.cap - held.spent
        if over and left >= terms.minimum:
            batch.pay(terms, f"taken over {history.mark}: {over} units more than the cap", left, once())
        elif lost and not over:
            batch.pay(terms, f"taken over {history.mark}: closed before", lost, once())
        return Taken(held.spent - before, over)

    taken: Taken = ledger.transact(work)
    return taken


def check_new(left: SqlLedger | None, ledger: SqlLedger, account: str) -> None:
    """Refuse to move an account to a ledger where it is already, or which it left before.

    Raises:
        LedgerError: the account is, or was, in that ledger. A copy of a ledger counts as the ledger itself.
    """
    try:
        mark = ledger.account_mark(account)
    except UnknownAccount:
        return
    if left is not None and left.account_mark(account) == mark:
        raise LedgerError(f"account {account} is in that ledger already, under another address or in a copy")
    ((times,),) = ledger.rows(_LEFT, (account, f"{_MOVED}%"))
    if times:
        raise LedgerError(f"account {account} left that ledger before and is closed there: name a new one")


def check_same(one: Terms, other: Terms) -> None:
    """Refuse accounts that differ in more than name and subject."""
    if replace(one, name=other.name, subject=other.subject) != other:
        raise AccountConflict(
            f"account {other.name} cannot take over {one.name}: unit, neighbours, cap or minimum differ"
        )
