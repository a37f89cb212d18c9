"""Kill -9 of a collector under load: no acknowledged report is lost, none is counted twice."""

import contextlib
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from reticent.collect.collector import Collector
from reticent.collect.wire import Outcome, batch, split

from ..unit.collect.many_devices import MASTER, Fleet

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

FORK = multiprocessing.get_context("fork")
THREADS, AHEAD, BATCH = 3, 6, 20


def serve(path, pipe, planted):
    """Count the batches that come, several at once, and acknowledge each."""
    if planted == "without seen":
        Collector._seen = lambda self, checked: None
    sending = threading.Lock()
    with Collector(path, MASTER) as collector, ThreadPoolExecutor(THREADS) as threads:

        def take(number, data):
            if planted == "early":
                with sending:
                    pipe.send((number, [Outcome.COUNTED.value] * BATCH))
                time.sleep(0.1)  # in which it is killed
            told = [one.value for one in collector.receive(split(data, most=BATCH))]
            if planted != "early":
                with sending:
                    pipe.send((number, told))

        pipe.send(None)
        while True:
            threads.submit(take, *pipe.recv())


class Client:
    """Sends batches until each is acknowledged, to collectors that are killed."""

    def __init__(self, path, reports, planted):
        self._path, self._planted = path, planted
        self._batches = [reports[start : start + BATCH] for start in range(0, len(reports), BATCH)]
        self.open = dict.fromkeys(range(len(self._batches)))
        self.told, self.cut = Counter(), 0

    def live(self, rng, answers):
        """Talk to a collector until it has given so many answers, or all; then kill it, within a moment."""
        here, there = FORK.Pipe()
        child = FORK.Process(target=serve, args=(self._path, there, self._planted))
        child.start()
        there.close()
        here.recv()
        left, waiting, is_cut = list(self.open), set(), False
        with here:
            while left or waiting:
                for number in left[: AHEAD - len(waiting)]:
                    here.send((left.pop(0), batch(self._batches[number])))
                    waiting.add(number)
                if answers == 0:
                    is_cut = self._planted == "without seen"  # something is counted, and the answer is lost
                    child.join(rng.uniform(0.0, 0.02)) if not is_cut else here.poll(60)
                    break
                waiting.discard(self._answer(here))
                answers -= 1
            os.kill(child.pid, signal.SIGKILL)
            with contextlib.suppress(EOFError, ConnectionResetError):  # what it said before it died
                while not is_cut:
                    waiting.discard(self._answer(here))
        self.cut += bool(waiting)
        child.join()
        assert child.exitcode == -signal.SIGKILL

    def _answer(self, pipe):
        number, told = pipe.recv()
        self.open.pop(number, None)
        self.told.update(told)
        return number


def survive(path, kills, *, planted=None, seed=5):
    """What is wrong after so many kills and one life to the end, and the client."""
    rng = random.Random(seed)
    fleet = Fleet(BATCH * AHEAD * kills)
    fleet.collector(path).close()
    client = Client(path, fleet.reports(), planted)
    for _ in range(kills):
        client.live(rng, rng.randrange(4))
    client.live(rng, -1)
    assert not client.open
    with Collector(path, MASTER) as collector:
        return fleet.faults(collector), client


@pytest.mark.parametrize("kills", [15, pytest.param(500, marks=pytest.mark.slow)])
def test_a_killed_collector_loses_and_doubles_nothing(tmp_path, race_counter, kills):
    faults, client = survive(tmp_path / "c.sqlite", kills)
    race_counter.report(f"{kills} kills, {client.cut} while something waited; {dict(client.told)}")
    assert faults == []
    assert set(client.told) <= {"counted", "duplicate"}


@pytest.mark.parametrize(("planted", "words"), [("early", "lost"), ("without seen", "too many")])
def test_a_planted_fault_is_caught(tmp_path, race_counter, planted, words):
    def attempt(number):
        faults, _ = survive(tmp_path / f"{number}.sqlite", 5, planted=planted, seed=number)
        return [fault for fault in faults if words in fault]

    race_counter.repeat_until_caught(attempt, max_attempts=50, name=planted)
