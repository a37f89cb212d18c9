"""What an analyst notices of others who ask the costliest questions as fast as they may (T21b).

One service with its default limits, in a process of its own. An analyst looks at prices and asks what is
bought already, 25 times a second; meanwhile, in turns, nobody else asks anything, or two others send what the
rates let through of the largest histograms: answers, prices and rehearsals, equal bins and other edges, each
from eight connections. The figure is the 99th percentile beside the flood / that without.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measure import Figure
from benchmarks.query import place
from benchmarks.service import MEAN, ROWS, process
from reticent.apps.service.serving import serve
from reticent.query import census
from reticent.service.keys import Role
from reticent.service.settings import Settings
from reticent.service.state import State

BASE = "/api/v1/datasets/census"
FLOODERS, CONNECTIONS, A_SECOND = 2, 8, 50
ROUNDS, LOOKS, PAUSE_S = 3, 150, 0.04
CELLS = 1 << 16


def run_default(port: int, folder: str) -> None:
    serve(Settings(Path(folder)), port=port)


def call(connection: http.client.HTTPConnection, key: str, verb: str, body: dict) -> int:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request("POST", f"{BASE}/{verb}", json.dumps(body), headers)
    reply = connection.getresponse()
    reply.read()
    return reply.status


def costly(number: int) -> tuple[str, dict]:
    """The costliest valid questions, none of them twice."""
    by = {"column": "income", "bins": CELLS}
    if number % 4 == 3:
        by = {"column": "income", "edges": [3 * i + i % 2 for i in range(1, 30_000)]}
    where = {"column": "age", "op": ">", "value": number % 90}
    body = {"query": {"kind": "histogram", "by": [by], "where": where}, "information": 1e-6 * (1 + number)}
    return ("ask", "price", "rehearse", "ask")[number % 4], body


def run_flood(port: int, *keys: str) -> None:
    """Ask until killed, as often as the rate of requests allows."""

    def ask(key: str, first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for number in itertools.count(first, CONNECTIONS):
            call(connection, key, *costly(number))
            time.sleep(CONNECTIONS / A_SECOND)

    crew = [threading.Thread(target=ask, args=(key, i)) for key in keys for i in range(CONNECTIONS)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()


@contextlib.contextmanager
def flooding(port: int, keys: list[str]) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.stalls", "flood", str(port), *keys]
    flood = subprocess.Popen(command, start_new_session=True)
    try:
        time.sleep(2.0)  # it starts
        yield
    finally:
        os.killpg(flood.pid, signal.SIGKILL)
        flood.wait()
        time.sleep(2.0)  # what it left is done


def looks(port: int, key: str, verb: str, body: dict) -> list[float]:
    """How long each of many calls took."""
    connection, found = http.client.HTTPConnection("127.0.0.1", port), []
    for number in range(LOOKS):
        asked = body | {"error": body["error"] + number} if verb == "price" else body
        start = time.perf_counter()
        status = call(connection, key, verb, asked)
        found.append(time.perf_counter() - start)
        if status != 200:
            raise RuntimeError(f"{verb} of the other analyst was refused: {status}")
        time.sleep(PAUSE_S)
    return found


def beside_a_flood(verb: str) -> Callable[[], float]:
    def measured() -> float:
        with place() as base:
            folder = census.write(base / "desk", rows=ROWS).parent
            with contextlib.closing(State.of(folder)) as state:
                own, *others = (state.make_key(f"analyst{i}", Role.ANALYST)[1] for i in range(1 + FLOODERS))
            with process("default", folder, module="benchmarks.stalls") as port:
                call(http.client.HTTPConnection("127.0.0.1", port), own, "ask", MEAN)
                looks(port, own, verb, MEAN)
                idle, flooded = [], []
                for _ in range(ROUNDS):
                    idle += looks(port, own, verb, MEAN)
                    with flooding(port, others):
                        flooded += looks(port, own, verb, MEAN)
        return late(flooded) / late(idle)

    return measured


def late(times: list[float]) -> float:
    """The 99th percentile."""
    return sorted(times)[len(times) * 99 // 100]


FIGURES = [
    Figure("service, price beside a flood", "the same without", 2.0, beside_a_flood("price"), at_most=True),
    Figure("service, repeats beside a flood", "the same without", 2.0, beside_a_flood("ask"), at_most=True),
]

if __name__ == "__main__":
    {"default": run_default, "flood": run_flood}[sys.argv[1]](int(sys.argv[2]), *sys.argv[3:])
