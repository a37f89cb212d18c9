"""SQLite files that several processes write: each write completely or not at all, and none in between."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reticent.errors import LedgerError, StorageUnavailable
from reticent.files import FULL, is_full, is_out_of_space, private

PATIENCE_S = 60.0  # how long to wait for other writers
UNAVAILABLE = {  # errors of disks and of other processes, not of the file's content
    sqlite3.SQLITE_BUSY: "another process holds it",
    sqlite3.SQLITE_LOCKED: "another process holds it",
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_PERM: "it is not permitted",
    sqlite3.SQLITE_AUTH: "it is not permitted",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_NOMEM: "out of memory",
    sqlite3.SQLITE_INTERRUPT: "it was interrupted",
    sqlite3.SQLITE_PROTOCOL: "another process holds it",
}


def describe_trouble(error: sqlite3.Error, folder: str | os.PathLike[str] | None = None) -> str | None:
    """Return why a file cannot be used now; None if the error is about the content of the file.

    SQLite reports a full disk as a failing one where a quota is used up, and where the index of its log does
    not fit any more.

    Args:
        error: Error that SQLite raised.
        folder: Folder of the file, if known: it is tested for free space.
    """
    code = getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_IOERR_SHMSIZE:
        return FULL
    if code & 0xFF == sqlite3.SQLITE_IOERR and folder is not None and is_full(folder):
        return FULL
    return UNAVAILABLE.get(code & 0xFF)


@contextmanager
def explained(what: str, folder: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """Replace SQLite's errors of disks and of other processes by ours; leave all others unchanged.

    Args:
        what: Subject of the message, which cannot be used.
        folder: Folder of the file, if known.
    """
    try:
        yield
    except sqlite3.Error as error:
        reason = describe_trouble(error, folder)
        if reason is None:
            raise
        raise StorageUnavailable(f"{what} cannot be used: {reason}") from error


def opening_error(what: str, path: str | os.PathLike[str], error: sqlite3.Error | OSError) -> LedgerError:
    """Return our error for a file that cannot be opened.

    Args:
        what: Subject of the message.
        path: Path of the file.
        error: Error of SQLite or of the system.
    """
    if is_out_of_space(error):
        return StorageUnavailable(f"{what} cannot be opened: {FULL}: {os.fsdecode(path)}")
    reason = getattr(error, "strerror", None) or getattr(error, "sqlite_errorname", type(error).__name__)
    return LedgerError(f"{what} cannot be opened ({reason}): {os.fsdecode(path)}")


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Run a transaction with the right to write from its beginning. On failure, nothing was written."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def opened(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """Open a file that several processes of its owner may write, each waiting for the others."""
    if os.fspath(path) != ":memory:":
        private(Path(os.fsdecode(path)))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=PATIENCE_S)
    try:
        if os.fspath(path) != ":memory:":
            write_ahead(connection)
            connection.execute("PRAGMA synchronous=FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log, and wait for other processes that do so meanwhile: SQLite does not."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(0.01)
