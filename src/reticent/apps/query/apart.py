"""A process of its own for what has many cells and is free, so that nobody who is served waits for it.

The interpreter runs one thread at a time. Whoever makes an answer of 65,536 cells needs it for a second,
and everybody else for a few milliseconds; on a busy machine the one may even be put aside while it has its
turn, and then all wait. So what is only arithmetic on public and recorded numbers is done elsewhere: prices,
known answers, rehearsals, and what an analyst is told of a question that is paid for. Charging, drawing and
recording stay in the process that serves, and so does every draw under the policy `degrade`.

The other process is one more worker in all that matters: it has a desk of its own on the same folder, opened
after it was started afresh (nothing is forked), and runs at a lower priority. If it dies nothing is lost:
what it was asked is asked of the next one, and what was paid for is recorded before it hears of it. What
passes between the two is pickled: values one way, bytes back.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from reticent.apps.query.desk import Desk
from reticent.errors import ReticentError
from reticent.processes import end_with_parent
from reticent.service.refusals import Refused, busy, refused_as
from reticent.service.settings import Settings

log = logging.getLogger("reticent.service")
Result = TypeVar("Result")
Work = Callable[[Desk], Result]  # a function of a module, or a `partial` of one: it is sent by name

_TRIES = 2  # a question that ends the process twice is refused
_NICER = 10  # than the process that serves


class Apart:
    """The other process. It is started when it is first needed, and again when it died.

    Args:
        settings: of the service.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._guard = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None

    def start(self) -> None:
        """Start it and let it load what it needs, without waiting for that."""
        self._running().submit(_worked, Desk.names)

    def call(self, work: Work[Result]) -> Result:
        """What the work gives there; waits for it.

        Raises:
            Refused: what the work raised, in the words of a reply; or the process died twice.
        """
        for _ in range(_TRIES):
            pool = self._running()
            with suppress(BrokenProcessPool):
                found = pool.submit(_worked, work).result()
                if isinstance(found, _Refusal):
                    raise found.error()
                return found
            self._leave(pool)
        raise busy()

    def process_ids(self) -> list[int]:
        """Of the processes that run."""
        with self._guard:
            return [] if self._pool is None else sorted(self._pool._processes)

    def close(self) -> None:
        """End it, once what it does is done."""
        with self._guard:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def _running(self) -> ProcessPoolExecutor:
        with self._guard:
            if self._pool is None:
                context = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(1, context, _begin, (self._settings,))
            return self._pool

    def _leave(self, pool: ProcessPoolExecutor) -> None:
        """Forget one that died; others may have done so already."""
        with self._guard:
            if self._pool is pool:
                self._pool = None
        pool.shutdown(wait=False)


# In the other process


@dataclass(frozen=True)
class _Refusal:
    """What crosses over for an error: many of ours cannot be pickled, and others could hold data."""

    status: int
    kind: str
    message: str
    retry_s: float | None
    told: dict[str, Any]

    def error(self) -> Refused:
        return Refused(self.status, self.kind, self.message, retry_s=self.retry_s, **self.told)


_settings: Settings | None = None
_desk: Desk | None = None


def _begin(settings: Settings) -> None:
    global _settings
    _settings = settings
    end_with_parent()
    for sign in (signal.SIGINT, signal.SIGTERM):  # a whole group gets them: whoever serves says when it ends
        signal.signal(sign, signal.SIG_IGN)


def _worked(work: Work[Result]) -> Result | _Refusal:
    global _desk
    try:
        if _desk is None:
            assert _settings is not None
            _desk = Desk(_settings)
            _desk.warm()
            os.nice(_NICER)  # not before: opening a data set holds a lock that those who serve wait for
        found = work(_desk)
        _desk.state.flush()  # nobody else writes its notes
        return found
    except ReticentError as error:
        refused = refused_as(error)
        return _Refusal(refused.status, refused.kind, str(refused), refused.retry_s, refused.told)
    except Exception as error:  # a fault of ours: its text could hold data
        log.error(json.dumps({"event": "fault", "type": type(error).__name__}))
        return _Refusal(500, "fault", "internal fault", None, {})
