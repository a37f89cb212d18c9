"""The ledger in a file: its names, rights, locks and damage."""

import fcntl
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import tracemalloc
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest

from reticent.errors import (
    BudgetExceeded,
    LedgerDamaged,
    LedgerError,
)
from reticent.ledger import SqlLedger
from reticent.ledger.base import Order
from reticent.ledger.export import export
from reticent.ledger.lockfile import LockFile
from reticent.ledger.sql import sqlite_store
from reticent.ledger.witness.state import WitnessState

from .sql_ledgers import FORK, amount, consistent, interrupted_once, terms


def other_name(database):
    """A second name for the file of a ledger."""
    with SqlLedger(database) as ledger:
        ledger.open(terms())
    other = database.with_name("other.db")
    os.link(database, other)
    return other


def spent_twice(one, other):
    """Two processes spend all there is, under a name each; what was granted in all, or the refusal."""
    program = (
        "import sys\n"
        "from reticent.ledger import Amount, SqlLedger, Unit\n"
        "from reticent.privacy import Neighbours\n"
        "with SqlLedger(sys.argv[1]) as ledger:\n"
        "    print(ledger.request('a', 'k', Amount(1000, Unit.MU2, Neighbours.REPLACE_ONE)).charged)\n"
    )
    with SqlLedger(one) as ledger:
        granted = ledger.request("a", "k", amount(1000)).charged
        ran = subprocess.run([sys.executable, "-c", program, other], capture_output=True, text=True)
    return granted + int(ran.stdout)


def test_a_file_of_two_names_is_refused(database):
    other = other_name(database)
    for name in (database, other):
        for look in (True, False):
            with pytest.raises(LedgerError) as caught:
                SqlLedger(name, create=not look, migrate=not look)
            assert str(caught.value) == (
                f"{name} is one file under several names, each with locks of its own: "
                "remove the other hard links, or mount its directory instead of the file"
            )
    assert not other.with_name("other.db.lock").exists()
    other.unlink()
    SqlLedger(database).close()


def test_a_name_given_while_the_ledger_is_open_is_refused(database):
    with SqlLedger(database) as ledger:
        ledger.open(terms())
        os.link(database, database.with_name("other.db"))
        with pytest.raises(LedgerError, match="one file under several names"):
            SqlLedger(database.with_name("other.db"))


