"""Requests and payments on a chain: read the state, predict the decision, send, and obey the contract.

Several orders share one message for reading, one for sending and one for receipts. A decision made here only
saves transactions: the contract decides again. If other orders came first, the refused ones are read and
decided anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reticent.chain.log import ChainLog
from reticent.chain.node import Receipt
from reticent.chain.outbox import Sent
from reticent.chain.sender import Sender
from reticent.errors import (
    BudgetExceeded,
    CommitUnknown,
    IdempotencyConflict,
    KeyUsed,
    LedgerError,
    NodeUnavailable,
    NotConfirmed,
    TransactionRefused,
    UnknownAccount,
)
from reticent.ledger.base import Grant, Measurement, Terms, increment
from reticent.ledger.ethereum.contract import Contract, Look, Words, cause
from reticent.ledger.ethereum.state import State

ATTEMPTS = 8
_PAUSE_S = 0.05

# Upper bounds of gas: every slot is written for the first time. Unused gas is not paid.
REQUEST_GAS = 300_000
DECLARE_GAS, BYTE_GAS = 150_000, 60

# The contract's own words for reasons that may no longer apply when the state is read again.
_RACES = {
    "declared already",
    "idempotency key used",
    "it reverted in its block",
    "key used",
    "not allowed",
    "past the cap",
    "past the quota",
    "paused",
    "unknown key",
}


@dataclass(frozen=True)
class Waiting:
    """A measurement that is paid for and waits for its values, with all that a record must name."""

    number: int
    name: str
    question: str
    grid: int
    dimension: int
    dataset: bytes
    key: bytes
    start: int
    information: int
    block: int
    account: str = ""


@dataclass(frozen=True)
class Ask:
    """One order of a request or payment, with its identifiers on the chain."""

    verb: str
    terms: Terms
    key: str
    information: int
    idempotency: str | None
    dataset: bytes
    words: Words
    id: bytes
    mark: bytes
    body: int


@dataclass(frozen=True)
class Plan:
    """The predicted decision of the contract on an ask: refuse it, answer it as before, or write it down."""

    refusal: LedgerError | None = None
    bought: int = 0
    charged: int = 0
    writes: bool = False
    repeated: bool = False


class Books:
    """The contract's state that concerns some asks, carried on from one ask to the next."""

    def __init__(self, caller: str) -> None:
        self._caller = caller
        self._spent: dict[bytes, int] = {}
        self._used: dict[bytes, int] = {}
        self._requested: dict[tuple[bytes, bytes], int] = {}
        self._answers: dict[tuple[bytes, bytes], tuple[int, int, int]] = {}

    def plan(self, ask: Ask, look: Look) -> Plan:
        """Predict the contract's decision on an ask, and update the carried state."""
        try:
            return self._plan(ask, look)
        except LedgerError as refusal:
            return Plan(refusal)

    def _plan(self, ask: Ask, look: Look) -> Plan:
        name, place = ask.terms.name, (ask.dataset, ask.id)
        if (look.cap, look.minimum) != (ask.terms.cap, ask.terms.minimum):
            raise UnknownAccount(
                f"account {name} was never opened"
                if look.cap == 0
                else f"account {name} is not what it was: the chain was reorganised, ask again"
            )
        requested = self._requested.setdefault(place, look.requested)
        if ask.idempotency is not None:
            earlier = self._answers.get((ask.dataset, ask.mark)) or look.answered
            if earlier is not None:
                if earlier[0] != ask.body:
                    raise IdempotencyConflict(
                        f"idempotency key {ask.idempotency} was used for another request"
                    )
                return Plan(bought=earlier[1], charged=earlier[2], repeated=True)
        if ask.verb == "pay" and requested:
            raise KeyUsed(f"account {name}: a payment needs a fresh key")
        if ask.verb == "request" and look.quota == 0:
            raise LedgerError(f"account {name}: analyst {self._caller} is not allowed")
        charge = increment(ask.terms, requested, ask.information, max(1, ask.words.dimension))
        if charge:
            self._spend(ask, look, charge)
        bought = self._requested[place] = requested + charge
        if ask.idempotency is not None:
            self._answers[ask.dataset, ask.mark] = (ask.body, bought, charge)
        writes = charge > 0 or ask.idempotency is not None
        return Plan(bought=bought, charged=charge, writes=writes)

    def _spend(self, ask: Ask, look: Look, charge: int) -> None:
        name = ask.terms.name
        spent = self._spent.setdefault(ask.dataset, look.spent)
        used = self._used.setdefault(ask.dataset, look.used)
        if look.paused:
            raise LedgerError(f"account {name} is paused by its owner")
        if spent + charge > ask.terms.cap:
            raise BudgetExceeded(name, charge, ask.terms.cap - spent)
        if ask.verb == "request":
            if used + charge > look.quota:
                left = max(0, look.quota - used)
                raise LedgerError(
                    f"account {name}: analyst {self._caller}, quota: asked {charge} units, only {left} left"
                )
            self._used[ask.dataset] = used + charge
        self._spent[ask.dataset] = spent + charge


