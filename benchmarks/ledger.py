"""The ledger in SQLite against sqlite3 itself, on the same disk: what charging costs beside bare rows.

The disk is in the working directory's folder `out`; set RETICENT_BENCH_DIR to measure another one.
"""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import sqlite3
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.measure import Figure, cpu_ratio
from reticent.ledger import Amount, SqlLedger, Terms, Unit
from reticent.ledger.base import Order
from reticent.privacy import Neighbours

REPLACE = Neighbours.REPLACE_ONE
ONE = Amount(1_000_000, Unit.MU2, REPLACE)
SINGLES = 200
BATCH = 256
BATCHES = 8
LEAF = "x" * 160  # as long as the log entry of a request


class Sides:
    """A ledger and a bare table, in one new folder."""

    def __init__(self) -> None:
        base = Path(os.environ.get("RETICENT_BENCH_DIR", "out"))
        base.mkdir(exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(dir=base))
        self.numbers = itertools.count()
        self.ledger = SqlLedger(self.folder / "ledger.db")
        self.ledger.open(Terms("a", Unit.MU2, REPLACE, "one person", 1 << 61))
        self.bare = sqlite3.connect(self.folder / "bare.db", isolation_level=None)
        self.bare.execute("PRAGMA journal_mode=WAL")
        self.bare.execute("PRAGMA synchronous=FULL")
        self.bare.execute(
            "CREATE TABLE log (number INTEGER PRIMARY KEY, account INTEGER NOT NULL, key TEXT NOT NULL, "
            "amount INTEGER NOT NULL, nonce BLOB NOT NULL, leaf TEXT NOT NULL)"
        )

    def __enter__(self) -> Sides:
        return self

    def __exit__(self, *exception: object) -> None:
        self.bare.close()
        self.ledger.close()
        shutil.rmtree(self.folder)

    def rows(self, count: int) -> list[tuple[object, ...]]:
        """What a request must leave on the disk at the very least: key, amount, secret, log entry."""
        numbers = itertools.islice(self.numbers, count)
        return [(number, 0, f"visits/{number}", ONE.units, os.urandom(32), LEAF) for number in numbers]

    def insert(self, rows: list[tuple[object, ...]]) -> None:
        self.bare.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)", rows)


def single() -> float:
    """Charges a second, one commit each / one-row FULL commits a second."""
    with Sides() as sides:
        rows, keys = iter(sides.rows(40 * SINGLES)), iter(sides.rows(40 * SINGLES))

        def bare() -> None:
            for row in itertools.islice(rows, SINGLES):
                sides.insert([row])

        def ours() -> None:
            for row in itertools.islice(keys, SINGLES):
                sides.ledger.request("a", str(row[2]), ONE)

        for _ in range(6):  # past the first growth of both logs, of 4 MiB each
            bare(), ours()
        return cpu_ratio(bare, ours, clock=time.perf_counter)


def group() -> float:
    """Charges a second in commits of 256 / rows a second of a bare executemany, 256 to a commit."""
    with Sides() as sides:

        def bare() -> None:
            for _ in range(BATCHES):
                rows = sides.rows(BATCH)
                sides.bare.execute("BEGIN IMMEDIATE")
                sides.insert(rows)
                sides.bare.execute("COMMIT")

        def ours() -> None:
            for _ in range(BATCHES):
                sides.ledger.request_many([Order("a", str(row[2]), ONE) for row in sides.rows(BATCH)])

        bare(), ours()
        return cpu_ratio(bare, ours, clock=time.perf_counter)


