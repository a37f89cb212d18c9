"""Commitments of nearly no value: the contract keeps each apart, and readers go on where version 1 did not.

Version 1 kept the first commitment of a round as zero if its value was below 256. Its customer could commit
again, which readers took for a lie of the node, for all tasks of the contract.
"""

from dataclasses import replace
from hashlib import sha256

import pytest
from eth_utils import keccak

from reticent.chain.contracts import Event
from reticent.chain.log import ChainLog
from reticent.chain.node import Node
from reticent.errors import LedgerDamaged
from reticent.federated.crowd.commitments import LAYOUTS, NEWEST, OLD_VERSION, VERSIONS, RoundCommitments
from reticent.federated.crowd.contract import TaskContract, commitment
from reticent.federated.crowd.contract import artifact as artifact_of
from reticent.federated.crowd.evidence import read
from reticent.federated.crowd.following import Follower
from reticent.federated.crowd.history import History
from reticent.federated.crowd.terms import pool
from reticent.federated.crowd.verify import Contradiction, verify
from reticent.store import Directory

from .crowd import (
    CUSTOMERS,
    MAKER,
    MODEL,
    PRICES,
    TERMS,
    WEALTH,
    Crowd,
    bound,
    task_of,
    text_of,
    update_of,
)
from .revm import NOBODY, Refused, artifact
from .task_model import Model
from .task_on_anvil import Played, play

SMALL = (0, 1, 255, 256, 511, 512)
FILES = {1: "FederatedTask-v1", 2: "FederatedTask"}


class World:
    """A contract of a version on pyrevm, the replay beside it, and the history of its events."""

    def __init__(self, version):
        self.crowd = Crowd(artifact(FILES[version]))
        self.model, self.history = Model(self.crowd), History(version)

    def call(self, sender, function, *arguments, worth=0):
        """Call both; return the contract's refusal, or None. They agree, and the history takes each event."""
        said = self._ask_model(sender, function, arguments, worth)
        try:
            answer = self.crowd.call(sender, function, *arguments, worth=worth)
        except Refused as refusal:
            answer, refused = None, refusal.reason
        else:
            refused = None
        assert said == (refused or answer.events)
        for name, fields in answer.events if answer else ():
            self.history.apply(Event(name, fields, None))
        return refused

    def _ask_model(self, sender, function, arguments, worth):
        try:
            address = getattr(sender, "address", sender)
            return self.model.call(self.crowd.block, address, function, *arguments, worth=worth)[1]
        except Refused as refusal:
            return refusal.reason

    def check_words(self, task):
        """Check that replay and history know what the contract keeps of the running round."""
        held = self.model.tasks[task]
        count = self.crowd.read("rounds", task, held.number)[1] & 0xFFFF
        assert (held.round.commits.count, self.history.tasks[task].rounds[-1].commits.count) == (count, count)
        for customer, word in held.round.commits.words.items():
            index = held.customers.index(customer)
            assert self.crowd.read("commitments", task, held.number, index) == word
        assert [*self.history.tasks[task].rounds[-1].commits.words.values()] == [
            *held.round.commits.words.values()
        ]


def post_in(world, name="task", **changes):
    """Post a task that pays in coin; return its identifier."""
    terms = replace(TERMS, **changes)
    words = (text_of(name), MODEL, terms.words(), PRICES.words(), NOBODY, NOBODY)
    assert world.call(MAKER, "post", *words, worth=pool(terms, PRICES)) is None
    return task_of(MAKER, name)


def begin(version):
    world = World(version)
    task = post_in(world)
    for person in CUSTOMERS:
        assert world.call(person, "apply", task, 0, 0, 0) is None
    return world, task


@pytest.mark.parametrize("value", SMALL)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_customer_commits_once_whatever_the_value(value, is_first):
    world, task = begin(NEWEST)
    if not is_first:
        assert world.call(CUSTOMERS[1], "commit", task, bound(task, 0, CUSTOMERS[1])) is None
    assert world.call(CUSTOMERS[0], "commit", task, value.to_bytes(32)) is None
    for second in (value.to_bytes(32), bound(task, 0, CUSTOMERS[0])):
        assert world.call(CUSTOMERS[0], "commit", task, second) == "committed already"
    world.check_words(task)


@pytest.mark.parametrize("value", SMALL)
def test_readers_go_on_where_version_1_takes_a_second_commitment(value):
    """One customer's doubt is its own: others commit, reveal, and another task of the contract goes on."""
    world, task = begin(1)
    other = post_in(world, name="another")
    assert world.call(CUSTOMERS[0], "commit", task, value.to_bytes(32)) is None
    again = world.call(CUSTOMERS[0], "commit", task, bound(task, 0, CUSTOMERS[0]))
    assert again == (None if value < 256 else "committed already")
    for person in CUSTOMERS[1:]:
        assert world.call(person, "commit", task, bound(task, 0, person)) is None
    world.check_words(task)
    world.crowd.block += TERMS.commit_blocks
    for person in CUSTOMERS:
        refused = world.call(person, "reveal", task, *update_of(person, 0))
        committed = person is not CUSTOMERS[0] or value < 256
        assert refused == (None if committed else "not what was committed")
    assert world.history.tasks[other].customers == []
    assert world.call(CUSTOMERS[0], "apply", other, 0, 0, 0) is None


