"""The events of a contract, followed from block to block and through reorganisations.

`ChainLog` reads logs by ranges and remembers the hashes of blocks that it read. When the last one is not in
the chain any more, it goes back to the newest block that still is, forgets the events that came after, and
reads on. The given state interprets the events.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from reticent.chain.contracts import Artifact, Event
from reticent.chain.node import Node, as_block, block_tag
from reticent.errors import ChainError, LedgerDamaged

_POSITIONS = 1000  # blocks whose hashes are kept; a deeper reorganisation is read from the start
_SEGMENT = 10_000  # blocks read between two checks that the chain is still the same
_ATTEMPTS = 5
_TOGETHER = 100  # blocks asked for in one message


class State(Protocol):
    """The interface of a state that events add up to."""

    def apply(self, event: Event) -> None:
        """Apply the next event.

        Raises LedgerDamaged if it contradicts those before.
        """


S = TypeVar("S", bound=State)


class ChainLog(Generic[S]):
    """The events of the contract at an address, in order, and their state.

    Threads may share it.

    Args:
        node: Node from which the events are read.
        contract: Compiled contract that writes the events.
        address: Address of the contract.
        state: Function that makes the state before the first event.
        first_block: Block before which the contract has no events.
        confirmations: Number of blocks that must lie on top of a block that is read.
    """

    def __init__(
        self,
        node: Node,
        contract: Artifact,
        address: str,
        state: Callable[[], S],
        *,
        first_block: int = 0,
        confirmations: int = 0,
    ) -> None:
        self._node, self._contract, self._address = node, contract, address
        self._empty = state
        self._first, self._confirmations = first_block, confirmations
        self._guard = threading.RLock()
        self._reset()

    def _reset(self) -> None:
        self._events: list[Event] = []
        self._positions: deque[tuple[int, str]] = deque(maxlen=_POSITIONS)
        self.state = self._empty()

    @property
    def block(self) -> int:
        """The number of the last block that was read."""
        return self._positions[-1][0] if self._positions else self._first - 1

    @property
    def block_hash(self) -> str | None:
        """The hash of the last block that was read."""
        return self._positions[-1][1] if self._positions else None

    @property
    def last(self) -> tuple[int, str, int] | None:
        """The number of events, and the last one's block hash and index; None before any event."""
        with self._guard:
            if not self._events:
                return None
            log = self._events[-1].log
            return len(self._events), log.block_hash, log.index

    def events(self) -> Iterator[Event]:
        """Return an iterator over every event up to the last block that was read."""
        with self._guard:
            return iter(list(self._events))

    def sync(self, upto: int | None = None) -> S:
        """Read on to the newest block that has enough confirmations, or to block `upto`.

        Returns:
            The state that the events add up to; it changes with the next call.

        Raises:
            LedgerDamaged: The node's events contradict themselves.
        """
        with self._guard:
            for _ in range(_ATTEMPTS):
                if self._follow(upto):
                    return self.state
        raise ChainError("the chain changes faster than its log can be read")

    @contextmanager
    def reading(self) -> Iterator[S]:
        """Read on as `sync` does, and keep other threads from reading on meanwhile."""
        with self._guard:
            yield self.sync()

    def _follow(self, upto: int | None) -> bool:
        """Read up to the goal block; return False if the chain changed on the way."""
        asked: list[int | str] = ["latest", *([self.block] if self._positions else [])]
        head, *held = self.blocks(asked)
        if head is None:
            raise ChainError("the node has no block")
        if held and held[0] != self._positions[-1]:
            self._rewind()
        goal = head[0] - self._confirmations if upto is None else min(upto, head[0])
        while self.block < goal:
            if not self._read(min(goal, self.block + _SEGMENT), head):
                return False
        return True

    def blocks(self, numbers: list[int | str]) -> list[tuple[int, str] | None]:
        """Return number and hash of blocks; None for a block that is not there."""
        asked = [("eth_getBlockByNumber", [block_tag(number), False]) for number in numbers]
        found = [self._node.rpc(asked[0][0], *asked[0][1])] if len(asked) == 1 else self._node.rpc_many(asked)
        for one in found:
            if isinstance(one, ChainError):
                raise one
        blocks = [None if one is None else as_block(one) for one in found]
        return [None if one is None else (one.number, one.hash) for one in blocks]

    def _read(self, last: int, head: tuple[int, str]) -> bool:
        """Apply the events up to a block, if the chain below `head` stays the same meanwhile."""
        parts = self._node.logs(self._address, self.block + 1, last)
        logs = [log for part in parts for log in part]
        same, *end = self.blocks([head[0], *([last] if last != head[0] else [])])
        if same != head or (end and end[0] is None):
            return False
        positions = {log.block: log.block_hash for log in logs}
        positions[last] = (end[0] or head)[1] if end else head[1]
        events = [event for event in map(self._contract.event, logs) if event is not None]
        try:
            for event in events:
                self.state.apply(event)
        except LedgerDamaged:
            self._reset()
            raise
        self._events += events
        self._positions.extend(sorted(positions.items()))
        return True

    def _rewind(self) -> None:
        """Go back to the newest block that was read and is still in the chain."""
        while self._positions:
            newest = [self._positions.pop() for _ in range(min(_TOGETHER, len(self._positions)))]
            found = self.blocks([number for number, _ in newest])
            for place, (held, now) in enumerate(zip(newest, found, strict=True)):
                if held == now:
                    self._positions.extend(reversed(newest[place:]))
                    self._events = [one for one in self._events if one.log.block <= held[0]]
                    self.state = self._empty()
                    for event in self._events:
                        self.state.apply(event)
                    return
        self._reset()
