"""Tasks that somebody posts to harm a contract's miners: they neither stop them nor empty their purses."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from reticent.chain.anvil import find_anvil
from reticent.chain.node import as_number
from reticent.errors import ParameterError, StoreFull
from reticent.federated.crowd import deciding
from reticent.federated.crowd import miner as mining
from reticent.federated.crowd.commitments import VERSIONS
from reticent.federated.crowd.contract import post_call, task_id
from reticent.federated.crowd.miner import Miner
from reticent.federated.crowd.terms import MAX_JUDGING_BLOCKS, Prices, Terms, pool
from reticent.federated.crowd.updates import size_of
from reticent.store import Directory

from .crowd_programs import GRID, TASK, TERMS, Crowd, customer, miner

pytestmark = pytest.mark.skipif(find_anvil() is None, reason="no anvil on this machine (npm installs it)")

FREE = Prices(unit=0, bonus=0, leader_fee=0, committee_fee=0, deposit=0)
SHORT = replace(TERMS, rounds=100, commit_blocks=1, reveal_blocks=1)


@pytest.fixture
def crowd(tmp_path):
    made = Crowd(tmp_path)
    yield made
    made.close()


def posted(crowd, terms, *, is_there=True, prices=FREE):
    """Another task of the manufacturer's, with its text in the store or not; its identifier."""
    text = replace(TASK, purpose=f"task {terms}"[:200], rounds=terms.rounds, liars=terms.f)
    store = Directory(crowd.folder / "store")
    if is_there:
        store.put(text.to_json())
    data = post_call(bytes(text.cid), bytes(store.put(text.start())), terms, prices)
    crowd.sent(crowd.maker.key, crowd.contract.address, data, pool(terms, prices))
    return task_id(crowd.maker.address, bytes(text.cid))


def mined(crowd, blocks):
    """Blocks in which miners alone are there."""
    for _ in range(blocks):
        for part in crowd.miners:
            part.step()
        crowd.node.rpc("evm_mine")


def calls_of(crowd):
    """Transactions of all miners."""
    return sum(
        as_number(crowd.node.rpc("eth_getTransactionCount", part.address, "latest")) for part in crowd.miners
    )


def empty_rounds(crowd, task):
    crowd.follower.look()
    return crowd.follower.seen(task).progress.round


def test_a_task_of_many_empty_rounds_costs_miners_a_few_calls(crowd):
    task = posted(crowd, SHORT)
    mined(crowd, 90)
    assert empty_rounds(crowd, task) == deciding.EMPTY
    assert calls_of(crowd) <= len(crowd.miners) * (1 + 2 * (deciding.EMPTY + 1))  # the crowd's own task, too


def test_planted_miners_that_close_everything_are_found(crowd, monkeypatch):
    monkeypatch.setattr(deciding, "EMPTY", 1 << 20)
    task = posted(crowd, SHORT)
    mined(crowd, 90)
    assert empty_rounds(crowd, task) > 10


def test_a_customer_goes_on_with_what_miners_left(crowd):
    task = posted(crowd, replace(SHORT, commit_blocks=6, reveal_blocks=4))
    mined(crowd, 90)
    assert empty_rounds(crowd, task) == deciding.EMPTY
    crowd.identifier = task
    for _ in range(60):
        for part in (*crowd.customers, *crowd.miners):
            part.step()
        crowd.node.rpc("evm_mine")
        if any(one.revealed for one in crowd.seen.task.rounds):
            return
    raise AssertionError(crowd.seen.progress)


class Stumbling(Miner):
    """Its store takes nothing of the first task's."""

    def _serve(self, seen):
        if seen.identifier == next(iter(self.follower.history.tasks)):
            raise StoreFull("the store takes no more")
        super()._serve(seen)


class Falling(Stumbling):
    """Planted: what goes wrong with one task ends the look at all of them."""

    def _serve_alone(self, seen):
        self._serve(seen)


@pytest.mark.parametrize(("kind", "is_served"), [(Stumbling, True), (Falling, False)])
def test_what_goes_wrong_with_one_task_does_not_stop_the_others(crowd, kind, is_served):
    for part in crowd.miners:
        part.kind = miner(kind)
    task = posted(crowd, SHORT)
    mined(crowd, 30)
    assert (empty_rounds(crowd, task) > 0) is is_served
    if is_served:  # and it is said once
        assert sum("left for now" in line for line in crowd.miners[0].said) == 1


def test_tasks_that_take_too_much_are_not_served_and_a_lost_text_is_not_asked_for_at_every_look(
    crowd, monkeypatch
):
    asked = []
    real = mining.task_text.read
    monkeypatch.setattr(mining.task_text, "read", lambda store, cid: (asked.append(cid), real(store, cid))[1])
    many = posted(crowd, replace(SHORT, draws=255))
    large = posted(crowd, replace(SHORT, people=256))
    lost = posted(crowd, replace(SHORT, claim_blocks=7), is_there=False)
    for part in crowd.miners:
        part.kind = lambda part, follower, calls, store: Miner(
            follower, calls, store, part.said.append, key=part.key, stake=100, most_bytes=100 * size_of(GRID)
        )
    mined(crowd, 30)
    assert [empty_rounds(crowd, task) for task in (many, large, lost)] == [0, 0, 0]
    said = " ".join(crowd.miners[0].said)
    assert "draws must be at most 10, got 255" in said
    assert f"at most {100 * size_of(GRID)} bytes, got {256 * size_of(GRID)}" in said
    assert said.count("cannot be read") == 1
    text = crowd.follower.history.tasks[lost].text
    assert asked.count(text) <= 3 * len(crowd.miners)  # 30 looks each


