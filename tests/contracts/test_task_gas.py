"""What calls of FederatedTask cost on a chain, and what the Python view says of what was played there."""

import pytest

from reticent.errors import WrongChain
from reticent.federated.crowd.contract import Status, TaskContract
from reticent.federated.crowd.plan import GAS
from reticent.federated.crowd.terms import pool

from .task_on_anvil import PRICES, TERMS, UNIT, play

# Of one call after a round's first of its kind.
LIMITS = {
    "seat": 150_000, "propose": 150_000, "vote": 70_000, "deciding vote": 125_000, "settle": 110_000,
}  # fmt: skip


@pytest.fixture(scope="module")
def played(anvil):
    found = play(anvil.url)
    yield found
    found.close()


def over(gas, limits):
    return {name: found for name, found in gas.items() if name in limits and found > limits[name]}


def test_calls_stay_below_their_limits(played):
    once = {name: max(played.gas[name]) for name in ("propose", "deciding vote")}
    dearest = {name: max(found) for name, found in played.later.items()} | once
    assert set(LIMITS) <= {*dearest, "vote"}
    assert over(dearest, LIMITS) == {}
    assert dearest["commit"] + dearest["reveal"] <= 150_000
    assert over({"seat": 150_001}, LIMITS)  # the check notices a call that is too dear


def test_the_plan_knows_what_calls_cost(played):
    dearest = {name: max(found) for name, found in played.gas.items() if name in GAS and found}
    assert set(GAS) <= {*dearest, "vote"}
    assert over(dearest, GAS) == {}
    assert all(gas < 2 * dearest.get(name, gas) for name, gas in GAS.items())


def test_what_the_view_says(played):
    contract, task = played.contract, played.task
    progress = contract.progress(task)
    assert (progress.status, progress.round, progress.people) == (Status.DONE, 2, 6)
    assert contract.progress(b"\7" * 32) is None
    draw = contract.draw(played.proposal.draw)
    assert draw.seats == sum(contract.seat(progress.draw, one.address).seats for one in played.miners)
    assert draw.stake == sum(100 + place for place in range(5))
    assert 3 * draw.votes[0] > 2 * draw.seats
    first, last = played.customers[0].address, played.customers[-1].address
    assert contract.reputation(played.maker.address, first) == 2
    assert contract.reputation(played.maker.address, last) == 0
    assert contract.reputation(played.maker.address, played.miners[0].address) is None
    assert contract.owed(first) == 3 * (PRICES.unit + PRICES.bonus)  # one point, then two
    assert contract.owed(last) == 0
    assert contract.miner(played.miners[1].address).units == 101
    assert contract.miner(first) is None
    people = played.customers + played.miners
    owed = sum(contract.owed(person.address) for person in people)
    assert contract.pool(task) + owed == pool(TERMS, PRICES)
    assert contract.change_before(10**9) == 5


def test_another_contract_is_refused(played):
    with pytest.raises(WrongChain, match="is not this version of FederatedTask"):
        TaskContract(played.node, played.contract.lottery)
    assert UNIT == 10**15
