"""Recording of paid measurements: at once if the rows are here, or by an oracle that is waited for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from reticent.errors import AlreadyFulfilled, MeasurementVoid, NotMeasured
from reticent.ledger import Grant, Ledger, Reading
from reticent.query.measure import Plan, Rows
from reticent.randomness import Stream

_PAUSES_S = (0.02, 1.0)  # between two looks for a record of the oracle: the first, the longest


Promptly = Callable[[Callable[[], object]], object]


def at_once(call: Callable[[], object]) -> object:
    """Run a call at once, in the current thread."""
    return call()


def record(
    ledger: Ledger,
    prepared: Plan,
    grant: Grant,
    rows: Rows,
    rng: Stream | None,
    promptly: Promptly = at_once,
) -> None:
    """Draw and record every measurement that is paid for and not recorded; only the first record counts."""
    if not grant.pending:
        return
    exact = prepared.vector(rows)
    drawn = [
        (measurement.number, prepared.measure(exact, measurement.information, rng))
        for measurement in grant.pending
    ]
    for number, values in drawn:  # after all are drawn: a record is visible to all at once
        with contextlib.suppress(AlreadyFulfilled):
            promptly(partial(ledger.fulfil, number, values))


def drawn_since(after: Reading, before: Reading) -> Reading:
    """Return the measurements recorded under a key since an earlier reading, whose noise was unseen then."""
    earlier = before.sums or (0,) * len(after.sums)
    sums = tuple(now - then for now, then in zip(after.sums, earlier, strict=True))
    return replace(after, information=after.information - before.information, sums=sums)


def awaited(
    look: Callable[[], Reading], grant: Grant, name: str, wait_s: float, leaving: threading.Event
) -> Reading:
    """Wait until an oracle has recorded every measurement of a grant, and return the reading.

    Args:
        look: Function that returns the current reading.
        grant: Grant that was paid for.
        name: Name of the data set.
        wait_s: Longest time to wait, in seconds.
        leaving: Event that is set on shutdown: waiting ends then.
    """
    until = time.monotonic() + wait_s
    pause, longest = _PAUSES_S
    while True:
        reading = look()
        if reading.information >= grant.information:
            return reading
        left = until - time.monotonic()
        if left <= 0:
            break
        if leaving.is_set():
            raise NotMeasured(f"{name}: paid for, and not recorded yet; asking again is free")
        time.sleep(min(pause, left))
        pause = min(2 * pause, longest)
    if not reading.pending:  # not a delayed read: there was time to catch up
        raise MeasurementVoid("what was bought is not waiting any more: a recovery closed it, ask anew")
    raise NotMeasured(f"{name}: paid for, and not recorded within {wait_s:g} s; asking again is free")