# Windows of a stranger's task

LONG_DISPUTES = {1: (1 << 28) - 1, 2: MAX_JUDGING_BLOCKS}  # blocks that each version of the contract takes
ANY_LENGTH = 1 << 40


@pytest.fixture(params=VERSIONS)
def long_task(request, tmp_path):
    """A crowd whose customers follow a free task that locks a stake as long as the contract lets it."""
    crowd = Crowd(tmp_path, version=request.param)
    crowd.identifier = posted(crowd, replace(TERMS, dispute_blocks=LONG_DISPUTES[request.param]))
    yield crowd
    crowd.close()


def play_until_seated(crowd, **limits):
    """Let customers who wait for ever, and miners, play a round; return for how long each stake is locked."""
    for number, part in enumerate(crowd.customers):
        part.kind = customer(number, max_round_blocks=ANY_LENGTH)
    for part in crowd.miners:
        part.kind = miner(**limits)
    for _ in range(3 + TERMS.commit_blocks + TERMS.reveal_blocks + TERMS.seat_blocks):
        for part in (*crowd.customers, *crowd.miners):
            part.step()
        crowd.node.rpc("evm_mine")
    assert len(crowd.seen.task.rounds[0].revealed) == len(crowd.customers)
    stakes = [crowd.contract.miner(part.address) for part in crowd.miners]
    return [stake.locked - crowd.node.number() for stake in stakes]


def test_no_stake_is_locked_for_longer_than_its_miner_says(long_task):
    assert max(play_until_seated(long_task)) <= mining.MAX_LOCK_BLOCKS
    lock = long_task.seen.task.terms.lock_blocks
    line = f"a seat must lock the stake for at most 50400 blocks (--max-lock-blocks), got {lock}"
    assert [sum(line in said for said in part.said) for part in long_task.miners] == [1] * 3, "said once"


def test_planted_miners_without_the_check_are_locked(long_task):
    """The old fault: whoever takes a seat cannot get the stake back for as long as a stranger likes."""
    locked = play_until_seated(long_task, max_lock_blocks=ANY_LENGTH)
    assert max(locked) > 2 * long_task.seen.task.terms.dispute_blocks


def test_a_customer_spends_nothing_on_a_task_that_pays_too_late(long_task):
    crowd = long_task
    part, blocks = crowd.customers[0], crowd.seen.task.terms.round_blocks
    part.kind = customer(0, max_round_blocks=blocks - 1)
    with pytest.raises(
        ParameterError, match=rf"at most {blocks - 1} blocks \(--max-round-blocks\), got {blocks}"
    ):
        part.step()
    part.drop()
    assert crowd.seen.task.customers == []
    part.kind = customer(0, max_round_blocks=blocks)
    part.step()
    crowd.node.rpc("evm_mine")
    assert crowd.seen.task.customers == [part.address]
    part.drop()
    part.kind = customer(0, max_round_blocks=blocks - 1)  # applied by hand: it still trains for nothing
    with pytest.raises(ParameterError, match="--max-round-blocks"):
        part.step()
    assert [balance.spent for balance in part._program._learner.ledger.accounts()] == [0]


CLAIM_TOO_SHORT = r"claim_blocks must be >= 2 to claim what is owed after 0 confirmations, got 1"


def test_a_miner_does_not_serve_a_task_that_nobody_can_claim_from(crowd):
    task = posted(crowd, replace(SHORT, claim_blocks=1))
    mined(crowd, 30)
    assert empty_rounds(crowd, task) == 0
    assert sum(f"is not served: {CLAIM_TOO_SHORT}" in line for line in crowd.miners[0].said) == 1


def test_planted_miners_that_look_at_no_claims_are_found(crowd, monkeypatch):
    monkeypatch.setattr(Terms, "check_claims", lambda *_: None)
    task = posted(crowd, replace(SHORT, claim_blocks=1))
    mined(crowd, 30)
    assert empty_rounds(crowd, task) > 0


def test_a_customer_spends_nothing_on_a_task_that_nobody_can_claim_from(crowd, monkeypatch):
    crowd.identifier = posted(crowd, replace(TERMS, claim_blocks=1))
    part = crowd.customers[0]
    part.kind = customer(0)
    with pytest.raises(ParameterError, match=CLAIM_TOO_SHORT):
        part.step()
    part.drop()
    assert crowd.seen.task.customers == []
    with monkeypatch.context() as planted:
        planted.setattr(Terms, "check_claims", lambda *_: None)
        part.step()
    crowd.node.rpc("evm_mine")
    assert crowd.seen.task.customers == [part.address]
    with pytest.raises(ParameterError, match=CLAIM_TOO_SHORT):
        part.step()
    assert [balance.spent for balance in part._program._learner.ledger.accounts()] == [0]


def test_a_call_of_one_chain_is_never_taken_for_that_of_another(crowd):
    """Contracts of one deployer have the same addresses everywhere, and tasks the same names."""
    mined(crowd, 3)
    part = crowd.miners[0]
    part.drop()
    with closing(sqlite3.connect(part.folder / "outbox")) as outbox:
        labels = [label for (label,) in outbox.execute("SELECT label FROM sent")]
    assert labels
    assert all(label.startswith(f"{crowd.node.chain_id}/{crowd.contract.address}/") for label in labels)
