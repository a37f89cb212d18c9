"""Streets as pages draw them: the lines of a public map in a file of a folder, in metres or so, and small.

    {"origin": [latitude, longitude], "lines": [[north, east, north, east, ...], ...]}

All numbers of lines are whole, in 1e-5 degrees: the first pair counts from the origin, each other from the
pair before.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from reticent.errors import ParameterError
from reticent.files import appearing
from reticent.mechanisms.base import Floats
from reticent.spaces import Box
from reticent.spaces.roads import RoadMap, Roads

FILE = "streets.json"
MOST_POINTS = 400_000
_PER_DEGREE = 1e5


def write(folder: Path, streets: RoadMap, box: Box | None = None) -> int:
    """Put the streets of a map into a folder; how many there are.

    Args:
        folder: of a campaign or a provider.
        streets: the map.
        box: what is drawn of it; None for all.

    Raises:
        ParameterError: none of them is in the box, or there are too many to draw.
    """
    lines = [line for line in streets.lines if box is None or _meets(line, box)]
    if not lines:
        raise ParameterError("a map must have a street within the box of the campaign, got none")
    if (points := sum(map(len, lines))) > MOST_POINTS:
        raise ParameterError(f"streets must have at most {MOST_POINTS:,} points to be drawn, got {points:,}")
    with appearing(folder / FILE) as file:
        file.write(json.dumps(packed(lines), separators=(",", ":")).encode())
    return len(lines)


def drawn(folder: Path) -> bytes | None:
    """The file of a folder; None if nobody put a map there."""
    path = folder / FILE
    return path.read_bytes() if path.is_file() else None


def packed(lines: list[Floats]) -> dict[str, Any]:
    """Lines of latitudes and longitudes as the file holds them."""
    origin = np.min([line.min(axis=0) for line in lines], axis=0)
    found = []
    for line in lines:
        whole = np.rint((line - origin) * _PER_DEGREE).astype(np.int64)
        found.append(np.diff(whole, axis=0, prepend=np.zeros((1, 2), dtype=np.int64)).reshape(-1).tolist())
    return {"origin": [round(float(one), 7) for one in origin], "lines": found}


def between_places(roads: Roads) -> dict[str, Any]:
    """Lines from the middle of each place to its neighbours: for a network without lines of its own."""
    begin, end = roads.street.begins, roads.street.ends
    once = begin < end
    pairs = np.stack([roads.points[begin[once]], roads.points[end[once]]], axis=1)
    return packed(list(pairs))


def _meets(line: Floats, box: Box) -> bool:
    """Whether the rectangle around a line meets a box."""
    (south, west), (north, east) = line.min(axis=0), line.max(axis=0)
    return bool(south <= box.north and north >= box.south and west <= box.east and east >= box.west)
