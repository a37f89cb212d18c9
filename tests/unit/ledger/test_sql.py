"""What is particular to the SQL back end: shared commits, versions, connections, forks and readers."""

import multiprocessing
import signal
import sqlite3
import threading
import time

import pytest

from reticent.errors import (
    BudgetExceeded,
    CommitUnknown,
    LedgerDamaged,
    LedgerError,
    ParameterError,
    UnknownAccount,
)
from reticent.ledger import Amount, SqlLedger, Terms, Unit, entries, merkle, sql
from reticent.ledger.base import Order
from reticent.ledger.batch import Batch
from reticent.ledger.store import TryAgain
from reticent.privacy import Neighbours

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
        assert len(commits) == 2  # the account, and the three grants
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
    assert ledger.head().size == 4
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
    job, other = sql._Job(lambda batch: None), sql._Job(lambda batch: None)
    for one in (job, other):
        one.turn = threading.Lock()
        one.turn.acquire()
    ledger._leading = True
    ledger._jobs.extend([job, other])
    with ledger._guard:
        ledger._hand_over()
    ledger._leave(job)
    assert (job.called, other.called, other.turn.locked()) == (True, True, False)
    ledger._leave(other)
    assert not ledger._leading
    assert ledger.request("a", "k", amount(10)).charged == 10


def test_a_hook_that_fails_tells_the_caller_and_the_charge_stands(place):
    def hook(ledger):
        if ledger.head().size > 2:
            raise Surprise("no witness")

    with SqlLedger(place, after_commit=hook) as ledger:
        ledger.open(terms())
        with pytest.raises(Surprise, match="no witness"):
            ledger.request("a", "k", amount(10), idempotency="once")
        assert ledger.balance("a").spent == 10
        assert ledger.request("a", "k", amount(10), idempotency="once").charged == 10
        assert ledger.balance("a").spent == 10


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
        ledger._store.run("UPDATE meta SET setting = '2' WHERE name = 'version'")
    with pytest.raises(LedgerError, match="written by a newer Reticent: schema 2, here 1"):
        SqlLedger(place)


def test_an_older_ledger_is_migrated_once_and_keeps_its_log(place, monkeypatch):
    """Version 0 here is a stand-in; the real steps join MIGRATIONS with each release."""
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
            assert ledger.head() == head
            assert ledger.request("a", "k", amount(10), idempotency="after").charged == 0
    assert steps == [1]


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
    with SqlLedger(place, origin="second") as ledger:
        assert ledger.origin == "first.example/ledger"
    with pytest.raises(ParameterError, match="origin"):
        SqlLedger(place, origin="two words")


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


def test_a_closed_ledger_says_so(place):
    ledger = SqlLedger(place)
    ledger.open(terms())
    ledger.close()
    ledger.close()
    for call in (lambda: ledger.balance("a"), lambda: ledger.request("a", "k", amount(1)), ledger.head):
        with pytest.raises(LedgerError, match="closed"):
            call()


# SQLite


def test_commits_are_durable(database):
    with SqlLedger(database) as ledger:
        writer = ledger._store._writer
        assert writer.execute("PRAGMA synchronous").fetchone() == (2,)
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


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
    with pytest.raises(CommitUnknown, match="lost while committing"):
        server.request("a", "k", amount(10), idempotency="once")
    assert server.request("a", "k", amount(10), idempotency="once").charged == 10
    assert server.balance("a").spent == 10


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
    with pytest.raises(TryAgain, match="gave way to another transaction"):
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


def test_an_unreachable_server_is_said_to_be_so():
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError, match="PostgreSQL cannot be used") as caught:
        SqlLedger("postgresql://nobody@127.0.0.1:9/none?connect_timeout=2")
    assert "\n" not in str(caught.value)
