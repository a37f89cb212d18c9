"""What an analyst notices of others who ask the costliest questions as fast as they may (T21b).

Two services with default settings on the same rows, each in processes of its own. One is left alone; the
other is flooded, in turns, by others whose keys were never used before: histograms of 65,536 cells, answers,
prices and rehearsals, equal bins and other edges, each key from eight connections as fast as its rate of
requests allows, so that it first spends the rate of its work and then is refused. Meanwhile an analyst looks
at prices, or asks what is bought already. While one service is measured the other has nothing to do: a flood
ends by itself, with the reply to what it asked last.

In each round the 99th percentile beside the flood is divided by that of the idle service just before. The
figure is the median of the rounds; the worst, and how busy the machine was, are printed beside it.

One figure has another flood: prices of tables that can be estimated from 1,000 tables which are recorded.
The idle service has no recorded tables, so the figure shows what they cost an analyst, and what others do.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.measure import Figure
from benchmarks.query import place
from benchmarks.service import MEAN, ROWS, process
from reticent.apps.query.desk import Desk
from reticent.apps.service.serving import serve
from reticent.query import By, census
from reticent.query.language import tree
from reticent.service.keys import Role
from reticent.service.settings import Settings
from reticent.service.state import State

BASE = "/api/v1/datasets/census"
FLOODERS, CONNECTIONS, A_SECOND = 2, 8, 50
ROUNDS = 5
LOOKS = {"price": (200, 0.02), "ask": (100, 0.0)}  # in a window, and the pause after each, in seconds
CELLS = 1 << 16
TABLES = 1000  # recorded, of 16 cells each
NEAR = {"query": "SELECT COUNT(*) FROM census WHERE age >= 36 AND hours >= 16", "error": 100.0}
EDGES = json.dumps([3 * i + i % 2 for i in range(1, 30_000)])


def run_default(port: int, folder: str) -> None:
    serve(Settings(Path(folder)), port=port)


def call(connection: http.client.HTTPConnection, key: str, verb: str, body: dict | bytes) -> int:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", f"{BASE}/{verb}", text, headers)
    reply = connection.getresponse()
    reply.read()
    return reply.status


def costly(number: int) -> tuple[str, bytes]:
    """The costliest valid questions, none of them twice. Text, so that making it takes no time."""
    cut = f'"edges":{EDGES}' if number % 4 == 3 else f'"bins":{CELLS}'
    where = f'{{"column":"age","op":">","value":{number % 90}}}'
    query = f'{{"kind":"histogram","by":[{{"column":"income",{cut}}}],"where":{where}}}'
    verb = ("ask", "price", "rehearse", "ask")[number % 4]
    return verb, f'{{"query":{query},"information":{1e-6 * (1 + number)}}}'.encode()


def estimated(number: int) -> tuple[str, bytes]:
    """Return the verb and text of a question about a table that recorded tables say much of."""
    ages = ",".join(str(2 + number % 7 + 6 * place) for place in range(14))
    hours = ",".join(str(5 + 6 * place) for place in range(1 + number % 12))
    by = f'{{"column":"age","edges":[{ages}]}},{{"column":"hours","edges":[{hours}]}}'
    query = f'{{"kind":"histogram","by":[{by}]}}'
    return ("price", "known")[number % 2], (
        f'{{"query":{query}}}'.encode()
        if number % 2
        else f'{{"query":{query},"information":{1e-5 * (1 + number)}}}'.encode()
    )


def record_tables(folder: Path) -> None:
    """Buy tables of the census, each for next to nothing."""
    with contextlib.closing(Desk(Settings(folder, grid_s=0.0))) as desk:
        session = desk.session("census")
        for number in range(TABLES):
            ages = (18 + number % 17, 36 + number % 19, 56 + number % 23)
            hours = (2 + number % 7, 16 + number % 11, 32 + number % 13)
            by = [By("age", edges=ages), By("hours", edges=hours)]
            session.ask(tree.histogram(by), information=1e-6, reuse="key")


def run_flood(port: int, *keys: str, ask_for: Callable[[int], tuple[str, bytes]] = costly) -> None:
    """Ask until told to end, as often as the rate of requests allows."""
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # it stands for other machines

    def ask(key: str, first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for number in itertools.count(first, CONNECTIONS):
            if ending.is_set():
                return
            status = call(connection, key, *ask_for(number))
            print(status, flush=True)
            ending.wait(CONNECTIONS / A_SECOND)

    crew = [threading.Thread(target=ask, args=(key, i)) for key in keys for i in range(CONNECTIONS)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()


@contextlib.contextmanager
def flooding(port: int, keys: list[str], kind: str = "flood") -> Iterator[list[str]]:
    """Others who ask; the replies to them, once they have ended."""
    command = [sys.executable, "-m", "benchmarks.stalls", kind, str(port), *keys]
    flood = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
    assert flood.stdout is not None
    replies = [flood.stdout.readline().strip()]  # it has begun
    reader = threading.Thread(target=lambda: replies.extend(line.strip() for line in flood.stdout))
    reader.start()
    try:
        yield replies
    finally:
        flood.terminate()
        reader.join()
        flood.wait()


def looks(port: int, key: str, verb: str, body: dict) -> list[float]:
    """How long each of many calls took."""
    connection, found = http.client.HTTPConnection("127.0.0.1", port), []
    count, pause_s = LOOKS[verb]
    for number in range(count):
        asked = body | {"error": body["error"] + number} if verb == "price" else body
        start = time.perf_counter()
        status = call(connection, key, verb, asked)
        found.append(time.perf_counter() - start)
        if status != 200:
            raise RuntimeError(f"{verb} of the other analyst was refused: {status}")
        time.sleep(pause_s)
    return found


@contextlib.contextmanager
def service(base: Path, *, has_tables: bool = False) -> Iterator[tuple[int, list[str]]]:
    """One that answered before; its port, and the keys: an analyst's, and those of others."""
    folder = census.write(base, rows=ROWS).parent
    if has_tables:
        record_tables(folder)
    with contextlib.closing(State.of(folder)) as state:
        people = 1 + 2 * ROUNDS * FLOODERS
        keys = [state.make_key(f"analyst{i}", Role.ANALYST)[1] for i in range(people)]
    with process("default", folder, module="benchmarks.stalls") as port:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for verb in ("ask", "price", "rehearse"):
            call(connection, keys[0], verb, MEAN)
        call(connection, keys[0], *costly(1))  # the large lanes, too
        yield port, keys


