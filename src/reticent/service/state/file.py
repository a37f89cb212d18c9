"""The storage of the state: an SQLite file that all workers share, or a PostgreSQL that all servers do.

Statements are written once, in what both understand, with `?` for parameters. A transaction may say what it
is about: in PostgreSQL those about other things run beside it; SQLite has one at a time anyhow.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, cast

from reticent import postgres
from reticent.errors import LedgerError
from reticent.files import private
from reticent.service.state import tables
from reticent.sqlite import explained, opening_error, write_ahead, writing

_WHAT = "the service's state"

_SINCE_2 = (
    "day TEXT NOT NULL DEFAULT ''",
    "cells INTEGER NOT NULL DEFAULT 0",
    "value REAL",
    "low REAL",
    "high REAL",
)


class Statements(Protocol):
    """The statements of a transaction, as `sqlite3.Connection` runs them."""

    def execute(self, sql: str, given: Sequence[Any] = ..., /) -> Any:
        """Run one."""

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> Any:
        """Run one for each row."""


class Keeper(Protocol):
    """The interface of a database that keeps the state."""

    def now(self) -> float:
        """Return the seconds since 1970, by the clock of everybody who shares the state."""

    def one(self, sql: str, *given: object) -> tuple[Any, ...] | None:
        """Return the first row of a query."""

    def all(self, sql: str, *given: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""

    def writing(self, scope: str = "") -> AbstractContextManager[Statements]:
        """Open a transaction, alone among those of its scope; without a scope, alone among all."""

    def close(self) -> None:
        """Close the database."""


class StateFile:
    """The state at a path or a postgresql:// address. Open it after forking."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self._keeper = _kept(place)

    @property
    def database(self) -> postgres.Database | None:
        """The database that several servers share; None if the state is a file."""
        return self._keeper if isinstance(self._keeper, postgres.Database) else None

    def close(self) -> None:
        """Close it."""
        self._keeper.close()

    def check(self) -> None:
        """Read something. Raises StorageUnavailable or an error of the engine if that cannot be done."""
        self._one("SELECT count(*) FROM quota")

    def now(self) -> float:
        """Seconds since 1970, by the clock of all who share the state."""
        return self._keeper.now()

    @contextmanager
    def _taken_along(self) -> Iterator[list[Any]]:
        """Yield notes that are not written yet; the writer of a later note writes them too, in order."""
        yield []

    def _writing(self, scope: str = "") -> AbstractContextManager[Statements]:
        return self._keeper.writing(scope)

    def _one(self, sql: str, *given: object) -> tuple[Any, ...] | None:
        return self._keeper.one(sql, *given)

    def _all(self, sql: str, *given: object) -> list[tuple[Any, ...]]:
        return self._keeper.all(sql, *given)


class _File:
    """One connection to write and one to read, each for one thread at a time: readers never wait for a disk.

    Several processes may share the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._guard, self._looking = threading.Lock(), threading.Lock()
        try:
            self._connection = _connected(private(Path(path)))
            write_ahead(self._connection)
            self._connection.execute("PRAGMA synchronous=FULL")
            held = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if held > tables.VERSION:
                raise LedgerError(f"the service's state was written by a newer Reticent: {path}")
            self._connection.executescript(tables.in_sqlite())
            _migrate(self._connection)
            self._reader = _connected(path)
            self._reader.execute("PRAGMA query_only=ON")
        except (sqlite3.Error, OSError) as error:
            raise opening_error(_WHAT, path, error) from error

    def now(self) -> float:
        return time.time()

    def close(self) -> None:
        with self._guard, self._looking:
            self._connection.close()
            self._reader.close()

    @contextmanager
    def writing(self, scope: str = "") -> Iterator[Statements]:
        with self._guard, explained(_WHAT), writing(self._connection) as connection:
            yield cast(Statements, connection)

    def one(self, sql: str, *given: object) -> tuple[Any, ...] | None:
        with self._looking, explained(_WHAT):
            row: tuple[Any, ...] | None = self._reader.execute(sql, given).fetchone()
        return row

    def all(self, sql: str, *given: object) -> list[tuple[Any, ...]]:
        with self._looking, explained(_WHAT):
            return self._reader.execute(sql, given).fetchall()


def _kept(place: str | os.PathLike[str]) -> Keeper:
    text = os.fsdecode(place)
    if not text.startswith(postgres.ADDRESSES):
        return _File(text)
    database = postgres.Database(text, postgres.beside(text), _WHAT, tables.in_postgresql())
    try:
        with database.writing("settings") as held:
            held.execute(
                "INSERT INTO setting VALUES ('version', ?) ON CONFLICT DO NOTHING", (str(tables.VERSION),)
            )
            version = held.execute("SELECT setting FROM setting WHERE name = 'version'").fetchone()[0]
        if int(version) > tables.VERSION:
            raise LedgerError("the service's state was written by a newer Reticent")
    except BaseException:
        database.close()
        raise
    return database


def _migrate(connection: sqlite3.Connection) -> None:
    """Version 1 kept neither days nor values of questions. Others may do the same at the same time."""
    with writing(connection):
        held = {row[1] for row in connection.execute("PRAGMA table_info(asked)")}
        for column in _SINCE_2:
            if column.split()[0] not in held:
                connection.execute(f"ALTER TABLE asked ADD COLUMN {column}")
        connection.execute(f"PRAGMA user_version={tables.VERSION}")


def _connected(path: str | os.PathLike[str]) -> sqlite3.Connection:
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=60, cached_statements=64
    )