class Twin:
    """The tables of a ledger, written without one: what deciding, committing to names and hashing add."""

    def __init__(self, sides: Sides) -> None:
        self.ledger = SqlLedger(sides.folder / "twin.db")
        self.ledger.open(Terms("a", Unit.MU2, REPLACE, "one person", 1 << 61))
        self.writer = self.ledger._store._writer  # type: ignore[attr-defined]
        self.writer.execute("DELETE FROM entry")

    def insert(self, rows: list[tuple[object, ...]]) -> None:
        """The rows of so many charges, in one commit."""
        execute = self.writer.execute
        execute("BEGIN IMMEDIATE")
        if len(rows) == 1:
            execute("SELECT * FROM bought WHERE account = 0 AND name = ?", (rows[0][2],)).fetchone()
        execute("UPDATE account SET spent = spent + ?, seal = seal + 1 WHERE id = 0", (ONE.units,))
        for statement, wanted in (
            (
                "INSERT INTO bought VALUES (?, 0, ?, ?, 0, '', ?, ?, 0)",
                [(n, key, units, f"{n}:{units}", nonce) for n, _, key, units, nonce, _ in rows],
            ),
            (
                "INSERT INTO measurement VALUES (?, ?, ?, NULL, NULL)",
                [(n, n, units) for n, _, _, units, _, _ in rows],
            ),
            ("INSERT INTO entry VALUES (?, ?)", [(row[0], LEAF) for row in rows]),
        ):
            self.writer.executemany(statement, wanted)
        execute("UPDATE head SET size = size + ?, frontier = randomblob(128) WHERE id = 1", (len(rows),))
        execute("COMMIT")


def single_of_same_rows() -> float:
    """Charges a second, one commit each / commits a second of the very rows that the ledger writes."""
    with Sides() as sides:
        twin = Twin(sides)

        def bare() -> None:
            for row in sides.rows(SINGLES):
                twin.insert([row])

        def ours() -> None:
            for row in sides.rows(SINGLES):
                sides.ledger.request("a", str(row[2]), ONE)

        for _ in range(3):  # past the first growth of both logs
            bare(), ours()
        ratio = cpu_ratio(bare, ours, clock=time.perf_counter)
        twin.ledger.close()
        return ratio


def group_of_same_rows() -> float:
    """Charges a second in commits of 256 / a bare executemany of the very rows that the ledger writes."""
    with Sides() as sides:
        twin = Twin(sides)

        def bare() -> None:
            for _ in range(BATCHES):
                twin.insert(sides.rows(BATCH))

        def ours() -> None:
            for _ in range(BATCHES):
                sides.ledger.request_many([Order("a", str(row[2]), ONE) for row in sides.rows(BATCH)])

        bare(), ours()
        ratio = cpu_ratio(bare, ours, clock=time.perf_counter)
        twin.ledger.close()
        return ratio


def threads() -> float:
    """Charges a second of 16 threads that share commits / of one thread."""
    with Sides() as sides:
        one, many = iter(sides.rows(40 * SINGLES)), iter(sides.rows(40 * SINGLES))
        taken = threading.Lock()

        def work(rows: object) -> None:
            while True:
                with taken:
                    row = next(rows, None)  # type: ignore[call-overload]
                if row is None:
                    return
                sides.ledger.request("a", row[2], ONE)

        def together() -> None:
            part = itertools.islice(many, SINGLES)
            crew = [threading.Thread(target=work, args=(part,)) for _ in range(16)]
            for thread in crew:
                thread.start()
            for thread in crew:
                thread.join()

        return cpu_ratio(lambda: work(itertools.islice(one, SINGLES)), together, clock=time.perf_counter)


def memory() -> float:
    """Resident memory after 100,000 requests, in commits of 256, / after the first 10,000."""
    peak = []
    with Sides() as sides:
        for count in (10_000, 90_000):
            for _ in range(count // BATCH):
                sides.ledger.request_many([Order("a", str(row[2]), ONE) for row in sides.rows(BATCH)])
            peak.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return peak[1] / peak[0]


FIGURES = [
    Figure("ledger, single charges", "sqlite3, one-row FULL commits", 0.6, single),
    Figure("ledger, single charges, rows", "sqlite3, commits of same rows", 0.6, single_of_same_rows),
    Figure("ledger, group commit of 256", "sqlite3 executemany, a row each", 0.3, group),
    Figure("ledger, group commit of 256, rows", "sqlite3 executemany, same rows", 0.3, group_of_same_rows),
    Figure("ledger, 16 threads", "one thread", 1.2, threads),
    Figure("ledger, memory of 100,000", "after 10,000", 1.1, memory, at_most=True),
]
