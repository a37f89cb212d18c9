"""The edge against a bare Starlette application that takes the same body and returns as many bytes.

Both serve with uvicorn in processes of their own, and 64 clients that keep their connections ask as fast as
they are answered; rounds take turns. Counted are requests for each second of the serving process's own CPU:
behind the edge the provider opens every point, in a third process, and on few cores that would be measured.
No request comes twice, since the edge would remember its replies.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Figure
from benchmarks.query import place
from benchmarks.service import load, until_up
from reticent.fleet.enrolment import Enrolment, device_key
from reticent.fleet.secret_file import kept_secret
from reticent.location.stations import wire
from reticent.location.stations.library import JourneyLibrary
from reticent.location.stations.provider import Offered, Provider
from reticent.location.stations.sealing import Kind, Point, reply_bytes
from reticent.location.stations.sites import Station
from reticent.location.stations.traffic import invented
from reticent.processes import free_port
from reticent.spaces import RoadMap, cut
from reticent.spaces.roads import Street

REQUESTS, REPETITIONS, VEHICLES, SEALED, SIDE = 2000, 7, 500, 400, 12

HEAD = b"POST /ask HTTP/1.1\r\nHost: edge\r\nContent-Type: application/octet-stream\r\n"


def run_bare(port: str, size: str) -> None:
    """What the edge is measured against."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    reply = bytes(int(size))

    async def ask(request: Request) -> Response:
        await request.body()
        return Response(reply, media_type="application/octet-stream")

    options = {"log_config": None, "access_log": False, "server_header": False, "date_header": False}
    app = Starlette(routes=[Route("/ask", ask, methods=["POST"])])
    uvicorn.run(app, port=int(port), http="httptools", ws="none", **options)


def run_provider(port: str, folder: str) -> None:
    """The service that has the provider."""
    from reticent.apps.service.serving import serve
    from reticent.service.settings import Settings

    serve(Settings(Path(folder), rate=1e6, burst=10**6), port=int(port))


def run_edge(port: str, provider: str, signer: str, master: str) -> None:
    """The edge as its command runs it, without a limit on vehicles."""
    from reticent.apps.stations import edge, edge_work

    edge.Rate = lambda rate, burst: edge_rate(1e6, 10**6)  # type: ignore[misc]
    edge_work.edge(
        provider=f"http://127.0.0.1:{provider}", signer=signer, name="town", master=Path(master), batch=20,
        window=2.0, host="127.0.0.1", port=int(port),
    )  # fmt: skip


def edge_rate(rate: float, burst: int) -> object:
    from reticent.service.limits import Rate

    return Rate(rate, burst)


@contextlib.contextmanager
def process(what: str, *given: object) -> Iterator[tuple[int, int]]:
    """A server in a process of its own; its port and its number."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.stations", what, str(port), *map(str, given)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, start_new_session=True, **quiet)
    try:
        until_up(server, port)
        yield port, server.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def cpu_s(pid: int) -> float:
    """The CPU time of a process until now."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


def provider_in(folder: Path) -> Provider:
    """A provider of a small town."""
    nodes = {(r, c): (37.7 + 0.002 * r, -122.5 + 0.0025 * c) for r in range(SIDE) for c in range(SIDE)}
    lines = [((r, c), to) for r, c in nodes for to in ((r + 1, c), (r, c + 1)) if to in nodes]
    roads = cut(RoadMap.of(nodes, [Street(*ends) for ends in lines]), 100.0)
    journeys = [one.tolist() for one in invented(roads, count=20, seconds=10, least=6)]
    library = JourneyLibrary.of(roads, journeys, seconds=10, name="town", purpose="Companions.")
    listed = [Station(str(at), str(at), *map(float, roads.points[at * 20])) for at in range(20)]
    offered = Offered("town", "Free stations.")
    return Provider.begin(folder, roads.within(4.0), listed, offered, start=0, library=library)


def requests(held: Provider, master: bytes) -> Iterator[bytes]:
    """Requests of enrolled vehicles, no two of them the same, as HTTP."""
    service, rng = held.service, random.Random(1)
    sealed = [Point.made(Kind.QUERY, at).sealed(service.id, service.key) for at in range(SEALED)]
    ids = [rng.randbytes(8) for _ in range(VEHICLES)]
    cars = [Enrolment(one, device_key(master, one)) for one in ids]
    for car in itertools.cycle(cars):
        body = wire.request(service, car, rng.sample(sealed, service.m))
        yield HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


def edge() -> float:
    """Requests for a CPU second of the edge / of the bare application."""
    with place() as base, contextlib.closing(provider_in(base / "stations" / "town")) as held:
        master, size = base / "edge.key", held.service.m * reply_bytes(held.service.k)
        sent = requests(held, kept_secret(master))
        with (
            process("bare", size) as (bare_port, bare_pid),
            process("provider", base) as (provider, _),
            process("edge", provider, held.signer.hex(), master) as (port, pid),
        ):
            ratios = []
            for turn in range(REPETITIONS + 1):
                rates = []
                for where, who in ((bare_port, bare_pid), (port, pid)):
                    batch, before = list(itertools.islice(sent, REQUESTS)), cpu_s(who)
                    load(where, batch)
                    rates.append(REQUESTS / (cpu_s(who) - before))
                if turn:  # the first round warms both
                    ratios.append(rates[1] / rates[0])
            return statistics.median(ratios)


FIGURES = [Figure("stations, edge", "bare Starlette POST, both by their own CPU", 0.5, edge)]

if __name__ == "__main__":
    {"bare": run_bare, "provider": run_provider, "edge": run_edge}[sys.argv[1]](*sys.argv[2:])
