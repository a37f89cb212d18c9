"""Counts in PostgreSQL, which collectors on many machines share; the database counts each report once.

A row of `collected_seen` is unique for (survey, period, reporter), and it is written in the transaction that
adds to the counts. If two collectors bring the same report at once, the second waits at the index for the
first. Then it sees a duplicate, or counts the report if the first gave up.

Collectors do not wait for each other at the counts: each connection adds to rows of its own (`lane`), which
are summed when somebody looks. A lane is claimed by a lock of the session, so that the server frees it when a
collector dies; two that share one would wait for each other, and count no less right. Rows are written in the
order of their keys, so that two transactions wait for each other in one direction; where they do not
(surveys in another order), PostgreSQL ends one and it is done again.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from reticent.collect.counts.base import REPORTS, Cell, Counts
from reticent.collect.wire import Outcome
from reticent.errors import LedgerError
from reticent.fleet.database import Database

LANES = 64
_VERSION = 1
_TABLES = """
CREATE TABLE collected_version (version INTEGER NOT NULL, master BYTEA NOT NULL);
CREATE TABLE collected_survey (
    number INTEGER PRIMARY KEY, id BYTEA NOT NULL UNIQUE, text BYTEA NOT NULL, file BYTEA NOT NULL,
    closed BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE collected_seen (
    survey INTEGER NOT NULL, period BIGINT NOT NULL, reporter BYTEA NOT NULL, nonce BYTEA NOT NULL,
    PRIMARY KEY (survey, period, reporter)
);
CREATE TABLE collected_tally (
    survey INTEGER NOT NULL, period BIGINT NOT NULL, attribute INTEGER NOT NULL, symbol INTEGER NOT NULL,
    cohort INTEGER NOT NULL, lane INTEGER NOT NULL, n BIGINT NOT NULL,
    PRIMARY KEY (survey, period, attribute, symbol, cohort, lane)
) WITH (fillfactor = 50);
CREATE TABLE collected_rejected (
    reason TEXT NOT NULL, lane INTEGER NOT NULL, n BIGINT NOT NULL, PRIMARY KEY (reason, lane)
) WITH (fillfactor = 50)
"""
_HAS = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = 'collected_version'"
# Locks of a transaction or a session, by a number for the schema and one for what is locked there.
_OF = "pg_catalog.hashtext(pg_catalog.current_schema())"
_ALONE = f"SELECT pg_advisory_xact_lock({_OF}, %s)"
_TOGETHER = f"SELECT pg_advisory_xact_lock_shared({_OF}, %s)"
_SURVEYS = -1  # locked while a survey is added, so that numbers come in order
_LANE = (  # below all surveys
    "SELECT lane FROM generate_series(0, %s) AS lane WHERE pg_try_advisory_lock("
    "pg_catalog.hashtext(pg_catalog.current_schema()), -2 - lane) LIMIT 1"
)
_COLLECT = (
    "INSERT INTO collected_survey (number, id, text, file) "
    "SELECT coalesce(max(number), 0) + 1, %s, %s, %s FROM collected_survey "
    "ON CONFLICT (id) DO UPDATE SET file = excluded.file WHERE collected_survey.text = excluded.text"
)
_SEE = (  # reporters and nonces, 16 bytes each, one after the other
    "WITH new AS (INSERT INTO collected_seen SELECT %s, %s, substr(given, at, 8), substr(given, at + 8, 8) "
    "FROM (SELECT %s::bytea AS given) AS one, generate_series(1, %s, 16) AS at "
    "ON CONFLICT DO NOTHING RETURNING reporter) "
    "SELECT count(*), CASE WHEN count(*) < %s THEN string_agg(reporter, '') END FROM new"
)
_SEEN = "SELECT reporter, nonce FROM collected_seen WHERE survey = %s AND period = %s AND reporter = ANY(%s)"
_ADD = (
    "INSERT INTO collected_tally (survey, period, attribute, symbol, cohort, n, lane) SELECT *, %s FROM "
    "unnest(%s::int[], %s::bigint[], %s::int[], %s::int[], %s::int[], %s::bigint[]) "
    "ON CONFLICT (survey, period, attribute, symbol, cohort, lane) "
    "DO UPDATE SET n = collected_tally.n + excluded.n"
)
_REFUSE = (
    "INSERT INTO collected_rejected (reason, n, lane) SELECT *, %s FROM unnest(%s::text[], %s::bigint[]) "
    "ON CONFLICT (reason, lane) DO UPDATE SET n = collected_rejected.n + excluded.n"
)
_TALLY = (
    "SELECT attribute, symbol, cohort, sum(n)::bigint FROM collected_tally WHERE survey = %s {} "
    "GROUP BY attribute, symbol, cohort"
)


class PostgresCounts(Counts):
    """The store at an address of PostgreSQL, for the devices of one master key."""

    def __init__(self, url: str, master: bytes) -> None:
        self._base = Database(url, what="the collection")
        self._connection: Any = None  # that of the transaction
        self._lane: tuple[Any, int] = (None, 0)
        try:
            self._make(hmac.digest(master, b"reticent: whose collection", "sha256"))
        except BaseException:
            self._base.close()
            raise

    def _make(self, mark: bytes) -> None:
        with self._base.making() as connection:
            if connection.execute(_HAS, (self._base.schema,)).fetchone() is None:
                connection.execute(_TABLES)
                connection.execute("INSERT INTO collected_version VALUES (%s, %s)", (_VERSION, mark))
            version, whose = connection.execute("SELECT version, master FROM collected_version").fetchone()
        if version > _VERSION:
            raise LedgerError("the collection was written by a newer Reticent")
        if not hmac.compare_digest(whose, mark):
            raise LedgerError("the collection is for devices of another master key: bring that enrolment.key")

    def close(self) -> None:
        """Close the connections."""
        self._base.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Open a transaction."""
        with self._base.writing() as self._connection:
            yield

    def _own_lane(self) -> int:
        """Return the lane of this connection."""
        connection, lane = self._lane
        if connection is not self._connection:
            found = self._connection.execute(_LANE, (LANES - 1,)).fetchone()
            lane = found[0] if found else self._connection.info.backend_pid % LANES
            self._lane = self._connection, lane
        return lane

    def hold_surveys(self) -> None:
        """Lock the surveys, so that they appear in the order of their numbers."""
        self._connection.execute(_ALONE, (_SURVEYS,))

    def collect(self, identity: bytes, text: bytes, file: bytes) -> None:
        """Store a survey."""
        self._connection.execute(_COLLECT, (identity, text, file))

    def see(self, number: int, periods: NDArray[np.int64], who: NDArray[np.uint8]) -> list[Outcome] | None:
        """Note who reports. No other transaction forgets reporters meanwhile."""
        run = self._connection.execute
        run(_TOGETHER, (number,))
        (closed,) = run("SELECT closed FROM collected_survey WHERE number = %s", (number,)).fetchone()
        found: list[Outcome] = [Outcome.COUNTED] * len(who)
        for period in np.unique(periods).tolist():
            rows = np.flatnonzero(periods == period)
            told = [Outcome.PERIOD] * len(rows) if period < closed else self._see(number, period, who[rows])
            for row, outcome in zip(rows.tolist(), told or (), strict=told is not None):
                found[row] = outcome
        return None if found.count(Outcome.COUNTED) == len(found) else found

    def _see(self, number: int, period: int, who: NDArray[np.uint8]) -> list[Outcome] | None:
        """Note who reports in one period."""
        ids = np.ascontiguousarray(who[:, :8]).view(">u8").ravel()
        _, first = np.unique(ids, return_index=True)  # the first report of each reporter
        rows = who[first].tobytes()
        n, new = self._connection.execute(
            _SEE, (number, period, rows, len(rows), len(first)), binary=True
        ).fetchone()
        if n == len(who):
            return None
        written, width = (rows, 16) if n == len(first) else (new or b"", 8)
        is_new = {written[at : at + 8] for at in range(0, len(written), width)}
        reports = [(row[:8].tobytes(), row[8:].tobytes()) for row in who]
        before = dict(reports[place] for place in first.tolist())
        others = [one for one in before if one not in is_new]
        if others:
            before |= self._connection.execute(_SEEN, (number, period, others), binary=True).fetchall()
        counted = {place for place in first.tolist() if reports[place][0] in is_new}
        return [
            Outcome.COUNTED
            if place in counted
            else (Outcome.DUPLICATE if before[reporter] == nonce else Outcome.SECOND)
            for place, (reporter, nonce) in enumerate(reports)
        ]

    def add(self, cells: Mapping[Cell, int]) -> None:
        """Add to the counts of cells, in the lane of this connection."""
        if cells:
            columns = zip(*((*cell, n) for cell, n in sorted(cells.items())), strict=True)
            self._connection.execute(_ADD, (self._own_lane(), *map(list, columns)))

    def refuse(self, reasons: Mapping[str, int]) -> None:
        """Add to the numbers of refused reports."""
        if reasons:
            columns = zip(*sorted(reasons.items()), strict=True)
            self._connection.execute(_REFUSE, (self._own_lane(), *map(list, columns)))

    def forget(self, number: int, first: int) -> int:
        """Close periods, once no transaction counts that saw them open, and forget who reported there."""
        run = self._connection.execute
        run(_ALONE, (number,))
        run("UPDATE collected_survey SET closed = greatest(closed, %s) WHERE number = %s", (first, number))
        done = run("DELETE FROM collected_seen WHERE survey = %s AND period < %s", (number, first))
        return int(done.rowcount)

    def surveys(self, after: int) -> Sequence[tuple[int, bytes, bytes]]:
        """Return the surveys above a number."""
        sql = "SELECT number, id, text FROM collected_survey WHERE number > %s ORDER BY number"
        return cast(Sequence[tuple[int, bytes, bytes]], self._rows(sql, (after,)))

    def file(self, number: int) -> bytes:
        """Return the signed file of a survey."""
        return cast(bytes, self._rows("SELECT file FROM collected_survey WHERE number = %s", (number,))[0][0])

    def closed(self, number: int) -> int:
        """Return the first period that is open."""
        return int(self._rows("SELECT closed FROM collected_survey WHERE number = %s", (number,))[0][0])

    def counted(self, number: int, first: int, last: int, reporter: bytes) -> Sequence[int]:
        """Return the periods in which a reporter was counted, looked up by the key of the table."""
        sql = (
            "SELECT at FROM generate_series(%s::bigint, %s::bigint) AS at WHERE EXISTS "
            "(SELECT 1 FROM collected_seen WHERE survey = %s AND period = at AND reporter = %s)"
        )
        return [int(one) for (one,) in self._rows(sql, (first, last, number, reporter))]

    def tally(self, number: int, periods: Sequence[int] | None) -> Sequence[tuple[int, int, int, int]]:
        """Return the counts of cells, summed over all lanes."""
        if periods is None:
            found = self._rows(_TALLY.format(""), (number,))
        else:
            found = self._rows(_TALLY.format("AND period = ANY(%s)"), (number, list(periods)))
        return cast(Sequence[tuple[int, int, int, int]], found)

    def reports(self, number: int) -> Sequence[tuple[int, int]]:
        """Return the number of attribute values in reports, by period."""
        sql = (
            "SELECT period, sum(n)::bigint FROM collected_tally "
            "WHERE survey = %s AND symbol = %s GROUP BY period"
        )
        return cast(Sequence[tuple[int, int]], self._rows(sql, (number, REPORTS)))

    def refused(self) -> Mapping[str, int]:
        """Return the number of refused reports by reason."""
        rows = self._rows("SELECT reason, sum(n)::bigint FROM collected_rejected GROUP BY reason", ())
        return dict(cast(Sequence[tuple[str, int]], rows))

    def _rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._base.looking() as connection:
            return list(connection.execute(sql, values, binary=True).fetchall())
