"""The ledger in a file: its names, rights, locks and damage."""

import os
import re
import sqlite3
import subprocess
import sys
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
from reticent.ledger.sql import sqlite_store
from reticent.ledger.witness.state import WitnessState

from .sql_ledgers import amount, terms


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
