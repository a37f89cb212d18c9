"""An invented town with charging stations, for demonstrations, examples and tests: the same one each time.

Streets stand a little askew, every third one is one-way, a river that three bridges cross cuts the town in
two, and a ring is faster than the rest. It lies in the ocean, so that nobody takes it for theirs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from reticent.files import appearing

EDGES, NODES, STATIONS = "town_edges.csv", "town_nodes.csv", "stations.csv"
SIDE = 15  # junctions
_SPACING_M, _ASKEW = 200.0, 0.18
_SOUTH, _WEST = 45.0, -30.0
_M_PER_DEGREE = 111_195.0
_RIVER, _BRIDGES = 8, (2, 7, 12)  # the row below which it flows, and the columns of its bridges
_SITES = ((7, 7), (6, 6), (7, 5), (9, 8), (10, 7), (5, 8), (3, 3), (2, 11), (12, 2), (12, 12), (13, 7),
          (1, 6), (8, 13), (5, 0), (9, 4), (4, 12))  # fmt: skip

Row = tuple[Any, ...]


def write(folder: Path) -> tuple[Path, Path]:
    """Write the map and the stations into a folder: the edges, whose nodes lie beside them, and the stations.

    Args:
        folder: Existing folder.
    """
    where = _junctions()
    _table(folder / NODES, ("node", "lat", "lon"), [(_name(*at), *where[at]) for at in where])
    _table(folder / EDGES, ("u", "v", "length_m", "oneway", "maxspeed"), _streets(where))
    rows = []
    for number, at in enumerate(_SITES, start=1):
        latitude, longitude = where[at]
        rows.append((f"S{number:02}", f"Station {number}", latitude, longitude, 1 + number % 3))
    _table(folder / STATIONS, ("id", "name", "lat", "lon", "connectors"), rows)
    return folder / EDGES, folder / STATIONS


def _name(row: int, column: int) -> str:
    return f"{row:02}-{column:02}"


def _junctions() -> dict[tuple[int, int], tuple[float, float]]:
    """Latitude and longitude by row and column, a little off a grid by a formula: no stream is needed."""
    found = {}
    for row in range(SIDE):
        for column in range(SIDE):
            north = (row + _ASKEW * np.sin(1.7 * row + 2.3 * column)) * _SPACING_M
            east = (column + _ASKEW * np.cos(2.9 * row + 1.1 * column)) * _SPACING_M
            latitude = _SOUTH + north / _M_PER_DEGREE
            longitude = _WEST + east / (_M_PER_DEGREE * np.cos(np.radians(_SOUTH)))
            found[row, column] = (round(float(latitude), 6), round(float(longitude), 6))
    return found


def _streets(where: dict[tuple[int, int], tuple[float, float]]) -> list[Row]:
    found: list[Row] = []
    for row, column in where:
        for to in ((row + 1, column), (row, column + 1)):
            if to not in where or (to[0] == _RIVER and row != to[0] and column not in _BRIDGES):
                continue
            along = row if to[0] == row else column
            rim = along in (0, SIDE - 1)
            one_way = "" if rim or along % 3 or along in _BRIDGES else "yes" if along % 2 else "-1"
            metres = _metres(where[row, column], where[to])
            found.append((_name(row, column), _name(*to), f"{metres:.1f}", one_way, 60 if rim else 30))
    return found


def _metres(first: tuple[float, float], second: tuple[float, float]) -> float:
    north, east = second[0] - first[0], (second[1] - first[1]) * np.cos(np.radians(_SOUTH))
    return float(np.hypot(north, east)) * _M_PER_DEGREE * 1.01


def _table(path: Path, names: tuple[str, ...], rows: list[Row]) -> None:
    lines = [",".join(names), *(",".join(map(str, row)) for row in rows)]
    with appearing(path) as file:
        file.write(("\n".join(lines) + "\n").encode())
