"""Signed texts of a provider of stations: the area of its service, the channel, and the list of stations.

The text of a service names its map by digest, so that neither map nor channel can differ between what was
signed and what is used; the channel is that of `mechanisms.location.elastic` on min(d, horizon) with an even
marginal. `Area` is text and map together: there a vehicle works the level out again.

Privacy: the level is 2 beta and rounding, whatever the map: a shortest way is a chain of neighbouring places,
    so street kilometres are a metric on any network that `Roads` takes, and min(d, horizon) is one again. So
    nothing needs to be looked at pair by pair. Two points that are a hair apart on the ground may be as far
    apart as the horizon (`Roads.jump` is never more), so a vehicle refuses a larger one than it allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

from reticent.arguments import real, whole
from reticent.errors import GuaranteeError, ParameterError
from reticent.fleet.published import ID_BYTES, WORDS, Published
from reticent.fleet.signing import verified
from reticent.fleet.texts import checked_fields, hexadecimal
from reticent.location.stations import road_file
from reticent.location.stations.companions import Companions
from reticent.location.stations.library import JourneyLibrary
from reticent.location.stations.sealing import is_sealed_to
from reticent.location.stations.sites import MOST_CONNECTORS, MOST_STATIONS, Station, checked
from reticent.mechanisms.location import ElasticChannel
from reticent.privacy import MetricDP
from reticent.privacy.budget import cost_units
from reticent.spaces.roads import Roads

FORMAT = 1
MOST_K, MOST_M = 16, 64
MOST_PERIODS = 1 << 31
_STATION = ("id", "name", "lat", "lon", "connectors")


@dataclass(frozen=True)
class StationService(Published):
    """The signed terms of a station service.

    Args:
        name: Name of the service; see `Published` for it, `version` and `purpose`.
        map: Digest of its map (`Roads.digest`).
        horizon_km: Distance beyond which nothing is farther.
        beta: Parameter beta of the channel, in 1/km.
        level: Privacy level of one query, in 1/km.
        k: Number of stations that a reply names.
        m: Number of points of a query, one of them true.
        start: Start of the first period, in seconds since 1970.
        period_s: Seconds for which a query stays the same.
        provider: Public key that points are sealed to.
        stations: Id of the list of stations.
        library: Id of the library of journeys that companions are made of; empty for none.
    """

    what = field = "service"
    head = b"reticent-stations/v1\n"
    names = (
        *WORDS, "map", "horizon_km", "beta", "level", "k", "m", "start", "period_s", "provider",
        "stations", "library",
    )  # fmt: skip
    study = "stations"

    map: str
    horizon_km: float
    beta: float
    level: float
    k: int
    m: int
    start: int
    period_s: int
    provider: bytes
    stations: str
    library: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(hexadecimal("map", self.map)) != 32:
            raise ParameterError("map must be 64 hexadecimal digits")
        for name in ("horizon_km", "beta", "level"):
            object.__setattr__(self, name, real(name, getattr(self, name), low=0.0, open_low=True))
        for name, low, high in (
            ("k", 1, MOST_K),
            ("m", 1, MOST_M),
            ("start", 0, 1 << 40),
            ("period_s", 1, 1 << 31),
        ):
            object.__setattr__(self, name, whole(name, getattr(self, name), low=low, high=high))
        if not isinstance(self.provider, bytes) or len(self.provider) != 32:
            raise ParameterError("provider must be 32 bytes")
        for name in ("stations", "library"):
            size = len(hexadecimal(name, getattr(self, name)))
            if size != ID_BYTES and (size or name == "stations"):
                raise ParameterError(f"{name} must be an id of {2 * ID_BYTES} hexadecimal digits")

    @classmethod
    def made(cls, roads: Roads, *, level: float, **fields: Any) -> StationService:
        """Build the terms of a service on a map, whose queries keep a level, rounding included.

        Args:
            roads: Road network within the horizon.
            level: Privacy level of one query, in 1/km.
            fields: Remaining fields of the terms.
        """
        level = real("level", level, low=0.0, open_low=True)
        spare = ElasticChannel(roads, np.ones(roads.size), level / 2.0).rounding
        if spare >= level / 2.0:
            raise ParameterError(f"level must be more than {2.0 * spare:g} on this map, got {level:g}")
        beta = (level - 2.0 * spare) / 2.0
        kept = ElasticChannel(roads, np.ones(roads.size), beta).level
        return cls(map=roads.digest, horizon_km=roads.horizon, beta=beta, level=kept, **fields)

    def period(self, now: float) -> int:
        """Return the number of the period at a time.

        Raises:
            ParameterError: No period covers this time.
        """
        number = (now - self.start) // self.period_s
        if not 0 <= number < MOST_PERIODS:  # nor what is no number
            raise ParameterError(f"the periods of {self.name} must have begun: is the clock right?")
        return int(number)

    def _fields(self) -> Mapping[str, Any]:
        plain = {name: getattr(self, name) for name in self.names if name not in ("format", "provider")}
        return plain | {"format": FORMAT, "provider": self.provider.hex()}

    @classmethod
    def _of(cls, given: dict[str, Any]) -> StationService:
        if given.pop("format") != FORMAT:
            raise ParameterError(f"format must be {FORMAT}")
        return cls(**given | {"provider": hexadecimal("provider", given["provider"])})

    @property
    def series(self) -> str:
        """The name of the service: one query for each period, whatever text it is asked under."""
        return self.name

    @property
    def key(self) -> X25519PublicKey:
        """The public key that points are sealed to."""
        return X25519PublicKey.from_public_bytes(self.provider)


@dataclass(frozen=True, eq=False)
class Area:
    """A service and its map, checked against each other.

    Args:
        service: Terms of the service.
        roads: Road network within its horizon.
    """

    service: StationService
    roads: Roads

    @classmethod
    def of(cls, service: StationService, file: bytes) -> Area:
        """Build the area from the terms and the file of the map.

        Raises:
            GuaranteeError: The map is another one, or the level is not that of the channel.
            ParameterError: The file is no map, or nothing can be sealed to the provider's key.
        """
        if not is_sealed_to(service.key):
            raise ParameterError("provider must be a public key of X25519, and none that everybody can open")
        roads = road_file.read(file)
        if roads.digest != service.map:
            raise GuaranteeError("the map must be the one that the service signed")
        found = cls(service, roads.within(service.horizon_km))
        if found.channel.level != service.level:
            raise GuaranteeError(
                f"level must be {found.channel.level!r} for this beta and map, 2 beta and rounding"
            )
        return found

    @cached_property
    def channel(self) -> ElasticChannel:
        """The channel that each point goes through, true or not."""
        return ElasticChannel(self.roads, np.ones(self.roads.size), self.service.beta)

    def companions(self, library_file: bytes, signer: bytes) -> Companions:
        """Build companions from the service's library, with one step for each period.

        Raises:
            GuaranteeError: The library is not the one that the service signed.
        """
        library = verified(JourneyLibrary, library_file, signer)
        if library.id.hex() != self.service.library:
            raise GuaranteeError("the library must be the one that the service signed")
        return Companions(self.roads, library, stride=max(1, self.service.period_s // library.seconds))

    @property
    def guarantee(self) -> MetricDP:
        """The guarantee of one query for any two points: within street kilometres, up to the horizon."""
        return MetricDP(self.channel.level, self.roads.unit, slack=self.roads.horizon)

    @cached_property
    def units(self) -> int:
        """Charge of one query to a vehicle's ledger, in units of 1e-12 per km, rounded up."""
        return cost_units(self.channel.level)


