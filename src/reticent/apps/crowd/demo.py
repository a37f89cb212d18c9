"""`reticent demo crowd`: a manufacturer, ten homes and five miners train together, and nobody trusts anybody.

Everything is as in earnest: contracts, signed transactions, sealed updates in a store, lots, votes, and every
home, miner and the store a process of its own (`reticent crowd customer`, `miner`, `store serve`). One home
sends poison; one miner is killed when it should lead, and starts again later. Only the chain is made up.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from reticent.apps.crowd import demo_data
from reticent.apps.crowd.demo_world import World
from reticent.apps.crowd.observing_work import show, verify
from reticent.cli import terminal
from reticent.errors import ChainError, SourceError
from reticent.federated.crowd import task_text
from reticent.federated.crowd.contract import Status
from reticent.federated.crowd.following import Seen
from reticent.federated.crowd.history import RoundHistory
from reticent.federated.crowd.rounds import model_before
from reticent.store import Cid

CUSTOMERS, MINERS, POISONERS, ROUNDS = 10, 5, 1, 3
DEAD_ROUND = 1  # in which the leader is killed
MU = 4.0
_RECORDS, _TESTED = 600, 1000  # of a home, and of the public test
_LOOK_S = 0.1
_LONGEST_S = 900.0

_TASK = f"""\
purpose: Read handwritten digits on the washing machine's panel.
mode: device
training: {{inputs: {demo_data.INPUTS}, classes: {demo_data.CLASSES}, l2: 1e-4, clip: 2, records: {_RECORDS},
  rate: 5, steps: 5, mu: {MU:g}}}
grid: {{steps: 65536, norm: 2621440, floor: 100}}
test: test.npz
terms: {{rounds: {ROUNDS}, people: {CUSTOMERS}, f: 2, expected: 30, least: 5, draws: 3, commit_blocks: 60,
  reveal_blocks: 20, seat_blocks: 12, turn_blocks: 12, dispute_blocks: 2, claim_blocks: 2}}
prices: {{unit: 1000, bonus: 100, leader_fee: 5000, committee_fee: 20000, deposit: 1000000}}
"""


def run(*, once: bool) -> None:
    """Start the programs, watch the rounds, and say who got what; then stay.

    Args:
        once: end then.
    """
    screen = terminal.console()
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="reticent-")))
        try:
            begun = time.monotonic()
            what, (features, labels), (rows, classes) = demo_data.digits(CUSTOMERS * _RECORDS, _TESTED)
            np.savez(folder / "test.npz", features=rows, labels=classes)
            (folder / "task.yaml").write_text(_TASK)
            world = held.enter_context(
                World(folder, folder / "task.yaml", customers=CUSTOMERS, miners=MINERS, poisoners=POISONERS)
            )
            _introduce(screen, world, what)
            files = demo_data.write_homes(folder, features, labels, CUSTOMERS)
            for person, own in zip(world.customers, files, strict=True):
                world.start_customer(
                    person, own, lifetime=MU * MU + 0.001
                )  # each round's price is rounded up
            for person in world.miners:
                world.start_miner(person)
            _Story(screen, world).told()
            _verified(screen, world)
            screen.print(f"All of it took {time.monotonic() - begun:.0f} s.")
            if not once:
                _stay(screen, world)
        except KeyboardInterrupt:
            screen.print("Ended.")


def _verified(screen: Any, world: World) -> None:
    """Do all of it again, as anybody may."""
    screen.print("\nreticent crowd verify, from chain and store alone:")
    verify(world.identifier.hex(), chain=world.chain, rpc=None, store=world.store_url)


def _stay(screen: Any, world: World) -> None:
    """Leave chain, store and the observers' page, until Ctrl-C."""
    screen.print(f"The chain stays at {world.anvil.url} until Ctrl-C.")
    show(world.identifier.hex(), chain=world.chain, rpc=None, store=world.store_url, port=0)


def _introduce(screen: Any, world: World, what: str) -> None:
    screen.print(
        f"{CUSTOMERS} homes with {_RECORDS} {what} each learn to read them, {MINERS} miners judge. "
        f"{world.poisoners[0].name} sends poison.",
        soft_wrap=True,
    )
    screen.print(f"  chain     {world.anvil.url}, blocks as soon as all have done their part")
    screen.print(f"  store     {world.store_url}")
    screen.print(f"  contract  {world.follower().contract.address}")
    screen.print(f"  task      {world.identifier.hex()}", soft_wrap=True)
    screen.print(
        f"Each update is noisy: mu {MU:g} for one record of a home, over all rounds. Ctrl-C ends it.\n",
        soft_wrap=True,
    )


