"""What FederatedTask.vy should do, in plain Python: sets and lists where the contract has bits."""

from dataclasses import dataclass, field

from eth_abi import encode
from eth_keys import keys
from eth_utils import keccak

from reticent.federated.crowd.contract import (
    Proposal,
    Status,
    admission,
    alpha,
    chain_proof,
    commitment,
    proposal_id,
)
from reticent.federated.crowd.lottery import priority, seats, secp256k1
from reticent.federated.crowd.terms import MOST_REPUTATION, Prices, Terms, pool
from reticent.federated.robust.reputation import Evaluation, average, changed

from .crowd import CHAIN, UNIT
from .revm import NOBODY, Refused

HASHES, DELAY, LARGER = 256, 2, 3
VOID = "void"
HIGH, KEPT, LOW = Evaluation.HIGH, Evaluation.KEPT, Evaluation.LOW


def refuse_unless(true, reason):
    if not true:
        raise Refused(f"crowd: {reason}")


@dataclass
class Draw:
    task: bytes
    seed: bytes
    block: int
    stake: int
    seats: dict = field(default_factory=dict)
    leaders: list = field(default_factory=list)  # (priority of 96 bits, miner), the least two
    proposals: dict = field(default_factory=dict)  # by rank
    votes: dict = field(default_factory=lambda: {0: set(), 1: set()})
    done: set = field(default_factory=set)
    overturned: tuple | None = None  # disputer, rank


@dataclass
class Round:
    commits: dict = field(default_factory=dict)  # customer to commitment, in their order
    revealed: set = field(default_factory=set)
    result: object = None
    winner: tuple | None = None  # draw, rank
    average: int = 0


@dataclass
class Task:
    maker: str
    token: str
    gate: str
    terms: Terms
    prices: Prices
    pool: int
    since: int
    status: Status = Status.COLLECTING
    number: int = 0  # of the round
    tries: int = 0
    draw: int = 0
    customers: list = field(default_factory=list)
    unsettled: dict = field(default_factory=dict)  # customer to round
    rounds: list = field(default_factory=lambda: [Round()])
    disputer: str | None = None

    @property
    def round(self):
        return self.rounds[self.number]


@dataclass
class Miner:
    units: int
    since: int
    left: int = 0
    locked: int = 0


