"""Programs of a crowd in this process: each is looked at between two blocks, and may die anywhere.

The chain is a real one (anvil that makes no blocks by itself), as are ledgers, outboxes and the store. A
death is an exception that no program catches, raised before or after something that would last: a write to an
outbox, a ledger or the store, a message to the node. Whatever was in memory is thrown away, and the program
is opened again from its files.
"""

import random
from contextlib import ExitStack, contextmanager

import numpy as np

from reticent.chain.anvil import Anvil
from reticent.chain.fees import Ceiling
from reticent.chain.keys import make_key
from reticent.chain.node import Node
from reticent.chain.outbox import Outbox
from reticent.chain.sender import Sender
from reticent.errors import ChainError, LedgerDamaged, StoreError
from reticent.federated.crowd.calls import Calls
from reticent.federated.crowd.commitments import NEWEST
from reticent.federated.crowd.contract import Status, TaskContract, artifact, creation, post_call, task_id
from reticent.federated.crowd.customer import Customer, DeviceLearner
from reticent.federated.crowd.deciding import due_rewards
from reticent.federated.crowd.following import Follower
from reticent.federated.crowd.miner import Miner
from reticent.federated.crowd.modes import OnDevice
from reticent.federated.crowd.rounds import Place, judged
from reticent.federated.crowd.task_text import CrowdTask
from reticent.federated.crowd.terms import Prices, Terms, pool
from reticent.federated.crowd.updates import size_of
from reticent.federated.on_device import Home
from reticent.federated.robust import Grid
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.marks import Marks
from reticent.store import Directory

TRAINING = OnDevice(inputs=4, classes=3, l2=0.0, clip=1.0, records=20, rate=1.0, steps=2, mu=4.0)
GRID = Grid(TRAINING.dimensions, 1 << 16, 40 << 16, floor=1)
ROUNDS, CUSTOMERS, MINERS = 2, 5, 3
TASK = CrowdTask("Tell washing programmes apart", TRAINING, GRID, rounds=ROUNDS, liars=1)
TERMS = Terms(
    rounds=ROUNDS, people=CUSTOMERS, f=1, expected=90, least=3, draws=2, commit_blocks=8, reveal_blocks=5,
    seat_blocks=4, turn_blocks=5, dispute_blocks=1, claim_blocks=3,
)  # fmt: skip
PRICES = Prices(unit=1000, bonus=100, leader_fee=5000, committee_fee=20000, deposit=10**6)
LIFETIME = TRAINING.mu**2 + 0.001
UNIT, STAKE = 10**15, 100
MOST_BLOCKS = 400
MESSAGES = 25  # times as many as other things that last


class Killed(BaseException):
    """What nobody catches."""


class Deaths:
    """Kills whoever acts, at drawn moments: once in so many things that last, before or after one."""

    LASTING = ((Outbox, "put"), (DeviceLedger, "request"), (DeviceLedger, "fulfil"), (DeviceLedger, "keep"),
               (Directory, "_keep"), (Node, "rpc_many"), (Node, "rpc"))  # fmt: skip

    def __init__(self, seed, most, once_in):
        self._draw, self.left, self._once_in = random.Random(seed), most, once_in
        self.armed, self.died = False, []

    @contextmanager
    def planted(self):
        """In force, where programs are stepped."""
        held = [(kind, name, getattr(kind, name)) for kind, name in self.LASTING]
        try:
            for kind, name, real in held:
                setattr(
                    kind,
                    name,
                    self._fragile(f"{kind.__name__}.{name}", real, MESSAGES if kind is Node else 1),
                )
            yield self
        finally:
            for kind, name, real in held:
                setattr(kind, name, real)

    def _fragile(self, label, real, rarer):
        def fragile(*arguments, **named):
            where = self._draw.randrange(2 * self._once_in * rarer) if self.armed and self.left else 2
            if where == 0:
                self._die(f"before {label}")
            found = real(*arguments, **named)
            if where == 1:
                self._die(f"after {label}")
            return found

        return fragile

    def _die(self, where):
        self.left, self.armed = self.left - 1, False
        self.died.append(where)
        raise Killed


