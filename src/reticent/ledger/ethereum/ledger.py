"""The ledger in a contract on an Ethereum chain: nobody can manipulate it, the operator included.

The verbs, their errors and their words are those of every ledger. The oracle, who holds the data, records the
measurements that are paid for here; owners allow analysts, and may stop spending. Everything on a chain is
public but the data: the names, the questions, who asked, and the noisy values.

Reads return only state with the chosen number of confirmations; writes wait until they have that number.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from reticent.chain.contracts import Event
from reticent.chain.fees import Ceiling
from reticent.chain.keys import Key
from reticent.chain.node import Log, Node, Receipt, as_bytes, as_receipt
from reticent.chain.outbox import Outbox, Sent
from reticent.chain.sender import Sender
from reticent.errors import (
    AlreadyFulfilled,
    ChainError,
    LedgerError,
    ParameterError,
    UnknownAccount,
    UnknownMeasurement,
)
from reticent.ledger.base import Grant, Order, Reading, Terms
from reticent.ledger.ethereum.accounts import AnalystStatus, ChainAccounts, Status, as_reading, waiting_of
from reticent.ledger.ethereum.contract import (
    MOST_QUESTION,
    MOST_VALUES,
    Words,
    body_of,
    mark_of,
)
from reticent.ledger.ethereum.orders import ATTEMPTS, Ask, Orders, Waiting
from reticent.ledger.ethereum.records import Records, check_size, not_the_oracle
from reticent.ledger.lockfile import LockFile

__all__ = ["AnalystStatus", "EthereumLedger", "Status", "Waiting"]

_REMEMBERED = 10_000  # measurements of our own requests; gas of transactions
_TURN_S = 60.0  # that another process may take to send


class EthereumLedger(ChainAccounts):
    """A ledger with accounts in the contract PrivacyLedger, which threads may share.

    Args:
        node: Node of the chain.
        address: Address of the contract.
        key: Key that signs transactions.
        owner: Address that registered the accounts; by default the key's own address.
        oracle: Address that records the values of accounts that `open` registers; by default the key's own
            address.
        confirmations: Number of blocks that must lie on top of a read or written block before it counts.
        first_block: Block before which the contract has no events. Lists are read from there.
        outbox: Store that keeps signed records before they are broadcast.
        timeout_s: Seconds to wait for confirmations.
        lock: File that all processes with this key lock while they send, so that no two take the same nonce.
        ceiling: Highest price of a unit of gas, whatever the node says.

    Raises:
        WrongChain: There is another contract, or none, at the address.
    """

    measured_by_oracle = True
    charges_values = True

    def __init__(
        self,
        node: Node,
        address: str,
        key: Key,
        *,
        owner: str | None = None,
        oracle: str | None = None,
        confirmations: int = 0,
        first_block: int = 0,
        outbox: Outbox | None = None,
        timeout_s: float = 600.0,
        lock: str | os.PathLike[str] | None = None,
        ceiling: Ceiling | None = None,
    ) -> None:
        self._lock = None if lock is None else LockFile(os.fspath(lock))
        turn = None if lock is None else self._turn
        sender = Sender(
            node, key,
            confirmations=confirmations, ceiling=ceiling, outbox=outbox, timeout_s=timeout_s, turn=turn,
        )  # fmt: skip
        super().__init__(
            node, address, sender, owner=owner, oracle=oracle, first_block=first_block, timeout_s=timeout_s
        )
        self._records = Records(self._contract, sender, outbox)
        self._sizes: dict[tuple[bytes, bytes], int] = {}
        self._own: dict[int, Waiting] = {}
        self._gas: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._guard = threading.Lock()  # of what is remembered

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the right to send, among the processes that share the key."""
        assert self._lock is not None
        if not self._lock.acquire(_TURN_S):
            raise ChainError(f"another process with this key has been sending for {_TURN_S:g} s")
        try:
            yield
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the node's connections, and the lock."""
        super().close()
        if self._lock is not None:
            self._lock.close()

    # History

    def history(self, account: str, key: str) -> list[Event]:
        """Return the events on the chain under a key: its declaration, its charges, its records."""
        place = (self._dataset(account), self._key_id(account, key)[0])
        self.log.sync()
        return [one for one in self.log.events() if (one.fields["dataset"], one.fields.get("key")) == place]

    def gas(self, logs: Sequence[Log]) -> list[int | None]:
        """Return the gas used by the transaction of each log; None if the node has no receipt.

        Each transaction is asked for once.
        """
        places = [(one.block_hash, one.transaction) for one in logs]
        with self._guard:
            found = {place: self._gas[place] for place in places if place in self._gas}
        missing = list(dict.fromkeys(place for place in places if place not in found))
        asked = [("eth_getTransactionReceipt", [transaction]) for _, transaction in missing]
        for place, answer in zip(missing, self._node.rpc_many(asked), strict=True):
            receipt = None if isinstance(answer, ChainError) else as_receipt(answer)
            if receipt is not None and receipt.block_hash == place[0]:
                found[place] = receipt.gas
        with self._guard:
            self._gas |= found
            while len(self._gas) > _REMEMBERED:
                self._gas.popitem(last=False)
        return [found.get(place) for place in places]

    # Asking

    def _declare(self, account: str, key: str, question: str, grid: int, dimension: int) -> None:
        """Remember the question that is measured under a key, to be declared with the first request."""
        try:
            size = len(question.encode())
        except UnicodeEncodeError as error:
            raise ParameterError("question must be a text that UTF-8 can hold") from error
        if size > MOST_QUESTION:
            raise ParameterError(f"question must be at most {MOST_QUESTION} bytes on a chain, got {size}")
        if dimension > MOST_VALUES:
            raise ParameterError(f"dimension must be <= {MOST_VALUES} on a chain, got {dimension}")
        self._words[account, key] = Words(question, grid, dimension)

    def _request(self, terms: Terms, key: str, information: int, idempotency: str | None) -> Grant:
        return self._granted([self._ask("request", terms, key, information, idempotency)])

    def _request_many(self, orders: list[tuple[Terms, Order]]) -> list[Grant | LedgerError]:
        return self._decide(
            [
                self._ask("request", terms, order.key, order.information.units, order.idempotency)
                for terms, order in orders
            ]
        )

    def _pay(self, terms: Terms, key: str, units: int, idempotency: str | None) -> Grant:
        return self._granted([self._ask("pay", terms, key, units, idempotency)])

    def _ask(self, verb: str, terms: Terms, key: str, information: int, idempotency: str | None) -> Ask:
        name, words = self._key_id(terms.name, key)
        dataset, body = self._dataset(terms.name), body_of(verb, name, information)
        return Ask(
            verb, terms, key, information, idempotency, dataset, words, name, mark_of(idempotency), body
        )

    def _granted(self, asks: list[Ask]) -> Grant:
        answer = self._decide(asks)[0]
        if isinstance(answer, LedgerError):
            raise answer
        return answer

    def _decide(self, asks: list[Ask]) -> list[Grant | LedgerError]:
        orders = Orders(self._contract, self._sender, self.log, self._learn, self._timeout_s)
        answers = orders.grants(asks)
        for ask, answer in zip(asks, answers, strict=True):
            if isinstance(answer, UnknownAccount):  # the chain was reorganised
                self._opened.pop(ask.terms.name, None)
        return answers

    def _learn(self, waiting: Waiting) -> None:
        with self._guard:
            self._own[waiting.number] = waiting
            if len(self._own) > _REMEMBERED:
                del self._own[next(iter(self._own))]

    # Recording

    def record(self, waiting: Waiting, values: Sequence[int]) -> Sent:
        """Sign and broadcast the values of a measurement; `settle` waits for the confirmations.

        With an outbox, one measurement has the same values for ever: a signed record is kept before it is
        broadcast, and any other values that come later are refused.

        Raises:
            ChainError: Other values were signed for this measurement.
            CommitUnknown: The node was lost. Record the same values again.
        """
        return self._records.send([(waiting, values)])[0]

    def record_many(self, records: Sequence[tuple[Waiting, Sequence[int]]]) -> list[Sent]:
        """Record several measurements, in few messages to the node; see `record`."""
        return self._records.send(records)

    def settle(self, sent: Sent) -> Receipt:
        """Wait until a record has enough confirmations.

        Raises:
            AlreadyFulfilled: The measurement had its values.
            UnknownMeasurement: A reorganisation took the measurement back, or gave it another number.
        """
        receipt = self._records.settle([sent])[0]
        if isinstance(receipt, Receipt):
            return receipt
        raise receipt

    def settle_many(self, sent: Sequence[Sent]) -> list[Receipt | LedgerError | ParameterError]:
        """Settle several records, and return what `settle` would return or raise for each."""
        return self._records.settle(sent)

    def _fulfil(self, number: int, values: tuple[int, ...]) -> Reading:
        with self._guard:
            own = self._own.pop(number, None)
        check_size(len(values))
        for _ in range(ATTEMPTS):
            waiting = own or self._waiting_for(number, len(values))
            size = self._sizes.get((waiting.dataset, waiting.key))
            if own is not None and size is not None and size != len(values):
                own = None
                continue  # the slow way finds out what is wrong
            try:
                sent = self.record(waiting, values)
                answer = self._recorded_with(sent, waiting)
                if answer is None:
                    self.settle(sent)
            except (AlreadyFulfilled, UnknownMeasurement, ParameterError):
                if own is None:
                    raise
                own = None
                continue
            self._sizes[waiting.dataset, waiting.key] = len(values)
            if answer is None:
                answer = self._contract.call("recorded", waiting.dataset, waiting.key, block=self._depth())
            return as_reading(waiting.account, waiting.name, answer)
        raise LedgerError(f"measurement {number}: the chain is reorganised again and again")

    def _recorded_with(self, sent: Sent, waiting: Waiting) -> tuple[int, int, Sequence[int]] | None:
        """Return the recorded state of a key with the receipt in one message, if no confirmations are needed.

        None if the record is in no block yet, or if it is not certain that the node's answer includes it:
        this is certain only if nothing waits under the key.
        """
        if self._confirmations:
            return None
        asked = self._contract.asked("recorded", waiting.dataset, waiting.key)
        told, shown = self._node.rpc_many([("eth_getTransactionReceipt", [sent.hash]), asked])
        if isinstance(told, ChainError) or isinstance(shown, ChainError):
            return None
        receipt = as_receipt(told)
        if receipt is None or not receipt.succeeded:
            return None
        requested, recorded, sums = self._contract.artifact.decode("recorded", as_bytes(shown))
        whole = requested == recorded >= waiting.start + waiting.information
        return (requested, recorded, sums) if whole else None

    def _waiting_for(self, number: int, size: int) -> Waiting:
        """Return the measurement of a number, if it may be recorded with this number of values."""
        with self.log.reading() as state:
            if number >= len(state.measurements):
                raise UnknownMeasurement(f"measurement {number} was never asked for")
            found = state.measurements[number]
            if found.fulfilled:
                raise AlreadyFulfilled(f"measurement {number} has its values")
            if state.datasets[found.dataset].oracle != self.address:
                raise not_the_oracle(number, self.address)
            fixed = state.keys[found.dataset, found.key].size
            if fixed is not None and fixed != size:
                raise ParameterError(f"values must be {fixed} under this key, got {size}")
            return waiting_of(state, number)
