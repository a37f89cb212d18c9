"""What is particular to the SQL back end: shared commits, versions, connections, forks and readers."""

import fcntl
import itertools
import json
import linecache
import multiprocessing
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import tracemalloc
from contextlib import closing, suppress
from functools import partial
from io import StringIO
from pathlib import Path

import pytest

from reticent.errors import (
    BudgetExceeded,
    CommitUnknown,
    IdempotencyConflict,
    LedgerDamaged,
    LedgerError,
    ParameterError,
    UnknownAccount,
)
from reticent.ledger import Amount, SqlLedger, Terms, Unit, entries, merkle, sql
from reticent.ledger.base import Order
from reticent.ledger.batch import Batch
from reticent.ledger.export import export
from reticent.ledger.lockfile import LockFile
from reticent.ledger.store import SqliteStore, TryAgain, _first_line, _let_go_of_lock_files, connect
from reticent.ledger.verify import verify
from reticent.ledger.witness import WitnessedLedger
from reticent.ledger.witness_server import WitnessState
from reticent.privacy import Neighbours

from .witness_process import KEY, put_back

REPLACE = Neighbours.REPLACE_ONE
FORK = multiprocessing.get_context("fork")


def terms(name="a", cap=1000):
    return Terms(name, Unit.MU2, REPLACE, "one person", cap)


def amount(units):
    return Amount(units, Unit.MU2, REPLACE)


@pytest.fixture
def ledger(place):
    with SqlLedger(place) as made:
        made.open(terms())
        yield made


def rows(ledger):
    """Every row of every table."""
    tables = ["meta", "head", "account", "bought", "measurement", "answered", "entry", "node"]
    with ledger._store.reading():
        return {table: sorted(map(repr, ledger._store.all(f"SELECT * FROM {table}"))) for table in tables}


def consistent(ledger):
    head = ledger.head()
    leaves = [merkle.leaf_hash(leaf.encode()) for leaf in ledger.leaves()]
    return (len(leaves), merkle.root_of(leaves)) == (head.size, head.root)


def at_once(ledger, calls):
    """Make calls on threads so that they meet in one commit; return what each gives or raises."""
    answers, waiting = [None] * len(calls), threading.Event()

    def blocking(batch):
        waiting.set()
        while len(ledger._jobs) < len(calls):
            time.sleep(0.001)

    def call(i):
        try:
            answers[i] = calls[i]()
        except BaseException as error:
            answers[i] = error

    first = threading.Thread(target=ledger._write, args=(sql._Job(blocking),))
    first.start()
    waiting.wait()
    threads = []
    for i in range(len(calls)):
        threads.append(threading.Thread(target=call, args=(i,)))
        threads[-1].start()
        while len(ledger._jobs) <= i and not answers[i]:
            time.sleep(0.001)
    for thread in [first, *threads]:
        thread.join()
    return answers


def test_the_mark_moves_with_every_commit_and_with_nothing_else(tmp_path):
    """Whoever wrote: this ledger, or another on the same file. A refusal writes nothing."""
    with SqlLedger(tmp_path / "ledger.db") as ledger, SqlLedger(tmp_path / "ledger.db") as other:
        ledger.open(terms())
        marks = [ledger.mark()]
        for writer in (ledger, other, ledger):
            writer.request("a", "k", amount(len(marks) * 10))
            marks.append(ledger.mark())
            ledger.balance("a")
            with pytest.raises(BudgetExceeded):
                other.request("a", "l", amount(5000))
            assert ledger.mark() == marks[-1]
        assert len(set(marks)) == 4


# Shared commits


def test_calls_that_meet_share_a_commit_in_order(place):
    commits = []
    with SqlLedger(place, after_commit=commits.append) as ledger:
        ledger.open(terms(cap=10))
        answers = at_once(ledger, [lambda i=i: ledger.request("a", f"k{i}", amount(3)) for i in range(5)])
        assert [getattr(answer, "remaining", type(answer)) for answer in answers] == [
            *(7, 4, 1),
            *(BudgetExceeded, BudgetExceeded),
        ]
        assert len(commits) == 3  # the account, what `at_once` begins with, and the three grants
        assert consistent(ledger)


def test_a_refusal_in_a_shared_commit_leaves_no_trace(place, ledger):
    calls = [
        lambda: ledger.request("a", "good", amount(10), idempotency="good"),
        lambda: ledger.request("a", "bad", amount(5000), idempotency="bad"),
        lambda: ledger.fulfil(77, [1]),
        lambda: ledger.open(terms("b", cap=5)),
        lambda: ledger.open(terms("a", cap=5)),
    ]
    answers = at_once(ledger, calls)
    kinds = [type(answer).__name__ for answer in answers]
    assert kinds == ["Grant", "BudgetExceeded", "UnknownMeasurement", "Balance", "AccountConflict"]
    assert "bad" not in str(rows(ledger)["bought"] + rows(ledger)["answered"])
    assert [entries.decode(leaf)["type"] for leaf in ledger.leaves()] == [
        *("ledger", "open"),
        *("request", "answer", "open"),
    ]
    assert consistent(ledger)


class Surprise(Exception):
    pass


def half_done(error):
    """Work that charges and then fails."""

    def work(batch: Batch):
        batch.request(terms(), "half", 10, "half")
        raise error

    return work


@pytest.mark.parametrize("error", [Surprise("!"), BudgetExceeded("a", 1, 0), ParameterError("?")])
def test_a_job_that_fails_halfway_takes_nobody_with_it(ledger, error):
    answers = at_once(
        ledger,
        [
            lambda: ledger.request("a", "one", amount(10)).charged,
            lambda: ledger._write(sql._Job(half_done(error))),
            lambda: ledger.request("a", "two", amount(10)).charged,
        ],
    )
    assert [answers[0], answers[2]] == [10, 10]
    assert type(answers[1]) is type(error)
    assert ledger.balance("a").spent == 20
    assert "half" not in str(rows(ledger)["bought"] + rows(ledger)["answered"])
    assert consistent(ledger)


