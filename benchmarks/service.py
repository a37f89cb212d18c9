"""The service against a bare FastAPI application, and answers that pay against the ledger's bare charges.

Both serve with uvicorn in processes of their own, under the same options. 64 clients that keep their
connections ask as fast as they are answered, from this process; rounds of either side take turns. The bare
application validates the same body and returns the same JSON, the way FastAPI does by default: it knows no
keys, no roles, no rate, no ledger, and writes no log.

With the time grid no client is answered more than once in each step: 64 of them get 640 answers a second at
most, on any machine. Folders are made in `out`; set RETICENT_BENCH_DIR for another place.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import uvicorn
import uvloop
from fastapi import FastAPI

from benchmarks.measure import Figure, cpu_ratio
from benchmarks.query import place
from reticent.apps.query.schemas import Priced
from reticent.apps.service.serving import serve
from reticent.ledger import Amount, SqlLedger, Terms, Unit
from reticent.privacy import MAX_UNITS, Neighbours
from reticent.query import census
from reticent.service.keys import Role
from reticent.service.settings import Settings
from reticent.service.state import State

CLIENTS, REQUESTS, REPETITIONS = 64, 2000, 9
ANALYSTS, ROWS, GRID_S, THREADS = 8, 2000, 0.1, 8
PATH = "/api/v1/datasets/census/ask"
MEAN = {"query": "SELECT AVG(income) FROM census", "error": 4000.0}
TERMS = Terms("bench", Unit.MU2, Neighbours.REPLACE_ONE, "one person", MAX_UNITS)


def bare() -> FastAPI:
    """What the service is measured against."""
    app = FastAPI()
    answer = json.loads(os.environ["RETICENT_BENCH_ANSWER"])

    @app.post("/api/v1/datasets/{name}/ask")
    async def ask(name: str, body: Priced) -> dict:
        return answer

    return app


def run_bare(port: int) -> None:
    uvicorn.run(
        bare(),
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        http="httptools",
        ws="none",
    )


def run_ours(port: int, folder: str, grid_s: str, workers: str) -> None:
    most = {"rate": 1e6, "burst": 10**6, "work_rate": 1e9, "work_burst": 10**9}
    serve(Settings(Path(folder), grid_s=float(grid_s), **most), port=port, workers=int(workers))


@contextlib.contextmanager
def process(what: str, *given: object, module: str = "benchmarks.service", **variables: str) -> Iterator[int]:
    """A server of a module in a process of its own; its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", module, what, str(port), *map(str, given)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, start_new_session=True, env=os.environ | variables, **quiet)
    try:
        until_up(server, port)
        yield port
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def until_up(server: subprocess.Popen, port: int, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.05)
    raise RuntimeError("the server did not start")


def request(key: str, body: dict) -> bytes:
    """The bytes of a question."""
    text = json.dumps(body).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text


class Client(asyncio.Protocol):
    """One connection that sends the next request as soon as the last one is answered."""

    def __init__(self, requests: Iterator[bytes], ended: asyncio.Future) -> None:
        self._requests, self._ended = requests, ended
        self._got = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        sent = next(self._requests, None)
        if sent is None:
            self._transport.close()
        else:
            self._transport.write(sent)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, mark, body = self._got.partition(b"\r\n\r\n")
        if not mark:
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self.connection_lost(RuntimeError(self._got[:1000].decode()))
            self._transport.abort()
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) >= length:
            self._got = b""
            self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if self._ended.done():
            return
        if error is not None:
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)


def load(port: int, requests: Iterable[bytes]) -> None:
    """Send all requests, by 64 clients at once; whoever is free takes the next."""

    async def run() -> None:
        loop, waiting = asyncio.get_running_loop(), iter(requests)
        ends = [loop.create_future() for _ in range(CLIENTS)]
        for end in ends:
            await loop.create_connection(lambda end=end: Client(waiting, end), "127.0.0.1", port)
        await asyncio.gather(*ends)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


