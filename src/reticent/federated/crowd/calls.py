"""Calls of the crowd's contract: signed once, kept before they leave, and sent again as they are.

A label names what a call is for, so that neither a restart nor a second look at the same state doubles it. A
program does not wait for receipts: it looks at the chain, and what is not there yet is sent again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from eth_utils.crypto import keccak

from reticent.chain.fees import Ceiling, current_fees
from reticent.chain.node import as_number
from reticent.chain.sender import Sender
from reticent.errors import ChainError, TransactionRefused
from reticent.federated.crowd.contract import artifact, cause
from reticent.federated.crowd.plan import GAS

AGAIN_S, _AGAIN_BLOCKS = 5.0, 3  # after which a call that the chain does not show is sent again
_GAS_MARGIN = 1.5  # on the dearest that was seen; what is not used is not paid

Say = Callable[[str], None]


class Calls:
    """The calls that one key sends to one contract.

    Args:
        sender: Sender with an outbox, so that a label is sent once.
        contract: Address of the contract.
        ceiling: Ceiling of fees, as the sender's.
        say: Function that is called with a line on what happens.
    """

    def __init__(self, sender: Sender, contract: str, ceiling: Ceiling, say: Say) -> None:
        self.sender, self.me = sender, sender.address
        self._contract, self._ceiling, self._say = contract, ceiling, say
        self.block = 0  # that the program looks at
        self._tried: dict[str, tuple[float, int]] = {}  # when, and at which block
        self._said: dict[str, str] = {}

    def send(self, function: str, *arguments: Any, once: str, only: bool = False, value_wei: int = 0) -> None:
        """Send a call, unless it was sent a moment ago. What the contract refuses is said, not raised.

        Args:
            function: Function of the contract.
            arguments: Arguments of the function.
            once: Text that tells apart calls with the same arguments: round, tries.
            only: True if nothing else may ever be sent for this purpose, whatever it would say.
            value_wei: Wei that are sent with the call.

        Raises:
            ChainError: the node is away, the fee too high, or something else was sent for this before.
        """
        data = artifact().encode(function, *arguments)
        # A contract may have the same address on two chains.
        told = [str(self.sender.node.chain_id), self._contract, function, once]
        told += [] if only else [keccak(data).hex()[:16]]
        label = "/".join(told)
        if self._is_fresh(label):
            return
        least = int(_GAS_MARGIN * GAS.get("deciding vote" if function == "vote" else function, 0))
        try:
            sent = self.sender.send(self._contract, data, label=label, value_wei=value_wei, least_gas=least)
            if label in self._tried:
                self.sender.send_again(sent)
        except TransactionRefused as refusal:
            self._refused(label, function, refusal)
        else:
            self._tried[label] = time.monotonic(), self.block
            if self._said.get(label) != "sent":
                self._said[label] = "sent"
                self._say(f"{function}, {once}")

    def _is_fresh(self, label: str) -> bool:
        """Whether a call was sent a moment ago, and may still be on its way."""
        at, block = self._tried.get(label, (float("-inf"), 0))
        late = block + self.sender.confirmations + _AGAIN_BLOCKS
        return time.monotonic() - at < AGAIN_S and self.block < late

    def _refused(self, label: str, function: str, refusal: TransactionRefused) -> None:
        """Report why a call was refused, once. Raise ChainError where the key has too little coin."""
        if "insufficient funds" in refusal.reason.lower():
            raise ChainError(f"{self.me} has too little of the chain's coin to {function}") from refusal
        if self._said.get(label) != refusal.reason:
            self._said[label] = refusal.reason
            self._say(f"{function} is refused: {cause(refusal)}")

    def balance(self) -> int:
        """The key's coin, in wei."""
        return as_number(self.sender.node.rpc("eth_getBalance", self.me, "latest"))

    def number(self) -> int:
        """Return the number of transactions of the key that are in blocks."""
        return as_number(self.sender.node.rpc("eth_getTransactionCount", self.me, "latest"))

    def check_purse(self, *functions: str, value_wei: int = 0) -> None:
        """Refuse to begin what cannot be paid to its end.

        Raises:
            ChainError: the key has too little for the gas of these calls.
        """
        gas = int(_GAS_MARGIN * sum(GAS[one] for one in functions))
        needed = gas * current_fees(self.sender.node, self._ceiling).most + value_wei
        held = self.balance()
        if held < needed:
            raise ChainError(
                f"{self.me} has {held} wei of the chain's coin, and needs {needed} to {', '.join(functions)}"
            )
