"""Who waits for a ledger in SQLite: busy databases, stopped processes, and the lock file."""

import fcntl
import os
import signal
import sqlite3
import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from reticent.errors import (
    LedgerError,
)
from reticent.ledger import SqlLedger
from reticent.ledger.lockfile import LockFile

from .sql_ledgers import FORK, amount, consistent, interrupted_once, terms


def test_a_busy_database_is_said_to_be_busy(database, monkeypatch):
    monkeypatch.setattr("reticent.ledger.sql.sqlite_store.BUSY_TIMEOUT_S", 0.05)
    with SqlLedger(database) as ledger:
        ledger.open(terms())
        other = sqlite3.connect(database, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="the ledger cannot be used: another process holds it"):
            ledger.request("a", "k", amount(1))
        assert ledger.balance("a").spent == 0
        other.execute("ROLLBACK")
        assert ledger.request("a", "k", amount(1)).charged == 1
        other.close()


class Stopped:
    """A process that holds the ledger's lock and is stopped while it does."""

    def __init__(self, database):
        held = FORK.Event()
        self.child = FORK.Process(target=self.hold, args=(database, held))
        self.child.start()
        assert held.wait(60)
        os.kill(self.child.pid, signal.SIGSTOP)

    def hold(self, database, held):
        lock = LockFile(f"{database}.lock")
        assert lock.acquire(60)
        held.set()
        time.sleep(600)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.child.kill()
        self.child.join()


def refused_after(database, limit_s):
    """How long a request waits for a stopped process, and what it is then told."""
    with SqlLedger(database) as ledger, Stopped(database):
        told = []

        def ask():
            try:
                told.append(ledger.request("a", "k", amount(1)).charged)
            except LedgerError as error:
                told.append(str(error))

        thread, start = threading.Thread(target=ask, daemon=True), time.monotonic()
        thread.start()
        thread.join(limit_s)
        waited = time.monotonic() - start
    thread.join()
    return waited, told


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_stopped_process_is_not_waited_for_without_end(database, monkeypatch):
    with SqlLedger(database) as ledger:
        ledger.open(terms())
    monkeypatch.setattr("reticent.ledger.sql.sqlite_store.BUSY_TIMEOUT_S", 0.3)
    waited, told = refused_after(database, limit_s=60)
    assert told == ["the ledger cannot be used: another process holds it"]
    assert waited >= 0.3


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_check_finds_a_wait_without_end(database, monkeypatch):
    with SqlLedger(database) as ledger:
        ledger.open(terms())

    def planted(self, timeout_s):
        fcntl.flock(self.file, fcntl.LOCK_EX)
        return True

    monkeypatch.setattr(LockFile, "acquire", planted)
    monkeypatch.setattr("reticent.ledger.sql.sqlite_store.BUSY_TIMEOUT_S", 0.3)
    waited, told = refused_after(database, limit_s=1)
    assert waited >= 1
    assert told == [1], "served when the stopped process was killed, not before"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_who_gave_up_waiting_for_a_stopped_process_is_served_once_it_is_gone(database, monkeypatch):
    """The thread that still queues for a caller who gave up must neither keep nor lose the lock."""
    monkeypatch.setattr("reticent.ledger.sql.sqlite_store.BUSY_TIMEOUT_S", 0.05)
    with SqlLedger(database) as ledger:
        ledger.open(terms())
        for i in range(3):
            with Stopped(database):
                for _ in range(2):
                    with pytest.raises(LedgerError, match="another process holds it"):
                        ledger.request("a", f"k{i}", amount(1))
            monkeypatch.setattr("reticent.ledger.sql.sqlite_store.BUSY_TIMEOUT_S", 60)
            assert ledger.request("a", f"k{i}", amount(1)).charged == 1
            with SqlLedger(database) as other:  # by another open file, as another process would
                assert other.request("a", f"other{i}", amount(1)).charged == 1
            monkeypatch.setattr("reticent.ledger.sql.sqlite_store.BUSY_TIMEOUT_S", 0.05)
        assert ledger.balance("a").spent == 6
        assert consistent(ledger)


def test_an_interrupt_while_queueing_for_the_lock_keeps_nothing(database):
    with SqlLedger(database) as ledger, SqlLedger(database) as other:
        ledger.open(terms())
        other._store._wait()
        lock = ledger._store._lock
        with pytest.raises(KeyboardInterrupt), interrupted_once(lambda: lock._wanted):
            ledger.request("a", "k", amount(10))
        other._store._let_next()
        for one in (ledger, other, ledger):
            assert one.request("a", "k", amount(10)).remaining == 990


def test_a_ledger_may_be_closed_while_a_thread_still_queues_for_it(database, monkeypatch):
    monkeypatch.setattr("reticent.ledger.sql.sqlite_store.BUSY_TIMEOUT_S", 0.05)
    with SqlLedger(database) as holder:
        holder.open(terms())
        with SqlLedger(database) as ledger:
            holder._store._wait()
            with pytest.raises(LedgerError, match="another process holds it"):
                ledger.request("a", "k", amount(1))
            thread = ledger._store._lock._thread
        holder._store._let_next()
        thread.join(60)
        assert not thread.is_alive()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(ledger._store._lock.file)
        assert holder.request("a", "k", amount(1)).charged == 1


