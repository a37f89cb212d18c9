"""The history of questions and answers."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from datetime import UTC, datetime

from reticent.errors import CommitUnknown
from reticent.service.state.file import StateFile, Statements

_MOST_NOTES = 10_000  # that wait to be written together; jobs.Jobs writes them twice a second


@dataclass(frozen=True)
class Asked:
    """A question that was answered: what it was, what it cost with and without reuse, what was said.

    Attributes:
        day: on which it was asked, in UTC; empty if it was asked before days were kept. No finer, so that it
            tells nothing of how long an answer took.
        cells: numbers of the answer; 0 if it was given before they were kept.
        value, low, high: of an answer that is one number.
    """

    number: int
    dataset: str
    person: str
    query: str
    case: str
    cost: int
    without_reuse: int
    spent: int
    day: str = ""
    cells: int = 0
    value: float | None = None
    low: float | None = None
    high: float | None = None


def today() -> str:
    """The day, in UTC."""
    return datetime.now(UTC).date().isoformat()


class History(StateFile):
    """Questions, the newest in memory until several are written together."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._notes: deque[Asked] = deque()
        super().__init__(path)

    def close(self) -> None:
        """Close the file, with every note written."""
        self.flush()
        super().close()

    def note(self, one: Asked) -> None:
        """Remember a question that cost nothing; its number is given later. Many are written together."""
        self._notes.append(one)
        if len(self._notes) >= _MOST_NOTES:
            self.flush()

    def flush(self) -> None:
        """Write the notes that wait."""
        if not self._notes:
            return
        with self._taken_along() as notes, self._writing("notes") as connection:
            insert_notes(connection, notes)

    @contextmanager
    def _taken_along(self) -> Iterator[list[Asked]]:
        notes = [self._notes.popleft() for _ in range(len(self._notes))]
        try:
            yield notes
        except CommitUnknown:
            raise  # they may be there already
        except BaseException:
            self._notes.extendleft(reversed(notes))
            raise

    def history(self, dataset: str, most: int = 1000) -> list[Asked]:
        """The last questions about a data set, the oldest first."""
        self.flush()
        rows = self._all("SELECT * FROM asked WHERE dataset = ? ORDER BY number DESC LIMIT ?", dataset, most)
        return [Asked(*row) for row in reversed(rows)]


def insert_notes(connection: Statements, notes: list[Asked]) -> None:
    """Write questions; each is given its number."""
    connection.executemany(
        "INSERT INTO asked (dataset, person, query, cased, cost, without_reuse, spent, "
        "day, cells, value, low, high) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [astuple(one)[1:] for one in notes],
    )
