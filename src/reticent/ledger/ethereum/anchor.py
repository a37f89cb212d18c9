"""Anchors: the signed heads of an SQL ledger, written to a chain, where nobody can take them back.

They are a cheap middle way between a witness and a ledger on a chain: one small transaction now and then.
Anybody may write to the anchor's contract, so only heads that carry the log's own signature count. A ledger
that is shorter than an anchored head, or has another root there, was put back or rewritten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from reticent.chain.contracts import Artifact, Event
from reticent.chain.node import Node, Receipt
from reticent.chain.sender import Sender
from reticent.errors import LedgerDamaged, ParameterError, RolledBack
from reticent.ledger.checkpoint import Head, PublicKey, parse, signed_note, verified
from reticent.ledger.sql.ledger import SqlLedger


@cache
def contract() -> Artifact:
    """Return the compiled contract HeadAnchor."""
    return Artifact.read(Path(__file__).parent / "contracts" / "HeadAnchor.json")


@dataclass(frozen=True)
class Anchor:
    """A signed head of a ledger on a chain.

    `checkpoint` is the signed note, as the ledger itself writes it.
    """

    head: Head
    checkpoint: str
    writer: str
    block: int
    transaction: str


def write_anchor(ledger: SqlLedger, sender: Sender, address: str) -> tuple[Head, Receipt]:
    """Write the ledger's signed head to the chain and wait until it has enough confirmations."""
    contract().check(sender.node, address)
    head, ((_, signed), *_) = parse(ledger.checkpoint())
    signature = signed[4:]
    parts = [signature[:32], signature[32:]]
    data = contract().encode("anchor", _topic(head.origin), head.size, head.root, head.totals, parts)
    return head, sender.transact(address, data)


def anchors(node: Node, address: str, signer: PublicKey, *, first_block: int = 0) -> Iterator[Anchor]:
    """Yield every head of a log that its key signed, in the chain's order; skip all other heads."""
    contract().check(node, address)
    topics = [contract().topic("Anchored"), None, "0x" + _topic(signer.name).hex()]
    for logs in node.logs(address, first_block, node.number(), topics):
        for log in logs:
            event = contract().event(log)
            found = _anchor(event, signer) if event is not None else None
            if found is not None:
                yield found


def check_anchors(ledger: SqlLedger, found: list[Anchor]) -> int:
    """Compare a ledger with all its anchored heads, and return the size of the largest head.

    Raises:
        RolledBack: The ledger is shorter than a head, or has another root there.
        LedgerDamaged: There is no anchored head to compare the ledger with.
    """
    if not found:
        raise LedgerDamaged(f"no signed head of {ledger.origin} is anchored there")
    size = ledger.head().size
    for anchor in found:
        head = anchor.head
        if head.size > size:
            raise RolledBack(
                f"the ledger has {size} entries, and {head.size} are anchored in block {anchor.block}"
            )
        if ledger.root(head.size) != head.root:
            raise RolledBack(f"the first {head.size} entries are not those anchored in block {anchor.block}")
    return max(anchor.head.size for anchor in found)


def _topic(origin: str) -> bytes:
    return hashlib.sha256(origin.encode()).digest()


def _anchor(event: Event, signer: PublicKey) -> Anchor | None:
    told = event.fields
    try:
        head = Head(signer.name, told["size"], told["root"], told["totals"])
        checkpoint = signed_note(head, signer, b"".join(told["signature"]))
        verified(checkpoint, signer)
    except (LedgerDamaged, ParameterError):  # anybody may write to the contract
        return None
    return Anchor(head, checkpoint, told["writer"], event.log.block, event.log.transaction)
