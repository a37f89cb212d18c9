"""The desk: what the service does for a person, whichever way they came.

Data sets are the declarations in a folder; each is opened when it is first asked about, and all pay from one
ledger: accounts that lie beside their declarations move there (`query.home`). Workers share the folder: a
data set that one of them registers, all of them find.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from reticent.apps.query import sources
from reticent.apps.query.reading import Held
from reticent.apps.query.weights import cells_asked, letters_asked
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
from reticent.files import appearing, private, secluded
from reticent.ledger import Balance, Ledger, SqlLedger
from reticent.ledger.lockfile import LockFile
from reticent.ledger.sql.moving import Taken
from reticent.ledger.witness.opening import opened as open_ledger
from reticent.query import Answer, DataSet, Price, Session
from reticent.query.declarations import dataset_file
from reticent.query.declarations import home as homes
from reticent.query.language.tree import By, Query, histogram, to_json
from reticent.query.measure import Rows
from reticent.query.notebook import Notebook
from reticent.query.opening import folder as kept_folder
from reticent.query.opening import snapshot_path
from reticent.query.prices import Accuracy
from reticent.query.rows import source
from reticent.query.rows.columns import Kind
from reticent.query.session import Paid
from reticent.service.keys import Person, Role
from reticent.service.refusals import Refused, not_found
from reticent.service.replies import written
from reticent.service.settings import Settings
from reticent.service.state import Asked, State, own_folder

if TYPE_CHECKING:
    from reticent.ledger.ethereum.ledger import EthereumLedger

log = logging.getLogger("reticent.service")
_LONGEST_IDEMPOTENCY = 200
LONGEST_REPEAT, _MOST_REPEATS = 4096, 500  # requests that are known by their bytes
LONGEST_DECLARATION = 1 << 15  # that comes over the network; YAML is slow to read
_TURN_S = 10.0  # that registering waits for others who do

log = logging.getLogger("reticent.service")

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
class Settled:
    """A question that somebody asked, paid for and recorded: what is left is to tell the answer.

    Attributes:
        attempt: which request it is.
        paid: None if the attempt was answered before.
        reserved: units that its quota was asked for.
        is_first: whether nothing was counted before this try.
    """

    attempt: Attempt
    paid: Paid | None
    reserved: int = 0
    is_first: bool = False


@dataclass(frozen=True)
class Shaped:
    """An answer as it leaves, and what is noted of it."""

    reply: bytes
    note: Asked


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
        self._book: Ledger | None = None
        self._read: dict[Path, tuple[tuple[int, ...], DataSet | None]] = {}
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

            if (settings.witness, settings.witness_key, settings.log_name) != (None, None, None):
                raise ParameterError("witness and log_name are for a ledger that is on no chain")
            return on_chain.opened(settings, self._found().values(), own / "sending.lock")
        return open_ledger(
            settings.ledger if settings.ledger is not None else own / "ledger.sqlite",
            signer=own / "ledger.key",
            origin=settings.log_name,
            witness=settings.witness,
            witness_key=settings.witness_key,
            note=own / homes.WITNESS,
        )

    @property
    def chain(self) -> EthereumLedger | None:
        """The ledger, if it is on a chain."""
        return cast("EthereumLedger", self.ledger) if hasattr(self.ledger, "contract") else None

    @property
    def book(self) -> Ledger:
        """Where it is entered what devices told: the ledger; on a chain, under the service's own address.

        It is one for the folder, whoever opens it, with or without options: a note there says which.

        Raises:
            LedgerError: it was another one before.
        """
        with self._guard:
            if self._book is None:
                own = own_folder(self.settings.folder)
                _check_note(own / "book", self._place(own))
                self._book = self.ledger
                if self.chain is not None and self.chain.owner != self.chain.address:
                    from reticent.service import on_chain

                    self._book = on_chain.own(self.settings, own / "sending.lock")
            return self._book

    def _place(self, own: Path) -> str | None:
        """The ledger in a word; None for one that only this process has."""
        if self.chain is not None:
            return homes.on_chain(self.chain.chain_id, self.chain.contract)
        if not isinstance(self.ledger, SqlLedger):
            return None
        place = homes.placed(self.ledger.where)
        return place.removeprefix(f"{own.resolve()}{os.sep}")  # the folder may be moved

    def leave(self) -> None:
        """Let nobody wait any longer for what an oracle has not recorded: the process ends."""
        self._closing.set()

    def close(self) -> None:
        """Close all data sets, the ledger and the state."""
        self.leave()
        with self._guard:
            for session in self._sessions.values():
                session.close(ledger=False)
            if self._book is not None and self._book is not self.ledger:
                self._book.close()
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
            stamp = (told.st_mtime_ns, told.st_size, homes.stamp(path))
            before = self._read.get(path)
            if before is None or before[0] != stamp:
                data = None
                with contextlib.suppress(ParameterError, ParameterTypeError, OSError):
                    data = dataset_file.read(path)
                    data = _at_known_home(path, data)
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
            except ReticentError as error:
                missed.append(data.name)
                log.warning(json.dumps({"event": "not opened", "dataset": data.name, "why": str(error)}))
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
        path = path.resolve()
        data = dataset_file.read(path)
        kept = kept_folder(path)
        secluded(kept)
        rows = None
        if self.ledger.measured_by_oracle:  # who asks here registers nothing
            self.ledger.balance(data.account)
        else:
            try:
                data = self._at_home(path, data)
            except LedgerError as error:
                raise self._elsewhere(data, error) from error
            rows = partial(self._held, data, path)
        notebook = Notebook(kept / "notebook.sqlite")
        return Session(data, rows, self.ledger, notebook, leaving=self._closing)

    def _at_home(self, path: Path, data: DataSet) -> DataSet:
        """The data set, with its account in the service's ledger.

        An account in a ledger beside the declaration moves here with all that it bought; one that somebody
        put elsewhere stays there, and is not served.
        """
        ledger, here = cast(SqlLedger, self.ledger), homes.placed(cast(SqlLedger, self.ledger).where)
        with homes.settled(path, data, ledger.where) as home:
            place = home.paying
            if place != here and not (home.is_beside and not home.moving):
                raise LedgerError(
                    f"{path.name} pays from {place}, the service from {here}: name that with --ledger, or "
                    f"move it with `reticent dataset move {path.name} --ledger LEDGER`"
                )
            taken = [Taken(0, 0)]
            if home.place != here:
                home, one = homes.moved_to(home, data, ledger)
                taken.append(one)
            taken.append(homes.left_behind(home, path, data, ledger))
            data = homes.opened(home, data, ledger)
        charged, over = (sum(getattr(one, part) for one in taken) for part in ("charged", "over"))
        if charged or over:
            event = {"event": "adopted", "dataset": data.name, "units": str(charged), "over_cap": str(over)}
            log.warning(json.dumps(event))
        return data

    def _elsewhere(self, data: DataSet, error: LedgerError) -> LedgerError:
        """What is said of a home that is out of reach: where ledgers lie is for the operator's log alone."""
        if type(error) is not LedgerError:
            return error
        log.warning(json.dumps({"event": "not opened", "dataset": data.name, "why": str(error)}))
        return LedgerError(f"the account of {data.name} is not in this service's ledger: its log says where")

    def _held(self, data: DataSet, path: Path) -> Rows:
        return Held(partial(self._looked_at, data), partial(self._connected, data, path))

    def _connected(self, data: DataSet, path: Path) -> source.Table:
        """The rows. What is wrong with them is the owner's to mend: who asks is not told where they lie."""
        try:
            return source.connect(data, path.parent, snapshot_path(path, data))
        except (ParameterError, ParameterTypeError):  # its text says where the rows lie
            raise SourceError from None

    def _looked_at(self, data: DataSet) -> str:
        """What the file of the rows is now, if they may be read."""
        try:
            return sources.check(self.state, self.settings.folder, data)
        except ParameterError:  # as above
            raise SourceError from None

    def declared(self, text: str) -> DataSet:
        """The data set that a text from the network declares; nothing is done with it."""
        if len(text) > LONGEST_DECLARATION:
            raise ParameterError(f"declaration must be at most {LONGEST_DECLARATION:,} characters")
        data = dataset_file.parse(text)
        for part in ("epsilon", "delta"):
            most, given = getattr(self.settings, f"most_{part}"), getattr(data.budget, part)
            if given > most:
                raise ParameterError(
                    f"budget.{part} must be <= {most:g}, what the operator allows, got {given!r}"
                )
        return data

    def register(self, person: Person, text: str) -> DataSet:
        """Put a declaration into the folder, and open its account; or refuse, and leave everything as it was.

        The source must be a file that the operator assigned to this person: what comes over the network names
        no other place. Workers take turns.
        """
        data = self.declared(text)
        if self.ledger.measured_by_oracle:
            raise LedgerError("data sets are registered on the chain by their owner: reticent chain register")
        path = self.settings.folder / f"{data.name}.yaml"
        with self._guard, self._registering():
            rows = sources.registrable(self.state, self.settings.folder, person, data)
            if data.name in self._found() or path.exists():
                raise AccountConflict(f"data set {data.name} is registered already")
            is_new = self.state.own(data.name, person, rows)
            try:
                if is_new:
                    self._check_unused(path, data)
                self._home_made(path, data)
                temporary = path.with_name(f".{data.name}.{secrets.token_hex(8)}")
                private(temporary).write_text(text, encoding="utf-8")
                try:
                    os.link(temporary, path)  # never over one that the operator put there
                finally:
                    temporary.unlink()
            except BaseException as error:
                if is_new:
                    self.state.disown(data.name, person)
                if isinstance(error, FileExistsError):
                    raise AccountConflict(f"data set {data.name} is registered already") from error
                raise
        return data

    @contextlib.contextmanager
    def _registering(self) -> Iterator[None]:
        """Be the only worker who registers."""
        with contextlib.closing(LockFile(str(own_folder(self.settings.folder) / "registering.lock"))) as lock:
            if not lock.acquire(_TURN_S):
                raise Refused(503, "busy", "others are registering: try again", retry_s=1.0)
            try:
                yield
            finally:
                lock.release()

    def _check_unused(self, path: Path, data: DataSet) -> None:
        """Refuse a name that an account or a folder of its own is left of: they are of other people."""
        with contextlib.suppress(UnknownAccount):
            self.ledger.balance(data.name)
            raise AccountConflict(f"data set {data.name} is registered already")
        if kept_folder(path).exists():
            raise AccountConflict(f"data set {data.name} is registered already")

    def _home_made(self, path: Path, data: DataSet) -> None:
        """Open the account of a declaration that is about to be there; leave nothing if that is refused."""
        is_new = not kept_folder(path).exists()
        try:
            self._at_home(path, data)
        except BaseException:
            if is_new and kept_folder(path).exists():
                homes.given_back(path, data)
            raise

    def files_of(self, person: Person) -> list[str]:
        """The files that a person may register."""
        return sources.of(self.state, self.settings.folder, person)

    def owns(self, person: Person, name: str) -> bool:
        """Whether a person may change a data set: its owner, or its file's; any owner if there is none."""
        holder = self.state.owner(name)
        if holder is None:
            holder = sources.holder(self.state, self.settings.folder, self.data(name))
        return person.role is Role.OWNER and (holder is None or holder == person.number)

    def revoke(self, person: Person, name: str) -> bool:
        """Take a key back for an owner, and say whether it was; those of other owners the operator takes."""
        return self._is_theirs(person, name) and self.state.revoke(name)

    def replace_key(self, person: Person, name: str) -> str | None:
        """Another secret for whoever lost theirs, for an owner who may take that key back; else None."""
        found = self.state.replace_key(name) if self._is_theirs(person, name) else None
        return None if found is None else found[1]

    def _is_theirs(self, person: Person, name: str) -> bool:
        whom = self.state.named(name)
        return whom is not None and (whom.role is not Role.OWNER or whom == person)

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

    def cells(self, name: str, query: Question) -> int:
        """How much work a question is, in cells (`weights`): from the request and the declaration alone."""
        session, letters = self.session(name), letters_asked(query)
        asked = session.read(query) if isinstance(query, str) else query
        return max(letters, cells_asked(asked, session.data))

    def free(
        self, person: Person, name: str, query: Question, *, idempotency: str | None = None, **accuracy: Any
    ) -> Answer | None:
        """What `ask` would answer, if nothing must be bought or measured for it; None else."""
        session = self.session(name)
        attempt = self.attempt(person, name, query, accuracy, idempotency)
        if attempt.answer is not None:
            return Answer.from_json(json.loads(attempt.answer))
        answer = session.free(query, **accuracy)
        return None if answer is None else self._ended(Settled(attempt, None), person, name, answer)

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
        settled = self.settle(person, name, query, idempotency=idempotency, **accuracy)
        if settled.paid is None:
            return Answer.from_json(json.loads(cast(str, settled.attempt.answer)))
        try:
            given = Accuracy(**accuracy)
            answer = self.session(name).told(query, settled.paid, confidence=given.confidence)
        except ReticentError as error:
            self._release(error, person, name, query, settled, accuracy)
            raise
        return self._ended(settled, person, name, answer)

    def settle(
        self,
        person: Person,
        name: str,
        query: Question,
        *,
        idempotency: str | None = None,
        offering: bool = True,
        **accuracy: Any,
    ) -> Settled:
        """The first half of `ask`: quota, charge, draw and record.

        Args:
            person: as for `ask`.
            name: as for `ask`.
            query: as for `ask`.
            idempotency: as for `ask`.
            offering: whether a refusal carries the best answer that is free.
            **accuracy: as for `ask`.
        """
        session = self.session(name)
        attempt = self.attempt(person, name, query, accuracy, idempotency)
        if attempt.answer is not None:
            return Settled(attempt, None)
        is_first, reserved = False, 0

        def reserve(units: int) -> None:
            nonlocal is_first, reserved
            if not self.ledger.measured_by_oracle:
                self._looked_at(session.data)  # before paying
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
                query, Accuracy(**accuracy), idempotency=attempt.ledger, paying=reserve, offering=offering
            )
        except ReticentError as error:
            self._release(error, person, name, query, Settled(attempt, None, reserved, is_first), accuracy)
            raise
        return Settled(attempt, paid, reserved, is_first)

    def _release(
        self,
        error: ReticentError,
        person: Person,
        name: str,
        query: Question,
        settled: Settled,
        accuracy: dict[str, Any],
    ) -> None:
        """Give back what a quota was asked for by a question that failed, unless it may have been charged."""
        reserved = settled.reserved if settled.is_first else 0
        if reserved and not _may_be_charged(error, self.session(name), query, accuracy, reserved):
            self.state.release(settled.attempt.id, person, name)

    def _ended(self, settled: Settled, person: Person, name: str, answer: Answer) -> Answer:
        """The answer of an attempt, once it is remembered; what another try was told, if that was first."""
        retried = settled.attempt.ledger is not None
        text = written(answer.to_json()).decode() if retried else ""
        told = self._remembered(settled, person, _note(person, name, answer), text)
        return answer if told is None else Answer.from_json(json.loads(told))

    def ended(self, settled: Settled, person: Person, shaped: Shaped) -> bytes:
        """The same of an answer that was made elsewhere."""
        text = shaped.reply.decode() if settled.attempt.ledger is not None else ""
        told = self._remembered(settled, person, shaped.note, text)
        return shaped.reply if told is None else told.encode()

    def _remembered(self, settled: Settled, person: Person, note: Asked, text: str) -> str | None:
        """What another try of the attempt was told, if that was first."""
        attempt = settled.attempt
        if attempt.ledger is None and not settled.reserved:
            self.state.note(note)
            return None
        told = self.state.settle(attempt.id, person, note, text, is_first=settled.is_first)
        return None if told == text else told

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
        if mark is not None and len(text) <= LONGEST_REPEAT:
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
            return self.ledger.balance(self.data(name).account)
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
            except Exception as error:  # its text could hold data
                log.error(json.dumps({"event": "unreadable", "what": what, "type": type(error).__name__}))
                return what
        return None


