"""Requests under an idempotency text: charged once, and answered as the first try was.

The ledger knows a text by the amount that came with it. A retry may need another amount: others bought in the
meantime, or a fresh draw counts from what is recorded now. So the notebook keeps, for each text, the amounts
that the ledger was asked for, and the position from which a fresh draw counted:

- before the ledger is asked, the amount is noted as *tried*. A note that is only tried decides nothing: the
  first try may have been refused, and somebody else may have bought under the question since. It is used
  only where the ledger confirms that it was charged under this text for this amount;
- after the ledger charged, the amount is noted as *charged*. It holds from then on, whatever becomes of the
  account: a ledger that the data set moves to, or joins, repeats its measurements and knows no texts.

A crash between the two leaves a tried amount, and the ledger still knows the text. Two servers that ask at
once note both amounts; the ledger charges one, and the other server finds it among the notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple, Protocol

from reticent.errors import IdempotencyConflict, MeasurementVoid
from reticent.ledger import Grant, Reading
from reticent.query.paying import Due

RequestLedger = Callable[[Due, str | None], Grant]
"""Requests a quote's amount from the ledger, under a text or none; IdempotencyConflict if it differs."""


class RequestNote(NamedTuple):
    """An amount that the ledger was asked for under an idempotency text.

    Attributes:
        key: Question that is bought.
        wanted: Units that the answer must be worth, which tell one request under the text from another.
        amount: Units under the question in all.
        position: Reading before a fresh draw; None for a request that reuses purchases.
        is_charged: True if the ledger granted the amount.
    """

    key: str
    wanted: int
    amount: int
    position: Reading | None
    is_charged: bool


class RequestNotes(Protocol):
    """A notebook that stores the amounts requested from the ledger under idempotency texts."""

    def note_request(self, idempotency: str, note: RequestNote) -> None:
        """Store an amount under a text; a charged amount stays charged."""

    def request_notes(self, idempotency: str) -> list[RequestNote]:
        """Return the amounts that were requested under a text."""


def request_once(
    due: Due, idempotency: str | None, notes: RequestNotes, request: RequestLedger
) -> tuple[Due, Grant]:
    """Request the quoted amount from the ledger, or the amount charged before under the same text.

    Args:
        due: Quote of the question as of now.
        idempotency: Text under which a retry is charged once; None if there is none.
        notes: Notebook of the data set.
        request: Function that requests an amount from the ledger.

    Returns:
        The quote that was requested, and the ledger's grant.
    """
    if idempotency is None:
        return due, request(due, None)
    earlier = _notes_about(due, notes.request_notes(idempotency))
    for note in earlier:
        if note.is_charged:
            due = _as_noted(due, note)
            return due, request(due, idempotency)
    if due.combined and due.amount <= due.bought:  # costs nothing, and needs no text
        return _repeat(due, idempotency, earlier, request) or (due, request(due, None))
    notes.note_request(idempotency, _note_of(due, is_charged=False))
    try:
        grant = request(due, idempotency)
    except IdempotencyConflict:
        earlier = _notes_about(due, notes.request_notes(idempotency))  # another server may have noted one
        repeated = _repeat(due, idempotency, earlier, request, is_known=True)
        if repeated is None:
            raise
        due, grant = repeated
    notes.note_request(idempotency, _note_of(due, is_charged=True))
    return due, grant


def find_earlier_grant(
    due: Due, idempotency: str | None, notes: RequestNotes, request: RequestLedger
) -> Grant | None:
    """Return the earlier grant under a text, for a question that needs nothing more.

    Without it, a retry that comes after the first try was recorded would show a cost of 0.
    """
    if idempotency is None:
        return None
    earlier = _notes_about(due, notes.request_notes(idempotency))
    try:
        repeated = _repeat(due, idempotency, earlier, request)
    except MeasurementVoid:  # a recovery closed the charged measurement: other purchases make this answer
        return None
    return None if repeated is None else repeated[1]


def _repeat(
    due: Due,
    idempotency: str,
    earlier: Iterable[RequestNote],
    request: RequestLedger,
    *,
    is_known: bool = False,
) -> tuple[Due, Grant] | None:
    """Return the earlier request that the ledger charged, with its grant; None if it charged none.

    Unless `is_known` says that the ledger knows the text, only amounts that are bought are requested again:
    a charged amount is bought, and requesting a bought amount again costs nothing.
    """
    for note in earlier:
        if note.amount > due.bought and not is_known:
            continue
        noted = _as_noted(due, note)
        try:
            return noted, request(noted, idempotency)
        except IdempotencyConflict:
            continue
    return None


def _notes_about(due: Due, notes: Iterable[RequestNote]) -> list[RequestNote]:
    """Return the notes of the same request: its question, its worth, and whether it is a fresh draw."""
    same = (due.key, due.wanted, due.since is not None)
    return [note for note in notes if (note.key, note.wanted, note.position is not None) == same]


def _as_noted(due: Due, note: RequestNote) -> Due:
    """Return the quote with the amount and position of an earlier request."""
    since = note.position
    if since is not None and due.since is not None:
        since = replace(since, account=due.since.account)  # changes when a data set joins its people
    return replace(due, amount=note.amount, since=since)


def _note_of(due: Due, *, is_charged: bool) -> RequestNote:
    return RequestNote(due.key, due.wanted, due.amount, due.since, is_charged)
