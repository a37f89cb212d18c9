"""Whole tasks by the programs of customers and miners: silence, lies, late and repeated messages, deaths."""

from dataclasses import replace

import pytest

from reticent.chain.anvil import find_anvil
from reticent.chain.node import as_bytes
from reticent.errors import BudgetExceeded, TransactionRefused
from reticent.federated.crowd.contract import Status, artifact
from reticent.federated.crowd.customer import Customer, DeviceLearner
from reticent.federated.crowd.deciding import Do
from reticent.federated.crowd.miner import Miner
from reticent.federated.crowd.rounds import model_before
from reticent.federated.crowd.terms import pool
from reticent.federated.crowd.updates import seal
from reticent.store import Cid

from . import crowd_programs
from .crowd_programs import PRICES, ROUNDS, TASK, TERMS, Crowd, Deaths, Withholding, customer, is_done, miner

pytestmark = pytest.mark.skipif(find_anvil() is None, reason="no anvil on this machine (npm installs it)")

SLOW = replace(TERMS, commit_blocks=20, reveal_blocks=16, seat_blocks=14, turn_blocks=14, claim_blocks=6)


@pytest.fixture
def crowd(tmp_path):
    made = Crowd(tmp_path)
    yield made
    made.close()


def pays(crowd):
    """What each customer was paid in all."""
    rounds = crowd.seen.task.rounds
    return [sum(one.settled.get(part.address, (0, 0))[1] for one in rounds) for part in crowd.customers]


def test_a_task_ends_right_everybody_is_paid_and_nothing_counts_twice(crowd):
    crowd.play()
    assert is_done(crowd)
    assert crowd.check() == []
    task = crowd.seen.task
    assert [len(one.revealed) for one in task.rounds[:ROUNDS]] == [5, 5]
    assert sum(pay > 0 for pay in pays(crowd)) >= 4
    assert all(crowd.contract.owed(part.address) == 0 for part in crowd.customers)  # withdrawn
    assert 0 < sum(sum(one.rewarded.values()) for one in task.rounds) <= PRICES.committee_fee * ROUNDS
    assert say_it_all_again(crowd) > 60
    left = task.pool
    assert left == pool(TERMS, PRICES) - sum(pays(crowd)) - sum(
        sum(one.rewarded.values()) + PRICES.leader_fee for one in task.rounds[:ROUNDS]
    )
    assert crowd.reclaimed() == left


class Silent(Miner):
    """Takes seats, and never leads or votes."""

    def _do(self, action, seen):
        if action.do not in (Do.PROPOSE, Do.VOTE):
            super()._do(action, seen)


class DeadLeader(Miner):
    """Votes, and never leads."""

    def _do(self, action, seen):
        if action.do is not Do.PROPOSE:
            super()._do(action, seen)


class Liar(Miner):
    """Leads with another model than comes out."""

    def _propose(self, seen, once):
        found = self._judged(seen)
        right = TASK.model(self.store, self.store.put(found.file))
        cid = self.store.put(TASK.model_file(right + 1))
        words = (found.counted, found.accepted, found.low, found.paid)
        self.calls.send("propose", seen.identifier, bytes(cid), *words, once=once)


class Forgetful(Miner):
    """Leads with an update left out that can be fetched."""

    def _propose(self, seen, once):
        every = self._judged(seen)
        found = self._judged(seen, every.counted & (every.counted - 1))
        self.store.put(found.file)
        words = (found.counted, found.accepted, found.low, found.paid)
        self.calls.send("propose", seen.identifier, bytes(found.cid), *words, once=once)


class Blind(Miner):
    """Planted: agrees without looking."""

    def _agrees(self, seen, named):
        return True, ""


@pytest.mark.parametrize(
    "kind",
    [Forgetful, pytest.param(DeadLeader, marks=pytest.mark.slow), pytest.param(Liar, marks=pytest.mark.slow)],
)
def test_a_leader_that_is_silent_or_lies_is_passed_over(crowd, kind):
    crowd.miners[0].kind = miner(kind)
    crowd.play()
    assert crowd.check() == []
    assert crowd.seen.progress.status in (Status.DONE, Status.CANCELLED)
    task, lied = crowd.seen.task, crowd.miners[0].address
    assert all(one.proposals[one.result][0] != lied for one in task.rounds if one.result in one.proposals)


@pytest.mark.parametrize("kind", [Liar, pytest.param(Forgetful, marks=pytest.mark.slow)])
def test_planted_voters_that_do_not_look_are_found(crowd, kind):
    class Both(kind, Blind):
        pass

    for part in crowd.miners:
        part.kind = miner(Both)
    crowd.play()
    assert crowd.check()


def test_where_nobody_judges_the_task_is_cancelled_and_all_is_returned(crowd):
    for part in crowd.miners:
        part.kind = miner(Silent)
    crowd.play()
    assert crowd.seen.progress.status is Status.CANCELLED
    assert crowd.check() == []
    assert crowd.reclaimed() == pool(TERMS, PRICES)


