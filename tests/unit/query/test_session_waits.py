"""Nobody who asks for something free waits for somebody who is inside of the engine."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from reticent.ledger import SqlLedger
from reticent.query import Session
from reticent.query.language import tree
from reticent.query.language.tree import Comparison

from .asked_sessions import SUMS, declared
from .tables import Tallied

PATIENCE_S = 120.0  # of a test that would otherwise hang
MEAN, OTHER = tree.mean("age"), tree.count(where=Comparison("age", ">", 7))
INFORMATION = {"information": 1e-3}


class Held(Tallied):
    """Rows that are read once a door is open."""

    def __init__(self, data):
        super().__init__(data, SUMS)
        self.reading, self.open = threading.Semaphore(0), threading.Event()
        self.open.set()

    def tally(self, sql):
        self.reading.release()
        assert self.open.wait(PATIENCE_S)
        return super().tally(sql)


@pytest.fixture
def crew():
    with ThreadPoolExecutor(8) as threads:
        yield threads


def made(tmp_path, kind=Session):
    data = declared()
    rows = Held(data)
    session = kind(data, rows, SqlLedger(tmp_path / "ledger.sqlite"))
    session.ask(MEAN, **INFORMATION)
    assert rows.reading.acquire(timeout=PATIENCE_S)
    rows.open.clear()
    return session, rows


FREE = {
    "price": lambda session: session.price(MEAN, **INFORMATION),
    "price of what is read": lambda session: session.price(OTHER, **INFORMATION),
    "price of something new": lambda session: session.price(tree.total("age"), **INFORMATION),
    "ask again": lambda session: session.ask(MEAN, **INFORMATION),
    "free": lambda session: session.free(MEAN, **INFORMATION),
    "reused": lambda session: session.reused(MEAN, **INFORMATION),
    "known": lambda session: session.known(MEAN),
    "recorded rows": lambda session: session.recorded_rows(MEAN),
    "rehearse": lambda session: session.rehearse(MEAN, **INFORMATION),
    "balance": lambda session: session.balance(),
    "questions": lambda session: session.questions(),
}


def test_what_is_free_comes_while_rows_are_read(tmp_path, crew):
    session, rows = made(tmp_path)
    with session:
        asking = crew.submit(session.ask, OTHER, **INFORMATION)
        assert rows.reading.acquire(timeout=PATIENCE_S)
        found = {name: crew.submit(call, session).result(PATIENCE_S) for name, call in FREE.items()}
        assert not asking.done()
        rows.open.set()
        assert asking.result(PATIENCE_S).cost > 0
    assert found["free"].cells == found["ask again"].cells == found["reused"].cells == found["known"].cells


def test_free_is_what_ask_would_answer_or_nothing(tmp_path):
    session, rows = made(tmp_path)
    with session:
        rows.open.set()
        statements = len(rows.statements)
        assert session.free(OTHER, **INFORMATION) is None
        assert session.free(MEAN, information=1e-2) is None
        assert session.free(tree.count(), **INFORMATION).value == 5000
        assert len(rows.statements) == statements
        assert session.balance().spent == session.price(MEAN, **INFORMATION).bought


class OneLock(Session):
    """Planted: whoever asks or looks at a price holds one lock, as a careful reader might have it."""

    def __init__(self, *given, **named):
        self.lock, self.waiting = threading.Lock(), threading.Semaphore(0)
        super().__init__(*given, **named)

    def _alone(self, call, *given, **named):
        if not self.lock.acquire(blocking=False):
            self.waiting.release()
            self.lock.acquire()
        try:
            return call(*given, **named)
        finally:
            self.lock.release()

    def ask(self, *given, **named):
        return self._alone(super().ask, *given, **named)

    def price(self, *given, **named):
        return self._alone(super().price, *given, **named)


def test_planted_one_lock_makes_prices_wait(tmp_path, crew):
    session, rows = made(tmp_path, OneLock)
    with session:
        asking = crew.submit(session.ask, OTHER, **INFORMATION)
        assert rows.reading.acquire(timeout=PATIENCE_S)
        for name in ("price", "ask again"):
            waiting = crew.submit(FREE[name], session)
            assert session.waiting.acquire(timeout=PATIENCE_S)
            assert not waiting.done()
        rows.open.set()
        asking.result(PATIENCE_S)


def test_two_who_ask_the_same_at_once_see_one_drawing_and_one_charge(tmp_path, crew):
    session, rows = made(tmp_path)
    with session:
        before = session.balance().spent
        cost = session.price(OTHER, **INFORMATION).cost
        both = [crew.submit(session.ask, OTHER, **INFORMATION) for _ in range(2)]
        for _ in both:
            assert rows.reading.acquire(timeout=PATIENCE_S)  # both draw, and one is recorded
        rows.open.set()
        answers = [one.result(PATIENCE_S) for one in both]
        assert answers[0].cells == answers[1].cells
        assert sorted(one.cost for one in answers) == [0, cost]
        assert session.balance().spent == before + cost
