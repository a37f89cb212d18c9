"""Rows that are looked at whenever they are read: whose their file is, and whether it is still the same.

A data set stays open for as long as the service runs. Meanwhile its file may be taken back, or another may
take its place: then nothing is read of it, until the operator assigns it again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from reticent.errors import SourceError
from reticent.query.rows.source import Table


class Held:
    """Rows of a data set, as `query.measure.Rows`.

    Args:
        look: what the file is now; raises SourceError if it may not be read.
        reach: opens it.
    """

    def __init__(self, look: Callable[[], str], reach: Callable[[], Table]) -> None:
        self._look, self._reach = look, reach
        self._guard = threading.Lock()
        self._file, self._table = look(), reach()

    @property
    def relation(self) -> str:
        """What stands after FROM; a file that was assigned anew is opened anew."""
        with self._guard:
            file = self._look()
            if file != self._file:
                table = self._reach()
                self._table.close()
                self._file, self._table = file, table
            return self._table.relation

    @property
    def names(self) -> Mapping[str, str]:
        """The integer column of each declared one."""
        return self._table.names

    @property
    def engine(self) -> str:
        """Whose SQL it takes."""
        return self._table.engine

    def tally(self, sql: str) -> list[tuple[int, ...]]:
        """The rows of one statement, of the file for which it was written and of no other."""
        with self._guard:
            file, table = self._file, self._table
        found = table.tally(sql) if table.relation in sql else None
        if found is None or self._look() != file:  # it was exchanged meanwhile
            raise SourceError
        return found

    def close(self) -> None:
        """Release the connection."""
        with self._guard:
            self._table.close()