def test_the_check_finds_a_batch_that_keeps_half_a_job(ledger, monkeypatch):
    monkeypatch.setattr(Batch, "changes", property(lambda self: 1))  # planted: nothing seems to change
    with pytest.raises(BudgetExceeded):
        ledger._write(sql._Job(half_done(BudgetExceeded("a", 1, 0))))
    assert "half" in str(rows(ledger)["bought"])


def test_an_interrupt_stops_its_own_caller_alone(ledger):
    def interrupted(batch):
        batch.request(terms(), "half", 10, None)
        raise KeyboardInterrupt

    answers = at_once(
        ledger,
        [
            lambda: ledger._write(sql._Job(interrupted)),
            lambda: ledger.request("a", "two", amount(10)).charged,
            lambda: ledger.request("a", "three", amount(10)).charged,
        ],
    )
    assert isinstance(answers[0], KeyboardInterrupt)
    assert answers[1:] == [10, 10]
    assert ledger.balance("a").spent == 20
    assert ledger.request("a", "four", amount(10)).charged == 10
    assert consistent(ledger)


def test_an_interrupt_while_committing_tells_the_others_that_it_is_not_known(ledger, monkeypatch):
    commit, commits = type(ledger._store)._commit, []

    def interrupted(store):
        commit(store)
        commits.append(1)
        if len(commits) == 2:  # the first is that of `at_once`
            raise KeyboardInterrupt

    monkeypatch.setattr(type(ledger._store), "_commit", interrupted)
    calls = [lambda key=key: ledger.request("a", key, amount(10), idempotency=key) for key in ("one", "two")]
    answers = at_once(ledger, calls)
    assert [type(answer) for answer in answers] == [KeyboardInterrupt, CommitUnknown]
    assert [call().charged for call in calls] == [10, 10]
    assert ledger.balance("a").spent == 20
    assert consistent(ledger)


def test_an_interrupt_while_waiting_leaves_the_queue(ledger):
    release, inside = threading.Event(), threading.Event()

    def slow(batch):
        inside.set()
        release.wait(10)

    thread = threading.Thread(target=ledger._write, args=(sql._Job(slow),))
    thread.start()
    inside.wait()
    main = threading.main_thread().ident
    timer = threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        ledger.request("a", "k", amount(10))
    timer.join()
    release.set()
    thread.join()
    assert ledger.balance("a").spent == 0
    assert ledger.request("a", "k", amount(10)).charged == 10


def test_an_interrupt_of_the_next_leader_calls_another(ledger):
    """The interrupt comes when the job has just been called to lead."""
    first, job, other = (sql._Job(lambda batch: None) for _ in range(3))
    ledger._leader = first
    ledger._jobs.extend([job, other])
    ledger._leave(first)
    assert (ledger._leader, job.turn.locked(), other.turn.locked()) == (job, False, True)
    ledger._leave(job)
    assert (ledger._leader, other.turn.locked()) == (other, False)
    ledger._leave(other)
    assert ledger._leader is None
    assert ledger.request("a", "k", amount(10)).charged == 10


def test_a_caller_who_left_is_not_called_to_lead(ledger):
    """It left while another committed for it, and then that one was interrupted."""
    own, left = sql._Job(lambda batch: None), sql._Job(lambda batch: None)
    ledger._leader, own.together = own, [own, left]
    ledger._leave(left)
    ledger._store.commit_begun = False
    ledger._interrupted(own, KeyboardInterrupt())
    ledger._leave(own)
    assert (ledger._leader, list(ledger._jobs)) == (None, [])
    assert ledger.request("a", "k", amount(10)).charged == 10


def test_who_was_answered_before_an_interrupt_keeps_the_answer(ledger):
    own, served = sql._Job(lambda batch: None), sql._Job(lambda batch: None)
    own.together, served.done, served.answer = [own, served], True, "granted"
    ledger._store.commit_begun = True
    ledger._interrupted(own, KeyboardInterrupt())
    assert (served.answer, served.error) == ("granted", None)


def test_a_closed_lock_file_is_let_go_of_without_a_word(tmp_path):
    lock = LockFile(str(tmp_path / "lock"))
    assert lock.acquire(0.0)
    lock.close()
    lock.release()
    with closing(os.fdopen(os.open(tmp_path / "lock", os.O_RDWR))) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # free: this would raise


QUEUE = {"_write", "_lead", "_leave", "_commit_all"}


def orders_the_queue(code):
    """Whether this is one of those methods, also as `make mutation` renames it."""
    name = code.co_name.partition("__mutmut")[0].rpartition("ǁ")[2]
    return name in QUEUE and code.co_filename == sql.__file__


def interrupted_at(line, work):
    """Run work, with an interrupt before the given line of those that order the queue; whether it came.

    Lines that begin with `with` are passed over: they are traced again between the end of the block and the
    release of its lock, where Python takes no interrupts.
    """
    seen = 0

    def trace(frame, event, argument):
        nonlocal seen
        if not orders_the_queue(frame.f_code):
            return None
        if (
            event != "line"
            or linecache.getline(frame.f_code.co_filename, frame.f_lineno).split()[0] == "with"
        ):
            return trace
        seen += 1
        if seen == line:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def interrupts(ledger):
    """Interrupt a request before each of its lines; for each, whether somebody is still said to lead."""
    for line in itertools.count(1):
        came = interrupted_at(line, lambda: ledger.request("a", "k", amount(10)))
        yield ledger._leader is not None or bool(ledger._jobs)
        if not came:
            return


