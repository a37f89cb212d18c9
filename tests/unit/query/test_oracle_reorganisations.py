"""T14: chains that take back requests and records: one draw for each, no double charge, the cap holds."""

import itertools
import random

import pytest

from reticent.chain import sender
from reticent.chain.anvil import Anvil, find_anvil
from reticent.errors import NotConfirmed
from reticent.ledger import SqlLedger
from reticent.query import census, histogram, mean
from reticent.query import count as how_many
from reticent.query.chain import oracle as oracle_module
from reticent.query.chain.oracle import Oracle, State, open_oracle
from reticent.query.declarations import dataset_file
from reticent.query.language.questions import resolve
from reticent.query.measure import plan
from reticent.query.rows import source

from .tables import Tallied
from .town import Town, faults, seen

SUMS = [(cell, 20 + cell, 900_000 + cell, 10**10) for cell in range(4)]
# What stands in the place of a request that the chain took back.
INSTEAD = ("the same", "another question", "another amount", "nothing")
# When a node sends the oracle's record again by itself that the chain took back with the request.
BACK = ("never", "at once", "after the next request")


@pytest.fixture(scope="module")
def chain():
    """A chain whose blocks these tests may take back."""
    if find_anvil() is None:
        pytest.skip("no anvil on this machine (npm installs it)")
    with Anvil() as running:
        yield running


@pytest.fixture
def declaration(tmp_path_factory):
    return census.write(tmp_path_factory.mktemp("census"), rows=100)


@pytest.fixture
def town(chain, declaration, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "connect", lambda data, *_, **options: Tallied(data, SUMS))
    monkeypatch.setattr(sender, "_AGAIN_AFTER_S", 0.05)
    made = Town(chain, dataset_file.read(declaration), tmp_path)
    yield made
    made.close()


def questions(data):
    for age in itertools.count(1):
        for query in (mean("income", where=f"age > {age}"), histogram("race", where=f"age > {age}")):
            yield plan(resolve(query, data))


class Unsteady:
    """A town whose chain takes back what its oracle has seen."""

    def __init__(self, town, declaration, seed=14, *, outboxed=True, **options):
        self.town, self.rng = town, random.Random(seed)
        self.asked, self.least = questions(town.data), 4 * town.data.terms.minimum  # of four values
        self.vanished, self.reorganisations, self.spent = [], 0, 0
        self._open = lambda: open_oracle(
            declaration,
            lambda outbox: town.connect(outbox if outboxed else None, timeout_s=120, **options),
            town.folder,
        )
        self.oracle = self._open()

    def restart(self):
        self.oracle.close()
        self.oracle = self._open()

    def in_flight(self):
        """One step whose records get into no block."""
        chain, node = self.oracle._chain, self.town.node
        node.rpc("evm_setAutomine", False)

        def impatient(sent):
            raise NotConfirmed("not yet")

        chain.settle_many = impatient
        try:
            return self.oracle.step()
        finally:
            del chain.settle_many
            node.rpc("anvil_dropAllTransactions")
            node.rpc("evm_setAutomine", True)

    def round(self, instead, back, *, mined=True, restarted=False, information=None):
        """A request is measured and sent, and the chain takes back both; then something else comes."""
        town, node = self.town, self.town.node
        base, before = node.number(), len(seen(town.paper))
        prepared, amount = next(self.asked), information or self.least * self.rng.randint(2, 9)
        first = town.ask(prepared, amount)
        states = [one.state for one in (self.oracle.step() if mined else self.in_flight())]
        sent = seen(town.paper)[before:]
        node.rpc("anvil_rollback", node.number() - base)
        self.reorganisations += 1
        if restarted:
            self.restart()
        if back == "at once":
            self._back(sent)
        if instead == "the same":
            assert town.ask(prepared, amount) == first
        else:
            self.vanished.append((prepared, amount))
        if instead == "another question":
            town.ask(next(self.asked), amount)
        if instead == "another amount":
            town.ask(prepared, amount + 1)
            self.vanished.pop()  # its start is taken
        if back == "after the next request":
            self._back(sent)
        self.settle()
        self._grown()
        return states

    def _back(self, sent):
        """As real nodes do: a transaction of a block that is gone waits again for the next one."""
        answers = self.town.node.rpc_many([("eth_sendRawTransaction", [one.raw]) for one in sent])
        assert [answer for answer in answers if not isinstance(answer, str)] == []

    def settle(self):
        for _ in range(10):
            states = {one.state for one in self.oracle.step()}
            if not states & {State.SENT, State.DELAYED}:
                return
        raise AssertionError(f"something does not get through: {states}")

    def _grown(self):
        with SqlLedger(self.town.folder / "own.sqlite", create=False) as own:
            spent = own.balance(self.town.data.name).spent
        assert self.spent <= spent <= self.town.data.terms.cap
        self.spent = spent

    def finish(self):
        """Ask again for all that vanished: it costs the oracle nothing, and no new draw leaves it."""
        spent, draws = self.spent, {one.values for one in seen(self.town.paper)}
        for prepared, amount in self.vanished:
            self.town.ask(prepared, amount)
        self.settle()
        self._grown()
        self.oracle.close()
        assert self.spent == spent
        assert {one.values for one in seen(self.town.paper)} == draws
        return faults(self.town, draw=lambda one: one.values)


