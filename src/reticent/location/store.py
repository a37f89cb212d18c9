"""Reports of places, each counted once: one SQLite table, whose key is the round and the reporter.

What is acknowledged is durable. The reports are private already; still, who reported is kept, so that nobody
reports twice, and is nobody else's business: the file is readable by its owner alone.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reticent.errors import ParameterError
from reticent.fleet.counted import Counted
from reticent.fleet.intake import Intake
from reticent.fleet.operator import Operator
from reticent.location import payload
from reticent.location.payload import Outcome
from reticent.location.rounds import PlaceRound, round_of
from reticent.sqlite import opened, writing

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rounds (number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, file BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS reports (
    round INTEGER NOT NULL, reporter BLOB NOT NULL, cell INTEGER NOT NULL, PRIMARY KEY (round, reporter)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS refusals (reason TEXT PRIMARY KEY, count INTEGER NOT NULL);
"""


class ReportStore:
    """The rounds of one campaign and the reports that came in.

    Args:
        path: Path of the database; made if there is none.
        operator: Operator who knows the devices.
    """

    def __init__(self, path: str | os.PathLike[str], operator: Operator) -> None:
        self._intake = Intake(operator.master, operator.revocations)
        place = Path(path)
        self._base = opened(place)
        self._base.executescript(_SCHEMA)
        # One thread at a time on the one connection: a read would see what another has not committed yet,
        # and would end with what another takes back.
        self._guard = threading.RLock()
        self._rounds: dict[int, PlaceRound] = {}

    def close(self) -> None:
        """Give the database up."""
        self._base.close()

    def __enter__(self) -> ReportStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self, file: bytes) -> PlaceRound:
        """Open the next round; the same file again changes nothing."""
        found = round_of(file)
        with self._guard, writing(self._base):
            held = self.rounds()
            if held and (held[0].name, held[0].grid) != (found.name, found.grid):
                raise ParameterError(f"round must be one of {held[0].name} on its grid, got {found.name}")
            if found.number < len(held) and held[found.number].id == found.id:
                return found
            if found.number != len(held):
                raise ParameterError(f"number must be {len(held)}, the next round, got {found.number}")
            self._base.execute("INSERT INTO rounds VALUES (?, ?, ?)", (found.number, found.id, file))
        return found

    def rounds(self) -> list[PlaceRound]:
        """Every round that was published, in order."""
        with self._guard:
            for number, file in self._base.execute(
                "SELECT number, file FROM rounds WHERE number >= ? ORDER BY number", (len(self._rounds),)
            ):
                self._rounds[number] = round_of(file)
            return [self._rounds[number] for number in range(len(self._rounds))]

    def file(self, number: int) -> bytes | None:
        """Return the signed file of a round."""
        with self._guard:
            row = self._base.execute("SELECT file FROM rounds WHERE number = ?", (number,)).fetchone()
        return None if row is None else bytes(row[0])

    def add(self, reports: Sequence[bytes]) -> list[Outcome]:
        """Count reports of the last round, in one transaction; each reporter once. No report raises."""
        published = self.rounds()
        if not published:
            return [Outcome.ROUND] * len(reports)
        asked = published[-1]
        form = payload.form(asked)
        outcomes, admitted = self._intake.admitted(reports, form)
        with self._guard, writing(self._base):
            last = self._base.execute("SELECT MAX(number) FROM rounds").fetchone()[0]
            for place in (place for alike in admitted for place in alike.places.tolist()):
                cell = payload.cell_of(asked, reports[place])
                if cell is None:
                    outcomes[place] = Outcome.CELL
                elif last != asked.number:  # it ended meanwhile: its count is known
                    outcomes[place] = Outcome.ROUND
                else:
                    outcomes[place] = self._counted(asked.number, reports[place][form.reporter], cell)
            refused = Counter(one.value for one in outcomes if one is not Outcome.COUNTED)
            self._base.executemany(
                "INSERT INTO refusals VALUES (?, ?) "
                "ON CONFLICT (reason) DO UPDATE SET count = count + excluded.count",
                sorted(refused.items()),
            )
        return outcomes

    def reporter(self, report: bytes) -> bytes | None:
        """Return the reporter of a report of the last round, if the report may count."""
        asked = self.rounds()[-1]
        self._intake.look()
        who = self._intake.reporter(report, payload.form(asked))
        return None if who is None or payload.cell_of(asked, report) is None else who

    def _counted(self, number: int, reporter: bytes, cell: int) -> Outcome:
        row = (number, reporter, cell)
        if self._base.execute("INSERT OR IGNORE INTO reports VALUES (?, ?, ?)", row).rowcount:
            return Outcome.COUNTED
        held = self._base.execute(
            "SELECT cell FROM reports WHERE round = ? AND reporter = ?", (number, reporter)
        ).fetchone()
        return Outcome.DUPLICATE if held[0] == cell else Outcome.SECOND

    def counts(self, number: int) -> NDArray[np.int64]:
        """Return the count of each cell's reports in a round."""
        found = np.zeros(self.rounds()[number].grid.size, dtype=np.int64)
        with self._guard:
            rows = self._base.execute(
                "SELECT cell, COUNT(*) FROM reports WHERE round = ? GROUP BY cell", (number,)
            ).fetchall()
        for cell, count in rows:
            found[cell] = count
        return found

    def reports(self, number: int) -> int:
        """Return the number of reports that were counted in a round."""
        with self._guard:
            sql = "SELECT COUNT(*) FROM reports WHERE round = ?"
            return int(self._base.execute(sql, (number,)).fetchone()[0])

    def counted(self, reporter: bytes) -> Counted:
        """Return the rounds in which an enrolment was counted."""
        with self._guard:
            published = self.rounds()
            held = [
                one.number
                for one in published
                if self._base.execute(
                    "SELECT 1 FROM reports WHERE round = ? AND reporter = ?", (one.number, reporter)
                ).fetchone()
            ]
        name, closed = (published[-1].name, published[-1].number) if published else ("", 0)
        return Counted(f"campaign:{name}", reporter, tuple(held), closed)

    def refusals(self) -> dict[str, int]:
        """Reports that were not counted, by reason."""
        with self._guard:
            return dict(self._base.execute("SELECT reason, count FROM refusals ORDER BY reason").fetchall())
