"""An example journey on a provider's map, asked for privately: the reports, and who sees what.

Nobody drove it: it leads across the map by a rule. So it may be drawn again and again, with any level, and
shown beside what was reported, which no service could do with anybody's journey.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.fleet.enrolment import ID_BYTES, TAG_BYTES
from reticent.fleet.published import ID_BYTES as TEXT_BYTES
from reticent.location.stations.cost import Queries
from reticent.location.stations.mixing import permutation
from reticent.location.stations.sealing import POINT_BYTES
from reticent.location.stations.traffic import quickest
from reticent.location.stations.vehicle import Travellers
from reticent.mechanisms.location import exponential
from reticent.randomness import Stream
from reticent.spaces.grid import Cells
from reticent.spaces.roads import Roads, Stations

MOST_LEVEL, MOST_K, MOST_M = 20.0, 5, 20
QUERIES = 3
_FROM, _TO = 0.12, 0.88  # of the map, from south-west to north-east
_CURVE = (1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0)  # levels of the chart

Point = list[float]


@dataclass(frozen=True, eq=False)
class Example:
    """An example journey on a provider's map.

    Args:
        roads: Road network within its horizon.
        latitudes: Latitudes of the stations, in degrees.
        longitudes: Longitudes of the stations, in degrees.
        companions: Source of dummy journeys; None for none.
    """

    roads: Roads
    latitudes: Any
    longitudes: Any
    companions: Travellers | None
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _known: dict[int, Queries] = field(default_factory=dict)
    _curves: dict[int, list[dict[str, float]]] = field(default_factory=dict)

    @cached_property
    def way(self) -> Cells:
        """Places that the journey passes."""
        low, high = self.roads.points.min(axis=0), self.roads.points.max(axis=0)
        begin, end = (int(self.roads.cells(*(low + share * (high - low)))) for share in (_FROM, _TO))
        return quickest(self.roads, begin, end)[0]

    @cached_property
    def asked(self) -> Cells:
        """The places where it asks: a quarter, half, and three quarters of the way."""
        return self.way[(np.arange(1, QUERIES + 1) * len(self.way)) // (QUERIES + 1)]

    @cached_property
    def stations(self) -> Cells:
        """The place of each station."""
        return self.roads.cells(np.asarray(self.latitudes), np.asarray(self.longitudes))

    @cached_property
    def sites(self) -> Stations:
        """Sites of the stations, each place once."""
        return Stations(self.roads, self.stations)

    def drawn(self, level: float, k: int, m: int, rng: Stream | None = None) -> dict[str, Any]:
        """Sample the journey with fresh noise.

        Args:
            level: Privacy level of a query, per km.
            k: Number of sites that a reply names.
            m: Number of points of a query, one of them true.
            rng: Random stream; None for secure randomness.
        """
        level = real("level", level, low=0.0, high=MOST_LEVEL, open_low=True)
        k, m = whole("k", k, low=1, high=MOST_K), whole("m", m, low=1, high=MOST_M)
        m = m if self.companions is not None else 1
        with self._guard:  # one at a time: it takes a core
            places = self.asked[None, :]
            if self.companions is not None and m > 1:
                places = np.vstack([places, self.companions.journeys(m - 1, QUERIES, rng)])
            reports = exponential(self.roads, level).sample(places, rng)
            queries = self._queries(k)
            return {
                "level": level,
                "k": k,
                "m": m,
                "way": self._points(self.way),
                "asked": [self._query(queries, one, reports[:, one], rng) for one in range(QUERIES)],
                "request_bytes": TEXT_BYTES + ID_BYTES + m * POINT_BYTES + TAG_BYTES,
                "curve": self._curve(k),
                **self._exact(queries, level),
            }

    def _query(self, queries: Queries, number: int, reports: Cells, rng: Stream | None) -> dict[str, Any]:
        """Describe one query; the first report is that of the true place."""
        place, sites = int(self.asked[number]), self.sites
        costs = sites.costs[place]
        told = np.unique(queries.answers[reports])
        told = told[told >= 0]
        chosen, nearest = int(told[costs[told].argmin()]), int(costs.argmin())
        end = int(sites.places[chosen])
        return {
            "true": self._points(np.array([place]))[0],
            "report": self._points(reports[:1])[0],
            "moved_m": _metres(self.roads.distances(place)[reports[0]]),
            "companions": self._points(reports[1:]),
            "seen": self._points(reports[permutation(len(reports), rng)]),
            "told": self._named(told),
            "chosen": self._named(np.array([chosen]))[0],
            "nearest": self._named(np.array([nearest]))[0],
            "route": self._points(quickest(self.roads, place, end, "length")[0]),
            "drive_m": _metres(costs[chosen]),
            "nearest_m": _metres(costs[nearest]),
        }

    def _queries(self, k: int) -> Queries:
        """From the places where the journey asks, alike."""
        if k not in self._known:
            prior = np.bincount(self.asked, minlength=self.roads.size)
            self._known[k] = Queries(self.sites, prior, k=k, limit_km=self.roads.horizon)
        return self._known[k]

    @staticmethod
    def _exact(queries: Queries, level: float) -> dict[str, float]:
        found = queries.pure(level / 2.0)
        return {"free": _short(found.share_free), "detour_m": _metres(found.mean_detour)}

    def _curve(self, k: int) -> list[dict[str, float]]:
        """Return the share of replies without a detour by level, of one site told and of k."""
        if k not in self._curves:
            one, more = self._queries(1), self._queries(k)
            self._curves[k] = [
                {
                    "level": level,
                    "one": _short(one.pure(level / 2.0).share_free),
                    "more": _short(more.pure(level / 2.0).share_free),
                }
                for level in _CURVE
            ]
        return self._curves[k]

    def _points(self, places: Cells) -> list[Point]:
        return [[round(north, 6), round(east, 6)] for north, east in self.roads.points[places].tolist()]

    def _named(self, sites: Cells) -> list[int]:
        """Return the first station of each of some sites."""
        return [int(np.flatnonzero(self.stations == self.sites.places[one])[0]) for one in sites.tolist()]


def _metres(km: Any) -> float:
    return round(1000.0 * float(km), 1)


def _short(share: float) -> float:
    return float(f"{share:.4g}")