def test_planted_readers_that_know_one_commitment_each_stop(monkeypatch):
    """The old fault of history and replay, for which every reader of the contract stopped."""
    monkeypatch.setattr(RoundCommitments, "may_commit", lambda self, customer: customer not in self)
    world, task = begin(1)
    assert world.call(CUSTOMERS[0], "commit", task, bytes(32)) is None
    with pytest.raises(AssertionError):  # the replay refuses what the contract takes
        world.call(CUSTOMERS[0], "commit", task, bound(task, 0, CUSTOMERS[0]))
    fields = {"task": task, "customer": CUSTOMERS[0].address, "round": 0, "commitment": bytes(32)}
    with pytest.raises(LedgerDamaged, match="a second commitment"):
        world.history.apply(Event("Committed", fields, None))


# The 256th customer


def address_of(number):
    return "0x" + sha256(f"customer {number} of 256".encode()).hexdigest()[:40]


def spoilt_update(task, customer):
    """CID and key of an update whose commitment has bit 8 unset, which version 1 sets for number 256."""
    for nonce in range(64):
        cid, key = text_of("update"), sha256(nonce.to_bytes(8)).digest()
        if not int.from_bytes(commitment(task, 0, customer, cid, key)) >> 8 & 1:
            return cid, key
    raise AssertionError


@pytest.mark.parametrize("version", VERSIONS)
def test_the_256th_customer_can_reveal(version):
    """Beside one who commits to nothing first. Version 1 spoils the last commitment, and readers know it."""
    world = World(version)
    task = post_in(world, people=256, commit_blocks=600, reveal_blocks=600)
    customers = [address_of(number) for number in range(256)]
    for customer in customers:
        world.crowd._evm.set_balance(customer, WEALTH)
        assert world.call(customer, "apply", task, 0, 0, 0) is None
    updates = {customer: spoilt_update(task, customer) for customer in customers}
    assert world.call(customers[0], "commit", task, bytes(32)) is None
    for customer in customers:
        refused = world.call(customer, "commit", task, commitment(task, 0, customer, *updates[customer]))
        is_second = customer == customers[0] and version > 1
        assert refused == ("committed already" if is_second else None)
    world.check_words(task)
    world.crowd.block += 600
    refusals = {customer: world.call(customer, "reveal", task, *updates[customer]) for customer in customers}
    refused = [customer for customer, refusal in refusals.items() if refusal is not None]
    assert refused == [customers[-1] if version == 1 else customers[0]]


def test_layouts_hold_every_number():
    """Version 2 keeps 247 bits and a number that is never zero, for 256 people who commit once each."""
    layout = LAYOUTS[2]
    for count in range(256):
        for value in (*SMALL, (1 << 256) - 1, int.from_bytes(keccak(b"x"))):
            word = layout.pack(value.to_bytes(32), count)
            assert word != 0
            assert layout.earlier_count(word) == count
            assert layout.is_bound(word, value.to_bytes(32))
            assert not layout.is_bound(word, (value ^ 1 << 9).to_bytes(32))
    assert LAYOUTS[1].pack(bytes(32), 0) == 0  # planted: as version 1 does


# On a chain


class OldPlayed(Played):
    """A task at a contract of version 1, whose first customer commits twice."""

    version = 1

    def collect(self):
        self.call(self.customers[0], "commit", self.task, bytes(32))
        super().collect()


@pytest.fixture(scope="module")
def old(anvil):
    played = play(anvil.url, OldPlayed)
    yield played
    played.close()


def follow(node, address):
    follower = Follower(TaskContract(node, address))
    follower.look()
    return follower


def test_programs_follow_an_old_contract(anvil, old):
    node = Node(anvil.url)
    follower = follow(node, old.contract.address)
    seen = follower.seen(old.task)
    assert (follower.contract.version, seen.is_over) == (1, True)
    assert [one.commits.count - len(one.commits) for one in seen.task.rounds] == [1, 1, 0]
    assert seen.task.pool == old.contract.pool(old.task)
    paid = sum(one.settled[old.customers[0].address][1] for one in seen.task.rounds[:2])
    assert paid == old.contract.owed(old.customers[0].address)
    node.close()


def test_an_old_contract_is_verified(old, tmp_path):
    report = verify(read(old.contract), old.task, Directory(tmp_path))
    assert [one.is_closed for one in report.history.rounds] == [True, True, False]
    assert "text is gone" in report.unchecked[0]
    assert report.remarks == [f"the contract is of version 1: {OLD_VERSION}"]


def test_planted_an_old_contract_taken_for_a_new_one_is_contradicted(old, tmp_path, monkeypatch):
    monkeypatch.setattr(old.contract, "version", NEWEST)
    with pytest.raises(Contradiction, match="commit would have been refused: committed already"):
        verify(read(old.contract), old.task, Directory(tmp_path))
    log = ChainLog(old.node, artifact_of(), old.contract.address, History)
    with pytest.raises(LedgerDamaged, match="a second commitment"):
        log.sync()


def test_versions_differ_in_constants_only():
    """What one version is called with, and writes, the others are and do."""
    constants = {"LONGEST_WINDOW", "LONGEST_JUDGING_WINDOW"}
    newest = [part for part in artifact_of().abi if part.get("name") not in constants]
    assert artifact_of(version=1).abi == newest
    assert artifact_of(version=1).runtime != artifact_of().runtime
