"""The ledger on a chain against bare signed transactions of the same key, on one anvil.

An ask is all that answers one: a look, the charged request in a block, the record of one value in another,
and the reading. It needs two transactions, so the peer is two plain transfers of nothing: signed, sent and
waited for by the same `Sender`, one after another, with a known gas limit. A new key is declared in a third
transaction, which goes out together with the request; there the peer is three transfers. In batches both
sides send 50 at once, twice: a record cannot be sent before its request is answered.

Wall-clock time: most of it is the node's. Without anvil there is nothing to measure.
"""

from __future__ import annotations

import itertools
import time
from contextlib import contextmanager

from benchmarks.measure import Figure, cpu_ratio
from reticent.chain.anvil import Anvil
from reticent.chain.node import Node
from reticent.chain.sender import Sender
from reticent.ledger import Amount, Terms, Unit
from reticent.ledger.base import Order
from reticent.ledger.ethereum.contract import artifact
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.privacy import MAX_UNITS, Neighbours

TERMS = Terms("bench", Unit.MU2, Neighbours.REPLACE_ONE, "one person", MAX_UNITS)
ASKS, BATCH, REPETITIONS = 20, 50, 9
TRANSFER_GAS = 21_000


class Sides:
    """A ledger, and its own sender for bare transactions: the same key, nonces and connection."""

    def __init__(self, anvil: Anvil) -> None:
        node = Node(anvil.url)
        made = Sender(node, anvil.keys[0]).transact(None, artifact().creation)
        self.ledger = EthereumLedger(node, str(made.contract), anvil.keys[1], first_block=made.block)
        self.ledger.open(TERMS)
        self.bare, self.to = self.ledger._sender, anvil.keys[2].address
        self.levels = itertools.count(1)
        self.names = itertools.count(1)

    def amount(self) -> Amount:
        return Amount(next(self.levels) * 1000, TERMS.unit, TERMS.neighbours)

    def ask(self, key: str, amount: Amount) -> None:
        grant = self.ledger.request(TERMS.name, key, amount)
        (pending,) = grant.pending
        reading = self.ledger.fulfil(pending.number, [12345])
        assert reading.information == grant.information

    def asks(self) -> None:
        for _ in range(ASKS):
            self.ask("refined", self.amount())

    def fresh_asks(self) -> None:
        for _ in range(ASKS):
            key = f"fresh-{next(self.names)}"
            self.ledger.declare(TERMS.name, key, question="how many", grid=24, dimension=1)
            self.ask(key, self.amount())

    def batches(self) -> None:
        keys = [f"batch-{place}" for place in range(BATCH)]
        grants = self.ledger.request_many([Order(TERMS.name, key, self.amount()) for key in keys])
        waiting = [self.ledger._own[one.number] for grant in grants for one in grant.pending]
        assert len(waiting) == BATCH
        receipts = self.ledger.settle_many(self.ledger.record_many([(one, [12345]) for one in waiting]))
        assert all(receipt.succeeded for receipt in receipts)
        readings = self.ledger.readings(TERMS.name, keys)
        assert not any(reading.pending for reading in readings)

    def transfers(self, each: int) -> None:
        for _ in range(each * ASKS):
            self.bare.wait(self.bare.send(self.to, b"", gas=TRANSFER_GAS))

    def transfer_batches(self) -> None:
        for _ in range(2):  # the records cannot be sent before the requests are answered
            sent = self.bare.send_many([(self.to, b"")] * BATCH, gas=TRANSFER_GAS)
            self.bare.wait_many(sent)


@contextmanager
def sides():
    with Anvil() as anvil:
        yield Sides(anvil)


def one_by_one() -> float:
    """Asks a second that refine a key / half the bare transactions a second."""
    with sides() as both:
        return cpu_ratio(
            lambda: both.transfers(2), both.asks, clock=time.perf_counter, repetitions=REPETITIONS
        )


def fresh() -> float:
    """Asks a second of new keys / a third of the bare transactions a second."""
    with sides() as both:
        return cpu_ratio(
            lambda: both.transfers(3), both.fresh_asks, clock=time.perf_counter, repetitions=REPETITIONS
        )


def together() -> float:
    """Asks a second, 50 to a batch / half the bare transactions a second, 50 to a batch."""
    with sides() as both:
        both.batches()  # the first declares the keys
        return cpu_ratio(
            both.transfer_batches, both.batches, clock=time.perf_counter, repetitions=REPETITIONS
        )


FIGURES = [
    Figure("chain, asks", "bare transactions, as many", 0.8, one_by_one),
    Figure("chain, asks of new keys", "bare transactions, as many", 0.8, fresh),
    Figure("chain, asks in batches of 50", "bare transactions in batches", 0.8, together),
]
