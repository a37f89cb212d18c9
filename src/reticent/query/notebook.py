"""The query history beside the ledger: texts of questions, coarser draws, requests that may be retried.

Nothing in it is needed to verify the ledger, and it contains only released values and post-processing of
them. Losing it loses the names of earlier questions and, under the policy `degrade`, the promise that the
same coarse request shows the same draw.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from reticent.ledger import Reading
from reticent.query.idempotent_requests import RequestNote
from reticent.sqlite import explained, opened, opening_error

_WHAT = "the notebook"

_TABLES = """
CREATE TABLE IF NOT EXISTS question (key TEXT PRIMARY KEY, asked TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS draw (
    key TEXT NOT NULL, information INTEGER NOT NULL, grid_values TEXT NOT NULL, PRIMARY KEY (key, information)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS request (
    idempotency TEXT NOT NULL, key TEXT NOT NULL, wanted TEXT NOT NULL, amount TEXT NOT NULL,
    fresh INTEGER NOT NULL, information TEXT NOT NULL, pending TEXT NOT NULL, sums TEXT NOT NULL,
    charged INTEGER NOT NULL, PRIMARY KEY (idempotency, key, wanted, amount, fresh)
) WITHOUT ROWID;
"""


class Notebook:
    """A query history in a small SQLite file: one thread at a time; several processes may share the file."""

    def __init__(self, path: str | os.PathLike[str] = ":memory:") -> None:
        self._guard = threading.Lock()
        try:
            self._connection = opened(path)
            self._connection.executescript(_TABLES)
        except (sqlite3.Error, OSError) as error:
            raise opening_error(_WHAT, path, error) from error

    def remember(self, key: str, asked: str) -> None:
        """Store the text in which a question was first asked."""
        with self._guard, explained(_WHAT):
            self._connection.execute("INSERT OR IGNORE INTO question VALUES (?, ?)", (key, asked))

    def questions(self) -> dict[str, str]:
        """Return every question that was ever charged, by key."""
        with self._guard, explained(_WHAT):
            return dict(self._connection.execute("SELECT key, asked FROM question ORDER BY key"))

    def note_request(self, idempotency: str, note: RequestNote) -> None:
        """Store an amount under a text; a charged amount stays charged (`idempotent_requests`)."""
        with self._guard, explained(_WHAT):
            self._connection.execute(
                "INSERT INTO request VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET charged = max(charged, excluded.charged)",
                (idempotency, *request_columns(note)),
            )

    def request_notes(self, idempotency: str) -> list[RequestNote]:
        """Return the amounts that were requested from the ledger under a text."""
        with self._guard, explained(_WHAT):
            rows = self._connection.execute(
                "SELECT key, wanted, amount, fresh, information, pending, sums, charged FROM request "
                "WHERE idempotency = ?",
                (idempotency,),
            ).fetchall()
        return [read_request_note(*row) for row in rows]

    def all_requests(self) -> list[tuple[str | int, ...]]:
        """Return every stored row of the requests to the ledger."""
        with self._guard, explained(_WHAT):
            return self._connection.execute("SELECT * FROM request").fetchall()

    @contextmanager
    def drawing(self, key: str) -> Iterator[dict[int, list[int]]]:
        """Yield the draws under a key by information; draws that the block adds are durable when it ends."""
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
        """Return every draw: its key, its information and its values as stored."""
        with self._guard, explained(_WHAT):
            return self._connection.execute("SELECT key, information, grid_values FROM draw").fetchall()

    def close(self) -> None:
        """Close the file."""
        with self._guard:
            self._connection.close()


def request_columns(note: RequestNote) -> tuple[str | int, ...]:
    """Return a note as its stored columns, without its text; whole numbers of any length are texts."""
    units, position = (note.key, str(note.wanted), str(note.amount)), note.position
    if position is None:
        return (*units, 0, "0", "0", "", int(note.is_charged))
    sums = ",".join(map(str, position.sums))
    return (*units, 1, str(position.information), str(position.pending), sums, int(note.is_charged))


def read_request_note(
    key: str, wanted: str, amount: str, fresh: int, information: str, pending: str, sums: str, charged: int
) -> RequestNote:
    """Parse a note from its stored columns; its position names no account."""
    values = tuple(int(value) for value in sums.split(",")) if sums else ()
    position = Reading("", key, int(information), values, int(pending)) if fresh else None
    return RequestNote(key, int(wanted), int(amount), position, bool(charged))