def test_an_interrupt_anywhere_leaves_nobody_leading(database):
    with SqlLedger(database) as ledger:
        ledger.open(terms())
        left = list(interrupts(ledger))
        assert len(left) > 20
        assert not any(left)
        assert ledger.request("a", "l", amount(10)).charged == 10
        assert ledger.balance("a").spent == 20
        assert consistent(ledger)


def test_the_check_finds_a_lead_that_is_not_handed_over(database, monkeypatch):
    """Planted: the lead is handed over when a leader is done, not when it is interrupted before."""
    leave = SqlLedger._leave
    monkeypatch.setattr(SqlLedger, "_leave", lambda self, job: leave(self, job) if job.done else None)
    with SqlLedger(database) as ledger:
        ledger.open(terms())
        for line in range(1, 8):
            interrupted_at(line, lambda: ledger.request("a", "k", amount(10)))
            if ledger._leader is not None:
                return
    pytest.fail("nobody was left leading")


@pytest.mark.parametrize("line", range(1, 40, 3))
def test_an_interrupt_of_the_leader_leaves_nobody_waiting(database, line):
    """Two calls wait while the third, which leads, is interrupted."""
    with SqlLedger(database) as ledger:
        ledger.open(terms())
        answers, threads = [], []

        def ask(key):
            try:
                answers.append(ledger.request("a", key, amount(10), idempotency=key).charged)
            except CommitUnknown:
                answers.append(ledger.request("a", key, amount(10), idempotency=key).charged)

        def work(batch):
            if not threads:
                for i in range(2):
                    threads.append(threading.Thread(target=ask, args=(f"k{i}",), daemon=True))
                    threads[-1].start()
                    while len(ledger._jobs) <= i:
                        time.sleep(0.001)

        def lead():
            ledger._write(sql._Job(work))
            ledger.request("a", "own", amount(10))

        interrupted_at(line, lead)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert (ledger._leader, len(ledger._jobs)) == (None, 0)
        assert answers == [10] * len(threads)
        assert consistent(ledger)


def test_a_hook_that_fails_tells_the_caller_and_the_charge_stands(place):
    reachable = [True]

    def hook(ledger):
        if not reachable[0]:
            raise Surprise("no witness")

    with SqlLedger(place, after_commit=hook) as ledger:
        ledger.open(terms())
        reachable[0] = False
        for _ in range(2):  # the first charges; the second changes nothing and is not answered either
            with pytest.raises(Surprise, match="no witness"):
                ledger.request("a", "k", amount(10), idempotency="once")
        assert ledger.balance("a").spent == 10
        with pytest.raises(BudgetExceeded):  # a refusal rests on nothing new
            ledger.request("a", "l", amount(5000))
        reachable[0] = True
        assert ledger.request("a", "k", amount(10), idempotency="once").charged == 10
        assert ledger.balance("a").spent == 10


def hooked(place):
    """For calls of each kind, whether the hook saw what they wrote before they were answered."""
    seen = []
    with SqlLedger(place, after_commit=lambda ledger: seen.append(rows(ledger))) as ledger:
        ledger.open(terms())
        for call in (
            lambda: ledger.open(terms("b")),
            lambda: ledger.request("a", "k", amount(10)),
            lambda: ledger.request("a", "k", amount(5), idempotency="nothing-to-pay"),
            lambda: ledger.request("a", "k", amount(5), idempotency="nothing-to-pay"),
            lambda: ledger.request_many([Order("a", "k", amount(11)), Order("a", "l", amount(9000))]),
            lambda: ledger.fulfil(0, [3]),
            lambda: ledger.charge_witnessed({0: 50}, entries.head_text(99, bytes(32))),
        ):
            seen.clear()
            call()
            yield seen == [rows(ledger)]


def test_the_hook_sees_whatever_was_written(place):
    assert list(hooked(place)) == [True] * 7


def test_the_check_finds_a_hook_that_only_charges_wake(place, monkeypatch):
    """Planted: the rule "called when accounts were charged", which misses a kept answer, and values."""
    commit = SqlLedger._commit

    def planted(self, jobs):
        hook, self._after_commit, before = self._after_commit, None, self.totals()
        try:
            commit(self, jobs)
        finally:
            self._after_commit = hook
        if self.totals() != before:
            hook(self)

    monkeypatch.setattr(SqlLedger, "_commit", planted)
    assert list(hooked(place)) == [True, True, False, False, True, False, True]


def written(place, ask, monkeypatch):
    """The rows of 300 charges, past the first stored node, with the same nonce for all."""
    monkeypatch.setattr(Batch, "_nonce", lambda self: bytes(32))
    with SqlLedger(place) as ledger:
        ledger.open(terms())
        return [ask(ledger, Order("a", f"k{i}", amount(3))) for i in range(300)], rows(ledger)


def test_a_charge_alone_writes_what_one_among_several_does(tmp_path, monkeypatch):
    asked = {
        "alone": lambda ledger, order: ledger.request(order.account, order.key, order.information),
        "listed": lambda ledger, order: ledger.request_many([order])[0],
    }
    made = [written(tmp_path / name, ask, monkeypatch) for name, ask in asked.items()]
    assert made[0] == made[1]
    assert len(made[0][1]["node"]) == 1


def refused_half_way(ledger, monkeypatch):
    """What a lone charge leaves that is refused after some of its rows were sent."""
    send = ledger._store.send

    def half(statements):
        send(list(statements)[:2])
        raise LedgerError("half way")

    with monkeypatch.context() as planted:
        planted.setattr(ledger._store, "send", half)
        with pytest.raises(LedgerError, match="half way"):
            ledger.request("a", "one", amount(10))
    return ledger.balance("a").spent


