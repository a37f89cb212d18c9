"""The check of PrivacyLedger.vy: its events replayed, and compared with the state that it stores."""

from __future__ import annotations

from typing import Any

from reticent.chain.contracts import Artifact
from reticent.chain.log import ChainLog
from reticent.chain.node import Node
from reticent.errors import ChainError, LedgerDamaged
from reticent.ledger.ethereum.contract import Contract
from reticent.ledger.ethereum.state import State, identity_of


def verify(
    node: Node, contract: Artifact, address: str, block: int | None = None, *, first_block: int = 0
) -> tuple[int, State]:
    """Replay all events and compare the result with the state that the contract stores, at one block.

    Args:
        node: Node from which both are read.
        contract: Compiled contract that must be at the address.
        address: Address of the contract.
        block: Number of the block; by default the newest block.
        first_block: Block before which the contract has no events.

    Returns:
        The block, and the state that the events add up to.

    Raises:
        LedgerDamaged: The events contradict themselves or the stored state.
        WrongChain: Another contract is there.
    """
    stored = Contract(node, address, contract)
    log = ChainLog(node, contract, stored.address, State, first_block=first_block)
    state = log.sync(block)
    if block is not None and log.block < block:
        raise ChainError(f"the chain has no block {block} yet")
    wanted = _wanted(state)
    found = stored.call_many([call for call, _, _ in wanted], block=log.block)
    if log.blocks([log.block]) != [(log.block, log.block_hash)]:
        raise ChainError("the chain was reorganised meanwhile: verify again")
    for (_, expected, what), answer in zip(wanted, found, strict=True):
        if answer != expected:
            raise LedgerDamaged(f"block {log.block}: {what} is stored otherwise than its events say")
    return log.block, state


def _wanted(state: State) -> list[tuple[tuple[str, tuple[Any, ...]], tuple[Any, ...], str]]:
    """Return each view of the contract: its call, the answer that it must give, and a description."""
    wanted: list[tuple[tuple[str, tuple[Any, ...]], tuple[Any, ...], str]] = []
    count = len(state.measurements)
    wanted.append((("measurements", ()), (count,), "the number of measurements"))
    for held in state.datasets.values():
        parties = tuple(one.lower() for one in (held.owner, held.candidate, held.oracle))
        row = (*parties, held.paused, held.cap, held.minimum, held.spent, held.block)
        wanted.append((("datasets", (held.id,)), (row,), f"data set {held.name}"))
        for who, one in held.analysts.items():
            call = ("analysts", (held.id, who))
            wanted.append((call, ((one.quota, one.used),), f"analyst {who} of data set {held.name}"))
    for (dataset, key), under in state.keys.items():
        what = f"key 0x{key.hex()} of data set {state.datasets[dataset].name}"
        least = 0 if under.paid else under.least(state.datasets[dataset])
        row = (least, under.size is not None, under.size or 0, under.requested, under.recorded)
        wanted.append((("keys", (dataset, key)), (row,), what))
        sums = (under.requested, under.recorded, tuple(under.sums))
        wanted.append((("recorded", (dataset, key)), sums, f"the sums of {what}"))
    for charge in state.measurements:
        waits = bytes(32) if charge.fulfilled else identity_of(charge)
        wanted.append((("waiting", (charge.number,)), (waits,), f"measurement {charge.number}"))
    return wanted
