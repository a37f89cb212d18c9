"""When something is recorded tells nothing of the rows: log, known answers and job counts are on the grid.

No test here measures time: the clock is a number that reading rows moves on.
"""

import contextlib
import time
from types import SimpleNamespace

import pytest

from reticent.apps.query import desk as desk_module
from reticent.apps.query.apart import OtherHand
from reticent.apps.query.desk import Desk
from reticent.ledger import SqlLedger
from reticent.query.accuracy import Accuracy
from reticent.query.measure import Plan
from reticent.service import limits
from reticent.service.limits import leaves_after_s, records_after_s
from reticent.service.settings import Settings
from reticent.service.state import State

GRID_S = 0.1
QUERY, WORDS = "SELECT COUNT(*) FROM census WHERE income > 100", {"information": 1e-5}
START_S = 1000.0


class FakeClock:
    """A clock that stands still unless rows are read or somebody sleeps."""

    def __init__(self):
        self.now_s = START_S

    def monotonic(self):
        return self.now_s

    def sleep(self, pause_s):
        self.now_s += pause_s


@pytest.fixture
def desk(folder, keys):
    with contextlib.closing(Desk(Settings(folder, grid_s=GRID_S))) as desk:
        desk.warm()
        yield desk


@pytest.fixture
def clock(monkeypatch):
    held = FakeClock()
    clock = SimpleNamespace(monotonic=held.monotonic, sleep=held.sleep, time=time.time)
    monkeypatch.setattr(limits, "time", clock)
    return held


def record_times(desk, clock, monkeypatch, *, read_s, ask):
    """Return when something was recorded, counted from the request, if reading rows takes so long."""
    true_read, true_record, times = Plan.vector, SqlLedger._fulfil, []

    def read(self, rows):
        clock.now_s += read_s
        return true_read(self, rows)

    def record(self, *given):
        times.append(round(clock.now_s - START_S, 9))
        return true_record(self, *given)

    clock.now_s = START_S
    with monkeypatch.context() as patch:
        patch.setattr(Plan, "vector", read)
        patch.setattr(SqlLedger, "_fulfil", record)
        ask(desk)
    return times


def ask_here(income):
    def ask(desk):
        alice = desk.state.named("alice")
        desk.ask(alice, "census", QUERY.replace("100", str(income)), start=START_S, **WORDS)

    return ask


def ask_apart(income):
    """Ask as for many cells: charged here, drawn and recorded by another process, which is this one."""

    def ask(desk):
        hand = OtherHand(SimpleNamespace(call=lambda work: work(desk)), "census", START_S)
        query = QUERY.replace("100", str(income))
        desk.settle(desk.state.named("alice"), "census", query, Accuracy(**WORDS), None, hand=hand)

    return ask


@pytest.mark.parametrize("way", [ask_here, ask_apart])
def test_a_record_waits_for_the_grid_however_long_rows_are_read(desk, clock, monkeypatch, way):
    expected = [round(records_after_s(0.0, desk.settings.deadline_s(desk.data("census").rows), GRID_S), 9)]
    for number, read_s in enumerate((0.0, 0.001, 0.02, 0.05)):
        times = record_times(desk, clock, monkeypatch, read_s=read_s, ask=way(number + 10))
        assert times == expected


def test_planted_a_record_at_once_is_caught(desk, clock, monkeypatch):
    monkeypatch.setattr(desk_module, "wait_to_record", lambda *given: None)
    times = [
        record_times(desk, clock, monkeypatch, read_s=read_s, ask=ask_here(number + 10))
        for number, read_s in enumerate((0.001, 0.05))
    ]
    assert times[0] != times[1]


@pytest.mark.parametrize("deadline_s", [0.1, 0.3])
@pytest.mark.parametrize("passed_s", [0.0, 0.01, 0.059, 0.061, 0.11, 0.2, 0.31])
def test_a_record_leaves_time_for_its_reply(passed_s, deadline_s):
    recorded_s = records_after_s(passed_s, deadline_s, GRID_S)
    assert recorded_s >= passed_s
    assert leaves_after_s(recorded_s, deadline_s, GRID_S) - recorded_s == pytest.approx(0.4 * GRID_S)
    assert records_after_s(passed_s, deadline_s, 0.0) == passed_s


# Jobs


def finish_early(state, keys):
    """Return a state with one job whose result is there, and not shown yet."""
    alice = state.named("alice")
    job = state.queue("a", alice, "census", None, "{}", made=state.now(), is_running=True, most=1)
    state.finish(job.id, "done", "{}", state.now() + 3600.0)
    return alice


def test_a_result_that_waits_counts_as_running(desk, keys):
    alice = finish_early(desk.state, keys)
    assert desk.state.job_counts() == {"running": 1}
    again = desk.state.queue("b", alice, "census", None, "{}", made=0.0, is_running=False, most=1)
    assert again is None, "the place is free once the result is shown"


def test_planted_counts_by_what_is_stored_are_caught(desk, keys, monkeypatch):
    def stored(state):
        return dict(state._all("SELECT state, count(*) FROM job GROUP BY state"))

    monkeypatch.setattr(State, "job_counts", stored)
    finish_early(desk.state, keys)
    assert desk.state.job_counts() == {"done": 1}
