"""The desk: what the service does for a person, whichever way they came.

Data sets are the declarations in a folder; each is opened when it is first asked about, and all pay into one
ledger. Workers share the folder: a data set that one of them registers, all of them find.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from reticent.errors import (
    AccountConflict,
    BudgetExceeded,
    CommitUnknown,
    IdempotencyConflict,
    LedgerError,
    ParameterError,
    ParameterTypeError,
    ReticentError,
    SourceError,
    UnknownAccount,
)
from reticent.ledger import Balance, Ledger, SqlLedger
from reticent.ledger.checkpoint import load_key
from reticent.query import Answer, DataSet, Price, Session, dataset_file, source
from reticent.query.columns import Kind
from reticent.query.notebook import Notebook
from reticent.query.opening import folder as kept_folder
from reticent.query.opening import snapshot_path
from reticent.query.tree import By, Query, histogram, to_json
from reticent.service.keys import Person, Role
from reticent.service.refusals import Refused, not_found
from reticent.service.replies import written
from reticent.service.settings import Settings
from reticent.service.state import Asked, State, own_folder

if TYPE_CHECKING:
    from reticent.ledger.ethereum import EthereumLedger

_LONGEST_IDEMPOTENCY = 200
_LONGEST_REPEAT, _MOST_REPEATS = 4096, 500  # requests that are known by their bytes
LONGEST_DECLARATION = 1 << 15  # that comes over the network; YAML is slow to read

Question = str | Mapping[str, Any] | Query


@dataclass(frozen=True)
class Attempt:
    """One request to be answered, with all its retries.

    Attributes:
        id: what it is counted under.
        ledger: the text under which the ledger knows it; None if it cannot be tried again.
        answer: the JSON of its answer, if it was given one.
    """

    id: str
    ledger: str | None
    answer: str | None


@dataclass(frozen=True)
class _Repeat:
    """A reply that holds while the ledger has this mark, and what is noted whenever it is given."""

    mark: int
    reply: bytes
    note: Asked


class Desk:
    """Everything that one process of the service holds open. Make it after forking.

    Args:
        settings: of the service.
        ledger: instead of the one that the settings name.
    """

    def __init__(self, settings: Settings, *, ledger: Ledger | None = None) -> None:
        self.settings = settings
        folder = settings.folder
        if not folder.is_dir():
            raise ParameterError(f"folder must be a folder with declarations, there is none at {folder}")
        self._guard = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._read: dict[Path, tuple[tuple[int, int], DataSet | None]] = {}
        self._closing = threading.Event()
        self.state = State.of(folder)
        try:
            self.ledger = ledger if ledger is not None else self._ledger()
        except BaseException:
            self.state.close()
            raise
        is_near = isinstance(self.ledger, SqlLedger) and "://" not in (settings.ledger or "")
        self._near = cast(SqlLedger, self.ledger) if is_near else None
        self._repeats: dict[tuple[str, bytes], _Repeat] = {}  # of the event loop alone
        self.state.forget()

    def _ledger(self) -> Ledger:
        """The one that the settings name."""
        settings, own = self.settings, own_folder(self.settings.folder)
        if settings.is_on_chain:
            from reticent.service import on_chain

            return on_chain.opened(settings, self._found().values(), own / "sending.lock")
        where = settings.ledger if settings.ledger is not None else own / "ledger.sqlite"
        return SqlLedger(where, key=load_key(own / "ledger.key"))

    @property
    def chain(self) -> EthereumLedger | None:
        """The ledger, if it is on a chain."""
        return cast("EthereumLedger", self.ledger) if hasattr(self.ledger, "contract") else None

    def leave(self) -> None:
        """Let nobody wait any longer for what an oracle has not recorded: the process ends."""
        self._closing.set()

    def close(self) -> None:
        """Close all data sets, the ledger and the state."""
        self.leave()
        with self._guard:
            for session in self._sessions.values():
                session.close(ledger=False)
        self.ledger.close()
        self.state.close()

    # Data sets

    def names(self) -> list[str]:
        """The data sets that are declared, by name. A declaration that cannot be read is passed over."""
        return [data.name for data in self.datasets()]

    def datasets(self) -> list[DataSet]:
        """The declarations, by name. Nothing is opened for this."""
        with self._guard:
            return [data for _, (_, data) in sorted(self._found().items())]

    def data(self, name: str) -> DataSet:
        """A declaration. Raises Refused if there is none."""
        session = self._sessions.get(name)
        if session is not None:
            return session.data
        with self._guard:
            found = self._found().get(name)
        if found is None:
            raise not_found("data set")
        return found[1]

    def is_open(self, name: str) -> bool:
        """Whether the data set was opened: `data` and `session` do not wait then."""
        return name in self._sessions

    def _found(self) -> dict[str, tuple[Path, DataSet]]:
        """The declarations by the name of their data set; files that did not change are not read again."""
        found: dict[str, tuple[Path, DataSet]] = {}
        for path in sorted(self.settings.folder.glob("*.yaml")):
            try:
                told = path.stat()
            except OSError:
                continue
            stamp = (told.st_mtime_ns, told.st_size)
            before = self._read.get(path)
            if before is None or before[0] != stamp:
                data = None
                with contextlib.suppress(ParameterError, ParameterTypeError, OSError):
                    data = dataset_file.read(path)
                before = self._read[path] = (stamp, data)
            if before[1] is not None:
                found.setdefault(before[1].name, (path, before[1]))
        return found

    def session(self, name: str) -> Session:
        """The data set of that name, opened. Raises Refused if there is none."""
        session = self._sessions.get(name)
        if session is not None:
            return session
        with self._guard:
            if name not in self._sessions:
                found = self._found().get(name)
                if found is None or self._closing.is_set():
                    raise not_found("data set")
                self._sessions[name] = self._opened(found[0])
            return self._sessions[name]

    def warm(self) -> list[str]:
        """Open all rows, and load what the first question needs. What cannot be reached stops nothing.

        Returns:
            Data sets that cannot be opened now.
        """
        missed = []
        for data in self.datasets():
            if self._closing.is_set():
                break
            try:
                self.session(data.name).warm()
            except ReticentError:
                missed.append(data.name)
        if self._closing.is_set() or {"opendp", "duckdb"} <= sys.modules.keys():
            return missed
        for data in self.datasets()[:1]:
            column = data.columns[0]
            is_number = column.kind in (Kind.NUMBER, Kind.INTEGER)
            by = By(column.name, bins=2) if is_number else By(column.name)
            with contextlib.suppress(ReticentError):
                self.session(data.name).rehearse(histogram(by), information=1e-3)
        return missed

    def _opened(self, path: Path) -> Session:
        data = dataset_file.read(path)
        kept = kept_folder(path)
        kept.mkdir(mode=0o700, exist_ok=True)
        rows = partial(_connected, data, path)
        elsewhere = self.ledger.measured_by_oracle
        if elsewhere:
            self.ledger.balance(data.name)  # who asks here registers nothing
        notebook = Notebook(kept / "notebook.sqlite")
        return Session(data, None if elsewhere else rows, self.ledger, notebook, leaving=self._closing)

    def declared(self, text: str) -> DataSet:
        """The data set that a text from the network declares; nothing is done with it."""
        if len(text) > LONGEST_DECLARATION:
            raise ParameterError(f"declaration must be at most {LONGEST_DECLARATION:,} characters")
        return dataset_file.parse(text)

    def register(self, person: Person, text: str) -> DataSet:
        """Put a declaration into the folder, and open its account.

        The source must be a file in the folder: what comes over the network names no other place.
        """
        data = self.declared(text)
        if self.ledger.measured_by_oracle:
            raise LedgerError("data sets are registered on the chain by their owner: reticent chain register")
        self._check_source(data)
        path = self.settings.folder / f"{data.name}.yaml"
        with self._guard:
            if data.name in self._found() or path.exists():
                raise AccountConflict(f"data set {data.name} is registered already")
            self.ledger.open(data.terms)
            temporary = path.with_name(f".{data.name}.{secrets.token_hex(8)}")
            temporary.write_text(text, encoding="utf-8")
            is_owner = self.state.own(data.name, person)
            try:
                os.link(temporary, path)  # never over one that another worker put there
            except FileExistsError:
                if is_owner:
                    self.state.disown(data.name, person)
                raise AccountConflict(f"data set {data.name} is registered already") from None
            finally:
                temporary.unlink()
        return data

    def _check_source(self, data: DataSet) -> None:
        given = {form: place for form, place in data.source.items() if form in ("csv", "parquet", "duckdb")}
        if not given:
            raise ParameterError("source must be a csv, parquet or duckdb file in the service's folder")
        ((form, place),) = given.items()
        folder = self.settings.folder.resolve()
        is_there = False
        with contextlib.suppress(OSError, ValueError):  # a name that no file can have
            path = (folder / str(place)).resolve()
            is_there = not Path(str(place)).is_absolute() and path.parent == folder and path.is_file()
        if not is_there:
            raise ParameterError(
                f"source.{form} must be a file in the service's folder, got {str(place)!r:.80}"
            )

    def owns(self, person: Person, name: str) -> bool:
        """Whether a person may change a data set: its owner, or any owner if the operator put it there."""
        holder = self.state.owner(name)
        return person.role is Role.OWNER and (holder is None or holder == person.number)

    # Questions

    def price(self, name: str, query: Question, **accuracy: Any) -> Price:
        """What an answer would cost now."""
        return self.session(name).price(query, **accuracy)

    def rehearse(self, name: str, query: Question, **accuracy: Any) -> Answer:
        """The same question to made-up rows."""
        return self.session(name).rehearse(query, **accuracy)

    def known(self, name: str, query: Question, *, confidence: float = 0.95) -> Answer | None:
        """The best answer that is free."""
        return self.session(name).known(query, confidence=confidence)

    def ask(
        self, person: Person, name: str, query: Question, *, idempotency: str | None = None, **accuracy: Any
    ) -> Answer:
        """Ask for a person, within their quota.

        Args:
            person: who pays from their quota, if there is one.
            name: of the data set.
            query: as for `Session.ask`.
            idempotency: a retry of this person with the same text and body is answered as the first was, and
                counted and charged once.
            **accuracy: as for `Session.ask`.

        Raises:
            Refused: there is no such data set, or the quota does not suffice. Nothing was charged.
        """
        session = self.session(name)
        attempt = self.attempt(person, name, query, accuracy, idempotency)
        if attempt.answer is not None:
            return Answer.from_json(json.loads(attempt.answer))
        is_first, reserved = False, 0

        def reserve(units: int) -> None:
            nonlocal is_first, reserved
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
            answer = session.ask(query, idempotency=attempt.ledger, paying=reserve, **accuracy)
        except ReticentError as error:
            if is_first and reserved and not _may_be_charged(error, session, query, accuracy, reserved):
                self.state.release(attempt.id, person, name)
            raise
        note = _note(person, name, answer)
        if attempt.ledger is None and not reserved:
            self.state.note(note)
            return answer
        told = self.state.settle(attempt.id, person, note, json.dumps(answer.to_json()), is_first=is_first)
        return Answer.from_json(json.loads(told)) if attempt.ledger is not None else answer

    def reused(
        self, person: Person, name: str, query: Question, *, text: bytes = b"", **accuracy: Any
    ) -> bytes | None:
        """The reply to a question without an idempotency text, if it is free and there at once.

        Args:
            person: who asks.
            name: of the data set.
            query: as for `Session.ask`.
            text: all of the request, for `repeated`.
            **accuracy: as for `Session.ask`.
        """
        session = self._sessions.get(name)
        if session is None or self._near is None:
            return None
        mark = self._near.mark()  # before the answer is made: whatever is written later makes it old
        answer = session.reused(query, **accuracy)
        if answer is None:
            return None
        reply, note = written(answer.to_json()), _note(person, name, answer)
        self.state.note(note)
        if mark is not None and len(text) <= _LONGEST_REPEAT:
            self._repeats[name, text] = _Repeat(mark, reply, note)
            if len(self._repeats) > _MOST_REPEATS:
                del self._repeats[next(iter(self._repeats))]
        return reply

    def repeated(self, person: Person, name: str, text: bytes) -> bytes | None:
        """The reply to the very same request, by anybody, if nothing was written to the ledger since."""
        held = self._repeats.get((name, text))
        if held is None or self._near is None or held.mark != self._near.mark():
            return None
        self.state.note(replace(held.note, person=person.name))
        return held.reply

    def attempt(
        self,
        person: Person,
        name: str,
        query: Question,
        accuracy: Mapping[str, Any],
        idempotency: str | None,
    ) -> Attempt:
        """The attempt that a request belongs to: under a text of this analyst, with this body, alone.

        Raises:
            IdempotencyConflict: the text came with another body.
        """
        if idempotency is None:
            return Attempt(secrets.token_hex(16), None, None)
        if not 0 < len(idempotency) <= _LONGEST_IDEMPOTENCY or not idempotency.isprintable():
            raise ParameterError(f"Idempotency-Key must be 1 to {_LONGEST_IDEMPOTENCY} printable characters")
        asked = to_json(query) if isinstance(query, Query) else query
        body = hashlib.sha256(
            json.dumps([name, asked, dict(accuracy)], sort_keys=True, default=str).encode()
        ).hexdigest()
        scoped = f"{person.number}\n{idempotency}"
        found = hashlib.sha256(scoped.encode()).hexdigest()
        answer = self.state.attempted(found, person, name, body)
        return Attempt(found, hashlib.sha256(f"{scoped}\n{body}".encode()).hexdigest(), answer)

    def balance(self, name: str) -> Balance:
        """The data set's account; one that nobody opened yet is full, where it is opened by asking."""
        try:
            return self.ledger.balance(name)
        except UnknownAccount:
            if self.ledger.measured_by_oracle:
                raise
            return Balance(self.data(name).terms, 0)

    def balances(self) -> dict[str, Balance]:
        """All accounts, in one look."""
        return {one.terms.name: one for one in self.ledger.accounts()}

    def check(self) -> str | None:
        """What cannot be read, if anything."""
        for what, look in (("state", self.state.check), ("ledger", self.ledger.accounts)):
            try:
                look()
            except Exception:
                return what
        return None


def _connected(data: DataSet, path: Path) -> source.Table:
    """The rows. What is wrong with them is the owner's to mend: whoever asks is not told where they lie."""
    try:
        return source.connect(data, path.parent, snapshot_path(path, data))
    except (ParameterError, ParameterTypeError):
        raise SourceError from None


def _note(person: Person, name: str, answer: Answer) -> Asked:
    """What was asked, for the pages; a repeated question that cost nothing is one line too."""
    return Asked(
        0,
        name,
        person.name,
        json.dumps(to_json(answer.query)),
        answer.case.value,
        answer.cost,
        answer.without_reuse,
        answer.spent,
    )


def _may_be_charged(
    error: ReticentError, session: Session, query: Question, accuracy: dict[str, Any], reserved: int
) -> bool:
    """Whether a question that failed may have been paid for, as far as can be told."""
    if isinstance(error, (BudgetExceeded, IdempotencyConflict, ParameterError, ParameterTypeError)):
        return False
    if isinstance(error, CommitUnknown):
        return True
    try:
        return session.price(query, **accuracy).cost < reserved
    except ReticentError:
        return True
