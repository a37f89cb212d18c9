"""Payments of one batch as a Merkle tree: one root on a chain pays any number of sellers.

A leaf is keccak256 of salt, place, payee and amount, a word of 32 bytes each; a node is keccak256 of its two
children. The two cannot be mistaken for each other, since they hash 128 and 64 bytes. What is missing to a
power of two are words of zeros, of which nobody knows what they would be the hash of.

Privacy: the root tells nothing. A proof tells the hashes of neighbours, and payments are few and known (a
menu has 64 levels), so every leaf has a salt of its own that is told with the claim only. A claim itself
tells everybody who was paid how much, and so which level was sold: sellers who mind use an address of its
own, or are paid elsewhere.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from eth_utils.crypto import keccak

from reticent.arguments import whole
from reticent.chain.view import checked_address
from reticent.errors import ParameterError

DEPTH = 32
MOST_AMOUNT = (1 << 256) - 1
_WORD = 32
_NOTHING = bytes(_WORD)


@dataclass(frozen=True)
class Payment:
    """A payment to one payee in a batch.

    Attributes:
        payee: Address that is paid.
        amount: Amount in the smallest unit of the coin or the token.
        salt: Random salt of 32 bytes.
    """

    payee: str
    amount: int
    salt: bytes

    def __post_init__(self) -> None:
        object.__setattr__(self, "payee", checked_address("payee", self.payee))
        whole("amount", self.amount, low=1, high=MOST_AMOUNT)
        if not isinstance(self.salt, bytes) or len(self.salt) != _WORD:
            raise ParameterError(f"salt must be {_WORD} bytes")

    @classmethod
    def drawn(cls, payee: str, amount: int) -> Payment:
        """With a salt of its own."""
        return cls(payee, amount, secrets.token_bytes(_WORD))

    def leaf(self, place: int) -> bytes:
        """Its leaf at a place of a batch."""
        payee = bytes(12) + bytes.fromhex(self.payee[2:])
        return keccak(self.salt + place.to_bytes(_WORD) + payee + self.amount.to_bytes(_WORD))


@dataclass(frozen=True)
class Batch:
    """Payments in their order."""

    payments: tuple[Payment, ...]

    def __post_init__(self) -> None:
        if not self.payments:
            raise ParameterError("payments must be at least one, got none")
        whole("the sum of the payments", self.total, high=MOST_AMOUNT)

    @cached_property
    def total(self) -> int:
        """The sum that a batch is settled with."""
        return sum(payment.amount for payment in self.payments)

    @property
    def root(self) -> bytes:
        """The Merkle root of the batch, which is written to the chain."""
        return self._rows[-1][0]

    def proof(self, place: int) -> list[bytes]:
        """Return the hashes beside the way from a payment to the root."""
        way = whole("place", place, low=0, high=len(self.payments) - 1)
        found = []
        for row in self._rows[:-1]:
            beside = way ^ 1
            found.append(row[beside] if beside < len(row) else _NOTHING)
            way >>= 1
        return found

    @cached_property
    def _rows(self) -> list[list[bytes]]:
        """The leaves, then every row above them; what is missing at the end of a row is `_NOTHING`."""
        rows = [[payment.leaf(place) for place, payment in enumerate(self.payments)]]
        while len(rows[-1]) > 1:
            row = rows[-1]
            ends = row if len(row) % 2 == 0 else [*row, _NOTHING]
            rows.append([keccak(ends[at] + ends[at + 1]) for at in range(0, len(ends), 2)])
        return rows


def root_of(payment: Payment, place: int, proof: Sequence[bytes]) -> bytes:
    """Return the root that a payment and its proof lead to, as the contract works it out."""
    found, way = payment.leaf(place), place
    for beside in proof:
        found = keccak(beside + found if way & 1 else found + beside)
        way >>= 1
    if way:
        raise ParameterError(f"place must be below 2 to the {len(proof)}, got {place}")
    return found
