"""T24 with a chain: an account that is spent here, moves into a contract and is spent there, killed anywhere.

Command, Python and service buy parts of the budget; `chain register` is killed at any step and started again;
then an analyst buys on the chain, and the oracle is killed too. A session that was open all the time buys as
long as it is let. However they come together, the parts that were answered are no more than there are, the
contract and the oracle's own ledger count each of them, and nothing is drawn twice.
"""

import contextlib
import itertools
import os
import random
import signal
from io import StringIO
from pathlib import Path

import duckdb
import pytest

import reticent
from reticent.apps.chain import work
from reticent.chain.keys import Key
from reticent.chain.node import Node
from reticent.chain.outbox import Outbox
from reticent.errors import ReticentError, TransactionRefused
from reticent.ledger import SqlLedger
from reticent.ledger.ethereum.chain_file import ChainFile
from reticent.ledger.ethereum.contract import dataset_id
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.query import census
from reticent.query import count as how_many
from reticent.query.chain import commitment
from reticent.query.chain.oracle import open_oracle
from reticent.query.declarations import account_moving, dataset_file, home
from reticent.query.declarations.home import folder as kept_folder
from reticent.query.language.questions import resolve
from reticent.query.measure import Plan, plan
from reticent.service.state import State

from ...service.test_one_ledger import BUY, PARTS, part_of
from .test_oracle_crashes import FORK, around, chain, fresh, struck
from .town import Town, faults

__all__ = ["chain", "duckdb", "fresh"]  # fixtures, and what is loaded before processes are forked

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

HERE = ("python", "command", "service")
POINTS = [
    (home, "write"), (account_moving, "hand_over"), (account_moving, "take_over"), (commitment, "place"),
    (Plan, "measure"),
    (SqlLedger, "transact"), (SqlLedger, "request_many"), (SqlLedger, "fulfil"), (Outbox, "put"),
    (EthereumLedger, "register"), (EthereumLedger, "charge"), (EthereumLedger, "record_many"),
    (Node, "rpc"), (Node, "rpc_many"),
]  # fmt: skip
MOST_POINTS = 70  # that a registration passes
PER_HOUSE = 10
CRASHED = 4


@pytest.fixture(autouse=True, scope="module")
def warm(tmp_path_factory):
    """Load what every process needs, before any is forked."""
    data = dataset_file.read(census.write(tmp_path_factory.mktemp("warm"), rows=60))
    plan(resolve(how_many(), data)).measure([0], 10**9)


@pytest.fixture(autouse=True)
def key_opening(monkeypatch):
    """Put back after each test how keys are opened: houses change it, and other files read real ones."""
    monkeypatch.setattr(work, "opened_key", work.opened_key)


