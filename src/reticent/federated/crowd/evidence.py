"""The record of a chain about a crowd's contract: every call with its events, blocks, and the final state.

This module only collects the record; `verify` judges it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reticent.chain.contracts import Event
from reticent.chain.log import ChainLog
from reticent.chain.node import as_number, block_tag
from reticent.chain.transactions import Transaction, transactions
from reticent.federated.crowd.commitments import NEWEST
from reticent.federated.crowd.contract import NOBODY, TaskContract, artifact

Question = tuple[str, tuple[Any, ...]]  # a view and its arguments


@dataclass(frozen=True)
class Called:
    """A transaction, and the events that the contract wrote in it."""

    transaction: Transaction
    events: tuple[Event, ...]


@dataclass(frozen=True)
class Evidence:
    """The record of a chain about a contract, up to a block.

    Attributes:
        chain_id: Identifier of the chain.
        address: Address of the contract, in lower case.
        unit: wei of a unit of stake.
        calls: Transactions in their order.
        blocks: hashes by number, of those with calls and those whose hash is a seed.
        last: the number of the last block that was read.
        views: answers of the contract's views at that block.
        balance: Function from a token's address to the contract's balance; None if it cannot be asked.
        version: Version of the contract.
    """

    chain_id: int
    address: str
    unit: int
    calls: tuple[Called, ...]
    blocks: Mapping[int, str]
    last: int
    views: Callable[[list[Question]], list[Any]]
    balance: Callable[[str], int | None]
    version: int = NEWEST


class _Nothing:
    """A state that ignores events: they are looked at afterwards."""

    def apply(self, event: Event) -> None:
        """Ignore the event."""


def read(contract: TaskContract, *, first_block: int = 0, confirmations: int = 0) -> Evidence:
    """Read everything that a chain holds about a contract.

    Args:
        contract: Contract, with its node.
        first_block: Block in which the contract was made, or an earlier one.
        confirmations: Number of blocks that must lie on top of what is read.

    Raises:
        ChainError: the node does not have it all, or the chain changes too fast.
    """
    node, address = contract.node, contract.address
    log = ChainLog(node, artifact(), address, _Nothing, first_block=first_block, confirmations=confirmations)
    log.sync()
    last = log.block
    events: dict[str, list[Event]] = {}
    for event in log.events():
        events.setdefault(event.log.transaction.lower(), []).append(event)
    found = transactions(node, list(events))
    fixed = {event.fields["fixed"] for event in log.events() if event.name == "Seeded"}
    numbers = sorted({one.block for one in found} | {one for one in fixed if one <= last})
    blocks = {}
    for at in range(0, len(numbers), 100):
        for block in log.blocks(list(numbers[at : at + 100])):
            if block is not None:
                blocks[block[0]] = block[1].lower()
    return Evidence(
        node.chain_id,
        address.lower(),
        contract.stake_unit(block=last),
        tuple(Called(one, tuple(events[one.hash])) for one in found),
        blocks,
        last,
        lambda asked: [None if one is None else one[0] for one in contract.call_many(asked, block=last)],
        lambda token: _balance(contract, token, last),
        contract.version,
    )


def _balance(contract: TaskContract, token: str, block: int) -> int | None:
    from reticent.errors import ChainError

    node = contract.node
    if token == NOBODY:
        return as_number(node.rpc("eth_getBalance", contract.address, block_tag(block)))
    data = bytes.fromhex("70a08231") + bytes(12) + bytes.fromhex(contract.address[2:])  # balanceOf(address)
    try:
        return int.from_bytes(node.call(token, data, block=block))
    except ChainError:
        return None
