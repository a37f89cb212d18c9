"""The next action of a customer or a miner, as pure functions of the chain's state.

So a program that starts again after a crash, or looks again after a reorganisation, decides the same. An
action says what is to be done and in which round; `customer` and `miner` do it. None means: wait. The
contract decides it all again: these functions only spare transactions that it would refuse.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum

from eth_utils.crypto import keccak

from reticent.federated.crowd.contract import Miner, Seat, Status
from reticent.federated.crowd.following import Seen
from reticent.federated.crowd.history import History
from reticent.federated.crowd.terms import HASHES as HASHES

PATIENCE = 2  # blocks that each miner leaves to the one before it, for what anybody may do
EMPTY = 3  # rounds in a row without a commitment that miners close; later ones are for who takes part


class Do(Enum):
    """The kinds of actions."""

    APPLY = "apply"
    TRAIN = "train"
    COMMIT = "commit"
    REVEAL = "reveal"
    SETTLE = "settle"
    END = "end"
    SEED = "seed"
    SEAT = "seat"
    PROPOSE = "propose"
    VOTE = "vote"
    OVERTURN = "overturn"
    CLOSE = "close"
    REDRAW = "redraw"
    REWARD = "reward"
    SLASH = "slash"


@dataclass(frozen=True)
class Action:
    """An action of a customer or a miner.

    Attributes:
        do: Kind of the action.
        round: Number of the round.
        rank: of the leader whose turn it is, 0 or 1.
        draw: in which somebody is slashed.
        who: Address that is slashed.
    """

    do: Do
    round: int = 0
    rank: int = 0
    draw: int = 0
    who: str = ""


# A customer


def customer_action(seen: Seen, me: str, *, is_drawn: bool) -> Action | None:
    """Return the next action of a customer.

    Args:
        seen: Snapshot of the task.
        me: Address of the customer.
        is_drawn: True if the customer's update of the running round was drawn and sealed already.
    """
    number, task = seen.progress.round, seen.task
    if me not in task.customers:
        is_closed = seen.is_over or len(task.customers) >= task.terms.people
        return Action(Do.END if is_closed else Do.APPLY)
    if (unsettled := unsettled_round(seen, me)) is not None:
        return Action(Do.SETTLE, unsettled)
    if seen.is_over:
        return Action(Do.END)
    if seen.progress.status is not Status.COLLECTING:
        return None
    reveal = seen.progress.since + task.terms.commit_blocks
    if me not in task.rounds[number].commits:
        if seen.next >= reveal:
            return _closing_abandoned(seen, me)
        return Action(Do.COMMIT if is_drawn else Do.TRAIN, number)
    # The key is shown when no block can come any more in which others may still commit.
    is_time = seen.block + 1 >= reveal and seen.next < reveal + task.terms.reveal_blocks
    if is_time and is_drawn and me not in task.rounds[number].revealed:
        return Action(Do.REVEAL, number)
    return None


def unsettled_round(seen: Seen, customer: str) -> int | None:
    """Return the closed round for which a customer has not been settled yet."""
    for number, which in enumerate(seen.task.rounds):
        if which.is_closed and customer in which.revealed and customer not in which.settled:
            return number
    return None


def is_abandoned(seen: Seen) -> bool:
    """Whether nobody has committed to anything for so many rounds, up to the running one.

    A task of many short rounds costs little to post, and closing one pays nobody: a stranger who posts it
    must not empty the purses of all miners with it.
    """
    number = seen.progress.round
    last = seen.task.rounds[max(0, number - EMPTY) : number + 1]
    return len(last) > EMPTY and not any(one.commits for one in last)


def _closing_abandoned(seen: Seen, me: str) -> Action | None:
    """Return the action of a customer who closes a round that miners leave alone, to get the next round."""
    due = common_action(seen) if is_abandoned(seen) else None
    if due is None or due[0].do is not Do.CLOSE:
        return None
    return due[0] if seen.next >= due[1] + PATIENCE * place_in_line(seen, me, seen.task.customers) else None


# What anybody may do, and a miner does


def common_action(seen: Seen) -> tuple[Action, int] | None:
    """Return the action by which anybody may move a task on, and the block since which it can be sent."""
    number, since, terms = seen.progress.round, seen.progress.since, seen.task.terms
    seed, seat, turn = Action(Do.SEED, number), terms.seat_blocks, terms.turn_blocks
    close, redraw = Action(Do.CLOSE, number), Action(Do.REDRAW, number)
    match seen.progress.status:
        case Status.COLLECTING:
            fixed = since + terms.commit_blocks + terms.reveal_blocks
            enough = len(seen.task.rounds[number].revealed) >= 2 * terms.f + 3
            found = _by_seed(seen, seed, redraw, fixed) if enough else (close, fixed + 1)
        case Status.WAITING:
            found = _by_seed(seen, seed, redraw, since)
        case Status.DISPUTED:
            found = _by_seed(seen, seed, close, since)
        case Status.JUDGING:
            found = redraw, since + seat + 2 * turn
        case Status.DECIDED:
            found = close, since + terms.dispute_blocks
        case Status.APPEALING:
            found = close, since + seat + turn
        case Status.DONE | Status.CANCELLED:
            return None
    return found if seen.next >= found[1] else None


def _by_seed(seen: Seen, seed: Action, late: Action, fixed: int) -> tuple[Action, int]:
    """Return the action that draws with the hash of a block, or `late` where the hash is lost."""
    return (seed, fixed + 1) if seen.next <= fixed + HASHES else (late, fixed + HASHES + 1)


def place_in_line(seen: Seen, me: str, miners: Collection[str]) -> int:
    """Return the turn of a miner for what anybody may do: 0 is first, by a hash that changes every time."""
    progress = seen.progress
    salt = (
        seen.identifier + bytes([progress.status]) + progress.round.to_bytes(8) + progress.tries.to_bytes(8)
    )

    def lot(who: str) -> bytes:
        return bytes(keccak(salt + bytes.fromhex(who[2:])))

    return sum(lot(other) < lot(me) for other in miners if other != me)


def miner_action(
    seen: Seen, me: str, *, miners: Collection[str], seat: Seat | None, lot: int
) -> Action | None:
    """Return the next action of a miner for a task that is not over.

    Args:
        seen: Snapshot of the task.
        me: Address of the miner.
        miners: Addresses of all enrolled miners.
        seat: The miner's seats in the draw that runs, if it took any.
        lot: Number of seats that the miner's proof gives there; 0 where it may take none.
    """
    if (found := committee_action(seen, me, seat=seat, lot=lot)) is not None:
        return found
    if is_abandoned(seen) or (due := common_action(seen)) is None:
        return None
    action, since = due
    return action if seen.next >= since + PATIENCE * place_in_line(seen, me, miners) else None


def committee_action(seen: Seen, me: str, *, seat: Seat | None, lot: int) -> Action | None:
    """Return the action of a miner with its lot and its seats. See `miner_action`."""
    number, since, terms = seen.progress.round, seen.progress.since, seen.task.terms
    if seen.progress.status not in (Status.JUDGING, Status.APPEALING) or seen.draw is None:
        return None
    start, is_seated = since + terms.seat_blocks, seat is not None and seat.seats > 0
    if seen.next < start:
        return Action(Do.SEAT, number) if lot and not is_seated else None
    rank = (seen.next - start) // terms.turn_blocks
    if not is_seated or seat is None or rank > 1:
        return None
    if seen.progress.status is Status.APPEALING:
        return Action(Do.OVERTURN, number) if rank == 0 and not seat.voted[0] else None
    if not any(seen.draw.proposals[rank]):
        return Action(Do.PROPOSE, number, rank) if seen.draw.leaders[rank] == me else None
    return None if seat.voted[rank] else Action(Do.VOTE, number, rank)


def may_sit(miner: Miner | None, fixed: int) -> bool:
    """Whether a stake counts for the draw whose seed is of a block."""
    return miner is not None and miner.since < fixed and (miner.left == 0 or miner.left >= fixed)


def due_rewards(seen: Seen, history: History, me: str) -> Iterator[Action]:
    """Yield a reward action for each closed round whose fee, if any, a miner has earned and not received."""
    for number, which in enumerate(seen.task.rounds):
        if not which.is_closed or which.result not in which.proposals or me in which.rewarded:
            continue
        assert which.result is not None
        draw = history.draws[which.proposals[which.result][2].draw]
        share = seen.task.prices.committee_fee * draw.seats.get(me, 0)
        if me in draw.votes.get(which.result, ()) and share >= sum(draw.seats.values()):
            yield Action(Do.REWARD, number)


def due_slashes(history: History) -> Iterator[Action]:
    """Yield a slash action for each voter for an overturned result who still has the stake of then."""
    for number, named in history.overturned.items():
        for miner in sorted(history.draws[number].votes.get(named, ())):
            if miner in history.units and (number, miner) not in history.slashed:
                yield Action(Do.SLASH, draw=number, who=miner)
