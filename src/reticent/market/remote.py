"""A market behind a service: the same verbs over HTTP, for devices and for buyers.

Everything is safe to send again: the market counts a repeated request once. Nothing that a service replies is
trusted: every field is checked before it is shown or used, and texts hold no sign that steers a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from reticent import peers
from reticent.collect.wire import batch
from reticent.errors import SourceError
from reticent.fleet.counted import question
from reticent.fleet.enrolment import Enrolment
from reticent.fleet.transport import Http
from reticent.market.outcomes import HoldOutcome, SaleOutcome

BASE = "api/v1/market"
_MAX_CENTS = 1 << 62
_MAX_ITEMS = 100_000  # of one list in a reply
_MAX_TEXT = 1000  # characters that are shown

Item = TypeVar("Item")
Choice = TypeVar("Choice", bound=Enum)


class ReplyFields:
    """The fields of an object in a reply, read one by one with their type.

    Raises:
        SourceError: the value is no object, or a field is missing or of another type.
    """

    def __init__(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise _unexpected_reply()
        self._fields = value

    def get(self, name: str) -> Any:
        """Return a field as it came."""
        if name not in self._fields:
            raise _unexpected_reply()
        return self._fields[name]

    def text(self, name: str) -> str:
        """Return a text to show, on one line."""
        value = self.get(name)
        if not isinstance(value, str):
            raise _unexpected_reply()
        return peers.one_line(value, _MAX_TEXT)

    def ascii(self, name: str) -> bytes:
        """Return the bytes of a signed file."""
        return _ascii(self.get(name))

    def amount(self, name: str) -> int:
        """Return a number of cents, reports or levels."""
        return _amount(self.get(name))

    def number(self, name: str) -> float:
        """Return a finite number."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e300:
            raise _unexpected_reply()
        return float(value)

    def flag(self, name: str) -> bool:
        """Return a truth value."""
        value = self.get(name)
        if not isinstance(value, bool):
            raise _unexpected_reply()
        return value

    def choice(self, name: str, kind: type[Choice]) -> Choice:
        """Return a member of an enumeration."""
        return _choice(self.get(name), kind)

    def items(self, name: str, read: Callable[[Any], Item]) -> tuple[Item, ...]:
        """Return the items of a list, each read by a function."""
        value = self.get(name)
        if not isinstance(value, list) or len(value) > _MAX_ITEMS:
            raise _unexpected_reply()
        return tuple(read(item) for item in value)


@dataclass(frozen=True)
class ListedBill:
    """A bill as a service lists it: its signed file, and those of its surveys."""

    file: bytes
    surveys: tuple[bytes, ...]

    @classmethod
    def from_reply(cls, value: Any) -> ListedBill:
        """Read a bill of the list."""
        fields = ReplyFields(value)
        return cls(fields.ascii("file"), fields.items("surveys", _ascii))


@dataclass(frozen=True)
class BillStatus:
    """The state of a bill and of its money, in cents.

    Attributes:
        sold: Number of reports that were sold at each level.
    """

    id: str
    name: str
    state: str
    deposit: int
    held: int
    paid: int
    refund: int
    left: int
    sold: tuple[int, ...]

    @classmethod
    def from_reply(cls, value: Any) -> BillStatus:
        """Read the status of a bill."""
        fields = ReplyFields(value)
        return cls(
            id=fields.text("id"),
            name=fields.text("name"),
            state=fields.text("state"),
            deposit=fields.amount("deposit"),
            held=fields.amount("held"),
            paid=fields.amount("paid"),
            refund=fields.amount("refund"),
            left=fields.amount("left"),
            sold=fields.items("sold", _amount),
        )


@dataclass(frozen=True)
class EstimateRow:
    """One estimate with its interval: the mean of an attribute, or the share of one of its categories."""

    attribute: str
    category: str
    reports: int
    shown: float
    lower: float
    upper: float


@dataclass(frozen=True)
class BillResults:
    """The estimates from the reports that were bought, and the status of their bill.

    Attributes:
        apart: Attributes whose sellers of different levels differ, so that no mean is of all of them.
        level_count: Number of levels, each with a file of reports.
    """

    status: BillStatus
    rows: tuple[EstimateRow, ...]
    apart: tuple[str, ...]
    level_count: int

    @classmethod
    def from_reply(cls, value: Any) -> BillResults:
        """Read the results of a bill."""
        fields = ReplyFields(value)
        rows = [row for rows in fields.items("estimates", _estimate_rows) for row in rows]
        levels = fields.items("levels", ReplyFields)
        return cls(BillStatus.from_reply(value), tuple(rows), fields.items("apart", _text), len(levels))


@dataclass(frozen=True)
class EarnedSale:
    """A report that a device has sold, and whether it was paid."""

    name: str
    sale: str
    place: int
    cents: int
    is_paid: bool

    @classmethod
    def from_reply(cls, value: Any) -> EarnedSale:
        """Read a sale of the list."""
        fields = ReplyFields(value)
        return cls(
            fields.text("name"),
            fields.text("sale"),
            fields.amount("place"),
            fields.amount("cents"),
            fields.flag("is_paid"),
        )


