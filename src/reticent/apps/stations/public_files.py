"""Public files of operators: a map, stations, and points where queries come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reticent.apps.stations.map_commands import Cut
from reticent.errors import ParameterError
from reticent.location import checkins
from reticent.location.stations import Station
from reticent.mechanisms.base import Floats
from reticent.spaces.roads import RoadMap, Roads, Stations, cut, read_map
from reticent.spaces.roads.maps import great_circle_m

MOST_SPREAD = 500
_OFF_M = 2000.0  # that a station may be away from the middle of its segment


def roads_of(file: Path, how: Cut) -> tuple[RoadMap, Roads]:
    """Return a map, and its places."""
    streets = read_map(file, how.nodes)
    roads = cut(streets, how.segment, metric=how.metric)
    roads.within(how.horizon)  # or it is refused now
    return streets, roads


def evenly(roads: Roads) -> Floats:
    """Return evenly spread query counts: from all places, or from some, since more cost time."""
    found = np.zeros(roads.size)
    found[np.unique(np.linspace(0, roads.size - 1, MOST_SPREAD).astype(np.int64))] = 1.0
    return found


def asked_from(file: Path | None, roads: Roads) -> Floats:
    """Return the number of queries from each place: by the points of a file, or evenly."""
    if file is None:
        return evenly(roads)
    places = checkins.cells(file, roads)
    if not places.size:
        raise ParameterError(f"{file.name} must have at least one point, got none")
    return np.bincount(places, minlength=roads.size).astype(np.float64)


def sites_of(stations: tuple[Station, ...], roads: Roads, by: str = "length") -> Stations:
    """Return the sites of stations on a map.

    Raises:
        ParameterError: a station is not on the map.
    """
    points = np.array([(one.latitude, one.longitude) for one in stations])
    sites = Stations.at(roads, points[:, 0], points[:, 1], by)
    places = roads.cells(points[:, 0], points[:, 1])
    away = great_circle_m(points, roads.points[places])
    if away.max() > _OFF_M:
        one = stations[int(away.argmax())]
        raise ParameterError(
            f"stations must be within {_OFF_M / 1000.0:g} km of a street of the map, got {one.id} "
            f"{away.max() / 1000.0:,.3g} km away"
        )
    return sites
