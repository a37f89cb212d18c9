"""Whatever is called, by whomever, in whatever order and block, FederatedTask answers as the model does.

After each call the contract's balance is pool + stakes + owed, in coin and in a token. The quick walk is a
thousandth of the full one; what the issue names is planted and found in each.
"""

import random
from dataclasses import replace

import pytest
from eth_utils import keccak

from reticent.federated.crowd.contract import Proposal, Status
from reticent.federated.crowd.terms import Prices, Terms, pool

from .crowd import (
    CUSTOMERS,
    EVERYBODY,
    GATE,
    MAKER,
    MINERS,
    MODEL,
    RIVAL,
    UNIT,
    Crowd,
    admitted,
    bound,
    lot,
    task_of,
    text_of,
    update_of,
)
from .revm import NOBODY, Refused, artifact
from .task_model import VOID, Model

LIAR = CUSTOMERS[0]
SMALL_COMMITMENTS = (0, 1, 255, 256, 511, 512)  # of no update: words of storage that are nearly zero
KINDS = {"coin": MAKER, "token": RIVAL, "gated": MAKER}
# How often each call is tried; `step` does what the task waits for.
CALLS = {
    "step": 40, "apply": 3, "enrol": 2, "leave": 1, "release": 1, "commit": 4, "reveal": 4, "seed": 3,
    "seat": 5, "propose": 3, "vote": 5, "dispute": 2, "close": 3, "redraw": 3, "settle": 4, "reward": 2,
    "slash": 2, "reclaim": 1, "withdraw": 3, "late": 3,
}  # fmt: skip
FUNCTIONS = [name for name, often in CALLS.items() for _ in range(often)]