class RemoteMarket:
    """The market of a service.

    Args:
        line: Connection to the service, with a key for what buyers and owners do.
    """

    def __init__(self, line: Http) -> None:
        self._line = line

    # For devices

    def bills(self) -> tuple[bytes, list[ListedBill]]:
        """Return the public key that signs there, and the open bills.

        A device trusts a signer that it knew before.
        """
        fields = _read_reply(self._line.fetch(f"{BASE}/bills"))
        try:
            signer = bytes.fromhex(fields.text("signer"))
        except ValueError as error:
            raise _unexpected_reply() from error
        return signer, list(fields.items("bills", ListedBill.from_reply))

    def hold(self, asks: Sequence[bytes]) -> list[tuple[HoldOutcome, bytes | None]]:
        """See `Market.hold`."""
        fields = _read_reply(self._line.send(f"{BASE}/holds", batch(asks)))
        return _as_many(fields.items("holds", _hold), asks)

    def receive(self, reports: Sequence[bytes]) -> list[SaleOutcome]:
        """See `Market.receive`."""
        fields = _read_reply(self._line.send(f"{BASE}/sales", batch(reports)))
        return _as_many(fields.items("outcomes", lambda value: _choice(value, SaleOutcome)), reports)

    def earned(self, enrolment: Enrolment) -> list[EarnedSale]:
        """Return what an enrolment has sold there."""
        fields = _read_reply(self._line.send(f"{BASE}/earned", question(enrolment, "market")))
        return list(fields.items("sales", EarnedSale.from_reply))

    # For buyers, and for the operator of the service

    def offer(self, body: Mapping[str, Any]) -> BillStatus:
        """Draw up and sign a bill."""
        content = json.dumps(body, allow_nan=False).encode()
        return self._status(self._line.send(f"{BASE}/bills", content, kind="application/json"))

    def account(self, bill: str) -> BillStatus:
        """Return the status of a bill."""
        return self._status(self._line.fetch(f"{BASE}/bills/{bill}/account"))

    def fund(self, bill: str) -> BillStatus:
        """Confirm that the deposit of a bill has arrived."""
        return self._status(self._line.send(f"{BASE}/bills/{bill}/fund", b""))

    def close(self, bill: str) -> BillStatus:
        """End a bill."""
        return self._status(self._line.send(f"{BASE}/bills/{bill}/close", b""))

    def results(self, bill: str) -> BillResults:
        """Return the estimates from the reports that were bought."""
        return BillResults.from_reply(_read_json(self._line.fetch(f"{BASE}/bills/{bill}/results")))

    def reports(self, bill: str, level: int) -> bytes:
        """Return the reports of a level, as Parquet."""
        return self._line.fetch(f"{BASE}/bills/{bill}/reports/{level}")

    def _status(self, reply: bytes) -> BillStatus:
        return BillStatus.from_reply(_read_json(reply))


def _read_json(reply: bytes) -> Any:
    try:
        return peers.read_json(reply)
    except ValueError as error:
        raise _unexpected_reply() from error


def _read_reply(reply: bytes) -> ReplyFields:
    return ReplyFields(_read_json(reply))


def _estimate_rows(value: Any) -> list[EstimateRow]:
    """Read the rows of one attribute: a mean, or one for each category."""
    fields = ReplyFields(value)
    name, reports = fields.text("name"), fields.amount("reports")
    rows = [("", ReplyFields(fields.get("mean")))] if fields.get("mean") is not None else []
    if fields.get("frequencies") is not None:
        categories = fields.items("frequencies", ReplyFields)
        rows += [(peers.one_line(row.get("category"), _MAX_TEXT), row) for row in categories]
    return [
        EstimateRow(name, category, reports, *(row.number(part) for part in ("shown", "lower", "upper")))
        for category, row in rows
    ]


def _hold(value: Any) -> tuple[HoldOutcome, bytes | None]:
    fields = ReplyFields(value)
    signed = None if fields.get("hold") is None else fields.ascii("hold")
    return fields.choice("outcome", HoldOutcome), signed


def _text(value: Any) -> str:
    return ReplyFields({"text": value}).text("text")


def _ascii(value: Any) -> bytes:
    if not isinstance(value, str) or not value.isascii():
        raise _unexpected_reply()
    return value.encode("ascii")


def _amount(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_CENTS:
        raise _unexpected_reply()
    return value


def _choice(value: Any, kind: type[Choice]) -> Choice:
    try:
        return kind(value)
    except (ValueError, TypeError) as error:
        raise _unexpected_reply() from error


def _as_many(items: Sequence[Item], requests: Sequence[bytes]) -> list[Item]:
    if len(items) != len(requests):
        raise _unexpected_reply()
    return list(items)


def _unexpected_reply() -> SourceError:
    return SourceError("the service sent a reply that no market sends")