def test_a_free_lock_is_taken_at_once_by_no_thread(database):
    with closing(LockFile(f"{database}.lock")) as lock, closing(LockFile(f"{database}.lock")) as other:
        for _ in range(2):
            assert lock.acquire(0.0)
            assert lock._thread is None
            assert not other.acquire(0.01)
            lock.release()
            assert other.acquire(60.0)
            other.release()
    for one in (lock, other):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(one.file)


def left_by(lock):
    """The thread that goes on after a lock was asked for without waiting, and closed: there may be none."""
    with closing(lock):
        assert not lock.acquire(0.0)
    return lock._thread


@pytest.fixture
def queued(monkeypatch):
    """An event: a thread is about to queue for a lock."""
    came = threading.Event()

    def flock(file, operation):
        if operation == fcntl.LOCK_EX:
            came.set()
        fcntl.flock(file, operation)

    system = SimpleNamespace(flock=flock, LOCK_EX=fcntl.LOCK_EX, LOCK_UN=fcntl.LOCK_UN)
    monkeypatch.setattr("reticent.ledger.lockfile.fcntl", system)
    return came


def test_who_does_not_wait_leaves_nobody_in_the_queue(database, queued):
    """A thread that queued on would take the lock of a closed file, before whoever asks next."""
    with closing(LockFile(f"{database}.lock")) as holder:
        assert holder.acquire(0.0)
        assert left_by(LockFile(f"{database}.lock")) is None
        planted = LockFile(f"{database}.lock")
        planted.acquire = lambda timeout_s: LockFile.acquire(planted, 1e-9) or not queued.wait(60)
        thread = left_by(planted)
        assert thread.is_alive()
        holder.release()
        thread.join()


def test_a_thread_that_never_came_to_queue_closes_the_file(database, monkeypatch):
    """The lock is closed before its thread runs at all, as may be on a busy machine."""
    may_run, queue = threading.Event(), LockFile._queue

    def late(lock):
        assert may_run.wait(60)
        queue(lock)

    monkeypatch.setattr(LockFile, "_queue", late)
    with closing(LockFile(f"{database}.lock")) as holder:
        assert holder.acquire(0.0)
        with closing(LockFile(f"{database}.lock")) as lock:
            assert not lock.acquire(1e-9)
        may_run.set()
        lock._thread.join(60)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(lock.file)


def test_a_lock_file_is_its_owners_and_not_inherited(database):
    before = os.umask(0)
    try:
        with closing(LockFile(f"{database}.lock")) as lock:
            assert os.fstat(lock.file).st_mode & 0o777 == 0o600
            assert not os.get_inheritable(lock.file)
            os.pwrite(lock.file, b"x", 0)
            assert os.pread(lock.file, 1, 0) == b"x"
    finally:
        os.umask(before)


def test_a_thread_that_queues_serves_again_and_again(database):
    """The lock goes back and forth between two open files; nobody keeps it who has given up."""
    with closing(LockFile(f"{database}.lock")) as lock, closing(LockFile(f"{database}.lock")) as other:
        threads = set()
        for _ in range(3):
            assert other.acquire(0.0)
            assert not lock.acquire(0.01), "given up"
            timer = threading.Timer(0.05, other.release)
            timer.start()
            assert lock.acquire(60.0)
            timer.join()
            assert (lock._wanted, lock._granted) == (False, False)
            assert not other.acquire(0.0)
            threads.add(lock._thread)
            lock.release()
            assert other.acquire(60.0)
            other.release()
        assert len(threads) == 1
        assert (lock._thread.daemon, lock._thread.name) == (True, "lock file")
    lock._thread.join(60)
    assert not lock._thread.is_alive()


def test_a_file_system_without_locks_stops_nobody(database, monkeypatch):
    """The queue is for order alone: who may write, SQLite decides."""

    def flock(file, operation):
        raise BlockingIOError if operation & fcntl.LOCK_NB else OSError("no locks available")

    with SqlLedger(database) as ledger:
        ledger.open(terms())
        with monkeypatch.context() as planted:
            planted.setattr("reticent.ledger.lockfile.fcntl.flock", flock)
            assert ledger._store._lock.acquire(60.0)


def test_a_lock_file_that_was_let_go_is_closed_once(database):
    """As in a forked child. Whatever gets its number afterwards is left alone."""
    lock = LockFile(f"{database}.lock")
    lock.let_go()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(lock.file)
    other = os.open(database.parent, os.O_RDONLY)
    assert other == lock.file
    lock.let_go()
    lock.close()
    assert lock.acquire(0.0)
    lock.release()
    os.close(other)
