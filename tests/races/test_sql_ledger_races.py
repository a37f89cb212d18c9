"""T6: many processes at once grant exactly the cap, and racing askers of one key pay once."""

import contextlib
import multiprocessing
import sqlite3
import threading
import time

import pytest

from reticent.errors import BudgetExceeded
from reticent.ledger import Amount, SqlLedger, Terms, Unit
from reticent.privacy import Neighbours

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

FORK = multiprocessing.get_context("fork")
PROCESSES = 32
REPLACE = Neighbours.REPLACE_ONE
ONE = Amount(1, Unit.MU2, REPLACE)


def together(work, *, processes=PROCESSES):
    """Run work(process number) in forked children that start at once; return what they give."""
    barrier, answers = FORK.Barrier(processes), FORK.SimpleQueue()

    def child(number):
        try:
            answers.put((number, work(number, barrier.wait)))
        except BaseException as error:
            barrier.abort()  # or the others would wait for this one without end
            answers.put((number, error))

    children = [FORK.Process(target=child, args=(number,)) for number in range(processes)]
    for process in children:
        process.start()
    found = dict(answers.get() for _ in children)
    for process in children:
        process.join()
    assert not [error for error in found.values() if isinstance(error, BaseException)]
    return [found[number] for number in range(processes)]


def granted_by(place, requests):
    """How much each of 32 processes gets, one unit at a time."""

    def work(number, ready):
        granted = 0
        with SqlLedger(place) as ledger:
            ready()
            for i in range(requests):
                with contextlib.suppress(BudgetExceeded):
                    granted += ledger.request("a", f"{number}/{i}", ONE).charged
        return granted

    return together(work)


def exactly_the_cap(place, *, requests, cap):
    with SqlLedger(place) as ledger:
        ledger.open(Terms("a", Unit.MU2, REPLACE, "one", cap))
    granted = granted_by(place, requests)
    with SqlLedger(place) as ledger:
        balance, head = ledger.balance("a"), ledger.head()
        assert sum(granted) == cap == balance.spent
        assert head.size == cap + 2  # the ledger, the account, a request each
        assert ledger.root(head.size) == head.root
        assert len(ledger.pending("a")) == cap
    return sum(1 for one in granted if one)


def test_thirty_two_processes_grant_exactly_the_cap(place, race_counter):
    race_counter.report(
        f"{exactly_the_cap(place, requests=200, cap=1000)} of 32 processes had a part of the cap"
    )


@pytest.mark.slow
def test_thirty_two_processes_grant_exactly_the_cap_in_full(place):
    exactly_the_cap(place, requests=10_000, cap=20_000)


class Naive:
    """The control: check, then write. Each statement alone is a transaction, and that is not enough."""

    def __init__(self, path):
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=60)

    def request(self):
        spent, cap = self.connection.execute("SELECT spent, cap FROM account").fetchone()
        if spent + 1 > cap:
            return 0
        time.sleep(0)
        self.connection.execute("UPDATE account SET spent = ?", (spent + 1,))
        return 1


def test_the_harness_catches_check_then_write(tmp_path, race_counter):
    def attempt(number):
        granted, cap = race_naively(tmp_path / f"naive-{number}.db")
        return granted > cap

    race_counter.repeat_until_caught(attempt, max_attempts=50, name="check, then write")


def race_naively(path, cap=1000):
    connection = sqlite3.connect(path)
    connection.executescript(
        f"PRAGMA journal_mode=WAL; CREATE TABLE account (spent, cap); INSERT INTO account VALUES (0, {cap});"
    )
    connection.close()

    def work(number, ready):
        naive = Naive(path)
        naive.connection.execute("PRAGMA synchronous=OFF")
        ready()
        return sum(naive.request() for _ in range(200))

    return sum(together(work)), cap


def test_racing_askers_of_one_key_pay_once(place):
    with SqlLedger(place) as ledger:
        ledger.open(Terms("a", Unit.MU2, REPLACE, "one", 10_000))

    def work(number, ready):
        with SqlLedger(place) as ledger:
            ready()
            return [
                ledger.request("a", f"key {i}", Amount(units, Unit.MU2, REPLACE)).charged
                for i, units in enumerate([5, 7, 11])
            ]

    charged = together(work)
    assert [sum(one) for one in zip(*charged, strict=True)] == [5, 7, 11]
    with SqlLedger(place) as ledger:
        assert ledger.balance("a").spent == 23
        assert len(ledger.pending("a")) == 3


def test_racing_retries_are_charged_once(place):
    with SqlLedger(place) as ledger:
        ledger.open(Terms("a", Unit.MU2, REPLACE, "one", 10_000))

    def work(number, ready):
        with SqlLedger(place) as ledger:
            ready()
            grant = ledger.request("a", "key", Amount(5, Unit.MU2, REPLACE), idempotency="same")
            return grant.charged, grant.information, [m.number for m in grant.pending]

    assert set(map(str, together(work))) == {"(5, 5, [0])"}
    with SqlLedger(place) as ledger:
        assert ledger.balance("a").spent == 5


def test_racing_fulfilments_are_recorded_once(place):
    with SqlLedger(place) as ledger:
        ledger.open(Terms("a", Unit.MU2, REPLACE, "one", 10_000))
        ledger.request("a", "key", Amount(5, Unit.MU2, REPLACE))

    def work(number, ready):
        from reticent.errors import AlreadyFulfilled

        with SqlLedger(place) as ledger:
            ready()
            try:
                return ledger.fulfil(0, [number]).sums
            except AlreadyFulfilled:
                return None

    first = [sums for sums in together(work, processes=8) if sums]
    assert len(first) == 1
    with SqlLedger(place) as ledger:
        assert ledger.reading("a", "key").sums == first[0]


def test_threads_share_commits_and_grant_exactly_the_cap(place, race_counter):
    commits, granted = [], []
    with SqlLedger(place, after_commit=commits.append) as ledger:
        ledger.open(Terms("a", Unit.MU2, REPLACE, "one", 200))

        def work(number):
            for i in range(40):
                try:
                    granted.append(ledger.request("a", f"{number}/{i}", ONE).charged)
                except BudgetExceeded:
                    granted.append(0)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(granted) == ledger.balance("a").spent == 200
        assert len(granted) == 640
        assert ledger.root(ledger.head().size) == ledger.head().root
    race_counter.report(f"{len(commits)} commits of 200 grants")


def test_every_process_may_open_a_new_ledger_at_once(place):
    def work(number, ready):
        ready()
        with SqlLedger(place) as ledger:
            return ledger.open(Terms("a", Unit.MU2, REPLACE, "one", 100)).spent, ledger.origin

    assert set(together(work)) == {(0, "reticent/ledger")}
    with SqlLedger(place) as ledger:
        assert ledger.head().size == 2
