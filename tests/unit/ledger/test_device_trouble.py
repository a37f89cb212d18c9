"""Calls that fail under the device ledger, while it writes a record and while it compacts."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from unittest import mock

import pytest

from reticent.errors import LedgerError
from reticent.ledger.device import disk as device
from reticent.ledger.device.ledger import DeviceLedger

from .device_history import PHONE, STEPS, exit_code, history, in_child, opened, parts, told, units, view

pytestmark = pytest.mark.usefixtures("no_waiting")


# Trouble while writing


class Failing:
    """Stands for `os`: the call of this name and turn does `what` instead."""

    def __init__(self, name, turn, what):
        self.name, self.turn, self.what, self.calls = name, turn, what, 0

    def __getattr__(self, name):
        real = getattr(os, name)
        if name != self.name and self.name != "any":
            return real
        if name not in {"open", "pwrite", "fsync", "replace", "unlink", "ftruncate", "close"}:
            return real

        def call(*arguments):
            self.calls += 1
            if self.calls == self.turn:
                return self.what(real, *arguments)
            return real(*arguments)

        return call


def full(real, *arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def half(real, descriptor, text, at):
    return real(descriptor, text[: len(text) // 2], at)


def half_then_full(real, descriptor, text, at):
    half(real, descriptor, text, at)
    return full(real)


def interrupted(real, *arguments):
    with contextlib.suppress(FileNotFoundError):
        real(*arguments)
    raise KeyboardInterrupt


def planted(name, what, turn=1):
    return mock.patch.object(device, "os", Failing(name, turn, what))


@pytest.mark.parametrize(("name", "what"), [("pwrite", full), ("pwrite", half_then_full), ("fsync", full)])
@pytest.mark.parametrize("step", range(1, len(STEPS)))
def test_a_full_disk_refuses_and_leaves_no_trace(path, name, what, step):
    with DeviceLedger(path) as ledger:
        for earlier in STEPS[:step]:
            earlier(ledger)
        before, seen = path.read_bytes(), view(ledger)
        with planted(name, what), pytest.raises(LedgerError, match="could not be written: No space left"):
            STEPS[step](ledger)
        assert path.read_bytes() == before
        assert view(ledger) == seen
        STEPS[step](ledger)  # there is room again
        after = view(ledger)
    assert after != seen
    assert opened(path) == after


def test_a_short_write_is_continued(path):
    with DeviceLedger(path) as ledger:
        ledger.open(PHONE)
        with planted("pwrite", half):
            assert ledger.request("phone", "a", units(5)).charged == 5
    assert opened(path)[0][1] == 5


def test_a_real_limit_on_the_file(path):
    """The kernel refuses to let the file grow, in a child."""
    history(path)
    before = path.read_bytes()

    def work():
        with DeviceLedger(path) as ledger:
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, hard))
            with pytest.raises(LedgerError, match="could not be written"):
                ledger.fulfil(3, [4])
            assert path.read_bytes() == before
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            ledger.fulfil(3, [5])

    assert exit_code(in_child(work)) == 0
    with DeviceLedger(path) as ledger:
        assert ledger.recorded("phone", "c/é") == (5,)


def test_when_the_trace_cannot_be_removed_the_ledger_must_be_opened_again(path):
    with DeviceLedger(path) as ledger:
        ledger.open(PHONE)
        failing = Failing("any", 1, None)

        def first_of_two(real, *arguments):
            failing.turn, failing.what = 2, full
            half_then_full(real, *arguments)

        failing.what = first_of_two
        with (
            mock.patch.object(device, "os", failing),
            pytest.raises(LedgerError, match="could not be written"),
        ):
            ledger.request("phone", "a", units(5))
        for call in [lambda: ledger.request("phone", "a", units(5)), lambda: ledger.balance("phone")]:
            with pytest.raises(LedgerError, match="open it again"):
                call()
    with DeviceLedger(path) as ledger:
        assert ledger.cut_bytes > 0
        assert ledger.balance("phone").spent == 0
        assert ledger.request("phone", "a", units(5)).charged == 5


@pytest.mark.parametrize("name", ["pwrite", "fsync"])
def test_an_interrupt_while_writing_asks_for_a_new_opening(path, name):
    with DeviceLedger(path) as ledger:
        ledger.open(PHONE)
        with planted(name, interrupted), pytest.raises(KeyboardInterrupt):
            ledger.request("phone", "a", units(5))
        with pytest.raises(LedgerError, match="was interrupted while writing: open it again"):
            ledger.request("phone", "a", units(5))
    with DeviceLedger(path) as ledger:
        grant = ledger.request("phone", "a", units(5))
        assert (grant.charged, grant.remaining, len(grant.pending)) == (0, 995, 1)


# Compaction


def before_compaction(path):
    """A ledger whose next record makes it compact, and what it tells after that record."""
    path.unlink(missing_ok=True)
    views, contents = history(path)
    with DeviceLedger(path) as ledger:
        ledger.fulfil(3, [6])
        after = view(ledger)
    path.write_bytes(contents[-1])
    return contents[-1], views[-1], after


def compaction_calls(path):
    """How many calls on the file system the last step makes."""
    before_compaction(path)
    with DeviceLedger(path, compact_bytes=0) as ledger, planted("any", full, turn=-1):
        ledger.fulfil(3, [6])
        calls = device.os.calls
    assert len(parts(path.read_bytes())) == 2
    return calls


def test_a_compaction_that_fails_anywhere_changes_nothing(path):
    """Whatever call fails, the answer stands; the ledger goes on, or asks to be opened again."""
    calls = compaction_calls(path)
    assert calls >= 8
    outcomes = []
    for turn in range(3, calls + 1):  # the first two write the record itself
        _, _, after = before_compaction(path)
        with DeviceLedger(path, compact_bytes=0) as ledger:
            with planted("any", full, turn=turn):
                ledger.fulfil(3, [6])
            outcome = told(lambda ledger=ledger: view(ledger))
            outcomes.append("goes on" if outcome == after else outcome)
            if outcome == after:
                ledger.request("phone", "a", units(200))
        with DeviceLedger(path) as ledger:
            if outcomes[-1] != "goes on":
                assert view(ledger) == after
            assert ledger.request("phone", "a", units(200)).information == 200
    refusals = [outcome for outcome in outcomes if outcome != "goes on"]
    assert len(outcomes) - len(refusals) >= 4
    assert set(refusals) == {(LedgerError, "the ledger was interrupted while writing: open it again")}


@pytest.mark.parametrize("done", [False, True])
def test_a_compaction_killed_anywhere_is_whole(path, done):
    """The process ends before, or right after, each call."""

    def ends(real, *arguments):
        if done:
            with contextlib.suppress(FileNotFoundError):
                real(*arguments)
        os._exit(7)

    def work(turn):
        with DeviceLedger(path, compact_bytes=0) as ledger, planted("any", ends, turn=turn):
            ledger.fulfil(3, [6])

    calls = compaction_calls(path)
    for turn in range(1, calls + 1):
        _, before, after = before_compaction(path)
        assert exit_code(in_child(lambda turn=turn: work(turn))) == 7
        assert opened(path) in ([before, after] if turn == 1 else [after])
        with DeviceLedger(path, compact_bytes=0) as ledger:  # a file left beside is no obstacle
            ledger.request("phone", "a", units(200))
            ledger.request("phone", "a", units(201))
        assert not path.with_name("ledger.new").exists()


def test_an_interrupt_while_compacting_asks_for_a_new_opening(path):
    calls = compaction_calls(path)
    for turn in range(3, calls + 1):
        _, _, after = before_compaction(path)
        with DeviceLedger(path, compact_bytes=0) as ledger:
            with planted("any", interrupted, turn=turn), pytest.raises(KeyboardInterrupt):
                ledger.fulfil(3, [6])
            with pytest.raises(LedgerError, match="open it again"):
                ledger.accounts()
        assert opened(path) == after


def test_a_compacted_ledger_is_locked_and_keeps_its_order(path):
    with DeviceLedger(path, compact_bytes=0) as ledger:
        for step in [*STEPS[:2], *STEPS[3:5]]:  # under a: 0 and 2, under b: 1
            step(ledger)
        while b'["state",' not in path.read_bytes():
            ledger.request("phone", "a", units(ledger.reading("phone", "a").pending + 2))
        with pytest.raises(LedgerError, match="in use"):
            DeviceLedger(path)
        numbers = [measurement.number for measurement in ledger.pending("phone")]
    assert numbers == list(range(len(numbers)))
    with DeviceLedger(path, compact_bytes=0) as ledger:
        assert [measurement.number for measurement in ledger.pending("phone")] == numbers
        before = path.read_bytes()
        ledger.fulfil(0, [1])
        assert path.read_bytes().startswith(before)  # not compacted again before it has doubled
