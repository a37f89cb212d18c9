"""Estimating a question from what is recorded is work: it is counted, and keeps no short one waiting."""

import threading

import pytest

from reticent.apps.query import weights
from reticent.apps.query.desk import Desk
from reticent.apps.query.weights import MANY, WorkWeight, reuse_cells
from reticent.query.purchases import Purchases

from .running import BASE, MEAN, refused
from .test_stalls import BINS, HEAVY, PATIENCE_S, crew, prompt  # noqa: F401

MANY_VALUES = 4000  # recorded about a data set
NUMBER = {"query": "SELECT COUNT(*) FROM census WHERE age > 30", "information": 1e-4}


@pytest.fixture
def recorded(monkeypatch):
    """As many recorded values as are said here; none are really combined."""
    monkeypatch.setattr(Purchases, "__len__", lambda _: MANY_VALUES)


def price(service, body, who="alice"):
    return service.ask(who, body, path=f"{BASE}/price")


def test_reuse_is_counted_by_recorded_values_up_to_a_bound():
    few, most = weights._FEW_VALUES, weights._FEW_VALUES + weights._MOST_COUNTED
    assert [reuse_cells(cells, few) for cells in (1, 2, 256, 257)] == [0, 0, 0, 0]
    assert reuse_cells(2, few + 100) == reuse_cells(256, few + 100) == 200
    assert reuse_cells(100, most) == reuse_cells(100, 100 * most) == 4096
    assert reuse_cells(1, most) == reuse_cells(1, 100 * most) == 128
    assert reuse_cells(257, most) == 0, "it keeps to its own purchases"


def test_a_flood_of_tables_beside_recorded_values_is_refused(serving, recorded):
    service = serving(work_rate=0.01, work_burst=9000)
    assert [price(service, BINS).status_code for _ in range(2)] == [200, 200]  # 4,196 each
    refused(price(service, BINS), 429, "too_much_work")
    assert price(service, NUMBER).status_code == 200, "a number is less work"
    assert price(service, BINS, who="bob").status_code == 200, "another analyst has a rate of their own"


VERBS = {
    "price": lambda service: price(service, BINS),
    "ask": lambda service: service.ask("alice", BINS),
    "known": lambda service: service.ask("alice", {"query": BINS["query"]}, path=f"{BASE}/known"),
    "plan": lambda service: service.ask("alice", {"questions": [BINS]}, path=f"{BASE}/plan"),
    "answers": lambda service: service.get("alice", f"{BASE}/answers"),
}


def counted(service, call):
    """Return how many cells a call was counted as."""
    rate, amounts = service.app.state.jobs._work_rate, []
    wait_s = rate.wait_s
    rate.wait_s = lambda caller, amount: amounts.append(amount) or wait_s(caller, amount)
    assert call(service).status_code == 200
    return sum(amounts)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_counts_what_it_may_be_estimated_from(serving, recorded, verb):
    service = serving()
    assert service.ask("bob", BINS).status_code == 200
    assert counted(service, VERBS[verb]) == 4096 + (300 if verb == "plan" else 100)


def test_made_up_rows_are_beside_nothing_that_is_recorded(serving, recorded):
    service = serving()
    body = BINS | {"seed": 1}
    assert counted(service, lambda one: one.ask("alice", body, path=f"{BASE}/rehearse")) == 100


def test_public_steps_of_rows_do_not_count_twice(serving, recorded):
    service = serving(rows_per_step=500)  # 2,000 rows: five steps
    assert counted(service, lambda one: price(one, BINS)) == 5 * 100 + 4096


def test_planted_cells_alone_let_a_flood_through(serving, recorded, monkeypatch):
    """The old fault: a table counts as its cells, whatever it is estimated from."""
    monkeypatch.setattr("reticent.apps.query.desk.reuse_cells", lambda cells, values: 0)
    service = serving(work_rate=0.01, work_burst=9000)
    assert [price(service, BINS).status_code for _ in range(20)] == [200] * 20


def test_the_defaults_leave_room_for_ordinary_work(serving, recorded):
    service = serving(work_rate=2500.0, work_burst=1 << 17)
    assert [price(service, BINS).status_code for _ in range(20)] == [200] * 20
    assert [price(service, NUMBER).status_code for _ in range(50)] == [200] * 50


# Lanes


def test_long_estimates_have_a_lane_of_their_own():
    assert not WorkWeight(1, MANY).is_long_estimate
    assert WorkWeight(1, MANY + 1).is_long_estimate
    assert not WorkWeight(MANY + 1, MANY + 1).is_long_estimate


class TableDoor:
    """A door before the price of every table, which counts who stands before it."""

    def __init__(self, patch):
        self.came, self._open = threading.Semaphore(0), threading.Event()
        true = Desk.price

        def held(desk, name, query, *rest, **named):
            if query == BINS["query"]:
                self.came.release()
                assert self._open.wait(PATIENCE_S)
            return true(desk, name, query, *rest, **named)

        patch.setattr(Desk, "price", held)

    def release(self):
        self._open.set()


def test_long_estimates_keep_no_short_price_waiting(serving, recorded, monkeypatch, crew):  # noqa: F811
    service, door = serving(threads=2), TableDoor(monkeypatch)
    asking = [crew.submit(price, service, BINS) for _ in range(4)]
    try:
        assert door.came.acquire(timeout=PATIENCE_S)
        for body in (NUMBER, MEAN, HEAVY):
            assert prompt(crew, lambda body=body: price(service, body, who="bob")).status_code == 200
        assert not any(one.done() for one in asking)
        assert not door.came.acquire(blocking=False), "one table at a time"
    finally:
        door.release()
    assert {one.result(PATIENCE_S).status_code for one in asking} == {200}


def test_planted_estimates_in_the_quick_lane_take_all_threads(serving, monkeypatch, crew):  # noqa: F811
    """The old fault: nothing tells a long estimate from a short one."""
    service, door = serving(threads=2), TableDoor(monkeypatch)
    asking = [crew.submit(price, service, BINS) for _ in range(4)]
    try:
        assert all(door.came.acquire(timeout=PATIENCE_S) for _ in range(2)), "no thread is left for others"
    finally:
        door.release()
    assert {one.result(PATIENCE_S).status_code for one in asking} == {200}
