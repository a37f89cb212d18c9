"""Workers of the service killed at any moment while four clients ask (T7)."""

import contextlib
import os
import random
import shutil
import signal
import threading
import time
from functools import partial

import httpx
import pytest

from ..service.charge_checks import (
    PATIENCE_S,
    PEOPLE,
    POINTS,
    STRIKE,
    find_charge_faults,
    make_snapshot,
    open_clients,
)
from ..service.running import BASE, make_keys, until

FORGETFUL = """
import secrets
from reticent.apps.query.desk import Attempt, Desk

Desk.attempt = lambda *_: Attempt(secrets.token_hex(16), None, None)
"""


@pytest.fixture
def folder(folder):
    make_snapshot(folder)
    return folder


class WorkerKiller:
    """Ends workers while clients ask: at a point that they pass, or at any time; now and then all of them."""

    def __init__(self, service, note, clients, rng):
        self.service, self.note, self.clients, self.rng = service, note, clients, rng
        self.kills = 0

    def _count_answers(self):
        return sum(len(client.seen) for client in self.clients)

    def kill_at(self, point):
        self.note.write_text(point)
        until(lambda: not self.note.exists(), PATIENCE_S)
        self.kills += 1

    def kill_at_any_time(self):
        before = self._count_answers()
        until(lambda: self._count_answers() > before, PATIENCE_S)
        time.sleep(self.rng.uniform(0, 0.05))
        workers = self.service.workers()
        victims = workers if self.rng.random() < 0.25 else self.rng.sample(workers, min(1, len(workers)))
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                self.kills += 1


def survive_kills(process, folder, keys, kills, points, *, planted="", seed=7):
    """Let four clients ask while workers are killed: at each of these points once, then at any time.

    Returns:
        The number of kills, of requests that were cut off, of answers; and what is wrong afterwards.
    """
    rng, stop, failures = random.Random(seed), threading.Event(), []
    note = folder.with_name(f"{folder.name}-planted") / "strike"
    service = process(planted=STRIKE + planted, forked=True, workers=2, job_lapse_s=0.5)
    with open_clients(service, keys, PEOPLE * 2) as clients:

        def ask_many(number, client):
            try:
                client.ask_many(number, random.Random(f"{seed} {number}"), stop)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=ask_many, args=item) for item in enumerate(clients)]
        for thread in threads:
            thread.start()
        killer = WorkerKiller(service, note, clients, rng)
        try:
            for point in points:
                killer.kill_at(point)
            while killer.kills < kills:
                if rng.random() < 0.3:
                    killer.kill_at(rng.choice(POINTS))
                else:
                    killer.kill_at_any_time()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert failures == []
        seen = [answer for client in clients for answer in client.seen]
        cut = sum(client.cut for client in clients)
    service.end(signal.SIGTERM)
    return killer.kills, cut, len(seen), find_charge_faults(folder, seen)


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_workers_charge_once_and_answer_the_same(process, folder, keys, race_counter, count):
    kills, cut, answers, faults = survive_kills(process, folder, keys, count, POINTS)
    race_counter.report(f"{kills} kills, {cut} requests cut off, {answers} answers")
    assert faults == set()
    assert answers > kills


def test_planted_forgotten_keys_are_caught(process, made_census, tmp_path, race_counter):
    def attempt(number):
        place = tmp_path / f"attempt {number}"
        shutil.copytree(made_census, place)
        make_snapshot(place)
        start = partial(process, folder=place)
        return survive_kills(start, place, make_keys(place), 2, (), planted=FORGETFUL, seed=number)[3]

    race_counter.repeat_until_caught(attempt, max_attempts=10, name="forgotten idempotency keys")


def test_a_killed_worker_is_replaced(process, folder, keys):
    """As `serve` starts them, each from nothing."""
    service = process(workers=2)
    before = set(until(lambda: len(service.workers()) == 2 and service.workers()))
    for worker in before:
        os.kill(worker, signal.SIGKILL)
    until(lambda: len(service.workers()) == 2 and not before & set(service.workers()), PATIENCE_S)
    with open_clients(service, keys, PEOPLE[:1]) as (alice,):
        alice.ask("one", "SELECT COUNT(*) FROM census WHERE age > 50")
    service.end(signal.SIGTERM)
    assert find_charge_faults(folder, alice.seen) == set()


def test_a_process_killed_in_the_middle_of_jobs_loses_none(process, keys):
    """Every job that was accepted is answered after a restart, and each question is charged once."""
    questions = [
        {"query": f"SELECT COUNT(*) FROM census WHERE age > {i}", "information": 1e-4} for i in range(6)
    ]
    headers = {"Authorization": f"Bearer {keys['alice']}"}
    first = process(job_threads=1, job_lapse_s=0.5)
    with httpx.Client(base_url=first.url, headers=headers, timeout=60) as client:
        jobs = [client.post(f"{BASE}/jobs", json=question).json()["job"] for question in questions]
    first.end(signal.SIGKILL)
    second = process(job_threads=1, job_lapse_s=0.5)
    with httpx.Client(base_url=second.url, headers=headers, timeout=60) as client:
        results = [
            until(lambda job=job: client.get(f"/api/v1/jobs/{job}").json()["result"], 120) for job in jobs
        ]
        answers = [client.post(f"{BASE}/ask", json=question).json() for question in questions]
        budget = client.get(f"{BASE}/budget").json()
    assert [answer["cells"] for answer in answers] == [result["cells"] for result in results]
    assert all(answer["cost"] == "0" for answer in answers)
    assert int(budget["spent"]) == int(budget["used"]) == 6 * 10**8