class Orders:
    """The processing of asks into grants, for one call of the ledger.

    Args:
        contract: Contract that the asks go to.
        sender: Sender of the transactions, with the asker's address and the number of confirmations.
        log: Log that lists the measurements waiting under a key, if there are more than those asked for here.
        learn: Function that is called with each measurement that these asks paid for.
        timeout_s: Seconds to wait for purchases that have too few confirmations.
    """

    def __init__(
        self,
        contract: Contract,
        sender: Sender,
        log: ChainLog[State],
        learn: Callable[[Waiting], None],
        timeout_s: float,
    ) -> None:
        self._contract, self._sender, self._log = contract, sender, log
        self._learn, self._timeout_s = learn, timeout_s
        self._sent = False
        self._reason = "no reason"

    def grants(self, asks: Sequence[Ask]) -> list[Grant | LedgerError]:
        """Return the grant or the refusal of each ask, as if they came in turn.

        Raises:
            CommitUnknown: The node was lost after something was sent.
        """
        results: dict[int, Grant | LedgerError] = {}
        try:
            for _ in range(ATTEMPTS):
                left = [place for place in range(len(asks)) if place not in results]
                if not left:
                    break
                results |= self._round({place: asks[place] for place in left})
        except NodeUnavailable as error:
            if not self._sent:
                raise
            raise CommitUnknown(
                f"{error}: ask again, with the same idempotency key if there was one"
            ) from error
        for place, ask in enumerate(asks):
            if place not in results:
                name, reason = ask.terms.name, self._reason
                results[place] = LedgerError(
                    f"account {name}: the chain refused {ATTEMPTS} times ({reason}): ask again"
                )
        return [results[place] for place in range(len(asks))]

    def _round(self, asks: dict[int, Ask]) -> dict[int, Grant | LedgerError]:
        """Decide and send the asks once, and leave out those that other orders came before."""
        looks = dict(zip(asks, self._looks(asks, "latest"), strict=True))
        books = Books(self._sender.address)
        plans = {place: books.plan(ask, looks[place]) for place, ask in asks.items()}
        written = self._written({p: a for p, a in asks.items() if plans[p].writes}, looks)
        wrong = [
            place
            for place, plan in plans.items()
            if plan.writes and (written[place] is None or _charged(written[place]) != plan.charged)
        ]
        decided = [
            place
            for place, plan in plans.items()
            if (written[place] is not None if plan.writes else not wrong or place < wrong[0])
        ]
        known = {p: asks[p] for p in decided if not plans[p].writes and plans[p].refusal is None}
        if known and self._sender.confirmations and not self._settled(known, plans):
            decided = [place for place in decided if place not in known]
        return _Answers(self._log, asks, looks, plans, written).of(decided)

    def _looks(self, asks: dict[int, Ask], block: int | str) -> list[Look]:
        who = self._sender.address
        return self._contract.looks([(a.dataset, a.id, who, a.mark) for a in asks.values()], block=block)

    def _settled(self, known: dict[int, Ask], plans: dict[int, Plan]) -> bool:
        """Wait until earlier purchases have enough confirmations; return False if they left the chain."""

        def holds(block: int | str) -> bool:
            looks = self._looks(known, block)
            return all(
                look.answered is not None if plans[place].repeated else look.requested >= ask.information
                for (place, ask), look in zip(known.items(), looks, strict=True)
            )

        end, confirmations = time.monotonic() + self._timeout_s, self._sender.confirmations
        while True:
            block = self._contract.node.number() - confirmations
            if block >= 0 and holds(block):
                return True
            if not holds("latest"):
                return False
            if time.monotonic() > end:
                raise NotConfirmed(
                    f"what is bought has no {confirmations} confirmations after {self._timeout_s:g} s"
                )
            time.sleep(_PAUSE_S)

    # Writing

    def _written(self, asks: dict[int, Ask], looks: dict[int, Look]) -> dict[int, dict[str, Any] | None]:
        """Return the event that each ask wrote; None if the contract refused it or had answered it before."""
        if not asks:
            return {}
        contract, to = self._contract, self._contract.address
        words = {
            (a.dataset, a.id): a for p, a in asks.items() if a.verb == "request" and not looks[p].declared
        }
        told = [(a.dataset, a.key.encode(), a.words) for a in words.values()]
        calls = [
            contract.artifact.encode(
                "declare", dataset, name, said.question.encode(), said.grid, said.dimension
            )
            for dataset, name, said in told
        ]
        self._sent = True
        sent = []
        if calls:
            gas = DECLARE_GAS + BYTE_GAS * max(map(len, calls))
            sent = self._sender.send_many([(to, data) for data in calls], gas=gas)
        pays = any(ask.verb == "pay" for ask in asks.values())
        gas_limit = None if pays else REQUEST_GAS
        try:
            sent += self._sender.send_many([(to, self._data(a)) for a in asks.values()], gas=gas_limit)
        except TransactionRefused as refusal:
            if len(asks) > 1:
                raise CommitUnknown(f"{refusal}; others of these requests may be written") from refusal
            self._sent = bool(sent)
            self._refused(refusal, next(iter(asks.values())))
            return dict.fromkeys(asks)
        return self._outcomes(asks, sent, len(calls))

    def _data(self, ask: Ask) -> bytes:
        encode = self._contract.artifact.encode
        if ask.verb == "pay":
            return encode("pay", ask.dataset, ask.key.encode(), ask.information, ask.mark)
        return encode("request", ask.dataset, ask.id, ask.information, ask.mark)

    def _outcomes(
        self, asks: dict[int, Ask], sent: Sequence[Sent], declared: int
    ) -> dict[int, dict[str, Any] | None]:
        found: dict[int, dict[str, Any] | None] = {}
        receipts = self._sender.wait_many(sent)[declared:]
        for (place, ask), receipt in zip(asks.items(), receipts, strict=True):
            if isinstance(receipt, TransactionRefused):
                self._refused(receipt, ask)
                found[place] = None
            else:
                found[place] = self._event(receipt, ask)
        return found

    def _refused(self, refusal: TransactionRefused, ask: Ask) -> None:
        self._reason = cause(refusal)
        if self._reason not in _RACES:
            raise refusal
        if ask.verb == "pay" and self._reason == "not allowed":
            raise LedgerError(
                f"account {ask.terms.name}: only its owner and its oracle pay, not {self._sender.address}"
            )

    def _event(self, receipt: Receipt, ask: Ask) -> dict[str, Any] | None:
        for log in receipt.logs:
            event = self._contract.artifact.event(log) if log.address.lower() == self._address else None
            if event is not None and event.name in ("MeasurementRequested", "Paid", "Reused"):
                if event.name == "MeasurementRequested":
                    fields, words = event.fields, ask.words
                    self._learn(
                        Waiting(
                            fields["number"], ask.key, words.question, words.grid, words.dimension,
                            ask.dataset, ask.id, fields["start"], fields["information"], receipt.block,
                            ask.terms.name,
                        )
                    )  # fmt: skip
                return {"name": event.name, **event.fields}
        return None

    @property
    def _address(self) -> str:
        return self._contract.address.lower()


