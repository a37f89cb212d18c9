"""A model of FederatedTask.vy in plain Python: sets and lists where the contract has bits.

`Replay.call` takes a call as a transaction has it, and answers as the contract must: the returned value and
each event with every field, or a refusal for the same reason. `verify` compares a chain with this model; the
tests compare this model with the contract itself, call by call. Addresses are in lower case throughout, as
ABI decoding gives them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from reticent.chain.keys import recovered
from reticent.errors import ParameterError, ParameterTypeError
from reticent.federated.crowd.commitments import NEWEST, RoundCommitments
from reticent.federated.crowd.contract import (
    MOST_CID,
    NOBODY,
    Proposal,
    Status,
    admission,
    alpha,
    commitment,
    proposal_id,
    proven_output,
)
from reticent.federated.crowd.contract import VOID as VOID
from reticent.federated.crowd.lottery.seats import MOST_UNITS, priority, seats
from reticent.federated.crowd.terms import HASHES, MOST_REPUTATION, SEED_DELAY, Prices, Terms, pool
from reticent.federated.robust.reputation import Evaluation, average, changed

LARGER = 3  # times as many seats decide a dispute

Said = list[tuple[str, dict[str, Any]]]  # events: name and fields
_PAYABLE = ("post", "enrol", "dispute")


class Refused(Exception):
    """A refusal of a call by the contract; its reason, without the contract's name."""


def _unless(holds: Any, reason: str) -> None:
    if not holds:
        raise Refused(reason)


@dataclass
class Draw:
    """A draw: seats, the two leaders by their hash, their proposals and the voters for each, by rank."""

    task: bytes
    seed: bytes
    block: int
    stake: int
    seats: dict[str, int] = field(default_factory=dict)
    leaders: list[tuple[int, str]] = field(default_factory=list)  # priority of 96 bits, miner
    proposals: dict[int, bytes] = field(default_factory=dict)
    votes: dict[int, set[str]] = field(default_factory=lambda: {0: set(), 1: set()})
    done: set[str] = field(default_factory=set)
    overturned: tuple[str, int] | None = None  # disputer, rank


@dataclass
class Round:
    """A round: its commitments, the indices of those revealed, the result with its draw and rank."""

    commits: RoundCommitments
    revealed: set[int] = field(default_factory=set)
    result: bytes | None = None
    winner: tuple[int, int] | None = None
    average: int = 0


@dataclass
class Task:
    """The current state of a task. `since` is as in `contract.Progress`."""

    maker: str
    token: str
    gate: str
    terms: Terms
    prices: Prices
    pool: int
    since: int
    rounds: list[Round]
    status: Status = Status.COLLECTING
    number: int = 0  # of the round
    tries: int = 0
    draw: int = 0
    customers: list[str] = field(default_factory=list)
    unsettled: dict[str, int] = field(default_factory=dict)  # customer to round
    disputer: str | None = None

    @property
    def round(self) -> Round:
        """The round that runs."""
        return self.rounds[self.number]


@dataclass
class Miner:
    """A stake: since and until which block, and until which it is locked."""

    units: int
    since: int
    left: int = 0
    locked: int = 0


