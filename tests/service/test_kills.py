"""T7 for the service: workers killed in the middle of asks. No answer without its charge, no charge twice."""

import contextlib
import itertools
import json
import os
import random
import signal
import threading
import time
from dataclasses import dataclass

import httpx
import pytest

from reticent.apps.query.desk import Desk
from reticent.ledger.verify import verify
from reticent.query.declarations import dataset_file
from reticent.query.opening import folder as kept_folder
from reticent.query.opening import snapshot_path
from reticent.query.rows import snapshot
from reticent.service.settings import Settings

from .running import BASE, until

# A worker that passes the point whose name is on the paper takes the paper away and dies.
STRIKE = """
import contextlib, os, pathlib, signal
from reticent.ledger import SqlLedger
from reticent.query import Session
from reticent.apps.query import api
from reticent.apps.query import ask_route as asking
from reticent.service.state import State

PAPER = pathlib.Path(__file__).with_name("strike")

def struck_after(place, verb):
    true = getattr(place, verb)

    def passed(*args, **options):
        made = true(*args, **options)
        with contextlib.suppress(OSError):
            if PAPER.read_text() == verb:
                PAPER.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return made

    setattr(place, verb, passed)

for place, verbs in {
    State: ("attempted", "reserve", "settle", "queue", "claim", "finish"),
    SqlLedger: ("_request", "_fulfil"),
    Session: ("pay", "told"),
    api: ("Reply",),
    asking: ("Reply",),
}.items():
    for verb in verbs:
        struck_after(place, verb)
"""
# After the reservation, after the charge, after the measurement, before the reply; then all others.
POINTS = ("reserve", "_request", "_fulfil", "Reply")
POINTS += ("settle", "pay", "told", "attempted", "queue", "claim", "finish")
UNITS = 10**7  # what a question costs; finer ones are twice that
PATIENCE_S = 120.0
PEOPLE = ("alice", "bob")


@dataclass(frozen=True)
class Told:
    """An answer that somebody saw, and under which key."""

    person: str
    key: str
    query: str
    answer: dict


class Client:
    """One person who asks until there is an answer. Each request goes to whichever worker takes it."""

    def __init__(self, url, person, secret):
        self.person, self.told, self.cut = person, [], 0
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {secret}"},
            limits=httpx.Limits(max_keepalive_connections=0),
            timeout=PATIENCE_S,
        )

    def close(self):
        self._http.close()

    def _until(self, status, method, path, **options):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                reply = self._http.request(method, path, **options)
            except httpx.TransportError:
                self.cut += 1
            else:
                if reply.status_code == status:
                    return reply.json()
                assert reply.status_code == 503, reply.text
            time.sleep(0.02)
        raise AssertionError(f"no answer in {PATIENCE_S} s")

    def _saw(self, key, query, answer):
        self.told.append(Told(self.person, key, query, answer))
        return answer

    def ask(self, key, query, units=UNITS):
        body = {"query": query, "information": units * 1e-12}
        headers = {"Idempotency-Key": key}
        return self._saw(key, query, self._until(200, "POST", f"{BASE}/ask", json=body, headers=headers))

    def have_done(self, key, query, units=UNITS):
        """The same as a job."""
        body = {"query": query, "information": units * 1e-12}
        headers = {"Idempotency-Key": key}
        made = self._until(202, "POST", f"{BASE}/jobs", json=body, headers=headers)
        look = lambda: self._until(200, "GET", f"/api/v1/jobs/{made['job']}")["result"]  # noqa: E731
        return self._saw(key, query, until(look, PATIENCE_S))

    def live(self, number, rng, stop):
        """Ask fresh questions, and most of them again: under the same key, another key, or more exactly."""
        for i in itertools.count():
            if stop.is_set():
                return
            key = f"{self.person} {number} {i}"
            query = f"SELECT COUNT(*) FROM census WHERE age > {number} AND income > {i}"
            way = self.have_done if rng.random() < 0.25 else self.ask
            way(key, query)
            again = rng.random()
            if again < 0.4:
                self.ask(key, query)
            elif again < 0.6:
                self.ask(f"{key} again", query)
            elif again < 0.8:
                self.ask(f"{key} finer", query, 2 * UNITS)


def faults(folder, told):
    """What is wrong once everybody has their answers, in words."""
    wrong, bought, last = set(), {}, {}
    answers = {}
    for one in told:
        answers.setdefault(one.key, set()).add(json.dumps(one.answer, sort_keys=True))
        worth = int(one.answer["information"])
        if worth >= bought.get(one.query, (0, ""))[0]:
            bought[one.query] = worth, one.person
            last[one.query] = one.answer["cells"]
    if any(len(texts) > 1 for texts in answers.values()):
        wrong.add("a retry was told something else")
    with contextlib.closing(Desk(Settings(folder))) as desk:
        verify(desk.ledger)
        for query, (worth, _) in bought.items():
            known = desk.known("census", query)
            if known is None or known.information < worth:
                wrong.add("an answer without its charge")
            elif known.to_json()["cells"] != last[query]:
                wrong.add("an answer that is not recorded")
        if desk.ledger.balance("census").spent != sum(worth for worth, _ in bought.values()):
            wrong.add("other charges than for what was asked")
        if desk.ledger.pending("census"):
            wrong.add("something is paid for and not measured")
        for person in PEOPLE:
            charged = sum(worth for worth, who in bought.values() if who == person)
            if desk.state.quota("census", desk.state.named(person))[1] != charged:
                wrong.add("other counts than charges")
    return wrong


