"""`reticent chain`: what the commands that sign do, and what they show of their transactions."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from reticent.arguments import real
from reticent.chain.node import Node, Receipt
from reticent.chain.sender import Sender
from reticent.cli import answer_views as views
from reticent.cli.chain_keys import new_key, opened_key
from reticent.errors import ParameterError
from reticent.ledger.anchor import contract as anchor_contract
from reticent.ledger.chain_contract import artifact, checked_address, dataset_id
from reticent.ledger.chain_file import ChainFile, node_address, shareable
from reticent.privacy import Budget
from reticent.query import DataSet, Policy, dataset_file
from reticent.query.answers import as_mu2
from reticent.query.commitment import Commitment, place
from reticent.query.on_chain import connected, opened_ledger

if TYPE_CHECKING:
    from reticent.ledger.ethereum import EthereumLedger

_CONFIRMATIONS = 5
_DEVELOPMENT = (1337, 31337)  # chains of anvil, hardhat and ganache, where a block comes when it is needed
_WEI = 10**18


# Keys and contracts


def key(file: Path, *, encrypt: bool) -> None:
    """Print the address of a key, which is made if there is none."""
    if file.exists() and encrypt:
        raise ParameterError(f"{file} exists already; --encrypt locks a new key only")
    print((opened_key(file) if file.exists() else new_key(file, encrypt=encrypt)).address)


def deploy(rpc: str | None, key: Path, *, out: Path, confirmations: int | None, forget_rpc: bool) -> None:
    """Make the contracts, and the file that says where they are."""
    if out.exists():
        raise ParameterError(f"{out} exists already; name another with --out")
    if not out.absolute().parent.is_dir():
        raise ParameterError(f"there is no folder {out.absolute().parent}")
    signer, where = opened_key(key), node_address(rpc)
    with closing(Node(where)) as node:
        if confirmations is None:
            confirmations = 0 if node.chain_id in _DEVELOPMENT else _CONFIRMATIONS
        sender = Sender(node, signer, confirmations=confirmations)
        made = (artifact(), anchor_contract())
        with waiting("deploying"):
            receipts = [sender.transact(None, one.creation) for one in made]
        ledger, anchor = (str(receipt.contract) for receipt in receipts)
        for one, address in zip(made, (ledger, anchor), strict=True):
            one.check(node, address)
        kept = None if forget_rpc else shareable(where)
        first = min(receipt.block for receipt in receipts)
        ChainFile(kept, node.chain_id, ledger, anchor, first, confirmations).write(out)
        screen = views.console()
        for one, receipt in zip(made, receipts, strict=True):
            cost = f"gas {receipt.gas:,}, {ether(node, receipt)} ether"
            screen.print(f"{one.name:<13} {receipt.contract} ({cost})", soft_wrap=True)
    what = "at once" if not confirmations else f"with {confirmations} blocks on top"
    screen.print(f"{out} is written: give it to everybody. A transaction counts {what}.", soft_wrap=True)
    if kept is None:
        screen.print("The node's address is not in it: everybody names a node with --rpc or RETICENT_RPC.")


# What owners do


def register(declaration: Path, *, oracle: str, key: Path, chain: Path, rpc: str | None) -> None:
    """Open the account of a data set, under a commitment to its declaration."""
    file, data = ChainFile.read(chain), dataset_file.read(declaration)
    if data.policy is not Policy.SHARE:
        raise ParameterError("policy must be share on a chain, where everybody sees the best answer")
    measuring, signer = checked_address("oracle", oracle), opened_key(key)
    node = file.connect(rpc)
    with closing(opened_ledger(file, node, signer, signer.address)) as ledger:
        held = _promised(declaration, data, file, signer.address)
        since = node.number()
        with waiting("registering"):
            ledger.register(data.terms, oracle=measuring, commitment=held.of(declaration))
        screen, budget = views.console(), data.budget
        screen.print(
            f"{data.name} is registered, for ever: epsilon {budget.epsilon:g} at delta {budget.delta:g}, "
            f"mu2 {views.down(as_mu2(data.terms.cap))}",
            soft_wrap=True,
        )
        screen.print(f"owner  {signer.address}\noracle {measuring}", soft_wrap=True)
        screen.print(f"nonce of the commitment, to be kept: {place(declaration)}", soft_wrap=True)
        screen.print(
            paid(node, written(node, file, since, "Registered", dataset_id(signer.address, data.name))),
            soft_wrap=True,
        )


def _promised(declaration: Path, data: DataSet, file: ChainFile, owner: str) -> Commitment:
    """The nonce of a registration: kept from an earlier try, or new, and durable before anything is sent."""
    held = Commitment.read(declaration)
    if held is None:
        contract = checked_address("contract", file.contract)
        held = Commitment(file.chain_id, contract, owner, os.urandom(32).hex())
        held.write(declaration)
    elif not held.is_at(file) or held.owner != owner:
        raise ParameterError(
            f"{place(declaration)} says that {data.name} is registered by {held.owner} at {held.contract} on "
            f"chain {held.chain_id}: here it would be a second budget for the same people"
        )
    return held


def allow(
    declaration: Path,
    analyst: str,
    *,
    share: float | None,
    epsilon: float | None,
    key: Path,
    chain: Path,
    rpc: str | None,
    owner: str | None,
) -> None:
    """Set what an analyst may be charged in all."""
    data, who = dataset_file.read(declaration), checked_address("analyst", analyst)
    quota = _quota(data, share, epsilon)
    with _owned(declaration, data, key=key, chain=chain, rpc=rpc, owner=owner) as (ledger, node, file):
        since = node.number()
        with waiting("allowing"):
            ledger.allow(data.name, who, quota)
        screen = views.console()
        if quota:
            part = f"{100 * quota / data.terms.cap:.4g} % of the cap"
            screen.print(
                f"{who} may be charged mu2 {views.down(as_mu2(quota))} in all, {part}.", soft_wrap=True
            )
        else:
            screen.print(f"{who} may buy nothing more.", soft_wrap=True)
        identifier = dataset_id(ledger.owner, data.name)
        screen.print(paid(node, written(node, file, since, "Allowed", identifier, who)), soft_wrap=True)


def _quota(data: DataSet, share: float | None, epsilon: float | None) -> int:
    """Units, rounded down."""
    if (share is None) == (epsilon is None):
        raise ParameterError("give --share or --epsilon")
    cap, budget = data.terms.cap, data.budget
    if share is not None:
        return math.floor(Fraction(real("share", share, low=0.0, high=1.0)) * cap)
    given = real("epsilon", epsilon, low=0.0, high=budget.epsilon)
    return min(cap, Budget(given, budget.delta).mu2_cap) if given else 0


def pause(
    declaration: Path, *, paused: bool, key: Path, chain: Path, rpc: str | None, owner: str | None
) -> None:
    """Stop spending, or go on."""
    data = dataset_file.read(declaration)
    with _owned(declaration, data, key=key, chain=chain, rpc=rpc, owner=owner) as (ledger, node, file):
        since = node.number()
        with waiting("pausing" if paused else "resuming"):
            (ledger.pause if paused else ledger.resume)(data.name)
        receipt = written(node, file, since, "Paused", dataset_id(ledger.owner, data.name))
        state = "is paused: nothing can be spent" if paused else "is open: analysts may buy"
        screen = views.console()
        screen.print(f"{data.name} {state}{'' if receipt else ', as it was before'}.", soft_wrap=True)
        if receipt is not None:
            screen.print(paid(node, receipt), soft_wrap=True)


@contextmanager
def _owned(
    declaration: Path, data: DataSet, *, key: Path, chain: Path, rpc: str | None, owner: str | None
) -> Iterator[tuple[EthereumLedger, Node, ChainFile]]:
    """The ledger for its owner, with the node behind it."""
    file, signer = ChainFile.read(chain), opened_key(key)
    node = file.connect(rpc)
    with closing(connected(declaration, data, file, node, key=signer, owner=owner)) as ledger:
        yield ledger, node, file


# What is shown


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """A sign of life on standard error, if a person looks at it."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield
        return
    with console.status(f"{text}, waiting for the chain"):
        yield


def written(node: Node, file: ChainFile, since: int, event: str, *indexed: bytes | str) -> Receipt | None:
    """The newest transaction after a block that wrote an event with such indexed fields."""
    topics = [artifact().topic(event)]
    topics += [
        "0x" + (one if isinstance(one, bytes) else bytes.fromhex(one[2:])).rjust(32, b"\0").hex()
        for one in indexed
    ]
    found = None
    for logs in node.logs(file.contract, since + 1, node.number(), topics):
        found = logs[-1].transaction if logs else found
    return None if found is None else node.receipt(found)


def paid(node: Node, receipt: Receipt | None) -> str:
    """Where a transaction is, and what it cost."""
    if receipt is None:  # the chain was reorganised just now
        return "its block is not known yet"
    return f"block {receipt.block}, gas {receipt.gas:,}, {ether(node, receipt)} ether: {receipt.transaction}"


def ether(node: Node, receipt: Receipt) -> str:
    """What a transaction cost at the price that was paid, rounded up."""
    price = (node.rpc("eth_getTransactionReceipt", receipt.transaction) or {}).get("effectiveGasPrice")
    return "?" if price is None else views.up(receipt.gas * int(price, 16) / _WEI)
