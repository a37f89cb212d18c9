"""Station files: CSV, or Locations of OCPI 2.2.1 in JSON; gzipped or not. All of it is public.

CSV has a line of names, of which `lat` and `lon` are needed; `id`, `name` and `connectors` are optional. From
OCPI, the reader takes `id`, `name`, `coordinates` and the `status` of each of `evses`, in a list of Locations
or in a reply that has it as `data`. An EVSE serves one car at a time, so it counts as a connector.

Reference: OCPI 2.2.1, Locations module, objects Location and EVSE, enumeration Status.
"""

from __future__ import annotations

import csv
import io
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reticent.errors import ParameterError
from reticent.peers import read_json
from reticent.spaces.roads.maps import MOST_LATITUDE
from reticent.spaces.roads.reading import file_text

MOST_STATIONS = 1 << 14
MOST_CONNECTORS = 1 << 10
_LONGEST = 80  # of an id or a name
_IDS, _NAMES, _COUNTS = ("id", "afdc_id", "station_id"), ("name", "station"), ("connectors", "ports")
_REMOVED = "REMOVED"
_AVAILABLE = "AVAILABLE"


@dataclass(frozen=True)
class Station:
    """One charging station as it is published.

    Args:
        id: Operator's id of the station, different from all others.
        name: Name for people.
        latitude: Latitude in degrees, as `longitude`.
        connectors: Number of cars that it serves at a time.
        free: Number of connectors that were free when the file was written.
    """

    id: str
    name: str
    latitude: float
    longitude: float
    connectors: int = 1
    free: int = 1


def read_stations(path: str | os.PathLike[str]) -> tuple[Station, ...]:
    """Read the stations of a file, in its order.

    Raises:
        ParameterError: There are none, too many, or a station breaks a rule; with the field, the rule and the
            value.
    """
    content = file_text(Path(path))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ParameterError("a file of stations must be UTF-8") from error
    found = _ocpi(content) if text.lstrip()[:1] in ("[", "{") else _csv(text)
    return checked(found)


def checked(stations: list[Station]) -> tuple[Station, ...]:
    """Validate that there are stations, not too many, and that their ids differ; return them as a tuple."""
    if not 1 <= len(stations) <= MOST_STATIONS:
        raise ParameterError(f"there must be 1 to {MOST_STATIONS:,} stations, got {len(stations):,}")
    seen: set[str] = set()
    for one in stations:
        _check(one)
        if one.id in seen:
            raise ParameterError(f"id must be that of one station, got {one.id!r:.60} twice")
        seen.add(one.id)
    return tuple(stations)


def _check(one: Station) -> None:
    for field, text in (("id", one.id), ("name", one.name)):
        if not 0 < len(text) <= _LONGEST or not text.isprintable():
            raise ParameterError(f"{field} must be 1 to {_LONGEST} printable characters, got {text!r:.60}")
    if not (math.isfinite(one.latitude) and abs(one.latitude) <= MOST_LATITUDE):
        swapped = ": are lat and lon swapped?" if abs(one.longitude) <= MOST_LATITUDE else ""
        raise ParameterError(
            f"lat must be between -{MOST_LATITUDE:g} and {MOST_LATITUDE:g}, "
            f"got {one.latitude:g} at station {one.id}{swapped}"
        )
    if not (math.isfinite(one.longitude) and abs(one.longitude) <= 180.0):
        raise ParameterError(f"lon must be between -180 and 180, got {one.longitude:g} at station {one.id}")
    if not 0 <= one.free <= one.connectors <= MOST_CONNECTORS or not one.connectors:
        raise ParameterError(
            f"connectors must be 1 to {MOST_CONNECTORS}, and those that are free not more, "
            f"got {one.free} of {one.connectors} at station {one.id}"
        )


# CSV