def test_each_kind_of_reorganisation(town, declaration):
    unsteady = Unsteady(town, declaration)
    for number, (instead, back) in enumerate(itertools.product(INSTEAD, BACK)):
        states = unsteady.round(instead, back, mined=number % 3 != 2, restarted=number % 2 == 1)
        assert states == [State.RECORDED if number % 3 != 2 else State.SENT]
    assert unsteady.finish() == []


@pytest.mark.slow
def test_a_hundred_reorganisations(town, declaration):
    unsteady = Unsteady(town, declaration)
    rng = unsteady.rng
    for _ in range(100):
        unsteady.round(
            rng.choice(INSTEAD), rng.choice(BACK), mined=rng.random() < 0.7, restarted=rng.random() < 0.3
        )
    assert unsteady.reorganisations == 100
    assert unsteady.finish() == []


def exhausted(town, declaration):
    """Let the chain forget four quarters of the cap, and ask for a fifth; what became of that."""
    unsteady = Unsteady(town, declaration)
    quarter = town.data.terms.cap // 4
    for _ in range(4):
        unsteady.round("nothing", "never", information=quarter)
    town.ask(next(unsteady.asked), quarter)
    (outcome,) = unsteady.oracle.step()
    unsteady.oracle.close()
    assert town.state().datasets[town.dataset].spent == quarter  # all that the chain knows of
    return outcome, sum(information for *_, information in {one.identity for one in seen(town.paper)})


def test_the_cap_holds_though_the_chain_forgets(town, declaration):
    outcome, left = exhausted(town, declaration)
    assert outcome.state is State.REFUSED
    assert "past the cap" in outcome.reason
    assert left <= town.data.terms.cap


def test_with_confirmations_a_shallow_reorganisation_is_never_seen(town, declaration):
    """What is not deep enough is not drawn, so nothing is lost when it goes."""
    town.node.rpc("anvil_mine", "0x3")
    unsteady = Unsteady(town, declaration, confirmations=3)
    base = town.node.number()
    prepared = next(unsteady.asked)
    town.ask(prepared, unsteady.least)
    assert unsteady.oracle.step() == []
    town.node.rpc("anvil_rollback", town.node.number() - base)
    town.ask(prepared, 2 * unsteady.least)
    town.node.rpc("anvil_mine", "0x3")
    unsteady.in_flight()
    assert [one.information for one in seen(town.paper)] == [2 * unsteady.least]
    unsteady.oracle.close()


# Planted


def test_the_check_finds_an_oracle_without_a_total(town, declaration, monkeypatch):
    def forgetful(self, asked):
        rows = self._opened()
        return [held.measure(held.vector(rows), one.information, self._rng) for one, held in asked]

    monkeypatch.setattr(Oracle, "_values", forgetful)
    outcome, left = exhausted(town, declaration)
    assert outcome.state is State.RECORDED
    assert left > town.data.terms.cap


def test_the_check_finds_draws_keyed_by_number(town, declaration, monkeypatch):
    monkeypatch.setattr(oracle_module, "_identity", lambda chain, waiting: f"{waiting.number}")
    unsteady = Unsteady(town, declaration)
    unsteady.asked = (plan(resolve(how_many(where=f"age > {age}"), town.data)) for age in itertools.count(1))
    unsteady.round("another question", "never")
    unsteady.oracle.close()
    assert "one draw was sent for two measurements" in faults(town, draw=lambda one: one.values)


@pytest.mark.parametrize("outboxed", [True, False], ids=["outbox", "no outbox"])
def test_the_check_finds_a_fresh_draw_for_the_same_request(town, declaration, monkeypatch, outboxed):
    real = oracle_module._identity
    monkeypatch.setattr(
        oracle_module, "_identity", lambda chain, waiting: f"{real(chain, waiting)}/{waiting.number}"
    )
    unsteady = Unsteady(town, declaration, outboxed=outboxed)
    unsteady.round("another question", "never")
    town.ask(*unsteady.vanished[0])
    states = [one.state for one in unsteady.oracle.step()]
    unsteady.oracle.close()
    found = faults(town, draw=lambda one: one.values)
    if outboxed:  # the outbox keeps it in
        assert states == [State.DELAYED]
        assert "a request is lost" in found
    else:
        assert "two draws left for one request" in found
