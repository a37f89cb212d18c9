"""PostgreSQL storage that collectors on several machines share: one connection to write, one to read.

Sessions are those of `reticent.postgres`. `postgres.Database` runs one transaction after the other; here
transactions run concurrently, and the keys of the tables decide. The next call replaces a lost connection.
Errors of the server are worded anew: its own messages could quote a row, and name the host and the user.

The tables may share a database with a ledger: they have a schema of their own, so one address does for both.
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

SHARED = ".shared"  # suffix of the note: beside `enrolment.key` lies `enrolment.shared`

_TURN = "SELECT pg_catalog.pg_advisory_xact_lock(7237433)"  # taken by the process that creates tables
_TRIES = 5


class GaveWay(StorageUnavailable):
    """An error: PostgreSQL rolled back for a concurrent transaction. Nothing was written; `again` retries."""


def is_address(where: str | os.PathLike[str]) -> bool:
    """Return whether a location is an address of PostgreSQL, not a path."""
    return os.fsdecode(where).startswith(postgres.ADDRESSES)


def noted(master: Path) -> str | None:
    """Return the address of the shared database that is noted beside a master key, or None."""
    note = master.resolve().with_suffix(SHARED)
    return note.read_text(encoding="utf-8").strip() if note.exists() else None


def note(master: Path, address: str) -> None:
    """Write the address of the shared database beside the master key, for every process that uses the key."""
    with appearing(master.resolve().with_suffix(SHARED), mode=0o600) as file:
        file.write(f"{address}\n".encode())


def again(work: Callable[[], Result]) -> Result:
    """Run a transaction, and retry it while PostgreSQL rolls it back for another one."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(GaveWay):
            return work()
    return work()


class Database:
    """A schema of a server: `reticent_fleet`, or NAME_fleet where the address names the schema of a ledger.

    Args:
        url: Connection string of libpq. `options=-csearch_path=NAME` in it names the schema of a ledger.
        what: Subject of error messages, such as "the collection".

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
        """Open a transaction to create tables in, by one process at a time; the schema exists by then."""
        with self.writing() as connection:
            connection.execute(_TURN)
            there = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s"
            if connection.execute(there, (self.schema,)).fetchone() is None:
                sql = self._psycopg.sql
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.schema)))
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """Open a transaction. If it fails, nothing was written, unless the server was lost during the commit.

        The caller must let only one thread write at a time.
        """
        with self._told():
            connection = self._begun()
            try:
                yield connection
                ended = connection.execute("COMMIT").statusmessage
                if ended != "COMMIT":  # after a failed statement, the server answers ROLLBACK
                    raise StorageUnavailable(f"{self._what} cannot be used now: PostgreSQL answered {ended}")
            except BaseException:
                self._undo(connection)
                raise

    @contextmanager
    def looking(self) -> Iterator[Any]:
        """Yield a connection whose statements see what is committed, and which never waits for writers."""
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
