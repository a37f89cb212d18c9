"""T14: oracles killed at random moments lose nothing and draw once."""

import random
import signal
import time

import pytest

from ..unit.query.test_oracle_crashes import (
    MOST_POINTS,
    Kills,
    chain,
    declaration,
    first_opened,
    fresh,
    started,
)
from ..unit.query.town import Town

__all__ = ["chain", "declaration", "fresh"]  # fixtures

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

PER_TOWN = 20


def killed(child):
    """Whether it was still at work."""
    child.kill()
    child.join()
    return child.exitcode == -signal.SIGKILL


class RandomKills(Kills):
    """Oracles of one town, killed at random."""

    def __init__(self, town, declaration, rng):
        super().__init__(town, declaration)
        self.rng = rng

    def ask(self):
        for _ in range(self.rng.randint(1, 2)):
            prepared = next(self.asked)
            for _ in range(self.rng.randint(1, 2)):  # the second refines the first
                self.town.ask(prepared, self.town.data.terms.minimum * self.rng.randint(1, 9))

    def at_a_point(self):
        child = started(self.town, self.declaration, self.rng.randint(1, 2 * MOST_POINTS))
        child.join()
        self.kills += child.exitcode == -signal.SIGKILL

    def at_any_time(self, *, held_back):
        """`held_back`: what is sent gets into no block before the kill, and is perhaps forgotten after it."""
        node = self.town.node
        if held_back:
            node.rpc("evm_setAutomine", False)
        child = started(self.town, self.declaration)
        time.sleep(self.rng.uniform(0, 0.4))
        self.kills += killed(child)
        if held_back:
            if self.rng.random() < 0.5:
                node.rpc("anvil_dropAllTransactions")
            node.rpc("evm_setAutomine", True)
            node.rpc("evm_mine")


def survive(chain, declaration, fresh, kills, seed=14):
    rng, wrong, done, measured = random.Random(seed), [], 0, 0
    while done < kills:
        town = Town(chain, first_opened(declaration), fresh())
        life = RandomKills(town, declaration, rng)
        while life.kills < min(PER_TOWN, kills - done):
            life.ask()
            if rng.random() < 0.6:
                life.at_a_point()
            else:
                life.at_any_time(held_back=rng.random() < 0.5)
        wrong += life.finish()
        done += life.kills
        measured += len(town.state().measurements)
        town.close()
    assert wrong == []
    return done, measured


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_oracles_draw_once_and_lose_nothing(chain, declaration, fresh, race_counter, kills):
    done, measured = survive(chain, declaration, fresh, kills)
    race_counter.report(f"{done} kills, {measured} measurements")
    assert done >= kills
