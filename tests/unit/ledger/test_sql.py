"""What is particular to the SQL back end: versions, looking, what is known, readers and forks."""

import json
import os
import sqlite3
import threading
from pathlib import Path

import pytest

from reticent.errors import (
    BudgetExceeded,
    IdempotencyConflict,
    LedgerDamaged,
    LedgerError,
    ParameterError,
)
from reticent.ledger import SqlLedger, entries
from reticent.ledger.sql import ledger as sql
from reticent.ledger.sql import migrations
from reticent.ledger.sql.batch import Batch
from reticent.ledger.sql.connect import connect
from reticent.ledger.sql.sqlite_store import _let_go_of_lock_files
from reticent.ledger.verify import verify
from reticent.ledger.witness.client import WitnessedLedger

from .sql_ledgers import FORK, Surprise, amount, consistent, half_done, rows, terms
from .witness_process import KEY, put_back


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


# Versions


def test_a_newer_ledger_is_refused(place):
    with SqlLedger(place) as ledger, ledger._store.writing():
        ledger._store.run("UPDATE meta SET setting = '4' WHERE name = 'version'")
    with pytest.raises(LedgerError, match="written by a newer Reticent: schema 4, here 3"):
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
            ledger._store.run("DROP TABLE question")
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
    monkeypatch.setattr(migrations, "_AT_ONCE", 3)  # in more than one part
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
            ledger._store.run("DROP TABLE question")
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
    monkeypatch.setattr("reticent.ledger.sql.sqlite_store.SqliteStore.stamp", lambda self: (1, self._writes))
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
        reader.join(60)

    ledger._write(sql._Job(slow))
    assert seen == [(10, 3)]
    with ledger._store.reading():
        writer = threading.Thread(target=lambda: ledger.request("a", "third", amount(10)))
        writer.start()
        writer.join(60)
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
        monkeypatch.setattr("reticent.ledger.sql.sqlite_store._LOCK_FILES", {ledger._store, gone._store})
        monkeypatch.setattr("reticent.ledger.sql.sqlite_store._LEFT_ALONE", alone)
        monkeypatch.setattr("reticent.ledger.sql.sqlite_store._INHERITED", inherited)
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
