"""Requests that bring reports at the same time are counted together, and each is told its own outcomes."""

import asyncio
import threading

import pytest

from reticent.apps.collect import collecting
from reticent.apps.collect.collecting import Batching as Intake
from reticent.collect.wire import Outcome
from reticent.errors import LedgerError

CALLERS = 40
KINDS = list(Outcome)


class Counting:
    """Stands for a collector: a report's first byte says its outcome. The first go lasts until all came."""

    def __init__(self):
        self.goes, self.all_came = [], threading.Event()

    def receive(self, reports):
        assert self.all_came.wait(120)
        self.goes.append(len(reports))
        if b"broken" in reports:
            raise LedgerError("the disk is full")
        return [KINDS[report[0]] for report in reports]


def brought(caller):
    return [bytes([(caller + place) % len(KINDS), caller]) for place in range(caller % 5 + 1)]


async def told(counting, bodies, leave=()):
    """What each caller hears, when all come during the first go."""
    intake = Intake(counting.receive)
    callers = [asyncio.create_task(intake.receive(body)) for body in bodies]
    await asyncio.sleep(0)
    for place in leave:
        callers[place].cancel()
    counting.all_came.set()
    return await asyncio.gather(*callers, return_exceptions=True)


def faults(heard):
    return [
        caller for caller, one in enumerate(heard) if one != [KINDS[report[0]] for report in brought(caller)]
    ]


def test_each_hears_its_own():
    counting = Counting()
    bodies = [brought(caller) for caller in range(CALLERS)]
    assert faults(asyncio.run(told(counting, bodies))) == []
    assert len(counting.goes) < CALLERS / 4
    assert sum(counting.goes) == sum(map(len, bodies))


def test_planted_outcomes_of_others_are_caught():
    counting = Counting()
    real = counting.receive
    counting.receive = lambda reports: real(reports)[::-1]
    assert faults(asyncio.run(told(counting, [brought(caller) for caller in range(CALLERS)])))


def test_a_go_that_fails_is_told_to_all_of_it_and_to_no_others():
    async def both():
        counting = Counting()
        failed = await told(counting, [brought(1), [b"broken"], brought(2)])
        return failed, await told(counting, [brought(0), brought(1)])

    failed, after = asyncio.run(both())
    assert all(isinstance(one, LedgerError) for one in failed[1:])
    assert faults(after) == []


def test_who_left_disturbs_nobody():
    heard = asyncio.run(told(Counting(), [brought(caller) for caller in range(6)], leave=(0, 3)))
    assert faults(heard) == [0, 3]
    assert all(isinstance(heard[place], asyncio.CancelledError) for place in (0, 3))


@pytest.mark.parametrize("most", [1, 7])
def test_a_go_is_bounded(monkeypatch, most):
    monkeypatch.setattr(collecting, "_TOGETHER", most)
    counting = Counting()
    bodies = [brought(caller) for caller in range(CALLERS)]
    assert faults(asyncio.run(told(counting, bodies))) == []
    assert max(counting.goes) <= max(most, 5)
