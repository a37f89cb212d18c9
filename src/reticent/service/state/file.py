"""The SQLite file of the state: all tables, one connection that writes and one that reads."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reticent.errors import LedgerError
from reticent.files import private
from reticent.sqlite import explained, write_ahead, writing

_WHAT = "the service's state"

_VERSION = 2  # of the tables
_TABLES = """
CREATE TABLE IF NOT EXISTS person (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, role TEXT NOT NULL,
    digest TEXT NOT NULL UNIQUE, made REAL NOT NULL, revoked REAL
);
CREATE TABLE IF NOT EXISTS visit (
    digest TEXT PRIMARY KEY, person INTEGER NOT NULL, csrf TEXT NOT NULL, ends REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS owned (dataset TEXT PRIMARY KEY, person INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS registered (
    dataset TEXT PRIMARY KEY, file TEXT NOT NULL, part TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS source (
    file TEXT PRIMARY KEY, identity TEXT NOT NULL UNIQUE, person INTEGER NOT NULL, made REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quota (
    dataset TEXT NOT NULL, person INTEGER NOT NULL, units INTEGER NOT NULL, PRIMARY KEY (dataset, person)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS used (
    dataset TEXT NOT NULL, person INTEGER NOT NULL, units INTEGER NOT NULL, PRIMARY KEY (dataset, person)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS asked (
    number INTEGER PRIMARY KEY, dataset TEXT NOT NULL, person TEXT NOT NULL, query TEXT NOT NULL,
    cased TEXT NOT NULL, cost INTEGER NOT NULL, without_reuse INTEGER NOT NULL, spent INTEGER NOT NULL,
    day TEXT NOT NULL DEFAULT '', cells INTEGER NOT NULL DEFAULT 0, value REAL, low REAL, high REAL
);
CREATE INDEX IF NOT EXISTS asked_of ON asked (dataset, number);
CREATE TABLE IF NOT EXISTS attempt (
    id TEXT PRIMARY KEY, person INTEGER NOT NULL, dataset TEXT NOT NULL, body TEXT NOT NULL,
    units INTEGER NOT NULL, answer TEXT, made REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS job (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, attempt TEXT NOT NULL UNIQUE,
    person INTEGER NOT NULL, dataset TEXT NOT NULL, idempotency TEXT, body TEXT NOT NULL,
    state TEXT NOT NULL, made REAL NOT NULL, beat REAL NOT NULL, shown REAL NOT NULL, result TEXT
);
CREATE INDEX IF NOT EXISTS job_state ON job (state, number);
"""

_SINCE_2 = (
    "day TEXT NOT NULL DEFAULT ''",
    "cells INTEGER NOT NULL DEFAULT 0",
    "value REAL",
    "low REAL",
    "high REAL",
)


class StateFile:
    """One connection to write and one to read, each for one thread at a time: readers never wait for a disk.

    Several processes may share the file. Open it after forking.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._guard, self._looking = threading.Lock(), threading.Lock()
        try:
            self._connection = _connected(private(Path(path)))
            write_ahead(self._connection)
            self._connection.execute("PRAGMA synchronous=FULL")
            held = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if held > _VERSION:
                raise LedgerError(f"the service's state was written by a newer Reticent: {path}")
            self._connection.executescript(_TABLES)
            _migrate(self._connection)
            self._reader = _connected(path)
            self._reader.execute("PRAGMA query_only=ON")
        except (sqlite3.Error, OSError) as error:
            why = getattr(error, "strerror", None) or getattr(error, "sqlite_errorname", type(error).__name__)
            raise LedgerError(f"the service's state cannot be opened ({why}): {path}") from error

    def close(self) -> None:
        """Close the file."""
        with self._guard, self._looking:
            self._connection.close()
            self._reader.close()

    def check(self) -> None:
        """Read something. Raises StorageUnavailable or sqlite3.Error if that cannot be done."""
        self._one("SELECT count(*) FROM quota")

    def _waiting(self) -> list[Any]:
        """Notes that were made and not written yet: whoever writes a later one takes them along, in order."""
        return []

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._guard, explained(_WHAT), writing(self._connection) as connection:
            yield connection

    def _one(self, sql: str, *given: object) -> tuple[Any, ...] | None:
        with self._looking, explained(_WHAT):
            row: tuple[Any, ...] | None = self._reader.execute(sql, given).fetchone()
        return row

    def _all(self, sql: str, *given: object) -> list[tuple[Any, ...]]:
        with self._looking, explained(_WHAT):
            return self._reader.execute(sql, given).fetchall()


def _migrate(connection: sqlite3.Connection) -> None:
    """Version 1 kept neither days nor values of questions. Others may do the same at the same time."""
    with writing(connection):
        held = {row[1] for row in connection.execute("PRAGMA table_info(asked)")}
        for column in _SINCE_2:
            if column.split()[0] not in held:
                connection.execute(f"ALTER TABLE asked ADD COLUMN {column}")
        connection.execute(f"PRAGMA user_version={_VERSION}")


def _connected(path: str | os.PathLike[str]) -> sqlite3.Connection:
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=60, cached_statements=64
    )