class House(Town):
    """A declaration with its keys, and a contract that nobody registered anything with."""

    def __init__(self, anvil, base):
        (base / "here").mkdir()
        self.path = census.write(base / "here", rows=60)
        State.of(self.path.parent).close()
        self.url, self.data = anvil.url, dataset_file.read(self.path)
        self.part, self.ages = part_of(self.path), itertools.count(1)
        self.owner, self.keeper, self.analyst = (Key(os.urandom(32)) for _ in range(3))
        self.node, self.oracle_url = Node(self.url), None
        for key in (self.owner, self.keeper, self.analyst):
            self.node.rpc("anvil_setBalance", key.address, hex(10**20))
        self.dataset = dataset_id(self.owner.address, self.data.name)
        self.file, self.answers = base / "chain.json", base / "answered.txt"
        self.paper, self.folder = base / "seen.txt", kept_folder(self.path) / "oracle"
        work.opened_key = lambda _: self.owner
        with contextlib.redirect_stdout(StringIO()):
            work.deploy(self.url, Path("owner.key"), out=self.file, confirmations=None, forget_rpc=False)
        told = ChainFile.read(self.file)
        self.address, self.first_block = told.contract, told.block

    @property
    def answered(self):
        """What was answered here, each answer once."""
        return set(self.answers.read_text().split()) if self.answers.exists() else set()

    @property
    def is_registered(self):
        found = home.known(self.path)
        return found is not None and found.is_on_chain

    def buy(self, opener, age):
        for one in BUY[opener](self.path, [age]):
            self.note(one)

    def note(self, age):
        file = os.open(self.answers, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{age}\n".encode())
        os.close(file)

    def register(self):
        work.opened_key = lambda _: self.owner
        with contextlib.redirect_stdout(StringIO()):
            work.register(
                self.path, oracle=self.keeper.address, key=Path("owner.key"), chain=self.file, rpc=None
            )

    def measure(self, point):
        with open_oracle(self.path, lambda outbox: self.connect(outbox, point)) as oracle:
            for _ in range(10):
                if not oracle.step():
                    return

    def run(self, what, last=0, planted=None):
        """A process of its own, killed the instant it passes its last point; whether it was."""
        child = FORK.Process(target=self.live, args=(what, last, next(self.ages), planted))
        child.start()
        child.join()
        assert child.exitcode in (0, -signal.SIGKILL)
        return child.exitcode == -signal.SIGKILL

    def live(self, what, last, age, planted):
        point = struck(last)
        for kind, name in POINTS:
            around(kind, name, point)
        if planted is not None:
            planted()
        try:
            if what == "register":
                self.register()
            elif what == "oracle":
                self.measure(point)
            else:
                self.buy(what, age)
        except ReticentError:
            os._exit(0)
        except BaseException:
            os._exit(CRASHED)
        os._exit(0)

    @contextlib.contextmanager
    def staying(self):
        """A session that is open before the block, and buys after it as long as it is let."""
        ready, go = FORK.Event(), FORK.Event()
        child = FORK.Process(target=self.stay, args=(ready, go))
        child.start()
        ready.wait()
        try:
            yield
        finally:
            go.set()
            child.join()

    def stay(self, ready, go):
        with contextlib.suppress(ReticentError), reticent.open(self.path) as session:
            ready.set()
            go.wait()
            for age in range(10_000, 10_000 + PARTS):
                session.ask(how_many(where=f"income > {age}"), information=self.part / 10**12)
                self.note(age)
        ready.set()
        os._exit(0)

    def sell_the_rest(self, between):
        """On the chain, part after part, until the contract refuses; then what waits is measured."""
        with self.ledger(self.owner) as ledger:
            ledger.allow("census", self.analyst.address, self.data.terms.cap)
        for age in range(1, 2 * PARTS):
            asked = plan(resolve(how_many(where=f"age > {age}"), self.data))
            try:
                self.ask(asked, self.part)
            except TransactionRefused:
                break
            between()

    def wrong(self):
        """What is wrong in the end, in words."""
        state, found = self.state(), faults(self)
        held = state.datasets[self.dataset]
        before = sum(one.information for one in state.measurements if one.paid)
        told = len(self.answered) + sum(1 for one in state.measurements if one.fulfilled and not one.paid)
        if len(self.answered) * self.part > before:
            found.append("something was answered here that the contract does not count")
        if not 0 <= held.cap - held.spent < self.part:
            found.append("the contract sold more or less than the budget")
        if told > PARTS:
            found.append("more was told than the budget holds")
        if not home.known(self.path).oracle:
            found.append("where the oracle keeps what it measured is forgotten")
        for place in (kept_folder(self.path), self.path.parent / home.SERVICE):
            if (place / home.OWN).is_file():
                with home.open_ledger(place / home.OWN, self.path) as left:
                    if any(one.remaining >= one.terms.minimum for one in left.accounts()):
                        found.append("something is left to spend here")
        return found


def lived(house, rng, kills):
    """From its first opening until nothing is left to sell; how often a process was killed."""
    killed = 0

    def run(what, most=0):
        nonlocal killed
        killed += house.run(what, rng.randint(1, most) if most and killed < kills else 0)

    run(rng.choice(HERE))
    with house.staying():
        for _ in range(rng.randint(0, 2)):
            run(rng.choice(HERE), 20)
        while not house.is_registered:
            run("register", MOST_POINTS)
            if rng.random() < 0.5:
                run(rng.choice((*HERE, "oracle")), 20)
    house.sell_the_rest(lambda: rng.random() < 0.5 and run(rng.choice(("oracle", "oracle", *HERE)), 30))
    for what in ("oracle", rng.choice(HERE)):
        run(what)
    return killed


def briefly(house, last=0, planted=None):
    """One of each, in order, and the registration killed at a point; whether it was."""
    house.run("python")
    with house.staying():
        was_killed = house.run("register", last, planted)
        if was_killed:
            house.run("python")
            house.run("register")
    assert house.is_registered
    house.sell_the_rest(lambda: None)
    house.run("oracle", planted=planted)
    return was_killed


def survive(anvil, fresh, kills, seed=24):
    rng, done, houses = random.Random(seed), 0, 0
    while done < kills:
        with contextlib.closing(House(anvil, fresh())) as house:
            done, houses = done + lived(house, rng, min(PER_HOUSE, kills - done)), houses + 1
            assert house.wrong() == []
    return done, houses


def test_an_account_that_moves_into_a_contract_is_sold_once(chain, fresh):
    survive(chain, fresh, 3)


@pytest.mark.slow
def test_an_account_that_moves_into_a_contract_is_sold_once_in_full(chain, fresh):
    kills, houses = survive(chain, fresh, 60)
    print(f"{kills} kills in {houses} houses")
    assert kills >= 60


@pytest.mark.slow
def test_every_point_of_a_registration_is_a_safe_place_to_die(chain, fresh):
    """Killed at its first point, and then at its second, until one comes through; each is ended."""
    for last in itertools.count(1):
        with contextlib.closing(House(chain, fresh())) as house:
            was_killed = briefly(house, last)
            assert (last, house.wrong()) == (last, [])
        if not was_killed:
            break
    assert MOST_POINTS / 2 < last < 2 * MOST_POINTS
    print(f"{last - 1} points")


# Planted


def stays_open():
    """What moves is not closed where it was, and the oracle takes nothing over."""
    real = SqlLedger.transact
    SqlLedger.transact = lambda self, work: None if _closes(work) else real(self, work)
    account_moving.left_behind = lambda *_, **__: account_moving.Taken(0, 0)


def _closes(work):
    return work.__qualname__.startswith("hand_over")


def forgets_before():
    """What was spent before is not charged in the contract."""
    work._charged = lambda *_: None


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        (stays_open, "more was told than the budget holds"),
        (forgets_before, "something was answered here that the contract does not count"),
    ],
)
def test_the_check_finds(chain, fresh, planted, words):
    with contextlib.closing(House(chain, fresh())) as house:
        briefly(house, planted=planted)
        assert words in house.wrong()


def test_the_check_finds_nothing_else(chain, fresh):
    with contextlib.closing(House(chain, fresh())) as house:
        briefly(house)
        assert house.wrong() == []
