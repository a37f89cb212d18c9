"""T6: two processes at once grant exactly the cap, and pay once for one key or one retry.

One of them is paused at each of its statements while the other runs to its end, or waits for the first.
"""

import sqlite3

import pytest

from reticent.errors import AlreadyFulfilled, BudgetExceeded
from reticent.ledger import Amount, SqlLedger, Terms, Unit
from reticent.privacy import Neighbours

from ...support.crash_points import SQLITE_CALLS, enumerate_pauses

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

CAP = 5
PATIENCE_S = 0.05  # of one that waits for a lock of the paused process
STEPS = {"PostgresStore._begin", "PostgresStore.send", "PostgresStore._commit"}  # of a transaction


def amount(units):
    return Amount(units, Unit.MU2, Neighbours.REPLACE_ONE)


def request(key, units, **options):
    """Return a call that asks a ledger and returns what was charged, or "refused"."""

    def call(ledger):
        try:
            return ledger.request("a", key, amount(units), **options).charged
        except BudgetExceeded:
            return "refused"

    return call


def fulfil(value):
    """Return a call that records a value of the first measurement and returns it, or "too late"."""

    def call(ledger):
        try:
            return ledger.fulfil(0, [value]).sums[0] // 3
        except AlreadyFulfilled:
            return "too late"

    return call


class Race:
    """Two calls on a fresh ledger for each point at which the first is paused.

    Args:
        fresh: Function that returns a new place for a ledger.
        answers: File for the answers of both.
        prepare: Call on each ledger before the race.
    """

    def __init__(self, fresh, answers, prepare=lambda ledger: None):
        self._fresh, self._answers, self._prepare = fresh, answers, prepare
        self.place = None

    def _make_place(self):
        self.place = self._fresh()
        with SqlLedger(self.place) as ledger:
            ledger.open(Terms("a", Unit.MU2, Neighbours.REPLACE_ONE, "one", CAP))
            self._prepare(ledger)
        self._answers.write_text("")

    def _answer(self, call):
        with SqlLedger(self.place) as ledger:
            answer = call(ledger)
        with self._answers.open("a") as file:
            file.write(f"{answer}\n")

    def run(self, first, second):
        """Yield each point with the sorted answers of both calls, and the ledger after them."""
        self._make_place()
        for point in enumerate_pauses(
            lambda: self._answer(first),
            lambda: self._answer(second),
            calls=STEPS if str(self.place).startswith("postgres") else SQLITE_CALLS,
            patience_s=PATIENCE_S,
        ):
            with SqlLedger(self.place) as ledger:
                yield point, sorted(self._answers.read_text().split("\n")[:-1]), ledger
                assert ledger.root(ledger.head().size) == ledger.head().root
            self._make_place()


@pytest.fixture(params=["sqlite", "postgres"])
def fresh(request, tmp_path):
    """A function that returns new places for ledgers."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres")
    numbers = iter(range(10_000))
    return lambda: tmp_path / f"{next(numbers)}.db"


@pytest.fixture
def answers(tmp_path):
    return tmp_path / "answers"


def test_the_cap_is_never_passed(fresh, answers):
    points = 0
    for point, told, ledger in Race(fresh, answers).run(request("x", 3), request("y", 3)):
        assert told == ["3", "refused"], str(point)
        assert ledger.balance("a").spent == 3
        assert len(ledger.pending("a")) == 1
        points += 1
    assert points > 5


def test_one_key_is_paid_once(fresh, answers):
    for point, told, ledger in Race(fresh, answers).run(request("k", 3), request("k", 5)):
        assert told in (["0", "5"], ["2", "3"]), str(point)
        assert ledger.balance("a").spent == 5


def test_one_retry_is_charged_once(fresh, answers):
    ask = request("k", 3, idempotency="same")
    for point, told, ledger in Race(fresh, answers).run(ask, ask):
        assert told == ["3", "3"], str(point)
        assert ledger.balance("a").spent == 3


def test_one_measurement_is_recorded_once(fresh, answers):
    race = Race(fresh, answers, lambda ledger: ledger.request("a", "k", amount(3)))
    for point, told, ledger in race.run(fulfil(7), fulfil(8)):
        assert told in (["7", "too late"], ["8", "too late"]), str(point)
        assert ledger.reading("a", "k").sums == (3 * int(told[0]),)


def check_then_write(path):
    """Planted: check, then write. Each statement alone is a transaction, and that is not enough."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    (spent,) = connection.execute("SELECT spent FROM account").fetchone()
    if spent + 3 <= CAP:
        connection.execute("UPDATE account SET spent = ?, granted = granted + 3", (spent + 3,))
    connection.close()


def test_the_race_finds_check_then_write(tmp_path):
    path = tmp_path / "naive.db"
    with sqlite3.connect(path) as connection:
        connection.executescript("CREATE TABLE account (spent, granted); INSERT INTO account VALUES (0, 0);")
    granted = []
    work = lambda: check_then_write(path)  # noqa: E731
    for _ in enumerate_pauses(work, work, calls=SQLITE_CALLS):
        granted.append(connection.execute("SELECT granted FROM account").fetchone()[0])
        with connection:
            connection.execute("UPDATE account SET spent = 0, granted = 0")
    connection.close()
    assert max(granted) > CAP
    assert granted[-1] == 3  # one after the other
