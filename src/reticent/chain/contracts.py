"""Compiled contracts: encoding calls, decoding answers and events, and checking the code at an address."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from eth_abi.codec import ABICodec
from eth_abi.decoding import StringDecoder
from eth_abi.exceptions import DecodingError, EncodingError
from eth_abi.registry import registry
from eth_utils.abi import collapse_if_tuple
from eth_utils.crypto import keccak

from reticent.chain.node import Log, Node
from reticent.errors import ChainError, ParameterError, WrongChain

# A contract stores the bytes of a text unread: the writer of a text that is not UTF-8 must not stop readers.
_REGISTRY = registry.copy()  # type: ignore[no-untyped-call]
_REGISTRY.unregister_decoder("string")
_REGISTRY.register_decoder("string", StringDecoder("backslashreplace"), label="string")  # type: ignore[no-untyped-call]
_ABI = ABICodec(_REGISTRY)


EARLIER = "earlier.json"


@dataclass(frozen=True)
class Event:
    """A log entry that a contract is known to write."""

    name: str
    fields: dict[str, Any]
    log: Log


@dataclass(frozen=True)
class _Call:
    selector: bytes
    inputs: list[str]
    outputs: list[str]


@dataclass(frozen=True)
class _Written:
    name: str
    indexed: list[tuple[str, str]]
    data: list[tuple[str, str]]


@dataclass(frozen=True)
class Artifact:
    """A compiled contract.

    See `Artifact.read`.
    """

    name: str
    abi: list[dict[str, Any]]
    creation: bytes
    runtime: bytes
    earlier: dict[str, str] = field(default_factory=dict)  # by SHA-256 of their code: what they are, in words

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Artifact:
        """Read the contract from a JSON file that `reticent.chain.compile` wrote.

        Contracts that earlier releases deployed are in `earlier.json` beside it.
        """
        found = json.loads(Path(path).read_text())
        creation, runtime = (bytes.fromhex(found[part][2:]) for part in ("bytecode", "runtime"))
        before = Path(path).with_name(EARLIER)
        earlier = json.loads(before.read_text()).get(found["name"], {}) if before.is_file() else {}
        return cls(found["name"], found["abi"], creation, runtime, earlier)

    def encode(self, function: str, *arguments: Any) -> bytes:
        """Encode the data of a call.

        Raises:
            ParameterError: The arguments are not what the function takes.
        """
        call = self._calls[function]
        try:
            return call.selector + bytes(_ABI.encode(call.inputs, arguments))
        except (EncodingError, TypeError, ValueError, OverflowError):  # they quote the values
            raise ParameterError(f"{function} takes ({', '.join(call.inputs)}), got something else") from None

    def decode(self, function: str, data: bytes) -> tuple[Any, ...]:
        """Decode the answer of a function.

        Raises:
            ChainError: The answer is not this function's.
        """
        return self._decoded(self._calls[function].outputs, data, function)

    def called(self, data: bytes) -> tuple[str, tuple[Any, ...]]:
        """Return the function and the arguments of a call's data.

        Raises:
            ChainError: The data is no call of this contract.
        """
        for name, call in self._calls.items():
            if call.selector == data[:4]:
                return name, self._decoded(call.inputs, data[4:], f"call of {name}")
        raise ChainError(f"what the chain holds is no call of {self.name}")

    def _decoded(self, kinds: list[str], data: bytes, what: str) -> tuple[Any, ...]:
        try:
            return tuple(_ABI.decode(kinds, data))
        except (DecodingError, TypeError, ValueError, OverflowError) as error:
            raise ChainError(f"what the chain holds is no {what} of {self.name}") from error

    def topic(self, event: str) -> str:
        """Return the first topic of an event's logs."""
        return next("0x" + topic.hex() for topic, held in self._events.items() if held.name == event)

    def event(self, log: Log) -> Event | None:
        """Decode a log to an event with named fields; None if this contract writes no such log.

        Raises:
            ChainError: The log has the event's topic and not its fields.
        """
        held = self._events.get(log.topics[0]) if log.topics else None
        if held is None:
            return None
        if len(log.topics) != 1 + len(held.indexed):
            raise ChainError(f"what the chain holds is no {held.name} of {self.name}")
        names, kinds = [name for name, _ in held.indexed], [kind for _, kind in held.indexed]
        topics = self._decoded(kinds, b"".join(log.topics[1:]), held.name)  # one word each: no kind is longer
        fields = dict(zip(names, topics, strict=True))
        names, kinds = [name for name, _ in held.data], [kind for _, kind in held.data]
        fields |= dict(zip(names, self._decoded(kinds, log.data, held.name), strict=True))
        return Event(held.name, fields, log)

    def check(self, node: Node, address: str) -> None:
        """Refuse an address where another contract is, or none.

        Raises:
            WrongChain: Another contract is there, or none; the message says which.
        """
        code = node.code(address)
        if not code:
            raise WrongChain(f"there is no contract at {address} on chain {node.chain_id}")
        if code != self.runtime:
            before = self.earlier.get(sha256(code).hexdigest())
            told = "" if before is None else f", but {before}"
            raise WrongChain(f"the contract at {address} is not this version of {self.name}{told}")

    @cached_property
    def _calls(self) -> dict[str, _Call]:
        return {
            part["name"]: _Call(
                keccak(text=f"{part['name']}({','.join(_types(part['inputs']))})")[:4],
                _types(part["inputs"]),
                _types(part["outputs"]),
            )
            for part in self.abi
            if part["type"] == "function"
        }

    @cached_property
    def _events(self) -> dict[bytes, _Written]:
        found = {}
        for part in self.abi:
            if part["type"] != "event":
                continue
            kinds = _types(part["inputs"])
            named = [
                (one["name"], kind, one["indexed"]) for one, kind in zip(part["inputs"], kinds, strict=True)
            ]
            found[keccak(text=f"{part['name']}({','.join(kinds)})")] = _Written(
                part["name"],
                [(name, _as_topic(kind)) for name, kind, indexed in named if indexed],
                [(name, kind) for name, kind, indexed in named if not indexed],
            )
        return found


def _types(parameters: list[dict[str, Any]]) -> list[str]:
    return [collapse_if_tuple(one) for one in parameters]


def _as_topic(kind: str) -> str:
    """Return the type of an indexed field in a topic: a hash for all that is not one word."""
    return "bytes32" if kind in ("string", "bytes") or kind[0] == "(" or kind[-1] == "]" else kind
