"""One way to open SQLite, and to write to it: at once or not at all, and never between two others' writes."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reticent.errors import StorageUnavailable
from reticent.files import private

PATIENCE_S = 60.0  # how long to wait for others who write
UNAVAILABLE = {  # what SQLite says of disks and other processes, not of what a file holds
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


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Say in our words what a disk or another process keeps SQLite from; all else is left as it is.

    Args:
        what: cannot be used.
    """
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code not in UNAVAILABLE:
            raise
        raise StorageUnavailable(f"{what} cannot be used: {UNAVAILABLE[code]}") from error


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """A transaction that has the right to write from its beginning. If it fails, nothing was written."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def opened(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """A file that several processes of its owner may write, each waiting for the others."""
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
    """Use SQLite's log. SQLite does not wait for others who say so of a new file at the same time: we do."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(0.01)
