"""Commitments of a round as versions of FederatedTask keep them: one word of storage for each customer.

Readers must agree with the contract that a chain has, faults included. Version 1 has two, both from one word
that may be zero: the customer whose commitment is the first of a round and has a value below 256 may commit
again, and where 256 people take part the last commitment is then kept with a bit of its number in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

VERSIONS = (1, 2)  # of FederatedTask
NEWEST = VERSIONS[-1]
OLD_VERSION = "post new tasks at a new one (`reticent crowd deploy`)"


@dataclass(frozen=True)
class CommitmentLayout:
    """The word in which a version of the contract keeps a commitment.

    Attributes:
        number_bits: Low bits of the word, which hold the commitment's number among those of its round.
        first_number: The number of the first commitment.
    """

    number_bits: int
    first_number: int

    def pack(self, commitment: bytes, earlier_count: int) -> int:
        """Return the word of a commitment that comes after so many others."""
        kept = int.from_bytes(commitment) >> self.number_bits << self.number_bits
        return kept | (earlier_count + self.first_number)

    def is_bound(self, word: int, commitment: bytes) -> bool:
        """Return whether a word is kept, and of this commitment."""
        return word != 0 and word >> self.number_bits == int.from_bytes(commitment) >> self.number_bits

    def earlier_count(self, word: int) -> int:
        """Return how many commitments came before that of a word."""
        return (word & (1 << self.number_bits) - 1) - self.first_number


LAYOUTS = {1: CommitmentLayout(8, 0), 2: CommitmentLayout(9, 1)}


@dataclass
class RoundCommitments:
    """The commitments of one round. Its length is the number of customers who committed.

    Attributes:
        version: Version of the contract.
        words: The word that the contract keeps for each customer, in the order of their first commitments.
        count: Commitments that the contract counted.
    """

    version: int = NEWEST
    words: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def __contains__(self, customer: object) -> bool:
        return customer in self.words

    def __len__(self) -> int:
        return len(self.words)

    def may_commit(self, customer: str) -> bool:
        """Return whether the contract takes a commitment of a customer now."""
        return self.words.get(customer, 0) == 0

    def add(self, customer: str, commitment: bytes) -> None:
        """Keep a commitment that the contract took."""
        self.words[customer] = LAYOUTS[self.version].pack(commitment, self.count)
        self.count += 1

    def is_bound(self, customer: str, commitment: bytes) -> bool:
        """Return whether what is kept for a customer is this commitment."""
        return LAYOUTS[self.version].is_bound(self.words.get(customer, 0), commitment)

    def is_early(self, customer: str) -> bool:
        """Return whether a customer is of the first half of those who committed, who get the bonus."""
        return 2 * LAYOUTS[self.version].earlier_count(self.words[customer]) < self.count
