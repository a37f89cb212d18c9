"""Connections to SQLite and PostgreSQL: one writer at a time, durable commits, one dialect above.

Statements use `?` for parameters. A write transaction holds the ledger's one lock (a lock file and BEGIN
IMMEDIATE, or the head row FOR UPDATE), so what it reads stays true until it commits. Reads have a
connection of their own and never wait for a writer.

Whatever goes wrong below becomes one line: `LedgerError` when the ledger cannot be had now (busy, full,
read-only, out of reach), `LedgerDamaged` when what is stored is not what was written. Messages of the
engines are not passed on where they could quote a row.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import stat
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from itertools import chain
from pathlib import Path
from threading import get_ident
from typing import Any, TypeVar

from reticent.errors import CommitUnknown, LedgerDamaged, LedgerError, MissingExtra
from reticent.files import private
from reticent.ledger.lockfile import LockFile

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")

BUSY_TIMEOUT_S = 60.0
_PAGE_BYTES = 1024  # a commit writes whole pages, and a charge changes a row in each of six
_LOG_BYTES = 4 << 20  # of SQLite's write-ahead log, before it is copied into the database
_ROWS = 64  # of one INSERT; old builds of SQLite take 999 parameters, we have at most ten in a row
_MADE = b"A Reticent ledger was made here.\n"
_MOUNTS = Path("/proc/self/mountinfo")
_MAKING = (
    threading.Lock()
)  # closing a new file would drop the locks of another thread that opened it meanwhile

Rows = tuple[str, Sequence[Sequence[Any]]]  # a statement, and the parameters of each time that it is run


class TryAgain(LedgerError):
    """The engine gave way to another transaction and undid this one: it may be run again as it is."""


def schema(dialect: dict[str, str]) -> list[str]:
    """The statements of schema.sql for one dialect."""
    text = files("reticent.ledger.sql").joinpath("schema.sql").read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    statements = "\n".join(lines)
    for name, written in dialect.items():
        statements = statements.replace(f"{{{name}}}", written)
    return [statement for statement in statements.split(";") if statement.strip()]


class Store(ABC):
    """One connection for writing, one for reading."""

    dialect: dict[str, str]
    locking: str  # ends the query of the head row with which a write transaction begins

    def __init__(self) -> None:
        self._process = os.getpid()
        self._write_guard = threading.RLock()
        self._read_guard = threading.RLock()
        self._writing_thread = 0
        self._views = 0
        self._writes = 0
        self.commit_begun = False  # by the last write transaction

    @abstractmethod
    def _begin(self, *, write: bool) -> None:
        """Begin a transaction."""

    @abstractmethod
    def _commit(self) -> None:
        """Make the write transaction durable."""

    @abstractmethod
    def _undo(self, *, write: bool) -> None:
        """End a transaction without a trace. Never raises."""

    @abstractmethod
    def _explanation(self, error: Exception) -> LedgerError | None:
        """Our error for one of the engine's; None if it is none of those."""

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn the engine's errors into ours."""
        try:
            yield
        except Exception as error:
            ours = self._explanation(error)
            if ours is None:
                raise
            raise ours from error

    @abstractmethod
    def all(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Every row of a query."""

    @abstractmethod
    def send(self, statements: Iterable[Rows]) -> None:
        """Run statements that need no answer from one another, in order, each once per row.

        Each must write one row each time. A policy, trigger or rule in the database may keep it from that
        without an error: then LedgerDamaged, and nothing counts.
        """

    @abstractmethod
    def run(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement."""

    @abstractmethod
    def has_schema(self) -> bool:
        """Whether a ledger was made here."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once per row."""
        self.send([(sql, rows)])

    def one(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row, or None."""
        rows = self.all(sql, parameters)
        return rows[0] if rows else None

    def glance(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of one query, which alone is a consistent view."""
        self.same_process()
        with self._read_guard, self._explained():
            return self.one(sql, parameters)

    def mark(self) -> int | None:
        """What is the same at two looks if nothing was written in between. None: not known."""
        return None

    def make_schema(self, table: str = "") -> None:
        """Create the tables, or one of them, in a transaction begun with `alone`."""
        for statement in schema(self.dialect):
            if not table or f"CREATE TABLE {table} (" in statement:
                self.run(statement)

    def same_process(self) -> None:
        """Refuse to go on in a forked child, where locks and connections are the parent's."""
        if os.getpid() != self._process:
            raise LedgerError("a ledger is not carried over a fork: close it before, open it in the child")

    def transact(self, work: Callable[[_Given], _Made], given: _Given) -> _Made:
        """Do `work` in a write transaction, durable when this returns, rolled back if it raises.

        Its first query must be that of the head row with `locking`.
        """
        self.same_process()
        with self._write_guard:
            try:
                self._enter()
                made = work(given)
                self.commit_begun = True
                self._commit()
                return made
            except BaseException as error:
                self._fail(error)
                raise
            finally:
                self._writing_thread = 0
                self._let_next()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What `transact` does, around a block."""
        self.same_process()
        with self._write_guard:
            try:
                self._enter()
                yield
                self.commit_begun = True
                self._commit()
            except BaseException as error:
                self._fail(error)
                raise
            finally:
                self._writing_thread = 0
                self._let_next()

    def _enter(self) -> None:
        self._writing_thread = get_ident()
        self.commit_begun = False
        self._writes += 1
        self._wait()
        self._begin(write=True)

    def _fail(self, error: BaseException) -> None:
        """Roll back; raise our error for one of the engine's."""
        ours = self._explanation(error) if isinstance(error, Exception) else None
        self._undo(write=True)
        if ours is not None:
            raise ours from error

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A write transaction that needs no head row: to make or to migrate the tables."""
        with self.writing():
            yield

    def _wait(self) -> None:  # noqa: B027
        """Wait for other processes that write, for BUSY_TIMEOUT_S at most."""

    def _let_next(self) -> None:  # noqa: B027
        """Let another process write."""

    def stamp(self) -> tuple[int, int] | None:
        """In a write transaction: what others wrote so far, and the transaction's number in this store.

        The first part is equal in two transactions if nobody else wrote in between. None: not known.
        """
        return None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A consistent view, which neither waits for a writer nor makes one wait."""
        self.same_process()
        with self._read_guard:
            self._views += 1
            try:
                with self._explained():
                    if self._views == 1:
                        self._begin(write=False)
                    yield
            finally:
                self._views -= 1
                if not self._views:
                    self._undo(write=False)

    @property
    def _in_writing(self) -> bool:
        return self._writing_thread == get_ident()


_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY: "another process holds it",
    sqlite3.SQLITE_LOCKED: "another process holds it",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_PERM: "it is not permitted",
    sqlite3.SQLITE_AUTH: "it is not permitted",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_NOMEM: "out of memory",
    sqlite3.SQLITE_INTERRUPT: "it was interrupted",
    sqlite3.SQLITE_PROTOCOL: "another process holds it",
}


def _unavailable(code: int) -> LedgerError:
    return LedgerError(f"the ledger cannot be used: {_UNAVAILABLE[code]}")


def _is_mounted(path: Path) -> bool:
    """Whether a file was mounted at this very path, as far as the system tells."""
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return False
    name = re.sub(rb"[\x00-\x20\\]", lambda one: b"\\%03o" % one[0][0], os.fsencode(os.path.realpath(path)))
    return any(line.split()[4:5] == [name] for line in lines)


class SqliteStore(Store):
    """SQLite in WAL mode with synchronous=FULL: a commit is on the disk when it returns.

    Beside the database lies `<path>.lock`: processes queue on it, which is fair and wakes at once,
    where SQLite would poll. Where there is no such lock, BEGIN IMMEDIATE alone is right, only slower. The
    file also remembers that a ledger was made here, so that an emptied or missing database is not quietly
    replaced by a new ledger with nothing spent.

    Locks and the write-ahead log go by the name of the database. A file with two names (hard links, or one
    file mounted elsewhere) would have two of each, and its budget be spent twice: it is refused.

    Args:
        path: of the database; a new one is readable by its owner alone.
        create: make one where there is none.
        migrate: may change how an existing file is kept. If not, neither a lock file nor WAL mode is added.
    """

    dialect = {"id": "INTEGER PRIMARY KEY", "blob": "BLOB", "keyed": "WITHOUT ROWID"}  # noqa: RUF012
    locking = ""

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True, migrate: bool = True) -> None:
        super().__init__()
        self.path = Path(path)
        self._lock: LockFile | None = None
        self._open: list[sqlite3.Connection] = []
        mode = "PRAGMA journal_mode=WAL" if create or migrate else "PRAGMA journal_mode"
        try:
            with self._explained():
                self._check_file(create=create, change=create or migrate)
                if create or migrate or Path(f"{self.path}.lock").exists():
                    self._lock = self._opened_lock()
                with self._alone_with("=" in mode):
                    self._writer = self._connected(mode, "PRAGMA synchronous=FULL", "PRAGMA fullfsync=ON")
                    self._sender = self._writer.cursor()  # only for what leaves no rows to fetch
                    self._reader = self._connected(mode, "PRAGMA query_only=ON")
        except BaseException:
            self.close()
            raise
        _LOCK_FILES.add(self)

    def _opened_lock(self) -> LockFile:
        try:
            return LockFile(f"{self.path}.lock")
        except OSError as error:
            raise self._cannot_be_opened(error) from error

    def _cannot_be_opened(self, error: OSError | ValueError) -> LedgerError:
        told = (
            f"{error.strerror}: {error.filename}"
            if isinstance(error, OSError)
            else f"not a path: {self.path}"
        )
        return LedgerError(f"the ledger cannot be opened: {told}")

    def _check_file(self, *, create: bool, change: bool) -> None:
        """Refuse a file that is gone, shared over a fork, or has two names; make it if there is none.

        SQLite gives its other files the same rights.
        """
        with _MAKING:
            try:
                if not self.path.exists() or not self.path.stat().st_size:
                    self._check_new(create=create)
                if change:
                    private(self.path)
                found = self.path.stat()
            except (OSError, ValueError) as error:
                raise self._cannot_be_opened(error) from error
        if (found.st_dev, found.st_ino) in _INHERITED:
            # SQLite would take the parent's locks on the file for its own, and not ask for any.
            raise LedgerError(f"{self.path} was open when this process was forked: close it before forking")
        if stat.S_ISREG(found.st_mode) and (found.st_nlink != 1 or _is_mounted(self.path)):
            raise LedgerError(
                f"{self.path} is one file under several names, each with locks of its own: "
                "remove the other hard links, or mount its directory instead of the file"
            )

    def _check_new(self, *, create: bool) -> None:
        """Where nothing is now, there must have been nothing before."""
        with contextlib.suppress(FileNotFoundError), Path(f"{self.path}.lock").open("rb") as lock:
            if lock.read(len(_MADE)) == _MADE:
                raise LedgerDamaged(
                    f"{self.path} is gone or empty: restore it, or remove {self.path}.lock to start anew"
                )
        if not create:
            raise LedgerError(f"there is no ledger at {self.path}")

    def _connected(self, mode: str, *pragmas: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S
        )
        self._open.append(connection)
        connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")  # of a new database; others keep theirs
        if connection.execute(mode).fetchone() != ("wal",) and "=" in mode:
            raise LedgerError(f"the ledger needs a local file that SQLite can log ahead of, got {self.path}")
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        for pragma in (f"PRAGMA wal_autocheckpoint={_LOG_BYTES // page_bytes}", *pragmas):
            connection.execute(pragma)
        return connection

    def _explanation(self, error: Exception) -> LedgerError | None:
        if isinstance(error, sqlite3.ProgrammingError) and not self._open:
            return LedgerError("the ledger was closed")
        if isinstance(error, UnicodeDecodeError):  # SQLite's message quotes torn bytes
            return LedgerDamaged(f"{self.path} is damaged or no ledger")
        if not isinstance(error, sqlite3.Error) or isinstance(error, sqlite3.ProgrammingError):
            return None
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _UNAVAILABLE:
            return _unavailable(code)
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        return LedgerDamaged(f"{self.path} is damaged or no ledger ({name})")

    def _wait(self) -> None:
        if self._lock is not None and not self._lock.acquire(BUSY_TIMEOUT_S):
            raise _unavailable(sqlite3.SQLITE_BUSY)

    @contextlib.contextmanager
    def _alone_with(self, changing: bool) -> Iterator[None]:
        """Keep others out while the journal's mode may change: SQLite itself does not wait for them there."""
        if not changing:
            yield
            return
        self._wait()
        try:
            yield
        finally:
            self._let_next()

    def _let_next(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _begin(self, *, write: bool) -> None:
        if write:
            self._sender.execute("BEGIN IMMEDIATE")
        else:
            self._reader.execute("BEGIN")

    def _commit(self) -> None:
        self._sender.execute("COMMIT")

    def _undo(self, *, write: bool) -> None:
        with contextlib.suppress(sqlite3.Error):
            (self._writer if write else self._reader).rollback()

    def _connection(self) -> sqlite3.Connection:
        return self._writer if self._in_writing else self._reader

    def all(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Every row of a query."""
        return self._connection().execute(sql, parameters).fetchall()

    def one(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row, or None."""
        row: tuple[Any, ...] | None = self._connection().execute(sql, parameters).fetchone()
        return row

    def send(self, statements: Iterable[Rows]) -> None:
        """Run each statement once per row."""
        execute = self._sender.execute
        for sql, rows in statements:
            if len(rows) == 1:
                if execute(sql, rows[0]).rowcount != 1:
                    _check_written(0, 1)
            elif rows:
                self._send_several(sql, rows)

    def _send_several(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once per row; an INSERT takes many rows at a time, which costs less."""
        whole = 0
        if sql.startswith("INSERT") and len(rows) >= _ROWS:
            head, values, marks = sql.partition(" VALUES ")
            several = head + values + ", ".join([marks] * _ROWS)
            whole = len(rows) - len(rows) % _ROWS
            for start in range(0, whole, _ROWS):
                made = self._writer.execute(several, list(chain.from_iterable(rows[start : start + _ROWS])))
                _check_written(made.rowcount, _ROWS)
        if whole < len(rows):
            _check_written(self._writer.executemany(sql, rows[whole:]).rowcount, len(rows) - whole)

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement."""
        self._writer.execute(sql, parameters)

    def mark(self) -> int | None:
        """SQLite's own mark of commits by other connections: that for reading never commits."""
        self.same_process()
        with self._read_guard, self._explained():
            (version,) = self._reader.execute("PRAGMA data_version").fetchone()
            return int(version)

    def stamp(self) -> tuple[int, int] | None:
        """SQLite's own mark of commits by other connections, and the number of the transaction."""
        (version,) = self._writer.execute("PRAGMA data_version").fetchone()
        return version, self._writes

    def has_schema(self) -> bool:
        """Whether a ledger was made here."""
        with self._explained():
            tables = {name for (name,) in self.all("SELECT name FROM sqlite_master WHERE type='table'")}
        if tables and not {"meta", "head"} <= tables:
            raise LedgerDamaged(f"{self.path} is a database, and no ledger")
        return bool(tables)

    def made(self) -> None:
        """Remember, beside the database, that a ledger was made here."""
        assert self._lock is not None
        if os.pread(self._lock.file, len(_MADE), 0) != _MADE:
            with contextlib.suppress(OSError):  # a full disk must not stop the ledger that is already made
                os.pwrite(self._lock.file, _MADE, 0)

    def close(self) -> None:
        """Close the connections and the lock file."""
        if os.getpid() != self._process:
            _LEFT_ALONE.extend(self._open)  # closing in a child would touch the parent's locks
            self._open = []
            return
        with self._write_guard, self._read_guard:
            for connection in reversed(self._open):
                connection.close()
            self._open = []
            _LOCK_FILES.discard(self)
            if self._lock is not None:
                self._lock.close()


# A forked child shares the parent's open lock file, and with it the lock: it must let go at once. It must
# neither use nor close the parent's connections, nor open these databases itself.
_LOCK_FILES: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_LEFT_ALONE: list[sqlite3.Connection] = []
_INHERITED: set[tuple[int, int]] = set()


def _let_go_of_lock_files() -> None:
    for store in list(_LOCK_FILES):
        if store._lock is not None:
            store._lock.let_go()
        _LEFT_ALONE.extend(store._open)
        with contextlib.suppress(OSError):
            found = store.path.stat()
            _INHERITED.add((found.st_dev, found.st_ino))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_of_lock_files)


SCHEMA = "reticent"  # of a ledger in PostgreSQL, unless its address names another
_SEARCH_PATH = re.compile(r"(?:-c\s*|--)search_path=(?:\"([^\"]+)\"|([A-Za-z_][A-Za-z0-9_$]*))")
_TABLE = re.compile(r"CREATE TABLE (\w+)")
# Whether a ledger is in a schema.
_IN_SCHEMA = """
SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = 'head'
"""
_MOVED = """
SELECT 1 FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = 'head' AND a.attname = 'moved_to'
"""
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
    "does not exist",
    "certificate",
)


class PostgresStore(Store):
    """PostgreSQL, for several servers. `url` is a libpq connection string.

    A connection that is lost is made anew by the next call. All tables are in one schema, `reticent` or the
    one that `options=-csearch_path=...` in the address names, and every connection looks there alone: the
    search path of a role, a database or the environment leads nowhere else.
    """

    dialect = {"id": "BIGINT PRIMARY KEY", "blob": "BYTEA", "keyed": ""}  # noqa: RUF012
    locking = " FOR UPDATE"

    def __init__(self, url: str, *, migrate: bool = True) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise MissingExtra("a ledger in PostgreSQL", "postgres") from error
        super().__init__()
        self._url = url
        self._psycopg = psycopg
        self._connections: dict[bool, Any] = {}
        self._closed = False
        self._translated: dict[str, bytes] = {}
        with self._explained():
            self.schema = _schema_of(psycopg.conninfo.conninfo_to_dict(url).get("options"))
            self._settle(migrate=migrate)
            self._connected(write=True)

    def _settle(self, *, migrate: bool) -> None:
        """Bring the tables of an earlier release into the schema: they were wherever a search path led."""
        with self._psycopg.connect(self._url, autocommit=True) as connection:
            # Nothing else runs while the path may lead to an operator of somebody's: it would act as us.
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
                if not is_in(self.schema):  # else somebody was first
                    self._bring(connection, found)

    def _bring(self, connection: Any, place: str) -> None:
        """Move the tables; a table `head` that is left keeps every release from making a ledger there."""
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
        """The connection for writing, or for reading; a new one if it was lost."""
        if self._closed:
            raise LedgerError("the ledger was closed")
        connection = self._connections.get(write)
        if connection is None or connection.closed:
            connection = self._psycopg.connect(self._url, autocommit=True)
            connection.execute("SET synchronous_commit = on")
            sql = self._psycopg.sql
            connection.execute(
                sql.SQL("SET search_path = {}, pg_temp").format(sql.Identifier(self.schema))
            )  # pg_catalog comes first by itself, tables of this session alone last
            self._connections[write] = connection
        return connection

    def _explanation(self, error: Exception) -> LedgerError | None:
        if not isinstance(error, self._psycopg.Error):
            return None
        errors = self._psycopg.errors
        if isinstance(error, (errors.SerializationFailure, errors.DeadlockDetected)):
            return TryAgain("the ledger cannot be used: PostgreSQL gave way to another transaction")
        if isinstance(error, (self._psycopg.OperationalError, self._psycopg.InterfaceError)):
            lost = (error.sqlstate or "08")[:2] in ("08", "57")
            if self.commit_begun and self._in_writing and lost:
                return CommitUnknown(
                    "the connection to PostgreSQL was lost while committing: "
                    "ask again with the same idempotency key"
                )
            return LedgerError(f"PostgreSQL cannot be used: {_reason(error)}")
        if isinstance(error, (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction)):
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
        if ended != "COMMIT":  # of a transaction in which a statement failed, PostgreSQL says ROLLBACK
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
        """The first row of one query, on a new connection if that for reading was lost while idle."""
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
        """A write transaction that needs no head row."""
        with self.writing():
            self.run(_TURN)
            yield

    def _connection(self) -> Any:
        return self._connections[True] if self._in_writing else self._connected(write=False)

    def send(self, statements: Iterable[Rows]) -> None:
        """Run each statement once per row; they travel together."""
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
            _check_written(cursor.rowcount, count)

    def _cursor(self, sql: str, parameters: Sequence[Any]) -> Any:
        return self._connection().execute(self._sql(sql), parameters or None)

    def _sql(self, sql: str) -> bytes:
        if sql not in self._translated:
            self._translated[sql] = sql.replace("?", "%s").encode()
        return self._translated[sql]

    def all(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Every row of a query."""
        return list(self._cursor(sql, parameters).fetchall())

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement."""
        self._cursor(sql, parameters)

    def has_schema(self) -> bool:
        """Whether a ledger was made here."""
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


def _check_written(found: int, due: int) -> None:
    if found != due:
        raise LedgerDamaged(
            f"the database wrote {found} rows of {due}: a policy, trigger or rule is in the way"
        )


_TURN = "SELECT pg_catalog.pg_advisory_xact_lock(7237432)"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _reason(error: Exception) -> str:
    """Why a server cannot be used, without where it is and who asked. The trace says more."""
    said = str(error).lower()
    found = next((one for one in _REASONS if one in said), "")
    state = getattr(error, "sqlstate", None)
    return found or (f"{type(error).__name__}, SQLSTATE {state}" if state else type(error).__name__)


def _schema_of(options: Any) -> str:
    """The schema that an address names in its options, or ours."""
    text = str(options or "")
    found = _SEARCH_PATH.search(text)
    if found is None and "search_path" in text:
        raise LedgerError("options of the address must name one schema: -csearch_path=NAME")
    return SCHEMA if found is None else found[1] or found[2].lower()


def connect(where: str | os.PathLike[str], *, create: bool = True, migrate: bool = True) -> Store:
    """Open the store at a path (SQLite) or a postgresql:// address. For the rest, see `SqliteStore`."""
    try:
        text = os.fsdecode(where)
    except TypeError as error:
        raise LedgerError(f"a ledger is at a path or an address, got {type(where).__name__}") from error
    if text.startswith(("postgresql://", "postgres://")):
        return PostgresStore(text, migrate=migrate)
    if text in ("", ":memory:"):
        raise LedgerError(f"a ledger needs a file to be durable, got {text!r}")
    return SqliteStore(text, create=create, migrate=migrate)
