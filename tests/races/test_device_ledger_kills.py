"""Kill -9 of a process that uses a device ledger, at random moments: nothing is lost or doubled."""

import os
import random
import select
import signal
import time

import pytest

from reticent.errors import RolledBack
from reticent.ledger.device.ledger import DeviceLedger

from ..unit.ledger.conftest import no_waiting, path, real_disk
from ..unit.ledger.device_history import exit_code, in_child, units
from ..unit.ledger.test_device_crashes import Doubling, Forgetful, Marked, MarkedFirst, account

__all__ = ["no_waiting", "path", "real_disk"]  # fixtures

pytestmark = [
    pytest.mark.usefixtures("no_waiting"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def reports(ledger_class, path, pipe):
    """Report for ever from where the ledger is, telling the pipe of every answer."""
    with ledger_class(path, compact_bytes=3000) as ledger:
        os.write(pipe, b"o")
        ledger.open(account())
        for measurement in ledger.pending("phone"):
            ledger.fulfil(measurement.number, [int(measurement.key)])
            os.write(pipe, b"f")
        n = ledger.balance("phone").spent // 7
        while True:
            ledger.request("phone", str(n), units(7))
            os.write(pipe, b"r")
            ledger.fulfil(n, [n])
            os.write(pipe, b"f")
            n += 1


def killed(ledger_class, path, delay_s, *, while_opening):
    """Fork a child that reports, kill it after a while; return how many answers of each kind it had."""
    read, write = os.pipe()

    def work():
        os.close(read)
        reports(ledger_class, path, write)

    child = in_child(work)
    os.close(write)
    if not while_opening:
        select.select([read], [], [], 10)
    time.sleep(delay_s)
    os.kill(child, signal.SIGKILL)
    code = exit_code(child)
    with os.fdopen(read, "rb") as answers:
        told = answers.read()
    assert code == -signal.SIGKILL, "the child failed by itself"
    return told.count(b"r"), told.count(b"f")


class Killing:
    """A ledger whose process is killed again and again.

    Attributes:
        requested: Number of requests that it should hold.
        recorded: Number of records that it should hold.
    """

    def __init__(self, path, ledger_class=DeviceLedger, seed=4):
        self.path, self.ledger_class, self.rng = path, ledger_class, random.Random(seed)
        self.requested = self.recorded = 0

    def kill(self, number):
        """Kill a reporting child; return what was wrong then."""
        delay_s, while_opening = self.rng.uniform(0, 0.02), self.rng.random() < 0.2
        asked, fulfilled = killed(self.ledger_class, self.path, delay_s, while_opening=while_opening)
        self.requested, self.recorded = self.requested + asked, self.recorded + fulfilled
        wrong = []
        with DeviceLedger(self.path) as ledger:
            if not ledger.accounts() and not self.requested:
                return wrong
            spent, waiting = ledger.balance("phone").spent, len(ledger.pending("phone"))
            if spent not in (7 * self.requested, 7 * self.requested + 7):
                wrong.append(f"kill {number}: {self.requested} requests answered, {spent} spent")
            self.requested = spent // 7
            if self.requested - waiting not in (self.recorded, self.recorded + 1):
                wrong.append(
                    f"kill {number}: {self.recorded} records answered, {self.requested - waiting} found"
                )
            self.recorded = self.requested - waiting
            sample = self.rng.sample(range(self.recorded), min(self.recorded, 20))
            wrong += [f"{n}: wrong value" for n in sample if ledger.recorded("phone", str(n)) != (n,)]
        return wrong


def survive(path, kills, race_counter, ledger_class=DeviceLedger):
    killing = Killing(path, ledger_class)
    for number in range(kills):
        assert killing.kill(number) == []
    race_counter.report(f"{kills} kills, {killing.requested} requests")


def test_a_killed_process_loses_and_doubles_nothing(path, race_counter):
    survive(path, 40, race_counter)


def test_a_killed_process_loses_and_doubles_nothing_on_a_real_disk(path, real_disk, race_counter):
    survive(path, 20, race_counter)


@pytest.mark.slow
def test_a_thousand_kills(path, real_disk, race_counter):
    survive(path, 1000, race_counter)


def test_a_killed_process_is_never_behind_its_mark(path, race_counter):
    survive(path, 20, race_counter, Marked)
    Marked(path).close()


@pytest.mark.parametrize("ledger_class", [Forgetful, Doubling])
def test_planted_a_ledger_that_forgets_or_doubles_is_caught(path, race_counter, ledger_class):
    race_counter.repeat_until_caught(Killing(path, ledger_class).kill, max_attempts=1000)


def test_planted_a_mark_that_is_too_early_is_caught(path, race_counter):
    killing = Killing(path, MarkedFirst)

    def is_locked_out(number):
        killing.kill(number)
        try:
            Marked(path).close()
        except RolledBack:
            return True
        return False

    race_counter.repeat_until_caught(is_locked_out, max_attempts=2000)
