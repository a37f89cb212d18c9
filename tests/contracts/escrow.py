"""MarketEscrow.vy on pyrevm with a clock, its tokens and its attackers, and the model that it must follow."""

import json
import random
from functools import cache
from pathlib import Path

from eth_abi import decode, encode
from pyrevm import EVM, BlockEnv

import reticent.market.contracts
from reticent.chain.compile import compiled
from reticent.errors import ParameterError
from reticent.market.batches import Batch, Payment, root_of

from .erc20 import TOKEN
from .revm import (
    ANNA,
    NOBODY,
    ORACLE,
    OWNER,
    PEOPLE,
    STRANGER,
    Answer,
    Artifact,
    Contract,
    Refused,
)

FOLDER = Path(reticent.market.contracts.__file__).parent
SOURCE = (FOLDER / "MarketEscrow.vy").read_text()
START, RICH = 1_000_000, 10**6

_MOVES = "self.balanceOf[owner] -= amount\n    self.balanceOf[to] += amount"
KEEPS_A_PART = TOKEN.replace(_MOVES, _MOVES + " - amount // 10")
SAYS_NO = TOKEN.replace(
    "    self.balanceOf[msg.sender] -= amount\n    self.balanceOf[to] += amount\n    return True",
    "    return False",
)
SAYS_NOTHING = TOKEN.replace(") -> bool:", "):").replace("    return True\n", "")
assert len({TOKEN, KEEPS_A_PART, SAYS_NO, SAYS_NOTHING}) == 4

ATTACKER = """
# pragma version 0.4.3
target: address
data: Bytes[2048]
depth: uint256

@external
def arm(target: address, data: Bytes[2048], depth: uint256):
    self.target = target
    self.data = data
    self.depth = depth

@external
@payable
def __default__():
    if self.depth > 0:
        self.depth -= 1
        done: bool = raw_call(self.target, self.data, revert_on_failure=False)
"""


@cache
def artifact():
    """As it is committed."""
    return Artifact(json.loads((FOLDER / "MarketEscrow.json").read_text()))


@cache
def of_source(source):
    return Artifact(compiled("helper", source))


@cache
def planted(*changes):
    """The contract with some text of its source replaced; each must occur exactly once."""
    text = SOURCE
    for old, new in changes:
        assert text.count(old) == 1, f"{text.count(old)} times in the source: {old}"
        text = text.replace(old, new)
    return Artifact(compiled("MarketEscrow", text))


class On(Contract):
    """A contract on a machine that others are on too, at a time that a test sets."""

    def __init__(self, evm, what, *parts):
        self.artifact, self._evm, self.block, self.clock = what, evm, 0, START
        self.address = evm.deploy(OWNER, what.creation + b"".join(parts))

    def _machine(self):
        self._evm.set_block_env(BlockEnv(number=self.block, timestamp=self.clock))
        return self._evm

    def call(self, sender, function, *arguments, worth=0):
        """Send a transaction. Raises Refused."""
        self.block += 1
        evm, found = self._machine(), self.artifact.calls[function]
        back = self._run(evm, sender, self.data(function, *arguments), value=worth)
        logs = [log for log in evm.result.logs if log.address.lower() == self.address.lower()]
        values = decode(found.outputs, back)
        return Answer(values[0] if values else None, [self.artifact.event(*log.data) for log in logs], 0)


def reason_of(refusal):
    return refusal.args[0].removeprefix("escrow: ")


class Model:
    """What the contract should do: `call` returns the names of its events, or raises Refused."""

    def __init__(self, balances, keeps=0):
        self.now, self.balances, self.keeps = START, dict(balances), keeps
        self.escrows, self.batches, self.claimed = [], {}, set()

    def open(self, sender, settler, deadline, amount, came):
        need(settler != NOBODY, "settler is empty")
        need(deadline > self.now, "deadline is past")
        need(amount > 0, "amount is zero")
        need(came == amount and not (self.keeps and amount >= 10), "amount did not come")
        self.balances[sender] -= amount
        self.escrows.append([sender, settler, deadline, amount])
        return "Opened"

    def settle(self, sender, number, root, amount):
        held = self.escrows[number] if number < len(self.escrows) else [NOBODY, NOBODY, 0, 0]
        need(sender == held[1], "not the settler")
        need(self.now < held[2], "deadline is past")
        need(amount > 0, "amount is zero")
        need((number, root) not in self.batches, "settled already")
        need(amount <= held[3], "more than the deposit")
        held[3] -= amount
        self.batches[number, root] = amount
        return "Settled"

    def claim(self, sender, number, root, place, proof, payment):
        """`root` is what the proof leads to, worked out by `batches.root_of`; None where it leads nowhere."""
        need(place >> len(proof) == 0, "no such place")
        need(
            (number, root) in self.batches and payment.amount <= self.batches[number, root], "not in a batch"
        )
        need((number, root, place) not in self.claimed, "claimed already")
        self.claimed.add((number, root, place))
        self.batches[number, root] -= payment.amount
        self.balances[payment.payee.lower()] += payment.amount
        return "Claimed"

    def refund(self, sender, number):
        need(number < len(self.escrows), "unknown")
        held = self.escrows[number]
        need(self.now >= held[2], "before the deadline")
        need(held[3] > 0, "nothing is left")
        self.balances[held[0]] += held[3]
        held[3] = 0
        return "Refunded"


