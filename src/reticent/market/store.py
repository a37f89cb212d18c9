"""The store of a market in one SQLite file: bills, money that is held, and the reports that were sold.

The collector keeps counts only; a buyer of reports gets the reports, so they are kept here. A report is
stored once, then paid for in the ledger, then marked as paid; only what is marked is given to the buyer. The
file's own sums (what is held, what is sold of each bill) keep holds within the deposit; the ledger's cap
keeps payments within it whatever this file says.

Several processes may use one file. Open it after forking.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from reticent.collect.survey import Survey
from reticent.collect.wire import Layout
from reticent.errors import (
    AccountConflict,
    GuaranteeError,
    LedgerDamaged,
    LedgerError,
    ParameterError,
    ParameterTypeError,
)
from reticent.fleet.published import Published
from reticent.market.bills import Bill
from reticent.sqlite import explained, opened, writing

Text = TypeVar("Text", bound=Published)

STORED, PAID, REFUSED = range(3)  # what became of a sale
OPEN, CLOSING, CLOSED = range(3)  # what became of a bill
_VERSION = 1
_TOGETHER = 500  # sales in one statement
_TABLES = """
CREATE TABLE bill (
    number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, text BLOB NOT NULL, file BLOB NOT NULL,
    buyer TEXT NOT NULL, deposit INTEGER NOT NULL, hold_s INTEGER NOT NULL,
    funded INTEGER NOT NULL DEFAULT 0, state INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0, sold INTEGER NOT NULL DEFAULT 0,
    CHECK (held >= 0 AND sold >= 0 AND held + sold <= deposit)
) STRICT;
CREATE TABLE level (
    bill INTEGER NOT NULL, place INTEGER NOT NULL, id BLOB NOT NULL UNIQUE, text BLOB NOT NULL,
    file BLOB NOT NULL, PRIMARY KEY (bill, place)
) WITHOUT ROWID, STRICT;
CREATE TABLE hold (
    number INTEGER PRIMARY KEY, bill INTEGER NOT NULL, id BLOB NOT NULL, place INTEGER NOT NULL,
    cents INTEGER NOT NULL, expires INTEGER NOT NULL, asked INTEGER NOT NULL, UNIQUE (bill, id)
) STRICT;
CREATE INDEX hold_ends ON hold (bill, expires);
CREATE TABLE sale (
    number INTEGER PRIMARY KEY, bill INTEGER NOT NULL, id BLOB NOT NULL, place INTEGER NOT NULL,
    cents INTEGER NOT NULL, report BLOB NOT NULL, state INTEGER NOT NULL DEFAULT 0, UNIQUE (bill, id)
) STRICT;
"""
_ADD = "INSERT INTO bill (id, text, file, buyer, deposit, hold_s) VALUES (?, ?, ?, ?, ?, ?)"
_NEWER = "SELECT number, id, text, buyer, deposit, hold_s FROM bill WHERE number > ? ORDER BY number"
_PURSE = "SELECT deposit, funded, state, held, sold FROM bill WHERE number = ?"


@dataclass(frozen=True)
class HeldBill:
    """A bill that is traded here.

    Attributes:
        number: Number of the bill's row.
        bill: Bill itself.
        layouts: Layout of the reports of each level.
        buyer: Buyer who gets what is sold.
        deposit: Deposit in cents.
        hold_s: Seconds for which money is held for a device.
    """

    number: int
    bill: Bill
    layouts: tuple[Layout, ...]
    buyer: str
    deposit: int
    hold_s: int

    @cached_property
    def surveys(self) -> tuple[Survey, ...]:
        """The surveys of the levels."""
        return tuple(one.survey for one in self.layouts)


@dataclass
class Purse:
    """The money of a bill that is held and sold, for a caller that has the right to write."""

    deposit: int
    funded: bool
    state: int
    held: int
    sold: int

    @property
    def left(self) -> int:
        """The cents that are free."""
        return self.deposit - self.held - self.sold


class OpenHold(NamedTuple):
    """Money that is held for a sale.

    Attributes:
        id: Id of the sale.
        place: Index of the level.
        cents: Cents that are held.
        expires: Time at which the hold ends, in seconds since 1970.
        asked: Time at which the device asked, by its clock, in milliseconds.
    """

    id: bytes
    place: int
    cents: int
    expires: int
    asked: int


class Sold(NamedTuple):
    """A row of what was sold."""

    bill: int
    id: bytes
    place: int
    cents: int
    state: int


class SaleStore:
    """The file of a market.

    Args:
        path: made if there is none, readable by its owner alone.

    Raises:
        LedgerError: it cannot be used, or a newer Reticent wrote it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._guard, self._known = threading.RLock(), dict[bytes, HeldBill]()
        self._newest = 0
        self.by_survey: dict[bytes, tuple[HeldBill, int]] = {}
        with _told():
            self._base = opened(path)
            self._make(path)

    def _make(self, path: str | os.PathLike[str]) -> None:
        with writing(self._base):
            (version,) = self._base.execute("PRAGMA user_version").fetchone()
            if version > _VERSION:
                raise LedgerError(f"the market's file was written by a newer Reticent: {os.fspath(path)!r}")
            if not version:
                for statement in filter(str.strip, _TABLES.split(";")):
                    self._base.execute(statement)
                self._base.execute(f"PRAGMA user_version={_VERSION}")

    def close(self) -> None:
        """Close the file."""
        with self._guard:
            self._base.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it is on the disk when it ends, or none of it is written."""
        with self._guard, _told(), writing(self._base) as base:
            yield base

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time."""
        with self._guard, _told():
            yield self._base

    # Bills

    def add(
        self,
        bill: Bill,
        file: bytes,
        surveys: Sequence[tuple[Survey, bytes]],
        *,
        buyer: str,
        deposit: int,
        hold_s: int,
    ) -> HeldBill:
        """Keep a bill with its surveys; keeping the same again changes nothing.

        Raises:
            AccountConflict: it is here with another deposit, or of another buyer.
        """
        with self.writing() as base:
            if base.execute("SELECT 1 FROM bill WHERE id = ?", (bill.id,)).fetchone() is None:
                row = (bill.id, bill.text, file, buyer, deposit, hold_s)
                number = base.execute(_ADD, row).lastrowid
                base.executemany(
                    "INSERT INTO level VALUES (?, ?, ?, ?, ?)",
                    [
                        (number, place, one.id, one.text, signed)
                        for place, (one, signed) in enumerate(surveys)
                    ],
                )
        held = self.bills()[bill.id]
        if (held.buyer, held.deposit, held.hold_s) != (buyer, deposit, hold_s):
            raise AccountConflict(f"bill {bill.name} is here already, with another deposit or buyer")
        return held

    def bills(self) -> dict[bytes, HeldBill]:
        """All bills by their ids, in the order in which they came, from whichever process."""
        with self.reading() as base:
            for number, identity, text, buyer, deposit, hold_s in base.execute(
                _NEWER, (self._newest,)
            ).fetchall():
                bill = _unchanged(Bill, identity, text)
                levels = base.execute("SELECT id, text FROM level WHERE bill = ? ORDER BY place", (number,))
                layouts = tuple(Layout(_unchanged(Survey, one, kept)) for one, kept in levels)
                if tuple(one.survey.id for one in layouts) != bill.surveys:
                    raise LedgerDamaged("the market's file holds a bill whose surveys were changed")
                held = HeldBill(number, bill, layouts, buyer, deposit, hold_s)
                self._known[bill.id] = held
                for place, survey in enumerate(bill.surveys):
                    self.by_survey[survey] = (held, place)
                self._newest = number
            return self._known

    def files(self, held: HeldBill) -> tuple[bytes, list[bytes]]:
        """Return the signed bill, and its signed surveys."""
        with self.reading() as base:
            (file,) = base.execute("SELECT file FROM bill WHERE number = ?", (held.number,)).fetchone()
            rows = base.execute("SELECT file FROM level WHERE bill = ? ORDER BY place", (held.number,))
            return file, [one for (one,) in rows]

    def purse(self, held: HeldBill) -> Purse:
        """Return the money of a bill that is held and sold."""
        with self.reading() as base:
            deposit, funded, state, kept, sold = base.execute(_PURSE, (held.number,)).fetchone()
        return Purse(deposit, bool(funded), state, kept, sold)

    def keep(self, held: HeldBill, purse: Purse) -> None:
        """Write the changed purse of a bill; call this within a transaction."""
        self._base.execute(
            "UPDATE bill SET funded = ?, state = ?, held = ?, sold = ? WHERE number = ?",
            (int(purse.funded), purse.state, purse.held, purse.sold, held.number),
        )

    # Sales

    def release(self, held: HeldBill, purse: Purse, now: int) -> None:
        """Free the money of holds that have ended; call this within a transaction."""
        ended = self._base.execute(
            "DELETE FROM hold WHERE bill = ? AND expires <= ? RETURNING cents", (held.number, now)
        ).fetchall()
        purse.held -= sum(cents for (cents,) in ended)

    def holds_of(self, held: HeldBill, identities: Sequence[bytes]) -> dict[bytes, OpenHold]:
        """Return the holds of some sales, ended or not; call this within a transaction."""
        rows = self._of(held, "SELECT id, place, cents, expires, asked FROM hold", identities)
        return {row[0]: OpenHold(*row) for row in rows}

    def sales_of(
        self, held: HeldBill, identities: Sequence[bytes]
    ) -> dict[bytes, tuple[int, int, bytes, int]]:
        """Return place, cents, report and state of the stored sales; call this within a transaction."""
        rows = self._of(held, "SELECT id, place, cents, report, state FROM sale", identities)
        return {row[0]: row[1:] for row in rows}

    def _of(self, held: HeldBill, statement: str, identities: Sequence[bytes]) -> Iterator[tuple[Any, ...]]:
        """The rows that a statement finds for some sales of a bill, many at a time."""
        for first in range(0, len(identities), _TOGETHER):
            part = identities[first : first + _TOGETHER]
            marks = ",".join("?" * len(part))
            yield from self._base.execute(
                f"{statement} WHERE bill = ? AND id IN ({marks})", (held.number, *part)
            ).fetchall()

    def put_sales(self, held: HeldBill, sales: list[tuple[int, bytes, int, int, bytes, int]]) -> None:
        """Store sales instead of their holds; call this within a transaction."""
        list(self._of(held, "DELETE FROM hold", [row[1] for row in sales]))
        self._base.executemany("INSERT INTO sale VALUES (NULL, ?, ?, ?, ?, ?, ?)", sales)

    def put_holds(self, held: HeldBill, holds: Iterable[OpenHold]) -> None:
        """Replace the holds of these sales; call this within a transaction."""
        self._base.executemany(
            "INSERT OR REPLACE INTO hold VALUES (NULL, ?, ?, ?, ?, ?, ?)",
            [(held.number, one.id, one.place, one.cents, one.expires, one.asked) for one in holds],
        )

    def held_cents(self, held: HeldBill) -> int:
        """Return the cents of a bill that are held in all, summed hold by hold."""
        with self.reading() as base:
            (found,) = base.execute(
                "SELECT coalesce(sum(cents), 0) FROM hold WHERE bill = ?", (held.number,)
            ).fetchone()
        return int(found)

    def stored(self, held: HeldBill | None = None) -> list[Sold]:
        """Sales that are neither paid nor refused: of a bill, or all."""
        sql = "SELECT bill, id, place, cents, state FROM sale WHERE state = ?"
        with self.reading() as base:
            if held is None:
                rows = base.execute(sql, (STORED,)).fetchall()
            else:
                rows = base.execute(f"{sql} AND bill = ?", (STORED, held.number)).fetchall()
        return [Sold(*row) for row in rows]

    def sales(self, held: HeldBill) -> Iterator[tuple[Sold, bytes]]:
        """Every sale of a bill, with its report."""
        with self.reading() as base:
            rows = base.execute(
                "SELECT bill, id, place, cents, state, report FROM sale WHERE bill = ?", (held.number,)
            ).fetchall()
        return ((Sold(*row[:5]), row[5]) for row in rows)

    def reports(self, held: HeldBill, place: int) -> list[bytes]:
        """Return the reports of a level that were paid for."""
        with self.reading() as base:
            rows = base.execute(
                "SELECT report FROM sale WHERE bill = ? AND place = ? AND state = ?",
                (held.number, place, PAID),
            ).fetchall()
        return [one for (one,) in rows]

    def counts(self, held: HeldBill) -> list[int]:
        """Return the number of reports of each level that were paid for."""
        with self.reading() as base:
            rows = base.execute(
                "SELECT place, count(*) FROM sale WHERE bill = ? AND state = ? GROUP BY place",
                (held.number, PAID),
            ).fetchall()
        found = dict(rows)
        return [found.get(place, 0) for place in range(len(held.layouts))]

    def sale(self, held: HeldBill, identity: bytes) -> Sold | None:
        """Return the sale of an id, if there is one."""
        with self.reading() as base:
            row = base.execute(
                "SELECT bill, id, place, cents, state FROM sale WHERE bill = ? AND id = ?",
                (held.number, identity),
            ).fetchone()
        return None if row is None else Sold(*row)

    def mark(self, sales: Sequence[tuple[Sold, int]]) -> None:
        """Note what became of stored sales."""
        alike: dict[tuple[int, int], list[bytes]] = {}
        for one, state in sales:
            alike.setdefault((state, one.bill), []).append(one.id)
        with self.writing() as base:
            for key, identities in alike.items():
                for first in range(0, len(identities), _TOGETHER):
                    part = identities[first : first + _TOGETHER]
                    marks = ",".join("?" * len(part))
                    base.execute(
                        f"UPDATE sale SET state = ? WHERE bill = ? AND state = 0 AND id IN ({marks})",  # noqa: S608
                        (*key, *part),
                    )


@contextmanager
def _told() -> Iterator[None]:
    """Report errors of SQLite in our own words: SQLite's words could quote a row."""
    try:
        with explained("the market's file"):
            yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", type(error).__name__)
        raise LedgerDamaged(f"the market's file is damaged ({code})") from error


def _unchanged(kind: type[Text], identity: bytes, text: bytes) -> Text:
    try:
        found = kind.parse(text)
    except (ParameterError, ParameterTypeError, GuaranteeError):
        found = None
    if found is None or found.id != identity:
        raise LedgerDamaged(f"the market's file holds a {kind.what} that was changed")
    return found