def test_a_charge_that_fails_half_way_leaves_nothing(ledger, monkeypatch):
    assert refused_half_way(ledger, monkeypatch) == 0
    assert ledger.request("a", "one", amount(10)).charged == 10
    assert consistent(ledger)


def test_planted_rows_that_are_not_counted_are_caught(ledger, monkeypatch):
    monkeypatch.setattr(Batch, "changes", property(lambda batch: len(batch._leaves)))
    assert refused_half_way(ledger, monkeypatch) == 10


def left_by_interrupts(folder, method):
    """Logs of ledgers that were closed after an interrupt, at each bytecode of a method of the store."""
    for steps in itertools.count(1):
        with SqlLedger(folder / str(steps)) as ledger:
            ledger.open(terms())
            came = interrupted_after(steps, method, partial(ledger.request, "a", "one", amount(10)))
        yield from folder.glob(f"{steps}-wal")
        if not came:
            return


def interrupted_after(steps, method, call):
    """Run a call and interrupt it after some bytecodes of a method; whether it has so many."""
    done = itertools.count(1)

    def inside(frame, event, argument):
        frame.f_trace_opcodes = True
        if event == "opcode" and next(done) == steps:
            sys.settrace(None)
            raise KeyboardInterrupt
        return inside

    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: inside if frame.f_code is method.__code__ else None)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_leaves_nothing_open(tmp_path):
    for method in (SqliteStore.stamp, SqliteStore.one, SqliteStore.send, SqliteStore._begin):
        (tmp_path / method.__name__).mkdir()
        assert list(left_by_interrupts(tmp_path / method.__name__, method)) == []


def test_planted_a_lasting_cursor_that_fetches_is_caught(tmp_path, monkeypatch):
    def stamp(store):
        (version,) = store._sender.execute("PRAGMA data_version").fetchone()
        return version, store._writes

    monkeypatch.setattr(SqliteStore, "stamp", stamp)
    assert list(left_by_interrupts(tmp_path, stamp)) != []


def alone(ledger, order):
    try:
        return ledger.request(order.account, order.key, order.information, idempotency=order.idempotency)
    except LedgerError as refusal:
        return refusal


def told(answer):
    return (type(answer), str(answer))


def test_many_orders_are_decided_as_one_by_one(place, tmp_path):
    orders = [
        Order("a", f"k{i % 70}", amount(1 + i % 13), f"i{i % 90}" if i % 3 else None) for i in range(400)
    ]
    orders.insert(200, Order("a", "too much", amount(10_000)))
    orders.insert(10, Order("nobody", "k", amount(1)))
    with SqlLedger(place) as many, SqlLedger(tmp_path / "single.db") as single:
        for ledger in (many, single):
            ledger.open(terms(cap=300))
        together = many.request_many(orders)
        assert list(map(told, together)) == [told(alone(single, order)) for order in orders]
        assert many.accounts() == single.accounts()
        assert many.pending("a") == single.pending("a")
        assert type(together[10]) is UnknownAccount
        assert many.head().size == single.head().size
        assert consistent(many)
        many.request_many(orders)
        assert many.accounts() == single.accounts()


def test_entries_are_in_canonical_form(ledger):
    number = ledger.request("a", "key \u00e9", amount(10)).pending[0].number
    ledger.request_many([Order("a", f"k{i}", amount(2)) for i in range(3)])
    ledger.fulfil(number, [5])
    for leaf in ledger.leaves():
        found = entries.decode(leaf)
        kind = found.pop("type")
        assert entries.encode(kind, **found) == leaf


# Versions


def test_a_newer_ledger_is_refused(place):
    with SqlLedger(place) as ledger, ledger._store.writing():
        ledger._store.run("UPDATE meta SET setting = '3' WHERE name = 'version'")
    with pytest.raises(LedgerError, match="written by a newer Reticent: schema 3, here 2"):
        SqlLedger(place)


def test_an_older_ledger_is_migrated_once_and_keeps_its_log(place, monkeypatch):
    """Version 0 here is a stand-in, so that two steps follow each other."""
    with SqlLedger(place) as ledger:
        ledger.open(terms())
        ledger.request("a", "k", amount(10))
        head = ledger.head()
        with ledger._store.writing():
            ledger._store.run("UPDATE meta SET setting = '0' WHERE name = 'version'")
            ledger._store.run("ALTER TABLE answered RENAME TO replies")
    with pytest.raises(LedgerError, match="no way leads from schema 0 to 1"):
        SqlLedger(place)
    steps = []

    def step(store):
        steps.append(1)
        store.run("ALTER TABLE replies RENAME TO answered")

    monkeypatch.setitem(sql.MIGRATIONS, 0, step)
    for _ in range(2):
        with SqlLedger(place) as ledger:
            assert ledger.root(head.size) == head.root
            assert ledger.request("a", "k", amount(10), idempotency="after").charged == 0
    assert steps == [1]


