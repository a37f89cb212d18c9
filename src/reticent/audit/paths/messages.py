"""Messages of devices, audited as bytes: value -> device -> message, over rounds and repetitions.

A story is two rounds of one device: it reports a first value, is asked for that report again after its value
has changed, and reports the second value in the next round. Devices live through many stories, with one and
the same enrolment for every pair of values, so that bytes may differ by their noise alone. Looked at are

* black box: what both messages say (which attributes, too), their lengths and whether their tags hold. The
  claim for a story is that of one report for each value that differs. Missing and unreadable values are in
  it: their reports must be as random as any other;
* rest: bytes that ought to say nothing (nonces), in a black box of their own;
* fresh: these bytes are drawn for every report, so two reports of one value, of two devices in the same round
  or of one device in two rounds, share no more of them than chance has it (a bound of Chernoff, 1e-6);
* repeat: a report that is asked for again is the same, byte by byte, whatever the value is by then;
* streams: under one value, what the messages say is independent from round to round (chi-square, 1e-6);
* total: odd values are reported, in messages of the same length;
* ledger: every report is charged, and a device whose budget is spent refuses.

False alarms: 1e-6 for both black boxes together, 1e-6 for streams, 1e-6 for fresh; none for the others.
What it cannot see: losses of less than about twice the claim with 500 stories; timing.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from reticent.audit.black_box import FALSE_ALARM, black_box
from reticent.audit.findings import BlackBoxFinding, Finding
from reticent.audit.outputs import Array
from reticent.audit.paths.senders import MOST_REPORTS, Sender
from reticent.audit.reporting import Report
from reticent.audit.statistics import independence_p_value
from reticent.audit.total import check_total
from reticent.errors import BudgetExceeded

QUICK_STORIES = 500
FULL_STORIES = MOST_REPORTS // 2
_LAGS = (1, 2, 3)
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - folders in it are drawn by tempfile


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a temporary folder for ledgers, in memory where possible: ledgers sync every record."""
    place = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="reticent-audit-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def audit_messages(sender: Sender, *, quick: bool = False, stories: int | None = None) -> Report:
    """Audit the messages of one kind of devices, with the randomness of production.

    Args:
        sender: Kind of devices, from `senders`.
        quick: True for 500 stories of each pair of values instead of 2048.
        stories: Number of stories, if neither is wanted.
    """
    start = time.process_time()
    size = stories or (QUICK_STORIES if quick else FULL_STORIES)
    with scratch() as folder:
        told = [_Told(sender, pair, size, folder / str(place)) for place, pair in enumerate(_pairs(sender))]
        others = [
            *_rests(sender, told),
            *_freshness(told),
            _repeats(told),
            _streams(told),
            _totality(sender, folder / "odd"),
            _charged(sender, told, folder / "poor"),
        ]
    found = _boxed(sender, told, [one.said for one in told], "black box")
    seconds = time.process_time() - start
    return Report(sender.name, sender.level, sender.notion, None, None, found, tuple(others), seconds)


def _pairs(sender: Sender) -> list[tuple[Any, Any]]:
    """Return the pairs of values of all stories: the two values, then a probe before the first of them."""
    first, second = sender.values
    return [(first, first), (first, second), (second, second), *((probe, first) for probe in sender.probes)]


class _Told:
    """The messages of one device in many stories with the same values.

    Attributes:
        said: Content of the messages of both rounds, for each story.
        rest: Bytes of the first message that ought to say nothing, for each story.
        later_rest: Bytes of the second message that ought to say nothing.
        repeated: True if each report that was asked for again was the same.
        spent: Budget that the device says to have spent in the end.
    """

    def __init__(self, sender: Sender, pair: tuple[Any, Any], size: int, folder: Path) -> None:
        self.pair, self.size = pair, size
        said, rest, later_rest, repeated = [], [], [], []
        with sender.opened(folder, 2 * size + 0.5) as device:
            for story in range(size):
                first = _message(sender, device, 2 * story, pair[0])
                again = _message(sender, device, 2 * story, pair[1])
                second = _message(sender, device, 2 * story + 1, pair[1])
                said.append([*sender.numbers(first), *sender.numbers(second)])
                rest.append(sender.rest(first))
                later_rest.append(sender.rest(second))
                repeated.append(first == again)
            self.spent = float(device.spent)
        self.said, self.rest = np.array(said, dtype=np.int64), np.array(rest, dtype=np.int64)
        self.later_rest = np.array(later_rest, dtype=np.int64)
        self.repeated = all(repeated)


