"""The command `reticent demo stations`: a provider, an edge and 200 vehicles in an invented town.

The provider is `reticent serve` on a folder, the edge a process of its own, and one vehicle is the command
`reticent location stations ask`; the others live in this process, each with an enrolment and a ledger in a
file, and speak to the edge over HTTP. Only where they are is invented, so that the detour can be told.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from reticent.apps.location import streets as drawing
from reticent.apps.query.demo import HOST, demo_keys, demo_listener
from reticent.apps.stations import town
from reticent.apps.stations.forecast_work import forecast
from reticent.apps.stations.provider_work import invented_library
from reticent.arguments import whole
from reticent.cli import terminal
from reticent.errors import ReticentError, SourceError
from reticent.files import secluded
from reticent.fleet.enrolment import Enrolment, enrolled
from reticent.fleet.secret_file import kept_secret
from reticent.fleet.transport import Http
from reticent.ledger.device.marks import Marks
from reticent.location.stations.provider import Offered, Provider
from reticent.location.stations.sites import read_stations
from reticent.location.stations.tally import Tally
from reticent.location.stations.vehicle import Vehicle, nearest_first
from reticent.processes import Companion, free_port
from reticent.randomness import SECURE, uniform_below
from reticent.spaces.roads import Stations, cut, read_map

NAME, VEHICLES = "town", 200
LEVEL, HORIZON_KM, K, M, PERIOD_S = 5.0, 4.0, 3, 10, 60
_JOURNEYS = 100  # of the library
_TOGETHER = 20  # vehicles that ask at the same time, and requests of a batch
_TAKEN = 0.3  # share of stations without a free connector
_REPETITIONS = 8  # of the forecast
_READY_S = 120.0  # on a busy machine
_COMMAND = (sys.executable, "-c", "from reticent.apps import main; main()")


def run(*, vehicles: int, port: int | None, once: bool) -> None:
    """Start the programs, let the vehicles ask, and say what it cost; then stay.

    Args:
        vehicles: Number of vehicles that ask.
        port: Port of the service; by default 8000, or any free port if that is taken.
        once: Exit when all vehicles have asked.
    """
    whole("vehicles", vehicles, low=1, high=10_000)
    screen = terminal.console()
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="reticent-")))
        keys = demo_keys(folder)
        provider = held.enter_context(closing(_begun(folder)))
        url = held.enter_context(_serving(folder, port))
        _tell_what_is_free(url, keys["owner"], provider)
        master = folder / "edge" / "enrolment.key"
        secluded(master.parent)
        edge = held.enter_context(_edge(folder, url, provider.signer, master))
        screen.print(f"{vehicles} vehicles ask for a station in an invented town. Three programs run:")
        screen.print(f"  provider  {url}/stations/{NAME}", soft_wrap=True)
        screen.print(f"            key  {keys['owner']}", soft_wrap=True)
        screen.print(f"  edge      {edge}", soft_wrap=True)
        screen.print("  vehicles  here, and one as a command\nCtrl-C ends it.\n")
        try:
            _Fleet(vehicles, provider, edge, master, folder).asked(screen)
            _by_command(screen, provider, edge, master, folder)
            screen.print("\nWhat the provider expects, from the points that it saw:")
            forecast(
                provider.folder,
                count=False,
                hours=1,
                queries=vehicles + 1,
                stay=45.0,
                new=1,
                repetitions=_REPETITIONS,
            )
            if not once:
                screen.print(f"\nThe page stays at {url}/stations/{NAME} until Ctrl-C.")
                while True:
                    time.sleep(0.5)
        except KeyboardInterrupt:
            screen.print("Ended.")


# The programs


def _begun(folder: Path) -> Provider:
    """Create the provider in the folder of a service."""
    files = folder / "town"
    files.mkdir()
    edges, listed = town.write(files)
    streets = read_map(edges)
    roads = cut(streets, 100.0).within(HORIZON_KM)
    offered = Offered(NAME, "The nearest free stations of an invented town.", LEVEL, K, M, PERIOD_S)
    place = folder / "stations" / NAME
    place.parent.mkdir()
    start = int(time.time()) // PERIOD_S * PERIOD_S - PERIOD_S
    library = invented_library(roads, NAME, _JOURNEYS)
    made = Provider.begin(place, roads, read_stations(listed), offered, start=start, library=library)
    drawing.write(place, streets)
    Tally(place).close()  # for a forecast
    return made


@contextlib.contextmanager
def _serving(folder: Path, port: int | None) -> Iterator[str]:
    """Run `reticent serve` as a process, and yield its URL."""
    with demo_listener(port) as place:  # a port that is free, or it is said why not
        found = place.getsockname()[1]
    command = (*_COMMAND, "serve", str(folder), "--host", HOST, "--port", str(found))
    with _program(command, folder / "serve.log") as process:
        url = f"http://{HOST}:{found}"
        _until_ready(process, url, folder / "serve.log")
        yield url


@contextlib.contextmanager
def _edge(folder: Path, provider: str, signer: bytes, master: Path) -> Iterator[str]:
    """Run `reticent location stations edge` as a process, and yield its URL."""
    port = free_port()
    options = {"--provider": provider, "--signer": signer.hex(), "--name": NAME, "--master": str(master)}
    options |= {"--batch": str(_TOGETHER), "--window": "1", "--host": HOST, "--port": str(port)}
    told = [one for pair in options.items() for one in pair]
    with _program((*_COMMAND, "location", "stations", "edge", *told), folder / "edge.log") as process:
        url = f"http://{HOST}:{port}"
        _until_ready(process, url, folder / "edge.log")
        yield url


@contextlib.contextmanager
def _program(command: Sequence[str], log: Path) -> Iterator[Companion]:
    with log.open("wb") as said, Companion(command, said) as process:
        yield process


def _until_ready(process: Companion, url: str, log: Path) -> None:
    """Wait until a program answers.

    Raises:
        SourceError: It ended, or did not answer in time; with the last line that it said.
    """
    end, health = time.monotonic() + _READY_S, Http(url, tries=1, timeout_s=5.0)
    while process.is_running() and time.monotonic() < end:
        with contextlib.suppress(ReticentError):
            health.fetch("health")
            return
        time.sleep(0.05)
    said = log.read_text("utf-8", "replace").strip().splitlines()
    raise SourceError(f"a program must start, got {said[-1] if said else 'silence'}")


def _tell_what_is_free(url: str, key: str, provider: Provider) -> None:
    """Mark some stations as taken, as their owner would do over HTTP."""
    chances = SECURE.units(len(provider.stations)) - 1.0
    taken = {
        one.id: 0 for one, chance in zip(provider.stations[1:], chances, strict=False) if chance < _TAKEN
    }
    if taken:
        place = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_READY_S)
        with closing(place):
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            place.request("PUT", f"/api/v1/stations/{NAME}/free", json.dumps({"free": taken}), headers)
            reply = place.getresponse()
            if reply.status != HTTPStatus.OK:
                raise SourceError(f"what is free must be taken by the provider, got {reply.status}")


# The vehicles


@dataclass(frozen=True)
class _Asked:
    """The result of one vehicle's query: kilometres, and bytes."""

    drive_km: float
    nearest_km: float
    sent: int
    spent_per_km: float