def version_1(place):
    """Put a ledger that version 1 of the tables kept at `place`; return its signed head and its entries."""
    kept = json.loads((Path(__file__).parent / "data" / "version-1.json").read_text())
    store = connect(place)
    with store.alone():
        for statement in kept["schema"]:
            store.run(statement.format(**store.dialect))
        for table, rows in kept["rows"].items():
            for row in rows:
                fields = [bytes.fromhex(one["hex"]) if isinstance(one, dict) else one for one in row]
                store.run(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", fields)
    store.close()
    return kept["checkpoint"], [leaf for _, leaf in kept["rows"]["entry"]]


REPEATED = [
    ("census", "mean income", 100, "one", 100),
    ("census", "mean income", 60, "less", 0),
    ("census", "mean income", 102, "more", 5),
    ("other", "count", 30, "one", 30),
]


def test_a_ledger_of_version_1_opens_verifies_and_goes_on(place, monkeypatch):
    monkeypatch.setattr(sql, "_AT_ONCE", 3)  # in more than one part
    checkpoint, leaves = version_1(place)
    with SqlLedger(place) as ledger:
        report = verify(ledger, checkpoint=checkpoint)
        assert ledger.leaves(0, len(leaves)) == leaves
        added = [entries.decode(leaf)["type"] for leaf in ledger.leaves(len(leaves))]
        assert added == ["answer"] * len(REPEATED)
        for account, key, units, idempotency, charged in REPEATED:
            assert ledger.request(account, key, amount(units), idempotency=idempotency).charged == charged
        with pytest.raises(IdempotencyConflict):
            ledger.request("census", "mean income", amount(61), idempotency="less")
        assert ledger.head().root == report.root, "what was asked before writes nothing"
        assert ledger.request("other", "new", amount(7), idempotency="two").charged == 7
        assert verify(ledger, checkpoint=checkpoint).size == report.size + 2
    with SqlLedger(place) as ledger:
        assert verify(ledger).size == report.size + 2


def test_the_check_finds_a_migration_that_logs_nothing(place, monkeypatch):
    def planted(store):
        rows = store.all("SELECT * FROM answered")
        store.run("DROP TABLE answered")
        store.make_schema("answered")
        store.many(
            "INSERT INTO answered VALUES (?, ?, 'request', ?, ?, ?, ?, 0, ?)",
            [(*row, bytes(32)) for row in rows],
        )

    monkeypatch.setitem(sql.MIGRATIONS, 1, planted)
    version_1(place)
    with SqlLedger(place) as ledger, pytest.raises(LedgerDamaged, match="answered has rows that no entry"):
        verify(ledger)


def test_a_migration_that_fails_changes_nothing(place, monkeypatch):
    with SqlLedger(place) as ledger:
        ledger.open(terms())
        with ledger._store.writing():
            ledger._store.run("UPDATE meta SET setting = '0' WHERE name = 'version'")
        before = rows(ledger)

    def step(store):
        store.run("UPDATE account SET spent = 7")
        raise Surprise

    monkeypatch.setitem(sql.MIGRATIONS, 0, step)
    with pytest.raises(Surprise):
        SqlLedger(place)
    monkeypatch.setitem(sql.MIGRATIONS, 0, lambda store: None)
    with SqlLedger(place) as ledger:
        after = rows(ledger)
    assert {**before, "meta": 0} == {**after, "meta": 0}


def test_a_ledger_keeps_its_origin(place):
    with SqlLedger(place, origin="first.example/ledger") as ledger:
        assert ledger.head().origin == "first.example/ledger"
    for asked in (None, "first.example/ledger"):
        with SqlLedger(place, origin=asked) as ledger:
            assert ledger.origin == "first.example/ledger"
    with pytest.raises(ParameterError, match="origin"):
        SqlLedger(place, origin="two words")


def test_a_ledger_without_a_name_gets_the_common_one(place):
    with SqlLedger(place) as ledger:
        assert ledger.origin == entries.decode(ledger.leaf(0))["origin"] == "reticent/ledger"


@pytest.mark.parametrize("found", ["second", "reticent/ledger"])
def test_a_ledger_of_another_origin_is_refused(place, found):
    SqlLedger(place, origin=found).close()
    with pytest.raises(LedgerError, match=f"is that of the log {found}, asked for first"):
        SqlLedger(place, origin="first")
    with SqlLedger(place) as ledger:
        assert ledger.origin == found


def test_a_ledger_of_another_origin_is_refused_before_it_is_migrated(place):
    version_1(place)
    with pytest.raises(LedgerError, match="asked for another"):
        SqlLedger(place, origin="another")
    with pytest.raises(LedgerError, match="tables of version 1"):
        SqlLedger(place, migrate=False)


def put_in_place(database, witness, origin):
    """Replace a witnessed ledger, all of it spent, by a fresh one of another name; what is left in that."""
    with WitnessedLedger(database, client=witness.client(), key=KEY, origin="census") as ledger:
        ledger.open(terms())
        ledger.request("a", "k", amount(1000))
    with SqlLedger(database.with_name("fresh.db"), origin="census.") as fresh:
        fresh.open(terms())
    put_back(database, database.with_name("fresh.db"))
    with WitnessedLedger(database, client=witness.client(), key=KEY, origin=origin) as ledger:
        return ledger.balance("a").remaining


def test_a_ledger_of_another_name_does_not_replace_a_witnessed_one(database, witness):
    with pytest.raises(LedgerError, match=r"is that of the log census\., asked for census$"):
        put_in_place(database, witness, "census")


def test_the_check_finds_a_ledger_that_was_replaced(database, witness):
    """The control, and a known limit: who does not say which log it is gets whichever there is."""
    assert put_in_place(database, witness, None) == 1000


# Looking


def test_looking_makes_no_ledger(place):
    with pytest.raises(LedgerError, match="there is no ledger"):
        SqlLedger(place, create=False)
    if isinstance(place, str):
        with pytest.raises(LedgerError, match="there is no ledger"):
            SqlLedger(place, create=False)
    else:
        assert list(place.parent.iterdir()) == []
        place.touch()
        with pytest.raises(LedgerError, match="there is no ledger"):
            SqlLedger(place, create=False, migrate=False)
        assert [(one.name, one.stat().st_size) for one in place.parent.iterdir()] == [(place.name, 0)]
    with SqlLedger(place) as ledger:
        ledger.open(terms())
    with SqlLedger(place, create=False) as ledger:
        assert ledger.request("a", "k", amount(1)).charged == 1


def test_looking_at_a_restored_copy_changes_no_byte(database, tmp_path):
    """A copy by VACUUM is not in WAL mode, and no lock file is beside it."""
    with SqlLedger(database) as ledger:
        ledger.open(terms())
    copy = tmp_path / "copies" / "copy.db"
    copy.parent.mkdir()
    with sqlite3.connect(database) as connection:
        connection.execute(f"VACUUM INTO '{copy}'")
    connection.close()
    before = copy.read_bytes()
    with SqlLedger(copy, create=False, migrate=False) as ledger:
        assert verify(ledger).size == 2
    assert copy.read_bytes() == before
    assert list(copy.parent.iterdir()) == [copy]
    SqlLedger(copy, create=False).close()  # the control
    assert copy.read_bytes() != before


def test_looking_at_a_foreign_database_changes_no_byte(database):
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE other (x)")
    connection.close()
    before = database.read_bytes()
    with pytest.raises(LedgerDamaged, match="no ledger"):
        SqlLedger(database, create=False, migrate=False)
    assert database.read_bytes() == before
    assert list(database.parent.iterdir()) == [database]


def test_a_database_that_is_gone_is_said_to_be_gone_to_who_looks(database):
    SqlLedger(database).close()
    database.unlink()
    with pytest.raises(LedgerDamaged, match="is gone or empty: restore it"):
        SqlLedger(database, create=False)


# What a transaction knows of the one before


def taking_turns(place):
    """Two ledgers at one place, one after the other and again; whether all went right."""
    with SqlLedger(place) as one, SqlLedger(place) as other:
        one.open(terms(cap=20))
        granted = 0
        for i in range(15):
            for ledger in [one, other, other] if i % 2 else [one, one, other]:
                try:
                    granted += ledger.request("a", f"key {granted}", amount(1)).charged
                except BudgetExceeded:
                    continue
                except LedgerError:
                    return False
        if granted != 20:
            return False
        assert one.balance("a").spent == other.balance("a").spent
        return one.balance("a").spent == 20 and consistent(one) and one.head() == other.head()


def test_a_ledger_sees_what_another_wrote(place):
    assert taking_turns(place)


def test_the_check_finds_a_ledger_that_trusts_what_it_knew(database, monkeypatch):
    monkeypatch.setattr("reticent.ledger.store.SqliteStore.stamp", lambda self: (1, self._writes))
    assert not taking_turns(database)


def test_a_ledger_sees_what_was_written_beside_it(ledger):
    assert ledger.request("a", "one", amount(10)).charged == 10
    with ledger._store.writing():
        batch = Batch(ledger._store)
        batch.request(terms(), "two", 10, None)
        batch.flush()
    assert ledger.request("a", "three", amount(10)).remaining == 970
    assert consistent(ledger)


def test_what_was_rolled_back_is_not_known_afterwards(ledger):
    assert ledger.request("a", "before", amount(10)).charged == 10
    with pytest.raises(Surprise):
        ledger._write(sql._Job(half_done(Surprise("!"))))
    assert ledger.request("a", "after", amount(10)).remaining == 980
    with pytest.raises(BudgetExceeded):
        ledger.request("a", "too much", amount(981))
    assert ledger.open(terms("b")).spent == 0
    assert ledger.request("b", "k", amount(10)).remaining == 990
    assert ledger.request("a", "k", amount(10)).remaining == 970
    assert consistent(ledger)


# Readers, forks, closing


def test_readers_neither_wait_for_a_writer_nor_hold_it_up(ledger):
    ledger.request("a", "k", amount(10))
    seen = []

    def slow(batch):
        batch.request(terms(), "other", 10, None)
        reader = threading.Thread(target=lambda: seen.append((ledger.balance("a").spent, ledger.head().size)))
        reader.start()
        reader.join(10)

    ledger._write(sql._Job(slow))
    assert seen == [(10, 3)]
    with ledger._store.reading():
        writer = threading.Thread(target=lambda: ledger.request("a", "third", amount(10)))
        writer.start()
        writer.join(10)
        assert not writer.is_alive()
    assert ledger.balance("a").spent == 30


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_to_open_its_own(ledger, place):
    answers, children = FORK.SimpleQueue(), []

    def own():
        with SqlLedger(place) as made:
            return made.request("a", "child", amount(1)).charged

    def child():
        for call in (lambda: ledger.request("a", "k", amount(1)), lambda: ledger.balance("a"), own):
            try:
                answers.put(str(call()))
            except LedgerError as error:
                answers.put(str(error))
        ledger.close()

    def forking(batch):  # while the parent holds every lock there is
        children.append(FORK.Process(target=child))
        children[0].start()

    ledger._write(sql._Job(forking))
    told = [answers.get() for _ in range(3)]
    children[0].join()
    assert told[:2] == ["a ledger is not carried over a fork: close it before, open it in the child"] * 2
    shared = "was open when this process was forked" in told[2]
    assert shared or (isinstance(place, str) and told[2] == "1")  # PostgreSQL minds no fork
    assert ledger.request("a", "parent", amount(1)).charged == 1
    assert ledger.balance("a").spent == (1 if shared else 2)
    assert consistent(ledger)


def test_a_child_lets_go_of_what_is_its_parents(database, monkeypatch):
    """What happens in a forked child, done here."""
    alone, inherited = [], set()
    with SqlLedger(database) as ledger, SqlLedger(database.with_name("gone.db")) as gone:
        ledger.open(terms())
        monkeypatch.setattr("reticent.ledger.store._LOCK_FILES", {ledger._store, gone._store})
        monkeypatch.setattr("reticent.ledger.store._LEFT_ALONE", alone)
        monkeypatch.setattr("reticent.ledger.store._INHERITED", inherited)
        database.with_name("gone.db").unlink()
        _let_go_of_lock_files()
        assert inherited == {(database.stat().st_dev, database.stat().st_ino)}
        assert {*alone} == {*ledger._store._open, *gone._store._open}
        assert len(alone) == 4, "a writer and a reader each"
        for one in (ledger, gone):
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(one._store._lock.file)
        with pytest.raises(LedgerError, match="was open when this process was forked"):
            SqlLedger(database)


def test_a_closed_ledger_says_so(place):
    ledger = SqlLedger(place)
    ledger.open(terms())
    ledger.close()
    ledger.close()
    for call in (lambda: ledger.balance("a"), lambda: ledger.request("a", "k", amount(1)), ledger.head):
        with pytest.raises(LedgerError, match=r"^the ledger was closed$"):
            call()


# SQLite


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
        "from reticent.ledger import store\nstore.stat.S_ISREG = lambda mode: False\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("reticent.ledger.store.stat.S_ISREG", lambda mode: False)
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
    monkeypatch.setattr("reticent.ledger.store._MOUNTS", mounts)
    if mounted:
        with pytest.raises(LedgerError, match="mount its directory"):
            SqlLedger(database)
    else:
        SqlLedger(database).close()
    monkeypatch.setattr("reticent.ledger.store._MOUNTS", tmp_path / "none")  # as where there is no /proc
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
    monkeypatch.setattr("reticent.ledger.store.make_private", lambda path: None)
    with SqlLedger(database):
        assert rights(database.parent)["ledger.db-wal"] == 0o644


@pytest.mark.usefixtures("usual_mask")
def test_the_rights_that_were_given_to_a_ledger_are_kept(database):
    SqlLedger(database).close()
    database.chmod(0o640)
    with SqlLedger(database) as ledger:
        ledger.open(terms())
        assert [rights(database.parent)[name] for name in ("ledger.db", "ledger.db-wal")] == [0o640] * 2


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
    monkeypatch.setattr("reticent.ledger.store._PAGE_BYTES", 4096)
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
    monkeypatch.setattr("reticent.ledger.store.BUSY_TIMEOUT_S", 0.05)
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
        assert held.wait(10)
        os.kill(self.child.pid, signal.SIGSTOP)

    def hold(self, database, held):
        lock = LockFile(f"{database}.lock")
        assert lock.acquire(10)
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
    thread.join(10)
    return waited, told


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_stopped_process_is_not_waited_for_without_end(database, monkeypatch):
    with SqlLedger(database) as ledger:
        ledger.open(terms())
    monkeypatch.setattr("reticent.ledger.store.BUSY_TIMEOUT_S", 0.3)
    waited, told = refused_after(database, limit_s=10)
    assert told == ["the ledger cannot be used: another process holds it"]
    assert 0.3 <= waited < 5


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_check_finds_a_wait_without_end(database, monkeypatch):
    with SqlLedger(database) as ledger:
        ledger.open(terms())

    def planted(self, timeout_s):
        fcntl.flock(self.file, fcntl.LOCK_EX)
        return True

    monkeypatch.setattr(LockFile, "acquire", planted)
    monkeypatch.setattr("reticent.ledger.store.BUSY_TIMEOUT_S", 0.3)
    waited, told = refused_after(database, limit_s=1)
    assert waited >= 1
    assert told == [1], "served when the stopped process was killed, not before"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_who_gave_up_waiting_for_a_stopped_process_is_served_once_it_is_gone(database, monkeypatch):
    """The thread that still queues for a caller who gave up must neither keep nor lose the lock."""
    monkeypatch.setattr("reticent.ledger.store.BUSY_TIMEOUT_S", 0.05)
    with SqlLedger(database) as ledger:
        ledger.open(terms())
        for i in range(3):
            with Stopped(database):
                for _ in range(2):
                    with pytest.raises(LedgerError, match="another process holds it"):
                        ledger.request("a", f"k{i}", amount(1))
            monkeypatch.setattr("reticent.ledger.store.BUSY_TIMEOUT_S", 10)
            assert ledger.request("a", f"k{i}", amount(1)).charged == 1
            with SqlLedger(database) as other:  # by another open file, as another process would
                assert other.request("a", f"other{i}", amount(1)).charged == 1
            monkeypatch.setattr("reticent.ledger.store.BUSY_TIMEOUT_S", 0.05)
        assert ledger.balance("a").spent == 6
        assert consistent(ledger)


def test_an_interrupt_while_queueing_for_the_lock_keeps_nothing(database):
    with SqlLedger(database) as ledger, SqlLedger(database) as other:
        ledger.open(terms())
        other._store._wait()
        main = threading.main_thread().ident
        timer = threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            ledger.request("a", "k", amount(10))
        timer.join()
        other._store._let_next()
        for one in (ledger, other, ledger):
            assert one.request("a", "k", amount(10)).remaining == 990


def test_a_ledger_may_be_closed_while_a_thread_still_queues_for_it(database, monkeypatch):
    monkeypatch.setattr("reticent.ledger.store.BUSY_TIMEOUT_S", 0.05)
    with SqlLedger(database) as holder:
        holder.open(terms())
        with SqlLedger(database) as ledger:
            holder._store._wait()
            with pytest.raises(LedgerError, match="another process holds it"):
                ledger.request("a", "k", amount(1))
            thread = ledger._store._lock._thread
        holder._store._let_next()
        thread.join(10)
        assert not thread.is_alive()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(ledger._store._lock.file)
        assert holder.request("a", "k", amount(1)).charged == 1


def test_a_free_lock_is_taken_at_once_by_no_thread(database):
    with closing(LockFile(f"{database}.lock")) as lock, closing(LockFile(f"{database}.lock")) as other:
        for _ in range(2):
            assert lock.acquire(0.0)
            assert lock._thread is None
            assert not other.acquire(0.0)
            lock.release()
            assert other.acquire(10.0)
            other.release()
    for one in (lock, other):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(one.file)


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
            assert lock.acquire(10.0)
            timer.join()
            assert (lock._wanted, lock._granted) == (False, False)
            assert not other.acquire(0.0)
            threads.add(lock._thread)
            lock.release()
            assert other.acquire(10.0)
            other.release()
        assert len(threads) == 1
        assert (lock._thread.daemon, lock._thread.name) == (True, "lock file")
    lock._thread.join(10)
    assert not lock._thread.is_alive()


def test_a_file_system_without_locks_stops_nobody(database, monkeypatch):
    """The queue is for order alone: who may write, SQLite decides."""

    def flock(file, operation):
        raise BlockingIOError if operation & fcntl.LOCK_NB else OSError("no locks available")

    with SqlLedger(database) as ledger:
        ledger.open(terms())
        with monkeypatch.context() as planted:
            planted.setattr("reticent.ledger.lockfile.fcntl.flock", flock)
            assert ledger._store._lock.acquire(10.0)


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
    monkeypatch.setattr("reticent.ledger.batch.stored_bytes", bytes)
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


# PostgreSQL


@pytest.fixture
def server(postgres):
    with SqlLedger(postgres()) as made:
        made.open(terms())
        yield made


def disconnect(ledger):
    """Let the server cut every connection of the ledger."""
    import psycopg

    with psycopg.connect(ledger._store._url, autocommit=True) as connection:
        for held in ledger._store._connections.values():
            connection.execute("SELECT pg_terminate_backend(%s)", (held.info.backend_pid,))
    time.sleep(0.1)


def test_a_connection_lost_while_idle_is_made_anew(server):
    assert server.request("a", "k", amount(1)).charged == 1
    server.balance("a")
    disconnect(server)
    assert server.request("a", "l", amount(1)).charged == 1
    with server._store.reading():
        pass
    assert server.balance("a").spent == 2


def test_a_connection_lost_in_a_transaction_writes_nothing(server):
    def work(batch):
        batch.request(terms(), "k", 10, None)
        disconnect(server)

    with pytest.raises(LedgerError, match="PostgreSQL cannot be used") as caught:
        server._write(sql._Job(work))
    assert "\n" not in str(caught.value)
    assert server.request("a", "k", amount(10)).charged == 10
    assert server.balance("a").spent == 10


def test_a_connection_lost_while_committing_is_not_known(server, monkeypatch):
    commit = type(server._store)._commit

    def cut(store):
        monkeypatch.undo()
        disconnect(server)
        commit(store)

    monkeypatch.setattr(type(server._store), "_commit", cut)
    with pytest.raises(
        CommitUnknown,
        match=r"^the connection to PostgreSQL was lost while committing: "
        r"ask again with the same idempotency key$",
    ):
        server.request("a", "k", amount(10), idempotency="once")
    assert server.request("a", "k", amount(10), idempotency="once").charged == 10
    assert server.balance("a").spent == 10


def failed_and_committed(store):
    """Commit a transaction in which a statement failed."""
    import psycopg

    with store.writing():
        store.run("UPDATE account SET subject = 'lost'")
        with suppress(psycopg.errors.DivisionByZero):
            store.run("SELECT 1 / 0")


def test_a_commit_that_was_none_is_no_success(server):
    with pytest.raises(LedgerError, match="PostgreSQL did not commit: it answered ROLLBACK"):
        failed_and_committed(server._store)
    assert server.balance("a").terms.subject == "one person"
    assert server.request("a", "k", amount(10)).charged == 10


def test_the_check_finds_a_commit_that_is_taken_on_trust(server, monkeypatch):
    monkeypatch.setattr(
        type(server._store), "_commit", lambda store: store._connections[True].execute("COMMIT")
    )
    failed_and_committed(server._store)
    assert server.balance("a").terms.subject == "one person", "nothing was written, and nobody was told"


def test_a_transaction_that_gave_way_is_run_again(server, monkeypatch):
    import psycopg

    commit, left = type(server._store)._commit, [3]

    def give_way(store):
        if left[0]:
            left[0] -= 1
            raise psycopg.errors.SerializationFailure
        commit(store)

    monkeypatch.setattr(type(server._store), "_commit", give_way)
    assert server.request("a", "k", amount(10)).charged == 10
    left[0] = 99
    with pytest.raises(
        TryAgain, match=r"^the ledger cannot be used: PostgreSQL gave way to another transaction$"
    ):
        server.request("a", "l", amount(10))
    monkeypatch.undo()
    assert server.balance("a").spent == 10
    assert consistent(server)


def test_a_server_that_serialises_everything_is_no_obstacle(postgres):
    import psycopg

    url = postgres()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'")
    try:
        with SqlLedger(url) as one, SqlLedger(url) as other:
            one.open(terms(cap=40))
            granted = []

            def work(ledger, name):
                for i in range(30):
                    try:
                        granted.append(ledger.request("a", f"{name}{i}", amount(1)).charged)
                    except BudgetExceeded:
                        granted.append(0)

            threads = [threading.Thread(target=work, args=pair) for pair in ((one, "x"), (other, "y"))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sum(granted) == 40 == one.balance("a").spent
            assert len(granted) == 60
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER DATABASE postgres RESET default_transaction_isolation")


def test_an_error_is_told_in_one_line_even_if_it_says_nothing():
    assert _first_line(OSError("one\ntwo")) == "one"
    assert _first_line(TimeoutError()) == "TimeoutError"


def test_an_unreachable_server_is_said_to_be_so():
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError, match="PostgreSQL cannot be used") as caught:
        SqlLedger("postgresql://nobody@127.0.0.1:9/none?connect_timeout=2")
    assert "\n" not in str(caught.value)