def test_a_file_that_is_withheld_is_not_counted_and_a_silent_leader_stops_nobody(crowd):
    crowd.miners[0].kind = miner(DeadLeader)
    crowd.customers[2].store_kind = Withholding
    crowd.play()
    assert is_done(crowd)
    assert crowd.check() == []
    assert pays(crowd)[2] == 0
    for one in crowd.seen.task.rounds[:ROUNDS]:
        place = crowd.seen.task.customers.index(crowd.customers[2].address)
        assert not one.proposals[one.result][2].counted >> place & 1


@pytest.mark.slow
def test_who_is_late_waits_for_the_next_round_and_draws_nothing(crowd):
    late, kind = crowd.customers[0], crowd.customers[0].kind

    def asleep(part, *told):
        raise AssertionError

    late.kind, late.step, step = asleep, lambda: None, late.step
    extra = crowd.terms.commit_blocks

    def between(crowd):
        seen = crowd.seen
        if seen.next >= seen.progress.since + extra and late.kind is asleep:
            late.kind, late.step = kind, step

    crowd.play(between)
    assert crowd.check() == []
    first = crowd.seen.task.rounds[0]
    assert late.address not in first.commits
    assert len(crowd.noted.get(late.name, {})) <= ROUNDS - 1


def say_it_all_again(crowd):
    """Send every call of a task again, as its own sender and as another; how many are refused."""
    calls, refused = [], 0
    for number in range(crowd.node.number() + 1):
        block = crowd.node.rpc("eth_getBlockByNumber", hex(number), True)
        calls += [one for one in block["transactions"] if one["to"] == crowd.contract.address.lower()]
    by_address = {part.address.lower(): part for part in (*crowd.customers, *crowd.miners, crowd.maker)}
    for one in calls:
        for sender in (by_address[one["from"]], crowd.maker):
            data, value = as_bytes(one["input"]), int(one["value"], 16)
            try:
                crowd.node.call(crowd.contract.address, data, sender=sender.address, value_wei=value)
            except TransactionRefused:
                refused += 1
            else:  # what costs nobody else anything: a stake of one's own
                assert (data[:4], sender) == (artifact().encode("enrol"), crowd.maker)
    return refused


def test_a_reorganisation_is_another_look(tmp_path):
    crowd, kept = Crowd(tmp_path, confirmations=2, terms=SLOW), []

    def between(crowd):
        """Now and then two blocks are taken back, with all that was in them."""
        number = crowd.node.number()
        if number % 8 == 0:
            kept.append(number)
            crowd.node.rpc("anvil_reorg", 2, [])

    try:
        crowd.play(between)
        assert crowd.check() == []
        assert len(kept) > 5
    finally:
        crowd.close()


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_whoever_is_killed_goes_on_where_it_was(tmp_path, kills):
    """As many deaths as are asked for, over as many tasks as it takes, anywhere in any program."""
    died, task = [], 0
    while len(died) < kills:
        folder = tmp_path / str(task)
        folder.mkdir()
        with Deaths(task, kills - len(died), 10).planted() as deaths:
            crowd = Crowd(folder, deaths=deaths)
            try:
                crowd.play()
                assert crowd.check() == [], deaths.died
            finally:
                crowd.close()
        died, task = died + deaths.died, task + 1
    assert len(set(died)) > min(kills, 100) // 12


class DrawsAgain(DeviceLearner):
    """Planted: forgets what it drew, and that it sealed it."""

    def update(self, identifier, task, number, model):
        asked = task.training.home_task(identifier, task.grid, task.rounds)
        features, labels = self._records(task.training.inputs)
        return asked.trained(asked.grid.values(model), features, labels, None)


class Careless(Customer):
    """Planted: shares what it sealed before it is kept."""

    def _train(self, seen):
        text, number = self._check_text(seen), seen.progress.round
        model = text.model(self.store, Cid.of_bytes(model_before(seen.task, number)))
        update = self._learner.update(self._identifier.hex(), text, number, model)
        sealed = seal(text.grid, update, self._place.origin(number, self.me), self._key)
        self.store.put(sealed.file)
        super()._train(seen)


def test_planted_a_home_that_draws_again_is_found(tmp_path):
    crowd = Crowd(tmp_path)
    part = crowd.customers[0]
    honest = customer(0, lambda learner: DrawsAgain(learner._home, learner._records))

    def careless(part, *told):
        program = honest(part, *told)
        program.__class__ = Careless
        return program

    part.kind = careless
    try:
        crowd.play()
        assert any("customer-0 showed" in line for line in crowd.check())
    finally:
        crowd.close()


def test_a_spent_ledger_ends_a_customer_and_draws_nothing(crowd, monkeypatch):
    monkeypatch.setattr(crowd_programs, "LIFETIME", 1e-6)
    part = crowd.customers[0]
    with pytest.raises(BudgetExceeded):
        part.step()
    crowd.node.rpc("evm_mine")
    assert part.address not in crowd.seen.task.customers, "no gas was paid for it either"
    crowd.call(part, "apply", crowd.identifier, 0, 0, 0)  # and where it was a customer before
    with pytest.raises(BudgetExceeded):
        part.step()
    assert crowd.noted.get(part.name) is None
    assert part.address not in crowd.seen.task.rounds[0].commits
