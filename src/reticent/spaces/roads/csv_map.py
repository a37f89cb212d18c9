"""Maps in two CSV files: node,lat,lon and u,v,length_m with what else is known of a street."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Hashable, Iterator

from reticent.errors import ParameterError
from reticent.spaces.roads import tags
from reticent.spaces.roads.maps import MOST_NODES, MOST_STREETS, Point, RoadMap, Street

_TAGS = ("highway", "access", "oneway", "junction", "maxspeed", "speed_kph", "motor_vehicle")


def read(nodes: bytes, edges: bytes) -> RoadMap:
    """Return the map of both files.

    Nodes need the columns node, lat, lon; edges u, v, length_m. Edges may have geometry ("lat lon;lat lon")
    and the columns highway, access, oneway, junction, maxspeed, speed_kph, which mean what they mean as
    tags of OpenStreetMap; without oneway a street is open both ways.
    """
    points: dict[Hashable, Point] = {}
    for line, row in _rows("nodes", nodes, ("node", "lat", "lon"), MOST_NODES):
        if row["node"] in points:
            raise ParameterError(f"nodes, line {line}: node must be listed once, got {row['node']:.40} again")
        points[row["node"]] = (_number("nodes", line, "lat", row), _number("nodes", line, "lon", row))
    streets, closed = [], 0
    for line, row in _rows("edges", edges, ("u", "v", "length_m"), MOST_STREETS):
        said = {key: row[key] for key in _TAGS if row.get(key)}
        if not tags.is_for_cars(said):
            closed += 1
            continue
        for key in ("u", "v"):
            if row[key] not in points:
                raise ParameterError(
                    f"edges, line {line}: {key} must be a node of the map, got {row[key]:.40}"
                )
        shape = _shape(line, row.get("geometry") or "")
        metres = _number("edges", line, "length_m", row)
        if not metres >= 0.0:
            raise ParameterError(f"edges, line {line}: length_m must be >= 0, got {metres:g}")
        forward, backward = tags.directions(said)
        streets.append(Street(row["u"], row["v"], shape, metres, forward, backward, tags.kmh(said)))
    return RoadMap.of(points, streets, {"closed": closed})


def _rows(what: str, text: bytes, needed: tuple[str, ...], most: int) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        lines = io.StringIO(text.decode("utf-8-sig"), newline="")
    except UnicodeDecodeError as error:
        raise ParameterError(f"{what} must be UTF-8 text, got another byte at {error.start}") from error
    reader = csv.DictReader(lines, strict=True)
    try:
        missing = [one for one in needed if one not in (reader.fieldnames or ())]
        if missing:
            raise ParameterError(f"{what} must have the columns {', '.join(needed)}, got no {missing[0]}")
        for count, row in enumerate(reader):
            if count >= most:
                raise ParameterError(f"{what} must have at most {most:,} rows, got more")
            if None in row or any(row[key] in (None, "") for key in needed):
                raise ParameterError(
                    f"{what}, line {reader.line_num}: a row must have a value in {', '.join(needed)}, "
                    "and no more cells than there are columns"
                )
            yield reader.line_num, row
    except csv.Error as error:
        raise ParameterError(f"{what}, after line {reader.line_num}: a row must be CSV: {error}") from error


def _number(what: str, line: int, key: str, row: dict[str, str]) -> float:
    try:
        found = float(row[key])
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ParameterError(f"{what}, line {line}: {key} must be a finite number, got {row[key]:.40}")
    return found


def _shape(line: int, text: str) -> tuple[Point, ...] | None:
    if not text:
        return None
    try:
        pairs = [tuple(map(float, one.split())) for one in text.split(";")]
        return tuple((latitude, longitude) for latitude, longitude in pairs)
    except ValueError as error:
        raise ParameterError(
            f"edges, line {line}: geometry must be pairs like 37.75 -122.44;37.76 -122.45, got {text:.40}"
        ) from error
