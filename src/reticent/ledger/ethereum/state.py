"""The state that the events of PrivacyLedger.vy add up to, with every rule of the contract checked.

`replay` needs nothing but the events: anybody who has them can recompute each account, key and sum, and finds
out if they contradict themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from eth_utils.address import to_checksum_address

from reticent.chain.contracts import Event
from reticent.errors import LedgerDamaged
from reticent.ledger.base import Terms, is_named_after
from reticent.ledger.ethereum.contract import (
    MOST_VALUES,
    NO_MARK,
    NOBODY,
    dataset_id,
    identity,
    key_id,
    payment_id,
    registered_name,
    terms_of,
    text_of,
)


@dataclass
class Analyst:
    """An analyst whom an owner allows, with the quota and the part that is used."""

    quota: int = 0
    used: int = 0


@dataclass
class DataSet:
    """A registered data set.

    `terms` is None if this version cannot read them.
    """

    id: bytes
    name: str
    registrant: str
    terms: Terms | None
    owner: str
    oracle: str
    cap: int
    minimum: int
    commitment: bytes
    block: int
    candidate: str = NOBODY
    paused: bool = False
    spent: int = 0
    measurements: int = 0
    analysts: dict[str, Analyst] = field(default_factory=dict)


@dataclass
class KeyState:
    """A declared key, or the key of a payment.

    `size` is None until the number of values is fixed.

    `has_own_text` says whether the name is named after the question: others may declare it with any text.
    """

    dataset: bytes
    id: bytes
    name: str
    question: str
    grid: int
    dimension: int
    size: int | None
    requested: int = 0
    recorded: int = 0
    sums: list[int] = field(default_factory=list)
    paid: bool = False
    has_own_text: bool = False

    def least(self, held: DataSet) -> int:
        """Return the smallest charge of a fresh measurement under this key."""
        return held.minimum * max(1, self.dimension)


@dataclass
class Charge:
    """One measurement that was paid for.

    If it is `paid` elsewhere, it never waits for values.
    """

    number: int
    dataset: bytes
    key: bytes
    start: int
    information: int
    analyst: str
    block: int
    transaction: str
    fulfilled: bool
    paid: bool


class State:
    """All data sets, keys and measurements of a contract, after some of its events."""

    def __init__(self) -> None:
        self.datasets: dict[bytes, DataSet] = {}
        self.keys: dict[tuple[bytes, bytes], KeyState] = {}
        self.measurements: list[Charge] = []
        self.waiting: dict[int, Charge] = {}
        self._marks: set[tuple[bytes, str, bytes]] = set()

    def apply(self, event: Event) -> None:
        """Apply the next event to the state.

        Raises:
            LedgerDamaged: No run of the contract writes this event after those before. The state is of no use
                then.
        """
        take = getattr(self, f"_take_{event.name}", None)
        try:
            _check(take is not None, "it is unknown")
            take(event, event.fields)  # type: ignore[misc]
        except LedgerDamaged as error:
            place = f"block {event.log.block}, log {event.log.index}"
            raise LedgerDamaged(f"{event.name} in {place} contradicts the events before: {error}") from error

    def waiting_under(self, dataset: bytes, key: bytes) -> list[Charge]:
        """Return the measurements under a key that are paid for and not recorded."""
        return [one for one in self.waiting.values() if (one.dataset, one.key) == (dataset, key)]

    # One method for each event

    def _take_Registered(self, event: Event, fields: dict[str, Any]) -> None:
        owner = to_checksum_address(fields["owner"])
        name = fields["name"]
        if fields["dataset"] != dataset_id(owner, name):  # a text that is not UTF-8 is shown otherwise
            raw = registered_name(event.log.data)
            odd = name == raw.decode(errors="backslashreplace") and fields["dataset"] == dataset_id(
                owner, raw
            )
            _check(odd, "its identifier is another one's")
        _check(fields["dataset"] not in self.datasets, "it was registered before")
        _check(0 < fields["minimum"] <= fields["cap"], "its minimum passes its cap")
        self.datasets[fields["dataset"]] = DataSet(
            fields["dataset"],
            name,
            owner,
            terms_of(fields),
            owner,
            to_checksum_address(fields["oracle"]),
            fields["cap"],
            fields["minimum"],
            fields["commitment"],
            event.log.block,
        )

    def _take_Declared(self, event: Event, fields: dict[str, Any]) -> None:
        held, place = self._dataset(fields), (fields["dataset"], fields["key"])
        named = key_id(fields["name"], fields["question"], fields["grid"], fields["dimension"])
        _check(fields["key"] == named, "its identifier is another one's")
        _check(place not in self.keys, "it was declared before")
        _check(fields["dimension"] <= MOST_VALUES, "it has too many values")
        _check(
            held.minimum * max(1, fields["dimension"]) <= held.cap, "the least it is charged passes the cap"
        )
        declarer = to_checksum_address(fields["declarer"])
        _check(_may_pay(held, declarer) or _quota(held, declarer) > 0, "its declarer is not allowed")
        size = fields["dimension"] or None
        name, question = text_of(fields["name"]), text_of(fields["question"])
        self.keys[place] = KeyState(
            *place,
            name,
            question,
            fields["grid"],
            fields["dimension"],
            size,
            sums=[0] * (size or 0),
            has_own_text=is_named_after(name, question),
        )

    def _take_Allowed(self, event: Event, fields: dict[str, Any]) -> None:
        analysts = self._dataset(fields).analysts
        analysts.setdefault(to_checksum_address(fields["analyst"]), Analyst()).quota = fields["quota"]

    def _take_MeasurementRequested(self, event: Event, fields: dict[str, Any]) -> None:
        held, under = self._dataset(fields), self._key(fields)
        who, charge = to_checksum_address(fields["analyst"]), fields["information"]
        _check(fields["start"] == under.requested, "its start is not what was requested before")
        if who != held.owner:
            _check(_quota(held, who) > 0, "its analyst is not allowed")
            held.analysts[who].used += charge
            _check(held.analysts[who].used <= held.analysts[who].quota, "the quota is passed")
        self._charge(event, held, under, who, paid=False)

    def _take_Reused(self, event: Event, fields: dict[str, Any]) -> None:
        held, who = self._dataset(fields), to_checksum_address(fields["analyst"])
        _check(who == held.owner or _quota(held, who) > 0, "its analyst is not allowed")
        _check(fields["requested"] == self._key(fields).requested, "that much was not requested before")
        _check(0 < fields["information"] <= fields["requested"], "it asks for more than was bought")
        self._mark(held, who, fields["idempotency"])

    def _take_Paid(self, event: Event, fields: dict[str, Any]) -> None:
        held, place = self._dataset(fields), (fields["dataset"], fields["key"])
        who = to_checksum_address(fields["payer"])
        _check(_may_pay(held, who), "its payer is not allowed")
        _check(fields["key"] == payment_id(fields["name"]), "its identifier is another one's")
        _check(place not in self.keys, "something was paid under the name before")
        under = KeyState(*place, text_of(fields["name"]), "", 0, 0, 0, paid=True)
        self._charge(event, held, under, who, paid=True)
        under.recorded = under.requested
        self.keys[place] = under

    def _take_Fulfilled(self, event: Event, fields: dict[str, Any]) -> None:
        under, values = self._key(fields), fields["grid_values"]
        found = self.waiting.pop(fields["number"], None)
        _check(found is not None, "the measurement does not wait for values")
        assert found is not None
        named = (fields["dataset"], fields["key"], fields["start"], fields["information"])
        _check(
            (found.dataset, found.key, found.start, found.information) == named, "it is another measurement"
        )
        if under.size is None:
            under.size, under.sums = len(values), [0] * len(values)
        _check(len(values) == under.size, "the number of values is another one")
        under.sums = [
            total + found.information * value for total, value in zip(under.sums, values, strict=True)
        ]
        under.recorded += found.information
        found.fulfilled = True

    def _take_Paused(self, event: Event, fields: dict[str, Any]) -> None:
        held = self._dataset(fields)
        _check(held.paused != fields["paused"], "it changes nothing")
        held.paused = fields["paused"]

    def _take_OracleAppointed(self, event: Event, fields: dict[str, Any]) -> None:
        self._dataset(fields).oracle = to_checksum_address(fields["oracle"])

    def _take_OwnershipOffered(self, event: Event, fields: dict[str, Any]) -> None:
        self._dataset(fields).candidate = to_checksum_address(fields["candidate"])

    def _take_OwnershipTaken(self, event: Event, fields: dict[str, Any]) -> None:
        held, owner = self._dataset(fields), to_checksum_address(fields["owner"])
        _check(owner == held.candidate, "it was not offered")
        held.owner, held.candidate = owner, NOBODY

    # Shared helpers

    def _dataset(self, fields: dict[str, Any]) -> DataSet:
        found = self.datasets.get(fields["dataset"])
        _check(found is not None, "the data set was never registered")
        assert found is not None
        return found

    def _key(self, fields: dict[str, Any]) -> KeyState:
        found = self.keys.get((fields["dataset"], fields["key"]))
        _check(found is not None, "the key was never declared")
        assert found is not None
        return found

    def _charge(self, event: Event, held: DataSet, under: KeyState, who: str, *, paid: bool) -> None:
        fields, charge = event.fields, event.fields["information"]
        _check(not held.paused, "spending is paused")
        _check(charge >= under.least(held), "it is charged less than the minimum")
        _check(fields["spent"] == held.spent + charge, "what is spent is not what was spent before and this")
        _check(fields["spent"] <= held.cap, "the cap is passed")
        _check(fields["number"] == len(self.measurements), "its number is not the next one")
        self._mark(held, who, fields["idempotency"])
        log = event.log
        made = Charge(
            fields["number"], held.id, under.id, under.requested, charge, who, log.block, log.transaction,
            fulfilled=paid, paid=paid,
        )  # fmt: skip
        held.spent, under.requested = fields["spent"], under.requested + charge
        held.measurements += 1
        self.measurements.append(made)
        if not paid:
            self.waiting[made.number] = made

    def _mark(self, held: DataSet, who: str, mark: bytes) -> None:
        if mark != NO_MARK:
            _check((held.id, who, mark) not in self._marks, "its idempotency key was used before")
            self._marks.add((held.id, who, mark))


def replay(events: Iterable[Event]) -> State:
    """Build the state from all events, from the first one on.

    Raises LedgerDamaged if they contradict themselves.
    """
    state = State()
    for event in events:
        state.apply(event)
    return state


def identity_of(charge: Charge) -> bytes:
    """Return the identity that the contract stores of a measurement while it waits."""
    return identity(charge.dataset, charge.key, charge.start, charge.information)


def _check(held: bool, reason: str) -> None:
    if not held:
        raise LedgerDamaged(reason)


def _quota(held: DataSet, who: str) -> int:
    return held.analysts[who].quota if who in held.analysts else 0


def _may_pay(held: DataSet, who: str) -> bool:
    return who in (held.owner, held.oracle)