class Ours:
    """The service on a small census, with one question bought."""

    def __init__(self, folder: Path, port: int, keys: list[str]) -> None:
        self.folder, self.port, self.keys = folder, port, keys
        self._levels = itertools.count(1)
        for _ in range(3):
            self.answer = self._ask(MEAN)

    def _ask(self, body: dict) -> str:
        headers = {"Authorization": f"Bearer {self.keys[0]}", "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.port}{PATH}"
        asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(asked) as reply:
            return reply.read().decode()

    def reused(self, analysts: int = 1, count: int = REQUESTS) -> None:
        each = [request(key, MEAN) for key in self.keys[:analysts]]
        load(self.port, itertools.islice(itertools.cycle(each), count))

    def reworded(self) -> None:
        """Nobody asked for just this error before, but what was bought is good enough."""
        numbers = itertools.islice(self._levels, REQUESTS)
        load(self.port, [request(self.keys[0], MEAN | {"error": 5000 + one / 1000}) for one in numbers])

    def fresh(self, count: int) -> None:
        """Each buys a little more of one of many answers."""
        levels = itertools.islice(self._levels, count)
        load(self.port, [request(self.keys[0], bought(level)) for level in levels])


def bought(level: int) -> dict:
    return {"query": f"SELECT AVG(income) FROM census WHERE age >= {level % 90}", "information": level * 1e-6}


@contextlib.contextmanager
def ours(grid_s: float = 0.0, workers: int = 1) -> Iterator[Ours]:
    with place() as base:
        folder = census.write(base / "desk", rows=ROWS).parent
        with contextlib.closing(State.of(folder)) as state:
            keys = [state.make_key(f"analyst{i}", Role.ANALYST)[1] for i in range(ANALYSTS)]
        with process("ours", folder, grid_s, workers) as port:
            yield Ours(folder, port, keys)


def reused(asked: Callable[[Ours], None] = Ours.reused, workers: int = 1) -> float:
    """Reused answers a second / replies a second of the bare application."""
    with ours(workers=workers) as service, process("bare", RETICENT_BENCH_ANSWER=service.answer) as port:
        sent = request(service.keys[0], MEAN)
        return cpu_ratio(
            lambda: load(port, itertools.repeat(sent, REQUESTS)),
            lambda: asked(service),
            clock=time.perf_counter,
            repetitions=REPETITIONS,
        )


def several() -> float:
    """Reused answers a second for eight analysts in turn / for one."""
    with ours() as service:
        return cpu_ratio(
            service.reused,
            lambda: service.reused(ANALYSTS),
            clock=time.perf_counter,
            repetitions=REPETITIONS,
        )


def on_grid() -> float:
    """Reused answers a second with the time grid / what the grid lets 64 clients have."""
    with ours(GRID_S) as service:
        service.reused()
        start = time.perf_counter()
        service.reused()
        return REQUESTS / (time.perf_counter() - start) / (CLIENTS / GRID_S)


def fresh() -> float:
    """Answers a second that pay / charges a second of a ledger on the same disk, each recorded."""
    count = REQUESTS // 8
    with ours() as service, contextlib.closing(SqlLedger(service.folder / "bare.sqlite")) as ledger:
        ledger.open(TERMS)
        levels = itertools.count(1)

        def charge(part: Iterator[int]) -> None:
            for level in part:
                amount = Amount(level * 10**6, Unit.MU2, Neighbours.REPLACE_ONE)
                for one in ledger.request("bench", f"key-{level % 90}", amount).pending:
                    ledger.fulfil(one.number, [12345, 67890])

        def charges() -> None:
            together(charge, itertools.islice(levels, count))

        for level in range(90):
            ledger.declare("bench", f"key-{level}", question="how many", grid=24, dimension=2)
        return cpu_ratio(
            charges, lambda: service.fresh(count), clock=time.perf_counter, repetitions=REPETITIONS
        )


def together(work, numbers: Iterator[int]) -> None:
    """As many threads as the service gives to questions."""
    shares = list(numbers)
    crew = [threading.Thread(target=work, args=(shares[i::THREADS],)) for i in range(THREADS)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()


FIGURES = [
    Figure("service, reused answers", "bare FastAPI, validated POST", 0.5, reused),
    Figure(
        "service, reused, other words", "bare FastAPI, validated POST", 0.2, lambda: reused(Ours.reworded)
    ),
    Figure("service, reused, 8 analysts", "one analyst", 0.9, several),
    Figure("service, reused, 2 workers", "bare FastAPI, one process", 0.5, lambda: reused(workers=2)),
    Figure("service, reused, grid 0.1 s", "640 a second, which it allows", 0.8, on_grid),
    Figure("service, answers that pay", "ledger, charges recorded", 0.1, fresh),
]

if __name__ == "__main__":
    {"bare": run_bare, "ours": run_ours}[sys.argv[1]](int(sys.argv[2]), *sys.argv[3:])
