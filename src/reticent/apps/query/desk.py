"""The desk: the service's work for a person who asks, over the API or on the pages.

The data sets themselves, and their opening, are in `data_sets`.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Unpack, cast

from reticent.apps.query.attempts import Attempt, Settled, Shaped, noted
from reticent.apps.query.data_sets import DataSets
from reticent.apps.query.weights import WorkWeight, cells_asked, letters_asked, reuse_cells
from reticent.errors import (
    BudgetExceeded,
    CommitUnknown,
    IdempotencyConflict,
    ParameterError,
    ParameterTypeError,
    ReticentError,
)
from reticent.ledger import Ledger, SqlLedger
from reticent.query import Answer, Price, Session
from reticent.query.accuracy import CONFIDENCE, NONE, SPAN, Accuracy, Words
from reticent.query.language.tree import Query, to_json
from reticent.query.paying import Hand, Paid
from reticent.query.proposals import Proposal
from reticent.query.recording import at_once
from reticent.service.keys import Person
from reticent.service.limits import wait_to_record
from reticent.service.refusals import Refused
from reticent.service.replies import written
from reticent.service.settings import Settings
from reticent.service.state import Asked, today

_LONGEST_IDEMPOTENCY = 200
LONGEST_REPEAT, _MOST_REPEATS = 4096, 500  # requests that are known by their bytes

Question = str | Mapping[str, Any] | Query


@dataclass(frozen=True)
class _Repeat:
    """A reply that holds while the ledger has this mark, and the note that is kept whenever it is given."""

    mark: int
    reply: bytes
    note: Asked


class Desk(DataSets):
    """The data sets of a service, and the answers to people's questions: within quotas, each request once.

    Args:
        settings: Settings of the service.
        ledger: Ledger to use instead of the one that the settings name.
    """

    def __init__(self, settings: Settings, *, ledger: Ledger | None = None) -> None:
        super().__init__(settings, ledger=ledger)
        is_near = isinstance(self.ledger, SqlLedger) and "://" not in (settings.ledger or "")
        self._near = cast(SqlLedger, self.ledger) if is_near else None
        self._repeats: dict[tuple[str, bytes], _Repeat] = {}  # of the event loop alone

    def price(
        self, name: str, query: Question, accuracy: Accuracy | None = None, **words: Unpack[Words]
    ) -> Price:
        """Return the price of an answer now."""
        return self.session(name).price(query, accuracy, **words)

    def plan(self, name: str, workload: Sequence[tuple[Question, Accuracy]]) -> Proposal:
        """Return a proposal of what to buy first for many questions."""
        return self.session(name).plan(workload)

    def rehearse(self, name: str, query: Question, accuracy: Accuracy, *, seed: int) -> Answer:
        """Answer a question from made-up rows."""
        return self.session(name).rehearse(query, accuracy, seed=seed)

    def known(
        self, name: str, query: Question, *, confidence: float = CONFIDENCE, reuse: str = SPAN
    ) -> Answer | None:
        """Return the best answer that is free; None if there is none."""
        return self.session(name).known(query, confidence=confidence, reuse=reuse)

    def cells(self, name: str, query: Question) -> int:
        """Return the work of a question in cells (`weights`), from the request and the declaration alone."""
        session, letters = self._sessions.get(name) or self.session(name), letters_asked(query)
        asked = session.read(query) if isinstance(query, str) else query
        return max(letters, cells_asked(asked, session.data))

    def weigh(self, name: str, query: Question) -> WorkWeight:
        """Return the work of a question that may be estimated from recorded values."""
        session = self._sessions.get(name) or self.session(name)
        asked = session.read(query) if isinstance(query, str) else query
        return WorkWeight(
            self.cells(name, query),
            reuse_cells(cells_asked(asked, session.data), session.recorded_values),
        )

    def free(
        self, person: Person, name: str, query: Question, accuracy: Accuracy, idempotency: str | None
    ) -> Answer | None:
        """Return what `ask` would answer, if nothing must be bought or measured for it; None else.

        None too if an earlier try may have been charged: its answer shows that charge.
        """
        session = self.session(name)
        attempt = self.attempt(person, name, query, accuracy, idempotency)
        if attempt.answer is not None:
            return Answer.from_json(json.loads(attempt.answer))
        if session.has_requested(query, attempt.ledger):  # its answer shows the charge: see `ask`
            return None
        answer = session.free(query, accuracy)
        return None if answer is None else self._ended(Settled(attempt, None), person, name, answer)

    def ask(
        self,
        person: Person,
        name: str,
        query: Question,
        accuracy: Accuracy | None = None,
        *,
        idempotency: str | None = None,
        start: float | None = None,
        **words: Unpack[Words],
    ) -> Answer:
        """Answer the question of a person, within their quota.

        Args:
            person: Person who pays from their quota, if there is one.
            name: Name of the data set.
            query: Question, in any form that `Session.ask` takes.
            accuracy: Accuracy, in the sense of `Session.ask`.
            idempotency: Text of the request: a retry of this person with the same text and body is answered
                as the first was, and counted and charged once.
            start: Time at which the request came, on the monotonic clock: measurements are recorded on the
                time grid that begins there. None to record at once, if the caller has the rows anyhow.
            **words: Accuracy in keywords, in the sense of `Session.ask`.

        Raises:
            Refused: There is no such data set, or the quota does not suffice. Nothing was charged.
        """
        given = Accuracy.of(accuracy, words)
        session = self.session(name)
        settled = self.settle(person, name, query, given, idempotency, start=start, session=session)
        if settled.paid is None:
            return Answer.from_json(json.loads(cast(str, settled.attempt.answer)))
        try:
            answer = session.told(query, settled.paid, confidence=given.confidence)
        except ReticentError as error:
            self._release(error, person, session, query, settled, given)
            raise
        return self._ended(settled, person, name, answer)

    def settle(
        self,
        person: Person,
        name: str,
        query: Question,
        accuracy: Accuracy,
        idempotency: str | None,
        *,
        offering: bool = True,
        hand: Hand | None = None,
        start: float | None = None,
        session: Session | None = None,
    ) -> Settled:
        """Reserve the quota for a question, charge for it, draw and record: the first half of `ask`.

        Args:
            person: Person who asks; see `ask`.
            name: Name of the data set.
            query: Question; see `ask`.
            accuracy: Accuracy; see `ask`.
            idempotency: Text of the request; see `ask`.
            offering: True if a refusal carries the best answer that is free.
            hand: Worker that draws and records, in the sense of `Session.pay`.
            start: Time at which the request came; see `ask`. A hand has its own.
            session: Session to ask; by default that of the data set as it is declared now.
        """
        session = session or self.session(name)
        attempt = self.attempt(person, name, query, accuracy, idempotency)
        if attempt.answer is not None:
            return Settled(attempt, None)
        is_first, reserved = False, 0

        def reserve(units: int) -> None:
            nonlocal is_first, reserved
            if not self.ledger.measured_by_oracle:
                self._looked_at(session.data)  # before paying
            self.check_current(name, session)
            first, left = self.state.reserve(attempt.id, person, name, units)
            if left is not None:
                raise Refused(
                    409,
                    "quota_exceeded",
                    f"account {name}: asked {units} units, your quota has {left} left",
                    asked=str(units),
                    left=str(left),
                )
            is_first, reserved = first, units

        try:
            paid = session.pay(
                query,
                accuracy,
                idempotency=attempt.ledger,
                paying=reserve,
                offering=offering,
                hand=hand,
                promptly=at_once if start is None else partial(self.record_on_grid, name, start),
            )
        except ReticentError as error:
            self._release(error, person, session, query, Settled(attempt, None, reserved, is_first), accuracy)
            raise
        return Settled(attempt, paid, reserved, is_first)

    def record_on_grid(self, name: str, start: float, call: Callable[[], object]) -> object:
        """Make a call that records a measurement, at a time that discloses nothing of the rows.

        Args:
            name: Data set whose rows were read.
            start: Time at which the request came, on the monotonic clock.
            call: Function that records one measurement.
        """
        wait_to_record(start, self.settings.deadline_s(self.open_data(name).rows), self.settings.grid_s)
        return call()

    def _release(
        self,
        error: ReticentError,
        person: Person,
        session: Session,
        query: Question,
        settled: Settled,
        accuracy: Accuracy,
    ) -> None:
        """Release the quota that a failed question had reserved, unless it may have been charged."""
        reserved = settled.reserved if settled.is_first else 0
        if reserved and not _may_be_charged(error, session, query, accuracy, reserved):
            self.state.release(settled.attempt.id, person, session.data.name)

    def _ended(self, settled: Settled, person: Person, name: str, answer: Answer) -> Answer:
        """Remember the answer of an attempt and return it; return that of another try if that was first."""
        retried = settled.attempt.ledger is not None
        text = written(answer.to_json()).decode() if retried else ""
        told = self._remembered(settled, person, noted(person, name, answer), text)
        return answer if told is None else Answer.from_json(json.loads(told))

    def ended(self, settled: Settled, person: Person, shaped: Shaped) -> bytes:
        """Remember an answer that another process made; return its reply, or that of a try that was first."""
        text = shaped.reply.decode() if settled.attempt.ledger is not None else ""
        told = self._remembered(settled, person, shaped.note, text)
        return shaped.reply if told is None else told.encode()

    def _remembered(self, settled: Settled, person: Person, note: Asked, text: str) -> str | None:
        """Remember the answer of an attempt; return the text of another try if that was first, else None."""
        attempt = settled.attempt
        note = replace(note, day=attempt.day)  # before rows were read: the time that took is private
        if attempt.ledger is None and not settled.reserved:
            self.state.note(note)
            return None
        told = self.state.settle(attempt.id, person, note, text, is_first=settled.is_first)
        return None if told == text else told

    def reused(
        self, person: Person, name: str, query: Question, accuracy: Accuracy, text: bytes
    ) -> bytes | None:
        """Return the reply to a question without an idempotency text, if it is free and there at once.

        Args:
            person: Person who asks.
            name: Name of the data set.
            query: Question, in any form that `Session.ask` takes.
            accuracy: Accuracy, in the sense of `Session.ask`.
            text: Body of the request, which `repeated` looks for.
        """
        session = self._sessions.get(name)
        if session is None or self._near is None or not self._is_current(name):
            return None
        mark = self._near.mark()  # before the answer is made: whatever is written later makes it old
        answer = session.reused(query, accuracy)
        if answer is None:
            return None
        reply, note = written(answer.to_json()), noted(person, name, answer)
        self.state.note(note)
        if mark is not None and len(text) <= LONGEST_REPEAT:
            self._repeats[name, text] = _Repeat(mark, reply, note)
            if len(self._repeats) > _MOST_REPEATS:
                del self._repeats[next(iter(self._repeats))]
        return reply

    def repeated(self, person: Person, name: str, text: bytes) -> bytes | None:
        """Return the reply to the very same request, by anybody, if the ledger did not change since."""
        held = self._repeats.get((name, text))
        if held is None or self._near is None or held.mark != self._near.mark():
            return None
        if not self._is_current(name):
            return None
        self.state.note(replace(held.note, person=person.name, day=today()))
        return held.reply

    def attempt(
        self, person: Person, name: str, query: Question, accuracy: Accuracy, idempotency: str | None
    ) -> Attempt:
        """Return the attempt of a request: the one under this person's text with this body, or a new one.

        Raises:
            IdempotencyConflict: The text came with another body.
        """
        if idempotency is None:
            return Attempt(secrets.token_hex(16), None, None, today())
        if not 0 < len(idempotency) <= _LONGEST_IDEMPOTENCY or not idempotency.isprintable():
            raise ParameterError(f"Idempotency-Key must be 1 to {_LONGEST_IDEMPOTENCY} printable characters")
        asked = to_json(query) if isinstance(query, Query) else query
        body = hashlib.sha256(
            json.dumps([name, asked, asdict(accuracy)], sort_keys=True, default=str).encode()
        ).hexdigest()
        scoped = f"{person.number}\n{idempotency}"
        found = hashlib.sha256(scoped.encode()).hexdigest()
        answer = self.state.attempted(found, person, name, body)
        return Attempt(found, hashlib.sha256(f"{scoped}\n{body}".encode()).hexdigest(), answer, today())


def shaped_free(person: Person, name: str, query: Question, accuracy: Accuracy, desk: Desk) -> Shaped | None:
    """Return the free answer to a question, ready to be sent; None if there is none.

    Nothing is noted yet. `apart` calls this and `shaped_paid`.
    """
    answer = desk.session(name).free(query, accuracy)
    return None if answer is None else Shaped.of(person, name, answer)


def shaped_paid(
    person: Person, name: str, query: Question, paid: Paid, confidence: float, desk: Desk
) -> Shaped:
    """Return the answer to a question that is paid for, ready to be sent."""
    answer = desk.session(name).told(query, paid, confidence=confidence)
    return Shaped.of(person, name, answer)


def _may_be_charged(
    error: ReticentError, session: Session, query: Question, accuracy: Accuracy, reserved: int
) -> bool:
    """Return whether a failed question may have been paid for, as far as is known."""
    if isinstance(error, (BudgetExceeded, IdempotencyConflict, ParameterError, ParameterTypeError)):
        return False
    if isinstance(error, CommitUnknown) or accuracy.reuse == NONE:  # the cost of a fresh draw never falls
        return True
    try:
        return session.price(query, accuracy).cost < reserved
    except ReticentError:
        return True
