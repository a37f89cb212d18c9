"""The engine's own memory beside the ledger: texts of questions, and draws of coarser answers.

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
from reticent.sqlite import explained, opened

_WHAT = "the notebook"

_TABLES = """
CREATE TABLE IF NOT EXISTS question (key TEXT PRIMARY KEY, asked TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS draw (
    key TEXT NOT NULL, information INTEGER NOT NULL, grid_values TEXT NOT NULL, PRIMARY KEY (key, information)
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