@dataclass(frozen=True)
class StationList(Published):
    """The stations of a service, in the order in which replies number them.

    Args:
        name: Name of the service; see `Published` for it, `version` and `purpose`.
        stations: Stations of the service.
    """

    what = field = "stations"
    head = b"reticent-station-list/v1\n"
    names = (*WORDS, "stations")
    longest = 1 << 22
    study = "stations"

    stations: tuple[Station, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        checked(list(self.stations))

    def _fields(self) -> Mapping[str, Any]:
        plain: dict[str, Any] = {name: getattr(self, name) for name in WORDS[1:]}
        rows = [
            dict(zip(_STATION, (one.id, one.name, one.latitude, one.longitude, one.connectors), strict=True))
            for one in self.stations
        ]
        return plain | {"format": FORMAT, "stations": rows}

    @classmethod
    def _of(cls, given: dict[str, Any]) -> StationList:
        if given.pop("format") != FORMAT:
            raise ParameterError(f"format must be {FORMAT}")
        rows = given["stations"]
        if not isinstance(rows, list) or len(rows) > MOST_STATIONS:
            raise ParameterError(f"stations must be a list of at most {MOST_STATIONS:,}")
        return cls(**given | {"stations": tuple(_station(place, one) for place, one in enumerate(rows))})


def _station(place: int, given: Any) -> Station:
    where = f"stations[{place}]"
    one = checked_fields(where, given, _STATION)
    for name in ("id", "name"):
        if not isinstance(one[name], str):
            raise ParameterError(f"{where}: {name} must be a text")
    count = whole("connectors", one["connectors"], low=1, high=MOST_CONNECTORS)
    return Station(one["id"], one["name"], real("lat", one["lat"]), real("lon", one["lon"]), count, count)
