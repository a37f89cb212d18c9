"""T12: when a reply leaves tells nothing about a row, nor about the noise; nor does what it is made of.

Two data sets differ in one row, which every question counts in one of them and in the other not. Here the
service's clock is a number that only planted work and the waiting itself move, so every time is exact.
Statistics of real times are in tests/races.
"""

import asyncio
import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from reticent.apps.query import ask_route
from reticent.apps.query.desk import Desk
from reticent.apps.service.serving import create_app
from reticent.query.answers import Answer
from reticent.query.declarations import dataset_file
from reticent.query.measure import Plan
from reticent.query.opening import folder as kept_folder
from reticent.query.opening import snapshot_path
from reticent.query.rows import snapshot
from reticent.randomness import SimulationStream
from reticent.service import limits
from reticent.service.settings import Settings

from .running import MEAN, PATIENT, Service, make_keys, wait_until_warm

ROWS = 100
MOST = 1_000_000
DECLARATION = """\
name: {name}
version: 1
source: {name}.csv
unit: row
relation: replace one
rows: {rows}
budget: {{epsilon: 8, delta: 1e-4}}
policy: share
columns:
  income: {{type: number, low: 0, high: 1000000, step: 1, missing: 0}}
"""


def write(folder, name, last):
    """Rows that no question counts, and a last one; as a snapshot, which is quick to read."""
    folder.mkdir(exist_ok=True)
    rows = ["income", *["0"] * (ROWS - 1), str(last)]
    (folder / f"{name}.csv").write_text("\n".join(rows) + "\n")
    path = folder / f"{name}.yaml"
    path.write_text(DECLARATION.format(name=name, rows=ROWS))
    data = dataset_file.read(path)
    kept_folder(path).mkdir()
    snapshot.make(data, folder, snapshot_path(path, data))


def question(threshold):
    """A count that was never asked, for about the least that can be paid."""
    where = {"column": "income", "op": ">=", "value": threshold}
    return {"query": {"kind": "count", "where": where}, "information": 1e-5}


# Times


async def ask_timed(app, key, name, body, clock):
    """Send one request straight into the application; return when its reply left, and the reply."""
    text = json.dumps(body).encode()
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/api/v1/datasets/{name}/ask",
        "query_string": b"",
        "headers": [
            (b"authorization", f"Bearer {key}".encode()),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(text)).encode()),
        ],
        "client": ("127.0.0.1", 1),
    }
    sent = []

    async def receive():
        return {"type": "http.request", "body": text, "more_body": False}

    async def send(message):
        sent.append((clock() - start, message))

    start = clock()
    await app(scope, receive, send)
    (left, head), (_, content) = sent
    assert head["status"] == 200, content
    return left, json.loads(content["body"])


def time_replies(folder, names, *, grid_s, clock, at_once=1, ledger=None):
    """Ask new questions of the data sets named one after the other, so many at once.

    Returns:
        For each reply: after how many seconds it left, whether it was about the twin, and its noise.
    """
    write(folder, "left", 0)
    write(folder, "twin", MOST)
    key = make_keys(folder)["alice"]
    settings = Settings(folder, grid_s=grid_s, rate=1e6, burst=10**6, threads=1, **PATIENT)
    app = create_app(settings, desk=lambda: Desk(settings, ledger=ledger))
    replies, thresholds, names = [], iter(range(1, MOST)), iter(names)

    async def ask(name):
        left, reply = await ask_timed(app, key, name, question(next(thresholds)), clock)
        return left, name == "twin", reply["cells"][0]["unbiased"] - (name == "twin")

    async def work():
        for name in names:
            replies.append(await ask(name))

    async def main():
        async with app.router.lifespan_context(app):
            wait_until_warm()  # a rehearsal would move the clock
            for name in ("left", "twin") * 2:
                await ask(name)
            await asyncio.gather(*(work() for _ in range(at_once)))

    asyncio.run(main())
    return [np.array(column) for column in zip(*replies, strict=True)]


