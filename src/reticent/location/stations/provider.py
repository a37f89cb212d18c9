"""The provider: decrypts points and answers each with the k nearest free stations by road.

The provider never learns who asks. It is a folder: the signed text, the file of the map, the signed list of
stations, two secrets, and a SQLite file of free and booked connectors, which processes share. It stores
nothing of a query, unless its owner wants forecasts (`tally`): the same point is answered again, so that a
crash or a retry loses and doubles nothing. A booking is stored by its token.

Privacy: the provider stores of vehicles only bookings (station, token, expiry), and counts of reported places
    if its owner asked for them.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from reticent.arguments import whole
from reticent.errors import GuaranteeError, ParameterError, StorageUnavailable
from reticent.files import appearing, secluded
from reticent.fleet.published import Published
from reticent.fleet.secret_file import kept_secret
from reticent.fleet.signing import signed, verified
from reticent.location.stations import road_file
from reticent.location.stations.area import Area, StationList, StationService
from reticent.location.stations.sealing import Kind, Point, State, opened, replied, reply_bytes
from reticent.location.stations.sites import Station
from reticent.location.stations.tally import Tally
from reticent.spaces.roads import Roads, Stations
from reticent.sqlite import opened as base_at
from reticent.sqlite import writing

SERVICE, MAP, LIST, LIBRARY = "service.json", "map.bin", "stations.json", "library.json"
BOOKED_S = 900  # for how long a connector is kept
_NEAR = 16  # sites of each place that are looked up; others are searched for
_FREE_HEAD = b"reticent-stations-free/v1\n"
_SIGNATURE_BYTES = 64
_TABLES = (
    "CREATE TABLE IF NOT EXISTS free (station INTEGER PRIMARY KEY, connectors INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS booked "
    "(token BLOB PRIMARY KEY, station INTEGER NOT NULL, until REAL NOT NULL)",
)


@dataclass(frozen=True)
class Offered:
    """The settings of a new provider.

    Args:
        name: Name of the service.
        purpose: Purpose in plain words, for drivers.
        level: Privacy level of one query, in 1/km.
        k: Number of stations that a reply names.
        m: Number of points of a query.
        period_s: Seconds for which a query stays the same.
        version: Version of the text.
    """

    name: str
    purpose: str
    level: float = 5.0
    k: int = 3
    m: int = 10
    period_s: int = 300
    version: str = "1"


class Provider:
    """The provider of charging stations that is stored in a folder.

    Args:
        folder: Folder that `begin` created.
        clock: Clock in seconds since 1970.

    Raises:
        ParameterError: There is no provider in the folder.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        if not (folder / SERVICE).is_file():
            raise ParameterError(f"there is no provider of stations at {folder}")
        self.folder, self._clock = folder, clock
        self.file = (folder / SERVICE).read_bytes()
        self.map_file = (folder / MAP).read_bytes()
        self.list_file = (folder / LIST).read_bytes()
        self.library_file = (folder / LIBRARY).read_bytes() if (folder / LIBRARY).exists() else None
        self.service = verified(StationService, self.file, self.signer)
        self.listed = verified(StationList, self.list_file, self.signer)
        self.stations = self.listed.stations
        self._guard, self._preparing = threading.Lock(), threading.Lock()
        try:
            self._base = base_at(folder / "free.sqlite")
            for table in _TABLES:
                self._base.execute(table)
        except (sqlite3.Error, OSError) as error:
            raise _unusable(error) from error
        self._tally = Tally.kept(folder, clock=clock)

    @classmethod
    def begin(
        cls,
        folder: Path,
        roads: Roads,
        stations: Sequence[Station],
        offered: Offered,
        *,
        start: int,
        library: Published | None = None,
    ) -> Provider:
        """Create the folder of a provider.

        Args:
            folder: Folder of the provider's own, without a provider yet.
            roads: Road network within its horizon.
            stations: Stations on the map.
            offered: Settings of the service.
            start: Start of the first period, in seconds since 1970.
            library: Public journeys on the map, for companions.

        Raises:
            ParameterError: The folder has a provider already, or a setting breaks a rule.
        """
        if (folder / SERVICE).exists():
            raise ParameterError(f"there is a provider of stations at {folder}")
        map_file = road_file.written(roads)
        words = {"name": offered.name, "version": offered.version, "purpose": offered.purpose}
        listed = StationList(stations=tuple(stations), **words)
        draft: dict[str, Any] = {
            "level": offered.level,
            "start": start,
            "k": offered.k,
            "m": offered.m,
            "period_s": offered.period_s,
            "stations": listed.id.hex(),
            "library": "" if library is None else library.id.hex(),
            **words,
        }
        StationService.made(roads, provider=bytes(32), **draft)  # or it is refused now
        secluded(folder)
        sealing_key = X25519PrivateKey.from_private_bytes(kept_secret(folder / "provider.key"))
        signing_key = Ed25519PrivateKey.from_private_bytes(kept_secret(folder / "signing.key"))
        service = StationService.made(roads, provider=sealing_key.public_key().public_bytes_raw(), **draft)
        contents = {MAP: map_file, LIST: signed(listed, signing_key)}
        if library is not None:
            contents[LIBRARY] = signed(library, signing_key)
        contents[SERVICE] = signed(service, signing_key)
        for name, content in contents.items():  # the text last: without it there is no provider
            with appearing(folder / name, mode=0o600) as file:
                file.write(content)
        made = cls(folder)
        made.put({one.id: one.free for one in stations})
        return made

    def close(self) -> None:
        """Close the files."""
        self._base.close()
        if self._tally is not None:
            self._tally.close()

    @cached_property
    def _sealing_key(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(kept_secret(self.folder / "provider.key"))

    @cached_property
    def _signing_key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(kept_secret(self.folder / "signing.key"))

    @property
    def signer(self) -> bytes:
        """Public key that verifies the provider's signed texts."""
        return self._signing_key.public_key().public_bytes_raw()

    @cached_property
    def area(self) -> Area:
        """The service and its map."""
        return Area.of(self.service, self.map_file)

    # What is free

    def put(self, free: Mapping[str, int]) -> None:
        """Set the number of free connectors of stations, by station id.

        Raises:
            ParameterError: There is no such station, or it has fewer connectors; nothing is changed.
        """
        numbers = {one.id: number for number, one in enumerate(self.stations)}
        rows = []
        for name, count in free.items():
            if name not in numbers:
                raise ParameterError(f"free must name stations of the list, got {name!r:.60}")
            number = numbers[name]
            most = self.stations[number].connectors
            rows.append((number, whole(f"free of {name:.60}", count, low=0, high=most)))
        try:
            with self._guard, writing(self._base):
                self._base.executemany("INSERT OR REPLACE INTO free VALUES (?, ?)", rows)
        except sqlite3.Error as error:
            raise _unusable(error) from error

    def free(self) -> list[int]:
        """Return the number of free connectors of each station, without those that are booked."""
        try:
            with self._guard:
                return self._free()
        except sqlite3.Error as error:
            raise _unusable(error) from error

    def _free(self) -> list[int]:
        counts = [0] * len(self.stations)
        for number, count in self._base.execute("SELECT station, connectors FROM free"):
            counts[number] = count
        held = "SELECT station, COUNT(*) FROM booked WHERE until > ? GROUP BY station"
        for number, count in self._base.execute(held, (self._clock(),)):
            counts[number] = max(0, counts[number] - count)
        return counts

    def bits(self) -> bytes:
        """Return one bit a station, whether a connector is free: behind the list's id, and signed with it."""
        flags = np.packbits(np.array(self.free()) > 0).tobytes()
        content = self.listed.id + flags
        return content + self._signing_key.sign(_FREE_HEAD + content)

    # Points

    @cached_property
    def _sites(self) -> tuple[Stations, list[list[int]], np.ndarray[Any, Any]]:
        """Sites by place, the stations of each site, and the nearest sites of every place."""
        at = self.area.roads.cells(
            np.array([one.latitude for one in self.stations]),
            np.array([one.longitude for one in self.stations]),
        )
        sites = Stations(self.area.roads, at)
        members: list[list[int]] = [[] for _ in range(sites.size)]
        for number, site in enumerate(np.searchsorted(sites.places, at).tolist()):
            members[site].append(number)
        nearest, _ = sites.nearest(min(_NEAR, max(self.service.k, 1) * 4, max(1, sites.size)))
        return sites, members, nearest

    def prepare(self) -> None:
        """Compute the tables that all queries need, once: seconds for a city."""
        with self._preparing:
            self._sites  # noqa: B018

    def answers(self, points: Sequence[bytes]) -> list[bytes]:
        """Return the reply to each sealed point, in their order. No content of a point raises an error.

        Raises:
            StorageUnavailable: The free connectors cannot be read.
        """
        self.prepare()
        free = self.free()
        seen: list[tuple[bytes, int]] = []
        replies = [self._answer(point, free, seen) for point in points]
        if self._tally is not None and seen:
            self._tally.add(seen)
        return replies

    def _answer(self, sealed: bytes, free: list[int], seen: list[tuple[bytes, int]]) -> bytes:
        k = self.service.k
        point = opened(sealed, self.service.id, self._sealing_key)
        if point is None:
            return os.urandom(reply_bytes(k))
        if point.kind is Kind.QUERY:
            seen.append((sealed, point.number))
            return replied(point, sealed, State.TOLD, self.nearest(point.number, free), k)
        state = self._booked(point) if point.kind is Kind.BOOKING else State.NOTHING
        return replied(point, sealed, state, [], k)

    def nearest(self, place: int, free: Sequence[int]) -> list[int]:
        """Return the nearest stations by road: one of each of the k nearest sites that have one free."""
        roads = self.area.roads
        place = min(max(place, 0), roads.size - 1)
        sites, members, table = self._sites
        found = _first_free(table[place].tolist(), members, free, self.service.k)
        if len(found) < min(self.service.k, sites.size) and table.shape[1] < sites.size:
            far = roads.driving.distances(place)[sites.places]
            order = [int(one) for one in np.argsort(far, kind="stable") if np.isfinite(far[one])]
            found = _first_free(order, members, free, self.service.k)
        return found

    def _booked(self, point: Point) -> State:
        """Book a connector, once for a token as long as it is stored."""
        if point.number >= len(self.stations):
            return State.TAKEN
        now = self._clock()
        try:
            with self._guard, writing(self._base):
                self._base.execute("DELETE FROM booked WHERE until <= ?", (now,))
                kept = self._base.execute("SELECT 1 FROM booked WHERE token = ?", (point.token,)).fetchone()
                if kept is not None:
                    return State.BOOKED
                if not self._free()[point.number]:
                    return State.TAKEN
                row = (point.token, point.number, now + BOOKED_S)
                self._base.execute("INSERT INTO booked VALUES (?, ?, ?)", row)
                return State.BOOKED
        except sqlite3.Error as error:
            raise _unusable(error) from error


def _first_free(
    order: Sequence[int], members: Sequence[Sequence[int]], free: Sequence[int], k: int
) -> list[int]:
    """Return one free station of each of the first k sites that have one."""
    found: list[int] = []
    for site in order:
        if site < 0 or len(found) == k:
            break
        here = next((one for one in members[site] if free[one]), None)
        if here is not None:
            found.append(here)
    return found


def bits_bytes(listed: StationList) -> int:
    """Return the size of the content that `Provider.bits` writes."""
    return len(listed.id) + (len(listed.stations) + 7) // 8 + _SIGNATURE_BYTES


def free_stations(content: bytes, listed: StationList, signer: bytes) -> list[bool]:
    """Verify content that `Provider.bits` wrote, and return which stations of the list are free.

    Raises:
        ParameterError: The content belongs to another list.
        GuaranteeError: Somebody else signed it.
    """
    if len(content) != bits_bytes(listed) or not content.startswith(listed.id):
        raise ParameterError("what is free must be one bit for each station of the list")
    said, signature = content[:-_SIGNATURE_BYTES], content[-_SIGNATURE_BYTES:]
    try:
        Ed25519PublicKey.from_public_bytes(signer).verify(signature, _FREE_HEAD + said)
    except Exception as error:
        raise GuaranteeError("the signature of what is free does not hold") from error
    flags = np.unpackbits(np.frombuffer(said[len(listed.id) :], dtype=np.uint8))
    return [bool(one) for one in flags[: len(listed.stations)]]


def _unusable(error: Exception) -> StorageUnavailable:
    code = getattr(error, "sqlite_errorname", type(error).__name__)
    return StorageUnavailable(f"what is free cannot be read or written now ({code})")
