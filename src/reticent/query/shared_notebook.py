"""The notebook of a data set that several servers serve: beside its ledger, in PostgreSQL.

One for all of them: under the policy `degrade` the same coarse request must show the same draw, whichever
server is asked. Whether a data set's notebook is there is noted there, so that a command at the declaration's
home finds it too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reticent import postgres
from reticent.query.idempotent_requests import RequestNote
from reticent.query.notebook import Notebook, read_request_note, request_columns

TABLES = (
    "CREATE TABLE IF NOT EXISTS notebook (dataset TEXT PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS question ("
    "dataset TEXT NOT NULL, key TEXT NOT NULL, asked TEXT NOT NULL, PRIMARY KEY (dataset, key))",
    "CREATE TABLE IF NOT EXISTS draw ("
    "dataset TEXT NOT NULL, key TEXT NOT NULL, information BIGINT NOT NULL, grid_values TEXT NOT NULL, "
    "PRIMARY KEY (dataset, key, information))",
    "CREATE TABLE IF NOT EXISTS request ("
    "dataset TEXT NOT NULL, idempotency TEXT NOT NULL, key TEXT NOT NULL, wanted TEXT NOT NULL, "
    "amount TEXT NOT NULL, fresh INTEGER NOT NULL, information TEXT NOT NULL, pending TEXT NOT NULL, "
    "sums TEXT NOT NULL, charged INTEGER NOT NULL, "
    "PRIMARY KEY (dataset, idempotency, key, wanted, amount, fresh))",
)
_NOTE_REQUEST = (
    "INSERT INTO request VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (dataset, idempotency, key, wanted, amount, fresh) "
    "DO UPDATE SET charged = greatest(request.charged, excluded.charged)"
)


class SharedNotebook:
    """The pages of one data set, in a database that others use too.

    Args:
        database: with `TABLES`.
        dataset: its name.
        is_own: whether the database is closed with it.
    """

    def __init__(self, database: postgres.Database, dataset: str, *, is_own: bool = False) -> None:
        self._database, self._dataset, self._is_own = database, dataset, is_own

    def remember(self, key: str, asked: str) -> None:
        """Keep how a question was first asked."""
        self._database.put(
            "INSERT INTO question VALUES (?, ?, ?) ON CONFLICT DO NOTHING", self._dataset, key, asked
        )

    def questions(self) -> dict[str, str]:
        """Every question that was ever charged, by key."""
        asked = self._database.all(
            "SELECT key, asked FROM question WHERE dataset = ? ORDER BY key", self._dataset
        )
        return dict(asked)

    def note_request(self, idempotency: str, note: RequestNote) -> None:
        """Keep an amount under a text; a charged one stays charged (`idempotent_requests`)."""
        self._database.put(_NOTE_REQUEST, self._dataset, idempotency, *request_columns(note))

    def request_notes(self, idempotency: str) -> list[RequestNote]:
        """Return the amounts that the ledger was asked for under a text."""
        rows = self._database.all(
            "SELECT key, wanted, amount, fresh, information, pending, sums, charged FROM request "
            "WHERE dataset = ? AND idempotency = ?",
            *(self._dataset, idempotency),
        )
        return [read_request_note(*row) for row in rows]

    @contextmanager
    def drawing(self, key: str) -> Iterator[dict[int, list[int]]]:
        """The draws under a key by information; what the block adds is durable when it ends.

        No other server draws under this key meanwhile.
        """
        with self._database.writing(f"draw {self._dataset}\n{key}") as held:
            rows = held.execute(
                "SELECT information, grid_values FROM draw WHERE dataset = ? AND key = ?",
                (self._dataset, key),
            ).fetchall()
            drawn = {units: [int(one) for one in text.split(",")] for units, text in rows}
            known = set(drawn)
            yield drawn
            held.executemany(
                "INSERT INTO draw VALUES (?, ?, ?, ?)",
                [
                    (self._dataset, key, units, ",".join(map(str, drawn[units])))
                    for units in drawn.keys() - known
                ],
            )

    def take(self, other: Notebook) -> None:
        """Take over what a notebook in a file holds, and be the data set's notebook from now on."""
        with self._database.writing(f"notebook {self._dataset}") as held:
            held.executemany(
                "INSERT INTO question VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                [(self._dataset, key, asked) for key, asked in other.questions().items()],
            )
            held.executemany(
                "INSERT INTO draw VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                [(self._dataset, *one) for one in other.draws()],
            )
            held.executemany(_NOTE_REQUEST, [(self._dataset, *row) for row in other.all_requests()])
            held.execute("INSERT INTO notebook VALUES (?) ON CONFLICT DO NOTHING", (self._dataset,))

    def close(self) -> None:
        """Close the database, if it is nobody else's."""
        if self._is_own:
            self._database.close()


def opened(ledger: str, dataset: str, path: str | os.PathLike[str]) -> Notebook | SharedNotebook:
    """The notebook of a data set: beside its ledger in PostgreSQL if servers share it, else the file.

    Args:
        ledger: where its ledger is.
        dataset: its name.
        path: of the file.
    """
    if ledger.startswith(postgres.ADDRESSES) and postgres.has_table(
        ledger, postgres.beside(ledger), "notebook"
    ):
        database = postgres.Database(ledger, postgres.beside(ledger), "the notebook", TABLES)
        if database.one("SELECT 1 FROM notebook WHERE dataset = ?", dataset) is not None:
            return SharedNotebook(database, dataset, is_own=True)
        database.close()
    return Notebook(Path(path))
