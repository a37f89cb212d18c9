"""A process of its own for work on many cells, so that nobody who is served waits for it.

The interpreter runs one thread at a time. An answer of 65,536 cells needs it for a second, and every other
request for a few milliseconds; on a busy machine the thread of the large answer may even be put aside while
it has its turn, and then all wait. So all work that grows with the cells is done elsewhere: prices, known
answers, rehearsals, the needs of a question, reading rows and drawing noise for a question that is paid for,
recording that, and shaping its answer. Quotas and charging stay in the process that serves, and so does every
draw under the policy `degrade`.

The other process is one more worker in all that matters: it has a desk of its own on the same folder, opened
after it was started afresh (nothing is forked). It runs at a lower priority, but for what it writes, which
others may wait for; and in a session of its own, since Linux may divide its time among sessions first. If it
dies nothing is lost: its work is given to the next one, measurements that were paid for and not recorded are
drawn again, and recorded ones stand. Messages between the two are pickled: values one way, bytes back, and
nothing that was read from rows before noise was added.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from reticent.apps.query.desk import Desk, Question
from reticent.errors import ReticentError
from reticent.ledger import Grant
from reticent.processes import end_with_parent, silence_teardown
from reticent.query.accuracy import Accuracy
from reticent.query.paying import Due
from reticent.service.refusals import Refused, busy, refused_as
from reticent.service.settings import Settings

log = logging.getLogger("reticent.service")
Result = TypeVar("Result")
Work = Callable[[Desk], Result]  # a function of a module, or a `partial` of one: it is sent by name

_TRIES = 2  # a question that ends the process twice is refused
_NICER = 10  # than the process that serves


class Apart:
    """The other process, which is started when it is first needed, and again when it died.

    Args:
        settings: Settings of the service.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._guard = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None

    def start(self) -> None:
        """Start the other process and let it load what it needs, without waiting for that."""
        self._running().submit(_worked, Desk.names)

    def call(self, work: Work[Result]) -> Result:
        """Do work in the other process, wait for it, and return its result.

        Raises:
            Refused: The work raised an error, given in the words of a reply; or the process died twice.
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
        """Return the ids of the other processes that run."""
        with self._guard:
            return [] if self._pool is None else sorted(self._pool._processes)

    def close(self) -> None:
        """End the other process, once its present work is done."""
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
        """Forget a process that died; other threads may have done so already."""
        with self._guard:
            if self._pool is pool:
                self._pool = None
        pool.shutdown(wait=False)


class OtherHand:
    """A worker that quotes, draws and records a question in the other process; the charge is made here.

    Args:
        other: Process that does the work.
        name: Name of the data set.
        start: Time at which the request came, on the monotonic clock: records wait for the time grid from
            there.
    """

    def __init__(self, other: Apart, name: str, start: float) -> None:
        self._other, self._name, self._start = other, name, start

    def due(self, query: Question, accuracy: Accuracy) -> Due:
        """Return what is due for a question."""
        return self._other.call(partial(_due, self._name, query, accuracy))

    def record(self, query: Question, grant: Grant) -> None:
        """Read the rows for a question that is paid for, draw the noise, and record the measurement."""
        self._other.call(partial(_record, self._name, query, grant, self._start))


# In the other process


@dataclass(frozen=True)
class _Refusal:
    """An error in the form in which it crosses over from the other process.

    Many of our errors cannot be pickled, and others could hold data.
    """

    status: int
    kind: str
    message: str
    retry_s: float | None
    told: dict[str, Any]

    def error(self) -> Refused:
        return Refused(self.status, self.kind, self.message, retry_s=self.retry_s, **self.told)


_settings: Settings | None = None
_desk: Desk | None = None
_prompt: ThreadPoolExecutor | None = None


def _due(name: str, query: Question, accuracy: Accuracy, desk: Desk) -> Due:
    return desk.session(name).due(query, accuracy)


def _record(name: str, query: Question, grant: Grant, start: float, desk: Desk) -> None:
    def on_grid(call: Callable[[], object]) -> object:
        return desk.record_on_grid(name, start, partial(_promptly, call))

    desk.session(name).record(query, grant, promptly=on_grid)


def _promptly(call: Callable[[], Result]) -> Result:
    """Make a call at the priority of the serving process, which may wait for what the call holds."""
    return call() if _prompt is None else _prompt.submit(call).result()


def _stand_back(prompt: ThreadPoolExecutor) -> None:
    """Lower the priority of all threads but the prompt one: to Linux each has a priority of its own."""
    kept = prompt.submit(threading.get_native_id).result()
    level, tasks = os.nice(_NICER), Path("/proc/self/task")
    for task in tasks.iterdir() if tasks.is_dir() else ():
        if int(task.name) != kept:
            with suppress(ProcessLookupError):  # it ended
                os.setpriority(os.PRIO_PROCESS, int(task.name), level)


def _begin(settings: Settings) -> None:
    global _settings
    _settings = settings
    end_with_parent()
    silence_teardown()
    os.setsid()
    for sign in (signal.SIGINT, signal.SIGTERM):  # a whole group gets them: the server ends this process
        signal.signal(sign, signal.SIG_IGN)


def _worked(work: Work[Result]) -> Result | _Refusal:
    global _desk, _prompt
    try:
        if _desk is None:
            assert _settings is not None
            _desk = Desk(_settings)
            _desk.warm()
            _prompt = ThreadPoolExecutor(1, "prompt")
            _stand_back(_prompt)  # not before: opening a data set holds a lock that those who serve wait for
        found = work(_desk)
        _promptly(_desk.state.flush)  # nobody else writes its notes
        return found
    except ReticentError as error:
        refused = refused_as(error)
        return _Refusal(refused.status, refused.kind, str(refused), refused.retry_s, refused.told)
    except Exception as error:  # a fault of ours: its text could hold data
        log.error(json.dumps({"event": "fault", "type": type(error).__name__}))
        return _Refusal(500, "fault", "internal fault", None, {})
