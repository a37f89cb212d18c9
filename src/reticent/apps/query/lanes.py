"""Separate threads for kinds of work that must not wait for each other.

| lane       | threads   | what is done there |
|------------|-----------|--------------------|
| quick      | `threads` | what is free and has few cells: prices, known answers, repeats (AnyIO's pool) |
| large      | 1         | the same with many cells |
| estimate   | 1         | the same with few cells, where estimating from recorded values takes long |
| paid       | `threads` | questions that must be bought or measured, with few cells |
| large paid | 1         | the same with many cells, jobs too |
| rehearsal  | 2, 1      | made-up rows, and with many cells |

Every question is looked up in a free lane first, and goes to a paid one only if it must be paid for. So a
free answer waits for free ones at most, and one of few cells for none of many. In the free lanes with one or
two threads only so many may wait; more are told to come again, so that they take no place of others
(`most_at_once`).

The interpreter runs one thread at a time, and would let a busy one go on for 5 ms before another gets its
turn; here it is `SWITCH_S`. DuckDB, SQLite and OpenDP work outside of it. Its search for cycles stops all
threads for as long as there are objects, a second beside large answers, which hold none: it rests while one
is made here (`restful`). The result is a reply in bytes, so that nothing of that many parts outlives it.
`reticent serve` has most of them made in another process (`apart`), and long estimates in a second one; the
threads of those lanes wait for them.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool

from reticent.apps.query.weights import MANY
from reticent.service.refusals import busy

SWITCH_S = 0.0005
_REHEARSALS = 2  # threads
_MOST_WAITING = 32  # in a lane of few threads

Result = TypeVar("Result")


class Lanes:
    """The threads of one process that answer.

    Args:
        paid: Number of threads for questions that must be paid for.
    """

    def __init__(self, paid: int) -> None:
        self._paid = ThreadPoolExecutor(paid, "ask")
        self._large = ThreadPoolExecutor(1, "large")
        self._estimate = ThreadPoolExecutor(1, "estimate")
        self._large_paid = ThreadPoolExecutor(1, "large ask")
        self._rehearsal = ThreadPoolExecutor(_REHEARSALS, "rehearse")
        self._large_rehearsal = ThreadPoolExecutor(1, "large rehearse")
        self._waiting: dict[ThreadPoolExecutor, int] = {}  # of the event loop alone

    def close(self) -> None:
        """End the threads, once their present work is done; waiting work is dropped."""
        large = (self._large, self._large_paid, self._large_rehearsal)
        for lane in (self._paid, self._estimate, self._rehearsal, *large):
            lane.shutdown(wait=True, cancel_futures=True)

    async def free(self, cells: int, call: Callable[[], Result]) -> Result:
        """Do free work, apart from all work that is paid for."""
        if cells <= MANY:
            return await run_in_threadpool(call)
        return await self._bounded(self._large, call)

    async def estimate(self, call: Callable[[], Result]) -> Result:
        """Do free work that takes long to estimate from recorded values, one call after the other."""
        return await self._bounded(self._estimate, call)

    async def rehearse(self, cells: int, call: Callable[[], Result]) -> Result:
        """Do work that needs made-up rows only."""
        if cells <= MANY:
            return await self._bounded(self._rehearsal, call)
        return await self._bounded(self._large_rehearsal, call)

    def paid(self, cells: int, call: Callable[..., Result], *given: Any, **named: Any) -> Future[Result]:
        """Do work that must be paid for."""
        if cells <= MANY:
            return self._paid.submit(call, *given, **named)
        return self._large_paid.submit(call, *given, **named)

    async def _bounded(self, lane: ThreadPoolExecutor, call: Callable[[], Result]) -> Result:
        if self._waiting.get(lane, 0) >= _MOST_WAITING:
            raise busy()
        self._waiting[lane] = self._waiting.get(lane, 0) + 1
        try:
            return await asyncio.wrap_future(lane.submit(call))
        finally:
            self._waiting[lane] -= 1


class _Rest:
    """A guard that stops the search for cycles while anybody is inside."""

    def __init__(self) -> None:
        self._guard, self._inside = threading.Lock(), 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._guard:
            self._inside += 1
            gc.disable()
        try:
            yield
        finally:
            with self._guard:
                self._inside -= 1
                if not self._inside:
                    gc.enable()


_rest = _Rest()


def restful(call: Callable[[], Result]) -> Result:
    """Do work that makes very many objects in this process, without a search for cycles."""
    with _rest():
        return call()