def _csv(text: str) -> list[Station]:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        head = [name.strip().lower() for name in next(rows, [])]
        for needed in ("lat", "lon"):
            if needed not in head:
                raise ParameterError(f"a CSV of stations must have the column {needed}")
        found = []
        for number, row in enumerate(rows, start=1):
            if not row:
                continue
            if len(row) != len(head):
                raise ParameterError(f"row {number} of stations must have {len(head)} cells, got {len(row)}")
            found.append(_of_row(dict(zip(head, row, strict=True)), number))
            if number > 2 * MOST_STATIONS:
                raise ParameterError(f"there must be at most {MOST_STATIONS:,} stations, got more")
    except csv.Error as error:
        raise ParameterError(f"a CSV of stations must be well formed: {error}") from error
    return found


def _of_row(row: dict[str, str], number: int) -> Station:
    given = _first(row, _IDS) or str(number)
    count = _first(row, _COUNTS) or "1"
    if not (count.isascii() and count.isdigit() and len(count) < 6):
        raise ParameterError(f"connectors must be a whole number, got {count!r:.40} in row {number}")
    latitude, longitude = (_degrees(field, row[field], number) for field in ("lat", "lon"))
    name = _first(row, _NAMES)[:_LONGEST] or given
    return Station(given, name, latitude, longitude, int(count), int(count))


def _first(row: dict[str, str], names: tuple[str, ...]) -> str:
    """Return the content of the first of these columns that exists and is not empty."""
    return next((row[one].strip() for one in names if row.get(one, "").strip()), "")


def _degrees(field: str, text: str, number: int) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ParameterError(f"{field} must be a number, got {text!r:.40} in row {number}") from error


# OCPI


def _ocpi(content: bytes) -> list[Station]:
    try:
        given: Any = read_json(content.removeprefix(b"\xef\xbb\xbf"), deepest=20)
    except (ValueError, RecursionError) as error:
        raise ParameterError("stations in JSON must be well formed, at most 20 deep") from error
    if isinstance(given, dict):
        given = given.get("data")
    if not isinstance(given, list):
        raise ParameterError("stations in JSON must be a list of OCPI Locations, or a reply with it as data")
    return [found for number, one in enumerate(given) if (found := _of_location(one, number)) is not None]


def _of_location(one: Any, number: int) -> Station | None:
    """Build a station from an OCPI Location; None if all its EVSEs were removed."""
    if not isinstance(one, dict) or not isinstance(one.get("id"), str):
        raise ParameterError(f"Location {number} must be an object with an id")
    where = one.get("coordinates")
    if not isinstance(where, dict):
        raise ParameterError(f"Location {one['id']!r:.60} must have coordinates")
    latitude, longitude = (_coordinate(one["id"], where, field) for field in ("latitude", "longitude"))
    evses = one.get("evses")
    if evses is None:
        return Station(one["id"], _name(one), latitude, longitude)
    if not isinstance(evses, list) or not all(
        isinstance(each, dict) and isinstance(each.get("status"), str) for each in evses
    ):
        raise ParameterError(f"evses of Location {one['id']!r:.60} must be a list of objects with a status")
    there = [each["status"] for each in evses if each["status"] != _REMOVED]
    if not there:
        return None
    return Station(one["id"], _name(one), latitude, longitude, len(there), there.count(_AVAILABLE))


def _name(one: dict[str, Any]) -> str:
    name = one.get("name")
    return name[:_LONGEST] if isinstance(name, str) and name else str(one["id"])[:_LONGEST]


def _coordinate(name: str, where: dict[str, Any], field: str) -> float:
    """Parse a coordinate in degrees; OCPI writes it as a text."""
    given = where.get(field)
    try:
        if isinstance(given, bool) or not isinstance(given, (str, int, float)):
            raise ValueError
        return float(given)
    except (ValueError, OverflowError) as error:
        raise ParameterError(
            f"{field} of Location {name!r:.60} must be a number of degrees, got {given!r:.40}"
        ) from error
