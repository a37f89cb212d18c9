"""Rows of the SQL ledger in a transaction: the head, accounts, and purchases under a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zlib import crc32

from reticent.errors import (
    LedgerDamaged,
)
from reticent.ledger import entries
from reticent.ledger.base import Measurement, Reading, Recorded, Terms, Unit
from reticent.ledger.merkle import Frontier
from reticent.ledger.sql.store import Store
from reticent.privacy import Neighbours

ACCOUNT_COLUMNS = "id, name, unit, neighbours, subject, cap, minimum, spent, nonce"
BOUGHT_COLUMNS = "id, account, name, requested, information, sums, waiting, nonce, seal"
WORDED = (
    "SELECT b.name, q.wording FROM question q JOIN bought b ON b.id = q.bought WHERE b.account = ? "
    "ORDER BY q.bought"
)
WORDED_SINCE = (
    "SELECT b.name, q.wording FROM measurement m JOIN question q ON q.bought = m.bought "
    "JOIN bought b ON b.id = m.bought WHERE m.number >= ? AND b.account = ? ORDER BY m.number"
)
_TOGETHER = 256  # keys looked up in one query
_HEAD = "SELECT size, accounts, keys, measurements, frontier, seal FROM head WHERE id = 1"


def stored_bytes(given: object) -> bytes:
    """Return a stored byte string as `bytes`, or raise LedgerDamaged.

    `bytes` of a number planted there would allocate that much memory.
    """
    if isinstance(given, (bytes, memoryview)):
        return bytes(given)
    raise LedgerDamaged("something else is stored where bytes should be")


def _head_seal(size: int, accounts: int, keys: int, measurements: int, frontier: bytes) -> int:
    return crc32(b"%d %d %d %d %b" % (size, accounts, keys, measurements, frontier))


def read_head(store: Store, locking: str = "") -> tuple[int, int, int, int, Frontier]:
    """Return the numbers of entries, accounts, keys and measurements, and the right edge of the log."""
    row = store.one(_HEAD + locking)
    if row is None:
        raise LedgerDamaged("the ledger has no head")
    size, accounts, keys, measurements, frontier, seal = row
    counts = (size, accounts, keys, measurements)
    try:
        edge = stored_bytes(frontier)
        if any(type(count) is not int for count in counts) or _head_seal(*counts, edge) != seal:
            raise ValueError
        hashes = [edge[i : i + 32] for i in range(0, len(edge), 32)]
        return size, accounts, keys, measurements, Frontier(size, hashes)
    except (LedgerDamaged, ValueError) as error:
        raise LedgerDamaged("the ledger's head is damaged") from error


def make_head(store: Store) -> None:
    """Write the head of an empty log."""
    store.run(
        "INSERT INTO head (id, size, accounts, keys, measurements, frontier, seal) "
        "VALUES (1, 0, 0, 0, 0, ?, ?)",
        (b"", _head_seal(0, 0, 0, 0, b"")),
    )


@lru_cache(maxsize=4096)
def _terms(name: str, unit: str, neighbours: str, subject: str, cap: int, minimum: int) -> Terms:
    return Terms(name, Unit(unit), Neighbours[neighbours], subject, cap, minimum)


class Account:
    """A row of the table `account`."""

    __slots__ = ("_begun", "_rest", "id", "new", "nonce", "spent", "terms")

    def __init__(self, id: int, terms: Terms, spent: int, nonce: bytes, *, new: bool = False) -> None:  # noqa: A002
        self.id, self.terms, self.spent, self.nonce = id, terms, spent, nonce
        self.new = new
        # The sealed text before and after `spent` never changes.
        self._begun = crc32(f"{id} {terms.cap} {terms.minimum} ".encode())
        self._rest = f" {terms.unit.value} {terms.neighbours.name} {terms.name} {terms.subject}"

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> Account:
        """Build the account from a row of ACCOUNT_COLUMNS and seal, or raise LedgerDamaged."""
        number, name, unit, neighbours, subject, cap, minimum, spent, nonce, seal = row
        try:
            terms = _terms(name, unit, neighbours, subject, cap, minimum)
            found = cls(number, terms, spent, stored_bytes(nonce))
            if found.seal() != seal:
                raise ValueError
        except (KeyError, LedgerDamaged, TypeError, ValueError) as error:
            raise LedgerDamaged(f"the row of account {number} is damaged") from error
        return found

    def seal(self) -> int:
        """Return the checksum of the row, against torn pages."""
        return crc32(f"{self.spent}{self._rest}".encode(), self._begun)

    def row(self) -> tuple[Any, ...]:
        """Return the fields in order of ACCOUNT_COLUMNS, and the seal."""
        t = self.terms
        unit, neighbours = t.unit.value, t.neighbours.name
        return (
            *(self.id, t.name, unit, neighbours, t.subject, t.cap, t.minimum, self.spent, self.nonce),
            self.seal(),
        )


class Bought:
    """A purchase: the information bought under a key, a row of the table `bought`."""

    __slots__ = (
        *("account", "id", "information", "name", "new", "nonce", "requested", "sums"),
        *("void", "waiting"),
    )

    def __init__(self, id: int, account: int, name: str, nonce: bytes) -> None:  # noqa: A002
        self.id, self.account, self.name, self.nonce = id, account, name, nonce
        self.requested = self.information = 0
        self.sums = ""
        self.waiting: dict[int, int] = {}  # number -> information
        self.void: dict[int, int] = {}  # number -> information of closed measurements; not in `requested`
        self.new = True

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> Bought:
        """Build the purchase from a row of BOUGHT_COLUMNS, or raise LedgerDamaged."""
        number, account, name, requested, information, sums, waiting, nonce, seal = row
        try:
            found = cls(number, account, name, stored_bytes(nonce))
            found.requested, found.information, found.sums = requested, information, sums
            if waiting:
                found._wait(waiting)
            if found.seal(requested, waiting) != seal:
                raise ValueError
        except (AttributeError, LedgerDamaged, TypeError, ValueError) as error:
            raise LedgerDamaged(f"the row of key {number} is damaged") from error
        found.new = False
        return found

    def _wait(self, waiting: str) -> None:
        """Parse the column `waiting`, after `requested` is set as stored."""
        pairs = [pair.split(":") for pair in waiting.split(",")]
        listed = {int(one): int(amount) for one, amount in pairs}
        self.waiting = {one: amount for one, amount in listed.items() if amount > 0}
        self.void = {one: -amount for one, amount in listed.items() if amount <= 0}
        self.requested -= sum(self.void.values())

    @property
    def paid(self) -> int:
        """Units ever charged under the key; `requested` leaves out closed measurements."""
        return self.requested + sum(self.void.values()) if self.void else self.requested

    def close(self, number: int) -> None:
        """Close a pending measurement without values: its charge no longer buys anything."""
        amount = self.void[number] = self.waiting.pop(number)
        self.requested -= amount

    def seal(self, paid: int, waiting: str) -> int:
        """Return the checksum of the row, against torn pages, from the stored `paid` and `waiting`."""
        text = f"{self.id} {self.account} {paid} {self.information} {waiting} {self.sums} {self.name}"
        return crc32(text.encode())

    def sealed(self) -> tuple[int, str, int]:
        """Return the units paid, the pending measurements and the checksum, as stored."""
        paid, listed = self.requested, self.waiting
        if self.void:
            paid, closed = self.paid, {number: -amount for number, amount in self.void.items()}
            listed = dict(sorted({**self.waiting, **closed}.items()))
        if len(listed) == 1:  # nearly always
            ((number, amount),) = listed.items()
            waiting = f"{number}:{amount}"
        else:
            waiting = ",".join([f"{number}:{amount}" for number, amount in listed.items()])
        return paid, waiting, self.seal(paid, waiting)

    def pending(self, account: str) -> tuple[Measurement, ...]:
        """Return the pending measurements under the key."""
        if len(self.waiting) == 1:  # nearly always
            ((number, amount),) = self.waiting.items()
            return (Measurement(number, account, self.name, amount, False),)
        name = self.name
        return tuple([Measurement(n, account, name, amount, False) for n, amount in self.waiting.items()])

    def reading(self, account: str) -> Reading:
        """Return the reading of the key, with exact sums."""
        pending = self.requested - self.information
        return Reading(account, self.name, self.information, entries.values_of(self.sums), pending)


def recorded(store: Store, account: str, number: int, keys: Sequence[str]) -> list[Recorded]:
    """Return the readings of keys of an account (name and number), in a view that is open already."""
    found: dict[str, Recorded] = {}
    for start in range(0, len(keys), _TOGETHER):
        some = list(keys[start : start + _TOGETHER])
        some += some[-1:] * ((1 << (len(some) - 1).bit_length()) - len(some))  # few distinct statements
        marks = ", ".join("?" * len(some))
        rows = store.all(
            f"SELECT b.{BOUGHT_COLUMNS.replace(', ', ', b.')}, q.numbers FROM bought b "  # noqa: S608
            f"LEFT JOIN question q ON q.bought = b.id WHERE b.account = ? AND b.name IN ({marks})",
            (number, *some),
        )
        for *row, numbers in rows:
            under = Bought.of(tuple(row))
            try:
                listed = tuple(int(one) for one in numbers.split(",")) if numbers else ()
            except (AttributeError, ValueError) as error:
                raise LedgerDamaged(f"the question of key {under.id} is damaged") from error
            found[under.name] = Recorded(under.reading(account), listed)
    return [found.get(key) or Recorded(Reading(account, key, 0, (), 0), ()) for key in keys]


def _request_entry(under: Bought, number: int, charge: int) -> str:
    """Encode a "request" entry as `entries.encode` does, but faster: a busy ledger mostly writes these."""
    secret = entries.commitment(under.nonce, under.name)
    return (
        f'{{"account":"{under.account}","charged":"{charge}","commitment":"{secret}",'
        f'"key":"{under.id}","measurement":"{number}","type":"request"}}'
    )


@dataclass
class Carried:
    """The state at the end of a transaction, valid for the next one if nobody else wrote in between."""

    stamp: tuple[int, int]
    made: tuple[int, int, int]
    frontier: Frontier
    accounts: dict[str, Account]

    def holds_at(self, stamp: tuple[int, int] | None) -> bool:
        """Return whether the transaction with this stamp directly follows."""
        version, number = self.stamp
        return stamp == (version, number + 1)