class _Story:
    """The rounds as they come."""

    def __init__(self, screen: Any, world: World) -> None:
        self._screen, self._world = screen, world
        self._names = {one.address: one.name for one in (*world.customers, *world.miners)}
        self._follower, self._store = world.follower(), world.store()
        self._dead = ""

    def told(self) -> None:
        """Watch until the task is over, and say what came of it."""
        self._world.follow(self._before)
        shown, begun, end = 0, time.monotonic(), time.monotonic() + _LONGEST_S
        while time.monotonic() < end:
            seen = self._looked()
            while shown < seen.progress.round:
                self._show(seen, shown, time.monotonic() - begun)
                shown, begun = shown + 1, time.monotonic()
                self._revive(shown)
            if seen.is_over and not any(map(self._world.is_running, self._customers())):
                self._end(seen)
                return
            time.sleep(_LOOK_S)
        raise SourceError("the demonstration must come to its end, and did not")

    def _customers(self) -> list[str]:
        return [one.name for one in self._world.customers]

    def _looked(self) -> Seen:
        """The task as it is; what ended in trouble is said."""
        if self._world.clock.trouble is not None:
            raise SourceError("the chain of the demonstration stopped") from self._world.clock.trouble
        for person in (*self._world.customers, *self._world.miners):
            if not self._world.is_running(person.name) and person.name != self._dead:
                line = self._world.last_line(person.name)
                if "the task " not in line:
                    raise SourceError(f"{person.name} ended: {line}")
        while True:
            with contextlib.suppress(ChainError):  # a block came in between
                self._follower.look()
                seen = self._follower.seen(self._world.identifier)
                assert seen is not None
                return seen

    def _before(self, seen: Seen) -> None:
        """Kill the leader of one round just before its turn."""
        start = seen.progress.since + seen.task.terms.seat_blocks
        is_time = seen.progress.status is Status.JUDGING and seen.next == start - 1
        if is_time and seen.progress.round == DEAD_ROUND and not self._dead and seen.draw is not None:
            self._dead = self._names[seen.draw.leaders[0]]
            self._world.kill(self._dead)

    def _revive(self, number: int) -> None:
        """The dead leader starts again, with the same command, after the round in which it died."""
        if self._dead and number == DEAD_ROUND + 1:
            self._screen.print(f"         {self._dead} starts again, where it was.")
            person = next(one for one in self._world.miners if one.name == self._dead)
            self._world.start_miner(person)
            self._dead = ""

    def _show(self, seen: Seen, number: int, seconds: float) -> None:
        which = seen.task.rounds[number]
        if which.result not in which.proposals:
            self._screen.print(f"round {number}: void")
            return
        assert which.result is not None
        leader, _, found = which.proposals[which.result]
        text = task_text.read(self._store, seen.task.text)
        model = text.model(self._store, Cid.of_bytes(model_before(seen.task, number + 1)))
        said = f"{found.accepted.bit_count()} of {len(which.revealed)} updates accepted"
        said += self._lows(seen, found.low)
        self._screen.print(
            f"round {number}: public accuracy {text.accuracy(self._store, model):.3f}; {said}; led by "
            f"{self._names[leader]}; {seconds:.0f} s",
            soft_wrap=True,
        )
        if number == DEAD_ROUND and self._dead:
            self._screen.print(f"         {self._dead} was to lead and was killed: the next leader did.")

    def _lows(self, seen: Seen, low: int) -> str:
        names = [self._names[one] for at, one in enumerate(seen.task.customers) if low >> at & 1]
        return f", low: {', '.join(names)}" if names else ""

    def _end(self, seen: Seen) -> None:
        rounds: list[RoundHistory] = seen.task.rounds
        why = "cancelled, what is left goes back" if seen.task.is_cancelled else "done"
        self._screen.print(f"\nThe task is {why}. Reputation and pay, by the contract:")
        for customer in seen.task.customers:
            reputation = self._follower.history.reputations[seen.task.manufacturer, customer]
            paid = sum(one.settled[customer][1] for one in rounds if customer in one.settled)
            self._screen.print(f"  {self._names[customer]:<12} {reputation:>2}  {paid:>6} wei, withdrawn")
