"""Counts in one SQLite file, which several processes of one machine may use. Open it after forking."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from reticent.collect.counts.base import AGAIN, REPORTS, Cell, Counts
from reticent.collect.wire import Outcome
from reticent.errors import LedgerDamaged, LedgerError, StorageUnavailable
from reticent.files import FULL, is_out_of_space, private
from reticent.sqlite import PATIENCE_S, write_ahead, writing

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
_COLLECT = (
    "INSERT INTO survey (id, text, file) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE "
    "SET file = excluded.file WHERE text = excluded.text"
)
_SEE = "INSERT OR IGNORE INTO seen VALUES (?, ?, ?, ?)"
_SEE_MANY = (  # reporters and nonces, 16 bytes each, one after the other
    "INSERT OR IGNORE INTO seen "
    "WITH RECURSIVE row(at) AS (VALUES (1) UNION ALL SELECT at + 16 FROM row WHERE at + 16 < ?4) "
    "SELECT ?1, ?2, substr(?3, at, 8), substr(?3, at + 8, 8) FROM row"
)
_SEEN = "SELECT nonce FROM seen WHERE survey = ? AND period = ? AND reporter = ?"
_COUNTED = (  # by the table's key: it has a row for every reporter
    "WITH RECURSIVE open(period) AS (VALUES (?1) UNION ALL SELECT period + 1 FROM open WHERE period < ?2) "
    "SELECT period FROM open WHERE period <= ?2 AND EXISTS "
    "(SELECT 1 FROM seen WHERE survey = ?3 AND seen.period = open.period AND reporter = ?4)"
)
_COUNT = "INSERT INTO tally VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n"
_REJECT = "INSERT INTO rejected VALUES (?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n"
_TALLY = "SELECT attribute, symbol, cohort, sum(n) FROM tally WHERE survey = ? {} GROUP BY 1, 2, 3"


class SqliteCounts(Counts):
    """The store in a file, created if it is missing, readable by its owner alone."""

    def __init__(self, path: Path) -> None:
        self._looking = threading.Lock()
        with ExitStack() as opened:
            self.connection = _opened(path, opened)
            self.reader = _connected(path, opened)
            opened.pop_all()

    def close(self) -> None:
        """Close the file."""
        with self._looking:
            self.connection.close()
            self.reader.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Open a transaction that has the right to write from its beginning."""
        with _told(), writing(self.connection):
            yield

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._looking, _told():
            yield self.reader

    def hold_surveys(self) -> None:
        """Do nothing: no other transaction can write in any case."""

    def collect(self, identity: bytes, text: bytes, file: bytes) -> None:
        """Store a survey."""
        self.connection.execute(_COLLECT, (identity, text, file))

    def see(self, number: int, periods: NDArray[np.int64], who: NDArray[np.uint8]) -> list[Outcome] | None:
        """Note who reports: all at once, and one by one if some came before."""
        run = self.connection.execute
        (closed,) = run("SELECT closed FROM survey WHERE number = ?", (number,)).fetchone()
        if periods.min() >= closed:
            run("SAVEPOINT many")
            before = self.connection.total_changes
            for period in np.unique(periods).tolist():
                rows = np.sort(who[periods == period].view("S16"), axis=0).tobytes()  # as the table is
                run(_SEE_MANY, (number, period, rows, len(rows)))
            if self.connection.total_changes - before == len(who):
                run("RELEASE many")
                return None
            run("ROLLBACK TO many")
            run("RELEASE many")
        return [
            Outcome.PERIOD if period < closed else self._see_one(number, period, row.tobytes())
            for period, row in zip(periods.tolist(), who, strict=True)
        ]

    def _see_one(self, survey: int, period: int, row: bytes) -> Outcome:
        reporter, nonce = row[:8], row[8:]
        if self.connection.execute(_SEE, (survey, period, reporter, nonce)).rowcount == 1:
            return Outcome.COUNTED
        (before,) = self.connection.execute(_SEEN, (survey, period, reporter)).fetchone()
        return Outcome.DUPLICATE if before == nonce else Outcome.SECOND

    def add(self, cells: Mapping[Cell, int]) -> None:
        """Add to the counts of cells."""
        self.connection.executemany(_COUNT, [(*cell, n) for cell, n in cells.items()])

    def refuse(self, reasons: Mapping[str, int]) -> None:
        """Add to the numbers of refused reports."""
        self.connection.executemany(_REJECT, list(reasons.items()))

    def forget(self, number: int, first: int) -> int:
        """Close periods, and forget who reported there."""
        run, of = self.connection.execute, (first, number)
        run("UPDATE survey SET closed = max(closed, ?) WHERE number = ?", of)
        return run("DELETE FROM seen WHERE period < ? AND survey = ?", of).rowcount

    def surveys(self, after: int) -> Sequence[tuple[int, bytes, bytes]]:
        """Return the surveys above a number."""
        sql = "SELECT number, id, text FROM survey WHERE number > ? ORDER BY number"
        with self._reading() as reader:
            return reader.execute(sql, (after,)).fetchall()

    def file(self, number: int) -> bytes:
        """Return the signed file of a survey."""
        with self._reading() as reader:
            found = reader.execute("SELECT file FROM survey WHERE number = ?", (number,)).fetchone()
        return cast(bytes, found[0])

    def closed(self, number: int) -> int:
        """Return the first period that is open."""
        with self._reading() as reader:
            found = reader.execute("SELECT closed FROM survey WHERE number = ?", (number,)).fetchone()
        return int(found[0])

    def counted(self, number: int, first: int, last: int, reporter: bytes) -> Sequence[int]:
        """Return the periods in which a reporter was counted."""
        with self._reading() as reader:
            return [int(one) for (one,) in reader.execute(_COUNTED, (first, last, number, reporter))]

    def tally(self, number: int, periods: Sequence[int] | None) -> Sequence[tuple[int, int, int, int]]:
        """Return the counts of cells."""
        with self._reading() as reader:
            if periods is None:
                return reader.execute(_TALLY.format(""), (number,)).fetchall()
            of_one = _TALLY.format("AND period = ?")
            return [row for period in periods for row in reader.execute(of_one, (number, period))]

    def reports(self, number: int) -> Sequence[tuple[int, int]]:
        """Return the number of attribute values in reports, by period."""
        sql = "SELECT period, sum(n) FROM tally WHERE survey = ? AND symbol = ? GROUP BY period"
        with self._reading() as reader:
            return reader.execute(sql, (number, REPORTS)).fetchall()

    def refused(self) -> Mapping[str, int]:
        """Return the number of refused reports by reason."""
        with self._reading() as reader:
            return dict(reader.execute("SELECT reason, n FROM rejected").fetchall())

    def revoked(self) -> Sequence[bytes]:
        """Return the enrolments that an earlier release revoked in this file."""
        with self._reading() as reader:
            return [bytes(one) for (one,) in reader.execute("SELECT reporter FROM revoked ORDER BY number")]


def _connected(path: Path, opened: ExitStack) -> sqlite3.Connection:
    with _told():
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=PATIENCE_S)
        opened.callback(connection.close)
        return connection


def _opened(path: Path, opened: ExitStack) -> sqlite3.Connection:
    """Open the connection that writes, and create the tables if needed."""
    with _told():
        private(path)
    connection = _connected(path, opened)
    with _told():
        write_ahead(connection)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA secure_delete=ON")
        if _version(connection) < _VERSION:
            connection.execute("BEGIN IMMEDIATE")
            if _version(connection) < _VERSION:  # no other process created them meanwhile
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
def _told() -> Iterator[None]:
    """Translate errors of SQLite and the disk: their messages could quote a row."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise LedgerDamaged("the collection's file is damaged") from error
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        raise StorageUnavailable(f"{AGAIN} ({FULL if is_out_of_space(error) else name})") from error
