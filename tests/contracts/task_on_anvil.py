"""A task played on a chain, by senders and the Python view: what each call costs as its receipt shows."""

import os

from eth_utils import keccak

from reticent.chain.keys import Key
from reticent.chain.node import Node
from reticent.chain.sender import Sender
from reticent.federated.crowd.commitments import NEWEST
from reticent.federated.crowd.contract import (
    Proposal,
    TaskContract,
    alpha,
    artifact,
    chain_proof,
    commitment,
    creation,
    post_call,
    proposal_id,
    task_id,
)
from reticent.federated.crowd.lottery import seats, secp256k1
from reticent.federated.crowd.terms import Prices, Terms, pool

UNIT = 10**15
TERMS = Terms(
    rounds=2, people=8, f=1, expected=20, least=1, draws=3, commit_blocks=40, reveal_blocks=40,
    seat_blocks=40, turn_blocks=40, dispute_blocks=20, claim_blocks=5,
)  # fmt: skip
PRICES = Prices(unit=10**12, bonus=10**11, leader_fee=10**14, committee_fee=10**15, deposit=10**14)
CID = b"\x01\x55\x12\x20"


class Person:
    def __init__(self, node):
        self.secret = os.urandom(32)
        key = Key(self.secret)
        node.rpc("anvil_setBalance", key.address, hex(10**24))
        self.address, self.sender = key.address, Sender(node, key, timeout_s=120)


class Played:
    """Contracts on a chain, people with money, and the gas of what they did."""

    version = NEWEST

    def __init__(self, url, customers=6, miners=5):
        self.node = Node(url)
        self.maker = Person(self.node)
        self.customers = [Person(self.node) for _ in range(customers)]
        self.miners = [Person(self.node) for _ in range(miners)]
        self.gas, self.later, self.calls = {}, {}, []  # later: but the first of each round
        lottery = self.maker.sender.transact(None, artifact("Lottery").creation)
        made = self.maker.sender.transact(None, creation(lottery.contract, UNIT, self.version))
        self.gas |= {"deploy Lottery": [lottery.gas], "deploy FederatedTask": [made.gas]}
        self.contract = TaskContract(self.node, made.contract)
        self.text, self.number, self.proposal = CID + os.urandom(32), 0, None
        self.model = CID + b"\1" * 32
        self.task = task_id(self.maker.address, self.text)

    def call(self, person, function, *arguments, worth=0):
        data = artifact().encode(function, *arguments)
        receipt = person.sender.transact(self.contract.address, data, value_wei=worth)
        first = not any(name == function and number == self.number for name, number in self.calls)
        self.calls.append((function, self.number))
        self.gas.setdefault(function, []).append(receipt.gas)
        if not first:
            self.later.setdefault(function, []).append(receipt.gas)
        return receipt

    def until(self, block):
        """Blocks up to a number, so that the next call is at least in that one."""
        missing = block - 1 - self.node.block().number
        if missing > 0:
            self.node.rpc("anvil_mine", hex(missing))

    def begin(self):
        data = post_call(self.text, self.model, TERMS, PRICES)
        receipt = self.maker.sender.transact(
            self.contract.address, data, label="", value_wei=pool(TERMS, PRICES)
        )
        self.gas["post"] = [receipt.gas]
        for place, person in enumerate(self.miners):
            self.call(person, "enrol", worth=(100 + place) * UNIT)
        for person in self.customers:
            self.call(person, "apply", self.task, 0, 0, 0)

    def updates(self):
        """CID and key of everybody's update."""
        return {person: (CID + os.urandom(32), os.urandom(32)) for person in self.customers}

    def result(self):
        """What the leader proposes: a CID, and the four sets."""
        everybody = (1 << len(self.customers)) - 1
        words = (everybody, everybody >> 1, everybody ^ everybody >> 1, everybody >> 1)
        return CID + os.urandom(32), words

    def collect(self):
        updates = self.updates()
        for person, (cid, key) in updates.items():
            bound = commitment(self.task, self.number, person.address, cid, key)
            self.call(person, "commit", self.task, bound)
        since = self.contract.progress(self.task).since
        self.until(since + TERMS.commit_blocks)
        for person, (cid, key) in updates.items():
            self.call(person, "reveal", self.task, cid, key)
        self.until(since + TERMS.commit_blocks + TERMS.reveal_blocks + 1)

    def draw(self):
        progress = self.contract.progress(self.task)
        fixed = progress.since + TERMS.commit_blocks + TERMS.reveal_blocks
        self.call(self.maker, "seed", self.task, self.contract.change_before(fixed))
        number = self.contract.progress(self.task).draw
        held, vrf = self.contract.draw(number), secp256k1()
        given = alpha(self.node.chain_id, self.contract.address, self.task, progress.round, number, held.seed)
        for person in self.miners:
            public, proof = vrf.public_key(person.secret), vrf.prove(person.secret, given)
            units = self.contract.miner(person.address).units
            if seats(vrf.output(proof), units, held.stake, TERMS.expected):
                self.call(person, "seat", self.task, *chain_proof(public, given, proof))
        self.until(self.contract.progress(self.task).since + TERMS.seat_blocks)

    def judge(self):
        progress = self.contract.progress(self.task)
        held = self.contract.draw(progress.draw)
        leader = next(person for person in self.miners if person.address == held.leaders[0])
        cid, words = self.result()
        self.call(leader, "propose", self.task, cid, *words)
        self.proposal = Proposal(progress.draw, keccak(cid), *words)
        named = proposal_id(self.task, progress.round, self.proposal)
        voted = 0
        for person in self.miners:
            mine = self.contract.seat(progress.draw, person.address).seats
            if not mine:
                continue
            voted += mine
            self.call(person, "vote", self.task, named)
            if 3 * voted > 2 * held.seats:
                self.gas.setdefault("deciding vote", []).append(self.gas["vote"].pop())
                if self.later.get("vote"):
                    self.later["vote"].pop()
                break
        self.until(self.contract.progress(self.task).since + TERMS.dispute_blocks)

    def end(self):
        self.call(self.maker, "close", self.task)
        for person in self.customers:
            self.call(self.maker, "settle", self.task, self.number, person.address, self.proposal.words())
        for person in self.miners:
            if any(self.contract.seat(self.proposal.draw, person.address).voted):
                self.call(self.maker, "reward", self.task, self.number, person.address)
        self.number += 1

    def close(self):
        self.node.close()


def play(url, kind=Played):
    """Two rounds; the gas of each call, the second round's last."""
    played = kind(url)
    played.begin()
    for _ in range(TERMS.rounds):
        played.collect()
        played.draw()
        played.judge()
        played.end()
    return played
