"""T14: oracles killed anywhere lose nothing and draw once. Every byte that ever left them is looked at."""

import itertools
import multiprocessing
import os
import shutil
import signal

import pytest

from reticent.chain.anvil import Anvil, find_anvil
from reticent.chain.outbox import Outbox
from reticent.ledger import SqlLedger
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.query import census, histogram, mean, variance
from reticent.query import count as how_many
from reticent.query.chain.oracle import Oracle, open_oracle
from reticent.query.declarations import dataset_file
from reticent.query.declarations.home import folder
from reticent.query.language.questions import resolve
from reticent.query.measure import Plan, plan
from reticent.query.rows import source

from .tables import Tallied
from .town import Town, faults, seen

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

FORK = multiprocessing.get_context("fork")
POINTS = [
    (SqlLedger, "request_many"), (SqlLedger, "fulfil"), (SqlLedger, "reading"), (Plan, "measure"),
    (Outbox, "put"), (EthereumLedger, "waiting"), (EthereumLedger, "record_many"),
    (EthereumLedger, "settle_many"),
]  # fmt: skip
MOST_POINTS = 24  # that one measurement passes, before and after each call and around each message
SUMS = [(cell, 20 + cell, 900_000 + cell, 10**10) for cell in range(4)]


@pytest.fixture(scope="module")
def chain():
    """A chain whose blocks these tests may hold back."""
    if find_anvil() is None:
        pytest.skip("no anvil on this machine (npm installs it)")
    with Anvil() as running:
        yield running


@pytest.fixture(scope="module")
def declaration(tmp_path_factory):
    path = census.write(tmp_path_factory.mktemp("census"), rows=100)
    prepared = plan(resolve(mean("income"), dataset_file.read(path)))
    prepared.measure([0], 10**9)  # warm, before anything is forked
    return path


def first_opened(path):
    """The declaration as if nobody ever had: each town has a contract of its own."""
    shutil.rmtree(folder(path), ignore_errors=True)
    return dataset_file.read(path)


def rows(data, *_, **__):
    return Tallied(data, SUMS)


def questions(data):
    for age in itertools.count(1):
        for query in (
            mean("income", where=f"age > {age}"),
            how_many(where=f"age > {age}"),
            histogram("race", where=f"age > {age}"),
            variance("hours", where=f"age > {age}"),
        ):
            yield plan(resolve(query, data))


def redrawn(self, asked):
    """Planted: charges once, and draws again whenever it starts."""
    self._own.request_many([self._order(one) for one, _ in asked])
    rows = self._opened()
    return [held.measure(held.vector(rows), one.information, self._rng) for one, held in asked]


def struck(last):
    """Dies the instant in which it is called for the last time."""
    passed = itertools.count(1)

    def point():
        if next(passed) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    return point


def around(kind, name, point):
    real = getattr(kind, name)

    def struck_around(*given, **more):
        point()
        made = real(*given, **more)
        point()
        return made

    setattr(kind, name, struck_around)


def work(town, declaration, last, redraws, outboxed, dies_in_flight):
    """The oracle of one process, until nothing waits."""
    point = struck(last)
    for kind, name in POINTS:
        around(kind, name, point)
    source.connect = rows
    if dies_in_flight:  # once its records are with the node, before it waits for them
        EthereumLedger.settle_many = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    if redraws:
        Oracle._values = redrawn
    with open_oracle(
        declaration, lambda outbox: town.connect(outbox if outboxed else None, point), town.folder
    ) as oracle:
        for _ in range(10):
            if not oracle.step():
                return
    os._exit(3)


def started(town, declaration, last=0, *, redraws=False, outboxed=True, dies_in_flight=False):
    given = (town, declaration, last, redraws, outboxed, dies_in_flight)
    child = FORK.Process(target=work, args=given)
    child.start()
    return child


class Kills:
    """Oracles of one town, killed one after the other."""

    def __init__(self, town, declaration):
        self.town, self.declaration = town, declaration
        self.asked, self.kills = questions(town.data), 0

    def finish(self):
        child = started(self.town, self.declaration)
        child.join()
        assert child.exitcode == 0
        return faults(self.town)


@pytest.fixture
def fresh(tmp_path):
    """New folders, one after the other."""
    numbers = itertools.count()

    def folder():
        made = tmp_path / str(next(numbers))
        made.mkdir()
        return made

    return folder


def test_every_point_is_a_safe_place_to_die(chain, declaration, fresh):
    """One measurement, killed at its first point, then at its second, until one comes through."""
    town = Town(chain, first_opened(declaration), fresh())
    life = Kills(town, declaration)
    wrong = []
    for last in range(1, 10 * MOST_POINTS):
        town.ask(next(life.asked), town.data.terms.minimum)
        child = started(town, declaration, last)
        child.join()
        if child.exitcode == 0:
            break
        wrong += life.finish()
    assert child.exitcode == 0
    assert last > MOST_POINTS / 2
    assert wrong == []
    town.close()


# Planted


def die_in_flight(town, declaration, **planted):
    """Kill an oracle whose record is in no block yet, let the node forget it, and start again."""
    town.ask(next(questions(town.data)), town.data.terms.minimum)
    town.node.rpc("evm_setAutomine", False)
    child = started(town, declaration, dies_in_flight=True, **planted)
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert seen(town.paper)
    town.node.rpc("anvil_dropAllTransactions")
    town.node.rpc("evm_setAutomine", True)
    child = started(town, declaration, **planted)
    child.join()
    return faults(town)


def test_a_record_in_flight_is_sent_again_as_it_was(chain, declaration, fresh):
    town = Town(chain, first_opened(declaration), fresh())
    assert die_in_flight(town, declaration) == []
    assert len(seen(town.paper)) == 1  # to the byte
    town.close()


def test_the_check_finds_an_oracle_that_redraws(chain, declaration, fresh):
    town = Town(chain, first_opened(declaration), fresh())
    assert "two draws left for one request" in die_in_flight(town, declaration, redraws=True, outboxed=False)
    town.close()


def test_the_outbox_stops_an_oracle_that_redraws(chain, declaration, fresh):
    town = Town(chain, first_opened(declaration), fresh())
    found = die_in_flight(town, declaration, redraws=True)
    assert "a request is lost" in found
    assert "two draws left for one request" not in found
    town.close()
