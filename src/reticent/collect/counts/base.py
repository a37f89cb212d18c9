"""The contract of a collector's store.

A store holds the surveys, which reporter was counted in which period (`seen`), how often each symbol came
(`tally`), and how many reports were refused for which reason. A transaction is written as a whole or not at
all, and is on a disk when `writing` ends. If two transactions, in any processes, note the same reporter in
the same period, exactly one of them learns that the reporter is new. So each report is counted once, and
`see` and `add` belong into one transaction.

A new store is a subclass and a line in `opened`; tests/unit/collect/test_counts.py is run on each.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reticent.collect.wire import Outcome

AGAIN = "the collection cannot be used now: send again what was not acknowledged"
REPORTS = -1  # stands for "any symbol": how many reports hold the attribute

Cell = tuple[int, int, int, int, int]  # survey, period, attribute, symbol, group


class Counts(ABC):
    """The store of a collector. `number` is the number of a survey in the store."""

    @abstractmethod
    def close(self) -> None:
        """Close the store; what was written stays."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[object]:
        """Open a transaction, for one thread at a time. If it fails, nothing of it is written.

        Raises:
            StorageUnavailable: the transaction could not be written, or a server was lost and the result is
                unknown.
        """

    # Within `writing`

    @abstractmethod
    def hold_surveys(self) -> None:
        """Lock the surveys: no other transaction may add one before this transaction ends."""

    @abstractmethod
    def collect(self, identity: bytes, text: bytes, file: bytes) -> None:
        """Store a survey, after `hold_surveys`; if it is stored already, store its newer file."""

    @abstractmethod
    def see(self, number: int, periods: NDArray[np.int64], who: NDArray[np.uint8]) -> list[Outcome] | None:
        """Note who reports (reporter and nonce, 16 bytes in a row); return None if all are new.

        Otherwise return the outcome of each: COUNTED if new, DUPLICATE if this very report came before,
        SECOND if the reporter sent another, PERIOD if the period is closed for ever.
        """

    @abstractmethod
    def add(self, cells: Mapping[Cell, int]) -> None:
        """Add to the counts of cells."""

    @abstractmethod
    def refuse(self, reasons: Mapping[str, int]) -> None:
        """Add to the numbers of refused reports."""

    @abstractmethod
    def forget(self, number: int, first: int) -> int:
        """Close all periods before `first` for ever, forget who reported there, and return how many did."""

    # Reading, which never waits for writers

    @abstractmethod
    def surveys(self, after: int) -> Sequence[tuple[int, bytes, bytes]]:
        """Return number, id and text of surveys above a number, in order; no smaller one appears later."""

    @abstractmethod
    def file(self, number: int) -> bytes:
        """Return the signed file of a survey."""

    @abstractmethod
    def closed(self, number: int) -> int:
        """Return the first period that is not closed for ever."""

    @abstractmethod
    def counted(self, number: int, first: int, last: int, reporter: bytes) -> Sequence[int]:
        """Return the periods of a range in which a reporter was counted."""

    @abstractmethod
    def tally(self, number: int, periods: Sequence[int] | None) -> Sequence[tuple[int, int, int, int]]:
        """Return attribute, symbol, group and count of some or all periods; a cell may occur repeatedly."""

    @abstractmethod
    def reports(self, number: int) -> Sequence[tuple[int, int]]:
        """Return each period with the number of attribute values that its reports held."""

    @abstractmethod
    def refused(self) -> Mapping[str, int]:
        """Return the number of refused reports by reason."""

    def revoked(self) -> Sequence[bytes]:
        """Return the enrolments that an earlier release revoked in this store."""
        return ()


def opened(where: str | os.PathLike[str], master: bytes) -> Counts:
    """Open the store at a path, or at an address of PostgreSQL.

    Args:
        where: Path or address of the store.
        master: Master key from which devices' keys are derived. A database belongs to one master key:
            machines with another key, whose devices no other machine would know, are refused.

    Raises:
        LedgerError: it cannot be opened, a newer Reticent wrote it, or it is another master's.
    """
    from reticent.fleet.database import is_address

    if is_address(where):
        from reticent.collect.counts.postgres import PostgresCounts

        return PostgresCounts(os.fsdecode(where), master)
    from reticent.collect.counts.sqlite import SqliteCounts

    return SqliteCounts(Path(where))
