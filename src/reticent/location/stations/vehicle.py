"""The client in a vehicle: asks for nearby stations without revealing the vehicle's location.

A query has m points in a random order: the vehicle's place and the places of m - 1 companions, which are
generated without knowing it, each through the same channel, and each sealed to the provider by itself. In one
period a vehicle sends one query, byte for byte the same however often it asks and wherever it is by then; so
neither sending again nor a fresh query tells that it moved. It is paid for before it is drawn.

A vehicle is a total function of where it is. It refuses only for what everybody may know: a text or a map
that is not signed or claims what it does not keep, a level or a horizon that its owner does not allow, a
spent ledger.

Privacy: edge and provider together see m points of which one is the true one through the channel, and do not
    see which. The distribution of such a query is a mean of products in each of which one factor depends on
    the true place, and by at most exp(level d): so a query keeps the level of the channel against both
    together, which is what the ledger is charged. Companions cost nothing, and no number is claimed for them.
    What a vehicle books is no part of the promise: it tells the cell of the station.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, Unpack

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real, whole
from reticent.errors import GuaranteeError, ParameterError
from reticent.fleet.enrolment import Enrolment
from reticent.fleet.reporter import Kept
from reticent.ledger.device import long_texts
from reticent.ledger.device.lifetime import Reach
from reticent.location.reporter import PlaceReporter, one_number
from reticent.location.stations import wire
from reticent.location.stations.area import MOST_PERIODS, Area, StationList, StationService
from reticent.location.stations.mixing import permutation
from reticent.location.stations.sealing import KEY_BYTES, Kind, Point, State, told
from reticent.randomness import Stream
from reticent.spaces.roads import Roads

QUERIES = 5  # of one journey of companions
_QUERIES = ("query-0", "query-1")  # where those of the last two periods are kept
_BOOKING = "booking"


class Travellers(Protocol):
    """A source of dummy journeys, such as `companions.Companions`."""

    def journeys(self, count: int, queries: int, rng: Stream | None = None) -> NDArray[np.int64]:
        """Sample the places of so many journeys at so many queries: shape (count, queries)."""


@dataclass(frozen=True)
class Offer:
    """A station that a reply named, with its distance.

    Args:
        number: Number of the station in the list of the service.
        cost: Driving distance from the vehicle in km; infinite if cars cannot get there.
    """

    number: int
    cost: float


class Vehicle(PlaceReporter[StationService]):
    """One enrolled vehicle, see `Reporter`.

    Args:
        path: Path of the ledger; see `Reporter` for it and all arguments that are not listed here. The
            account covers everything that the vehicle tells of places.
        enrolment: Enrolment that the edge's operator issued. At a hand-over another edge issues another; the
            ledger is the same, and nothing is reset.
        signer: Public key of the provider.
        companions: Source of dummy journeys; None for those made of the service's own library.
        lifetime_per_km: Level that all its reports of places may spend, in 1/km of street; fixed with the
            ledger.
        most_per_km: Largest level that the owner allows for a single query.
        most_horizon_km: Largest horizon that the owner allows: two points however near keep the level times
            it at least.
        queries: Number of queries for which the same companions travel along.
    """

    kind = StationService
    part = "period"

    def __init__(
        self,
        path: str | os.PathLike[str],
        enrolment: Enrolment,
        signer: bytes,
        *,
        companions: Travellers | None = None,
        lifetime_per_km: float,
        most_per_km: float = 5.0,
        most_horizon_km: float = 5.0,
        queries: int = QUERIES,
        **kept: Unpack[Kept],
    ) -> None:
        self._given = companions
        self._companions: dict[bytes, Travellers] = {}  # by service
        self._most_horizon = real("most_horizon_km", most_horizon_km, low=0.0, open_low=True)
        self._queries = whole("queries", queries, low=1, high=1000)
        self._areas: dict[bytes, Area] = {}
        super().__init__(path, enrolment, signer, lifetime=lifetime_per_km, most=most_per_km, **kept)

    def _check(self, asked: StationService) -> None:
        if asked.level > self._most:
            raise GuaranteeError(
                f"the service asks for {asked.level:g} per km, this vehicle allows {self._most:g}"
            )
        if asked.horizon_km > self._most_horizon:
            raise GuaranteeError(
                f"the service has a horizon of {asked.horizon_km:g} km, this vehicle allows "
                f"{self._most_horizon:g}"
            )

    def enter(self, file: bytes, map_file: bytes, library_file: bytes | None = None) -> Area:
        """Verify a signed service and its map, recompute the level, and enter the area.

        Args:
            file: Signed text of the service.
            map_file: File of its map.
            library_file: Signed library of journeys, for companions.

        Raises:
            GuaranteeError, ParameterError: The service does not keep what it claims; nothing was sent or
                spent.
        """
        area = Area.of(self.take(file), map_file)
        along = self._given
        if along is None and library_file is not None:
            along = area.companions(library_file, self._signer)
        if along is None and area.service.m > 1:
            raise ParameterError(f"companions must be given for {area.service.m} points, or a library")
        if along is not None:
            self._companions[area.service.id] = along
        self._areas[area.service.id] = area
        return area

    # Asking

    def query(self, area: Area, latitude: Any, longitude: Any, *, now: float | None = None) -> bytes:
        """Return the request of this period: charged, sampled and stored first; identical from then on.

        Args:
            area: Area that was entered.
            latitude: Latitude of the vehicle in degrees; only the first query in a period uses it.
            longitude: Longitude of the vehicle in degrees.
            now: Seconds since 1970; the clock's if None.

        Raises:
            BudgetExceeded: The lifetime budget does not hold another query. Nothing may be sent.
            ParameterError: The area was not entered.
        """
        area = self._entered(area)
        service = area.service
        number = service.period(time.time() if now is None else now)
        text = int.from_bytes(service.id[:7], "big")
        is_new = self._memory(service).remembered(number) is None
        along = self._along(area, service.m - 1) if is_new else []
        said, *places = self._once(
            service, number, lambda: (text, *self._drawn(area, latitude, longitude, along))
        )
        if said != text:
            raise ParameterError(f"period {number} of {service.name} was asked under another text")
        points = [Point.made(Kind.QUERY, place) for place in places]
        return self._sent(service, f"query-{number % 2}", str(number), points)

    def booking(self, area: Area, station: int) -> bytes:
        """Return the request that books a station: as large as a query, and the same until it is answered.

        Privacy: A booking tells the provider that somebody drives to this station, so in which cell they are.
            No ledger is charged since no level would be true.
        """
        service = self._entered(area).service
        number = whole("station", station, low=0, high=(1 << 32) - 2)
        points = [Point.made(Kind.BOOKING, number)]
        points += [Point.made(Kind.NOTHING, 0) for _ in range(service.m - 1)]
        mixed = [points[place] for place in permutation(service.m, self._stream)]
        return self._sent(service, _BOOKING, str(number), mixed)

    def told(self, area: Area, replies: bytes) -> list[int]:
        """Return the stations named by replies to a query of the last two periods, by number in the list.

        Raises:
            ParameterError: The content is no set of replies to it.
        """
        service = self._entered(area).service
        said = self._opened(service, _QUERIES, replies)
        found = [number for _, numbers in said for number in numbers]
        return list(dict.fromkeys(found))

    def is_booked(self, area: Area, replies: bytes) -> bool:
        """Return whether the last booking succeeded."""
        service = self._entered(area).service
        states = [state for state, _ in self._opened(service, (_BOOKING,), replies)]
        if (kept := self._kept_request(service, _BOOKING)) is not None:
            answered = kept | {"what": f"{kept['what']}/answered"}
            long_texts.keep(self.ledger, f"{_BOOKING}/{self._head(service)}", json.dumps(answered))
        return State.BOOKED in states

    # What leaves

    def _drawn(self, area: Area, latitude: Any, longitude: Any, along: list[int]) -> list[int]:
        """Sample the m points of a query, in a random order."""
        places = np.array([_place(area.roads, latitude, longitude), *along], dtype=np.int64)
        points = area.channel.sample(places, self._stream)
        return [int(points[place]) for place in permutation(len(places), self._stream)]

    def _along(self, area: Area, count: int) -> list[int]:
        """Return the companions' places at this query, starting new journeys when the old ones end."""
        if not count:
            return []
        name = f"companions/{self._head(area.service)}"
        kept = json.loads(long_texts.kept(self.ledger, name) or "[]")
        if not kept or len(kept[0]) != count or max(map(max, kept)) >= area.roads.size:
            drawn = np.asarray(self._companions[area.service.id].journeys(count, self._queries, self._stream))
            if drawn.shape != (count, self._queries) or drawn.min() < 0 or drawn.max() >= area.roads.size:
                raise ParameterError(f"companions must be journeys of {self._queries} places of the map")
            kept = drawn.T.tolist()
        now, *later = kept
        long_texts.keep(self.ledger, name, json.dumps(later))
        return [int(place) for place in now]

    def _sent(self, service: StationService, slot: str, what: str, points: list[Point]) -> bytes:
        """Return the stored request, or seal these points into a request and store it first."""
        same = f"{service.id.hex()}/{what}"
        with self._guard:
            kept = self._kept_request(service, slot)
            if kept is None or kept["what"] != same:
                sealed = [one.sealed(service.id, service.key) for one in points]
                request = wire.request(service, self._enrolment, sealed)
                keys = b"".join(one.key for one in points)
                kept = {"what": same, "keys": _text(keys), "request": _text(request)}
                long_texts.keep(self.ledger, f"{slot}/{self._head(service)}", json.dumps(kept))
        return base64.b64decode(kept["request"])

    def _opened(
        self, service: StationService, slots: tuple[str, ...], replies: bytes
    ) -> list[tuple[State, list[int]]]:
        """Decrypt the replies to a stored request."""
        given = wire.replies_of(service, replies)
        for slot in slots:
            kept = self._kept_request(service, slot)
            if kept is None or not kept["what"].startswith(service.id.hex()):
                continue
            keys = wire.pieces(base64.b64decode(kept["keys"]), KEY_BYTES)
            sealed = wire.points_of(base64.b64decode(kept["request"]))
            with contextlib.suppress(ParameterError):  # to another one
                parts = zip(given, sealed, keys, strict=True)
                return [told(reply, point, key, service.k) for reply, point, key in parts]
        raise ParameterError("replies must be those of the provider to what this vehicle asked last")

    def _kept_request(self, service: StationService, slot: str) -> dict[str, str] | None:
        text = long_texts.kept(self.ledger, f"{slot}/{self._head(service)}")
        return None if text is None else dict(json.loads(text))

    # What a Reporter asks for

    def _entered(self, area: Area) -> Area:
        held = self._areas.get(area.service.id)
        if held is None:
            raise ParameterError(f"the area must be one that this vehicle entered, got {area.service.name}")
        return held

    def _number(self, asked: StationService, number: int) -> int:
        return whole("counted", number, low=0, high=MOST_PERIODS - 1)

    def _reach(self, asked: StationService) -> Reach:
        """Return the horizon: points however near may be as far apart by street as distances count."""
        return lambda _: asked.horizon_km

    def _price(self, asked: StationService) -> int:
        return self._areas[asked.id].units


def nearest_first(
    roads: Roads, listed: StationList, numbers: Iterable[int], latitude: Any, longitude: Any
) -> list[Offer]:
    """Sort stations by driving distance from here, the nearest first. The result must stay in the vehicle."""
    known = sorted({one for one in numbers if one < len(listed.stations)})
    if not known:
        return []
    there = [listed.stations[one] for one in known]
    places = roads.cells(
        np.array([one.latitude for one in there]), np.array([one.longitude for one in there])
    )
    far = roads.driving.distances(_place(roads, latitude, longitude))[places].tolist()
    return sorted(map(Offer, known, far), key=lambda one: (one.cost, one.number))


def _place(roads: Roads, latitude: Any, longitude: Any) -> int:
    return int(roads.cells(one_number(latitude), one_number(longitude))[0])


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
