"""The store in SQLite: one file, and a lock file beside it on which writers queue."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import stat
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from reticent.errors import LedgerDamaged, LedgerError, StorageUnavailable
from reticent.files import FULL, is_out_of_space, private
from reticent.ledger.lockfile import LockFile
from reticent.ledger.sql.store import Rows, Store, check_written
from reticent.sqlite import UNAVAILABLE, describe_trouble

BUSY_TIMEOUT_S = 60.0
_ROWS = 64  # rows of one INSERT; old builds of SQLite take 999 parameters, we have at most ten in a row
_PAGE_BYTES = 1024  # a commit writes whole pages, and a charge changes a row in each of six
_LOG_BYTES = 4 << 20  # size of SQLite's write-ahead log before it is copied into the database
_MADE = b"A Reticent ledger was made here.\n"
_MOUNTS = Path("/proc/self/mountinfo")
_MAKING = (
    threading.Lock()
)  # closing a new file would drop the locks of another thread that opened it meanwhile


def _unavailable(reason: str) -> StorageUnavailable:
    return StorageUnavailable(f"the ledger cannot be used: {reason}")


def is_writable(path: Path) -> bool:
    """Return whether this process may write to a file or a folder, as far as the system tells beforehand."""
    return os.access(path, os.W_OK)


def _is_mounted(path: Path) -> bool:
    """Return whether a file was mounted at this very path, as far as the system tells."""
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return False
    name = re.sub(rb"[\x00-\x20\\]", lambda one: b"\\%03o" % one[0][0], os.fsencode(os.path.realpath(path)))
    return any(line.split()[4:5] == [name] for line in lines)


class SqliteStore(Store):
    """A store in SQLite, in WAL mode with synchronous=FULL: a commit is on the disk when it returns.

    Processes queue on the lock file `<path>.lock` beside the database, which is fair and wakes at once,
    while SQLite would poll. Without such a lock, BEGIN IMMEDIATE alone is correct, only slower. The
    file also records that a ledger was created here, so that an emptied or missing database is not quietly
    replaced by a new ledger with nothing spent.

    Locks and the write-ahead log go by the name of the database. A file with two names (hard links, or one
    file mounted elsewhere) would have two of each, and its budget be spent twice: it is refused.

    Args:
        path: Path of the database; a new one is readable by its owner alone.
        create: Create a database if there is none.
        migrate: Allow changes to an existing file. Otherwise neither a lock file nor WAL mode is added,
            and a copy on a read-only disk is opened too.
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
                self._options = "" if create or migrate else self._read_only_options()
                if create or migrate or (Path(f"{self.path}.lock").exists() and not self._options):
                    self._lock = self._opened_lock()
                with self._alone_with("=" in mode):
                    self._connect(mode)
        except BaseException:
            self.close()
            raise
        _LOCK_FILES.add(self)

    def _connect(self, mode: str) -> None:
        """Open the connections, or for reading on a full disk a single one that needs no space."""
        try:
            self._writer = self._connected(mode, "PRAGMA synchronous=FULL", "PRAGMA fullfsync=ON")
            self._reader = self._connected(mode, "PRAGMA query_only=ON")
        except sqlite3.Error as error:
            if "=" in mode or describe_trouble(error, self.path.parent) != FULL:
                raise
            self._close_connections()
            self._writer = self._reader = self._connected(
                mode, "PRAGMA temp_store=MEMORY", "PRAGMA query_only=ON", alone=True
            )
        self._sender = self._writer.cursor()  # only for what leaves no rows to fetch

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
        kind = StorageUnavailable if is_out_of_space(error) else LedgerError
        return kind(f"the ledger cannot be opened: {told}")

    def _check_file(self, *, create: bool, change: bool) -> None:
        """Refuse a file that is gone, shared over a fork, or has two names; create it if there is none.

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
        """Refuse to create a database where the lock file says that a ledger existed before."""
        with contextlib.suppress(FileNotFoundError), Path(f"{self.path}.lock").open("rb") as lock:
            if lock.read(len(_MADE)) == _MADE:
                raise LedgerDamaged(
                    f"{self.path} is gone or empty: restore it, or remove {self.path}.lock to start anew"
                )
        if not create:
            raise LedgerError(f"there is no ledger at {self.path}")

    def _read_only_options(self) -> str:
        """Return the URI options to open a file in a read-only place; empty if it may be written.

        SQLite reads a database with a log ahead of it only with an index of that log, which it would have to
        make. Where there is no log, the file is complete, and it is told that the file does not change.

        Raises:
            LedgerError: There is a log without an index: what it holds would be left out.
        """
        if is_writable(self.path) and is_writable(self.path.parent):
            return ""
        log, index = Path(f"{self.path}-wal"), Path(f"{self.path}-shm")
        if log.exists() and index.exists():
            return "?mode=ro"
        if log.exists() and log.stat().st_size:
            raise LedgerError(
                f"{self.path} is read-only and has entries in {log.name}, which must be written to be read: "
                "copy both to a folder that you may write to"
            )
        return "?mode=ro&immutable=1"

    def _connected(self, mode: str, *pragmas: str, alone: bool = False) -> sqlite3.Connection:
        """Open a connection to the database.

        Args:
            mode: Statement that sets, or asks for, the mode of the journal.
            *pragmas: Further statements.
            alone: Let no other connection use the file meanwhile. Connections share the index of the log in
                a file, for which a full disk has no space; a single one keeps it in memory.
        """
        place = f"{self.path.absolute().as_uri()}{self._options}" if self._options else self.path
        connection = sqlite3.connect(
            place,
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_TIMEOUT_S,
            uri=bool(self._options),
        )
        self._open.append(connection)
        if alone:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
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
        reason = describe_trouble(error, self.path.parent)
        if reason is not None:
            return _unavailable(reason)
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        return LedgerDamaged(f"{self.path} is damaged or no ledger ({name})")

    def _wait(self) -> None:
        if self._lock is not None and not self._lock.acquire(BUSY_TIMEOUT_S):
            raise _unavailable(UNAVAILABLE[sqlite3.SQLITE_BUSY])

    @contextlib.contextmanager
    def _alone_with(self, changing: bool) -> Iterator[None]:
        """Lock out other processes while the journal mode may change: SQLite does not wait for them there."""
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
        """Return every row of a query."""
        return self._connection().execute(sql, parameters).fetchall()

    def one(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Return the first row, or None."""
        row: tuple[Any, ...] | None = self._connection().execute(sql, parameters).fetchone()
        return row

    def send(self, statements: Iterable[Rows]) -> None:
        """Run each statement once per row."""
        execute = self._sender.execute
        for sql, rows in statements:
            if len(rows) == 1:
                if execute(sql, rows[0]).rowcount != 1:
                    check_written(0, 1)
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
                check_written(made.rowcount, _ROWS)
        if whole < len(rows):
            check_written(self._writer.executemany(sql, rows[whole:]).rowcount, len(rows) - whole)

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement."""
        self._writer.execute(sql, parameters)

    def mark(self) -> int | None:
        """Return SQLite's counter of commits by other connections: the reading connection never commits."""
        self.same_process()
        with self._read_guard, self._explained():
            (version,) = self._reader.execute("PRAGMA data_version").fetchone()
            return int(version)

    def stamp(self) -> tuple[int, int] | None:
        """Return SQLite's counter of commits by other connections, and the number of the transaction."""
        (version,) = self._writer.execute("PRAGMA data_version").fetchone()
        return version, self._writes

    def has_schema(self) -> bool:
        """Return whether the database holds a ledger."""
        with self._explained():
            tables = {name for (name,) in self.all("SELECT name FROM sqlite_master WHERE type='table'")}
        if tables and not {"meta", "head"} <= tables:
            raise LedgerDamaged(f"{self.path} is a database, and no ledger")
        return bool(tables)

    def made(self) -> None:
        """Record in the lock file that a ledger was created here."""
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
            self._close_connections()
            _LOCK_FILES.discard(self)
            if self._lock is not None:
                self._lock.close()

    def _close_connections(self) -> None:
        for connection in reversed(self._open):
            connection.close()
        self._open = []


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
