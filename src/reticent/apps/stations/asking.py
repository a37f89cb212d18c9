"""The command `reticent location stations ask`: a vehicle's query from a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from reticent.apps.stations.edge_work import public_key
from reticent.errors import BudgetExceeded, GuaranteeError, ParameterError, ReticentError
from reticent.files import appearing, secluded
from reticent.fleet.enrolment import Enrolment
from reticent.fleet.published import Published
from reticent.fleet.signing import verified
from reticent.fleet.transport import Http
from reticent.ledger.device.marks import Marks
from reticent.location.stations import road_file
from reticent.location.stations.area import Area, StationList, StationService
from reticent.location.stations.library import JourneyLibrary
from reticent.location.stations.provider import bits_bytes, free_stations
from reticent.location.stations.vehicle import Offer, Vehicle, nearest_first

_MOST_ENROLMENT = 1 << 12
_MOST_SHOWN = 5


@dataclass
class Files:
    """Signed files of a service, fetched once and cached beside the ledger.

    Args:
        edge: Edge that the files are fetched from.
        folder: Folder of the cached files.
        signer: Public key that must have signed them.
        fetched: Number of bytes fetched so far.
    """

    edge: Http
    folder: Path
    signer: bytes
    fetched: int = field(default=0)

    def __post_init__(self) -> None:
        self.file = self.fetch("service")
        self.service = verified(StationService, self.file, self.signer)

    def fetch(self, path: str) -> bytes:
        """Fetch a path from the edge."""
        content = self.edge.fetch(path)
        self.fetched += len(content)
        return content

    def map(self) -> bytes:
        """Return the map that the service named."""
        return self._kept("map", self.service.map, lambda file: road_file.read(file).digest)

    def listed(self) -> StationList:
        """Return the list of stations that it named."""
        found = self._kept("list", self.service.stations, self._id(StationList))
        return verified(StationList, found, self.signer)

    def library(self) -> bytes | None:
        """Return the library that it named, if there is one."""
        name = self.service.library
        return self._kept("library", name, self._id(JourneyLibrary)) if name else None

    def _id(self, kind: type[Published]) -> Callable[[bytes], str]:
        return lambda file: verified(kind, file, self.signer).id.hex()

    def _kept(self, path: str, name: str, identity: Callable[[bytes], str]) -> bytes:
        """Return a file by its name: the cached copy if it is intact, or a fetched one."""
        place = self.folder / f"{path}-{name}"
        with contextlib.suppress(OSError, ReticentError):
            content = place.read_bytes()
            if identity(content) == name:
                return content
        content = self.fetch(path)
        if identity(content) != name:
            raise GuaranteeError(f"the {path} must be the one that the service signed")
        secluded(self.folder)
        with appearing(place, mode=0o600) as file:
            file.write(content)
        return content


def ask(
    *,
    edge: str,
    at: str,
    ledger: Path,
    signer: str,
    enrolment: Path | None,
    lifetime: float,
    most: float,
    most_horizon: float,
    book: bool,
    whole_map: bool,
    moved: bool,
) -> None:
    """Ask once."""
    here, trusted, line = _point(at), public_key(signer), Http(edge)
    files = Files(line, ledger.with_name(f"{ledger.name}.maps"), trusted)
    console = Console(highlight=False, soft_wrap=True)
    if whole_map:
        _ask_for_all(console, files, here)
        return
    if enrolment is None:
        raise ParameterError("enrolment must be given: what the edge's operator gave this vehicle")
    vehicle = Vehicle(
        ledger,
        _enrolment(enrolment),
        trusted,
        lifetime_per_km=lifetime,
        most_per_km=most,
        most_horizon_km=most_horizon,
        marks=Marks(moved=moved),
    )
    with vehicle:
        area = vehicle.enter(files.file, files.map(), files.library())
        listed = files.listed()
        try:
            request = vehicle.query(area, *here)
        except BudgetExceeded:
            console.print("The ledger is spent: nothing was sent. With --whole-map you need none.")
            raise
        replies = line.send("ask", request)
        offers = nearest_first(area.roads, listed, vehicle.told(area, replies), *here)
        _show(console, listed, offers)
        console.print(f"This ledger has spent {vehicle.spent_per_km:.4g} of {lifetime:g} per km.")
        console.print(cheaper(len(request) + len(replies), listed))
        if book and offers:
            _book(console, vehicle, area, listed, offers[0], line)


def cheaper(asked: int, listed: StationList) -> str:
    """Say whether asking or fetching all free stations takes fewer bytes, once the list is known."""
    all_of_it = bits_bytes(listed)
    way = "--whole-map is cheaper, and tells nothing" if all_of_it <= asked else "asking is cheaper"
    return f"Asking took {asked:,} bytes, which stations are free takes {all_of_it:,}: {way}."


def _ask_for_all(console: Console, files: Files, here: tuple[float, float]) -> None:
    """Fetch one bit of each station. It depends on nothing that is private, so nothing is charged."""
    listed, roads = files.listed(), road_file.read(files.map())
    free = free_stations(files.fetch("free"), listed, files.signer)
    _show(console, listed, nearest_first(roads, listed, (at for at, one in enumerate(free) if one), *here))
    console.print(f"Nothing was told, so nothing is charged; {files.fetched:,} bytes were fetched.")


def _show(console: Console, listed: StationList, offers: list[Offer]) -> None:
    for one in offers[:_MOST_SHOWN]:
        station = listed.stations[one.number]
        console.print(f"{one.cost:6.2f} km  {station.name} ({station.id})", markup=False)
    if not offers:
        console.print("No station is free.")


def _book(
    console: Console, vehicle: Vehicle, area: Area, listed: StationList, best: Offer, line: Http
) -> None:
    is_booked = vehicle.is_booked(area, line.send("ask", vehicle.booking(area, best.number)))
    words = "is booked" if is_booked else "was taken meanwhile"
    name = listed.stations[best.number].name
    console.print(f"{name} {words}. The provider knows that somebody goes there.", markup=False)


def _enrolment(file: Path) -> Enrolment:
    if not file.is_file() or file.stat().st_size > _MOST_ENROLMENT:
        raise ParameterError(f"enrolment must be a file that the edge's operator gave, got {file}")
    return Enrolment.from_json(file.read_text("utf-8", "replace"))


def _point(text: str) -> tuple[float, float]:
    """Parse two numbers; errors do not quote them, since they are a person's location."""
    try:
        latitude, longitude = (float(one) for one in text.split(","))
    except ValueError:  # it quotes the place
        raise ParameterError("at must be LAT,LON in degrees") from None
    return latitude, longitude