class Noting(Directory):
    """A store in which it is noted who put what."""

    def __init__(self, folder, who, noted):
        super().__init__(folder)
        self._who, self._noted = who, noted

    def _keep(self, cid, block):
        super()._keep(cid, block)
        self._noted.setdefault(self._who, {})[cid] = len(block)


class Withholding(Noting):
    """A store that its owner says it put files into, and did not."""

    def _keep(self, cid, block):
        pass


class Part:
    """Somebody's program: opened from its files whenever it is not open."""

    def __init__(self, crowd, name):
        self.crowd, self.name, self.folder = crowd, name, crowd.folder / name
        self.folder.mkdir()
        self.key = make_key(self.folder / "key")
        crowd.node.rpc("anvil_setBalance", self.key.address, hex(10**21))
        self.address, self.said, self.is_done, self.deaths = self.key.address, [], False, 0
        self.store_kind, self.kind, self._held, self._program = Noting, None, None, None

    def open(self):
        self._held = ExitStack()
        node = self._held.enter_context(closing_node(self.crowd.anvil.url))
        contract = TaskContract(node, self.crowd.contract.address)
        follower = Follower(contract, first_block=0, confirmations=self.crowd.confirmations)
        outbox = Outbox(self.folder / "outbox")
        self._held.callback(outbox.close)
        sender = Sender(node, self.key, outbox=outbox, confirmations=self.crowd.confirmations)
        calls = Calls(sender, contract.address, Ceiling(), self.said.append)
        store = self.store_kind(self.crowd.folder / "store", self.name, self.crowd.noted)
        return self.kind(self, follower, calls, store)

    def step(self):
        """One look; what a program's `run` waits out is waited out here."""
        if self.is_done:
            return
        try:
            if self._program is None:
                self._program = self.open()
            self.crowd.deaths.armed = True
            self.is_done = not self._program.step()
        except (ChainError, StoreError, LedgerDamaged) as error:
            self.said.append(str(error))
        except Killed:
            self.deaths += 1
            self.drop()
        finally:
            self.crowd.deaths.armed = False

    def drop(self):
        """Forget all that is not on the disk."""
        program, self._program = self._program, None
        if isinstance(program, Customer):
            program._learner.close()
        if self._held is not None:
            self._held.close()
            self._held = None


@contextmanager
def closing_node(url):
    node = Node(url)
    try:
        yield node
    finally:
        node.close()


def rows_of(number):
    """Records of a home, three classes that a line tells apart."""
    draw = np.random.default_rng(number)
    labels = draw.integers(0, 3, 20)
    return np.eye(4)[labels] + 0.1 * draw.normal(size=(20, 4)), labels


def customer(number, learns=lambda learner: learner, **limits):
    """Makes the program of a customer."""

    def made(part, follower, calls, store):
        home = Home(
            part.folder / "ledger", part.folder / "updates", part.key.secret, lifetime=LIFETIME,
            marks=Marks(part.folder / "marks"),
        )  # fmt: skip
        learner = learns(DeviceLearner(home, lambda inputs: rows_of(number)))
        told = (follower, calls, store, part.said.append)
        return Customer(*told, identifier=part.crowd.identifier, key=part.key, learner=learner, **limits)

    return made


def miner(kind=Miner, **limits):
    """Makes the program of a miner."""

    def made(part, follower, calls, store):
        return kind(follower, calls, store, part.said.append, key=part.key, stake=STAKE, **limits)

    return made


