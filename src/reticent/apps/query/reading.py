"""Rows whose file is checked whenever they are read: its owner, and that it is still the same file.

A data set stays open for as long as the service runs. Meanwhile its file may be taken back, or another may
take its place: then nothing is read of it, until the operator assigns it again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from reticent.errors import SourceError
from reticent.query.rows.source import Table


class Held:
    """The rows of a data set, in the form of `query.measure.Rows`.

    Args:
        look: Function that returns the identity of the file now; raises SourceError if it may not be read.
        reach: Function that opens the file.
    """

    def __init__(self, look: Callable[[], str], reach: Callable[[], Table]) -> None:
        self._look, self._reach = look, reach
        self._guard = threading.Lock()
        self._file, self._table = look(), reach()

    @property
    def relation(self) -> str:
        """The relation to write after FROM; a file that was assigned anew is opened anew."""
        with self._guard:
            file = self._look()
            if file != self._file:
                table = self._reach()
                self._table.close()
                self._file, self._table = file, table
            return self._table.relation

    @property
    def names(self) -> Mapping[str, str]:
        """The integer column of each declared column."""
        return self._table.names

    @property
    def engine(self) -> str:
        """The engine whose SQL the rows take."""
        return self._table.engine

    def tally(self, sql: str) -> list[tuple[int, ...]]:
        """Return the rows of one statement, from the file for which it was written and from no other."""
        with self._guard:
            file, table = self._file, self._table
        found = table.tally(sql) if table.relation in sql else None
        if found is None or self._look() != file:  # it was exchanged meanwhile
            raise SourceError
        return found

    def close(self) -> None:
        """Release the connection to the file."""
        with self._guard:
            self._table.close()
