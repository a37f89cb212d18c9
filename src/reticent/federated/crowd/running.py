"""The common part of customers and miners: they look at the chain until they are done, or told to stop."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

from reticent.arguments import real
from reticent.errors import ChainError, LedgerDamaged, StoreError, WrongChain
from reticent.federated.crowd.calls import AGAIN_S, Calls
from reticent.federated.crowd.following import Follower
from reticent.store import Store

_LONGEST_PAUSE_S = 30.0


class Program(ABC):
    """A program that follows a contract and sends calls to it.

    Args:
        follower: Follower of the contract's tasks.
        calls: Sender of calls to the contract.
        store: Store of the files.
        say: Function that is called with a line on what happens; no line has anything from anybody's records.
    """

    def __init__(self, follower: Follower, calls: Calls, store: Store, say: Callable[[str], None]) -> None:
        self.follower, self.calls, self.store, self._say = follower, calls, store, say
        self.me = calls.me
        self._looked: str | None = None
        self._at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store and the node."""
        self.store.close()
        self.follower.node.close()

    def step(self) -> bool:
        """Do what can be done after a new block, or after 5 s; return whether more will follow."""
        looked = self.follower.look()
        if looked == self._looked and time.monotonic() - self._at < AGAIN_S:
            return True
        self._at, self.calls.block = time.monotonic(), self.follower.block
        more = self.act()
        self._looked = looked
        return more

    @abstractmethod
    def act(self) -> bool:
        """Do what can be done at the block that was looked at; return whether there will be more."""

    def run(self, stop: threading.Event, poll_s: float = 1.0) -> None:
        """Go on until it is done or `stop` is set; a node or a store that is away is waited for.

        Raises:
            WrongChain: the node serves another chain now, or another contract.
            LedgerError: the own ledger is spent, or cannot be used.
        """
        pause = poll_s = real("poll_s", poll_s, low=0.0, open_low=True)
        trouble = ""
        while not stop.is_set():
            try:
                if not self.step():
                    return
            except WrongChain:
                raise
            except LedgerDamaged as error:  # of the node's events; the next look may find a better node
                if not trouble:
                    self._say(f"{error}; looking again")
                trouble, pause = str(error), min(_LONGEST_PAUSE_S, 2 * pause)
            except (ChainError, StoreError) as error:
                if str(error) != trouble:
                    self._say(f"{error}; trying again until it is over")
                trouble, pause = str(error), min(_LONGEST_PAUSE_S, 2 * pause)
            else:
                if trouble:
                    self._say("it is over, going on")
                trouble, pause = "", poll_s
            stop.wait(pause)
