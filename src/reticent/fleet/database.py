"""What collectors on several machines share in PostgreSQL: one connection that writes, one that looks.

Sessions are those of `reticent.postgres`. `postgres.Database` gives each transaction a turn; here they run
beside each other, and the tables' keys decide. A connection that was lost is made anew by the next call. What
the server says is told in our words: its own could quote a row, and name the host and the user.

It lies beside a ledger in the same database, in a schema of its own, so that one address does for both.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from reticent import postgres
from reticent.errors import LedgerDamaged, LedgerError, StorageUnavailable
from reticent.files import appearing

Result = TypeVar("Result")

SHARED = ".shared"  # of `enrolment.key` the note is `enrolment.shared`

_TURN = "SELECT pg_catalog.pg_advisory_xact_lock(7237433)"  # of those who make tables
_TRIES = 5


class GaveWay(StorageUnavailable):
    """Another transaction was let through first; nothing was written. `again` tries once more."""


def is_address(where: str | os.PathLike[str]) -> bool:
    """Whether this is an address of PostgreSQL, and no path."""
    return os.fsdecode(where).startswith(postgres.ADDRESSES)


def noted(master: Path) -> str | None:
    """The address of the database that the machines with a master key share, if noted beside the key."""
    note = master.resolve().with_suffix(SHARED)
    return note.read_text(encoding="utf-8").strip() if note.exists() else None


def note(master: Path, address: str) -> None:
    """Note it, for everybody here who uses the key."""
    with appearing(master.resolve().with_suffix(SHARED), mode=0o600) as file:
        file.write(f"{address}\n".encode())


def again(work: Callable[[], Result]) -> Result:
    """Do a transaction, again where PostgreSQL gave way to another."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(GaveWay):
            return work()
    return work()


class Database:
    """A schema of a server: `reticent_fleet`, or NAME_fleet where the address names the schema of a ledger.

    Args:
        url: a libpq connection string. `options=-csearch_path=NAME` in it names the schema of a ledger.
        what: cannot be used, in errors: "the collection".

    Raises:
        MissingExtra: psycopg is not installed.
        StorageUnavailable: the server cannot be used.
    """

    def __init__(self, url: str, *, what: str) -> None:
        self._psycopg: Any = postgres.driver()
        self._url, self._what = url, what
        self._connections: dict[bool, Any] = {}
        self._looking = threading.Lock()
        self._is_closed = False
        with self._told():
            self.schema = f"{postgres.schema_of(url)}_fleet"
            self._connected(write=True)

    def close(self) -> None:
        """Close the connections."""
        self._is_closed = True
        for write in (True, False):
            self._drop(write=write)

    @contextmanager
    def making(self) -> Iterator[Any]:
        """A transaction in which tables are made, by one process at a time; the schema is there."""
        with self.writing() as connection:
            connection.execute(_TURN)
            there = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s"
            if connection.execute(there, (self.schema,)).fetchone() is None:
                sql = self._psycopg.sql
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.schema)))
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """A transaction. If it fails, nothing was written, unless the server was lost while it committed.

        One thread at a time: that is the caller's to see to.
        """
        with self._told():
            connection = self._begun()
            try:
                yield connection
                ended = connection.execute("COMMIT").statusmessage
                if ended != "COMMIT":  # of a transaction in which a statement failed, it says ROLLBACK
                    raise StorageUnavailable(f"{self._what} cannot be used now: PostgreSQL answered {ended}")
            except BaseException:
                self._undo(connection)
                raise

    @contextmanager
    def looking(self) -> Iterator[Any]:
        """A connection on which each statement sees what is committed; waits for nobody who writes."""
        with self._looking, self._told():
            connection = self._connected(write=False)
            try:
                yield connection
            except self._psycopg.OperationalError:
                self._drop(write=False)
                raise

    def _begun(self) -> Any:
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
        connection = self._connected(write=True)
        try:
            connection.execute(begin)
        except self._psycopg.OperationalError:  # lost while idle: nothing was begun
            self._drop(write=True)
            connection = self._connected(write=True)
            connection.execute(begin)
        return connection

    def _undo(self, connection: Any) -> None:
        idle = self._psycopg.pq.TransactionStatus.IDLE
        try:
            if connection.info.transaction_status != idle:
                connection.execute("ROLLBACK")
            if connection.info.transaction_status == idle:
                return
        except self._psycopg.Error:
            pass  # it is dropped, and with it whatever was begun
        self._drop(write=True)

    def _connected(self, *, write: bool) -> Any:
        if self._is_closed:
            raise StorageUnavailable(f"{self._what} cannot be used now: it was closed")
        connection = self._connections.get(write)
        if connection is None or connection.closed:
            connection = self._connections[write] = postgres.session(self._url, self.schema)
        return connection

    def _drop(self, *, write: bool) -> None:
        connection = self._connections.pop(write, None)
        if connection is not None:
            with contextlib.suppress(self._psycopg.Error):
                connection.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            raise self._in_our_words(error) from error

    def _in_our_words(self, error: Exception) -> LedgerError:
        errors = self._psycopg.errors
        if isinstance(error, (errors.SerializationFailure, errors.DeadlockDetected)):
            return GaveWay(f"{self._what} cannot be used now: PostgreSQL gave way to another transaction")
        passing = (self._psycopg.OperationalError, self._psycopg.InterfaceError)
        refusing = (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction)
        if isinstance(error, (*passing, *refusing)):
            return StorageUnavailable(f"{self._what} cannot be used now: {postgres.reason(error)}")
        name = type(error).__name__  # the message could quote a row
        return LedgerDamaged(f"{self._what} is damaged, or is something else ({name})")