class World:
    """A contract and the model beside it, and people who mostly do what they should."""

    def __init__(self, what, lottery, chance, version=None):
        self.crowd = Crowd(what, lottery)
        self.model, self.chance, self.calls = Model(self.crowd, version), chance, 0
        self.proposals, self.posted = {}, []
        for person in MINERS:
            if chance.random() < 0.7:
                self.call(person, "enrol", worth=chance.randint(1, 60) * UNIT)
        self.post()

    def post(self):
        """Another task, which the others follow from now on."""
        chance = self.chance
        name = f"{chance.choice([*KINDS])} {len(self.posted)}"
        maker, few = KINDS[name.split()[0]], [chance.randint(2, 12) for _ in range(6)]
        terms = Terms(
            chance.randint(1, 3), chance.randint(3, 6), 0, chance.randint(1, 8), 1, chance.randint(1, 3), *few
        )
        terms = replace(terms, least=chance.choice([1, 1, 1, terms.expected]))
        prices = Prices(
            *(chance.choice([0, 1, 7, 1000]) for _ in range(2)), 50, 101, chance.choice([0, 5, UNIT])
        )
        token, worth = NOBODY, pool(terms, prices)
        if name.startswith("token"):
            token = self.crowd.token
            self.crowd.token_call(maker, "mint", maker.address, worth)
            self.crowd.token_call(maker, "approve", self.crowd.address, worth)
        gate = GATE.address if name.startswith("gated") else NOBODY
        words = (text_of(name), MODEL, terms.words(), prices.words(), token, gate)
        sent = worth if token == NOBODY else 0
        if chance.random() < 0.2:
            self.call(maker, "post", *words, worth=sent + 1)
        self.call(maker, "post", *words, worth=sent)
        self.posted.append(task_of(maker, name))
        if chance.random() < 0.2:
            self.call(maker, "post", *words, worth=sent)

    def play(self):
        chance = self.chance
        self.crowd.block += chance.choice([0, 0, 0, 0, 0, 1])
        if chance.random() < 0.002:
            self.crowd.block += chance.choice([250, 257, 300])
        task = self.posted[-1] if chance.random() < 0.85 else chance.choice([*self.posted, b"\7" * 32])
        function, person = chance.choice(FUNCTIONS), chance.choice(EVERYBODY)
        newest = self.model.tasks[self.posted[-1]]
        if newest.status >= Status.DONE and chance.random() < 0.2:
            self.post()
        elif function == "step":
            self.step(task)
        else:
            self.act(function, person, task)

    def step(self, task):
        """What the task waits for, by everybody who should."""
        held = self.model.tasks.get(task)
        if held is None:
            return
        chance, some = self.chance, lambda people: self.chance.sample(people, len(people))
        jump = self.crowd.block
        if held.status == Status.COLLECTING:
            if self.crowd.block < held.since + held.terms.commit_blocks:
                if LIAR.address in held.customers and chance.random() < 0.5:
                    self.act("commit to nothing", LIAR, task)
                for person in some(CUSTOMERS):
                    if person.address not in held.customers and chance.random() < 0.5:
                        self.act("apply", person, task)
                    self.act("commit", person, task)
                jump = held.since + held.terms.commit_blocks
            elif self.crowd.block < self.model.seed_block(held):
                for person in some(CUSTOMERS):
                    if person.address in held.round.commits and chance.random() < 0.95:
                        self.act("reveal", person, task)
                if chance.random() < 0.1:
                    self.act("leave", chance.choice(MINERS), task)
                jump = self.model.seed_block(held) + chance.choice([0, 1, 1, 1])
            else:
                self.act("seed", MAKER, task)
                self.act("close", MAKER, task)
        elif held.status in (Status.WAITING, Status.DISPUTED):
            if chance.random() < 0.1:
                self.act("leave", chance.choice(MINERS), task)
            self.act("seed", MAKER, task)
            jump = max(jump, held.since + 1)
        elif held.status in (Status.JUDGING, Status.APPEALING):
            start = held.since + held.terms.seat_blocks
            if self.crowd.block < start:
                for person in some(MINERS):
                    if person.address not in self.model.miners and chance.random() < 0.3:
                        self.call(person, "enrol", worth=chance.randint(1, 60) * UNIT)
                    if chance.random() < 0.9:
                        self.act("seat", person, task)
                jump = start
            elif held.status == Status.JUDGING and chance.random() < 0.2:
                self.act("redraw", MAKER, task)
                jump = max(jump, start + held.terms.turn_blocks)
            else:
                if held.status == Status.JUDGING:
                    rank = int(self.crowd.block >= start + held.terms.turn_blocks)
                    leaders = [who for _, who in self.model.draws[held.draw].leaders]
                    self.act(
                        "propose",
                        next((m for m in MINERS if m.address in leaders[rank : rank + 1]), MAKER),
                        task,
                    )
                for person in some(MINERS):
                    if chance.random() < 0.9:
                        self.act("vote", person, task)
                self.act("close", MAKER, task)
        elif held.status == Status.DECIDED:
            if chance.random() < 0.35:
                self.act("dispute", chance.choice(EVERYBODY), task)
            else:
                jump = held.since + held.terms.dispute_blocks
                self.act("close", MAKER, task)
        else:
            self.act("reclaim", MAKER, task)
            jump += held.terms.claim_blocks
        if chance.random() < 0.6:
            self.crowd.block = max(self.crowd.block, jump)
        if chance.random() < 0.7:
            for person in some(CUSTOMERS):
                if held.unsettled.get(person.address, held.number) < held.number:
                    self.act("settle", person, task)

    def act(self, function, person, task):
        """A call with arguments that are mostly right."""
        held, chance, worth = self.model.tasks.get(task), self.chance, 0
        number = held.number if held else 0
        if function == "apply":
            signed = admitted(self.crowd, task, person) if chance.random() < 0.95 else (27, 1, 1)
            given = (task, *signed)
        elif function == "enrol":
            given, worth = (
                (),
                chance.choice([chance.randint(1, 60) * UNIT] * 6 + [0, UNIT + 1, UNIT * (1 << 32)]),
            )
        elif function in ("leave", "release"):
            given = ()
        elif function == "commit":
            given = (task, bound(task, chance.choice([number] * 20 + [number + 1]), person))
        elif function == "commit to nothing":
            function, given = "commit", (task, chance.choice(SMALL_COMMITMENTS).to_bytes(32))
        elif function == "reveal":
            cid, key = update_of(person, number)
            given = (task, cid, chance.choice([key] * 20 + [b"\1" * 32]))
        elif function == "late":
            function, given = chance.choice(["reveal", "commit"]), None
            cid, key = update_of(person, number)
            given = (task, cid, key) if function == "reveal" else (task, bound(task, number, person))
        elif function == "seed":
            given = (task, self.change_for(held))
        elif function == "seat":
            given = (task, *self.lot(held, task, person))
        elif function == "propose":
            given = (task, *self.proposal(held))
        elif function == "vote":
            given = (task, self.voted(held))
        elif function == "dispute":
            given, deposit = (task,), held.prices.deposit if held else 0
            worth = chance.choice([deposit] * 9 + [deposit + 1])
        elif function == "settle":
            given = self.settling(held, task, person)
        elif function == "reward":
            given = (task, chance.choice([max(0, number - 1)] * 5 + [number]), chance.choice(MINERS).address)
        elif function == "slash":
            fallen = [place for place, draw in enumerate(self.model.draws) if draw and draw.overturned]
            given = (chance.choice(fallen or [0, 1]), chance.choice(MINERS).address)
        elif function == "withdraw":
            given = (chance.choice([NOBODY, NOBODY, self.crowd.token]),)
        else:
            given = (task,)
        self.call(person, function, *given, worth=worth)

    def change_for(self, held):
        fixed = self.crowd.block
        if held is not None and held.status in (Status.COLLECTING, Status.WAITING, Status.DISPUTED):
            fixed = self.model.seed_block(held)
        right = max(
            place for place, (block, _) in enumerate(self.model.totals) if block < fixed or place == 0
        )
        return max(0, right + self.chance.choice([0] * 12 + [1, -1, 5]))

    def lot(self, held, task, person):
        """Point and proof, rightly or with a twist."""
        chance = self.chance
        if held is None or not held.draw:
            seed, draw, number = b"\1" * 32, 1, 0
        else:
            draw, number = held.draw, held.number
            seed = self.model.draws[draw].seed
        twist = chance.choice([None] * 16 + ["seed", "bit", "key", "draw", "roots"])
        if twist == "seed":
            seed = chance.randbytes(32)
        whose = chance.choice(MINERS) if twist == "key" else person
        point, proof, roots, _ = lot(self.crowd, task, number, draw + (twist == "draw"), seed, whose)
        if twist == "bit":
            words = [word for part in proof for word in (part if isinstance(part, tuple) else (part,))]
            words[chance.randrange(len(words))] ^= 1 << chance.randrange(256)
            proof = (
                tuple(words[:2]),
                *words[2:4],
                *(tuple(words[place : place + 2]) for place in (4, 6, 8, 10)),
            )
        if twist == "roots":
            roots = chance.choice([roots[:-1], (*roots, 2), (), roots[1:], (roots[0] ^ 2, *roots[1:])])
        return point, proof, roots

    def proposal(self, held):
        chance = self.chance
        counted = sum(1 << index for index in held.round.revealed) if held else 3
        accepted = counted & chance.getrandbits(6) or counted
        low = counted & ~accepted & chance.getrandbits(6)
        liar = 1 << held.customers.index(LIAR.address) if held and LIAR.address in held.customers else 0
        if counted & liar and counted != liar and chance.random() < 0.6:  # found out, and all others accepted
            accepted, low = counted & ~liar, liar
        paid = accepted & (chance.getrandbits(6) | chance.getrandbits(6))
        words = [counted, accepted, low, paid]
        if chance.random() < 0.15:
            words[chance.randrange(4)] ^= 1 << chance.randrange(7)
        return (chance.choice([MODEL] * 30 + [b""]), *words)

    def voted(self, held):
        if held is None:
            return b"\2" * 32
        choices = [held.round.result] if held.status == Status.APPEALING else []
        if held.draw:
            choices += self.model.draws[held.draw].proposals.values()
        found = self.chance.choice([one for one in choices if isinstance(one, bytes)] or [b"\2" * 32])
        return found if self.chance.random() < 0.97 else bytes(32)

    def settling(self, held, task, person):
        number = held.unsettled.get(person.address, 0) if held else 0
        if self.chance.random() < 0.05:
            number += 1
        result = held.rounds[number].result if held and number < len(held.rounds) else None
        words = self.proposals.get(result, (0, b"\0" * 32, 0, 0, 0, 0))
        if self.chance.random() < 0.05:
            words = (*words[:5], words[5] ^ 1)
        return task, number, person.address, words

    def call(self, person, function, *arguments, worth=0):
        self.calls += 1
        theirs = outcome(
            lambda: self.model.call(self.crowd.block, person.address, function, *arguments, worth=worth)
        )
        answer = None
        try:
            answer = self.crowd.call(person, function, *arguments, worth=worth)
            ours = answer.value, answer.events
        except Refused as refusal:
            ours = refusal.reason
        if function == "propose" and answer is not None:
            event = answer.events[0][1]
            words = Proposal(
                event["draw"], b"", *(event[one] for one in ("counted", "accepted", "low", "paid"))
            )
            self.proposals[answer.value] = (words.draw, keccak(MODEL), *words.words()[2:])
        assert self.crowd.balance() == self.model.holds(NOBODY), (function, "coin")
        assert ours == theirs, (function, arguments, self.crowd.block)
        self.same_state(arguments, answer is not None)

    def same_state(self, arguments, changed):
        if not changed:
            return
        crowd, model = self.crowd, self.model
        for task in {one for one in arguments if isinstance(one, bytes) and one in model.tasks}:
            held = model.tasks[task]
            state = (held.status, held.number, len(held.customers), held.tries, held.since, held.draw)
            assert crowd.read("progress", task) == state
            assert crowd.read("tasks", task)[6] == held.pool
            if held.draw:
                seed, body, *_ = crowd.read("draws", held.draw)
                draw = model.draws[held.draw]
                votes = [sum(draw.seats[one] for one in draw.votes[rank]) for rank in (0, 1)]
                assert seed == draw.seed == crowd.blockhash(draw.block), "another seed than the block's"
                assert (body & (1 << 64) - 1, body >> 160) == (draw.stake, draw.block)
                assert [body >> place & 0xFFFFFFFF for place in (64, 96, 128)] == [
                    sum(draw.seats.values()),
                    *votes,
                ]
            for person in CUSTOMERS[:2]:
                known = (held.maker, person.address) in model.reputations
                word = 256 | model.reputations[held.maker, person.address] if known else 0
                assert crowd.read("reputations", held.maker, person.address) == word
            for customer, word in held.round.commits.words.items():
                index = held.customers.index(customer)
                assert crowd.read("commitments", task, held.number, index) == word
            assert crowd.read("rounds", task, held.number)[1] & 0xFFFF == held.round.commits.count
        block, units = model.totals[-1]
        assert crowd.read("totals", crowd.read("changes")) == units | block << 64
        if self.calls % 50 == 0:
            has = crowd.token_call(MAKER, "balanceOf", crowd.address)
            assert has == model.holds(crowd.token)


