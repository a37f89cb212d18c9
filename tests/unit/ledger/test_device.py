"""The device ledger answers as the reference does, to one process at a time."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import stat
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reticent.errors import (
    AccountConflict,
    AlreadyFulfilled,
    BudgetExceeded,
    IdempotencyConflict,
    KeyUsed,
    LedgerError,
    MixedGuarantees,
    ParameterError,
    UnknownAccount,
    UnknownMeasurement,
)
from reticent.ledger.base import Amount, Grant, Terms, Unit
from reticent.ledger.device import ledger as device
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.records import MAGIC
from reticent.ledger.memory import MemoryLedger

from .device_history import (
    KEYS,
    LOCAL,
    PHONE,
    STEPS,
    PaysInTwoSteps,
    exit_code,
    history,
    in_child,
    opened,
    parts,
    pay,
    told,
    units,
    view,
)

pytestmark = pytest.mark.usefixtures("no_waiting")


class Conformance(RuleBasedStateMachine):
    """Every call answers as the reference does; a refusal changes no byte; reopening changes nothing."""

    names = st.sampled_from(["phone", "car"])
    keys = st.sampled_from(KEYS)

    @initialize(compact_bytes=st.sampled_from([0, 400, 1 << 20]))
    def start(self, compact_bytes):
        self.stack = contextlib.ExitStack()
        self.path = Path(self.stack.enter_context(tempfile.TemporaryDirectory())) / "ledger"
        self.options = {"compact_bytes": compact_bytes}
        self.ledger, self.model = DeviceLedger(self.path, **self.options), MemoryLedger()
        self.last = {}

    def both(self, call):
        before = self.path.read_bytes()
        expected = told(lambda: call(self.model))
        assert told(lambda: call(self.ledger)) == expected
        if isinstance(expected, tuple):
            assert self.path.read_bytes() == before
        return expected

    @rule(name=names, cap=st.sampled_from([20, 60]), minimum=st.sampled_from([1, 5]))
    def open(self, name, cap, minimum):
        self.both(lambda ledger: ledger.open(Terms(name, Unit.EPSILON, LOCAL, "someone", cap, minimum)))

    @rule(
        name=names,
        key=keys,
        information=st.integers(1, 25),
        idempotency=st.sampled_from([None, None, "x", "y"]),
    )
    def request(self, name, key, information, idempotency):
        self.both(lambda ledger: ledger.request(name, key, units(information), idempotency=idempotency))

    @rule(name=names, key=keys, amount=st.integers(1, 25), idempotency=st.sampled_from([None, "x", "y"]))
    def pay(self, name, key, amount, idempotency):
        answer = self.both(lambda ledger: pay(ledger, name, key, amount, idempotency))
        if not isinstance(answer, tuple):
            self.last[name, key] = ()

    @rule(number=st.integers(0, 9), values=st.lists(st.sampled_from([0, -1, 5, 1 << 61]), max_size=2))
    def fulfil(self, number, values):
        answer = self.both(lambda ledger: ledger.fulfil(number, values))
        if not isinstance(answer, tuple):
            self.last[answer.account, answer.key] = tuple(values)

    @rule()
    def reopen(self):
        before = self.path.read_bytes()
        self.ledger.close()
        self.ledger = DeviceLedger(self.path, **self.options)
        assert self.path.read_bytes() == before
        assert self.ledger.cut_bytes == 0

    @precondition(lambda self: self.model.accounts())
    @rule(bad=st.sampled_from([0, -1, True, 1.5, float("nan"), 1 << 62, "3", None]))
    def bad_amount(self, bad):
        self.both(lambda ledger: ledger.request("phone", "a", units(bad)))

    @invariant()
    def agrees(self):
        assert self.ledger.accounts() == self.model.accounts()
        for balance in self.ledger.accounts():
            name = balance.terms.name
            assert balance.spent + balance.remaining == balance.terms.cap
            assert self.ledger.pending(name) == self.model.pending(name)
            for key in KEYS:
                assert self.ledger.reading(name, key) == self.model.reading(name, key)
                assert self.ledger.recorded(name, key) == self.last.get((name, key))

    def teardown(self):
        if hasattr(self, "ledger"):
            self.ledger.close()
            self.stack.close()


TestConformance = Conformance.TestCase
TestConformance.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, database=None)


def test_a_bought_key_costs_nothing_and_its_values_come_back(path):
    with DeviceLedger(path) as ledger:
        ledger.open(PHONE)
        assert ledger.recorded("phone", "survey/speed/2026-11") is None
        grant = ledger.request("phone", "survey/speed/2026-11", units(100))
        assert (grant.charged, grant.remaining) == (100, 900)
        assert ledger.recorded("phone", "survey/speed/2026-11") is None
        ledger.fulfil(grant.pending[0].number, [42])
    with DeviceLedger(path) as ledger:
        grant = ledger.request("phone", "survey/speed/2026-11", units(100))
        assert (grant.charged, grant.remaining, grant.pending) == (0, 900, ())
        assert ledger.recorded("phone", "survey/speed/2026-11") == (42,)
        with pytest.raises(UnknownAccount, match="account car was never opened"):
            ledger.recorded("car", "survey/speed/2026-11")


@pytest.mark.parametrize("compacted", [False, True])
def test_a_payment_from_outside_is_one_record_without_values(path, compacted):
    with DeviceLedger(path, compact_bytes=0) as ledger:
        ledger.open(PHONE)
        before = len(parts(path.read_bytes()))
        grant = pay(ledger, "phone", "outside", 5, "p")
        assert (grant.charged, grant.pending) == (5, ())
        assert len(parts(path.read_bytes())) == before + 1
        while compacted and b'["state",' not in path.read_bytes():
            asked = units(ledger.reading("phone", "a").information + 2)
            ledger.fulfil(ledger.request("phone", "a", asked).pending[0].number, [1])
    with DeviceLedger(path) as ledger:
        assert ledger.recorded("phone", "outside") == ()
        assert ledger.pending("phone") == []
        left = ledger.balance("phone").remaining
        assert pay(ledger, "phone", "outside", 5, "p") == replace(grant, remaining=left)
        with pytest.raises(AlreadyFulfilled):
            ledger.fulfil(0, [5])
        with pytest.raises(IdempotencyConflict):
            ledger.request("phone", "outside", units(5), idempotency="p")
        assert ledger.balance("phone").remaining == left


class Interleaving:
    """A lock that calls `between` after it was released for the `turn`-th time."""

    def __init__(self, turn, between):
        self.turn, self.between, self.releases = turn, between, 0
        self.lock = threading.Lock()

    def __enter__(self):
        return self.lock.__enter__()

    def __exit__(self, *exception):
        self.lock.__exit__(*exception)
        self.releases += 1
        if self.releases == self.turn:
            self.between()


def uncharged_payments(path, ledger_class):
    """Let a second payment under the same key come whenever the first holds no lock; what went wrong."""
    wrong = []
    for turn in range(1, 8):
        path.unlink(missing_ok=True)
        with ledger_class(path) as ledger:
            ledger.open(PHONE)
            answers = []

            def paying(name, ledger=ledger, answers=answers):
                answers.append(told(lambda: pay(ledger, "phone", "out", 100, name)))

            ledger._guard = Interleaving(turn, lambda paying=paying: paying("second"))
            paying("first")
            paid = [one.charged for one in answers if isinstance(one, Grant)]
            refused = [one[0] for one in answers if not isinstance(one, Grant)]
            if paid != [100] or refused not in ([], [KeyUsed]) or ledger.pending("phone"):
                wrong.append(answers)
    return wrong


def test_no_other_payment_comes_between(path):
    assert uncharged_payments(path, DeviceLedger) == []


def test_the_search_for_races_finds_a_payment_in_two_steps(path):
    assert uncharged_payments(path, PaysInTwoSteps) != []


def test_an_older_payment_of_two_records_still_opens(path):
    """Its idempotency key is now that of a request: a payment with it is refused, and not made free."""
    with PaysInTwoSteps(path) as ledger:
        ledger.open(PHONE)
        pay(ledger, "phone", "out", 100, "p")
    assert b'["pay",' not in path.read_bytes()
    with DeviceLedger(path) as ledger:
        assert ledger.recorded("phone", "out") == ()
        assert ledger.balance("phone").spent == 100
        with pytest.raises(IdempotencyConflict, match="idempotency key p was used for another request"):
            pay(ledger, "phone", "out", 100, "p")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.open("phone"), TypeError, "terms must be Terms"),
        (lambda x: x.open(Terms("phone", Unit.MU2, LOCAL, "x", 5)), AccountConflict, "with other terms"),
        (lambda x: x.request("phone", "a", 5), TypeError, "must be an Amount"),
        (lambda x: x.request("phone", "a", units(0)), ParameterError, "must be >= 1"),
        (lambda x: x.request("phone", "a", units(-4)), ParameterError, "must be >= 1"),
        (lambda x: x.request("phone", "a", units(float("nan"))), TypeError, "must be a whole number"),
        (lambda x: x.request("phone", "a", units(1 << 62)), ParameterError, "must be <= "),
        (lambda x: x.request("phone", "a", units(1001)), BudgetExceeded, "asked 851 units, only 840 left"),
        (lambda x: x.request("car", "a", units(5)), UnknownAccount, "account car was never opened"),
        (lambda x: x.request("phone", "", units(5)), ParameterError, "key must be a printable text"),
        (lambda x: x.request("phone", "a\n", units(5)), ParameterError, "key must be a printable text"),
        (lambda x: x.request("phone", "a", Amount(5, Unit.MU2, LOCAL)), MixedGuarantees, "is in epsilon"),
        (
            lambda x: x.request("phone", "b", units(11), idempotency="once"),
            IdempotencyConflict,
            "idempotency key once was used",
        ),
        (lambda x: x.fulfil(0, [1]), AlreadyFulfilled, "measurement 0 has its values"),
        (lambda x: x.fulfil(9, [1]), UnknownMeasurement, "measurement 9 was never asked for"),
        (lambda x: x.fulfil(2, [1, 2]), ParameterError, "values must be 1 under this key, got 2"),
        (lambda x: x.fulfil(2, [0.5]), TypeError, "must be a whole number"),
        (lambda x: x.fulfil(-1, [1]), ParameterError, "number must be >= 0"),
    ],
)
def test_bad_input_is_refused_in_one_line_and_writes_nothing(path, call, error, message):
    with DeviceLedger(path) as ledger:
        for step in STEPS[:5]:
            step(ledger)
        before = path.read_bytes()
        with pytest.raises(error, match=message) as refusal:
            call(ledger)
        assert "\n" not in str(refusal.value)
        assert path.read_bytes() == before
        ledger.fulfil(2, [5])


def test_racing_threads_pay_once_and_never_overspend(path):
    with DeviceLedger(path, compact_bytes=0) as ledger:
        ledger.open(PHONE)
        charged = []

        def ask(seed):
            for i in random.Random(seed).sample(range(150), 150):
                with contextlib.suppress(BudgetExceeded):
                    charged.append(ledger.request("phone", f"key {i}", units(10)).charged)

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(charged) == ledger.balance("phone").spent == 1000
    with DeviceLedger(path) as ledger:
        assert ledger.balance("phone").remaining == 0
        assert len(ledger.pending("phone")) == 100


# One writer, one process, one owner


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


def test_a_second_opener_that_waits_gets_the_file_that_compaction_made(path):
    ledger = DeviceLedger(path, compact_bytes=0)
    got = []
    for step in STEPS[:3]:
        step(ledger)
    waiting = threading.Thread(target=lambda: got.append(opened(path, timeout_s=60)))
    waiting.start()
    time.sleep(0.1)
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
    lock, expected = device._lock, []

    def late(file):
        monkeypatch.setattr(device, "_lock", lock)
        with DeviceLedger(path, compact_bytes=0) as other:
            other.fulfil(3, [6])
            expected.append(view(other))
        return lock(file)

    monkeypatch.setattr(device, "_lock", late)
    assert opened(path, timeout_s=60) == expected[0]


def test_a_file_removed_while_waiting_is_made_anew(path, monkeypatch):
    lock = device._lock

    def late(file):
        monkeypatch.setattr(device, "_lock", lock)
        path.unlink()
        return lock(file)

    monkeypatch.setattr(device, "_lock", late)
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
    monkeypatch.setattr(device, "_FILES", {device._opened(f"{path}{i}", os.O_CREAT) for i in range(2)})
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
    opened_file = device._opened

    def unknown(name, flags):
        file = opened_file(name, flags)
        if str(name).endswith(".new"):
            device._FILES.discard(file)
        return file

    monkeypatch.setattr(device, "_opened", unknown)


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
