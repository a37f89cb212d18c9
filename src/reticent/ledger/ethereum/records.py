"""The oracle's side of a chain: values of measurements, signed once and broadcast until a block has them."""

from __future__ import annotations

from collections.abc import Sequence

from reticent.arguments import whole
from reticent.chain.node import Receipt
from reticent.chain.outbox import Outbox, Sent
from reticent.chain.sender import Sender
from reticent.errors import (
    AlreadyFulfilled,
    ChainError,
    CommitUnknown,
    LedgerError,
    NodeUnavailable,
    ParameterError,
    TransactionRefused,
    UnknownMeasurement,
)
from reticent.ledger.base import MOST_VALUE
from reticent.ledger.ethereum.contract import MOST_VALUES, Contract, cause, identity
from reticent.ledger.ethereum.orders import Waiting

# Upper bounds of gas: every sum is written for the first time. Unused gas is not paid.
_FULFIL_GAS, _VALUE_GAS = 180_000, 26_000
_AFTER_NUMBER = slice(36, None)  # of a call: selector and number come first


class Records:
    """The records that an oracle sends.

    With an outbox, one measurement has the same values for ever.
    """

    def __init__(self, contract: Contract, sender: Sender, outbox: Outbox | None) -> None:
        self._contract, self._sender, self._outbox = contract, sender, outbox

    def send(self, records: Sequence[tuple[Waiting, Sequence[int]]]) -> list[Sent]:
        """Sign, keep and broadcast the values of measurements.

        See `EthereumLedger.record`.
        """
        calls: list[tuple[str | None, bytes]] = []
        labels, most = [], 0
        for waiting, values in records:
            check_size(len(values))
            given = [whole(f"values[{i}]", v, low=-MOST_VALUE, high=MOST_VALUE) for i, v in enumerate(values)]
            named = (waiting.number, waiting.dataset, waiting.key, waiting.start, waiting.information)
            data = self._contract.artifact.encode("fulfil", *named, given)
            calls.append((self._contract.address, data))
            labels.append(self._label(waiting, data))
            most = max(most, len(given))
        try:
            return self._sender.send_many(calls, gas=_FULFIL_GAS + _VALUE_GAS * most, labels=labels)
        except NodeUnavailable as error:
            raise CommitUnknown(f"{error}: record the same again") from error

    def _label(self, waiting: Waiting, data: bytes) -> str:
        """Return the outbox label of a measurement, and refuse other values than those signed before.

        A measurement is its identity; a reorganisation may change its number, and never its values.
        """
        if self._outbox is None:
            return ""
        what = identity(waiting.dataset, waiting.key, waiting.start, waiting.information).hex()
        label = f"{self._contract.node.chain_id}/{self._contract.address}/{what}"
        first = self._outbox.find(label)
        if first is None or first.data == data:
            return label
        said = (first.destination, first.data[_AFTER_NUMBER])
        if said != (self._contract.address, data[_AFTER_NUMBER]):
            raise ChainError(f"other values were signed before for measurement {waiting.number}")
        return f"{label}/{waiting.number}"

    def settle(self, sent: Sequence[Sent]) -> list[Receipt | LedgerError | ParameterError]:
        """Wait for the confirmations of records.

        See `EthereumLedger.settle`.
        """
        try:
            outcomes = self._sender.wait_many(sent)
        except NodeUnavailable as error:
            raise CommitUnknown(f"{error}: record the same again") from error
        return [
            self._refusal(one, int.from_bytes(record.data[4:36]))
            if isinstance(one, TransactionRefused)
            else one
            for record, one in zip(sent, outcomes, strict=True)
        ]

    def _refusal(self, refused: TransactionRefused, number: int) -> LedgerError | ParameterError:
        if cause(refused) == "fulfilled already":
            return AlreadyFulfilled(f"measurement {number} has its values")
        if cause(refused) in ("unknown measurement", "another measurement"):
            return UnknownMeasurement(f"measurement {number} was never asked for")
        if cause(refused) == "wrong number of values":
            return ParameterError(f"values must be as many as before under the key of measurement {number}")
        if cause(refused) == "not the oracle":
            return not_the_oracle(number, self._sender.address)
        raise refused


def check_size(size: int) -> None:
    """Refuse more values than a record on a chain may have."""
    if size > MOST_VALUES:
        raise ParameterError(f"values must be at most {MOST_VALUES} on a chain, got {size}")


def not_the_oracle(number: int, address: str) -> LedgerError:
    """Return the error for a record by an address that is not the oracle."""
    return LedgerError(f"measurement {number}: {address} is not the oracle of its account")