class _Fleet:
    """The demo's vehicles at random places."""

    def __init__(self, vehicles: int, provider: Provider, edge: str, master: Path, folder: Path) -> None:
        self._provider, self._edge, self._ledgers = provider, Http(edge), folder / "vehicles"
        secluded(self._ledgers)
        self._marks = folder / "marks"  # one for each, as on machines of their own
        self._files = {path: self._edge.fetch(path) for path in ("service", "map", "list", "library")}
        secret, roads = kept_secret(master), provider.area.roads
        self._enrolments = [enrolled(secret) for _ in range(vehicles)]
        self._points = roads.points[uniform_below(roads.size, vehicles)]
        free = np.array(provider.free()) > 0
        where = np.array([(one.latitude, one.longitude) for one in provider.stations])[free]
        self._nearest = Stations.at(roads, *where.T).nearest(1)[1][:, 0]

    def asked(self, screen: Any) -> None:
        """Let all vehicles ask, some at a time, and print a summary."""
        begun = time.monotonic()
        with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="vehicle") as hands:
            found = list(hands.map(self._ask, range(len(self._enrolments))))
        seconds = time.monotonic() - begun
        detours = np.array([one.drive_km - one.nearest_km for one in found])
        screen.print(
            f"{len(found)} queries in {seconds:.0f} s: {np.mean(detours < 1e-6):.0%} without a detour, "
            f"{1000.0 * detours.mean():.0f} m more on average."
        )
        screen.print(
            f"Each paid {max(one.spent_per_km for one in found):.3g} per km from its own ledger, and sent "
            f"{found[0].sent:,} bytes: {M} sealed points, one of them true."
        )
        screen.print(
            f"The edge knows {len(found)} vehicles and no place. The provider saw {M * _TOGETHER} points in "
            "each batch, in a fresh order, and no vehicle."
        )

    def _ask(self, number: int) -> _Asked:
        """Run one vehicle: verify the signed texts, pay, sample, send, choose."""
        here = self._points[number].tolist()
        files, enrolment = self._files, self._enrolments[number]
        vehicle = Vehicle(
            self._ledgers / str(number),
            enrolment,
            self._provider.signer,
            lifetime_per_km=10.0 * LEVEL,
            marks=Marks(self._marks / str(number)),
        )
        with vehicle:
            area = vehicle.enter(files["service"], files["map"], files["library"])
            request = vehicle.query(area, *here)
            offers = vehicle.told(area, self._edge.send("ask", request))
            best = nearest_first(area.roads, self._provider.listed, offers, *here)
            place = int(area.roads.cells(*here))
            return _Asked(best[0].cost, float(self._nearest[place]), len(request), vehicle.spent_per_km)


def _by_command(screen: Any, provider: Provider, edge: str, master: Path, folder: Path) -> None:
    """Run one vehicle by the command line, in the middle of the town."""
    phone: Enrolment = enrolled(kept_secret(master))
    file = folder / "vehicle.json"
    file.write_text(phone.to_json())
    latitude, longitude = provider.area.roads.points.mean(axis=0).tolist()
    options = {"--edge": edge, "--at": f"{latitude:.5f},{longitude:.5f}", "--signer": provider.signer.hex()}
    options |= {"--ledger": str(folder / "ledger"), "--enrolment": str(file)}
    told = [one for pair in options.items() for one in pair]
    screen.print("\nThe same by the command, reticent location stations ask:")
    done = subprocess.run(  # noqa: S603 - the lines above
        [*_COMMAND, "location", "stations", "ask", *told],
        capture_output=True,
        text=True,
        check=False,
        timeout=_READY_S,
    )
    if done.returncode:
        raise SourceError(f"ask failed: {done.stderr.strip()[:200]}")
    for line in done.stdout.splitlines():
        screen.print(f"  {line}", soft_wrap=True)