@contextlib.contextmanager
def clients(service, keys, names):
    found = [Client(service.url, name, keys[name]) for name in names]
    with contextlib.ExitStack() as held:
        for one in found:
            held.callback(one.close)
        yield found


@pytest.fixture
def folder(folder):
    """With a snapshot, which a new worker opens quickly."""
    path = folder / "census.yaml"
    data = dataset_file.read(path)
    kept_folder(path).mkdir(mode=0o700)
    snapshot.make(data, folder, snapshot_path(path, data))
    return folder


@pytest.fixture
def paper(folder):
    return folder.with_name(f"{folder.name}-planted") / "strike"


class Killer:
    """Ends workers while others live: at a point that they pass, or at any time; now and then all of them."""

    def __init__(self, service, paper, people, rng):
        self.service, self.paper, self.people, self.rng = service, paper, people, rng
        self.kills = 0

    def _answers(self):
        return sum(len(one.told) for one in self.people)

    def at(self, point):
        self.paper.write_text(point)
        until(lambda: not self.paper.exists(), PATIENCE_S)
        self.kills += 1

    def at_any_time(self):
        before = self._answers()
        until(lambda: self._answers() > before, PATIENCE_S)
        time.sleep(self.rng.uniform(0, 0.05))
        found = self.service.workers()
        for victim in found if self.rng.random() < 0.25 else self.rng.sample(found, min(1, len(found))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                self.kills += 1


def survive(process, folder, keys, paper, kills, points, seed=7):
    """Four clients at work, workers killed at each of these points once, then here and there."""
    rng, stop, failed = random.Random(seed), threading.Event(), []
    service = process(planted=STRIKE, forked=True, workers=2, job_lapse_s=0.5)
    with clients(service, keys, PEOPLE * 2) as people:

        def living(number, one):
            try:
                one.live(number, random.Random(f"{seed} {number}"), stop)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=living, args=given) for given in enumerate(people)]
        for thread in threads:
            thread.start()
        killer = Killer(service, paper, people, rng)
        try:
            for point in points:
                killer.at(point)
            while killer.kills < kills:
                if rng.random() < 0.3:
                    killer.at(rng.choice(POINTS))
                else:
                    killer.at_any_time()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert failed == []
        told = [answer for one in people for answer in one.told]
        cut = sum(one.cut for one in people)
    service.end(signal.SIGTERM)
    assert faults(folder, told) == set()
    return killer.kills, cut, len(told)


def test_killed_workers_charge_once_and_answer_the_same(process, folder, keys, paper):
    survive(process, folder, keys, paper, 6, POINTS[:4])


@pytest.mark.slow
def test_killed_workers_charge_once_and_answer_the_same_in_full(process, folder, keys, paper):
    kills, cut, told = survive(process, folder, keys, paper, 200, POINTS)
    print(f"{kills} kills, {cut} requests cut off, {told} answers")
    assert cut > kills / 4, "most were killed at rest"
    assert told > kills


@pytest.mark.slow
def test_a_killed_worker_is_replaced(process, folder, keys):
    """As `serve` starts them, each from nothing."""
    service = process(workers=2)
    before = set(until(lambda: len(service.workers()) == 2 and service.workers()))
    for one in before:
        os.kill(one, signal.SIGKILL)
    until(lambda: len(service.workers()) == 2 and not before & set(service.workers()))
    with clients(service, keys, PEOPLE[:1]) as (alice,):
        alice.ask("one", "SELECT COUNT(*) FROM census WHERE age > 50")
    service.end(signal.SIGTERM)
    assert faults(folder, alice.told) == set()


# Planted

EARLY = """
import threading
from reticent.ledger import MemoryLedger
from reticent.apps.query.desk import Desk

true = Desk.ask

def early(self, person, name, query, accuracy, **options):
    session = self.session(name)
    elsewhere = Session(session.data, session._opened(), MemoryLedger())
    threading.Timer(60, true, (self, person, name, query, accuracy), options).start()
    return elsewhere.ask(query, accuracy)

Desk.ask = early
"""

FORGETFUL = """
import secrets
from reticent.apps.query.desk import Attempt, Desk

Desk.attempt = lambda *_: Attempt(secrets.token_hex(16), None, None)
"""


def test_the_check_finds_an_answer_that_leaves_before_it_is_paid(process, folder, keys):
    service = process(planted=STRIKE + EARLY)
    with clients(service, keys, PEOPLE[:1]) as (alice,):
        alice.ask("one", "SELECT COUNT(*) FROM census WHERE age > 50")
        service.end(signal.SIGKILL)
    assert "an answer without its charge" in faults(folder, alice.told)


def test_the_check_finds_a_service_that_forgets_keys(process, folder, keys, paper):
    """Cut off once it has counted what it will charge, it counts the retry as well."""
    query = "SELECT COUNT(*) FROM census WHERE age > 50"
    service = process(planted=STRIKE + FORGETFUL, forked=True, workers=2)
    paper.write_text("reserve")
    with clients(service, keys, PEOPLE[:1]) as (alice,):
        for _ in range(2):
            alice.ask("one", query)
    assert not paper.exists()
    service.end(signal.SIGKILL)
    assert faults(folder, alice.told) == {"a retry was told something else", "other counts than charges"}
