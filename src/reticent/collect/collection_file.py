"""The file of a collection: its tables, how it is opened, and what SQLite and the disk say, in our words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from reticent.errors import LedgerDamaged, LedgerError, StorageUnavailable
from reticent.files import private
from reticent.sqlite import PATIENCE_S, write_ahead

_VERSION = 1
_TABLES = """
CREATE TABLE survey (
    number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, text BLOB NOT NULL, file BLOB NOT NULL,
    closed INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE seen (
    survey INTEGER NOT NULL, period INTEGER NOT NULL, reporter BLOB NOT NULL, nonce BLOB NOT NULL,
    PRIMARY KEY (survey, period, reporter)
) WITHOUT ROWID;
CREATE TABLE tally (
    survey INTEGER NOT NULL, period INTEGER NOT NULL, attribute INTEGER NOT NULL, symbol INTEGER NOT NULL,
    cohort INTEGER NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (survey, period, attribute, symbol, cohort)
) WITHOUT ROWID;
CREATE TABLE rejected (reason TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE revoked (number INTEGER PRIMARY KEY, reporter BLOB NOT NULL UNIQUE);
"""  # revoked: of earlier releases; see `revocation`
AGAIN = "the collection cannot be used now: send again what was not acknowledged"


def open_reader(path: Path, held: ExitStack) -> sqlite3.Connection:
    """A connection, closed with what is held."""
    with in_our_words():
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=PATIENCE_S)
        held.callback(connection.close)
        return connection


def open_writer(path: Path, held: ExitStack) -> sqlite3.Connection:
    """The connection that writes; the tables are there."""
    with in_our_words():
        private(path)
    connection = open_reader(path, held)
    with in_our_words():
        write_ahead(connection)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA secure_delete=ON")
        if _version(connection) < _VERSION:
            connection.execute("BEGIN IMMEDIATE")
            if _version(connection) < _VERSION:  # nobody else made them meanwhile
                for statement in filter(str.strip, _TABLES.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={_VERSION}")
            connection.execute("COMMIT")
        if _version(connection) > _VERSION:
            raise LedgerError(f"the collection was written by a newer Reticent: {path}")
    return connection


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def in_our_words() -> Iterator[None]:
    """What SQLite and the disk say, in our words: theirs could quote a row."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise LedgerDamaged("the collection's file is damaged") from error
        raise StorageUnavailable(
            f"{AGAIN} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"
        ) from error