class Crowd:
    """A contract on a chain of its own, a task, and the parts of those who take part in it."""

    def __init__(self, folder, *, confirmations=0, deaths=None, terms=TERMS, version=NEWEST):
        self.folder, self.confirmations, self.terms = folder, confirmations, terms
        self.deaths, self.noted = deaths or Deaths(0, 0, 1), {}
        self._held = ExitStack()
        self.anvil = self._held.enter_context(Anvil("--no-mining"))
        self.node = self._held.enter_context(closing_node(self.anvil.url))
        self.maker = Part(self, "maker")
        lottery = self.made(artifact("Lottery").creation)
        self.contract = TaskContract(self.node, self.made(creation(lottery, UNIT, version)))
        store = Noting(folder / "store", "maker", self.noted)
        model, text = store.put(TASK.start()), store.put(TASK.to_json())
        data = post_call(bytes(text), bytes(model), terms, PRICES)
        self.sent(self.maker.key, self.contract.address, data, pool(terms, PRICES))
        self.identifier = task_id(self.maker.address, bytes(text))
        self.customers = [Part(self, f"customer-{number}") for number in range(CUSTOMERS)]
        self.miners = [Part(self, f"miner-{number}") for number in range(MINERS)]
        for number, part in enumerate(self.customers):
            part.kind = customer(number)
        for part in self.miners:
            part.kind = miner()
        self.follower = Follower(self.contract)
        for _ in range(confirmations):
            self.node.rpc("evm_mine")

    def made(self, code):
        return self.sent(self.maker.key, None, code).contract

    def sent(self, key, to, data, value=0):
        sender = Sender(self.node, key)
        sent = sender.send(to, data, value_wei=value)
        self.node.rpc("evm_mine")
        return sender.wait(sent)

    def call(self, part, function, *arguments, value=0):
        return self.sent(part.key, self.contract.address, artifact().encode(function, *arguments), value)

    def close(self):
        for part in (*self.customers, *self.miners):
            part.drop()
        self._held.close()

    @property
    def seen(self):
        self.follower.look()
        return self.follower.seen(self.identifier)

    def play(self, between=lambda crowd: None):
        """Step everybody between blocks until the task is over and everybody has what it is owed."""
        for _ in range(MOST_BLOCKS):
            for part in (*self.customers, *self.miners):
                part.step()
            self.node.rpc("evm_mine")
            between(self)
            if self.seen.is_over and all(part.is_done for part in self.customers) and not self.due():
                return
        raise AssertionError(f"not over: {self.seen.progress}, {[part.said[-1:] for part in self.miners]}")

    def due(self):
        """Whether a fee that was earned is still to come."""
        seen = self.seen
        return any(list(due_rewards(seen, self.follower.history, part.address)) for part in self.miners)

    # What must hold

    def check(self):
        """Everything that must hold of a task that is over; what does not, in words."""
        seen, found = self.seen, []
        place = Place(self.node.chain_id, self.contract.address, self.identifier)
        store = Directory(self.folder / "store")
        for number, which in enumerate(seen.task.rounds):
            if which.result not in which.proposals:
                continue
            _, cid, proposal = which.proposals[which.result]
            every = judged(TASK, place, seen.task, number, store)
            right = judged(TASK, place, seen.task, number, store, counted=proposal.counted)
            if right.proposal(proposal.draw) != proposal or bytes(right.cid) != cid:
                found.append(f"the result of round {number} is not what comes out")
            if every.counted & ~proposal.counted:
                found.append(f"round {number} leaves out updates that can be fetched")
        for part in self.customers:
            files = [cid for cid, size in self.noted.get(part.name, {}).items() if size == size_of(GRID)]
            rounds = sum(part.address in which.commits for which in seen.task.rounds)
            if len(files) > ROUNDS or len(files) > rounds + 1:
                found.append(f"{part.name} showed {len(files)} draws in {rounds} rounds")
            for number, which in enumerate(seen.task.rounds):
                if which.is_closed and part.address in which.revealed and part.address not in which.settled:
                    found.append(f"{part.name} was not settled for round {number}")
        found += self._money(seen)
        return found

    def _money(self, seen):
        """Nothing is lost: what the contract has is what it owes, holds and keeps."""
        everybody = (self.maker, *self.customers, *self.miners)
        owed = sum(self.contract.owed(part.address) for part in everybody)
        stakes = sum(self.follower.history.units.values()) * UNIT
        held = int(self.node.rpc("eth_getBalance", self.contract.address, "latest"), 16)
        right = held == seen.task.pool + owed + stakes
        return [] if right else [f"the contract has {held}, and owes {seen.task.pool + owed + stakes}"]

    def reclaimed(self):
        """The rest of the pool goes back; what the manufacturer may withdraw."""
        for _ in range(self.terms.claim_blocks):
            self.node.rpc("evm_mine")
        self.call(self.maker, "reclaim", self.identifier)
        return self.contract.owed(self.maker.address)


def is_done(crowd):
    return crowd.seen.progress.status is Status.DONE
