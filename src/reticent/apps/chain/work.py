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

from reticent.apps.chain.keys import new_key, opened_key
from reticent.arguments import real
from reticent.chain.fees import Ceiling
from reticent.chain.node import Node, Receipt
from reticent.chain.sender import Sender
from reticent.chain.view import checked_address
from reticent.cli import terminal
from reticent.errors import AccountConflict, BudgetExceeded, LedgerError, ParameterError
from reticent.ledger import Amount, Unit
from reticent.ledger.ethereum.anchor import contract as anchor_contract
from reticent.ledger.ethereum.chain_file import ChainFile, node_address, shareable
from reticent.ledger.ethereum.contract import artifact, dataset_id
from reticent.privacy import Budget
from reticent.query import DataSet, Policy
from reticent.query.chain.commitment import Commitment, place
from reticent.query.chain.finding import connected, opened_ledger
from reticent.query.declarations import dataset_file
from reticent.query.declarations.account_moving import moved_on_chain
from reticent.query.declarations.home import settled
from reticent.query.declarations.ledger_places import on_chain

if TYPE_CHECKING:
    from reticent.ledger.ethereum.ledger import EthereumLedger

_CONFIRMATIONS = 5
_DEVELOPMENT = (1337, 31337)  # chains of anvil, hardhat and ganache, where a block comes when it is needed
_WEI = 10**18
_BEFORE = "spent before it was registered"

GweiFees = tuple[float | None, float | None]  # the most for a unit of gas, and of that for the tip


# Keys and contracts


def key(file: Path, *, encrypt: bool) -> None:
    """Print the address of a key, which is made if there is none."""
    if file.exists() and encrypt:
        raise ParameterError(f"{file} exists already; --encrypt locks a new key only")
    print((opened_key(file) if file.exists() else new_key(file, encrypt=encrypt)).address)


def deploy(
    rpc: str | None,
    key: Path,
    *,
    out: Path,
    confirmations: int | None,
    forget_rpc: bool,
    fees: GweiFees = (None, None),
) -> None:
    """Make the contracts, and the file that says where they are."""
    if out.exists():
        raise ParameterError(f"{out} exists already; name another with --out")
    if not out.absolute().parent.is_dir():
        raise ParameterError(f"there is no folder {out.absolute().parent}")
    ceiling = Ceiling.of(*fees)
    signer, where = opened_key(key), node_address(rpc)
    with closing(Node(where)) as node:
        if confirmations is None:
            confirmations = 0 if node.chain_id in _DEVELOPMENT else _CONFIRMATIONS
        sender = Sender(node, signer, confirmations=confirmations, ceiling=ceiling)
        made = (artifact(), anchor_contract())
        with waiting("deploying"):
            receipts = [sender.transact(None, one.creation) for one in made]
        ledger, anchor = (str(receipt.contract) for receipt in receipts)
        for one, address in zip(made, (ledger, anchor), strict=True):
            one.check(node, address)
        kept = None if forget_rpc else shareable(where)
        first = min(receipt.block for receipt in receipts)
        ChainFile(kept, node.chain_id, ledger, anchor, first, confirmations).write(out)
        screen = terminal.console()
        for one, receipt in zip(made, receipts, strict=True):
            cost = f"gas {receipt.gas:,}, {ether(node, receipt)} ether"
            screen.print(f"{one.name:<13} {receipt.contract} ({cost})", soft_wrap=True)
    what = "at once" if not confirmations else f"with {confirmations} blocks on top"
    screen.print(f"{out} is written: give it to everybody. A transaction counts {what}.", soft_wrap=True)
    if kept is None:
        screen.print("The node's address is not in it: everybody names a node with --rpc or RETICENT_RPC.")


# What owners do


def register(
    declaration: Path,
    *,
    oracle: str,
    key: Path,
    chain: Path,
    rpc: str | None,
    fees: GweiFees = (None, None),
) -> None:
    """Open the account of a data set, under a commitment to its declaration."""
    file, data = ChainFile.read(chain), dataset_file.read(declaration)
    if data.policy is not Policy.SHARE:
        raise ParameterError("policy must be share on a chain, where everybody sees the best answer")
    if data.people:
        raise ParameterError("people must be left out on a chain: a contract holds one data set's account")
    ceiling, measuring, signer = Ceiling.of(*fees), checked_address("oracle", oracle), opened_key(key)
    node = file.connect(rpc)
    with closing(opened_ledger(file, node, signer, signer.address, ceiling=ceiling)) as ledger:
        since = node.number()
        with waiting("registering"):
            data, before = _moved(declaration, data, ledger, measuring, file)
        screen, budget = terminal.console(), data.budget
        screen.print(
            f"{data.name} is registered, for ever: epsilon {budget.epsilon:g} at delta {budget.delta:g}",
            soft_wrap=True,
        )
        if before:
            screen.print(
                f"Before, {100 * before / data.terms.cap:.4g} % of it were spent here: they count there.",
                soft_wrap=True,
            )
        screen.print(f"owner  {signer.address}\noracle {measuring}", soft_wrap=True)
        screen.print(f"nonce of the commitment, to be kept: {place(declaration)}", soft_wrap=True)
        screen.print(
            paid(node, written(node, file, since, "Registered", dataset_id(signer.address, data.name))),
            soft_wrap=True,
        )


