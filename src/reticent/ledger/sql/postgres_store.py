"""The store in PostgreSQL, for several servers that share a ledger."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from reticent import postgres
from reticent.errors import CommitUnknown, LedgerDamaged, LedgerError, StorageUnavailable
from reticent.ledger.sql.store import Rows, Store, TryAgain, check_written, schema

_TABLE = re.compile(r"CREATE TABLE (\w+)")
# Selects a row if a schema holds a ledger.
_IN_SCHEMA = """
SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = 'head'
"""
_MOVED = """
SELECT 1 FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = 'head' AND a.attname = 'moved_to'
"""


class PostgresStore(Store):
    """A store in PostgreSQL, for several servers. `url` is a libpq connection string.

    The next call replaces a lost connection. All tables are in one schema, `reticent` or the
    schema that `options=-csearch_path=...` in the address names, and every connection looks there alone: the
    search path of a role, a database or the environment leads nowhere else.
    """

    dialect = {"id": "BIGINT PRIMARY KEY", "blob": "BYTEA", "keyed": ""}  # noqa: RUF012
    locking = " FOR UPDATE"

    def __init__(self, url: str, *, migrate: bool = True) -> None:
        self._psycopg = postgres.driver()
        super().__init__()
        self._url = url
        self._connections: dict[bool, Any] = {}
        self._closed = False
        self._translated: dict[str, bytes] = {}
        with self._explained():
            self.schema = postgres.schema_of(url)
            self._settle(migrate=migrate)
            self._connected(write=True)

    def _settle(self, *, migrate: bool) -> None:
        """Move the tables of an earlier release, found through the search path, into the schema."""
        with postgres.plain(self._url) as connection:
            # Nothing else runs while the path may lead to a foreign operator: it would run with our rights.
            ((places,),) = connection.execute("SELECT pg_catalog.current_schemas(false)").fetchall()
            connection.execute("SET search_path = pg_catalog, pg_temp")

            def is_in(place: str) -> bool:
                return connection.execute(_IN_SCHEMA, (place,)).fetchone() is not None

            if is_in(self.schema):
                self._check_not_moved(connection)
                return
            found = next((one for one in places if not one.startswith("pg_") and is_in(one)), None)
            if found is None:
                return
            if not migrate:
                raise LedgerError(
                    f"the ledger lies in the schema {found}, and looking changes nothing: open it once "
                    f"with SqlLedger of this release, which brings it to {self.schema}"
                )
            with connection.transaction():
                connection.execute(_TURN)
                if not is_in(self.schema):  # otherwise another process was first
                    self._bring(connection, found)

    def _bring(self, connection: Any, place: str) -> None:
        """Move the tables; a table `head` left behind keeps every release from creating a ledger there."""
        sql, there = self._psycopg.sql, self._psycopg.sql.Identifier(self.schema)
        self._make_place(connection)
        for statement in schema(self.dialect):
            for name in _TABLE.findall(statement):
                moved = sql.SQL("ALTER TABLE IF EXISTS {} SET SCHEMA {}")
                connection.execute(moved.format(sql.Identifier(place, name), there))
        left = sql.SQL("CREATE TABLE {} AS SELECT {}::text AS moved_to")
        connection.execute(left.format(sql.Identifier(place, "head"), sql.Literal(self.schema)))

    def _check_not_moved(self, connection: Any) -> None:
        if connection.execute(_MOVED, (self.schema,)).fetchone():
            raise LedgerError(
                f"the ledger of the schema {self.schema} was moved: leave out options=-csearch_path"
            )

    def _make_place(self, connection: Any) -> None:
        there = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s"
        if connection.execute(there, (self.schema,)).fetchone() is None:
            sql = self._psycopg.sql
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.schema)))

    def make_schema(self, table: str = "") -> None:
        """Create the tables, or one of them, and the schema that they are in."""
        self._make_place(self._connection())
        super().make_schema(table)

    def _connected(self, *, write: bool) -> Any:
        """Return the connection for writing, or for reading; a new one if it was lost."""
        if self._closed:
            raise LedgerError("the ledger was closed")
        connection = self._connections.get(write)
        if connection is None or connection.closed:
            connection = self._connections[write] = postgres.session(self._url, self.schema)
        return connection

    def _explanation(self, error: Exception) -> LedgerError | None:
        if not isinstance(error, self._psycopg.Error):
            return None
        errors = self._psycopg.errors
        if isinstance(error, (errors.SerializationFailure, errors.DeadlockDetected)):
            return TryAgain("the ledger cannot be used: PostgreSQL gave way to another transaction")
        lost = postgres.is_lost(error)
        if lost or isinstance(error, (self._psycopg.OperationalError, self._psycopg.InterfaceError)):
            if self.commit_begun and self._in_writing and lost:
                return CommitUnknown(
                    "the connection to PostgreSQL was lost while committing: "
                    "ask again with the same idempotency key"
                )
            return StorageUnavailable(f"PostgreSQL cannot be used: {postgres.reason(error)}")
        if isinstance(error, errors.ReadOnlySqlTransaction):
            if self._in_writing:
                self._drop(write=True)  # no longer the primary server: the next call looks for it
            return StorageUnavailable(f"PostgreSQL refused: {_first_line(error)}")
        if isinstance(error, errors.InsufficientPrivilege):
            return LedgerError(f"PostgreSQL refused: {_first_line(error)}")
        name = type(error).__name__  # the message could quote a row
        return LedgerDamaged(f"the ledger is damaged or no ledger ({name})")

    def _begin(self, *, write: bool) -> None:
        isolation = "READ COMMITTED" if write else "REPEATABLE READ READ ONLY"
        begin = f"BEGIN ISOLATION LEVEL {isolation}"
        try:
            self._connected(write=write).execute(begin)
        except self._psycopg.OperationalError:
            self._drop(write=write)  # lost while idle: nothing was begun
            self._connected(write=write).execute(begin)

    def _commit(self) -> None:
        ended = self._connections[True].execute("COMMIT").statusmessage
        if ended != "COMMIT":  # PostgreSQL answers ROLLBACK if a statement of the transaction failed
            raise LedgerError(f"PostgreSQL did not commit: it answered {ended}")

    def _undo(self, *, write: bool) -> None:
        connection = self._connections.get(write)
        if connection is None:
            return
        idle = self._psycopg.pq.TransactionStatus.IDLE
        try:
            if connection.info.transaction_status != idle:
                connection.execute("ROLLBACK")
            if connection.info.transaction_status != idle:
                self._drop(write=write)
        except self._psycopg.Error:
            self._drop(write=write)

    def glance(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Return the first row of one query, on a new connection if that for reading was lost while idle."""
        try:
            return super().glance(sql, parameters)
        except LedgerError:
            if self._in_writing or self._views or self._closed or not self._lost(write=False):
                raise
            return super().glance(sql, parameters)

    def _lost(self, *, write: bool) -> bool:
        connection = self._connections.get(write)
        return connection is not None and bool(connection.closed)

    def _drop(self, *, write: bool) -> None:
        connection = self._connections.pop(write, None)
        if connection is not None:
            with contextlib.suppress(self._psycopg.Error):
                connection.close()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Begin a write transaction that needs no head row."""
        with self.writing():
            self.run(_TURN)
            yield

    def _connection(self) -> Any:
        return self._connections[True] if self._in_writing else self._connected(write=False)

    def send(self, statements: Iterable[Rows]) -> None:
        """Run each statement once per row, all in one pipeline."""
        connection = self._connections[True]
        sent: list[tuple[Any, int]] = []
        with connection.pipeline():
            for sql, rows in statements:
                if len(rows) == 1:
                    sent.append((connection.execute(self._sql(sql), rows[0]), 1))
                elif rows:
                    cursor = connection.cursor()
                    cursor.executemany(self._sql(sql), rows)
                    sent.append((cursor, len(rows)))
        for cursor, count in sent:
            check_written(cursor.rowcount, count)

    def _cursor(self, sql: str, parameters: Sequence[Any]) -> Any:
        return self._connection().execute(self._sql(sql), parameters or None)

    def _sql(self, sql: str) -> bytes:
        if sql not in self._translated:
            self._translated[sql] = sql.replace("?", "%s").encode()
        return self._translated[sql]

    def all(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return every row of a query."""
        return list(self._cursor(sql, parameters).fetchall())

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement."""
        self._cursor(sql, parameters)

    def has_schema(self) -> bool:
        """Return whether the database holds a ledger."""
        with self._explained():
            return bool(self.all(_IN_SCHEMA.replace("%s", "?"), (self.schema,)))

    def close(self) -> None:
        """Close the connections."""
        self._closed = True
        if os.getpid() != self._process:
            return
        with self._write_guard, self._read_guard:
            for write in (True, False):
                self._drop(write=write)


_TURN = "SELECT pg_catalog.pg_advisory_xact_lock(7237432)"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
