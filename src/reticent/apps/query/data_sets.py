"""The data sets that a service holds open, and the ledger that all of them pay from.

Data sets are the declarations in a folder; each is opened when it is first asked about, and all pay from one
ledger: accounts that lie beside their declarations move there (`query.declarations.home`). Workers share the
folder: a data set that one of them registers, all of them find. The desk answers questions about them
(`desk`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from reticent import files
from reticent.apps.query import publishing, service_ledger, sources
from reticent.apps.query.reading import Held
from reticent.errors import (
    AccountConflict,
    LedgerError,
    ParameterError,
    ParameterTypeError,
    ReticentError,
    SourceError,
    UnknownAccount,
)
from reticent.files import private, secluded
from reticent.ledger import Balance, Ledger, SqlLedger
from reticent.ledger.lockfile import LockFile
from reticent.ledger.sql.moving import Taken
from reticent.query import DataSet, Session, shared_notebook
from reticent.query.declarations import (
    account_moving,
    account_opening,
    dataset_file,
    ledger_places,
    order_keys,
    populations,
)
from reticent.query.declarations import home as homes
from reticent.query.language.tree import By, histogram
from reticent.query.measure import Rows
from reticent.query.opening import folder as kept_folder
from reticent.query.opening import snapshot_path
from reticent.query.rows import source
from reticent.query.rows.columns import Kind
from reticent.query.rows.row_order import needs_order_key
from reticent.query.shared_notebook import SharedNotebook
from reticent.service.keys import Person, Role
from reticent.service.refusals import Refused, not_found
from reticent.service.settings import Settings
from reticent.service.state import Published, State, own_folder

if TYPE_CHECKING:
    from reticent.ledger.ethereum.ledger import EthereumLedger

log = logging.getLogger("reticent.service")
LONGEST_DECLARATION = 1 << 15  # characters, over the network; YAML is slow to read
_TURN_S = 10.0  # for which registering waits for others who register


@dataclass(frozen=True)
class _Origin:
    """The origin of a session: the declaration, home and publication that it was opened from.

    Attributes:
        path: File of the declaration.
        declared: Stamp of that file.
        homed: Stamp of the home of the declaration, and of its people.
        published: Publication for all servers; None if they share no state.
    """

    path: Path
    declared: tuple[int, ...]
    homed: tuple[int, ...]
    published: Published | None


class DataSets:
    """The data sets of a service's folder, its ledger and its state, as one process holds them open.

    Make it after forking.

    Args:
        settings: Settings of the service.
        ledger: Ledger to use instead of the one that the settings name.
    """

    def __init__(self, settings: Settings, *, ledger: Ledger | None = None) -> None:
        self.settings = settings
        folder = settings.folder
        if not folder.is_dir():
            raise ParameterError(f"folder must be a folder with declarations, there is none at {folder}")
        self._guard = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._origins: dict[str, _Origin] = {}  # of each open session
        self._retired: list[Session] = []  # of declarations that changed: somebody may still be using them
        self._book: Ledger | None = None
        self._read: dict[Path, tuple[tuple[int, ...], DataSet | None]] = {}
        self._closing = threading.Event()
        self.state = State.of_service(settings)
        try:
            self.ledger = ledger if ledger is not None else self._ledger()
        except BaseException:
            self.state.close()
            raise
        self.state.forget()

    def _ledger(self) -> Ledger:
        """Open the ledger that the settings name."""
        if self.state.database is not None:
            return publishing.opened_ledger(self.settings, self.state)
        return service_ledger.opened(self.settings, lambda: self._found().values())

    @property
    def chain(self) -> EthereumLedger | None:
        """The ledger, if it is on a chain; None else."""
        return cast("EthereumLedger", self.ledger) if hasattr(self.ledger, "contract") else None

    @property
    def book(self) -> Ledger:
        """The ledger for disclosures of devices: `ledger`, or on a chain one of the service's own address.

        There is one for the folder, for every process that opens it, with or without options: a note there
        names it.

        Raises:
            LedgerError: The folder had another one before.
        """
        with self._guard:
            if self._book is None:
                own = own_folder(self.settings.folder)
                service_ledger.check_note(own / "book", self._place(own))
                self._book = self.ledger
                if self.chain is not None and self.chain.owner != self.chain.address:
                    from reticent.apps.chain import service_ledger as on_chain

                    self._book = on_chain.own(self.settings, own / "sending.lock")
            return self._book

    def _place(self, own: Path) -> str | None:
        """Return the place of the ledger in a word; None for a ledger that only this process has."""
        if self.chain is not None:
            return ledger_places.on_chain(self.chain.chain_id, self.chain.contract)
        if not isinstance(self.ledger, SqlLedger):
            return None
        place = ledger_places.placed(self.ledger.where)
        return place.removeprefix(f"{own.resolve()}{os.sep}")  # the folder may be moved

    def leave(self) -> None:
        """End every wait for measurements that an oracle has not recorded: the process ends."""
        self._closing.set()

    def close(self) -> None:
        """Close all data sets, the ledger and the state."""
        self.leave()
        with self._guard:
            for session in (*self._sessions.values(), *self._retired):
                session.close(ledger=False)
            if self._book is not None and self._book is not self.ledger:
                self._book.close()
        self.ledger.close()
        self.state.close()

    def names(self) -> list[str]:
        """Return the names of the declared data sets; a declaration that cannot be read is passed over."""
        return [data.name for data in self.datasets()]

    def datasets(self) -> list[DataSet]:
        """Return the declarations, sorted by name. Nothing is opened for this."""
        with self._guard:
            return [data for _, (_, data) in sorted(self._found().items())]

    def data(self, name: str) -> DataSet:
        """Return a declaration as it stands now. Raises Refused if there is none."""
        session = self._sessions.get(name)
        if session is not None and self._is_current(name):
            return session.data
        with self._guard:
            found = self._found().get(name)
        if found is None:
            raise not_found("data set")
        return found[1]

    def open_data(self, name: str) -> DataSet:
        """Return the declaration of an open data set without looking at files; for deadlines and rates."""
        session = self._sessions.get(name)
        return self.data(name) if session is None else session.data

    def is_open(self, name: str) -> bool:
        """Return whether the data set was opened: `data` and `session` do not wait then."""
        return name in self._sessions

    def _found(self) -> dict[str, tuple[Path, DataSet]]:
        """Return the declarations by data set name; files that did not change are not read again."""
        found: dict[str, tuple[Path, DataSet]] = {}
        for path in sorted(self.settings.folder.glob("*.yaml")):
            try:
                stamp = (*files.stamp(path), *homes.stamp(path))
            except OSError:
                continue
            before = self._read.get(path)
            if before is None or before[0] != (*stamp, *_stamp_of_people(path, before[1])):
                data = None
                with contextlib.suppress(ParameterError, ParameterTypeError, OSError):
                    data = dataset_file.read(path)
                    stamp += _stamp_of_people(path, data)
                    data = _at_known_home(path, data)
                before = self._read[path] = (stamp, data)
            if before[1] is not None:
                found.setdefault(before[1].name, (path, before[1]))
        if self.state.database is not None:
            told = self.state.published()
            return {
                name: (path, publishing.agreed(data, told[name]))
                for name, (path, data) in found.items()
                if name in told
            }
        return found

    def session(self, name: str) -> Session:
        """Return the data set of that name, opened as it is declared, and published, by now.

        Raises:
            Refused: There is no such data set, or no longer.
        """
        session = self._sessions.get(name)
        if session is not None and self._is_current(name):
            return session
        with self._guard:
            if name in self._sessions and not self._is_current(name):
                self._retired.append(self._sessions.pop(name))
            if name not in self._sessions:
                found = self._found().get(name)
                if found is None or self._closing.is_set():
                    raise not_found("data set")
                self._sessions[name] = self._open_as_declared(*found)
            return self._sessions[name]

    def _open_as_declared(self, path: Path, data: DataSet) -> Session:
        """Open a session, and keep its origin."""
        declared = files.stamp(path)  # before it is read: a later change makes it old
        published = None if self.state.database is None else self.state.published_as(data.name)
        session = self._opened(path)
        homed = _stamp_of_home(path, session.data)  # after: the first opening makes the home
        self._origins[data.name] = _Origin(path, declared, homed, published)
        return session

    def _is_current(self, name: str) -> bool:
        """Return whether an open session matches the declaration, and the publication, of now."""
        origin, session = self._origins.get(name), self._sessions.get(name)
        if origin is None or session is None:
            return False
        if self.state.database is not None and self.state.published_as(name) != origin.published:
            return False
        try:
            declared = files.stamp(origin.path)
        except OSError:
            return False
        return (declared, _stamp_of_home(origin.path, session.data)) == (origin.declared, origin.homed)

    def check_current(self, name: str, session: Session) -> None:
        """Refuse to pay for a question about a declaration that changed since its session was opened."""
        if self._sessions.get(name) is not session or not self._is_current(name):
            raise Refused(409, "data_set_changed", f"data set {name} was declared anew: ask again")

    def warm(self) -> list[str]:
        """Open all rows, and load what the first question needs.

        Data sets that cannot be reached stop nothing.

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
        if self.state.database is not None:
            data = self._as_published(path)
            shared = SharedNotebook(self.state.database, data.name)
            held = partial(self._held, data, path)
            return Session(data, held, self.ledger, shared, leaving=self._closing)
        data = dataset_file.read(path)
        kept = kept_folder(path)
        secluded(kept)
        rows = None
        if self.ledger.measured_by_oracle:  # asking registers nothing here
            self.ledger.balance(data.account)
        else:
            try:
                data = self._at_home(path, data)
            except LedgerError as error:
                raise self._elsewhere(data, error) from error
            rows = partial(self._held, data, path)
        where = self.ledger.where if isinstance(self.ledger, SqlLedger) else ""
        notebook = shared_notebook.opened(where, data.name, kept / "notebook.sqlite")
        return Session(data, rows, self.ledger, notebook, leaving=self._closing)

    def _as_published(self, path: Path) -> DataSet:
        """Return the data set as all servers serve it.

        Raises LedgerError if the declaration here is another one.
        """
        data = dataset_file.read(path)
        found = self.state.published().get(data.name)
        if found is None or path.read_text(encoding="utf-8") != found.declaration:
            raise self._elsewhere(data, LedgerError(f"{path.name} is not what was published"))
        return publishing.agreed(data, found)

    def _at_home(self, path: Path, data: DataSet) -> DataSet:
        """Return the data set, with its account in the service's ledger.

        An account in a ledger beside the declaration moves here with all that it bought; one that somebody
        put elsewhere stays there, and is not served.
        """
        ledger, here = cast(SqlLedger, self.ledger), ledger_places.placed(cast(SqlLedger, self.ledger).where)
        with homes.settled(path, data, ledger.where) as home:
            place = home.paying
            if place != here and not (home.is_beside and not home.moving):
                raise LedgerError(
                    f"{path.name} pays from {place}, the service from {here}: name that with --ledger, or "
                    f"move it with `reticent dataset move {path.name} --ledger LEDGER`"
                )
            taken = [Taken(0, 0)]
            if home.place != here:
                home, one = account_moving.moved_to(home, data, ledger)
                taken.append(one)
            taken.append(account_moving.left_behind(home, path, data, ledger))
            data = account_opening.opened(home, data, ledger)
            order_keys.ensure_order_key(home, path, data, ledger)
        charged, over = (sum(getattr(one, part) for one in taken) for part in ("charged", "over"))
        if charged or over:
            event = {"event": "adopted", "dataset": data.name, "units": str(charged), "over_cap": str(over)}
            log.warning(json.dumps(event))
        return data

    def at_home(self, name: str) -> tuple[Path, DataSet]:
        """Return a declaration and its file, once its account is in this ledger. For `publishing`."""
        with self._guard:
            path = self._found()[name][0].resolve()
            return path, self._at_home(path, dataset_file.read(path))

    def _elsewhere(self, data: DataSet, error: LedgerError) -> LedgerError:
        """Return the error for a home that is out of reach.

        The places of ledgers are for the operator's log alone.
        """
        if type(error) is not LedgerError:
            return error
        log.warning(json.dumps({"event": "not opened", "dataset": data.name, "why": str(error)}))
        return LedgerError(f"the account of {data.name} is not in this service's ledger: its log says where")

    def _held(self, data: DataSet, path: Path) -> Rows:
        return Held(partial(self._looked_at, data), partial(self._connected, data, path))

    def _connected(self, data: DataSet, path: Path) -> source.Table:
        """Open the rows of a data set.

        Faults are the owner's to mend: people who ask are not told where the rows lie.
        """
        try:
            order_key = self._order_key(data, path)
            return source.connect(data, path.parent, snapshot_path(path, data), order_key=order_key)
        except (ParameterError, ParameterTypeError):  # its text says where the rows lie
            raise SourceError from None

    def _order_key(self, data: DataSet, path: Path) -> str | None:
        """Return the key that orders the rows of each person: that of the home, or the published one."""
        if self.state.database is None or not needs_order_key(data):
            return homes.order_key(path, data)
        return publishing.published_order_key(self.state, data)

    def _looked_at(self, data: DataSet) -> str:
        """Return the identity of the file of the rows now. Raises SourceError if they may not be read."""
        try:
            return sources.check(self.state, self.settings.folder, data)
        except ParameterError:  # as above
            raise SourceError from None

    def declared(self, text: str) -> DataSet:
        """Return the data set that a text from the network declares; nothing is done with it."""
        if len(text) > LONGEST_DECLARATION:
            raise ParameterError(f"declaration must be at most {LONGEST_DECLARATION:,} characters")
        data = dataset_file.parse(text)
        if data.people:
            raise ParameterError(
                "people must be left out of what comes over the network: who shares a budget is declared by "
                "the operator, in the folder"
            )
        for part in ("epsilon", "delta"):
            most, given = getattr(self.settings, f"most_{part}"), getattr(data.budget, part)
            if given > most:
                raise ParameterError(
                    f"budget.{part} must be <= {most:g}, what the operator allows, got {given!r}"
                )
        return data

    def register(self, person: Person, text: str) -> DataSet:
        """Put a declaration into the folder, and open its account; or refuse, and leave everything as it was.

        The source must be a file that the operator assigned to this person: a declaration from the network
        names no other place. Workers take turns.
        """
        data = self.declared(text)
        if self.state.database is not None:
            raise LedgerError(
                "data sets that several servers serve are published by the operator: reticent publish"
            )
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
        """Hold the lock that lets one worker register at a time."""
        with contextlib.closing(LockFile(str(own_folder(self.settings.folder) / "registering.lock"))) as lock:
            if not lock.acquire(_TURN_S):
                raise Refused(503, "busy", "others are registering: try again", retry_s=1.0)
            try:
                yield
            finally:
                lock.release()

    def _check_unused(self, path: Path, data: DataSet) -> None:
        """Refuse a name that has left an account or a folder of its own: they are of other people."""
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
        """Return the files that a person may register."""
        return sources.of(self.state, self.settings.folder, person)

    def owns(self, person: Person, name: str) -> bool:
        """Return whether a person may change a data set.

        The person must be an owner: the one who registered the data set, else the one of its file, and any
        owner if there is neither.
        """
        holder = self.state.owner(name)
        if holder is None:
            holder = sources.holder(self.state, self.settings.folder, self.data(name))
        return person.role is Role.OWNER and (holder is None or holder == person.number)

    # Accounts

    def balance(self, name: str) -> Balance:
        """Return the data set's account; one that is opened by asking, and nobody opened yet, is full."""
        try:
            return self.ledger.balance(self.data(name).account)
        except UnknownAccount:
            if self.ledger.measured_by_oracle:
                raise
            return Balance(self.data(name).terms, 0)

    def balances(self) -> dict[str, Balance]:
        """Return all accounts by name, in one look."""
        return {one.terms.name: one for one in self.ledger.accounts()}

    def check(self) -> str | None:
        """Return the name of what cannot be read, state or ledger; None if both can."""
        for what, look in (("state", self.state.check), ("ledger", self.ledger.accounts)):
            try:
                look()
            except Exception as error:  # its text could hold data
                log.error(json.dumps({"event": "unreadable", "what": what, "type": type(error).__name__}))
                return what
        return None


def _stamp_of_home(path: Path, data: DataSet) -> tuple[int, ...]:
    """Return a stamp that changes whenever the home of a declaration, or of its people, is made or moved."""
    return (*homes.stamp(path), *_stamp_of_people(path, data))


def _stamp_of_people(path: Path, data: DataSet | None) -> tuple[int, ...]:
    """Return a stamp that changes whenever the home of a declaration's people is made or moved."""
    if data is None or not data.people:
        return ()
    return homes.stamp(populations.path_of(path, data.people))


def _at_known_home(path: Path, data: DataSet) -> DataSet:
    """Return a declaration with its account, as far as that is known without opening it."""
    try:
        home = homes.known(path)
        if data.people and (home is None or home.unit != homes.PEOPLE):  # it joins when it is opened
            home = homes.known(populations.path_of(path, data.people)) or home
    except LedgerError:  # a person who asks is told why
        return data
    return home.of(data) if home is not None else data