def _moved(
    declaration: Path, data: DataSet, ledger: EthereumLedger, oracle: str, file: ChainFile
) -> tuple[DataSet, int]:
    """Register a data set, and move its account there with what was spent before; a second try goes on."""
    place, before, known = on_chain(ledger.chain_id, ledger.contract), 0, None

    def charge(units: int) -> None:
        nonlocal before
        before = units
        _charged(ledger, data, units)

    with settled(declaration, data, place) as home:
        held = _promised(declaration, data, file, ledger.address)
        if home.paying != place and (home.moving or home.is_on_chain):
            raise LedgerError(
                f"{declaration.name} pays from {home.paying}, and from no other ledger; got {place}"
            )
        held.write(declaration)
        data = home.of(data)
        try:
            ledger.register(data.terms, oracle=oracle, commitment=held.of(declaration))
        except AccountConflict as conflict:
            status = ledger.status(data.account)
            if (status.balance.terms, status.oracle) != (data.terms, oracle):
                raise
            known = conflict
        arrived = moved_on_chain(home, declaration, data, charge, place)
    if known is not None and arrived == home and not before:
        raise known
    return data, before


def _charged(ledger: EthereumLedger, data: DataSet, units: int) -> None:
    """Charge what was spent before, once; all that is left if others were quicker."""
    try:
        amount = Amount(units, Unit.MU2, data.relation)
        ledger.charge(data.account, _BEFORE, amount, idempotency=f"before:{data.identity}")
    except BudgetExceeded:  # the oracle's own ledger counts what does not fit here
        left = ledger.balance(data.account).remaining
        if left >= data.terms.minimum:
            rest = Amount(left, Unit.MU2, data.relation)
            ledger.charge(
                data.account, f"{_BEFORE}, as far as it fits", rest, idempotency=f"rest:{data.identity}"
            )


def _promised(declaration: Path, data: DataSet, file: ChainFile, owner: str) -> Commitment:
    """The nonce of a registration: from an earlier try, or new; it is written before anything is sent."""
    held = Commitment.read(declaration)
    if held is None:
        return Commitment(
            file.chain_id, checked_address("contract", file.contract), owner, os.urandom(32).hex()
        )
    if not held.is_at(file) or held.owner != owner:
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
    fees: GweiFees = (None, None),
) -> None:
    """Set what an analyst may be charged in all."""
    data, who = dataset_file.read(declaration), checked_address("analyst", analyst)
    quota = _quota(data, share, epsilon)
    with _owned(declaration, data, key, chain, rpc, owner, fees) as (ledger, node, file):
        since = node.number()
        with waiting("allowing"):
            ledger.allow(data.name, who, quota)
        screen = terminal.console()
        if quota:
            part = f"{100 * quota / data.terms.cap:.4g} % of the budget"
            screen.print(f"{who} may be charged {part} in all.", soft_wrap=True)
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
    declaration: Path,
    *,
    paused: bool,
    key: Path,
    chain: Path,
    rpc: str | None,
    owner: str | None,
    fees: GweiFees = (None, None),
) -> None:
    """Stop spending, or go on."""
    data = dataset_file.read(declaration)
    with _owned(declaration, data, key, chain, rpc, owner, fees) as (ledger, node, file):
        since = node.number()
        with waiting("pausing" if paused else "resuming"):
            (ledger.pause if paused else ledger.resume)(data.name)
        receipt = written(node, file, since, "Paused", dataset_id(ledger.owner, data.name))
        state = "is paused: nothing can be spent" if paused else "is open: analysts may buy"
        screen = terminal.console()
        screen.print(f"{data.name} {state}{'' if receipt else ', as it was before'}.", soft_wrap=True)
        if receipt is not None:
            screen.print(paid(node, receipt), soft_wrap=True)


@contextmanager
def _owned(
    declaration: Path,
    data: DataSet,
    key: Path,
    chain: Path,
    rpc: str | None,
    owner: str | None,
    fees: GweiFees,
) -> Iterator[tuple[EthereumLedger, Node, ChainFile]]:
    """The ledger for its owner, with the node behind it."""
    file, ceiling, signer = ChainFile.read(chain), Ceiling.of(*fees), opened_key(key)
    node = file.connect(rpc)
    held = connected(declaration, data, file, node, key=signer, owner=owner, ceiling=ceiling)
    with closing(held) as ledger:
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
    return "?" if price is None else terminal.up(receipt.gas * int(price, 16) / _WEI)