def test_the_check_finds_a_budget_spent_under_two_names(database, monkeypatch, tmp_path):
    """Planted: the number of names is not looked at, neither here nor in the other process."""
    other = other_name(database)
    (tmp_path / "sitecustomize.py").write_text(
        "from reticent.ledger.sql import sqlite_store\nsqlite_store.stat.S_ISREG = lambda mode: False\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("reticent.ledger.sql.sqlite_store.stat.S_ISREG", lambda mode: False)
    assert spent_twice(database, other) == 2000


def test_a_place_that_cannot_be_had_is_said_to_be_so(database, tmp_path):
    beside = database.with_name("beside.db")
    database.with_name("beside.db.lock").mkdir()
    for place, told in (
        (tmp_path / "none" / "a.db", f"No such file or directory: {tmp_path}/none/a.db"),
        ("a\0b", "not a path: a\0b"),
        (beside, f"Is a directory: {beside}.lock"),
    ):
        with pytest.raises(LedgerError) as caught:
            SqlLedger(place)
        assert str(caught.value) == f"the ledger cannot be opened: {told}"
    for place, told in (
        ("", "a ledger needs a file to be durable, got ''"),
        (":memory:", "a ledger needs a file to be durable, got ':memory:'"),
        (5, "a ledger is at a path or an address, got int"),
    ):
        with pytest.raises(LedgerError) as caught:
            SqlLedger(place)
        assert str(caught.value) == told
    with pytest.raises(LedgerError, match=f"^there is no ledger at {re.escape(str(database))}$"):
        SqlLedger(database, create=False)
    assert not database.exists()


def test_the_lock_file_tells_that_a_ledger_was_made(database):
    SqlLedger(database).close()
    lock = Path(f"{database}.lock")
    assert lock.read_bytes() == b"A Reticent ledger was made here.\n"
    lock.write_bytes(b"")  # as an older release left it, or a full disk
    SqlLedger(database, create=False, migrate=False).close()
    assert lock.read_bytes() == b"", "looking changes nothing"
    SqlLedger(database, create=False).close()
    assert lock.read_bytes() == b"A Reticent ledger was made here.\n"
    database.write_bytes(b"")
    with pytest.raises(LedgerDamaged) as caught:
        SqlLedger(database)
    assert str(caught.value) == (
        f"{database} is gone or empty: restore it, or remove {database}.lock to start anew"
    )
    lock.unlink()
    SqlLedger(database).close()


def test_views_within_views_are_of_one_moment(database):
    with SqlLedger(database) as ledger, SqlLedger(database) as other:
        ledger.open(terms())
        store = ledger._store
        with store.reading():
            before = ledger.balance("a").spent
            for _ in range(2):
                with store.reading():
                    assert ledger.balance("a").spent == before
                other.request("a", f"k{_}", amount(1))
            assert ledger.balance("a").spent == before == 0
        assert ledger.balance("a").spent == 2
        with pytest.raises(ZeroDivisionError), store.reading():
            raise ZeroDivisionError
        assert not store._reader.in_transaction


def test_a_symbolic_link_is_no_second_name(database):
    with SqlLedger(database) as ledger:
        ledger.open(terms(cap=10))
        link = database.with_name("link.db")
        link.symlink_to(database)
        with SqlLedger(link) as other:
            assert other.request("a", "k", amount(10)).charged == 10
        with pytest.raises(BudgetExceeded):
            ledger.request("a", "l", amount(1))
    new = database.with_name("new link.db")
    new.symlink_to(database.with_name("new.db"))
    SqlLedger(new).close()
    assert database.with_name("new.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["ledger.db", "my ledger\\.db"])
@pytest.mark.parametrize("mounted", [True, False])
def test_a_file_that_was_mounted_by_itself_is_refused(tmp_path, monkeypatch, name, mounted):
    database, mounts = tmp_path / name, tmp_path / "mountinfo"
    SqlLedger(database).close()
    at = str(database if mounted else tmp_path).replace("\\", "\\134").replace(" ", "\\040")
    mounts.write_text(
        "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        f"36 22 8:1 /srv/ledger.db {at} rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    )
    monkeypatch.setattr("reticent.ledger.sql.sqlite_store._MOUNTS", mounts)
    if mounted:
        with pytest.raises(LedgerError, match="mount its directory"):
            SqlLedger(database)
    else:
        SqlLedger(database).close()
    monkeypatch.setattr(
        "reticent.ledger.sql.sqlite_store._MOUNTS", tmp_path / "none"
    )  # as where there is no /proc
    SqlLedger(database).close()


@pytest.fixture
def usual_mask():
    """New files are readable by all, unless their maker says otherwise."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def rights(folder):
    return {one.name: one.stat().st_mode & 0o777 for one in folder.iterdir() if one.is_file()}


@pytest.mark.usefixtures("usual_mask")
def test_a_new_ledger_is_read_by_its_owner_alone(database):
    with SqlLedger(database) as ledger:
        ledger.open(terms())
        names = [database.name + suffix for suffix in ("", "-wal", "-shm", ".lock")]
        assert rights(database.parent) == dict.fromkeys(names, 0o600)


@pytest.mark.usefixtures("usual_mask")
def test_the_check_finds_a_ledger_that_all_may_read(database, monkeypatch):
    monkeypatch.setattr("reticent.ledger.sql.sqlite_store.private", lambda path: path.touch(0o666))
    with SqlLedger(database):
        assert rights(database.parent)["ledger.db-wal"] == 0o644


@pytest.mark.usefixtures("usual_mask")
def test_the_rights_that_others_had_to_a_ledger_are_taken_away(database):
    SqlLedger(database).close()
    database.chmod(0o664)
    with SqlLedger(database, create=False, migrate=False):
        assert rights(database.parent)["ledger.db"] == 0o664, "who only looks changes nothing"
    with SqlLedger(database) as ledger:
        ledger.open(terms())
        assert [rights(database.parent)[name] for name in ("ledger.db", "ledger.db-wal")] == [0o600] * 2


@pytest.mark.usefixtures("usual_mask")
def test_what_a_witness_remembers_is_read_by_its_owner_alone(tmp_path):
    for _ in range(2):
        with closing(WitnessState(tmp_path)):
            assert set(rights(tmp_path).values()) == {0o600}


def test_commits_are_durable(database):
    with SqlLedger(database) as ledger:
        writer = ledger._store._writer
        assert writer.execute("PRAGMA synchronous").fetchone() == (2,)
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_an_older_file_keeps_its_pages(database, monkeypatch):
    monkeypatch.setattr("reticent.ledger.sql.sqlite_store._PAGE_BYTES", 4096)
    SqlLedger(database).close()
    monkeypatch.undo()
    for path, pages in ((database, (4096, 1024)), (database.with_name("new.db"), (1024, 4096))):
        with SqlLedger(path) as ledger:
            ledger.open(terms())
            writer = ledger._store._writer
            found = [
                writer.execute(f"PRAGMA {one}").fetchone() for one in ("page_size", "wal_autocheckpoint")
            ]
            assert found == [(one,) for one in pages]
            assert ledger.request("a", "k", amount(1)).charged == 1


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


def test_who_does_not_wait_leaves_nobody_in_the_queue(database):
    """A thread that queued on would take the lock of a closed file, before whoever asks next."""
    with closing(LockFile(f"{database}.lock")) as holder:
        assert holder.acquire(0.0)
        assert left_by(LockFile(f"{database}.lock")) is None
        planted = LockFile(f"{database}.lock")
        planted.acquire = lambda timeout_s: LockFile.acquire(planted, 1e-9)
        thread = left_by(planted)
        assert thread.is_alive()
        holder.release()
        thread.join()


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


def test_a_read_only_database_is_said_to_be_so(database):
    with SqlLedger(database) as ledger:
        ledger.open(terms())
        ledger._store._writer.execute("PRAGMA query_only=ON")
        with pytest.raises(LedgerError, match="the ledger cannot be used: it is read-only"):
            ledger.request("a", "k", amount(1))
        assert ledger.reading("a", "k").pending == 0


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        ("UPDATE head SET size = 7", "head is damaged"),
        ("UPDATE head SET frontier = x'00'", "head is damaged"),
        ("DELETE FROM head", "has no head"),
        ("UPDATE head SET frontier = 2305843009213693952", "head is damaged"),
        ("UPDATE head SET size = size + 0.5", "head is damaged"),
        ("UPDATE account SET nonce = 2305843009213693952", "row of account 0 is damaged"),
        ("UPDATE bought SET nonce = 2305843009213693952", "row of key 0 is damaged"),
        ("UPDATE account SET spent = 1.5", "row of account 0 is damaged"),
        ("UPDATE account SET unit = 'miles'", "row of account 0 is damaged"),
        ("UPDATE account SET cap = cap + 1", "row of account 0 is damaged"),
        ("UPDATE bought SET requested = requested + 1", "row of key 0 is damaged"),
        ("UPDATE bought SET waiting = ''", "row of key 0 is damaged"),
        ("UPDATE bought SET waiting = 'x'", "row of key 0 is damaged"),
        ("UPDATE bought SET sums = CAST(x'ff' AS TEXT)", "damaged or no ledger"),
        ("DELETE FROM meta", "settings are damaged"),
        ("DROP TABLE bought", "damaged or no ledger"),
    ],
)
def test_damaged_rows_are_refused_in_one_line(database, damage, match):
    with SqlLedger(database) as ledger:
        ledger.open(terms())
        ledger.request("a", "k", amount(10))
    connection = sqlite3.connect(database)
    connection.execute(damage)
    connection.commit()
    connection.close()
    with pytest.raises(LedgerDamaged, match=match) as caught:
        use(database)
    assert "\n" not in str(caught.value)


def memory_asked_for(work):
    """The most memory that was held at once while it ran."""
    tracemalloc.start()
    try:
        with pytest.raises(LedgerDamaged):
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def with_numbers_for_bytes(database, *columns):
    """A ledger of 300 entries in which numbers of 30 million stand where bytes were."""
    with SqlLedger(database) as ledger:
        ledger.open(terms())
        ledger.request_many([Order("a", f"k{i}", amount(2), f"i{i}") for i in range(150)])
        ledger.fulfil(0, [1])
    with sqlite3.connect(database) as connection:
        for column in columns:
            table, name = column.split(".")
            connection.execute(f"UPDATE {table} SET {name} = 30000000 WHERE {name} IS NOT NULL")
    connection.close()


NUMBERS = {
    "head.frontier": lambda ledger: ledger.head(),
    "account.nonce": lambda ledger: ledger.balance("a"),
    "bought.nonce": lambda ledger: ledger.reading("a", "k1"),
    "measurement.nonce": lambda ledger: export(ledger, StringIO(), openings=True),
    "answered.nonce": lambda ledger: export(ledger, StringIO(), openings=True),
    "node.hash": lambda ledger: ledger.root(256),
}


@pytest.mark.parametrize("column", list(NUMBERS))
def test_a_huge_number_in_place_of_bytes_is_damage_and_takes_no_memory(database, column):
    with_numbers_for_bytes(database, column)

    def work():
        with SqlLedger(database) as ledger:
            NUMBERS[column](ledger)

    assert memory_asked_for(work) < 5_000_000


def test_the_check_finds_bytes_made_of_a_number(database, monkeypatch):
    monkeypatch.setattr("reticent.ledger.sql.rows.stored_bytes", bytes)
    with_numbers_for_bytes(database, "head.frontier")
    assert memory_asked_for(lambda: SqlLedger(database)) > 29_000_000


def use(database):
    with SqlLedger(database) as ledger:
        ledger.request("a", "k", amount(20))


def test_a_ledger_of_many_keys_remembers_no_more_for_it(database):
    with SqlLedger(database) as ledger:
        for i in range(30):
            ledger.open(terms(f"a{i}"))
        sizes = []
        for start in range(0, 3000, 1000):
            ledger.request_many([Order(f"a{i % 30}", f"k{i}", amount(1)) for i in range(start, start + 1000)])
            sizes.append((len(ledger._known_terms), len(ledger._jobs), len(ledger._tight)))
        assert sizes == [(30, 0, 0)] * 3


@pytest.mark.parametrize(
    "table", ["UPDATE ON account", "UPDATE ON head", "INSERT ON entry", "INSERT ON bought"]
)
def test_a_write_that_a_trigger_swallows_is_not_granted(database, table):
    with SqlLedger(database) as ledger:
        ledger.open(terms())
    with closing(sqlite3.connect(database)) as base:
        base.execute(f"CREATE TRIGGER kept BEFORE {table} BEGIN SELECT RAISE(IGNORE); END")
    with SqlLedger(database) as ledger:
        with pytest.raises(LedgerDamaged, match="a policy, trigger or rule is in the way"):
            ledger.request("a", "k", amount(400))
        assert ledger.balance("a").spent == 0


def test_planted_writes_that_are_not_looked_after_pass_the_cap(database, monkeypatch):
    """As it was."""
    monkeypatch.setattr(sqlite_store, "check_written", lambda found, due: None)
    with SqlLedger(database) as ledger:
        ledger.open(terms())
    with closing(sqlite3.connect(database)) as base:
        base.execute("CREATE TRIGGER kept BEFORE UPDATE ON account BEGIN SELECT RAISE(IGNORE); END")
    granted = 0
    for key in "abcd":
        with SqlLedger(database) as ledger:
            granted += ledger.request("a", key, amount(400)).charged
    assert granted > 1000