def outcome(call):
    try:
        return call()
    except Refused as refusal:
        return refusal.reason


def walk(what=None, lottery=None, *, calls, seed, each=1000, version=None):
    """So many calls by chance, in worlds of `each`; return how often each outcome was seen."""
    chance, made, seen = random.Random(seed), 0, {}
    while made < calls:
        world = World(what, lottery, chance, version)
        while world.calls < each and made + world.calls < calls:
            world.play()
        made += world.calls
        for held in world.model.tasks.values():
            seen[held.status] = seen.get(held.status, 0) + 1
            seen["void"] = seen.get("void", 0) + sum(one.result == VOID for one in held.rounds)
            twice = sum(one.commits.count - len(one.commits) for one in held.rounds)
            seen["committed twice"] = seen.get("committed twice", 0) + twice
        fallen = [draw for draw in world.model.draws[1:] if draw.overturned]
        seen["overturned"] = seen.get("overturned", 0) + len(fallen)
        seen["slashed"] = seen.get("slashed", 0) + sum(len(draw.done) for draw in fallen)
    return made, seen


def test_a_walk_of_some_calls():
    made, seen = walk(calls=1000, seed=21)
    assert made >= 1000
    assert sum(seen.values()) > 0


def test_a_walk_of_some_calls_of_version_1():
    """Replays of contracts that are deployed already have their faults, too."""
    made, seen = walk(artifact("FederatedTask-v1"), calls=2000, seed=21)
    assert made >= 2000
    assert seen["committed twice"] > 0


def test_planted_a_replay_of_another_version_is_found():
    for version, other in (("FederatedTask-v1", 2), ("FederatedTask", 1)):
        with pytest.raises(AssertionError):
            walk(artifact(version), calls=2000, seed=21, version=other)


def test_a_walk_that_comes_everywhere():
    made, seen = walk(calls=6000, seed=21)
    assert made >= 6000
    assert min(seen[Status.DONE], seen[Status.CANCELLED], seen["overturned"], seen["void"]) > 0


@pytest.mark.slow
def test_a_walk_of_100_000_calls():
    made, seen = walk(calls=100_000, seed=1)
    assert made >= 100_000
    assert min(seen[Status.DONE], seen[Status.CANCELLED], seen["slashed"], seen["void"]) > 10
