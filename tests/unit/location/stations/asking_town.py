"""A provider of stations in a small town, vehicles that ask it, and companions who are anywhere."""

import numpy as np

from reticent.fleet.enrolment import enrolled
from reticent.location.stations.library import JourneyLibrary
from reticent.location.stations.provider import Offered, Provider
from reticent.location.stations.sites import Station
from reticent.location.stations.traffic import invented
from reticent.location.stations.vehicle import Vehicle
from reticent.randomness import SimulationStream, uniform_below
from reticent.spaces import RoadMap, cut
from reticent.spaces.roads import Street

SOUTH, WEST = 37.70, -122.50
MASTER = bytes(range(32))
START = 1_700_000_000
SIDE = 8


def town(side=SIDE, segment_m=100.0, *, one_way=False):
    """A square of streets, about 220 m apart."""
    nodes = {(r, c): (SOUTH + 0.002 * r, WEST + 0.0025 * c) for r in range(side) for c in range(side)}
    lines = [((r, c), to) for r, c in nodes for to in ((r + 1, c), (r, c + 1)) if to in nodes]
    streets = [
        Street(*ends, backward=not (one_way and 0 < ends[0][0] == ends[1][0] < side - 1)) for ends in lines
    ]
    return cut(RoadMap.of(nodes, streets), segment_m)


def stations(count=6, connectors=1):
    """Stations over the square, in an order that is no order of places."""
    spots = [(0.001, 0.002), (0.012, 0.015), (0.006, 0.009), (0.013, 0.001), (0.002, 0.016), (0.009, 0.004)]
    return tuple(
        Station(f"S{number}", f"Station {number}", SOUTH + north, WEST + east, connectors, connectors)
        for number, (north, east) in enumerate((spots * (count // 6 + 1))[:count])
    )


class Anywhere:
    """Companions at places of their own, all alike; not even on a way."""

    def __init__(self, size):
        self.size = size

    def journeys(self, count, queries, rng=None):
        return uniform_below(self.size, count * queries, rng).reshape(count, queries)


def provider(
    folder, *, horizon_km=2.0, roads=None, listed=None, journeys=None, clock=lambda: float(START), **offered
):
    """A provider that begins, or goes on."""
    if (folder / "service.json").exists():
        return Provider(folder, clock=clock)
    roads = (town() if roads is None else roads).within(horizon_km)
    told = Offered(**{"name": "town", "purpose": "Free stations.", "m": 4, "k": 2, **offered})
    Provider.begin(folder, roads, listed or stations(), told, start=START, library=journeys).close()
    return Provider(folder, clock=clock)


def library(roads=None):
    """Invented journeys of the town."""
    roads = town() if roads is None else roads
    found = [one.tolist() for one in invented(roads, count=20, seconds=10, least=6, rng=SimulationStream(2))]
    return JourneyLibrary.of(roads, found, seconds=10, name="town", purpose="companions")


def vehicle(path, held, *, kind=Vehicle, enrolment=None, lifetime=1000.0, **options):
    """A vehicle that has entered the provider's area: both."""
    made = kind(
        path,
        enrolment or enrolled(MASTER),
        held.signer,
        **{"companions": Anywhere(held.area.roads.size), "lifetime_per_km": lifetime, **options},
    )
    try:
        return made, made.enter(held.file, held.map_file)
    except BaseException:
        made.close()
        raise


def point(area, place):
    """Where a place is."""
    return tuple(np.asarray(area.roads.points[place]).tolist())
