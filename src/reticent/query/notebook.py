"""The engine's own memory beside the ledger: texts of questions, coarser draws, since when a draw is fresh.

Nothing in it is needed to verify the ledger, and nothing in it is more than what was released, or
post-processing of it. Losing it loses the names of earlier questions and, under the policy `degrade`, the
promise that the same coarse request shows the same draw.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from reticent.errors import LedgerError
from reticent.ledger import Reading
from reticent.sqlite import explained, opened

_WHAT = "the notebook"

_TABLES = """
CREATE TABLE IF NOT EXISTS question (key TEXT PRIMARY KEY, asked TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS draw (
    key TEXT NOT NULL, information INTEGER NOT NULL, grid_values TEXT NOT NULL, PRIMARY KEY (key, information)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS since (
    account TEXT NOT NULL, idempotency TEXT NOT NULL, key TEXT NOT NULL, information TEXT NOT NULL,
    pending TEXT NOT NULL, sums TEXT NOT NULL, PRIMARY KEY (account, idempotency)
) WITHOUT ROWID;
"""


class Notebook:
    """A small SQLite file. One connection, one thread at a time; several processes may share the file."""

    def __init__(self, path: str | os.PathLike[str] = ":memory:") -> None:
        self._guard = threading.Lock()
        try:
            self._connection = opened(path)
            self._connection.executescript(_TABLES)
        except (sqlite3.Error, OSError) as error:
            why = getattr(error, "strerror", None) or getattr(error, "sqlite_errorname", type(error).__name__)
            raise LedgerError(f"the notebook cannot be opened ({why}): {path}") from error

    def remember(self, key: str, asked: str) -> None:
        """Keep how a question was first asked."""
        with self._guard, explained(_WHAT):
            self._connection.execute("INSERT OR IGNORE INTO question VALUES (?, ?)", (key, asked))

    def questions(self) -> dict[str, str]:
        """Every question that was ever charged, by key."""
        with self._guard, explained(_WHAT):
            return dict(self._connection.execute("SELECT key, asked FROM question ORDER BY key"))

    def since(self, idempotency: str, before: Reading) -> Reading:
        """What was recorded when a fresh draw was first asked for under a text: `before`, or earlier.

        So whoever asks again, after a crash, asks the ledger for the same and is charged once.
        """
        told = (before.account, idempotency, before.key, str(before.information), str(before.pending))
        with self._guard, explained(_WHAT):
            self._connection.execute(
                "INSERT OR IGNORE INTO since VALUES (?, ?, ?, ?, ?, ?)",
                (*told, ",".join(map(str, before.sums))),
            )
            ((key, information, pending, sums),) = self._connection.execute(
                "SELECT key, information, pending, sums FROM since WHERE account = ? AND idempotency = ?",
                told[:2],
            )
        return kept_reading(before, key, information, pending, sums)

    @contextmanager
    def drawing(self, key: str) -> Iterator[dict[int, list[int]]]:
        """The draws under a key by information; what the block adds is durable when it ends."""
        with self._guard, explained(_WHAT):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                rows = self._connection.execute(
                    "SELECT information, grid_values FROM draw WHERE key = ?", (key,)
                ).fetchall()
                drawn = {units: [int(one) for one in text.split(",")] for units, text in rows}
                known = set(drawn)
                yield drawn
                self._connection.executemany(
                    "INSERT INTO draw VALUES (?, ?, ?)",
                    [(key, units, ",".join(map(str, drawn[units]))) for units in drawn.keys() - known],
                )
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.rollback()
                raise

    def draws(self) -> list[tuple[str, int, str]]:
        """Every draw: its key, its information and its values as they are kept."""
        with self._guard, explained(_WHAT):
            return self._connection.execute("SELECT key, information, grid_values FROM draw").fetchall()

    def close(self) -> None:
        """Close the file."""
        with self._guard:
            self._connection.close()


def kept_reading(before: Reading, key: str, information: str, pending: str, sums: str) -> Reading:
    """What a notebook kept of an earlier look; `before`, if that was at another key: it will be refused."""
    if key != before.key:
        return before
    values = tuple(int(one) for one in sums.split(",")) if sums else ()
    return Reading(before.account, key, int(information), values, int(pending))
