"""Limits that keep one caller from taking the service from others: rate, depth, and when replies leave."""

from __future__ import annotations

import asyncio
import math
import re
import threading
import time
from collections import OrderedDict

DEEPEST_BODY = 80  # lists and objects within each other; a question takes less than 70
_MOST_CALLERS = 10_000
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))
_RECORD_LEAD = 0.4  # steps of the time grid between a record and its reply: to record, estimate and write it


class Rate:
    """A token bucket for each caller, in one process: `burst` at once, `rate` a second in the long run."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._guard = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, caller: str, amount: float = 1.0) -> float:
        """0 if the caller may go on; else after how many seconds it may.

        A caller that wants more than a whole bucket gets it from a full one, and waits the longer afterwards.
        """
        now, needed = time.monotonic(), min(amount, float(self._burst))
        with self._guard:
            left, since = self._buckets.pop(caller, (float(self._burst), now))
            left = min(float(self._burst), left + (now - since) * self._rate)
            allowed = left >= needed
            self._buckets[caller] = (left - amount if allowed else left, now)
            if len(self._buckets) > _MOST_CALLERS:
                self._buckets.popitem(last=False)
        return 0.0 if allowed else (needed - left) / self._rate

    def full_s(self, caller: str, amount: float = 1.0) -> float:
        """Return the wait as `wait_s` does, for a caller who does not go on yet: nothing is counted."""
        now, needed = time.monotonic(), min(amount, float(self._burst))
        left, since = self._buckets.get(caller, (float(self._burst), now))
        left = min(float(self._burst), left + (now - since) * self._rate)
        return 0.0 if left >= needed else (needed - left) / self._rate


def is_deeper(body: bytes, levels: int = DEEPEST_BODY) -> bool:
    """Whether brackets stand within each other more than so many times in a JSON text.

    `json` leaves that to the interpreter's limit on recursion, which anybody may have lifted (py_ecc makes it
    100,000): then a body of brackets ends the process. What is no JSON may be called deeper than it is.
    """
    if body.count(b"[") + body.count(b"{") <= levels:
        return False
    depth = 0
    for sign in _TEXT.sub(b"", body).translate(None, _OTHERS):
        depth += 1 if sign in b"[{" else -1
        if depth > levels:
            return True
    return False


def leaves_after_s(passed_s: float, deadline_s: float, grid_s: float) -> float:
    """Return the seconds from a request to its reply, if it is ready after `passed_s` (mathematics 4.8).

    The reply leaves at the deadline, which is made of public numbers, or at the first later multiple of the
    grid.
    """
    if not grid_s:
        return passed_s
    return grid_s * max(round(deadline_s / grid_s), math.ceil(passed_s / grid_s))


def records_after_s(passed_s: float, deadline_s: float, grid_s: float) -> float:
    """Return how long after a request its measurement is recorded, if it is drawn after `passed_s`.

    Everybody may look at the log, at what is known and at prices, and sees when something is recorded there.
    How long rows were read would show, so a record waits for a point of the grid too: a little before the
    reply may leave, so that recording does not make it miss that.
    """
    lead_s = _RECORD_LEAD * grid_s
    return leaves_after_s(passed_s + lead_s, deadline_s, grid_s) - lead_s if grid_s else passed_s


def wait_to_record(start: float, deadline_s: float, grid_s: float) -> None:
    """Wait, in a thread, until a measurement may be recorded.

    Args:
        start: When the request came, on the monotonic clock, which all processes of a machine share.
        deadline_s: How long after it the reply leaves at the earliest.
        grid_s: Step of the time grid; 0 for no waiting.
    """
    if not grid_s:
        return
    passed_s = time.monotonic() - start
    time.sleep(max(0.0, records_after_s(passed_s, deadline_s, grid_s) - passed_s))


async def until_deadline(start: float, deadline_s: float, grid_s: float) -> None:
    """Wait until a reply may leave.

    Args:
        start: Time at which the request came, on the monotonic clock.
        deadline_s: Seconds after the request at which the reply leaves at the earliest.
        grid_s: Grid of the times of replies in seconds; 0 for no waiting.
    """
    if not grid_s:
        return
    leaves = start + leaves_after_s(time.monotonic() - start, deadline_s, grid_s)
    await asyncio.sleep(max(0.0, leaves - time.monotonic()))
