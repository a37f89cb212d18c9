"""PostgreSQL opened and written in one place: one schema, sessions that end with whoever held them, no doubt.

Everybody who talks to a PostgreSQL here comes by: the ledger (`ledger.sql`), which keeps its own two
connections, and what several servers share beside it, which uses a `Database`.

- Every session looks into one schema and nowhere else: the search path of a role, a database or the
  environment leads nowhere.
- A server that is gone without a word (power, cable) is noticed by both sides within about half a minute, so
  that its locks do not stay.
- A connection that is lost is made anew. What was on its way is done again only where it was certainly not
  done (nothing was begun yet), or where it only looked. A lost COMMIT is `CommitUnknown`: whoever called
  knows under which key it may be asked again.
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
# How this side notices that the other is gone; what the address says comes first.
_NOTICED = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
# How the other side notices it, and that a transaction is held by somebody who sleeps.
_SESSION = (
    "SET synchronous_commit = on; SET client_encoding = 'UTF8'; SET tcp_keepalives_idle = 10; "
    "SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; "
    "SET idle_in_transaction_session_timeout = '60s'"
)
# What may be said of why a connection failed: libpq's own words hold the host, the port and the user.
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
    """The driver, psycopg. Raises MissingExtra where it is not installed."""
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtra("PostgreSQL", "postgres") from error
    return psycopg


def schema_of(url: str) -> str:
    """The schema that an address names in its options, or ours."""
    text = str(driver().conninfo.conninfo_to_dict(url).get("options") or "")
    found = _SEARCH_PATH.search(text)
    if found is None and "search_path" in text:
        raise LedgerError("options of the address must name one schema: -csearch_path=NAME")
    return SCHEMA if found is None else found[1] or found[2].lower()


def beside(url: str) -> str:
    """The schema of what servers share beside the ledger of an address."""
    return f"{schema_of(url)}_service"


def has_table(url: str, schema: str, name: str) -> bool:
    """Whether a table is there. Nothing is made."""
    with session(url, schema) as connection:
        found = connection.execute(
            "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s",
            (schema, name),
        ).fetchone()
    return found is not None


def plain(url: str) -> Any:
    """A new session, with autocommit, before anything is looked for: its search path is whoever's."""
    psycopg = driver()
    given = psycopg.conninfo.conninfo_to_dict(url)
    return psycopg.connect(url, autocommit=True, **{k: v for k, v in _NOTICED.items() if k not in given})


def session(url: str, schema: str) -> Any:
    """A new session, with autocommit, that looks into one schema alone."""
    connection = plain(url)
    sql = driver().sql
    # pg_catalog comes first by itself, tables of this session alone last.
    path = sql.SQL("SET search_path = {}, pg_temp").format(sql.Identifier(schema)).as_string(connection)
    connection.execute(f"{path}; {_SESSION}")
    return connection


def is_lost(error: BaseException) -> bool:
    """Whether an error says that the session is gone, whatever became of what it did."""
    psycopg = driver()
    if isinstance(error, psycopg.errors.IdleInTransactionSessionTimeout):
        return True
    if not isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return False
    return (error.sqlstate or "08")[:2] in ("08", "57")


def reason(error: Exception) -> str:
    """Why a server cannot be used, without where it is and who asked. The trace says more."""
    said = str(error).lower()
    found = next((one for one in _REASONS if one in said), "")
    state = getattr(error, "sqlstate", None)
    return found or (f"{type(error).__name__}, SQLSTATE {state}" if state else type(error).__name__)


class Statements:
    """The statements of one transaction: `?` for parameters, as SQLite has it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, sql: str, given: Sequence[Any] = ()) -> Any:
        """Run one; its rows are the cursor's."""
        return self._connection.execute(sql.replace("?", "%s"), given or None)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one for each row; they travel together."""
        with self._connection.cursor() as cursor:
            cursor.executemany(sql.replace("?", "%s"), list(rows))


class Database:
    """A schema of a PostgreSQL that several servers share, for all threads of one process.

    Open it after forking.

    Args:
        url: a libpq address.
        schema: in which everything lies; made if there is none.
        what: it is, in errors.
        tables: statements that make whatever is not there yet.
    """

    def __init__(self, url: str, schema: str, what: str, tables: Sequence[str]) -> None:
        self._url, self._schema, self._what = url, schema, what
        self._guard, self._places = threading.Lock(), threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._idle: list[Any] = []
        self._is_closed, self._ahead_s = False, 0.0
        self.reconnected = 0  # sessions that were lost, for whoever watches
        self.make(tables)

    def now(self) -> float:
        """Seconds since 1970 by the clock of the database: that of all servers.

        Counted on from the last connection: a clock of this machine that is set meanwhile moves nothing.
        """
        return time.monotonic() + self._ahead_s

    def one(self, sql: str, *given: object) -> tuple[Any, ...] | None:
        """The first row of one query."""
        rows = self.all(sql, *given)
        return rows[0] if rows else None

    def all(self, sql: str, *given: object) -> list[tuple[Any, ...]]:
        """Every row of one query, which is asked again of a new session if its own was lost."""
        with self._taken() as connection:
            try:
                return list(Statements(connection).execute(sql, given).fetchall())
            except Exception as error:
                if not is_lost(error):
                    raise
            with self._instead(connection) as another:
                return list(Statements(another).execute(sql, given).fetchall())

    def put(self, sql: str, *given: object) -> None:
        """Run one statement that may be run twice, as it is if its session was lost."""
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
        """A transaction that is durable when the block ends, and leaves no trace if it fails.

        Args:
            scope: what it is about: no two about the same run at once, on any server. Without one it runs
                alone, beside none of any scope.

        Raises:
            StorageUnavailable: the database is out of reach. Nothing was written.
            CommitUnknown: it was lost while committing.
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
        """A session with a transaction; another session if this one was lost while it was idle."""
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
        """A session of this thread's own, and our words for what goes wrong with it."""
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
        """A new session for one that was lost; all others that are idle were lost with it, most likely."""
        with contextlib.suppress(Exception):  # what is lost cannot be closed better
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
        with contextlib.suppress(Exception):  # it is given up
            connection.close()

    def _drop_idle(self) -> None:
        with self._guard:
            idle, self._idle = self._idle, []
        for one in idle:
            with contextlib.suppress(Exception):  # it is given up
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
        """Make what is not there; nobody else does meanwhile."""
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
    with contextlib.suppress(Exception):  # the session is closed by whoever takes it back, if this fails
        if connection.info.transaction_status != driver().pq.TransactionStatus.IDLE:
            connection.execute("ROLLBACK")


def _number(text: str) -> int:
    """The number of a lock: 64 bits of a hash, so two scopes hardly ever wait for one another in vain."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], signed=True)
