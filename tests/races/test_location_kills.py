"""Kill -9 of a store of places and of a campaign, at random moments: nothing is lost or counted twice."""

import contextlib
import itertools
import multiprocessing
import os
import signal

import numpy as np
import pytest

from reticent.location import ReportStore
from reticent.location.payload import Outcome

from ..unit.location import campaign
from ..unit.location.test_campaign import ROUNDS, begun, opened, reports
from ..unit.location.test_store import report
from ..unit.operating import operator

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
FORK = multiprocessing.get_context("fork")


def serve(path, pipe):
    """Count the batches that come and acknowledge each."""
    with ReportStore(path, operator(campaign.MASTER)) as one:
        one.publish(campaign.file_of(campaign.asked(0.5, 0)))
        pipe.send(None)
        while True:
            number, batch = pipe.recv()
            one.add(batch)
            pipe.send(number)


def after_kills(path, kills, batches=12, size=20):
    """Send batches to stores that are killed in the middle, until each is acknowledged: (counted, people)."""
    rng = np.random.default_rng(0)
    left = {one: [report(one * size + each, each % 7) for each in range(size)] for one in range(batches)}
    while left:
        here, there = FORK.Pipe()
        child = FORK.Process(target=serve, args=(path, there))
        child.start()
        there.close()
        here.recv()
        for number in list(left):
            here.send((number, left[number]))
            if kills and rng.random() < 0.5:
                here.poll(float(rng.uniform(0.0, 0.01)))
                break
            del left[here.recv()]
        kills = max(0, kills - 1)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        here.close()
    with ReportStore(path, operator(campaign.MASTER)) as one:
        return int(one.counts(0).sum()), batches * size


@pytest.mark.parametrize(("kills", "batches"), [(6, 12), pytest.param(200, 60, marks=pytest.mark.slow)])
def test_kills_lose_and_repeat_nothing(tmp_path, race_counter, kills, batches):
    counted, people = after_kills(tmp_path / "reports", kills=kills, batches=batches)
    race_counter.report(f"at most {kills} kills, {people} reports")
    assert counted == people


def work(folder, is_planted, told):
    """Count and end for ever, and tell what was acknowledged."""
    if is_planted:  # acknowledges what it has not written
        ReportStore.add = lambda self, given: [Outcome.COUNTED] * len(given)
    with opened(folder) as campaign:
        for number in itertools.count():
            asked = campaign.current
            if campaign.add(reports(asked, 1, first=number)) == [Outcome.COUNTED]:
                told.send(asked.number)
            if number % 5 == 4:
                campaign.end_round()


def lost_by_a_kill(folder, is_planted, lines=13):
    """Rounds of which fewer reports are counted after the kill than were acknowledged before it."""
    read, told = FORK.Pipe(duplex=False)
    process = FORK.Process(target=work, args=(folder, is_planted, told), daemon=True)
    process.start()
    told.close()
    acknowledged = [read.recv() for _ in range(lines)]
    process.kill()
    process.join()
    with contextlib.suppress(EOFError):
        while True:
            acknowledged.append(read.recv())
    with opened(folder) as campaign:
        rounds = campaign.store.rounds()
        found = [int(campaign.counts(one.number).sum()) for one in rounds]
        while campaign.end_round() is not None:  # it goes on
            pass
        assert len(campaign.store.rounds()) == ROUNDS
    wanted = [acknowledged.count(number) for number in range(len(rounds))]
    return [number for number in range(len(rounds)) if found[number] < wanted[number]]


@pytest.mark.parametrize("is_planted", [False, True])
def test_what_was_acknowledged_survives_a_kill(tmp_path, race_counter, is_planted):
    def attempt(number):
        begun(tmp_path / str(number)).close()
        return lost_by_a_kill(tmp_path / str(number), is_planted)

    if is_planted:
        race_counter.repeat_until_caught(attempt, max_attempts=50)
    else:
        assert not any(map(attempt, range(5)))
