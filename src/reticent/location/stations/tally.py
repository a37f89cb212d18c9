"""Hourly counts of reported places at a provider, from which forecasts are made.

A provider keeps nothing of a query unless it has this file, which its owner must ask for. A point that comes
again, sent once more by a vehicle or an edge, is the same bytes, and counts once: digests of sealed points
are kept for as long as they may come again.

Privacy: places as the channel reported them, companions and cover among them; nobody's name is known here.
    It is post-processing of reports that vehicles paid for.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.sqlite import explained, opened, writing

FILE = "seen.sqlite"
HOUR_S = 3600
_AGAIN_H = 48  # for how long a point is known; no period is longer
_DIGEST_BYTES = 16
_TABLES = (
    "CREATE TABLE IF NOT EXISTS point (digest BLOB PRIMARY KEY, hour INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS seen (hour INTEGER, place INTEGER, count INTEGER NOT NULL, "
    "PRIMARY KEY (hour, place)) WITHOUT ROWID",
)


class Tally:
    """The counts of reported places in a provider's folder.

    Args:
        folder: Folder of the provider.
        clock: Clock in seconds since 1970.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._clock, self._guard = clock, threading.Lock()
        with explained("what was reported"):
            self._base = opened(folder / FILE)
            for table in _TABLES:
                self._base.execute(table)

    @classmethod
    def kept(cls, folder: Path, *, clock: Callable[[], float] = time.time) -> Tally | None:
        """Open the counts of a folder, or return None if its owner did not ask for them."""
        return cls(folder, clock=clock) if (folder / FILE).exists() else None

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def add(self, points: Iterable[tuple[bytes, int]]) -> None:
        """Count points, each once.

        Args:
            points: Pairs of a sealed point and its reported place.

        Raises:
            StorageUnavailable: The file cannot be written; nothing was counted.
        """
        hour = int(self._clock()) // HOUR_S
        with explained("what was reported"), self._guard, writing(self._base):
            self._base.execute("DELETE FROM point WHERE hour < ?", (hour - _AGAIN_H,))
            for sealed, place in points:
                digest = hashlib.sha256(sealed).digest()[:_DIGEST_BYTES]
                row = self._base.execute("INSERT OR IGNORE INTO point VALUES (?, ?)", (digest, hour))
                if row.rowcount:
                    self._base.execute(
                        "INSERT INTO seen VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET count = count + 1",
                        (hour, place),
                    )

    def counts(self, size: int, hours: int) -> NDArray[np.int64]:
        """Return how often each place was reported in the last whole hours and in the current one.

        Args:
            size: Number of places.
            hours: Number of past hours.
        """
        first = self._first(hours)
        found = np.zeros(size, dtype=np.int64)
        look = "SELECT place, SUM(count) FROM seen WHERE hour >= ? AND place BETWEEN 0 AND ? GROUP BY place"
        with explained("what was reported"), self._guard:
            rows = self._base.execute(look, (first, size - 1)).fetchall()
        for place, count in rows:
            found[place] = count
        return found

    def minutes(self, hours: int) -> float:
        """Return the minutes that these counts cover: from the first hour with a report until now."""
        look = "SELECT MIN(hour) FROM seen WHERE hour >= ?"
        with explained("what was reported"), self._guard:
            (begun,) = self._base.execute(look, (self._first(hours),)).fetchone()
        now = self._clock()
        return max(1.0, (now - HOUR_S * (now // HOUR_S if begun is None else begun)) / 60.0)

    def _first(self, hours: int) -> int:
        return int(self._clock()) // HOUR_S - whole("hours", hours, low=0, high=24 * 366)
