"""A contract on a chain as a node shows it: its views, several in one message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eth_utils.address import is_address, to_checksum_address

from reticent.chain.contracts import Artifact
from reticent.chain.node import Node, as_bytes, block_tag
from reticent.errors import ChainError, ParameterError

TOGETHER = 100  # calls in one message to the node


class ContractView:
    """A contract at an address, as a node shows it.

    Its code must be the artifact's.
    """

    def __init__(self, node: Node, address: str, artifact: Artifact) -> None:
        self.node, self.address = node, checked_address("contract", address)
        self.artifact = artifact
        self.artifact.check(node, self.address)

    def call(self, function: str, *arguments: Any, block: int | str = "latest") -> tuple[Any, ...] | None:
        """Return the answer of a view; None if the contract was not there yet."""
        data = self.node.call(self.address, self.artifact.encode(function, *arguments), block=block)
        return self._answer(function, data)

    def call_many(
        self, calls: Sequence[tuple[str, tuple[Any, ...]]], *, block: int | str = "latest"
    ) -> list[tuple[Any, ...] | None]:
        """Return the answers of several views, in few messages."""
        if len(calls) == 1:
            return [self.call(calls[0][0], *calls[0][1], block=block)]
        found: list[tuple[Any, ...] | None] = []
        for start in range(0, len(calls), TOGETHER):
            part = calls[start : start + TOGETHER]
            asked = [self.asked(function, *given, block=block) for function, given in part]
            for (function, _), answer in zip(part, self.node.rpc_many(asked), strict=True):
                if isinstance(answer, ChainError):
                    raise answer
                found.append(self._answer(function, as_bytes(answer)))
        return found

    def asked(self, function: str, *arguments: Any, block: int | str = "latest") -> tuple[str, list[Any]]:
        """Return the call of a view as a message to the node."""
        data = "0x" + self.artifact.encode(function, *arguments).hex()
        return "eth_call", [{"to": self.address, "data": data}, block_tag(block)]

    def _answer(self, function: str, data: bytes) -> tuple[Any, ...] | None:
        return self.artifact.decode(function, data) if data else None


def checked_address(field: str, given: Any) -> str:
    """Return an address with its check digits."""
    rule = f"{field} must be an address: 0x and 40 hexadecimal digits"
    if not isinstance(given, str) or not is_address(given):
        raise ParameterError(rule)
    checked = str(to_checksum_address(given))
    if given.removeprefix("0x") not in (checked[2:], checked[2:].lower(), checked[2:].upper()):
        raise ParameterError(f"{rule}; the capitals of {given} do not fit its digits")
    return checked
