"""What the experiments on a chain share: a chain of their own, the contract on it, its people, and the gas.

The chain is an anvil on this machine: real transactions, contracts and receipts, and no network. Gas is what
receipts say, which every Ethereum chain counts alike; seconds are this machine's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from reticent.chain.anvil import Anvil
from reticent.chain.node import Node, as_receipt
from reticent.chain.outbox import Outbox
from reticent.chain.sender import Sender
from reticent.errors import ChainError
from reticent.experiments.zhao_2022.chapter_4 import reuse
from reticent.ledger import SqlLedger
from reticent.ledger.ethereum import anchor
from reticent.ledger.ethereum.contract import artifact
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.privacy import Budget
from reticent.query import DataSet
from reticent.query.chain.oracle import Oracle
from reticent.query.measure import Rows
from reticent.query.rows.rehearsal import MadeUpRows
from reticent.randomness import SimulationStream

OWNER, ORACLE, ANALYST = 0, 1, 2  # places among the chain's keys; more analysts follow
ROWS = 5000  # as in the documents


@dataclass(frozen=True)
class Used:
    """One transaction: the contract's function (`deploy` for a new contract), and its gas."""

    function: str
    gas: int


class Chain:
    """A running chain with the contract, and who uses it."""

    def __init__(self, anvil: Anvil) -> None:
        self.anvil, self.keys = anvil, anvil.keys
        self.node = Node(anvil.url)
        self._seen = self.node.number()
        made = Sender(self.node, self.keys[OWNER]).transact(None, artifact().creation)
        assert made.contract is not None
        self.contract, self.block = made.contract, made.block
        self._open: list[EthereumLedger] = []

    def ledger(self, place: int, outbox: Outbox | None = None) -> EthereumLedger:
        """The ledger as the holder of a key sees it, over connections of its own."""
        owner, oracle = self.keys[OWNER].address, self.keys[ORACLE].address
        self._open.append(
            EthereumLedger(
                Node(self.anvil.url), self.contract, self.keys[place], owner=owner, oracle=oracle,
                first_block=self.block, outbox=outbox,
            )
        )  # fmt: skip
        return self._open[-1]

    def close(self) -> None:
        """Close every connection."""
        for ledger in self._open:
            ledger.close()
        self.node.close()

    def used(self) -> list[Used]:
        """The transactions since the last look, in the chain's order."""
        first, self._seen = self._seen + 1, self.node.number()
        blocks = self._all(
            [("eth_getBlockByNumber", [hex(one), True]) for one in range(first, self._seen + 1)]
        )
        sent = [one for block in blocks for one in block["transactions"]]
        receipts = self._all([("eth_getTransactionReceipt", [one["hash"]]) for one in sent])
        found = []
        for one, answer in zip(sent, receipts, strict=True):
            receipt = as_receipt(answer)
            assert receipt is not None
            if not receipt.succeeded:
                raise ChainError("a transaction of an experiment was refused")
            found.append(Used("deploy" if receipt.contract else _functions()[one["input"][:10]], receipt.gas))
        return found

    def _all(self, calls: list[tuple[str, list[Any]]]) -> list[Any]:
        answers = self.node.rpc_many(calls)
        for answer in answers:
            if isinstance(answer, ChainError):
                raise answer
        return answers

    def every(self, seconds: int | None) -> None:
        """From now on a block comes every so many seconds; None for one with each transaction."""
        self.node.rpc("evm_setIntervalMining", seconds or 0)
        if seconds is None:
            self.node.rpc("evm_setAutomine", True)


@contextmanager
def chain(accounts: int = 10) -> Iterator[Chain]:
    """Start a chain and put the contract on it.

    Raises:
        ChainError: there is no anvil on this machine.
    """
    with Anvil("--accounts", str(accounts)) as anvil:
        made = Chain(anvil)
        try:
            yield made
        finally:
            made.close()


def declared(name: str) -> DataSet:
    """The documents' data set, with a budget that refuses none of their requests."""
    return DataSet(name, "1", reuse.COLUMNS, Budget(40.0, reuse.BUDGET.delta), rows=ROWS)


def made_up(data: DataSet, seed: int) -> Rows:
    """Rows that fit it: what is on a chain does not hang on them."""
    return MadeUpRows(data, ROWS, SimulationStream(seed, path=(11,)))


@contextmanager
def opened_oracle(on: Chain, data: DataSet, rows: Rows, folder: Path) -> Iterator[Oracle]:
    """The oracle, as in earnest: secure noise, a ledger and an outbox on disk."""
    outbox = Outbox(folder / "outbox.sqlite")
    with Oracle(data, rows, on.ledger(ORACLE, outbox), SqlLedger(folder / "own.sqlite")) as oracle:
        yield oracle
    outbox.close()


@contextmanager
def running(oracle: Oracle, poll_s: float = 0.05) -> Iterator[None]:
    """The oracle at work in a thread."""
    stop = threading.Event()
    thread = threading.Thread(target=oracle.run, args=(stop, poll_s), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@cache
def _functions() -> dict[str, str]:
    """Names by selector."""
    return {
        "0x" + call.selector.hex(): name
        for contract in (artifact(), anchor.contract())
        for name, call in contract._calls.items()
    }
