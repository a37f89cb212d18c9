"""Transactions that are in a chain, as a node reports them, with the bytes that their sender signed.

A node reports the fields; the signed bytes are rebuilt from them, and must have the transaction's hash and
recover its sender. So the reader knows that the sender signed this very call, whatever the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import rlp  # type: ignore[import-untyped]
from eth_utils.crypto import keccak

from reticent.chain.keys import recovered
from reticent.chain.node import Node, as_bytes, as_number
from reticent.errors import ChainError, NodeUnavailable


@dataclass(frozen=True)
class Signed:
    """The hash, the signer and the chain (None: any) of a transaction's signed bytes."""

    hash: bytes
    signer: str | None
    chain_id: int | None


@dataclass(frozen=True)
class Transaction:
    """A transaction in a block.

    Attributes:
        hash: Hash of the signed bytes, as the node reports it.
        sender: Address that signed, as the node reports it; addresses are in lower case.
        to: Address that is called; None if the transaction makes a contract.
        data: Data of the call.
        value_wei: Coin that goes with the transaction, in wei.
        block: Number of the block.
        block_hash: Hash of the block.
        position: Index of the transaction in the block.
        signed: Content of the signed bytes; None for the kinds that a rollup makes by itself.
    """

    hash: str
    sender: str
    to: str | None
    data: bytes
    value_wei: int
    block: int
    block_hash: str
    position: int
    signed: Signed | None

    def is_signed(self, chain_id: int) -> bool | None:
        """Return whether the sender signed these fields for this chain; None if nobody signs that kind."""
        if self.signed is None:
            return None
        theirs = "0x" + self.signed.hash.hex() == self.hash and self.signed.signer == self.sender
        return theirs and self.signed.chain_id in (None, chain_id)


def transactions(node: Node, hashes: Sequence[str]) -> list[Transaction]:
    """Return transactions by their hashes.

    Raises:
        ChainError: The node does not have a transaction, gives another, or refuses.
    """
    found = node.rpc_many([("eth_getTransactionByHash", [one]) for one in hashes])
    for one, told in zip(hashes, found, strict=True):
        if isinstance(told, ChainError):
            raise told
        if told is None:
            raise ChainError(f"the node has no transaction {one}")
    read = [as_transaction(one) for one in found]
    for given, asked in zip(read, hashes, strict=True):
        if given.hash != asked.lower():
            raise ChainError(f"the node gives another transaction than {asked}")
    return read


def as_transaction(found: Any) -> Transaction:
    """Read a transaction from its JSON."""
    try:
        to = found["to"]
        return Transaction(
            str(found["hash"]).lower(),
            str(found["from"]).lower(),
            None if to is None else str(to).lower(),
            as_bytes(found["input"]),
            as_number(found["value"]),
            as_number(found["blockNumber"]),
            str(found["blockHash"]).lower(),
            as_number(found["transactionIndex"]),
            _signed(found),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NodeUnavailable("the node gave no transaction as JSON-RPC has it") from error


def _signed(found: dict[str, Any]) -> Signed | None:
    """Rebuild the signed content of a transaction and its signer (EIP-155, 2930, 1559, 4844, 7702)."""
    number = {name: as_number(told) for name, told in found.items() if name in _NUMBERS and told is not None}
    to = b"" if found["to"] is None else as_bytes(found["to"])
    call = [number["gas"], to, number["value"], as_bytes(found["input"])]
    kind, r, s = as_number(found.get("type") or "0x0"), number["r"], number["s"]
    if kind == 0:
        return _legacy([number["nonce"], number["gasPrice"], *call], number["v"], r, s)
    if kind >= _ROLLUPS:
        return None
    if kind > _LAST_KIND:
        raise ChainError(f"a transaction is of kind {kind}, which is not known here")
    fees = [number["gasPrice"]] if kind == 1 else [number["maxPriorityFeePerGas"], number["maxFeePerGas"]]
    fields = [number["chainId"], number["nonce"], *fees, *call, _access(found.get("accessList") or [])]
    if kind == _BLOBS:
        hashes = [as_bytes(one) for one in found["blobVersionedHashes"]]
        fields += [number["maxFeePerBlobGas"], hashes]
    if kind == _SET_CODE:
        fields.append([_authorization(one) for one in found["authorizationList"]])
    parity, head = number.get("yParity", number.get("v")), bytes([kind])
    raw = head + bytes(rlp.encode([*fields, parity, r, s]))
    digest = keccak(head + bytes(rlp.encode(fields)))
    return Signed(keccak(raw), recovered(digest, (parity or 0) + 27, r, s), number["chainId"])


def _legacy(fields: list[Any], v: int, r: int, s: int) -> Signed:
    """Rebuild a transaction of the first kind; signed for one chain since EIP-155, and for any before."""
    raw = keccak(bytes(rlp.encode([*fields, v, r, s])))
    if v in (27, 28):
        return Signed(raw, recovered(keccak(bytes(rlp.encode(fields))), v, r, s), None)
    chain, parity = divmod(v - 35, 2)
    digest = keccak(bytes(rlp.encode([*fields, max(0, chain), 0, 0])))
    return Signed(raw, recovered(digest, parity + 27, r, s), chain)


def _access(found: list[dict[str, Any]]) -> list[Any]:
    return [[as_bytes(one["address"]), [as_bytes(key) for key in one["storageKeys"]]] for one in found]


def _authorization(one: dict[str, Any]) -> list[Any]:
    words = [as_number(one[name]) for name in ("nonce", "yParity", "r", "s")]
    return [as_number(one["chainId"]), as_bytes(one["address"]), *words]


_NUMBERS = (
    "nonce", "gasPrice", "gas", "value", "v", "r", "s", "chainId", "maxPriorityFeePerGas", "maxFeePerGas",
    "yParity", "maxFeePerBlobGas",
)  # fmt: skip
_BLOBS = 3
_SET_CODE = _LAST_KIND = 4
_ROLLUPS = 0x60  # from here on kinds are those of rollups, made by themselves and signed by nobody
