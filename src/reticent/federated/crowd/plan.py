"""The costs and risks of a task: gas by role, the pool, and the chances of its committees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reticent.arguments import real
from reticent.federated.crowd.committees import Chances, chances
from reticent.federated.crowd.lottery.seats import MOST_EXPECTED
from reticent.federated.crowd.terms import Prices, Terms, pool

LARGER = 3  # times as many seats decide a dispute

# Gas of each call: the dearest of receipts of anvil, the first of a round included, rounded up. A seat costs
# 2,000 more for each try that finds no point; half of all tries do.
GAS: Mapping[str, int] = {
    "post": 205_000,
    "apply": 105_000,
    "enrol": 96_000,
    "commit": 78_000,
    "reveal": 69_000,
    "seed": 108_000,
    "seat": 165_000,
    "propose": 62_000,
    "vote": 45_000,
    "deciding vote": 102_000,
    "close": 71_000,
    "settle": 90_000,
    "reward": 70_000,
}


@dataclass(frozen=True)
class Plan:
    """The largest costs of a task, and the chances that it goes wrong.

    Attributes:
        customer_gas: Gas of one customer in a round: commit, reveal, be settled.
        miner_gas: Gas of one miner in a round: seat, vote, be rewarded.
        round_gas: Gas of a round in all, with every customer and so many miners.
        task_gas: Gas of all rounds, posting and applying.
        pool: Amount that must be paid in.
        committee: chances of one draw.
        appeal: chances of the larger committee that decides a dispute; None past what a contract can have.
        cancelled: Chance that some round stalls in all its draws, so that the task is cancelled.
        captured: Chance that some round's result is captured.
    """

    customer_gas: int
    miner_gas: int
    round_gas: int
    task_gas: int
    pool: int
    committee: Chances
    appeal: Chances | None
    cancelled: float
    captured: float


def plan(terms: Terms, prices: Prices, *, miners: int, hostile: float) -> Plan:
    """Return the costs and risks of a task.

    Args:
        terms: Terms of the task.
        prices: Prices of the task.
        miners: Number of miners who are seated in each round.
        hostile: Share of the miners' stake that obeys an attacker, or is silent.
    """
    real("hostile", hostile, low=0, high=1)
    customer = GAS["commit"] + GAS["reveal"] + GAS["settle"]
    miner = GAS["seat"] + GAS["vote"] + GAS["reward"]
    alone = GAS["seed"] + GAS["propose"] + GAS["close"] + GAS["deciding vote"] - GAS["vote"]
    one_round = alone + terms.people * customer + miners * miner
    committee = chances(hostile, terms.expected, least=terms.least)
    larger = LARGER * terms.expected
    appeal = chances(hostile, larger, least=LARGER * terms.least) if larger <= MOST_EXPECTED else None
    return Plan(
        customer,
        miner,
        one_round,
        GAS["post"] + terms.people * GAS["apply"] + miners * GAS["enrol"] + terms.rounds * one_round,
        pool(terms, prices),
        committee,
        appeal,
        _some(committee.stalled**terms.draws, terms.rounds),
        _some(_some(committee.captured, terms.draws), terms.rounds),
    )


def _some(chance: float, times: int) -> float:
    """Return the chance of a success in so many independent tries; an upper bound if not all are made."""
    return 1.0 - (1.0 - chance) ** times if chance > 1e-9 else min(1.0, chance * times)
