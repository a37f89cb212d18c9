"""The Python view of PrivacyLedger.vy: identifiers, limits, and calls that change nothing.

Identifiers are hashes that anybody computes alike: that of a data set is of its registering address and name,
that of a key is of all its declared fields, that of a measurement is of its data set, key, start and
information.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from eth_abi.abi import decode, encode
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from reticent.chain.contracts import Artifact
from reticent.chain.node import Node
from reticent.chain.view import ContractView
from reticent.errors import ChainError, LedgerError, ReticentError, TransactionRefused
from reticent.ledger.base import Terms, Unit
from reticent.privacy import Neighbours

MOST_VALUES = 512  # values of one record on a chain
MOST_QUESTION = 8192  # bytes of what is measured
NOBODY = "0x" + "00" * 20
NO_MARK = bytes(32)  # of a request without an idempotency key

_LOW = (1 << 64) - 1


@cache
def artifact() -> Artifact:
    """Return the compiled contract PrivacyLedger."""
    return Artifact.read(Path(__file__).parent / "contracts" / "PrivacyLedger.json")


@dataclass(frozen=True)
class Words:
    """The declared fields of a key; empty for a key of a ledger that needs no declaration."""

    question: str = ""
    grid: int = 0
    dimension: int = 0


class Look(NamedTuple):
    """The state that decides a request, at one moment.

    See the contract.
    """

    paused: bool
    declared: bool
    sized: bool
    size: int
    cap: int
    minimum: int
    spent: int
    quota: int
    used: int
    requested: int
    recorded: int
    answer: int

    @property
    def answered(self) -> tuple[int, int, int] | None:
        """The body, units bought and units charged of an earlier request under the idempotency key."""
        return (self.answer >> 128, self.answer >> 64 & _LOW, self.answer & _LOW) if self.answer else None


NOTHING = Look(False, False, False, 0, 0, 0, 0, 0, 0, 0, 0, 0)


class Held(NamedTuple):
    """A data set as the contract stores it."""

    owner: str
    candidate: str
    oracle: str
    paused: bool
    cap: int
    minimum: int
    spent: int
    registered: int


class Contract(ContractView):
    """The contract PrivacyLedger at an address, which must be of this version."""

    def __init__(self, node: Node, address: str, compiled: Artifact | None = None) -> None:
        super().__init__(node, address, compiled or artifact())

    def looks(
        self, asked: Sequence[tuple[bytes, bytes, str, bytes]], *, block: int | str = "latest"
    ) -> list[Look]:
        """Call `look` for each tuple of data set, key, analyst and idempotency mark."""
        answers = self.call_many([("look", one) for one in asked], block=block)
        return [NOTHING if answer is None else Look(*answer[0]) for answer in answers]

    def held(self, dataset: bytes, *, block: int | str = "latest") -> Held | None:
        """Return a data set as stored by the contract; None if it is not registered."""
        answer = self.call("datasets", dataset, block=block)
        if answer is None or answer[0][0] == NOBODY:
            return None
        stored = Held(*answer[0])
        owner, candidate, oracle = (to_checksum_address(one) for one in stored[:3])
        return stored._replace(owner=owner, candidate=candidate, oracle=oracle)

    def terms(self, dataset: bytes, registered: int) -> Terms:
        """Return the terms with which a data set was registered, from the event in its block."""
        topics = [self.artifact.topic("Registered"), "0x" + dataset.hex()]
        for part in self.node.logs(self.address, registered, registered, topics):
            for log in part:
                event = self.artifact.event(log)
                if event is not None:
                    terms = terms_of(event.fields)
                    if terms is None:
                        raise LedgerError(
                            "the data set is registered with terms that this version cannot read"
                        )
                    return terms
        raise ChainError(f"the node has no logs of block {registered}")


def cause(refusal: TransactionRefused) -> str:
    """Return the contract's reason for a refusal, without the contract's name before it."""
    return refusal.reason.removeprefix("ledger: ")


@lru_cache(maxsize=4096)
def dataset_id(owner: str, name: str | bytes) -> bytes:
    """Return the identifier of the data set that `owner` registers under a name."""
    raw = name.encode() if isinstance(name, str) else name
    return keccak(encode(["address", "bytes"], [owner, raw]))


@lru_cache(maxsize=4096)
def key_id(name: bytes, question: bytes, grid: int, dimension: int) -> bytes:
    """Return the identifier of a key, a hash of all its declared fields."""
    kinds = ["bytes32", "bytes32", "int16", "uint16"]
    return keccak(encode(kinds, [keccak(name), keccak(question), grid, dimension]))


@lru_cache(maxsize=4096)
def payment_id(name: bytes) -> bytes:
    """Return the identifier of a payment, which no declared key has."""
    return keccak(encode(["bytes32", "bytes32"], [keccak(b"payment"), keccak(name)]))


def identity(dataset: bytes, key: bytes, start: int, information: int) -> bytes:
    """Return the identity of a measurement: a hash of all fields that a record must name."""
    return keccak(encode(["bytes32", "bytes32", "uint64", "uint64"], [dataset, key, start, information]))


def mark_of(idempotency: str | None) -> bytes:
    """Return an idempotency key in the form that the contract takes."""
    return NO_MARK if idempotency is None else hashlib.sha256(idempotency.encode()).digest()


def body_of(verb: str, key: bytes, information: int) -> int:
    """Return the number by which the contract recognises a request under its idempotency key."""
    raw = encode(["bytes32", "bytes32", "uint64"], [keccak(verb.encode()), key, information])
    return int.from_bytes(keccak(raw)) >> 128


def terms_of(fields: dict[str, Any]) -> Terms | None:
    """Return the terms of a Registered event; None if this version cannot read them.

    Anybody may register a data set with any words.
    """
    try:
        return Terms(
            fields["name"],
            Unit(fields["unit"]),
            Neighbours[fields["neighbours"]],
            fields["subject"].decode(),
            fields["cap"],
            fields["minimum"],
        )
    except (ReticentError, ValueError, KeyError):
        return None


def registered_name(data: bytes) -> bytes:
    """Return the name in the data of a Registered event, byte for byte: it need not be UTF-8."""
    name: bytes = decode(["address", "bytes"], data)[1]
    return name


def text_of(raw: bytes) -> str:
    """Decode bytes as UTF-8, or write them in hexadecimal digits if they are not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "0x" + raw.hex()
