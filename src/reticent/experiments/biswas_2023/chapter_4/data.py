"""San Francisco: its streets in segments of 100 m, its charging stations, and journeys of its taxis.

Reference: Biswas 2023, Sections 4.6.1 and 4.6.2. Differences: the city's own street map without one-way
streets for OpenStreetMap's, 378 stations for 404. Their denser set of 716, with planned stations and parking
sites, is not public: ours adds places drawn evenly along the streets.

Epsilon is printed per segment: 1 is 10 per km.
"""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from reticent.experiments.base import Options
from reticent.experiments.data import DataMissing, directory
from reticent.location.stations import JourneyLibrary
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream, Stream
from reticent.spaces.grid import Cells
from reticent.spaces.roads import RoadMap, Roads, Stations, cut, read_map

EDGES, SITES, TRIPS = "sf_road_edges.csv.gz", "sf_ev_stations.csv.gz", "sf_cab_trip_points.csv.gz"
SEGMENT_M = 100.0
PER_SEGMENT = 10.0  # of a level per km
EVERY_S = 60  # from one point of a journey to the next
QUERIES, JOURNEYS = 3, 536
DENSE = 716
_QUICK_STREETS = 3000


@dataclass(frozen=True, eq=False)
class City:
    """What the figures need of it.

    Attributes:
        roads: the places.
        sparse: the stations that there are.
        journeys: the place of each trip every minute.
        points: the places of each trip where its taxi was seen.
        firsts: the trips that are the first of their taxi.
    """

    roads: Roads
    sparse: Stations
    journeys: list[Cells]
    points: list[Cells]
    firsts: Cells

    def dense(self, rng: Stream) -> Stations:
        """The stations and as many places, drawn evenly, as make 716."""
        more = ((rng.units(DENSE) - 1.0) * self.roads.size).astype(np.int64)
        extra = more[: max(0, min(DENSE, self.roads.size // 4) - self.sparse.size)]
        return Stations(self.roads, np.concatenate([self.sparse.places, extra]))

    def asked(self, rng: Stream) -> Cells:
        """Three points of one trip of each taxi: shape (trips, 3)."""
        chosen = [self.points[trip] for trip in self.firsts[:JOURNEYS].tolist()]
        picks = [np.argsort(rng.units(len(one)), kind="stable")[:QUERIES] for one in chosen]
        return np.array([one[pick] for one, pick in zip(chosen, picks, strict=True)])

    def shares(self, places: Any) -> Floats:
        """How often each place is among some."""
        given = np.asarray(places).reshape(-1)
        return np.bincount(given, minlength=self.roads.size) / given.size

    def library(self, chosen: Any) -> JourneyLibrary:
        """The library of some trips."""
        return JourneyLibrary.of(
            self.roads,
            [self.journeys[one] for one in np.asarray(chosen).tolist()],
            seconds=EVERY_S,
            name="taxis",
            purpose="public journeys of an experiment",
        )


def load(options: Options) -> City:
    """Read the city; of quick runs its middle alone.

    Raises:
        DataMissing: a file is not there.
    """
    folder = directory(options.data)
    for file in (EDGES, EDGES.replace("edges", "nodes"), SITES, TRIPS):
        if not (folder / file).is_file():
            raise DataMissing(f"San Francisco needs {file} in the directory of the data; it is not there")
    return _load(folder, options.quick)


@lru_cache(maxsize=2)
def _load(folder: Path, quick: bool) -> City:
    streets = read_map(folder / EDGES)
    roads = cut(_middle(streets) if quick and len(streets.metres) > _QUICK_STREETS else streets, SEGMENT_M)
    sites = _columns(folder / SITES)
    north, east = (np.array(sites[name], dtype=np.float64) for name in ("lat", "lon"))
    sparse = Stations.at(roads, north, east)
    trips = _columns(folder / TRIPS)
    numbers = np.array(trips["trip_id"])
    times, lats, lons = (np.array(trips[name], dtype=np.float64) for name in ("t", "lat", "lon"))
    begins = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
    parts = [slice(*pair) for pair in zip(begins, np.append(begins[1:], len(numbers)), strict=True)]
    cells = roads.cells(lats, lons)
    minutes = [_every_minute(times[part], lats[part], lons[part]) for part in parts]
    places = roads.cells(*np.concatenate(minutes, axis=1))
    ends = np.cumsum([one.shape[1] for one in minutes])[:-1]
    first = np.array(trips["sample"])[begins] == "0"
    return City(roads, sparse, np.split(places, ends), [cells[part] for part in parts], np.flatnonzero(first))


def _middle(streets: RoadMap) -> RoadMap:
    """The streets in the middle third of a map, by latitude and longitude."""
    low, high = streets.points.min(axis=0), streets.points.max(axis=0)
    inside = (np.abs(streets.points - (low + high) / 2.0) <= (high - low) / 6.0).all(axis=1)
    kept = inside[streets.starts] & inside[streets.ends]
    arrays = ("starts", "ends", "metres", "forward", "backward", "kmh")
    return replace(
        streets,
        lines=[line for line, keep in zip(streets.lines, kept.tolist(), strict=True) if keep],
        **{name: getattr(streets, name)[kept] for name in arrays},
    )


def _every_minute(times: Floats, lats: Floats, lons: Floats) -> Floats:
    """Where a trip was every minute, between the points where it was seen: shape (2, minutes)."""
    ticks = np.arange(times[0], times[-1] + 1e-9, float(EVERY_S))
    return np.stack([np.interp(ticks, times, lats), np.interp(ticks, times, lons)])


def _columns(path: Path) -> dict[str, tuple[str, ...]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as handle:
        names, *rows = csv.reader(handle)
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def stream(seed: int, *path: int) -> SimulationStream:
    """A stream of its own for each simulation."""
    return SimulationStream(seed, path=(54, *path))


def reported(channel: Any, places: Any, rng: Stream) -> Cells:
    """The report of each place, by doubles: a simulation's, not a device's."""
    given = np.asarray(places)
    flat, units = given.reshape(-1), rng.units(given.size) - 1.0
    found = np.empty(flat.size, dtype=np.int64)
    for place in np.unique(flat).tolist():
        here, edges = flat == place, np.cumsum(channel.probabilities(place))
        found[here] = np.searchsorted(edges[:-1] / edges[-1], units[here], side="right")
    return found.reshape(given.shape)
