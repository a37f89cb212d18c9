"""Blocks of a demonstration's chain: one when somebody has sent, and one when nobody is waited for.

A chain of the world makes blocks by time, and windows must be long enough for everybody. Here windows pass as
soon as all who are alive have done their part, so that the demonstration takes as long as the work does, on a
quiet machine and on a busy one. Whoever is dead is waited for no longer than is said below.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

from reticent.chain.node import Node, as_number
from reticent.errors import ChainError, LedgerDamaged
from reticent.federated.crowd.contract import Status
from reticent.federated.crowd.following import Follower, Seen

_TICK_S = 0.05
_FOR_CUSTOMERS_S, _FOR_LEADERS_S, _FOR_SEATS_S, _FOR_ANYBODY_S = 120.0, 60.0, 3.0, 1.0


def waited_s(
    seen: Seen, customers: Collection[str], miners: Collection[str], seated: Collection[str]
) -> float:
    """How long a block is held back for those who are alive and have something to do.

    Args:
        seen: the task.
        customers: that are alive.
        miners: that are alive.
        seated: in the draw that runs.
    """
    task, progress, terms = seen.task, seen.progress, seen.task.terms
    now, since, following = task.rounds[progress.round], progress.since, seen.next
    match progress.status:
        case Status.COLLECTING:
            reveal = since + terms.commit_blocks
            if following < reveal:
                return _FOR_CUSTOMERS_S if any(one not in now.commits for one in customers) else 0.0
            if following <= reveal + terms.reveal_blocks:
                missing = [one for one in customers if one in now.commits and one not in now.revealed]
                return _FOR_CUSTOMERS_S if missing else 0.0
            return _FOR_ANYBODY_S
        case Status.JUDGING | Status.APPEALING:
            start = since + terms.seat_blocks
            if following < start:
                return _FOR_SEATS_S if any(one not in seated for one in miners) else 0.0
            rank = (following - start) // terms.turn_blocks
            assert seen.draw is not None
            is_led = rank < 2 and seen.draw.leaders[rank] in miners
            return _FOR_LEADERS_S if is_led or progress.status is Status.APPEALING else 0.0
        case Status.DECIDED:
            return 0.0 if following < since + terms.dispute_blocks else _FOR_ANYBODY_S
        case Status.WAITING | Status.DISPUTED:
            return 0.0 if following <= since else _FOR_ANYBODY_S
        case Status.DONE | Status.CANCELLED:
            return _FOR_ANYBODY_S


class Clock:
    """Makes blocks in a thread, until it is closed.

    Args:
        url: of an anvil that makes none by itself.
    """

    def __init__(self, url: str) -> None:
        self._node = Node(url)
        self._stop = threading.Event()
        self._follower: Follower | None = None
        self._task = b""
        self._alive: Callable[[], tuple[Collection[str], Collection[str]]] = lambda: ((), ())
        self._before: Callable[[Seen], None] = lambda seen: None
        self.trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)
        self._thread.start()

    def follow(
        self,
        follower: Follower,
        task: bytes,
        alive: Callable[[], tuple[Collection[str], Collection[str]]],
        before: Callable[[Seen], None],
    ) -> None:
        """From now on wait for those who are alive, customers and miners, in a task.

        Args:
            follower: for the clock alone.
            task: its identifier.
            alive: says who is.
            before: is called before every block that is made while nobody has sent.
        """
        self._task, self._alive, self._before = task, alive, before
        self._follower = follower

    def close(self) -> None:
        """Make no more blocks."""
        self._stop.set()
        self._thread.join()
        self._node.close()

    def _run(self) -> None:
        idle = time.monotonic()
        try:
            while not self._stop.wait(_TICK_S):
                if self._pending() or self._is_time(time.monotonic() - idle):
                    self._node.rpc("evm_mine")
                    idle = time.monotonic()
        except BaseException as error:  # told to whoever watches
            if not self._stop.is_set():
                self.trouble = error

    def _pending(self) -> bool:
        return as_number(self._node.rpc("txpool_status")["pending"]) > 0

    def _is_time(self, idle_s: float) -> bool:
        """Whether an empty block is due."""
        if self._follower is None:
            return False
        try:
            self._follower.look()
            seen = self._follower.seen(self._task)
        except (ChainError, LedgerDamaged):
            return False
        if seen is None:
            return False
        customers, miners = self._alive()
        draw = self._follower.history.draws.get(seen.progress.draw)
        if idle_s < waited_s(seen, customers, miners, () if draw is None else draw.seats):
            return False
        self._before(seen)
        return True
