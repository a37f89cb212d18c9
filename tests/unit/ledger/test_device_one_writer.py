"""A device's ledger has one writer, one process and one owner."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import threading
import time
from unittest import mock

import pytest

from reticent.errors import (
    LedgerError,
)
from reticent.ledger.device import disk as device
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.records import MAGIC

from .device_history import (
    PHONE,
    STEPS,
    exit_code,
    history,
    in_child,
    opened,
    pay,
    told,
    units,
    view,
)

pytestmark = pytest.mark.usefixtures("no_waiting")


def test_a_second_opener_is_refused_at_once(path, monkeypatch):
    with DeviceLedger(path) as ledger:
        ledger.open(PHONE)
        slept, sleep = [], time.sleep
        monkeypatch.setattr(device.time, "sleep", lambda seconds: slept.append(seconds) or sleep(seconds))
        with pytest.raises(LedgerError, match="ledger is in use"):
            DeviceLedger(path)
        assert slept == []
        start = time.monotonic()
        with pytest.raises(LedgerError, match="ledger is in use"):
            DeviceLedger(path, timeout_s=0.1)
        assert time.monotonic() - start >= 0.1
        assert slept
        ledger.request("phone", "a", units(5))
    assert opened(path)[0][1] == 5


def test_a_second_opener_that_waits_gets_the_file_that_compaction_made(path, monkeypatch):
    ledger = DeviceLedger(path, compact_bytes=0)
    got, waits, lock = [], threading.Event(), device.lock

    def refused(file):
        is_locked = lock(file)
        if not is_locked:
            waits.set()
        return is_locked

    for step in STEPS[:3]:
        step(ledger)
    monkeypatch.setattr(device, "lock", refused)
    waiting = threading.Thread(target=lambda: got.append(opened(path, timeout_s=300)))
    waiting.start()
    assert waits.wait(60)
    for step in STEPS[3:]:
        step(ledger)
    ledger.fulfil(3, [1])
    expected = view(ledger)
    ledger.close()
    waiting.join()
    assert got == [expected]


def test_one_who_opened_before_a_rename_does_not_get_the_old_file(path, monkeypatch):
    """The lock is taken on a file that compaction replaces between opening and locking."""
    history(path)
    lock, expected = device.lock, []

    def late(file):
        monkeypatch.setattr(device, "lock", lock)
        with DeviceLedger(path, compact_bytes=0) as other:
            other.fulfil(3, [6])
            expected.append(view(other))
        return lock(file)

    monkeypatch.setattr(device, "lock", late)
    assert opened(path, timeout_s=60) == expected[0]


def test_a_file_removed_while_waiting_is_made_anew(path, monkeypatch):
    lock = device.lock

    def late(file):
        monkeypatch.setattr(device, "lock", lock)
        path.unlink()
        return lock(file)

    monkeypatch.setattr(device, "lock", late)
    assert opened(path, timeout_s=60) == []
    assert path.read_bytes() == MAGIC


def test_a_forked_child_may_not_use_it(path):
    with DeviceLedger(path) as ledger:
        ledger.open(PHONE)

        def work():
            for call in [
                lambda: ledger.request("phone", "a", units(5)),
                lambda: ledger.balance("phone"),
                lambda: ledger.recorded("phone", "a"),
                lambda: ledger.open(PHONE),
                lambda: ledger.fulfil(0, []),
            ]:
                with pytest.raises(LedgerError, match="not carried over a fork"):
                    call()
            with pytest.raises(LedgerError, match="in use"):
                DeviceLedger(path)
            ledger.close()

        assert exit_code(in_child(work)) == 0
        with pytest.raises(LedgerError, match="in use"):  # the child's close did not unlock it
            DeviceLedger(path)
        assert ledger.request("phone", "a", units(5)).charged == 5


def test_a_child_does_not_keep_the_lock(path):
    ledger = DeviceLedger(path)
    child = in_child(lambda: time.sleep(600))
    try:
        ledger.close()
        assert opened(path, timeout_s=60) == []
    finally:
        os.kill(child, signal.SIGKILL)
        exit_code(child)


def test_a_child_closes_every_file_and_may_fork_again(path, monkeypatch):
    monkeypatch.setattr(device, "_FILES", {device.opened(f"{path}{i}", os.O_CREAT) for i in range(2)})
    device._before_fork()
    device._let_go()
    assert all(file.closed for file in device._FILES)
    assert not device._FORKING._is_owned()


class Forking:
    """Stands for `os`: at each call that a compaction makes, another thread forks a child that stays.

    A file is forked into a child between its opening and its locking too: the thread forks when the file
    is open, unless it is made to wait, and then as soon as it may.
    """

    def __init__(self):
        self.children, self.threads, self.came = [], [], threading.Event()
        self.gate, self.ready = os.pipe(), os.pipe()

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in {"open", "pwrite", "replace", "fsync", "unlink"}:
            return real

        def call(*arguments):
            try:
                return real(*arguments)
            finally:
                self.came.clear()
                self.threads.append(threading.Thread(target=self.fork))
                self.threads[-1].start()
                self.came.wait()

        return call

    def fork(self):
        try:
            self.children.append(in_child(self.stay))
            os.read(self.ready[0], 1)
        finally:
            self.came.set()

    def stay(self):
        os.write(self.ready[1], b"x")
        os.read(self.gate[0], 1)

    def end(self):
        for thread in self.threads:
            thread.join()
        for child in self.children:
            os.kill(child, signal.SIGKILL)
            exit_code(child)
        for end in self.gate + self.ready:
            os.close(end)


class Waited:
    """A lock that tells when a thread has to wait for it."""

    def __init__(self, came):
        self.lock, self.came = threading.RLock(), came

    def acquire(self):
        if not self.lock.acquire(blocking=False):
            self.came.set()
            self.lock.acquire()

    def release(self):
        self.lock.release()

    def __enter__(self):
        self.acquire()

    def __exit__(self, *exception):
        self.release()


class Unguarded:
    """Planted: a lock that is none."""

    def acquire(self):
        pass

    def release(self):
        pass

    def __enter__(self):
        pass

    def __exit__(self, *exception):
        pass


def kept_locked(path):
    """Open and compact while other threads fork; whether a child keeps the lock."""
    forking = Forking()
    if not isinstance(device._FORKING, Unguarded):
        device._FORKING = Waited(forking.came)
    try:
        with mock.patch.object(device, "os", forking), DeviceLedger(path, compact_bytes=0) as ledger:
            for step in STEPS:
                step(ledger)
            ledger.fulfil(3, [6])
        assert b'["state",' in path.read_bytes()
        for thread in forking.threads:
            thread.join()
        assert len(forking.children) > 20
        return isinstance(told(lambda: DeviceLedger(path).close()), tuple)
    finally:
        forking.end()


@pytest.fixture
def fork_lock(monkeypatch):
    """Puts the lock of forks back."""
    monkeypatch.setattr(device, "_FORKING", device._FORKING)


THREADS_FORK = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@THREADS_FORK
def test_a_child_forked_while_compacting_does_not_keep_the_lock(path, fork_lock):
    assert not kept_locked(path)


def forget_new_files(monkeypatch):
    """Planted: only files that are in use are known to children."""
    opened_file = device.opened

    def unknown(name, flags):
        file = opened_file(name, flags)
        if str(name).endswith(".new"):
            device._FILES.discard(file)
        return file

    monkeypatch.setattr(device, "opened", unknown)


def fork_at_any_time(monkeypatch):
    """Planted: a fork may come between opening and the list of open files."""
    monkeypatch.setattr(device, "_FORKING", Unguarded())


@THREADS_FORK
@pytest.mark.parametrize("plant", [forget_new_files, fork_at_any_time])
def test_the_forks_find_a_planted_bug(path, fork_lock, monkeypatch, plant):
    plant(monkeypatch)
    assert kept_locked(path)


def test_a_closed_ledger_says_so(path):
    ledger = DeviceLedger(path)
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="the ledger is closed"):
        ledger.open(PHONE)


def test_only_the_owner_may_read_it(path):
    old = os.umask(0)
    try:
        with DeviceLedger(path, compact_bytes=0) as ledger:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            for step in STEPS:
                step(ledger)
        assert b'["state",' in path.read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o644)
        DeviceLedger(path).close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(old)


def test_a_folder_may_be_a_link(path, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    views, _ = history(link / path.name, compact_bytes=0)
    assert opened(path) == views[-1]


@pytest.mark.parametrize("name", ["symlink_to", "hardlink_to"])
def test_a_ledger_has_one_name(path, tmp_path, name):
    history(path)
    before, link = path.read_bytes(), tmp_path / "link"
    getattr(link, name)(path)
    for place in [link, path] if name == "hardlink_to" else [link]:
        with pytest.raises(LedgerError, match=r"is a link|has 2 names \(hard links\)"):
            DeviceLedger(place)
    link.unlink()
    assert path.read_bytes() == before
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(LedgerError, match="is a link: a ledger has one name"):
        DeviceLedger(link)
    assert not (tmp_path / "nowhere").exists()


def gone(path):
    path.unlink()


def replaced(path):
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def linked(path):
    path.with_name("second").hardlink_to(path)


def renamed(path):
    path.rename(path.with_name("other"))


def swapped_for_a_link(path):
    path.rename(path.with_name("other")).with_name("ledger").symlink_to(path.with_name("other"))


CHANGES = [gone, replaced, linked, renamed, swapped_for_a_link]


def answered_after(path, change, ledger_class):
    """What a ledger still answers once its file was tampered with while open."""
    with ledger_class(path) as ledger:
        for step in STEPS[:5]:
            step(ledger)
        change(path)
        before = os.fstat(ledger._file.fileno()).st_size
        calls = {
            "request": lambda: ledger.request("phone", "new", units(5)),
            "free request": lambda: ledger.request("phone", "a", units(100)),
            "fulfil": lambda: ledger.fulfil(2, [1]),
            "pay": lambda: pay(ledger, "phone", "out", 5),
            "recorded": lambda: ledger.recorded("phone", "a"),
            "balance": lambda: ledger.balance("phone"),
        }
        answered = []
        for name, call in calls.items():
            with contextlib.suppress(LedgerError):
                call()
                answered.append(name)
        if os.fstat(ledger._file.fileno()).st_size != before:
            answered.append("wrote")
    return answered


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_its_name_or_place_while_open_draws_nothing(path, change):
    assert answered_after(path, change, DeviceLedger) == []


@pytest.mark.parametrize("change", CHANGES)
def test_planted_a_ledger_that_does_not_look_is_found(path, change):
    class Blind(DeviceLedger):
        def _check_place(self):
            pass

    assert "request" in answered_after(path, change, Blind)


def test_places_where_no_ledger_can_be(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for place, message in [
        (tmp_path, "cannot be opened: Is a directory"),
        (tmp_path / "missing" / "ledger", "cannot be opened: No such file"),
        (fifo, "is not a plain file"),
    ]:
        with pytest.raises(LedgerError, match=message):
            DeviceLedger(place)
    for bad in [None, 5, "\ud800"]:
        with pytest.raises(TypeError, match="path must be the path of a file"):
            DeviceLedger(bad)
    for bad in ["", "a\0b"]:
        with pytest.raises(ValueError, match="path must be the path of a file"):
            DeviceLedger(bad)
    with pytest.raises(ValueError, match="timeout_s must be >= 0"):
        DeviceLedger(tmp_path / "ledger", timeout_s=-1)
    with pytest.raises(ValueError, match="compact_bytes must be >= 0"):
        DeviceLedger(tmp_path / "ledger", compact_bytes=-1)
    assert list(tmp_path.iterdir()) == [fifo]


def test_systems_without_locks_and_with_deeper_flushing(path, monkeypatch):
    flushed = []
    monkeypatch.setattr(device.fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(device.fcntl, "fcntl", lambda descriptor, command: flushed.append(command))
    with DeviceLedger(path) as ledger:
        ledger.open(PHONE)
    assert flushed == [51, 51]
    monkeypatch.setattr(device, "fcntl", None)
    with pytest.raises(LedgerError, match="needs POSIX file locks"):
        DeviceLedger(path)