class Replay:
    """The contract's state, computed from its calls.

    Args:
        chain_id: Identifier of the chain.
        address: Address of the contract.
        unit: wei of a unit of stake.
        blockhash: the hash of a block by its number.
        version: Version of the contract.
    """

    def __init__(
        self,
        chain_id: int,
        address: str,
        unit: int,
        blockhash: Callable[[int], bytes],
        version: int = NEWEST,
    ) -> None:
        self.chain_id, self.address, self.unit, self.blockhash = chain_id, address, unit, blockhash
        self.version = version
        self.block = 0
        self.tasks: dict[bytes, Task] = {}
        self.draws: list[Draw] = [Draw(b"", b"", 0, 0)]  # the first has number 1
        self.proposed: dict[bytes, tuple[Any, ...]] = {}  # words by hash
        self.miners: dict[str, Miner] = {}
        self.totals = [(0, 0)]  # block, units
        self.reputations: dict[tuple[str, str], int] = {}  # by manufacturer and customer
        self.owed: dict[tuple[str, str], int] = {}  # by token and person

    def call(
        self, block: int, sender: str, function: str, *arguments: Any, worth: int = 0
    ) -> tuple[Any, Said]:
        """Apply a call, and return its value and its events.

        Args:
            block: Block of the call.
            sender: Address of the caller.
            function: Name of the function.
            arguments: Arguments as the ABI decodes them.
            worth: Wei that are sent with the call.

        Raises:
            Refused: The contract would refuse the call; nothing has changed.
        """
        self.block = block
        _unless(function in _PAYABLE or not worth, "")
        how = {"worth": worth} if function in _PAYABLE else {}
        found: tuple[Any, Said] = getattr(self, f"_{function}")(sender, *arguments, **how)
        return found

    def holds(self, token: str) -> int:
        """Return the coin or tokens that the contract must have: pool + stakes + owed."""
        pools = sum(task.pool for task in self.tasks.values() if task.token == token)
        owed = sum(amount for (kind, _), amount in self.owed.items() if kind == token)
        if token != NOBODY:
            return pools + owed
        deposits = sum(task.prices.deposit for task in self.tasks.values() if task.disputer)
        return pools + owed + deposits + self.unit * sum(miner.units for miner in self.miners.values())

    def seed_block(self, held: Task) -> int:
        """The block whose hash is the seed of the next draw."""
        if held.status == Status.COLLECTING:
            return held.since + held.terms.commit_blocks + held.terms.reveal_blocks
        _unless(held.status in (Status.WAITING, Status.DISPUTED), "no draw")
        return held.since

    def change_before(self, fixed: int) -> int:
        """The number of the last change of stakes before a block."""
        return max(place for place, (block, _) in enumerate(self.totals) if block < fixed)

    # Tasks and people

    def _post(
        self,
        sender: str,
        text: bytes,
        model: bytes,
        terms: Any,
        prices: Any,
        token: str,
        gate: str,
        *,
        worth: int,
    ) -> tuple[bytes, Said]:
        task = keccak(encode(["address", "bytes32"], [sender, keccak(text)]))
        _unless(task not in self.tasks, "posted already")
        _unless(0 < len(text) <= MOST_CID and 0 < len(model) <= MOST_CID, "text or model is empty")
        try:
            held, paid = Terms(*terms), Prices(*prices)
            if self.version > 1:
                held.check_windows()
        except (ParameterError, ParameterTypeError) as error:
            raise Refused(str(error)) from error
        needed = pool(held, paid)
        if token == NOBODY:
            _unless(worth == needed, "not the pool")
        else:
            _unless(not worth, "coin for a pool of tokens")
        self.tasks[task] = Task(sender, token, gate, held, paid, needed, self.block, [self._new_round()])
        fields = {
            "task": task, "manufacturer": sender, "token": token, "gate": gate, "text": text, "model": model,
            "terms": held.words(), "prices": paid.words(), "pool": needed,
        }  # fmt: skip
        return task, [("Posted", fields)]

    def _new_round(self) -> Round:
        return Round(RoundCommitments(self.version))

    def _find(self, task: bytes) -> Task:
        _unless(task in self.tasks, "no such task")
        return self.tasks[task]

    def _apply(self, sender: str, task: bytes, v: int | None, r: int, s: int) -> tuple[int, Said]:
        held = self._find(task)
        _unless(held.status < Status.DONE, "the task is over")
        _unless(sender not in held.customers, "applied already")
        _unless(len(held.customers) < held.terms.people, "full")
        if held.gate != NOBODY and v is not None:  # None: the signature is not known
            wanted = admission(self.chain_id, self.address, task, sender)
            _unless(recovered(wanted, v, r, s) == held.gate, "not admitted")
        index = len(held.customers)
        held.customers.append(sender)
        self.reputations.setdefault((held.maker, sender), 0)
        return index, [("Applied", {"task": task, "customer": sender, "index": index})]

    def _change(self, by: int) -> None:
        block, units = self.totals[-1]
        if block == self.block:
            self.totals[-1] = (block, units + by)
        else:
            self.totals.append((self.block, units + by))

    def _enrol(self, sender: str, *, worth: int) -> tuple[None, Said]:
        _unless(sender not in self.miners, "enrolled already")
        _unless(worth and worth % self.unit == 0, "not whole units")
        units = worth // self.unit
        _unless(self.totals[-1][1] + units <= MOST_UNITS, "too much stake")
        self.miners[sender] = Miner(units, self.block)
        self._change(units)
        return None, [("Enrolled", {"miner": sender, "units": units})]

    def _leave(self, sender: str) -> tuple[None, Said]:
        miner = self.miners.get(sender)
        _unless(miner and not miner.left, "not a miner")
        assert miner is not None
        miner.left = self.block
        self._change(-miner.units)
        return None, [("Left", {"miner": sender, "units": miner.units})]

    def _release(self, sender: str) -> tuple[None, Said]:
        miner = self.miners.get(sender)
        _unless(miner and miner.left, "did not leave")
        assert miner is not None
        _unless(self.block > max(miner.left, miner.locked), "still locked")
        del self.miners[sender]
        self._owe(NOBODY, sender, miner.units * self.unit)
        return None, [("Released", {"miner": sender, "units": miner.units})]

    # A round

    def _commit(self, sender: str, task: bytes, bound: bytes) -> tuple[None, Said]:
        held = self._find(task)
        _unless(held.status == Status.COLLECTING, "not collecting")
        _unless(self.block < held.since + held.terms.commit_blocks, "too late")
        _unless(sender in held.customers, "not a customer")
        _unless(sender not in held.unsettled, "settle before")
        _unless(held.round.commits.may_commit(sender), "committed already")
        held.round.commits.add(sender, bound)
        fields = {"task": task, "customer": sender, "round": held.number, "commitment": bound}
        return None, [("Committed", fields)]

    def _reveal(self, sender: str, task: bytes, cid: bytes, key: bytes) -> tuple[None, Said]:
        held = self._find(task)
        _unless(held.status == Status.COLLECTING, "not collecting")
        start = held.since + held.terms.commit_blocks
        _unless(self.block >= start, "too early")
        _unless(self.block < start + held.terms.reveal_blocks, "too late")
        _unless(sender in held.customers, "not a customer")
        _unless(sender not in held.unsettled, "revealed already")
        bound = commitment(task, held.number, sender, cid, key)
        _unless(held.round.commits.is_bound(sender, bound), "not what was committed")
        index = held.customers.index(sender)
        held.round.revealed.add(index)
        held.unsettled[sender] = held.number
        fields = {
            "task": task,
            "customer": sender,
            "round": held.number,
            "index": index,
            "cid": cid,
            "key": key,
        }
        return None, [("Revealed", fields)]

    def _enough(self, held: Task) -> bool:
        return len(held.round.revealed) >= 2 * held.terms.f + 3

    def _seed(self, sender: str, task: bytes, change: int) -> tuple[None, Said]:
        held = self._find(task)
        fixed = self.seed_block(held)
        _unless(self.block > fixed, "too early")
        _unless(self.block <= fixed + HASHES, "the seed is lost")
        _unless(held.status != Status.COLLECTING or self._enough(held), "too few updates")
        last = self.change_before(fixed)
        _unless(change <= last, "a later change")
        _unless(change == last, "an earlier change")
        units = self.totals[change][1]
        _unless(units, "no stake")
        drawn = Draw(task, self.blockhash(fixed), fixed, units)
        self.draws.append(drawn)
        held.status = Status.APPEALING if held.status == Status.DISPUTED else Status.JUDGING
        held.since, held.draw = self.block, len(self.draws) - 1
        fields = {
            "task": task, "draw": held.draw, "round": held.number, "fixed": fixed, "seed": drawn.seed,
            "stake": units, "expected": self._expected(held),
        }  # fmt: skip
        return None, [("Seeded", fields)]

    def _expected(self, held: Task) -> int:
        return held.terms.expected * (LARGER if held.status == Status.APPEALING else 1)

    def _seat(self, sender: str, task: bytes, point: Any, proof: Any, roots: Any) -> tuple[int, Said]:
        """Take seats. Without a point, `proof` is the output of a proof that is not known."""
        held = self._find(task)
        _unless(held.status in (Status.APPEALING, Status.JUDGING), "no draw")
        _unless(self.block < held.since + held.terms.seat_blocks, "too late")
        draw, miner = self.draws[held.draw], self.miners.get(sender)
        _unless(sender not in draw.seats, "seated already")
        there = miner and miner.since < draw.block and (not miner.left or miner.left >= draw.block)
        _unless(there, "no stake then")
        assert miner is not None
        output = proof if point is None else self._output(sender, task, point, proof, roots)
        count = seats(output, miner.units, draw.stake, self._expected(held))
        _unless(count, "no seat")
        draw.seats[sender] = count
        draw.leaders = sorted([*draw.leaders, (priority(output, count) >> 160, sender)])[:2]
        miner.locked = max(miner.locked, self.block + held.terms.lock_blocks)
        fields = {"task": task, "draw": held.draw, "miner": sender, "seats": count, "output": output}
        return count, [("Seated", fields)]

    def _output(self, sender: str, task: bytes, point: Any, proof: Any, roots: Any) -> bytes:
        held = self.tasks[task]
        own = "0x" + keccak(point[0].to_bytes(32) + point[1].to_bytes(32))[12:].hex()
        _unless(own == sender, "another's key")
        seed = self.draws[held.draw].seed
        given = alpha(self.chain_id, self.address, task, held.number, held.draw, seed)
        output = proven_output(point, given, proof, roots)
        _unless(output, "wrong proof")
        assert output is not None
        return output

    def _turn(self, held: Task) -> int:
        start, turn = held.since + held.terms.seat_blocks, held.terms.turn_blocks
        _unless(self.block >= start, "too early")
        _unless(self.block < start + 2 * turn, "too late")
        return int(self.block >= start + turn)

    def _propose(
        self, sender: str, task: bytes, cid: bytes, counted: int, accepted: int, low: int, paid: int
    ) -> tuple[bytes, Said]:
        held = self._find(task)
        _unless(held.status == Status.JUDGING, "no draw")
        rank, draw = self._turn(held), self.draws[held.draw]
        _unless(rank < len(draw.leaders) and draw.leaders[rank][1] == sender, "not the leader")
        _unless(rank not in draw.proposals, "proposed already")
        sets = [{bit for bit in range(256) if word >> bit & 1} for word in (counted, accepted, low, paid)]
        _unless(sets[0] <= held.round.revealed, "counted and not revealed")
        _unless(sets[1] <= sets[0], "accepted and not counted")
        _unless(sets[2] <= sets[0] - sets[1], "low and not rejected")
        _unless(sets[3] <= sets[1], "paid and not accepted")
        _unless(sets[1] and cid, "nothing proposed")
        words = Proposal(held.draw, keccak(cid), counted, accepted, low, paid)
        named = draw.proposals[rank] = proposal_id(task, held.number, words)
        self.proposed[named] = words.words()
        fields = {
            "task": task, "draw": held.draw, "leader": sender, "proposal": named, "cid": cid,
            "counted": counted, "accepted": accepted, "low": low, "paid": paid,
        }  # fmt: skip
        return named, [("Proposed", fields)]

    def _vote(self, sender: str, task: bytes, proposal: bytes) -> tuple[None, Said]:
        held = self._find(task)
        draw, rank = self.draws[held.draw], 0
        appeal = held.status == Status.APPEALING
        if appeal:
            start = held.since + held.terms.seat_blocks
            _unless(self.block >= start, "too early")
            _unless(self.block < start + held.terms.turn_blocks, "too late")
            _unless(proposal == held.round.result, "not the proposal")
        else:
            _unless(held.status == Status.JUDGING, "no draw")
            rank = self._turn(held)
            _unless(draw.proposals.get(rank) == proposal, "not the proposal")
        _unless(sender in draw.seats, "no seat")
        _unless(sender not in draw.votes[rank], "voted already")
        draw.votes[rank].add(sender)
        mine = draw.seats[sender]
        fields = {"task": task, "draw": held.draw, "miner": sender, "proposal": proposal, "seats": mine}
        said: Said = [("Voted", fields)]
        votes, taken = sum(draw.seats[one] for one in draw.votes[rank]), sum(draw.seats.values())
        if 3 * votes > 2 * taken and taken >= held.terms.least * (LARGER if appeal else 1):
            said += self._overturn(task, held) if appeal else self._decide(task, held, proposal, rank)
        return None, said

    def _decide(self, task: bytes, held: Task, proposal: bytes, rank: int) -> Said:
        held.round.result, held.round.winner = proposal, (held.draw, rank)
        mine = [points for (maker, _), points in self.reputations.items() if maker == held.maker]
        held.round.average = average(mine)
        held.status, held.since = Status.DECIDED, self.block
        fields = {"task": task, "round": held.number, "proposal": proposal, "average": held.round.average}
        return [("Decided", fields)]

    def _overturn(self, task: bytes, held: Task) -> Said:
        assert held.round.winner is not None
        assert held.disputer is not None
        number, rank = held.round.winner
        self.draws[number].overturned = held.disputer, rank
        self._owe(NOBODY, held.disputer, held.prices.deposit)
        held.round.result = held.round.winner = held.disputer = None
        return [("Overturned", {"task": task, "round": held.number, "draw": number}), self._again(task, held)]

    def _again(self, task: bytes, held: Task) -> tuple[str, dict[str, Any]]:
        held.tries += 1
        if held.tries >= held.terms.draws:
            held.status, held.since = Status.CANCELLED, self.block
            return "Cancelled", {"task": task, "round": held.number}
        held.status, held.since = Status.WAITING, self.block + SEED_DELAY
        return "Redrawn", {"task": task, "round": held.number, "tries": held.tries, "fixed": held.since}

    def _dispute(self, sender: str, task: bytes, *, worth: int) -> tuple[None, Said]:
        held = self._find(task)
        _unless(held.status == Status.DECIDED, "nothing to dispute")
        _unless(self.block < held.since + held.terms.dispute_blocks, "too late")
        _unless(worth == held.prices.deposit, "not the deposit")
        held.disputer, held.status, held.since = sender, Status.DISPUTED, self.block + SEED_DELAY
        return None, [("Disputed", {"task": task, "round": held.number, "disputer": sender})]

    def _close(self, sender: str, task: bytes) -> tuple[None, Said]:
        held = self._find(task)
        if held.status == Status.COLLECTING:
            _unless(self.block > self.seed_block(held), "too early")
            _unless(not self._enough(held), "not over")
            held.round.result = VOID
        else:
            self._check_stands(held)
            if held.disputer:
                self._owe(NOBODY, held.maker, held.prices.deposit)
                held.disputer = None
            assert held.round.winner is not None
            number, rank = held.round.winner
            held.pool -= held.prices.leader_fee
            self._owe(held.token, self.draws[number].leaders[rank][1], held.prices.leader_fee)
        said: Said = [("Closed", {"task": task, "round": held.number, "result": held.round.result})]
        held.number += 1
        held.rounds.append(self._new_round())
        held.status = Status.DONE if held.number == held.terms.rounds else Status.COLLECTING
        held.tries, held.since = 0, self.block
        return None, said

    def _check_stands(self, held: Task) -> None:
        ends = {
            Status.DECIDED: held.since + held.terms.dispute_blocks,
            Status.DISPUTED: held.since + HASHES + 1,
            Status.APPEALING: held.since + held.terms.seat_blocks + held.terms.turn_blocks,
        }
        _unless(held.status in ends, "not decided")
        _unless(self.block >= ends[held.status], "not over")

    def _redraw(self, sender: str, task: bytes) -> tuple[None, Said]:
        held = self._find(task)
        if held.status == Status.JUDGING:
            end = held.since + held.terms.seat_blocks + 2 * held.terms.turn_blocks
            _unless(self.block >= end, "not over")
        else:
            _unless(held.status in (Status.COLLECTING, Status.WAITING), "no draw")
            _unless(self.block > self.seed_block(held) + HASHES, "not over")
            _unless(held.status == Status.WAITING or self._enough(held), "too few updates")
        return None, [self._again(task, held)]

    # Money

    def _owe(self, token: str, person: str, amount: int) -> None:
        self.owed[token, person] = self.owed.get((token, person), 0) + amount

    def _settle(
        self, sender: str, task: bytes, number: int, customer: str, proposal: Any
    ) -> tuple[int, Said]:
        held = self.tasks.get(task)
        _unless(held and held.unsettled.get(customer) == number, "nothing to settle")
        assert held is not None
        _unless(number < held.number, "not closed")
        which, who = held.rounds[number], (held.maker, customer)
        reputation, pay = self.reputations[who], 0
        if which.result != VOID:
            words = Proposal(*proposal)
            _unless(proposal_id(task, number, words) == which.result, "not the result")
            reputation, pay = self._due(held, which, customer, words)
        del held.unsettled[customer]
        self.reputations[who] = reputation
        held.pool -= pay
        self._owe(held.token, customer, pay)
        fields = {"task": task, "customer": customer, "round": number, "reputation": reputation, "pay": pay}
        return pay, [("Settled", fields)]

    def _due(self, held: Task, which: Round, customer: str, words: Proposal) -> tuple[int, int]:
        """Return the reputation and the pay of a customer by the rules."""
        bit = 1 << held.customers.index(customer)
        judged = Evaluation.KEPT
        if words.accepted & bit:
            judged = Evaluation.HIGH
        elif words.low & bit:
            judged = Evaluation.LOW
        before = self.reputations[held.maker, customer]
        reputation = changed(before, judged, average=which.average, most=MOST_REPUTATION)
        if not words.paid & bit:
            return reputation, 0
        bonus = held.prices.bonus if which.commits.is_early(customer) else 0
        pay = reputation * (held.prices.unit + bonus)
        return reputation, min(pay, held.pool)

    def _check_mark(self, draw: Draw, miner: str, rank: int) -> None:
        _unless(miner in draw.votes[rank], "did not vote for it")
        _unless(miner not in draw.done, "done already")

    def _reward(self, sender: str, task: bytes, number: int, miner: str) -> tuple[int, Said]:
        held = self._find(task)
        _unless(number < held.number, "not closed")
        winner = held.rounds[number].winner
        _unless(winner, "nothing to reward")
        assert winner is not None
        draw = self.draws[winner[0]]
        self._check_mark(draw, miner, winner[1])
        draw.done.add(miner)
        fee = min(held.prices.committee_fee * draw.seats[miner] // sum(draw.seats.values()), held.pool)
        held.pool -= fee
        self._owe(held.token, miner, fee)
        return fee, [("Rewarded", {"task": task, "miner": miner, "round": number, "fee": fee})]

    def _slash(self, sender: str, number: int, miner: str) -> tuple[int, Said]:
        draw = self.draws[number] if 0 < number < len(self.draws) else None
        _unless(draw and draw.overturned, "not overturned")
        assert draw is not None
        assert draw.overturned is not None
        disputer, rank = draw.overturned
        self._check_mark(draw, miner, rank)
        found = self.miners.get(miner)
        _unless(found, "not a miner")
        assert found is not None
        draw.done.add(miner)
        if not found.left:
            self._change(-found.units)
        del self.miners[miner]
        half = found.units * self.unit // 2
        self._owe(NOBODY, disputer, half)
        self._owe(NOBODY, self.tasks[draw.task].maker, found.units * self.unit - half)
        return found.units, [("Slashed", {"draw": number, "miner": miner, "units": found.units})]

    def _reclaim(self, sender: str, task: bytes) -> tuple[int, Said]:
        held = self._find(task)
        _unless(held.status >= Status.DONE, "not over")
        _unless(self.block >= held.since + held.terms.claim_blocks, "too early")
        _unless(held.pool, "nothing left")
        amount, held.pool = held.pool, 0
        self._owe(held.token, held.maker, amount)
        return amount, [("Reclaimed", {"task": task, "amount": amount})]

    def _withdraw(self, sender: str, token: str) -> tuple[int, Said]:
        amount = self.owed.get((token, sender), 0)
        _unless(amount, "nothing owed")
        self.owed[token, sender] = 0
        return amount, [("Withdrawn", {"who": sender, "token": token, "amount": amount})]