def _message(sender: Sender, device: Any, number: int, value: Any) -> bytes | None:
    """Return a message, or None if the device sent none: any error about a value is seen from outside."""
    try:
        return sender.said(device, number, value)
    except Exception:  # that nothing was sent is what the audit looks at, whatever the cause
        return None


def _boxed(sender: Sender, told: list[_Told], rows: list[Array], check: str) -> BlackBoxFinding:
    """Run the black box over rows that are already drawn."""
    distances = [[sender.apart(one.pair, other.pair) for other in told] for one in told]
    found = black_box(
        lambda place, size: rows[place],
        list(range(len(told))),
        epsilon=sender.level,
        gaussian=sender.gaussian,
        distances=distances,
        samples=told[0].size,
        false_alarm=FALSE_ALARM / 2.0,
    )
    return BlackBoxFinding(
        check, found.passed, found.detail, found.lower, found.claimed, found.event, found.pair,
        found.samples, found.likely, found.false_alarm,
    )  # fmt: skip


def _rests(sender: Sender, told: list[_Told]) -> list[Finding]:
    if told[0].rest.shape[1] == 0:
        return []
    return [_boxed(sender, told, [one.rest for one in told], "rest")]


def _freshness(told: list[_Told]) -> list[Finding]:
    """Return whether bytes that ought to say nothing are drawn anew for every report."""
    same_round, device = (told[0].rest, told[1].rest), (told[0].rest, told[0].later_rest)  # all of one value
    if same_round[0].shape[1] == 0:
        return []
    values = [
        _coincidence_bound(int(equal), len(one))
        for one, other in (same_round, device)
        for equal in (one == other).sum(axis=0)
    ]
    least = min(1.0, min(values) * len(values))
    passed = least > FALSE_ALARM
    words = "differ" if passed else "repeat themselves: they follow from the record"
    return [Finding("fresh", passed, f"bytes beside the reports of one value {words} (p = {least:.2g})")]


def _coincidence_bound(equal: int, count: int) -> float:
    """Return a bound on the chance that so many of `count` pairs of random bytes, or more, are equal."""
    share, chance = equal / count, 1.0 / 256.0
    if share <= chance:
        return 1.0
    rest = 0.0 if equal == count else (1.0 - share) * math.log((1.0 - share) / (1.0 - chance))
    return math.exp(-count * (share * math.log(share / chance) + rest))


def _repeats(told: list[_Told]) -> Finding:
    same = all(one.repeated for one in told)
    words = "is the same, whatever the value is by then" if same else "is another one: it was drawn twice"
    return Finding("repeat", same, f"a report that is asked for again {words}")


def _streams(told: list[_Told]) -> Finding:
    """Test the messages of constant values for independence, in the order in which the device sent them."""
    values = []
    for one in (told[0], told[2]):
        half = one.said.shape[1] // 2
        spoken = one.said.reshape(2 * one.size, half)
        for column in range(2, half):
            said = spoken[:, column]
            values += [independence_p_value(said[:-lag], said[lag:]) for lag in _LAGS]
            values.append(independence_p_value(said[::2], said[1::2]))
    least = min(1.0, min(values) * len(values))
    passed = least > FALSE_ALARM
    words = "are independent" if passed else "depend on each other"
    return Finding("streams", passed, f"messages of neighbouring rounds {words} (p = {least:.2g})")


def _totality(sender: Sender, folder: Path) -> Finding:
    numbers = count()
    with sender.opened(folder, len(sender.odd) + 2) as device:
        return check_total(
            lambda value: np.frombuffer(sender.said(device, next(numbers), value), dtype=np.uint8),
            sender.values[0],
            sender.odd,
        )


def _charged(sender: Sender, told: list[_Told], folder: Path) -> Finding:
    """Check that every report was charged, and that a device refuses once its budget is spent."""
    for one in told:
        due = 2 * one.size * sender.price
        if one.spent < due * (1.0 - 1e-9):
            return Finding("ledger", False, f"reports that cost {due:g} were charged {one.spent:g}")
    with sender.opened(folder, 2.5) as device:
        for number in range(2):
            sender.said(device, number, sender.values[0])
        try:
            sender.said(device, 2, sender.values[1])
        except BudgetExceeded:
            return Finding("ledger", True, "every report is charged, and none leaves on a spent budget")
    return Finding("ledger", False, "a report leaves although the budget is spent")
