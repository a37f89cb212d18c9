"""Calls that meet share a commit; refusals, failures and interrupts are their callers' alone."""

import fcntl
import itertools
import linecache
import os
import sys
import threading
import time
from contextlib import closing
from functools import partial

import pytest

from reticent.errors import (
    BudgetExceeded,
    CommitUnknown,
    LedgerError,
    ParameterError,
    UnknownAccount,
)
from reticent.ledger import SqlLedger, entries
from reticent.ledger.base import Order
from reticent.ledger.lockfile import LockFile
from reticent.ledger.sql import ledger as sql
from reticent.ledger.sql.batch import Batch
from reticent.ledger.sql.sqlite_store import SqliteStore

from .sql_ledgers import Surprise, amount, consistent, half_done, interrupted_once, rows, terms


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
        release.wait(60)

    thread = threading.Thread(target=ledger._write, args=(sql._Job(slow),))
    thread.start()
    inside.wait()
    with pytest.raises(KeyboardInterrupt), interrupted_once(lambda: ledger._jobs):
        ledger.request("a", "k", amount(10))
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