def need(true, reason):
    if not true:
        raise Refused(reason)


class World:
    """A contract, the model beside it, and calls by chance."""

    def __init__(self, what=None, *, token=None, chance):
        self.evm, self.chance, self.calls = EVM(), chance, 0
        for person in PEOPLE:
            self.evm.set_balance(person, RICH)
        self.token = None if token is None else On(self.evm, of_source(token))
        where = NOBODY if self.token is None else self.token.address
        self.contract = On(self.evm, what or artifact(), encode(["address"], [where]))
        if self.token is not None:
            for person in PEOPLE:
                self.token.call(OWNER, "mint", person, RICH)
                self.token.call(person, "approve", self.contract.address, 2**255)
        self.model = Model(dict.fromkeys(PEOPLE, RICH), keeps=token == KEEPS_A_PART)
        self.trees = [self.tree() for _ in range(4)]

    def tree(self):
        """A few payments, and a sum that is theirs or, of a settler who lies, is not."""
        payees = [self.chance.choice(PEOPLE) for _ in range(self.chance.choice([1, 2, 3, 5]))]
        batch = Batch(
            tuple(Payment(payee, self.chance.randint(1, 60), self.chance.randbytes(32)) for payee in payees)
        )
        return batch, self.chance.choice([batch.total] * 6 + [batch.total - 1, batch.total + 1, 0, 1])

    def held(self, person):
        return self.evm.get_balance(person) if self.token is None else self.token.read("balanceOf", person)

    def play(self):
        """One call by chance, on both."""
        verb = self.chance.choice(
            ["open", "settle", "settle", "claim", "claim", "claim", "claim", "refund", "tick"]
        )
        number = self.chance.randrange(max(1, len(self.model.escrows) + (self.chance.random() < 0.1)))
        getattr(self, "_" + verb)(number)
        self.calls += 1
        self.check()

    def _tick(self, number):
        self.model.now = self.contract.clock = self.contract.clock + self.chance.choice([1, 5, 30])

    def _open(self, number):
        amount = self.chance.choice([0, 1, 50, 100, 200])
        came = amount if self.token or self.chance.random() < 0.8 else self.chance.choice([0, amount + 1, 7])
        terms = (
            self.chance.choice([ORACLE] * 6 + [OWNER, NOBODY]),
            self.model.now + self.chance.choice([-1, 0, 1, 20, 60]),
            amount,
        )
        sender = self.chance.choice([OWNER, ANNA])
        worth = 0 if self.token else came
        self.both(sender, "open", terms, (*terms, came), worth=worth)

    def _settle(self, number):
        batch, amount = self.chance.choice(self.trees)
        sender = self.chance.choice([ORACLE] * 8 + [OWNER, STRANGER])
        self.both(sender, "settle", (number, batch.root, amount), (number, batch.root, amount))

    def _claim(self, number):
        batch, _ = self.chance.choice(self.trees)
        place = self.chance.randrange(len(batch.payments))
        payment, proof = batch.payments[place], batch.proof(place)
        twist = self.chance.choice(
            [None] * 10 + ["amount", "payee", "salt", "place", "short", "long", "other"]
        )
        if twist == "amount":
            payment = Payment(payment.payee, payment.amount + 1, payment.salt)
        elif twist == "payee":
            payment = Payment(STRANGER, payment.amount, payment.salt)
        elif twist == "salt":
            payment = Payment(payment.payee, payment.amount, bytes(32))
        elif twist == "place":
            place += self.chance.choice([1, 4, 1 << len(proof), 1 << 255])
        elif twist == "short":
            proof = proof[:-1]
        elif twist == "long":
            proof = [*proof, bytes(32)]
        elif twist == "other":
            proof = [self.chance.randbytes(32) for _ in proof]
        try:
            root = root_of(payment, place, proof)
        except ParameterError:
            root = None
        told = (number, payment.salt, place, payment.payee, payment.amount, proof)
        self.both(self.chance.choice(PEOPLE), "claim", told, (number, root, place, proof, payment))

    def _refund(self, number):
        self.both(self.chance.choice(PEOPLE), "refund", (number,), (number,))

    def both(self, sender, function, told, modelled, worth=0):
        try:
            theirs = getattr(self.model, function)(sender, *modelled)
        except Refused as refusal:
            theirs = refusal.args[0]
        try:
            answer = self.contract.call(sender, function, *told, worth=worth)
            ours = answer.events[0][0] if len(answer.events) == 1 else answer.events
        except Refused as refusal:
            ours = reason_of(refusal)
        assert ours == theirs, (function, told)

    def check(self):
        """Everybody has what the model says, and the contract what it owes."""
        owed = sum(held[3] for held in self.model.escrows) + sum(self.model.batches.values())
        assert self.held(self.contract.address) == owed
        for person in PEOPLE:
            assert self.held(person) == self.model.balances[person], person
        for number, (_, _, _, free) in enumerate(self.model.escrows):
            assert self.contract.read("escrows", number)[3] == free
        for (number, root), left in self.model.batches.items():
            assert self.contract.read("left", number, root) == left + 1


def walk(what, *, calls, seed, token=None, each=120):
    """So many calls by chance, in worlds of `each`."""
    chance, made = random.Random(seed), 0
    while made < calls:
        world = World(what, token=token, chance=chance)
        while world.calls < each and made + world.calls < calls:
            world.play()
        made += world.calls
    return made