class VirtualClock:
    """A clock that moves only where it is told to; stands for the module `time`."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    async def sleep_in_loop(self, seconds):
        """Stand for `asyncio.sleep`."""
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    """The clock by which replies wait."""
    clock = VirtualClock()
    for module in (ask_route, limits):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(limits, "asyncio", SimpleNamespace(sleep=clock.sleep_in_loop))
    return clock


@pytest.fixture
def slow_row(monkeypatch, clock):
    """Planted: the row that counts takes 20 ms more."""
    true = Plan.vector

    def vector(self, rows):
        exact = true(self, rows)
        if exact != [0]:
            clock.now += 0.02
        return exact

    monkeypatch.setattr(Plan, "vector", vector)


@pytest.fixture
def slow_noise(monkeypatch, clock):
    """Planted: large noise takes longer, up to 20 ms. It is the same each time."""
    true, numbers = Plan.measure, itertools.count()

    def measure(self, exact, information, rng=None):
        values = true(self, exact, information, SimulationStream(next(numbers)))
        clock.now += 0.02 * (1 - math.exp(-abs(values[0]) * 1e-9))
        return values

    monkeypatch.setattr(Plan, "measure", measure)


TURNS = ("left", "twin", "twin", "left") * 3


@pytest.mark.usefixtures("slow_row", "slow_noise")
def test_the_grid_hides_a_row_and_noise_that_take_longer(tmp_path, clock):
    times, _, _ = time_replies(tmp_path / "desk", TURNS, grid_s=0.1, clock=clock.monotonic)
    assert times == pytest.approx(np.full(len(TURNS), 0.1))


@pytest.mark.usefixtures("slow_row")
def test_without_the_grid_the_row_is_seen(tmp_path, clock):
    times, is_twin, _ = time_replies(tmp_path / "desk", TURNS, grid_s=0.0, clock=clock.monotonic)
    assert times == pytest.approx(0.02 * is_twin)


@pytest.mark.usefixtures("slow_noise")
def test_without_the_grid_the_noise_is_seen(tmp_path, clock):
    times, is_twin, noise = time_replies(tmp_path / "desk", TURNS, grid_s=0.0, clock=clock.monotonic)
    assert len(set(times)) > 1
    drawn = np.abs(
        noise + is_twin
    )  # what takes longer is what is measured: the row that counts and its noise
    assert np.array_equal(np.argsort(times), np.argsort(drawn))


# What replies are made of


def shapes(folder, last):
    """Replies of every kind, with their headers; what comes from noise is left out."""
    write(folder, "left", last)
    service = Service(folder, make_keys(folder))
    found = []
    with service.client:
        dear = {**question(3), "information": 100.0}
        for body in (question(1), question(2), question(2), dear, {**MEAN, "query": "SELECT 1/0"}):
            reply = service.ask("alice", body, path="/api/v1/datasets/left/ask")
            headers = {name: told for name, told in reply.headers.items() if name != "content-length"}
            found.append((reply.status_code, headers, json.loads(reply.text, object_pairs_hook=blank)))
    return found


def blank(pairs):
    """An object, in its order, with the types of what noise and salts are in."""
    noisy = ("value", "low", "high", "unbiased", "log_root")
    return [(name, type(told) if name in noisy else told) for name, told in pairs]


def test_replies_are_made_alike(tmp_path):
    left, twin = shapes(tmp_path / "left", 0), shapes(tmp_path / "twin", MOST)
    assert left == twin
    assert [status for status, *_ in left] == [200, 200, 200, 409, 400]


def test_a_reply_that_tells_more_is_caught(tmp_path, monkeypatch):
    exact, vector, to_json = [], Plan.vector, Answer.to_json
    monkeypatch.setattr(Plan, "vector", lambda self, rows: exact.append(vector(self, rows)) or exact[-1])
    monkeypatch.setattr(
        Answer, "to_json", lambda self: to_json(self) | {"padding": " " * len(str(exact[-1]))}
    )
    assert shapes(tmp_path / "left", 0) != shapes(tmp_path / "twin", MOST)
