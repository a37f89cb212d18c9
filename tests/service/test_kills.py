"""T7 for the service: processes that die while they answer. No answer without its charge, no charge twice.

Here processes end at every commit, one after the other, or kill themselves at a named point. Real kills at
any moment are in tests/races.
"""

import json
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import asdict
from functools import partial
from signal import SIGKILL, SIGTERM

import pytest

from reticent.apps.query.desk import Desk
from reticent.apps.query.jobs import Jobs
from reticent.apps.query.schemas import Priced
from reticent.query import Answer
from reticent.service.settings import Settings
from reticent.service.state import State

from ..support.crash_points import enumerate_crashes, preload_modules, run_to_end
from .charge_checks import (
    JOB_POINTS,
    PEOPLE,
    POINTS,
    STRIKE,
    UNITS,
    SeenAnswer,
    find_charge_faults,
    make_snapshot,
    open_clients,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

# Whatever lasts of a question: transactions of the state, of the ledger, and notes of the session.
COMMITS = {"writing", "SqliteStore._commit", "Notebook.remember"}
QUERY = "SELECT COUNT(*) FROM census WHERE age > 50"


@pytest.fixture
def folder(folder):
    make_snapshot(folder)
    return folder


@pytest.fixture
def note(folder):
    return folder.with_name(f"{folder.name}-planted") / "strike"


# Ended at every commit


class CrashTrial:
    """Questions of one person to a folder's desk: a new one for each crash, all in one ledger.

    Every method but `crash_at_every_commit` runs in a child process.
    """

    def __init__(self, folder):
        self.folder, self.number = folder, 0
        self._seen_path = folder.with_name("seen.jsonl")

    @property
    def query(self):
        return f"SELECT COUNT(*) FROM census WHERE income > {self.number}"

    def open_desk(self):
        return closing(Desk(Settings(self.folder, grid_s=0.0)))

    def ask(self):
        with self.open_desk() as desk:
            alice, key = desk.state.named("alice"), f"key {self.number}"
            return desk.ask(alice, "census", self.query, information=UNITS * 1e-12, idempotency=key)

    def work_on_job(self):
        """Queue the question as a job, do what a job's thread does, and return the result."""
        with self.open_desk() as desk, ExitStack() as stack:
            alice, jobs = desk.state.named("alice"), stack.enter_context(closing(Jobs(desk)))
            body = Priced(query=self.query, information=UNITS * 1e-12)
            queued = jobs.queue(alice, "census", body, f"key {self.number}")
            while (job := desk.state.claim(0.0)) is not None:
                finished = Future()
                finished.set_result(jobs._answer(job))
                jobs._end(job, finished)
            return Answer.from_json(json.loads(desk.state.job(queued.id, alice).result))

    def check_retry(self, run):
        """Ask again after a crash; raise AssertionError if anything was lost or charged twice."""
        with self._seen_path.open("a") as file:
            for retry in (run, self.ask):
                seen = SeenAnswer("alice", f"key {self.number}", self.query, retry().to_json())
                file.write(json.dumps(asdict(seen)) + "\n")
        lines = self._seen_path.read_text().splitlines()
        assert not (
            faults := find_charge_faults(self.folder, [SeenAnswer(**json.loads(x)) for x in lines])
        ), faults

    def crash_at_every_commit(self, run):
        """End `run` at each of its commits and check what was left; return the number of crashes.

        Before the first crash, the check passes without one.
        """
        preload_modules(partial(self.check_retry, run))
        self.number += 1
        for point in enumerate_crashes(run, calls=COMMITS):
            try:
                run_to_end(partial(self.check_retry, run))
            except AssertionError as error:
                raise AssertionError(f"{point}: {error}") from error
            self.number += 1
        return self.number - 1


@pytest.fixture
def trial(folder, keys, monkeypatch):
    monkeypatch.setattr(Jobs, "_work", lambda self: None)  # the trial does the work of its threads
    return CrashTrial(folder)


@pytest.mark.parametrize("run", [CrashTrial.ask, CrashTrial.work_on_job])
def test_a_crash_at_any_commit_charges_once_and_answers_the_same(trial, run):
    assert trial.crash_at_every_commit(partial(run, trial)) >= 20


def test_planted_counting_each_try_is_caught(trial, monkeypatch):
    reserve = State.reserve

    def reserve_again(self, attempt, person, dataset, units):
        is_first, left = reserve(self, attempt, person, dataset, units)
        if not is_first:
            reserve(self, f"{attempt} again", person, dataset, units)
        return is_first, left

    monkeypatch.setattr(State, "reserve", reserve_again)
    with pytest.raises(AssertionError, match=r"(?s)crash \d+, .*other counts than charges"):
        trial.crash_at_every_commit(trial.ask)


# Workers that kill themselves


def test_killed_workers_charge_once_and_answer_the_same(process, folder, keys, note):
    service = process(planted=STRIKE, forked=True, workers=2, job_lapse_s=2.0)
    with open_clients(service, keys, PEOPLE[:1]) as (alice,):
        for number, point in enumerate(POINTS):
            query, key = f"SELECT COUNT(*) FROM census WHERE age > {number}", f"key {number}"
            note.write_text(point)
            (alice.ask_as_job if point in JOB_POINTS else alice.ask)(key, query)
            assert not note.exists(), f"no worker passed {point}"
            alice.ask(key, query)
    service.end(SIGTERM)
    assert find_charge_faults(folder, alice.seen) == set()


EARLY = """
from reticent.ledger import MemoryLedger
from reticent.apps.query.desk import Desk

def ask_early(self, person, name, query, accuracy, **options):
    session = self.session(name)
    return Session(session.data, session._opened(), MemoryLedger()).ask(query, accuracy)

Desk.ask = ask_early
"""

FORGETFUL = """
import secrets
from reticent.apps.query.desk import Attempt, Desk

Desk.attempt = lambda *_: Attempt(secrets.token_hex(16), None, None)
"""


def test_planted_an_answer_that_leaves_before_it_is_paid_is_caught(process, folder, keys):
    """The service is killed before it comes to charge for what it answered."""
    service = process(planted=STRIKE + EARLY)
    with open_clients(service, keys, PEOPLE[:1]) as (alice,):
        alice.ask("one", QUERY)
        service.end(SIGKILL)
    assert "an answer without its charge" in find_charge_faults(folder, alice.seen)


def test_planted_a_service_that_forgets_keys_is_caught(process, folder, keys, note):
    """Cut off once it has counted what it will charge, it counts the retry as well."""
    service = process(planted=STRIKE + FORGETFUL, forked=True, workers=2)
    note.write_text("reserve")
    with open_clients(service, keys, PEOPLE[:1]) as (alice,):
        for _ in range(2):
            alice.ask("one", QUERY)
    assert not note.exists()
    service.end(SIGKILL)
    assert find_charge_faults(folder, alice.seen) == {
        "a retry was told something else",
        "other counts than charges",
    }
