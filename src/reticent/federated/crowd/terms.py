"""The terms of a task: rounds, people, windows and prices, and the pool that covers all of it."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from reticent.arguments import whole
from reticent.errors import ParameterError

MOST_REPUTATION = 10
MOST_PEOPLE = 256  # of a task: one bit each in the contract
MOST_ROUNDS = (1 << 16) - 1
MAX_WINDOW_BLOCKS = (1 << 20) - 1  # in which updates come, or what is left is claimed
MAX_JUDGING_BLOCKS = (1 << 16) - 1  # of each window for which a stake is locked
HASHES = 256  # blocks whose hashes a chain still tells
SEED_DELAY = 2  # blocks until the one whose hash is the seed of a new draw
_BYTE = (1 << 8) - 1
_PACKED_WINDOW = (1 << 28) - 1  # blocks that version 1 of the contract takes
_AMOUNT = (1 << 96) - 1
_FEE = (1 << 80) - 1


@dataclass(frozen=True)
class Terms:
    """The course of a task. Windows are counted in blocks.

    Attributes:
        rounds: how many models are made, one after the other.
        people: Largest number of customers.
        f: updates of a round that may be hostile; Multi-Krum needs 2 f + 3 updates.
        expected: seats of a committee, on average.
        least: seats that must have been taken for anything to be decided.
        draws: committees of one round that may decide nothing before the task is cancelled.
        commit_blocks: Blocks in which customers bind themselves.
        reveal_blocks: Blocks in which customers show what they were bound to.
        seat_blocks: Blocks in which miners take their seats.
        turn_blocks: Blocks in which a leader proposes and the seats vote.
        dispute_blocks: Blocks in which a result may be disputed.
        claim_blocks: Blocks after the end, before the remaining pool goes back.
    """

    rounds: int
    people: int
    f: int
    expected: int = 20
    least: int = 1
    draws: int = 3
    commit_blocks: int = 600
    reveal_blocks: int = 100
    seat_blocks: int = 50
    turn_blocks: int = 50
    dispute_blocks: int = 100
    claim_blocks: int = 7200

    def __post_init__(self) -> None:
        whole("rounds", self.rounds, low=1, high=MOST_ROUNDS)
        whole("people", self.people, low=1, high=MOST_PEOPLE)
        whole("f", self.f, low=0, high=_BYTE)
        if self.people < 2 * self.f + 3:
            raise ParameterError(f"people must be >= 2 f + 3 = {2 * self.f + 3}, got {self.people}")
        whole("expected", self.expected, low=1, high=_BYTE)
        whole("least", self.least, low=1, high=self.expected)
        whole("draws", self.draws, low=1, high=_BYTE)
        for window in ("commit", "reveal", "seat", "turn", "dispute", "claim"):
            whole(f"{window}_blocks", getattr(self, f"{window}_blocks"), low=1, high=_PACKED_WINDOW)

    def check_windows(self) -> None:
        """Refuse windows that are longer than the newest contract takes.

        Tasks of version 1 may have them, so that terms which are read from a chain need not pass this.

        Raises:
            ParameterError: A window is too long.
        """
        for window in ("commit", "reveal", "claim"):
            whole(f"{window}_blocks", getattr(self, f"{window}_blocks"), low=1, high=MAX_WINDOW_BLOCKS)
        for window in ("seat", "turn", "dispute"):
            whole(f"{window}_blocks", getattr(self, f"{window}_blocks"), low=1, high=MAX_JUDGING_BLOCKS)

    def check_claims(self, confirmations: int) -> None:
        """Refuse a window after the end that is over before anybody can claim what a task owes.

        A program sees the end once it is confirmed, and its claim is in the next block at the earliest; twice
        that leaves time for one reorganisation. Then the manufacturer may take all that is left.

        Args:
            confirmations: Blocks that must lie on top of what a program believes.

        Raises:
            ParameterError: The window is too short.
        """
        needed = 2 * (confirmations + 1)
        if self.claim_blocks < needed:
            raise ParameterError(
                f"claim_blocks must be >= {needed} to claim what is owed after {confirmations} confirmations"
                f", got {self.claim_blocks}"
            )

    @property
    def lock_blocks(self) -> int:
        """Blocks for which a seat locks the stake of its miner: until its vote can cost nothing any more."""
        judging = 2 * self.seat_blocks + 3 * self.turn_blocks + 2 * self.dispute_blocks
        return judging + SEED_DELAY + HASHES

    @property
    def round_blocks(self) -> int:
        """Blocks from the start of a round until its result stands, if its first draw decides."""
        collecting = self.commit_blocks + self.reveal_blocks
        return collecting + self.seat_blocks + 2 * self.turn_blocks + self.dispute_blocks

    def words(self) -> tuple[int, ...]:
        """Return the fields in the order of the contract's struct."""
        return astuple(self)


@dataclass(frozen=True)
class Prices:
    """The payments of a task, in wei of its coin or in the smallest part of its token.

    Attributes:
        unit: Payment to a customer whose update is accepted, for each point of reputation.
        bonus: Additional payment, for the first half of those who committed (Zhao 2022, 5.2.2).
        leader_fee: Fee for the leader of each round.
        committee_fee: Fee for all seats together; each seat gets its share, if it voted for the result.
        deposit: Deposit of an address that disputes a result, in wei; lost if the result stands.
    """

    unit: int
    bonus: int
    leader_fee: int
    committee_fee: int
    deposit: int

    def __post_init__(self) -> None:
        for name in ("unit", "bonus", "deposit"):
            whole(name, getattr(self, name), low=0, high=_AMOUNT)
        for name in ("leader_fee", "committee_fee"):
            whole(name, getattr(self, name), low=0, high=_FEE)

    def words(self) -> tuple[int, ...]:
        """Return the fields in the order of the contract's struct."""
        return astuple(self)


def pool(terms: Terms, prices: Prices) -> int:
    """Return the pool to be paid in: all rounds at their dearest. The remainder goes back at the end."""
    dearest = terms.people * MOST_REPUTATION * (prices.unit + prices.bonus)
    return terms.rounds * (dearest + prices.leader_fee + prices.committee_fee)
