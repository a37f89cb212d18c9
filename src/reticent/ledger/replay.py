"""Replay of the log alone: accounts, charges within caps, running numbers, measurements recorded once."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from reticent.errors import LedgerDamaged
from reticent.ledger import entries
from reticent.ledger.base import Unit
from reticent.ledger.checkpoint import Head, totals_hash
from reticent.ledger.merkle import Frontier, leaf_hash
from reticent.privacy import MAX_UNITS, Neighbours

_UNITS = {unit.value for unit in Unit}
_NEIGHBOURS = {relation.name for relation in Neighbours}
_KNOWN_VERSIONS = {"1"}
RECORDED, VOID = 1, 2  # states of a measurement


@dataclass(frozen=True)
class Report:
    """The result of a verification: the verified head, and counts.

    `checked` is the size of the given checkpoint, `witnessed` that of the witness's checkpoint. `void` counts
    measurements that recoveries closed, `audits` recorded audits. `questions` counts keys named after the
    text of a question, `texts` those whose text is stored; both are None for an export, which has no texts.
    """

    origin: str
    size: int
    root: bytes
    totals: bytes
    accounts: int
    keys: int
    measurements: int
    fulfilled: int
    recoveries: int
    checked: int | None = None
    witnessed: int | None = None
    void: int = 0
    audits: int = 0
    questions: int | None = field(default=None, compare=False)  # texts are not in the log
    texts: int | None = field(default=None, compare=False)

    @property
    def missing_texts(self) -> int:
        """Number of questions that were paid for and whose text is not stored, as far as is known."""
        return (self.questions or 0) - (self.texts or 0)


@dataclass(frozen=True)
class Opened:
    """An entry that opens an account, in a chunk of the log."""

    entry: int
    account: int
    cap: int
    commitment: str
    minimum: int
    neighbours: str
    unit: str


class Replay:
    """The accounts as the log describes them. Raises LedgerDamaged at the first entry that breaks a rule."""

    def __init__(self) -> None:
        self.size = 0
        self.origin = ""
        self.frontier = Frontier()
        self.cap, self.minimum, self.spent = array("q"), array("q"), array("q")
        self.owner = array("q")  # account of each key
        self.recorded = bytearray()  # one byte for each measurement: RECORDED if it has its values, VOID
        self.void: dict[int, int] = {}  # measurement -> number of measurements requested when it was closed
        self.fulfilled = 0
        self.recoveries = 0
        self.audits = 0
        self.opened: list[Opened] = []
        self.requested: list[tuple[int, int, int, int, str]] = []  # entry, account, charged, key, commitment
        self.values: list[tuple[int, int, str]] = []  # entry, measurement, commitment
        self.answers: list[tuple[int, int, str]] = []  # entry, account, commitment

    def head(self) -> Head:
        """Return the head after the entries read so far."""
        return Head(self.origin, self.size, self.frontier.root(), totals_hash(self.totals()))

    def totals(self) -> dict[int, int]:
        """Return the units spent by account number."""
        return dict(enumerate(self.spent))

    def read(self, leaves: Sequence[str]) -> list[tuple[int, int, bytes]]:
        """Read the next entries; return the perfect subtrees above the leaves that they complete.

        Afterwards `opened`, `requested`, `values` and `answers` list the commitments of these entries.
        """
        self.opened, self.requested, self.values, self.answers = [], [], [], []
        made = self.frontier.extend([leaf_hash(leaf.encode()) for leaf in leaves])
        request, fulfil = entries.PATTERNS["request"].fullmatch, entries.PATTERNS["fulfil"].fullmatch
        for entry, leaf in enumerate(leaves, self.size):
            if found := request(leaf):
                account, charged, commitment, key, measurement = found.groups()
                told = (entry, int(account), int(charged), int(key), commitment)
                self._request(*told[:4], int(measurement))
                self.requested.append(told)
            elif found := fulfil(leaf):
                commitment, measurement = found.groups()
                number = int(measurement)
                self._fulfil(entry, number)
                self.values.append((entry, number, commitment))
            else:
                self._other(entry, leaf)
        self.size += len(leaves)
        return made

    def _request(self, entry: int, account: int, charged: int, key: int, measurement: int) -> None:
        if account >= len(self.cap):
            raise LedgerDamaged(f"entry {entry}: account {account} was not opened")
        if charged < self.minimum[account]:
            raise LedgerDamaged(f"entry {entry}: charges less than the minimum of account {account}")
        spent = self.spent[account] + charged
        if spent > self.cap[account]:
            raise LedgerDamaged(f"entry {entry}: passes the cap of account {account}")
        if key == len(self.owner):
            self.owner.append(account)
        elif key > len(self.owner) or self.owner[key] != account:
            raise LedgerDamaged(f"entry {entry}: key {key} is not one of account {account}")
        if measurement != len(self.recorded):
            raise LedgerDamaged(f"entry {entry}: measurement {measurement} is not the next one")
        self.recorded.append(0)
        self.spent[account] = spent

    def _fulfil(self, entry: int, measurement: int) -> None:
        self._is_open(entry, measurement)
        self.recorded[measurement] = RECORDED
        self.fulfilled += 1

    def _is_open(self, entry: int, measurement: int) -> None:
        if measurement >= len(self.recorded):
            raise LedgerDamaged(f"entry {entry}: measurement {measurement} was not asked for")
        if self.recorded[measurement]:
            how = "closed" if self.recorded[measurement] == VOID else "recorded"
            raise LedgerDamaged(f"entry {entry}: measurement {measurement} was {how} before")

    def _other(self, entry: int, leaf: str) -> None:
        try:
            fields = entries.decode(leaf)
        except LedgerDamaged as error:
            raise LedgerDamaged(f"entry {entry}: {error}") from error
        if (fields["type"] == "ledger") != (entry == 0):
            raise LedgerDamaged(f"entry {entry}: a log begins with its one entry of type ledger")
        if fields["type"] == "ledger":
            if fields["version"] not in _KNOWN_VERSIONS:
                raise LedgerDamaged(f"entry {entry}: version {fields['version']} is not known")
            self.origin = fields["origin"]
        elif fields["type"] == "open":
            self._open(entry, fields)
        elif fields["type"] == "answer":
            self._answer(entry, int(fields["account"]), fields["commitment"])
        elif fields["type"] == "void":
            self._close(entry, int(fields["measurement"]))
        elif fields["type"] == "audit":
            self.audits += 1  # its commitment is opened by the report, which no table holds
        else:
            self._recover(entry, int(fields["account"]), int(fields["spent"]))

    def _open(self, entry: int, fields: dict[str, str]) -> None:
        account, cap, minimum = (int(fields[name]) for name in ("account", "cap", "minimum"))
        unit, neighbours = fields["unit"], fields["neighbours"]
        if account != len(self.cap):
            raise LedgerDamaged(f"entry {entry}: account {account} is not the next one")
        is_mixed = (unit == Unit.MONEY.value) != (neighbours == Neighbours.NONE.name)
        is_known = unit in _UNITS and neighbours in _NEIGHBOURS
        if not 1 <= minimum <= cap <= MAX_UNITS or is_mixed or not is_known:
            raise LedgerDamaged(f"entry {entry}: account {account} has impossible terms")
        for column, number in ((self.cap, cap), (self.minimum, minimum), (self.spent, 0)):
            column.append(number)
        self.opened.append(Opened(entry, account, cap, fields["commitment"], minimum, neighbours, unit))

    def _answer(self, entry: int, account: int, commitment: str) -> None:
        if account >= len(self.cap):
            raise LedgerDamaged(f"entry {entry}: account {account} was not opened")
        self.answers.append((entry, account, commitment))

    def _close(self, entry: int, measurement: int) -> None:
        self._is_open(entry, measurement)
        self.recorded[measurement] = VOID
        self.void[measurement] = len(self.recorded)

    def _recover(self, entry: int, account: int, spent: int) -> None:
        if account >= len(self.cap):
            raise LedgerDamaged(f"entry {entry}: account {account} was not opened")
        if not self.spent[account] <= spent <= self.cap[account]:
            raise LedgerDamaged(
                f"entry {entry}: a recovery must not lower account {account}, nor pass its cap"
            )
        self.spent[account] = spent
        self.recoveries += 1

    def report(self, *, checked: int | None = None, witnessed: int | None = None) -> Report:
        """Return a report on the entries read so far."""
        head = self.head()
        return Report(
            head.origin, head.size, head.root, head.totals,
            len(self.cap), len(self.owner), len(self.recorded), self.fulfilled, self.recoveries,
            checked, witnessed, len(self.void), self.audits,
        )  # fmt: skip
