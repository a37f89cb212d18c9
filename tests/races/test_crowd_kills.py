"""Customers and miners as processes, killed with SIGKILL at random moments, and started again."""

import random
import time

import numpy as np
import pytest

from reticent.apps.crowd.demo_world import World
from reticent.chain.anvil import find_anvil
from reticent.errors import ChainError
from reticent.federated.crowd.contract import Status
from reticent.federated.crowd.rounds import Place, judged
from reticent.federated.crowd.task_file import read
from reticent.federated.crowd.updates import size_of
from reticent.store import Directory

pytestmark = pytest.mark.skipif(find_anvil() is None, reason="no anvil on this machine (npm installs it)")

TASK = """\
purpose: Tell washing programmes apart.
mode: device
training: {{inputs: 4, classes: 3, l2: 0, clip: 1, records: 20, rate: 1, steps: 2, mu: {mu}}}
grid: {{steps: 65536, norm: 2621440, floor: 1}}
terms: {{rounds: {rounds}, people: 5, f: 1, expected: 30, least: 3, draws: 10, commit_blocks: 60,
  reveal_blocks: 40, seat_blocks: 12, turn_blocks: 12, dispute_blocks: 1, claim_blocks: 2}}
prices: {{unit: 1000, bonus: 100, leader_fee: 5000, committee_fee: 20000, deposit: 1000000}}
"""
MU = 4.0
LONGEST_S = 600.0


def rows(path, number):
    draw = np.random.default_rng(number)
    labels = draw.integers(0, 3, 20)
    features = np.eye(4)[labels] + 0.1 * draw.normal(size=(20, 4))
    np.savetxt(path, np.column_stack([features, labels]), fmt="%.5g", delimiter=",")
    return path


class Played:
    """A world whose programs are killed and started again."""

    def __init__(self, folder, rounds):
        (folder / "task.yaml").write_text(TASK.format(rounds=rounds, mu=MU))
        self.world = World(folder, folder / "task.yaml", customers=5, miners=3)
        self.files = {
            one.name: [rows(folder / f"{one.name}.csv", at)] for at, one in enumerate(self.world.customers)
        }
        self.follower, self.before = self.world.follower(), {}
        for person in (*self.world.customers, *self.world.miners):
            self.start(person)
        self.world.follow()

    def said(self, person):
        log = self.world.folder / f"{person.name}.log"
        return log.stat().st_size if log.exists() else 0

    def start(self, person):
        self.before[person.name] = self.said(person)
        if person.name in self.files:
            self.world.start_customer(person, self.files[person.name], lifetime=MU * MU + 1.0)
        else:
            self.world.start_miner(person)

    def seen(self):
        end = time.monotonic() + LONGEST_S
        while time.monotonic() < end:
            try:
                self.follower.look()
                return self.follower.seen(self.world.identifier)
            except ChainError:  # a block came meanwhile
                time.sleep(0.01)
        raise AssertionError

    def has_ended(self, name):
        return not self.world.is_running(name) and "the task " in self.world.last_line(name)

    def run(self, kills, seed):
        """Until all customers are done, so many deaths on the way; how many there were."""
        draw, died, end = random.Random(seed), 0, time.monotonic() + LONGEST_S + 10 * kills
        everybody = [*self.world.customers, *self.world.miners]
        while time.monotonic() < end:
            assert self.world.clock.trouble is None
            for person in everybody:
                if not self.world.is_running(person.name) and not self.has_ended(person.name):
                    raise AssertionError(f"{person.name}: {self.world.last_line(person.name)}")
            if all(self.has_ended(person.name) for person in self.world.customers):
                return died
            time.sleep(draw.random() * 2.0)  # a random moment is what is wanted here
            person = draw.choice(everybody)
            has_begun = self.said(person) > self.before[person.name]  # it is past its imports
            if died < kills and has_begun and self.world.is_running(person.name):
                self.world.kill(person.name)
                self.start(person)
                died += 1
        raise AssertionError(f"not over: {self.seen().progress}")

    def check(self, folder, rounds):
        """All that must hold at the end."""
        seen, text = self.seen(), read(folder / "task.yaml").text
        assert seen.progress.status in (Status.DONE, Status.CANCELLED)
        contract, store = self.follower.contract, Directory(folder / "store")
        place = Place(self.world.node.chain_id, contract.address, self.world.identifier)
        for number, which in enumerate(seen.task.rounds):
            if which.result in which.proposals:
                _, cid, found = which.proposals[which.result]
                right = judged(text, place, seen.task, number, store, counted=found.counted)
                assert (right.proposal(found.draw), bytes(right.cid)) == (found, cid)
                assert found.counted.bit_count() == len(which.revealed)
            for customer in which.revealed:
                assert not which.is_closed or customer in which.settled
        sealed = [one for one in (folder / "store").glob("??/b*") if one.stat().st_size == size_of(text.grid)]
        assert len(sealed) <= 5 * rounds
        assert len(sealed) == sum(len(which.commits) for which in seen.task.rounds)
        everybody = (self.world.maker, *self.world.customers, *self.world.miners)
        owed = sum(contract.owed(one.address) for one in everybody)
        stakes = sum(self.follower.history.units.values()) * contract.stake_unit()
        held = int(self.world.node.rpc("eth_getBalance", contract.address, "latest"), 16)
        assert held == seen.task.pool + owed + stakes


@pytest.mark.parametrize(
    ("kills", "rounds"), [(5, 2), pytest.param(200, 40, marks=pytest.mark.slow)], ids=["5", "200"]
)
def test_programs_that_are_killed_go_on(tmp_path, race_counter, kills, rounds):
    played = Played(tmp_path, rounds)
    try:
        died = played.run(kills, seed=kills)
        race_counter.report(f"{died} kills in {rounds} rounds")
        assert died >= kills // 2
        played.check(tmp_path, rounds)
    finally:
        played.world.close()
