"""Crashes of the device ledger: durable before it answers.

They are tried in two ways. A process that is ended before each of its writes, syncs and renames shows that
it loses and doubles nothing; it cannot show a missing fsync, since the system keeps what it was given. For
that, `Disk` records every call that changes the file system and makes each content that a power loss may
leave at each moment.
"""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path
from unittest import mock

import pytest

from reticent.errors import RolledBack
from reticent.ledger.base import Terms, Unit
from reticent.ledger.device import disk as device
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.marks import Marks
from reticent.ledger.device.records import framed

from ...support.crash_points import enumerate_crashes
from .device_history import (
    LOCAL,
    PHONE,
    STEPS,
    PaysInTwoSteps,
    exit_code,
    in_child,
    opened,
    pay,
    put,
    units,
    view,
)

pytestmark = [
    pytest.mark.usefixtures("no_waiting"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


PAGE = 4096

# Power loss


class Node:
    """A file: what is surely on the disk, and the changes since."""

    def __init__(self):
        self.durable, self.since = b"", []

    def contents(self):
        """Every content that a power loss may leave."""
        yield self.durable
        content = self.durable
        for kind, at, text in self.since:
            before = content
            content = content[:at] + text if kind == "write" else content[:at]
            yield content
            if kind == "write":
                for cut in {1, 7, 8, 9, len(text) // 2, len(text) - 33, len(text) - 8} & set(
                    range(len(text))
                ):
                    yield before[:at] + text[:cut]
                    yield before[:at] + text[:cut] + bytes(len(text) - cut)
                for pages in kept_pages(at, text):
                    yield before[:at] + pages


def kept_pages(at, text):
    """What may be there of a write of several pages: some of them, in any order, the others as zeros."""
    cuts = [at, *range(at + PAGE - at % PAGE, at + len(text), PAGE), at + len(text)]
    pages = [text[a - at : b - at] for a, b in itertools.pairwise(cuts)]
    some = {0, 1, len(pages) // 2, len(pages) - 2, len(pages) - 1} & set(range(len(pages)))
    for lost in itertools.chain.from_iterable(itertools.combinations(some, n) for n in range(len(some) + 1)):
        left = [bytes(len(page)) if n in lost else page for n, page in enumerate(pages)]
        yield b"".join(left)
        while len(left) - 1 in lost:  # and the file was not lengthened for them
            left.pop()
        yield b"".join(left)


class Disk:
    """Stands for `os` in the ledger's module: does as asked, and notes what a power loss may leave.

    `crashes` is a set of (calls answered, content of the ledger's file or None if there is none).
    """

    def __init__(self, path):
        self.place, self.answered = str(path), 0
        self.names, self.lasting, self.renames = {}, {}, []  # names now, surely, and the changes between
        self.nodes, self.crashes = {}, set()

    def __getattr__(self, name):
        return getattr(os, name)

    def moment(self):
        names = dict(self.lasting)
        for change in [None, *self.renames]:
            if change:
                change(names)
            node = names.get(self.place)
            contents = node.contents() if node else [None]
            self.crashes |= {(self.answered, content) for content in contents}

    def rename(self, change):
        change(self.names)
        self.renames.append(change)
        self.moment()

    def open(self, path, flags, mode=0o777):
        descriptor = os.open(path, flags, mode)
        if Path(path).is_dir():
            self.nodes[descriptor] = None
            return descriptor
        if path not in self.names:
            node = Node()
            self.rename(lambda names: names.update({path: node}))
        self.nodes[descriptor] = self.names[path]
        return descriptor

    def pwrite(self, descriptor, text, at):
        done = os.pwrite(descriptor, text, at)
        self.nodes[descriptor].since.append(("write", at, text[:done]))
        self.moment()
        return done

    def ftruncate(self, descriptor, size):
        os.ftruncate(descriptor, size)
        self.nodes[descriptor].since.append(("cut", size, b""))
        self.moment()

    def fsync(self, descriptor):
        os.fstat(descriptor)
        node = self.nodes[descriptor]
        if node is None:
            self.lasting, self.renames = dict(self.names), []
        else:
            for kind, at, text in node.since:
                node.durable = node.durable[:at] + (text if kind == "write" else b"")
            node.since = []
        self.moment()

    def replace(self, old, new):
        os.replace(old, new)  # noqa: PTH105
        self.rename(lambda names: names.update({new: names.pop(old)}))

    def unlink(self, path):
        os.unlink(path)  # noqa: PTH108
        self.rename(lambda names: names.pop(path))


def power_losses(path, tmp_path, ledger_class=DeviceLedger):
    """Run a history on a recorded disk; return how many crash states there are and how many open wrong.

    Right is: all that was answered, and at most the one call that was under way.
    """
    disk = Disk(path)
    script = [*STEPS, *[_report(n) for n in range(12)]]
    with mock.patch.object(device, "os", disk):
        disk.moment()
        with ledger_class(path, compact_bytes=600) as ledger:
            views = [view(ledger)]
            for step in script:
                step(ledger)
                disk.answered += 1
                disk.moment()
                views.append(view(ledger))
    copy, wrong, seen = tmp_path / "copy", 0, {}
    for answered, content in disk.crashes:
        if content not in seen:
            copy.unlink(missing_ok=True)
            if content is not None:
                put(copy, content)
            seen[content] = opened(copy)
        wrong += seen[content] not in views[answered : answered + 2]
    return len(disk.crashes), wrong


def _report(n):
    def report(ledger):
        if n % 2 == 0:
            ledger.request("phone", "c/é", units(50 + n))
        else:
            ledger.fulfil(ledger.pending("phone")[0].number, [n])

    return report


def test_no_power_loss_loses_what_was_answered(path, tmp_path):
    states, wrong = power_losses(path, tmp_path)
    print(f"{states} states")
    assert states > 300
    assert wrong == 0


def test_what_a_killed_process_left_is_made_durable_before_it_counts(path, tmp_path):
    """Its record may be in the system's memory only, and the next process answers on the strength of it."""
    disk = Disk(path)
    with mock.patch.object(device, "os", disk):
        with DeviceLedger(path) as ledger:
            ledger.open(PHONE)
            with (
                mock.patch.object(device, "sync", side_effect=KeyboardInterrupt),
                pytest.raises(KeyboardInterrupt),
            ):
                ledger.request("phone", "a", units(5))
        with DeviceLedger(path) as ledger:
            assert ledger.request("phone", "a", units(5)).charged == 0
            disk.crashes = set()
            disk.moment()
    assert {content for _, content in disk.crashes} == {path.read_bytes()}
    assert opened(path)[0][1] == 5


def nothing(argument):
    pass


def no_sync(monkeypatch):
    monkeypatch.setattr(device, "sync", nothing)


def no_directory_sync(monkeypatch):
    monkeypatch.setattr(device, "sync_directory", nothing)


def rename_before_sync(monkeypatch):
    sync = device.sync
    beside = []
    prepared = DeviceLedger._prepared

    def late(self, text):
        beside.append(True)
        try:
            return prepared(self, text)
        finally:
            beside.pop()

    monkeypatch.setattr(DeviceLedger, "_prepared", late)
    monkeypatch.setattr(device, "sync", lambda descriptor: None if beside else sync(descriptor))


def write_in_place(monkeypatch):
    """Compact by writing over the file."""

    def overwrite(self, text):
        device.os.ftruncate(self._file.fileno(), 0)
        device.write(self._file, text, 0)
        return device.FileIO(device.os.open(self._path, os.O_RDWR), "r+")

    monkeypatch.setattr(DeviceLedger, "_prepared", overwrite)


@pytest.mark.parametrize("plant", [no_sync, no_directory_sync, rename_before_sync, write_in_place])
def test_the_power_loss_search_sees_a_planted_bug(path, tmp_path, monkeypatch, plant):
    plant(monkeypatch)
    _, wrong = power_losses(path, tmp_path)
    assert wrong > 0


def test_the_power_loss_search_sees_a_payment_in_two_steps(path, tmp_path):
    _, wrong = power_losses(path, tmp_path, PaysInTwoSteps)
    assert wrong > 0


def odd_retries(path, ledger_class):
    """End the process before and after each call that a payment makes, and pay again; what went wrong."""
    wrong = []
    for turn in range(1, 9):
        path.unlink(missing_ok=True)
        with DeviceLedger(path) as ledger:
            ledger.open(PHONE)

        def work(turn=turn):
            calls = itertools.count(1)

            def ending(file, text, at, write=device.write):
                if next(calls) == turn:
                    os._exit(7)
                write(file, text, at)
                if next(calls) == turn:
                    os._exit(7)

            with ledger_class(path) as ledger, mock.patch.object(device, "write", ending):
                pay(ledger, "phone", "paid", 30, "p")
            return 8

        assert exit_code(in_child(work)) in (7, 8)
        with ledger_class(path) as ledger:
            grant = pay(ledger, "phone", "paid", 30, "p")
            if (grant.charged, grant.remaining, grant.pending) != (30, 970, ()) or ledger.pending("phone"):
                wrong.append(grant)
    return wrong


def test_a_payment_cut_off_anywhere_is_whole_when_tried_again(path):
    assert odd_retries(path, DeviceLedger) == []


def test_the_search_for_odd_retries_finds_a_payment_in_two_steps(path):
    assert odd_retries(path, PaysInTwoSteps) != []


# A record of several pages


def filled(path, size):
    """Make a ledger whose file has this size and where measurement 0 waits."""
    path.unlink(missing_ok=True)
    with DeviceLedger(path) as ledger:
        before = (
            ledger.open(Terms("phone", Unit.EPSILON, LOCAL, "the owner", 1 << 61)) and path.stat().st_size
        )
        ledger.request("phone", "a", units(5))
        frame = path.stat().st_size - before - 1
        while left := size - path.stat().st_size:
            length = left - frame if left - frame <= 1000 else 500
            ledger.request("phone", str(left).zfill(length), units(5))


def page_losses(path, tmp_path, space, values):
    """Record so many values where a page has so many bytes left; return crash states, and those not right."""
    filled(path, 2 * PAGE - space)
    disk, node = Disk(path), Node()
    node.durable = path.read_bytes()
    disk.names[str(path)] = disk.lasting[str(path)] = node
    with mock.patch.object(device, "os", disk), DeviceLedger(path) as ledger:
        views = [view(ledger)]
        ledger.fulfil(0, range(values))
        views.append(view(ledger))
        disk.answered = 1
        disk.moment()
    copy, wrong = tmp_path / "copy", []
    for answered, content in disk.crashes:
        put(copy, content)
        found = opened(copy)
        if found not in views[answered:]:
            wrong.append((found, content))
    return len(disk.crashes), wrong


SPACES = [0, 1, 7, 8, 9, 30, 50, 51, 55, 57, 60, 75, 2000]


@pytest.mark.parametrize("values", [1, 10, 1000, 5000])
def test_a_page_that_is_lost_before_a_later_one_is_a_torn_end(path, tmp_path, values):
    states = 0
    for space in SPACES:
        tried, wrong = page_losses(path, tmp_path, space, values)
        states += tried
        assert wrong == []
    print(f"{states} states")
    assert states > 80


def split(text, at, *cuts):
    """The parts of a text between these places, where they lie in it."""
    places = [at, *sorted({cut for cut in cuts if at < cut < at + len(text)}), at + len(text)]
    return [(text[start - at : end - at], start) for start, end in itertools.pairwise(places)]


def at_once(text, at):
    return split(text, at)


def first_page_first(text, at):
    """Pages in the middle may be missing when the last is there."""
    return split(text, at, at + PAGE - at % PAGE, at + 8 + -(at + 8) % PAGE)


def last_page_last(text, at):
    """The head may be missing when what is in the middle is there."""
    return split(text, at, (at + len(text) - 1) // PAGE * PAGE)


def cut_head(text, at):
    """The second half of a head may be missing when a page after it is there."""
    return split(text, at, at + PAGE - at % PAGE, (at + len(text) - 1) // PAGE * PAGE)


@pytest.mark.parametrize("plant", [at_once, first_page_first, last_page_last, cut_head])
def test_the_loss_of_pages_finds_a_planted_bug(path, tmp_path, monkeypatch, plant):
    monkeypatch.setattr(device, "in_order", plant)
    assert any(page_losses(path, tmp_path, space, 5000)[1] for space in SPACES)


# A crash at every write, sync and rename of a process

STARTED = 12  # reports of a ledger before its process is ended


def account():
    return Terms("phone", Unit.EPSILON, LOCAL, "the owner", 1 << 61)


def report(ledger_class, path, answers):
    """Finish what waits and report twice; append to a file what was answered."""
    file = os.open(answers, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with ledger_class(path, compact_bytes=0) as ledger:
        for measurement in ledger.pending("phone"):
            ledger.fulfil(measurement.number, [int(measurement.key)])
            os.write(file, b"f")
        first = ledger.balance("phone").spent // 7
        for n in range(first, first + 2):
            ledger.request("phone", str(n), units(7))
            os.write(file, b"r")
            ledger.fulfil(n, [n])
            os.write(file, b"f")


def lost_or_doubled(ledger, requested, recorded):
    """Return what a ledger lacks, or has too often, of what was answered; one call was under way."""
    wrong = []
    spent, waiting = ledger.balance("phone").spent, len(ledger.pending("phone"))
    if spent not in (7 * requested, 7 * requested + 7):
        wrong.append(f"{requested} requests answered, {spent} spent")
    done = spent // 7 - waiting
    if done not in (recorded, recorded + 1):
        wrong.append(f"{recorded} records answered, {done} found")
    return wrong + [f"{n}: wrong value" for n in range(done) if ledger.recorded("phone", str(n)) != (n,)]


def faults_after_crashes(folder, ledger_class):
    """End a reporting process at each of its points; yield each point with what was wrong after it."""
    start, live, answers = folder / "start", folder / "live", folder / "answers"
    start.mkdir()
    shutil.copytree(start, live)
    with ledger_class(live / "ledger") as ledger:
        ledger.open(account())
        for n in range(STARTED):  # enough for a compaction; the last one waits
            ledger.request("phone", str(n), units(7))
            if n < STARTED - 1:
                ledger.fulfil(n, [n])
    shutil.copytree(live, start, dirs_exist_ok=True)
    for point in enumerate_crashes(lambda: report(ledger_class, live / "ledger", answers)):
        answered = answers.read_bytes() if answers.exists() else b""
        try:
            with ledger_class(live / "ledger") as ledger:
                requested, recorded = STARTED + answered.count(b"r"), STARTED - 1 + answered.count(b"f")
                yield point, lost_or_doubled(ledger, requested, recorded)
        except RolledBack as refusal:
            yield point, [f"locked out: {refusal}"]
        answers.unlink(missing_ok=True)
        shutil.rmtree(live)
        shutil.copytree(start, live)


class Marked(DeviceLedger):
    """A ledger whose mark lies in another folder."""

    def __init__(self, path, **options):
        super().__init__(path, marks=Marks(path.with_name("marks")), owner="0" * 32, **options)


@pytest.mark.parametrize("ledger_class", [DeviceLedger, Marked])
def test_a_crash_at_any_point_loses_and_doubles_nothing(tmp_path, real_disk, ledger_class):
    calls = []
    for point, faults in faults_after_crashes(tmp_path, ledger_class):
        assert faults == [], str(point)
        calls.append(point.call)
    assert calls.count("posix.fsync") > 5
    assert "posix.replace" in calls  # it was compacted


class MarkedFirst(Marked):
    """Planted: marks what it has not written yet."""

    def _append(self, record):
        if record[0] == "fulfil":
            self._mark.write(self._state.entries + 1, framed(self._tip, record)[1])
        super()._append(record)


class Forgetful(DeviceLedger):
    """Planted: answers from memory and writes only every other time."""

    def _append(self, record):
        if record[0] != "fulfil" or int(record[1]) % 2:
            super()._append(record)
        else:
            self._state.apply(record)


class Doubling(DeviceLedger):
    """Planted: tries every request again."""

    def _append(self, record):
        super()._append(record)
        if record[0] == "request":
            super()._append(record)


@pytest.mark.parametrize("ledger_class", [MarkedFirst, Forgetful, Doubling])
def test_the_crashes_find_a_planted_bug(tmp_path, ledger_class):
    assert any(faults for _, faults in faults_after_crashes(tmp_path, ledger_class))
