"""Kill -9 of a process that uses a SQL ledger, at random moments: nothing is lost, doubled or overspent."""

import itertools
import multiprocessing
import os
import random
import signal
import time

import pytest

from reticent.ledger import SqlLedger

from ..unit.ledger.test_crashes import ASKED, account, last_answers, lost_or_doubled

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

FORK = multiprocessing.get_context("fork")


def busy_child(place, first, pipe, early=False):
    """Ask and fulfil for ever, saying through the pipe what was answered. `early` is planted: it boasts."""
    with SqlLedger(place) as ledger:
        os.write(pipe, b"ready\n")
        for i in itertools.count(first):
            if early:
                os.write(pipe, b"asked %d\n" % i)
            (pending,) = ledger.request("a", f"key {i}", ASKED, idempotency=f"try-{i}").pending
            os.write(pipe, b"asked %d\n" % i)
            ledger.fulfil(pending.number, [i, -i])
            os.write(pipe, b"told %d\n" % i)


def killed_after(place, first, delay_s, *, answers=0, **planted):
    """Start a child, kill it some time after so many answers; return (last asked, last fulfilled)."""
    read, write = os.pipe()
    child = FORK.Process(target=busy_child, args=(place, first, write), kwargs=planted)
    child.start()
    os.close(write)
    with os.fdopen(read, "rb") as told:
        assert told.readline() == b"ready\n"
        lines = [told.readline() for _ in range(answers)]
        time.sleep(delay_s)
        os.kill(child.pid, signal.SIGKILL)
        lines += told.read().splitlines()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    return last_answers(lines, first)


def survive_kills(fresh, kills, *, per_ledger=20, seed=7):
    """Kill children of fresh ledgers; return how many requests were granted, and what was wrong."""
    rng, grants, wrong = random.Random(seed), 0, []
    for start in range(0, kills, per_ledger):
        place, following = fresh(), 0
        with SqlLedger(place) as ledger:
            ledger.open(account())
        for _ in range(min(per_ledger, kills - start)):
            asked, fulfilled = killed_after(place, following, rng.uniform(0, 0.02), answers=rng.randrange(3))
            with SqlLedger(place) as ledger:
                faults, following = lost_or_doubled(ledger, asked, fulfilled)
            wrong += faults
        grants += following
    return grants, wrong


@pytest.fixture
def fresh(request, tmp_path):
    """New places, one after the other."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres")
    numbers = itertools.count()
    return lambda: tmp_path / f"{next(numbers)}.db"


@pytest.mark.parametrize(
    ("fresh", "kills"),
    [
        ("sqlite", 40),
        ("postgres", 10),
        pytest.param("sqlite", 1000, marks=pytest.mark.slow),
        pytest.param("postgres", 200, marks=pytest.mark.slow),
    ],
    indirect=["fresh"],
)
def test_a_killed_process_loses_and_doubles_nothing(fresh, kills, race_counter):
    grants, wrong = survive_kills(fresh, kills)
    race_counter.report(f"{kills} kills, {grants} grants")
    assert wrong == []


def test_planted_a_ledger_that_answers_before_it_commits_is_caught(tmp_path, race_counter):
    place, rng = tmp_path / "ledger.db", random.Random(1)
    with SqlLedger(place) as ledger:
        ledger.open(account())
    following = 0

    def attempt(number):
        nonlocal following
        asked, fulfilled = killed_after(place, following, rng.uniform(0, 0.005), early=True)
        with SqlLedger(place) as ledger:
            faults, following = lost_or_doubled(ledger, asked, fulfilled)
        return [fault for fault in faults if "lost" in fault]

    race_counter.repeat_until_caught(attempt, max_attempts=1000)