class _Answers:
    """The grants of a round in turn, with the amounts spent and pending after each."""

    def __init__(
        self,
        log: ChainLog[State],
        asks: dict[int, Ask],
        looks: dict[int, Look],
        plans: dict[int, Plan],
        written: dict[int, dict[str, Any] | None],
    ) -> None:
        self._log, self._asks, self._looks, self._plans, self._written = log, asks, looks, plans, written
        self._spent: dict[bytes, int] = {}
        self._requested: dict[tuple[bytes, bytes], int] = {}
        self._own: dict[tuple[bytes, bytes], dict[int, tuple[int, int]]] = {}
        self._lists: dict[tuple[bytes, bytes], dict[int, tuple[int, int]]] = {}

    def of(self, decided: list[int]) -> dict[int, Grant | LedgerError]:
        answers: dict[int, Grant | LedgerError] = {}
        for place in decided:
            refusal = self._plans[place].refusal
            answers[place] = refusal if refusal is not None else self._grant(place)
        return answers

    def _grant(self, place: int) -> Grant:
        ask, look, plan, event = (
            self._asks[place], self._looks[place], self._plans[place], self._written.get(place)
        )  # fmt: skip
        under = (ask.dataset, ask.id)
        spent = self._spent.setdefault(ask.dataset, look.spent)
        requested = self._requested.setdefault(under, look.requested)
        own = self._own.setdefault(under, {})
        bought, charged, listed = plan.bought, plan.charged, look.requested != look.recorded
        if event is not None and event["name"] == "Reused":
            bought, charged = event["requested"], 0
            requested = max(requested, bought)
        elif event is not None:
            charged, spent, start = event["information"], event["spent"], event.get("start", 0)
            listed = listed or start != requested
            requested = bought = start + charged
            if event["name"] == "MeasurementRequested":
                own[event["number"]] = (start, charged)
        self._spent[ask.dataset], self._requested[under] = spent, requested
        waits = own | (self._listed(under) if listed else {})
        pending = tuple(
            Measurement(number, ask.terms.name, ask.key, information, fulfilled=False)
            for number, (start, information) in sorted(waits.items())
            if start < requested
        )
        return Grant(ask.terms.name, ask.key, bought, charged, ask.terms.cap - spent, pending)

    def _listed(self, under: tuple[bytes, bytes]) -> dict[int, tuple[int, int]]:
        if under not in self._lists:
            with self._log.reading() as state:
                waits = state.waiting_under(*under)
            self._lists[under] = {one.number: (one.start, one.information) for one in waits}
        return self._lists[under]


def _charged(event: dict[str, Any] | None) -> int:
    return 0 if event is None or event["name"] == "Reused" else int(event["information"])
