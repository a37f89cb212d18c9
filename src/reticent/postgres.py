"""Connections to PostgreSQL: one schema, sessions that end with their process, and no doubtful commits.

Every use of PostgreSQL goes through this module: the ledger (`ledger.sql`), which keeps its own two
connections, and the state that several servers share beside it, which uses a `Database`.

- Every session looks into one schema only: a search path set for a role, a database or in the
  environment has no effect.
- Both sides notice within about half a minute that the peer has vanished (power, cable), so that its
  locks do not stay.
- A lost connection is opened again. The interrupted statement is repeated only if it certainly had no
  effect (nothing was begun yet), or if it only read. A lost COMMIT raises `CommitUnknown`: the caller knows
  the key under which the request may be repeated.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from reticent.errors import CommitUnknown, LedgerError, MissingExtra, StorageUnavailable

ADDRESSES = ("postgresql://", "postgres://")
SCHEMA = "reticent"  # of a ledger, unless its address names another
MOST_CONNECTIONS = 4  # of one `Database`
_SEARCH_PATH = re.compile(r"(?:-c\s*|--)search_path=(?:\"([^\"]+)\"|([A-Za-z_][A-Za-z0-9_$]*))")
# Settings by which this side notices that the server is gone; the address takes precedence.
_NOTICED = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
# Settings by which the server notices a lost client, and a client that holds a transaction open and sleeps.
_SESSION = (
    "SET synchronous_commit = on; SET client_encoding = 'UTF8'; SET tcp_keepalives_idle = 10; "
    "SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; "
    "SET idle_in_transaction_session_timeout = '60s'"
)
# Reasons for a failed connection that may be shown: libpq's own text holds the host, the port and the user.
_REASONS = (
    "connection refused",
    "timeout expired",
    "could not translate host name",
    "no such file or directory",
    "no password supplied",
    "password authentication failed",
    "no pg_hba.conf entry",
    "too many clients",
    "too many connections",
    "the database system is starting up",
    "the database system is shutting down",
    "server closed the connection unexpectedly",
    "session is read-only",
    "does not exist",
    "certificate",
)


def driver() -> Any:
    """Return the PostgreSQL driver, psycopg. Raise MissingExtra if the driver is not installed."""
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtra("PostgreSQL", "postgres") from error
    return psycopg


def schema_of(url: str) -> str:
    """Return the schema that an address names in its options, or the default schema."""
    text = str(driver().conninfo.conninfo_to_dict(url).get("options") or "")
    found = _SEARCH_PATH.search(text)
    if found is None and "search_path" in text:
        raise LedgerError("options of the address must name one schema: -csearch_path=NAME")
    return SCHEMA if found is None else found[1] or found[2].lower()


def beside(url: str) -> str:
    """Return the name of the schema for the state that servers share beside the ledger of an address."""
    return f"{schema_of(url)}_service"


def has_table(url: str, schema: str, name: str) -> bool:
    """Return whether a table exists. Nothing is created."""
    with session(url, schema) as connection:
        found = connection.execute(
            "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s",
            (schema, name),
        ).fetchone()
    return found is not None


def plain(url: str) -> Any:
    """Open a session with autocommit and with the search path that the server sets."""
    psycopg = driver()
    given = psycopg.conninfo.conninfo_to_dict(url)
    return psycopg.connect(url, autocommit=True, **{k: v for k, v in _NOTICED.items() if k not in given})


def session(url: str, schema: str) -> Any:
    """Open a session with autocommit that looks into one schema only."""
    connection = plain(url)
    sql = driver().sql
    # pg_catalog comes first by itself, tables of this session alone last.
    path = sql.SQL("SET search_path = {}, pg_temp").format(sql.Identifier(schema)).as_string(connection)
    connection.execute(f"{path}; {_SESSION}")
    return connection


def is_lost(error: BaseException) -> bool:
    """Return whether an error says that the session is gone, whatever became of its statements."""
    psycopg = driver()
    if isinstance(error, psycopg.errors.IdleInTransactionSessionTimeout):
        return True
    if not isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return False
    return (error.sqlstate or "08")[:2] in ("08", "57")


def reason(error: Exception) -> str:
    """Return why a server cannot be used, without its address and user. The stack trace says more."""
    said = str(error).lower()
    found = next((one for one in _REASONS if one in said), "")
    state = getattr(error, "sqlstate", None)
    return found or (f"{type(error).__name__}, SQLSTATE {state}" if state else type(error).__name__)


class Statements:
    """The statements of one transaction, with `?` for parameters as in SQLite."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, sql: str, given: Sequence[Any] = ()) -> Any:
        """Run one statement and return the cursor with its rows."""
        return self._connection.execute(sql.replace("?", "%s"), given or None)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row; all rows are sent together."""
        with self._connection.cursor() as cursor:
            cursor.executemany(sql.replace("?", "%s"), list(rows))


class Database:
    """A schema of a PostgreSQL that several servers share, for all threads of one process.

    Open it after forking.

    Args:
        url: Address of the server, as libpq reads it.
        schema: Schema that holds all tables; created if it does not exist.
        what: Name of the database in error messages.
        tables: Statements that create all tables that do not exist yet.
    """

    def __init__(self, url: str, schema: str, what: str, tables: Sequence[str]) -> None:
        self._url, self._schema, self._what = url, schema, what
        self._guard, self._places = threading.Lock(), threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._idle: list[Any] = []
        self._is_closed, self._ahead_s = False, 0.0
        self.reconnected = 0  # sessions that were lost, for monitoring
        self.make(tables)

    def now(self) -> float:
        """Return the seconds since 1970 by the clock of the database, which all servers share.

        The time is counted from the last connection: setting the clock of this machine has no effect.
        """
        return time.monotonic() + self._ahead_s

    def one(self, sql: str, *given: object) -> tuple[Any, ...] | None:
        """Return the first row of a query, or None."""
        rows = self.all(sql, *given)
        return rows[0] if rows else None

    def all(self, sql: str, *given: object) -> list[tuple[Any, ...]]:
        """Return every row of a query; the query is repeated in a new session if its own was lost."""
        with self._taken() as connection:
            try:
                return list(Statements(connection).execute(sql, given).fetchall())
            except Exception as error:
                if not is_lost(error):
                    raise
            with self._instead(connection) as another:
                return list(Statements(another).execute(sql, given).fetchall())

    def put(self, sql: str, *given: object) -> None:
        """Run a statement that may be run twice; repeat the statement if its session was lost."""
        with self._taken() as connection:
            try:
                Statements(connection).execute(sql, given)
                return
            except Exception as error:
                if not is_lost(error):
                    raise
            with self._instead(connection) as another:
                Statements(another).execute(sql, given)

    @contextmanager
    def writing(self, scope: str = "") -> Iterator[Statements]:
        """Run a transaction that is durable when the block ends, and leaves no trace if the block fails.

        Args:
            scope: Subject of the transaction: no two on the same subject run at once, on any server. Without
                a scope, the transaction runs alone, beside none of any scope.

        Raises:
            StorageUnavailable: The database cannot be reached. Nothing was written.
            CommitUnknown: The connection was lost while committing.
        """
        with self._taken() as first, self._begun(first, scope) as connection:
            try:
                yield Statements(connection)
            except BaseException:
                _undo(connection)
                raise
            try:
                ended = _committed(connection).statusmessage
            except Exception as error:
                if is_lost(error):
                    raise CommitUnknown(
                        f"the connection to PostgreSQL was lost while {self._what} was written: ask again "
                        "with the same idempotency key"
                    ) from error
                _undo(connection)
                raise
            if ended != "COMMIT":  # of a transaction in which a statement failed, PostgreSQL says ROLLBACK
                raise LedgerError(f"PostgreSQL did not commit: it answered {ended}")

    def close(self) -> None:
        """Close every session."""
        self._is_closed = True
        self._drop_idle()

    @contextmanager
    def _begun(self, connection: Any, scope: str) -> Iterator[Any]:
        """Begin a transaction, in a new session if this session was lost while it was idle."""
        try:
            self._begin(connection, scope)
        except Exception as error:
            if not is_lost(error):
                _undo(connection)
                raise
            with self._instead(connection) as another:
                self._begin(another, scope)
                yield another
            return
        yield connection

    def _begin(self, connection: Any, scope: str) -> None:
        all_of_it = _number(self._schema)
        with connection.pipeline():
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            if scope:
                connection.execute("SELECT pg_catalog.pg_advisory_xact_lock_shared(%s)", (all_of_it,))
                place = _number(f"{self._schema}\n{scope}")
                connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s)", (place,))
            else:
                connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s)", (all_of_it,))

    @contextmanager
    def _taken(self) -> Iterator[Any]:
        """Borrow a session for this thread, and translate its errors into ours."""
        with self._places:
            connection = None
            try:
                with self._guard:
                    connection = self._idle.pop() if self._idle else None
                if connection is None or connection.closed:
                    connection = self._connected()
                yield connection
            except Exception as error:
                self._explain(error)
            finally:
                self._give_back(connection)

    @contextmanager
    def _instead(self, lost: Any) -> Iterator[Any]:
        """Open a new session in place of a lost one, and drop all idle sessions, most likely lost too."""
        with contextlib.suppress(Exception):  # a lost session cannot be closed better
            lost.close()
        self._drop_idle()
        self.reconnected += 1
        another = self._connected()
        try:
            yield another
        finally:
            self._give_back(another)

    def _connected(self) -> Any:
        if self._is_closed:
            raise LedgerError(f"{self._what} was closed")
        connection = session(self._url, self._schema)
        before = time.monotonic()
        ((told,),) = connection.execute(
            "SELECT extract(epoch FROM pg_catalog.clock_timestamp())::float8"
        ).fetchall()
        self._ahead_s = told - (before + time.monotonic()) / 2
        return connection

    def _give_back(self, connection: Any) -> None:
        if connection is None or connection.closed:
            return
        is_idle = connection.info.transaction_status == driver().pq.TransactionStatus.IDLE
        with self._guard:
            if is_idle and not self._is_closed:
                self._idle.append(connection)
                return
        with contextlib.suppress(Exception):  # the session is given up
            connection.close()

    def _drop_idle(self) -> None:
        with self._guard:
            idle, self._idle = self._idle, []
        for one in idle:
            with contextlib.suppress(Exception):  # the session is given up
                one.close()

    def _explain(self, error: Exception) -> NoReturn:
        psycopg = driver()
        if isinstance(error, (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)):
            raise StorageUnavailable(
                f"{self._what} cannot be used: PostgreSQL gave way to another transaction"
            ) from error
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):  # no longer the first of its servers
            self._drop_idle()
            raise StorageUnavailable(f"{self._what} cannot be used: PostgreSQL is read-only") from error
        if is_lost(error) or isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
            raise StorageUnavailable(f"{self._what} cannot be used: {reason(error)}") from error
        raise error

    def make(self, tables: Sequence[str]) -> None:
        """Create the schema and the tables that do not exist, under a lock."""
        sql = driver().sql
        with self._taken() as connection, connection.transaction():
            connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s)", (_number(self._schema),))
            there = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s"
            if connection.execute(there, (self._schema,)).fetchone() is None:
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self._schema)))
            for statement in tables:
                connection.execute(statement)


def _committed(connection: Any) -> Any:
    return connection.execute("COMMIT")


def _undo(connection: Any) -> None:
    with contextlib.suppress(Exception):  # if this fails, the session is closed when it is given back
        if connection.info.transaction_status != driver().pq.TransactionStatus.IDLE:
            connection.execute("ROLLBACK")


def _number(text: str) -> int:
    """Return the number of a lock: 64 bits of a hash, so two scopes hardly ever block one another in vain."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], signed=True)