def beside_a_flood(verb: str, kind: str = "flood") -> Callable[[], float]:
    def measured() -> float:
        ratios, body = [], NEAR if kind == "tables" else MEAN
        with (
            place() as base,
            service(base / "idle") as (idle, own),
            service(base / "flooded", has_tables=kind == "tables") as (busy, keys),
        ):
            looks(idle, own[0], verb, body)
            looks(busy, keys[0], verb, body)
            others = iter(keys[1:])
            for _ in range(ROUNDS):
                alone = looks(idle, own[0], verb, body)
                with flooding(busy, list(itertools.islice(others, FLOODERS)), kind) as replies:
                    beside = looks(busy, keys[0], verb, body)
                ratios.append(late(beside) / late(alone))
                print(
                    f"  {verb}: p99 {1e3 * late(alone):.1f} ms alone, {1e3 * late(beside):.1f} beside "
                    f"{replies.count('200')} answers and {len(replies)} requests; median "
                    f"{1e3 * statistics.median(alone):.1f}, {1e3 * statistics.median(beside):.1f}; "
                    f"load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
        print(f"  {verb}: worst of {ROUNDS} rounds {max(ratios):.2f}", flush=True)
        return statistics.median(ratios)

    return measured


def late(times: list[float]) -> float:
    """The 99th percentile."""
    return sorted(times)[len(times) * 99 // 100]


FIGURES = [
    Figure("service, price beside a flood", "the same, idle", 2.0, beside_a_flood("price"), at_most=True),
    Figure(
        f"service, price beside {TABLES:,} tables",
        "the same, idle, no tables",
        2.0,
        beside_a_flood("price", "tables"),
        at_most=True,
    ),
    Figure("service, repeats beside a flood", "the same, idle", 2.0, beside_a_flood("ask"), at_most=True),
]

if __name__ == "__main__":
    run_tables = partial(run_flood, ask_for=estimated)
    run = {"default": run_default, "flood": run_flood, "tables": run_tables}[sys.argv[1]]
    run(int(sys.argv[2]), *sys.argv[3:])