def _check_note(path: Path, place: str | None) -> None:
    """Note where it is entered what devices told, or refuse another place than was noted before."""
    if place is None:
        return
    if not path.exists():
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        with appearing(draft, mode=0o600) as note:
            note.write(f"{place}\n".encode())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)  # whole, and never over another's
        draft.unlink()
    told = path.read_text(encoding="utf-8").strip()
    if told != place:
        raise LedgerError(
            f"what devices told is entered in the ledger {told}, not in {place}: open the service with that "
            f"one; without {path} it would begin anew"
        )


def _at_known_home(path: Path, data: DataSet) -> DataSet:
    """A declaration with its account, as far as that is known without opening it."""
    try:
        home = homes.known(path)
    except LedgerError:  # whoever asks is told why
        return data
    return home.of(data) if home is not None else data


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


def shaped_free(
    person: Person, name: str, query: Question, accuracy: dict[str, Any], desk: Desk
) -> Shaped | None:
    """What is free of a question, made to be sent; nothing is noted yet. For `apart`, as the next one."""
    answer = desk.session(name).free(query, **accuracy)
    return None if answer is None else Shaped(written(answer.to_json()), _note(person, name, answer))


def shaped_paid(
    person: Person, name: str, query: Question, paid: Paid, confidence: float, desk: Desk
) -> Shaped:
    """The answer to a question that is paid for."""
    answer = desk.session(name).told(query, paid, confidence=confidence)
    return Shaped(written(answer.to_json()), _note(person, name, answer))


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
