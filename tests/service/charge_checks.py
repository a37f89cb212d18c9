"""Clients that ask until they are answered, and what must hold of the ledger once all of them are."""

import contextlib
import itertools
import json
import time
from dataclasses import dataclass

import httpx

from reticent.apps.query.desk import Desk
from reticent.ledger.verify import verify
from reticent.query.declarations import dataset_file
from reticent.query.opening import folder as kept_folder
from reticent.query.opening import snapshot_path
from reticent.query.rows import snapshot
from reticent.service.settings import Settings

from .running import BASE, until

UNITS = 10**7  # the cost of a question; finer ones cost twice that
PATIENCE_S = 240.0
PEOPLE = ("alice", "bob")

# A worker that passes the point whose name is on the note takes the note away and kills itself.
STRIKE = """
import contextlib, os, pathlib, signal
from reticent.ledger import SqlLedger
from reticent.query import Session
from reticent.apps.query import api
from reticent.apps.query import ask_route as asking
from reticent.service.state import State

NOTE = pathlib.Path(__file__).with_name("strike")

def strike_after(owner, verb):
    true = getattr(owner, verb)

    def passed(*args, **options):
        made = true(*args, **options)
        with contextlib.suppress(OSError):
            if NOTE.read_text() == verb:
                NOTE.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return made

    setattr(owner, verb, passed)

for owner, verbs in {
    State: ("attempted", "reserve", "settle", "queue", "claim", "finish"),
    SqlLedger: ("_request", "_fulfil"),
    Session: ("pay", "told"),
    api: ("Reply",),
    asking: ("Reply",),
}.items():
    for verb in verbs:
        strike_after(owner, verb)
"""
# After the reservation, after the charge, after the measurement, before the reply; then all others.
POINTS = ("reserve", "_request", "_fulfil", "Reply")
POINTS += ("settle", "pay", "told", "attempted", "queue", "claim", "finish")
JOB_POINTS = ("queue", "claim", "finish")  # which a question passes only as a job


@dataclass(frozen=True)
class SeenAnswer:
    """An answer that a person saw, and the idempotency key of the request."""

    person: str
    key: str
    query: str
    answer: dict


class PersistentClient:
    """One person who asks until there is an answer. Each request goes to whichever worker takes it."""

    def __init__(self, url, person, secret):
        self.person, self.seen, self.cut = person, [], 0
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {secret}"},
            limits=httpx.Limits(max_keepalive_connections=0),
            timeout=PATIENCE_S,
        )

    def close(self):
        self._http.close()

    def _request_until(self, status, method, path, **options):
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

    def _note(self, key, query, answer):
        self.seen.append(SeenAnswer(self.person, key, query, answer))
        return answer

    def ask(self, key, query, units=UNITS):
        body = {"query": query, "information": units * 1e-12}
        headers = {"Idempotency-Key": key}
        answer = self._request_until(200, "POST", f"{BASE}/ask", json=body, headers=headers)
        return self._note(key, query, answer)

    def ask_as_job(self, key, query, units=UNITS):
        body = {"query": query, "information": units * 1e-12}
        headers = {"Idempotency-Key": key}
        job = self._request_until(202, "POST", f"{BASE}/jobs", json=body, headers=headers)["job"]
        answer = until(lambda: self._request_until(200, "GET", f"/api/v1/jobs/{job}")["result"], PATIENCE_S)
        return self._note(key, query, answer)

    def ask_many(self, number, rng, stop):
        """Ask new questions, and most of them again: under the same key, another key, or more exactly."""
        for i in itertools.count():
            if stop.is_set():
                return
            key = f"{self.person} {number} {i}"
            query = f"SELECT COUNT(*) FROM census WHERE age > {number} AND income > {i}"
            ask = self.ask_as_job if rng.random() < 0.25 else self.ask
            ask(key, query)
            repetition = rng.random()
            if repetition < 0.4:
                self.ask(key, query)
            elif repetition < 0.6:
                self.ask(f"{key} again", query)
            elif repetition < 0.8:
                self.ask(f"{key} finer", query, 2 * UNITS)


@contextlib.contextmanager
def open_clients(service, keys, names):
    clients = [PersistentClient(service.url, name, keys[name]) for name in names]
    with contextlib.ExitStack() as stack:
        for client in clients:
            stack.callback(client.close)
        yield clients


def find_charge_faults(folder, seen):
    """Return what is wrong once everybody has their answers, in words."""
    wrong, bought, last = set(), {}, {}
    answers = {}
    for item in seen:
        answers.setdefault(item.key, set()).add(json.dumps(item.answer, sort_keys=True))
        worth = int(item.answer["information"])
        if worth >= bought.get(item.query, (0, ""))[0]:
            bought[item.query] = worth, item.person
            last[item.query] = item.answer["cells"]
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
            charged = sum(worth for worth, buyer in bought.values() if buyer == person)
            if desk.state.quota("census", desk.state.named(person))[1] != charged:
                wrong.add("other counts than charges")
    return wrong


def make_snapshot(folder):
    """Store the census as a snapshot, which a new worker opens quickly."""
    path = folder / "census.yaml"
    data = dataset_file.read(path)
    kept_folder(path).mkdir(mode=0o700)
    snapshot.make(data, folder, snapshot_path(path, data))