class Model:
    """`call` answers as the contract must: what it returns, and the names of its events."""

    def __init__(self, crowd):
        self.address, self.blockhash = crowd.address, crowd.blockhash
        self.block = 0
        self.tasks, self.draws, self.miners = {}, [None], {}
        self.totals = [(0, 0)]  # block, units
        self.reputations = {}  # (maker, customer)
        self.owed = {}  # (token, person)

    def call(self, block, sender, function, *arguments, worth=0):
        self.block = block
        how = {"worth": worth} if function in ("post", "enrol", "dispute") else {}
        if not how and worth:
            raise Refused("")
        return getattr(self, function)(sender, *arguments, **how)

    def owe(self, token, person, amount):
        self.owed[token, person] = self.owed.get((token, person), 0) + amount

    def post(self, sender, text, model, terms, prices, token, gate, worth):
        task = keccak(encode(["address", "bytes32"], [sender, keccak(text)]))
        refuse_unless(task not in self.tasks, "posted already")
        terms, prices = Terms(*terms), Prices(*prices)
        needed = pool(terms, prices)
        if token == NOBODY:
            refuse_unless(worth == needed, "not the pool")
        else:
            refuse_unless(not worth, "coin for a pool of tokens")
        self.tasks[task] = Task(sender, token, gate, terms, prices, needed, self.block)
        return task, ["Posted"]

    def find(self, task):
        refuse_unless(task in self.tasks, "no such task")
        return self.tasks[task]

    def apply(self, sender, task, v, r, s):
        held = self.find(task)
        refuse_unless(held.status < Status.DONE, "the task is over")
        refuse_unless(sender not in held.customers, "applied already")
        refuse_unless(len(held.customers) < held.terms.people, "full")
        if held.gate != NOBODY:
            wanted = admission(CHAIN, self.address, task, sender)
            try:
                who = keys.Signature(vrs=(v - 27, r, s)).recover_public_key_from_msg_hash(wanted)
                admitted = who.to_address() == held.gate
            except Exception:
                admitted = False
            refuse_unless(admitted, "not admitted")
        held.customers.append(sender)
        self.reputations.setdefault((held.maker, sender), 0)
        return len(held.customers) - 1, ["Applied"]

    def change(self, by):
        block, units = self.totals[-1]
        if block == self.block:
            self.totals[-1] = (block, units + by)
        else:
            self.totals.append((self.block, units + by))

    def enrol(self, sender, worth):
        refuse_unless(sender not in self.miners, "enrolled already")
        refuse_unless(worth and worth % UNIT == 0, "not whole units")
        refuse_unless(self.totals[-1][1] + worth // UNIT < 1 << 32, "too much stake")
        self.miners[sender] = Miner(worth // UNIT, self.block)
        self.change(worth // UNIT)
        return None, ["Enrolled"]

    def leave(self, sender):
        miner = self.miners.get(sender)
        refuse_unless(miner and not miner.left, "not a miner")
        miner.left = self.block
        self.change(-miner.units)
        return None, ["Left"]

    def release(self, sender):
        miner = self.miners.get(sender)
        refuse_unless(miner and miner.left, "did not leave")
        refuse_unless(self.block > max(miner.left, miner.locked), "still locked")
        del self.miners[sender]
        self.owe(NOBODY, sender, miner.units * UNIT)
        return None, ["Released"]

    def commit(self, sender, task, bound):
        held = self.find(task)
        refuse_unless(held.status == Status.COLLECTING, "not collecting")
        refuse_unless(self.block < held.since + held.terms.commit_blocks, "too late")
        refuse_unless(sender in held.customers, "not a customer")
        refuse_unless(sender not in held.unsettled, "settle before")
        refuse_unless(sender not in held.round.commits, "committed already")
        held.round.commits[sender] = bound
        return None, ["Committed"]

    def reveal(self, sender, task, cid, key):
        held = self.find(task)
        refuse_unless(held.status == Status.COLLECTING, "not collecting")
        start = held.since + held.terms.commit_blocks
        refuse_unless(self.block >= start, "too early")
        refuse_unless(self.block < start + held.terms.reveal_blocks, "too late")
        refuse_unless(sender in held.customers, "not a customer")
        refuse_unless(sender not in held.unsettled, "revealed already")
        bound = commitment(task, held.number, sender, cid, key)
        found = held.round.commits.get(sender)
        refuse_unless(found and found[:-1] == bound[:-1], "not what was committed")
        held.round.revealed.add(held.customers.index(sender))
        held.unsettled[sender] = held.number
        return None, ["Revealed"]

    def seed_block(self, held):
        if held.status == Status.COLLECTING:
            return held.since + held.terms.commit_blocks + held.terms.reveal_blocks
        refuse_unless(held.status in (Status.WAITING, Status.DISPUTED), "no draw")
        return held.since

    def enough(self, held):
        return len(held.round.revealed) >= 2 * held.terms.f + 3

    def seed(self, sender, task, change):
        held = self.find(task)
        fixed = self.seed_block(held)
        refuse_unless(self.block > fixed, "too early")
        refuse_unless(self.block <= fixed + HASHES, "the seed is lost")
        refuse_unless(held.status != Status.COLLECTING or self.enough(held), "too few updates")
        before = [place for place, (block, _) in enumerate(self.totals) if block < fixed]
        refuse_unless(change in before, "a later change")
        refuse_unless(change == before[-1], "an earlier change")
        units = self.totals[change][1]
        refuse_unless(units, "no stake")
        self.draws.append(Draw(task, self.blockhash(fixed), fixed, units))
        held.status = Status.APPEALING if held.status == Status.DISPUTED else Status.JUDGING
        held.since, held.draw = self.block, len(self.draws) - 1
        return None, ["Seeded"]

    def seat(self, sender, task, point, proof, roots):
        held = self.find(task)
        appeal = held.status == Status.APPEALING
        refuse_unless(appeal or held.status == Status.JUDGING, "no draw")
        refuse_unless(self.block < held.since + held.terms.seat_blocks, "too late")
        draw, miner = self.draws[held.draw], self.miners.get(sender)
        refuse_unless(sender not in draw.seats, "seated already")
        there = miner and miner.since < draw.block and (not miner.left or miner.left >= draw.block)
        refuse_unless(there, "no stake then")
        own = "0x" + keccak(point[0].to_bytes(32) + point[1].to_bytes(32))[12:].hex()
        refuse_unless(own == sender, "another's key")
        given = alpha(CHAIN, self.address, task, held.number, held.draw, draw.seed)
        output = verified(point, given, proof, roots)
        refuse_unless(output, "wrong proof")
        expected = held.terms.expected * (LARGER if appeal else 1)
        count = seats(output, miner.units, draw.stake, expected)
        refuse_unless(count, "no seat")
        draw.seats[sender] = count
        draw.leaders = sorted([*draw.leaders, (priority(output, count) >> 160, sender)])[:2]
        terms = held.terms
        lock = 2 * terms.seat_blocks + 3 * terms.turn_blocks + 2 * terms.dispute_blocks + DELAY + HASHES
        miner.locked = max(miner.locked, self.block + lock)
        return count, ["Seated"]

    def turn(self, held):
        start, turn = held.since + held.terms.seat_blocks, held.terms.turn_blocks
        refuse_unless(self.block >= start, "too early")
        refuse_unless(self.block < start + 2 * turn, "too late")
        return int(self.block >= start + turn)

    def propose(self, sender, task, cid, counted, accepted, low, paid):
        held = self.find(task)
        refuse_unless(held.status == Status.JUDGING, "no draw")
        rank, draw = self.turn(held), self.draws[held.draw]
        leads = rank < len(draw.leaders) and draw.leaders[rank][1] == sender
        refuse_unless(leads, "not the leader")
        refuse_unless(rank not in draw.proposals, "proposed already")
        sets = [{bit for bit in range(256) if word >> bit & 1} for word in (counted, accepted, low, paid)]
        refuse_unless(sets[0] <= held.round.revealed, "counted and not revealed")
        refuse_unless(sets[1] <= sets[0], "accepted and not counted")
        refuse_unless(sets[2] <= sets[0] - sets[1], "low and not rejected")
        refuse_unless(sets[3] <= sets[1], "paid and not accepted")
        refuse_unless(sets[1] and cid, "nothing proposed")
        words = Proposal(held.draw, keccak(cid), counted, accepted, low, paid)
        draw.proposals[rank] = proposal_id(task, held.number, words)
        return draw.proposals[rank], ["Proposed"]

    def vote(self, sender, task, proposal):
        held = self.find(task)
        draw, rank = self.draws[held.draw], 0
        appeal = held.status == Status.APPEALING
        if appeal:
            start = held.since + held.terms.seat_blocks
            refuse_unless(self.block >= start, "too early")
            refuse_unless(self.block < start + held.terms.turn_blocks, "too late")
            refuse_unless(proposal == held.round.result, "not the proposal")
        else:
            refuse_unless(held.status == Status.JUDGING, "no draw")
            rank = self.turn(held)
            refuse_unless(draw.proposals.get(rank) == proposal, "not the proposal")
        refuse_unless(sender in draw.seats, "no seat")
        refuse_unless(sender not in draw.votes[rank], "voted already")
        draw.votes[rank].add(sender)
        votes, taken = sum(draw.seats[one] for one in draw.votes[rank]), sum(draw.seats.values())
        least = held.terms.least * (LARGER if appeal else 1)
        if not (3 * votes > 2 * taken and taken >= least):
            return None, ["Voted"]
        if appeal:
            return None, ["Voted", *self.overturn(held)]
        held.round.result, held.round.winner = proposal, (held.draw, rank)
        mine = [rep for (maker, _), rep in self.reputations.items() if maker == held.maker]
        held.round.average = average(mine)
        held.status, held.since = Status.DECIDED, self.block
        return None, ["Voted", "Decided"]

    def overturn(self, held):
        number, rank = held.round.winner
        self.draws[number].overturned = held.disputer, rank
        self.owe(NOBODY, held.disputer, held.prices.deposit)
        held.round.result = held.round.winner = held.disputer = None
        return ["Overturned", self.again(held)]

    def again(self, held):
        held.tries += 1
        if held.tries >= held.terms.draws:
            held.status, held.since = Status.CANCELLED, self.block
            return "Cancelled"
        held.status, held.since = Status.WAITING, self.block + DELAY
        return "Redrawn"

    def dispute(self, sender, task, worth):
        held = self.find(task)
        refuse_unless(held.status == Status.DECIDED, "nothing to dispute")
        refuse_unless(self.block < held.since + held.terms.dispute_blocks, "too late")
        refuse_unless(worth == held.prices.deposit, "not the deposit")
        held.disputer, held.status, held.since = sender, Status.DISPUTED, self.block + DELAY
        return None, ["Disputed"]

    def close(self, sender, task):
        held = self.find(task)
        if held.status == Status.COLLECTING:
            refuse_unless(self.block > self.seed_block(held), "too early")
            refuse_unless(not self.enough(held), "not over")
            held.round.result = VOID
        else:
            ends = {
                Status.DECIDED: held.since + held.terms.dispute_blocks,
                Status.DISPUTED: held.since + HASHES + 1,
                Status.APPEALING: held.since + held.terms.seat_blocks + held.terms.turn_blocks,
            }
            refuse_unless(held.status in ends, "not decided")
            refuse_unless(self.block >= ends[held.status], "not over")
            if held.disputer:
                self.owe(NOBODY, held.maker, held.prices.deposit)
                held.disputer = None
            number, rank = held.round.winner
            held.pool -= held.prices.leader_fee
            self.owe(held.token, self.draws[number].leaders[rank][1], held.prices.leader_fee)
        held.number += 1
        held.rounds.append(Round())
        held.status = Status.DONE if held.number == held.terms.rounds else Status.COLLECTING
        held.tries, held.since = 0, self.block
        return None, ["Closed"]

    def redraw(self, sender, task):
        held = self.find(task)
        if held.status == Status.JUDGING:
            end = held.since + held.terms.seat_blocks + 2 * held.terms.turn_blocks
            refuse_unless(self.block >= end, "not over")
        else:
            refuse_unless(held.status in (Status.COLLECTING, Status.WAITING), "no draw")
            refuse_unless(self.block > self.seed_block(held) + HASHES, "not over")
            refuse_unless(held.status == Status.WAITING or self.enough(held), "too few updates")
        return None, [self.again(held)]

    def settle(self, sender, task, number, customer, proposal):
        held = self.tasks.get(task)
        refuse_unless(held and held.unsettled.get(customer) == number, "nothing to settle")
        refuse_unless(number < held.number, "not closed")
        which, who = held.rounds[number], (held.maker, customer)
        reputation, pay = self.reputations[who], 0
        if which.result != VOID:
            words = Proposal(*proposal)
            refuse_unless(proposal_id(task, number, words) == which.result, "not the result")
            bit = 1 << held.customers.index(customer)
            judged = LOW if words.low & bit else HIGH if words.accepted & bit else KEPT
            reputation = changed(reputation, judged, average=which.average, most=MOST_REPUTATION)
            if words.accepted & bit:
                early = 2 * list(which.commits).index(customer) < len(which.commits)
                if words.paid & bit:
                    pay = reputation * (held.prices.unit + (held.prices.bonus if early else 0))
                    pay = min(pay, held.pool)
        del held.unsettled[customer]
        self.reputations[who] = reputation
        held.pool -= pay
        self.owe(held.token, customer, pay)
        return pay, ["Settled"]

    def marked(self, draw, miner, rank):
        refuse_unless(miner in draw.votes[rank], "did not vote for it")
        refuse_unless(miner not in draw.done, "done already")

    def reward(self, sender, task, number, miner):
        held = self.find(task)
        refuse_unless(number < held.number, "not closed")
        refuse_unless(held.rounds[number].winner, "nothing to reward")
        which, rank = held.rounds[number].winner
        draw = self.draws[which]
        self.marked(draw, miner, rank)
        draw.done.add(miner)
        fee = held.prices.committee_fee * draw.seats[miner] // sum(draw.seats.values())
        fee = min(fee, held.pool)
        held.pool -= fee
        self.owe(held.token, miner, fee)
        return fee, ["Rewarded"]

    def slash(self, sender, number, miner):
        draw = self.draws[number] if 0 < number < len(self.draws) else None
        refuse_unless(draw and draw.overturned, "not overturned")
        disputer, rank = draw.overturned
        self.marked(draw, miner, rank)
        found = self.miners.get(miner)
        refuse_unless(found, "not a miner")
        draw.done.add(miner)
        if not found.left:
            self.change(-found.units)
        del self.miners[miner]
        half = found.units * UNIT // 2
        self.owe(NOBODY, disputer, half)
        self.owe(NOBODY, self.tasks[draw.task].maker, found.units * UNIT - half)
        return found.units, ["Slashed"]

    def reclaim(self, sender, task):
        held = self.find(task)
        refuse_unless(held.status >= Status.DONE, "not over")
        refuse_unless(self.block >= held.since + held.terms.claim_blocks, "too early")
        refuse_unless(held.pool, "nothing left")
        amount, held.pool = held.pool, 0
        self.owe(held.token, held.maker, amount)
        return amount, ["Reclaimed"]

    def withdraw(self, sender, token):
        amount = self.owed.get((token, sender), 0)
        refuse_unless(amount, "nothing owed")
        self.owed[token, sender] = 0
        return amount, ["Withdrawn"]

    def holds(self, token):
        """Pool + stakes + owed: what the contract must have of coin or a token."""
        pools = sum(task.pool for task in self.tasks.values() if task.token == token)
        owed = sum(amount for (kind, _), amount in self.owed.items() if kind == token)
        if token != NOBODY:
            return pools + owed
        deposits = sum(task.prices.deposit for task in self.tasks.values() if task.disputer)
        return pools + owed + deposits + UNIT * sum(miner.units for miner in self.miners.values())


def verified(point, given, proof, roots):
    """The output of a proof as a contract takes it, by the Python verifier; None if anything is not right."""
    vrf = secp256k1()
    gamma, c, s, *told = proof
    try:
        public, pi = compressed(point), compressed(gamma) + c.to_bytes(16) + s.to_bytes(32)
    except (OverflowError, ValueError):
        return None
    steps = vrf.steps(public, given, pi)
    if steps is None or tuple(roots) != chain_proof(public, given, pi)[2]:
        return None
    place = vrf.group.coordinates
    right = [place(one) for one in (steps.gamma, steps.u, steps.s_h, steps.c_gamma, steps.v)]
    if [tuple(one) for one in (gamma, *told)] != right or place(public) != tuple(point):
        return None
    return vrf.output(pi)


def compressed(point):
    return bytes([2 + point[1] % 2]) + point[0].to_bytes(32)
