"""What a collector keeps, whatever keeps it, and what it may rely on.

A store holds the surveys, which reporter was counted in which period (`seen`), how often each symbol came
(`tally`), and how many reports were refused for which reason. What one transaction does to them is there
whole or not at all, and is on a disk when `writing` ends. Of two transactions that see the same reporter in
the same period, in whichever processes, exactly one is told that it is new: that is what counts each report
once, so `see` and `add` belong into one transaction.

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
    """The store of a collector. `number` is that of a survey here."""

    @abstractmethod
    def close(self) -> None:
        """Close it; what was written stays."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[object]:
        """A transaction, for one thread at a time. If it fails, nothing of it is written.

        Raises:
            StorageUnavailable: it could not be written, or, of a server, it is not known whether it was.
        """

    # Within `writing`

    @abstractmethod
    def hold_surveys(self) -> None:
        """Let nobody else hold a new survey before this transaction ends."""

    @abstractmethod
    def collect(self, identity: bytes, text: bytes, file: bytes) -> None:
        """Hold a survey, after `hold_surveys`; of one that is held, its newer file."""

    @abstractmethod
    def see(self, number: int, periods: NDArray[np.int64], who: NDArray[np.uint8]) -> list[Outcome] | None:
        """Note who reports (reporter and nonce, 16 bytes in a row); None if all are new.

        Else what became of each: COUNTED if new, DUPLICATE if this very report came before, SECOND if the
        reporter sent another, PERIOD if the period is closed for ever.
        """

    @abstractmethod
    def add(self, cells: Mapping[Cell, int]) -> None:
        """Add to the numbers of cells."""

    @abstractmethod
    def refuse(self, reasons: Mapping[str, int]) -> None:
        """Add to the numbers of refused reports."""

    @abstractmethod
    def forget(self, number: int, first: int) -> int:
        """Close all periods before one for ever, and forget who reported there; returns how many did."""

    # Looking, which waits for nobody who writes

    @abstractmethod
    def surveys(self, after: int) -> Sequence[tuple[int, bytes, bytes]]:
        """Number, id and text of the surveys with a higher number, in order; none comes before them later."""

    @abstractmethod
    def file(self, number: int) -> bytes:
        """The signed file of a survey."""

    @abstractmethod
    def closed(self, number: int) -> int:
        """The first period that is not closed for ever."""

    @abstractmethod
    def counted(self, number: int, first: int, last: int, reporter: bytes) -> Sequence[int]:
        """The periods of a range in which a reporter was counted."""

    @abstractmethod
    def tally(self, number: int, periods: Sequence[int] | None) -> Sequence[tuple[int, int, int, int]]:
        """Attribute, symbol, group and number, of some periods or of all; one may come more than once."""

    @abstractmethod
    def reports(self, number: int) -> Sequence[tuple[int, int]]:
        """Period, and how often a report held an attribute there."""

    @abstractmethod
    def refused(self) -> Mapping[str, int]:
        """How many reports were refused, by reason."""

    def revoked(self) -> Sequence[bytes]:
        """Enrolments that an earlier release took back in this store."""
        return ()


def opened(where: str | os.PathLike[str], master: bytes) -> Counts:
    """The store at a path, or at an address of PostgreSQL.

    Args:
        where: it is.
        master: the secret from which devices' keys come. A database is for one: machines with another, whose
            devices nobody else would know, are refused.

    Raises:
        LedgerError: it cannot be opened, a newer Reticent wrote it, or it is another master's.
    """
    from reticent.fleet.database import is_address

    if is_address(where):
        from reticent.collect.counts.postgres import PostgresCounts

        return PostgresCounts(os.fsdecode(where), master)
    from reticent.collect.counts.sqlite import SqliteCounts

    return SqliteCounts(Path(where))
