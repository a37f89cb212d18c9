"""The work behind `reticent ledger anchor`, and the check of a ledger against its anchored heads."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from reticent.apps.chain.keys import opened_key
from reticent.apps.chain.work import GweiFees
from reticent.apps.ledger.work import opened
from reticent.chain.fees import Ceiling
from reticent.chain.sender import Sender
from reticent.cli import terminal
from reticent.ledger import SqlLedger
from reticent.ledger.checkpoint import PublicKey, read_key
from reticent.ledger.ethereum.anchor import anchors, check_anchors, write_anchor
from reticent.ledger.ethereum.chain_file import ChainFile


def anchor(
    where: str,
    *,
    key: Path,
    chain_key: Path,
    chain: Path,
    rpc: str | None,
    fees: GweiFees = (None, None),
) -> None:
    """Write the signed head of a ledger to a chain, and print the block that holds it."""
    place, ceiling, payer = ChainFile.read(chain), Ceiling.of(*fees), opened_key(chain_key)
    with closing(opened(where, key)) as ledger, closing(place.connect(rpc)) as node:
        sender = Sender(node, payer, confirmations=place.confirmations, ceiling=ceiling)
        head, receipt = write_anchor(ledger, sender, place.anchor)
    signer, screen = PublicKey(head.origin, read_key(key).public_key()), terminal.console()
    screen.print(
        f"{head.size:,} entries of {head.origin} are anchored in block {receipt.block:,}, "
        f"transaction {receipt.transaction} (gas {receipt.gas:,})",
        soft_wrap=True,
    )
    screen.print(f"check with --public-key {signer}", soft_wrap=True)


def held_against(ledger: SqlLedger, signer: PublicKey, chain: Path, rpc: str | None) -> str:
    """Check a ledger against every anchored head, and return the result in words."""
    place = ChainFile.read(chain)
    with closing(place.connect(rpc)) as node:
        found = list(anchors(node, place.anchor, signer, first_block=place.block))
    size = check_anchors(ledger, found)
    return f"heads anchored on chain {place.chain_id}: {len(found)}, the longest of {size:,} entries"
