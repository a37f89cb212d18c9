"""T7 and T8: crashed processes, torn files and full disks lose, double and overspend nothing."""

import contextlib
import os
import random
import resource
import shutil
import sqlite3

import pytest

from reticent.errors import BudgetExceeded, LedgerDamaged, LedgerError
from reticent.ledger import Amount, SqlLedger, Terms, Unit, merkle
from reticent.ledger.sql import rows as batch
from reticent.privacy import Neighbours

from ...support.crash_points import enumerate_crashes

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

REPLACE = Neighbours.REPLACE_ONE
UNITS = 3
ASKED = Amount(UNITS, Unit.MU2, REPLACE)
CAP = 1 << 50


def account(cap=CAP):
    return Terms("a", Unit.MU2, REPLACE, "one person", cap)


# T7: a crash at every statement and every write


def ask_and_fulfil(place, number, answers, *, boasts=False):
    """Ask and fulfil once, and append to a file what was answered. `boasts` is planted: it answers first."""
    file = os.open(answers, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with SqlLedger(place) as ledger:
        if boasts:
            os.write(file, b"asked %d\n" % number)
        (pending,) = ledger.request("a", f"key {number}", ASKED, idempotency=f"try-{number}").pending
        os.write(file, b"asked %d\n" % number)
        ledger.fulfil(pending.number, [number, -number])
        os.write(file, b"told %d\n" % number)


def last_answers(lines, first):
    """Return the last number that was asked for, and the last that was fulfilled."""
    asked = [int(line.split()[1]) for line in lines if line.startswith(b"asked")]
    fulfilled = [int(line.split()[1]) for line in lines if line.startswith(b"told")]
    return max(asked, default=first - 1), max(fulfilled, default=first - 1)


def lost_or_doubled(ledger, asked, fulfilled, *, idempotency="try-{}"):
    """Make the interrupted call again. Return what is wrong after a kill, in words, and the next number."""
    wrong = []
    for i in range(max(0, asked - 3), asked + 1):
        reading = ledger.reading("a", f"key {i}")
        if reading.information + reading.pending != UNITS:
            wrong.append(f"grant {i} is lost")
        if i <= fulfilled and reading.sums != (UNITS * i, -UNITS * i):
            wrong.append(f"values {i} are lost")
    again = asked + 1
    for _ in range(2):
        text = idempotency.format(again) if idempotency else None
        ledger.request("a", f"key {again}" if idempotency else f"key {again} {_}", ASKED, idempotency=text)
    for measurement in ledger.pending("a"):
        i = int(measurement.key.split()[1])
        ledger.fulfil(measurement.number, [i, -i])
    if ledger.balance("a").spent != UNITS * (again + 1):
        wrong.append("a charge is lost or doubled")
    head = ledger.head()
    leaves = [merkle.leaf_hash(leaf.encode()) for leaf in ledger.leaves()]
    if (len(leaves), merkle.root_of(leaves)) != (head.size, head.root):
        wrong.append("the log does not fit its head")
    return wrong, again + 1


def faults_after_crashes(place, answers, **planted):
    """End a process at each of its points; yield each point with what was wrong after it."""
    with SqlLedger(place) as ledger:
        ledger.open(account())
    number = 0
    for point in enumerate_crashes(lambda: ask_and_fulfil(place, number, answers, **planted)):  # noqa: B023
        lines = answers.read_bytes().splitlines() if answers.exists() else []
        with SqlLedger(place) as ledger:
            faults, number = lost_or_doubled(ledger, *last_answers(lines, number))
        answers.unlink(missing_ok=True)
        yield point, faults


def survive_every_crash(place, answers):
    calls = []
    for point, faults in faults_after_crashes(place, answers):
        assert faults == [], str(point)
        calls.append(point.call)
    assert calls.count("Connection.execute") > 10


def test_a_crash_at_any_point_loses_and_doubles_nothing(database, tmp_path):
    survive_every_crash(database, tmp_path / "answers")


def test_a_crash_at_any_point_loses_and_doubles_nothing_in_postgresql(postgres, tmp_path):
    survive_every_crash(postgres(), tmp_path / "answers")


def test_the_check_finds_a_ledger_that_answers_before_it_commits(database, tmp_path):
    crashes = faults_after_crashes(database, tmp_path / "answers", boasts=True)
    assert any("lost" in fault for _, faults in crashes for fault in faults)


def test_the_check_finds_a_retry_that_pays_twice(database):
    with SqlLedger(database) as ledger:
        ledger.open(account())
        wrong, _ = lost_or_doubled(ledger, -1, -1, idempotency=None)
    assert wrong == ["a charge is lost or doubled"]


# T8: torn files


class Original:
    """A ledger in use, whose files are copied and torn. Its whole history is known."""

    def __init__(self, folder, *, commits=60, cap=1000):
        self.path, self.cap = folder / "original" / "ledger.db", cap
        self.path.parent.mkdir()
        self.history = {}  # (entries, root) -> spent
        self.ledger = SqlLedger(self.path)
        self.ledger._store._writer.execute("PRAGMA wal_autocheckpoint=0")
        self.ledger.open(account(cap))
        self.remember()
        for i in range(commits):
            grant = self.ledger.request("a", f"key {i}", ASKED, idempotency=f"try-{i}")
            self.remember()
            if i % 2:
                self.ledger.fulfil(grant.pending[0].number, [i])
                self.remember()
            if i == commits // 2:
                self.ledger._store._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self.names = ["ledger.db", "ledger.db-wal", "ledger.db.lock"]

    def remember(self):
        head = self.ledger.head()
        self.history[head.size, head.root] = self.ledger.balance("a").spent

    def torn(self, folder, rng):
        """A copy with one file cut short or overwritten somewhere."""
        folder.mkdir()
        for name in self.names:
            shutil.copyfile(self.path.with_name(name), folder / name)
        victim = folder / rng.choice(["ledger.db-wal", "ledger.db-wal", "ledger.db"])
        size = victim.stat().st_size
        with victim.open("r+b") as file:
            if rng.random() < 0.5:
                file.truncate(rng.randrange(size))
            else:
                file.seek(rng.randrange(size))
                length = rng.choice([1, 16, 512, 4096])
                file.write(rng.choice([bytes(length), rng.randbytes(length)]))
        return folder / "ledger.db", victim.suffix == ".db"


def opened(path, original):
    """How a torn copy behaves: "refused", or "right" when asked for its whole budget; else what is wrong."""
    try:
        with SqlLedger(path) as ledger:
            head, spent = ledger.head(), ledger.balance("a").spent
            if original.history.get((head.size, head.root)) != spent:
                return f"{spent} spent is no state that ever was"
            try:
                ledger.request("a", "all", Amount(original.cap - spent, Unit.MU2, REPLACE))
                ledger.request("a", "more", Amount(1, Unit.MU2, REPLACE))
            except BudgetExceeded:
                return "right"
            return "the cap was passed"
    except LedgerError as refusal:
        return "refused" if "\n" not in str(refusal) else "refused in many lines"


def tear(folder, count, seed=11):
    rng, original, found = random.Random(seed), Original(folder), []
    for number in range(count):
        path, database_torn = original.torn(folder / "torn", rng)
        found.append((opened(path, original), database_torn))
        shutil.rmtree(folder / "torn")
        assert found[-1][0] in ("right", "refused"), (number, found[-1])
    original.ledger.close()
    # A torn log of commits still opens, at a commit; only the database itself can be past reading.
    assert {outcome for outcome, database_torn in found if not database_torn} == {"right"}
    assert {outcome for outcome, database_torn in found if database_torn} == {"right", "refused"}


def test_torn_copies_open_right_or_are_refused(tmp_path):
    tear(tmp_path, 300)


@pytest.mark.slow
def test_torn_copies_open_right_or_are_refused_in_full(tmp_path):
    tear(tmp_path, 10_000)


def with_less_spent(folder, original):
    """A copy in whose account row the amount spent is another: as a torn page may leave it."""
    folder.mkdir()
    original.ledger._store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = shutil.copyfile(original.path, folder / "ledger.db")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE account SET spent = spent - 1")
    connection.commit()
    connection.close()
    return path


def test_a_torn_account_row_is_refused(tmp_path):
    original = Original(tmp_path)
    path = with_less_spent(tmp_path / "torn", original)
    original.ledger.close()
    assert opened(path, original) == "refused"
    with SqlLedger(path) as ledger, pytest.raises(LedgerDamaged, match="row of account 0 is damaged"):
        ledger.request("a", "k", ASKED)


def test_the_check_finds_a_ledger_that_trusts_its_rows(tmp_path, monkeypatch):
    original = Original(tmp_path)
    path = with_less_spent(tmp_path / "torn", original)
    original.ledger.close()
    monkeypatch.setattr(batch.Account, "seal", lambda self: _Anything())
    assert "no state that ever was" in opened(path, original)


class _Anything(int):
    """Equal to every seal."""

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __hash__ = int.__hash__


def test_an_emptied_ledger_is_not_quietly_made_anew(database):
    with SqlLedger(database) as ledger:
        ledger.open(account())
    database.write_bytes(b"")
    with pytest.raises(LedgerDamaged, match="gone or empty"):
        SqlLedger(database)
    database.unlink()
    with pytest.raises(LedgerDamaged, match="gone or empty"):
        SqlLedger(database)
    database.with_name("ledger.db.lock").unlink()
    with SqlLedger(database) as ledger:
        assert ledger.accounts() == []


# Full disks


@contextlib.contextmanager
def files_at_most(size):
    """No file can grow beyond `size` bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def state(ledger):
    return ledger.head(), ledger.accounts(), ledger.pending("a"), ledger.reading("a", "first")


def refusal_of(call):
    """The message of a refusal, or None."""
    try:
        call()
    except LedgerError as refusal:
        return str(refusal)
    return None


def test_a_full_disk_at_each_step_writes_nothing_by_halves(database):
    log, outcomes = database.with_name("ledger.db-wal"), []
    with SqlLedger(database) as ledger:
        ledger.open(account())
        for step, more in enumerate(range(0, 40_000, 500)):
            asked = Amount(UNITS * (step + 1), Unit.MU2, REPLACE)
            (pending,) = ledger.request("a", "first", asked).pending
            ways = [
                lambda step=step: ledger.request("a", f"k{step}" + "x" * 900, ASKED, idempotency=f"i{step}"),
                lambda step=step: ledger.open(Terms(f"b{step}", Unit.MU2, REPLACE, "s" * 200, 10)),
                lambda number=pending.number: ledger.fulfil(number, list(range(2000))),
            ]
            for way in ways:
                before = state(ledger)
                with files_at_most(log.stat().st_size + more):
                    outcomes.append(refusal_of(way))
                assert (state(ledger) == before) == (outcomes[-1] is not None)
            if outcomes[-1] is not None:  # there is space again
                ledger.fulfil(pending.number, list(range(2000)))
        assert set(outcomes) == {None, "the ledger cannot be used: the disk failed"}
        assert outcomes.count(None) > 20
        assert len(outcomes) - outcomes.count(None) > 50
    with SqlLedger(database) as ledger:
        assert ledger.root(ledger.head().size) == ledger.head().root


def test_a_full_database_at_each_page_writes_nothing_by_halves(database):
    outcomes = []
    with SqlLedger(database) as ledger:
        ledger.open(account())
        ledger.request("a", "first", ASKED)
        writer = ledger._store._writer
        for step in range(40):
            before = state(ledger)
            (pages,) = writer.execute("PRAGMA page_count").fetchone()
            writer.execute(f"PRAGMA max_page_count={pages + step % 10}")
            outcomes.append(
                refusal_of(
                    lambda step=step: ledger.request(
                        "a", f"{step}" + "x" * 990, ASKED, idempotency=f"i{step}"
                    )
                )
            )
            assert (state(ledger) == before) == (outcomes[-1] is not None)
            writer.execute("PRAGMA max_page_count=1000000")
            assert ledger.request("a", f"{step} again", ASKED).charged == UNITS
        assert set(outcomes) == {None, "the ledger cannot be used: the disk is full"}
        assert len(outcomes) - outcomes.count(None) > 5
        assert ledger.root(ledger.head().size) == ledger.head().root


def test_the_check_finds_a_ledger_that_writes_by_halves(database, monkeypatch):
    """Planted: every statement is its own transaction."""
    with SqlLedger(database) as ledger:
        ledger.open(account())
        ledger.request("a", "first", ASKED)
        store = ledger._store
        monkeypatch.setattr(type(store), "_begin", lambda self, *, write: None)
        monkeypatch.setattr(type(store), "_commit", lambda self: None)
        before = state(ledger)
        (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
        store._writer.execute(f"PRAGMA max_page_count={pages}")
        for step in range(20):
            with contextlib.suppress(LedgerError):
                ledger.request("a", f"{step}" + "x" * 990, ASKED)
                before = state(ledger)
        assert state(ledger) != before
