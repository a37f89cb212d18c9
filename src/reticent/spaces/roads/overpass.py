"""Maps as Overpass answers in JSON: ways with their nodes, or with their geometry (`out geom`).

Ways are cut where they meet: at nodes that several ways have, or that one has twice, and at their ends.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable
from itertools import pairwise
from typing import Any

from reticent.errors import ParameterError
from reticent.spaces.roads import tags
from reticent.spaces.roads.maps import MOST_NODES, Point, RoadMap, Street

_DIGITS = 7  # of degrees, as OpenStreetMap has them


def read(text: bytes) -> RoadMap:
    """Return the map of an answer."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParameterError("a map of Overpass must be JSON") from error
    elements = answer.get("elements") if isinstance(answer, dict) else None
    if not isinstance(elements, list) or not all(isinstance(one, dict) for one in elements):
        raise ParameterError("a map of Overpass must have a list of elements")
    points: dict[Hashable, Point] = {}
    for one in elements:
        if one.get("type") == "node":
            points[_whole("id", one.get("id"))] = (_degrees("lat", one), _degrees("lon", one))
    ways, closed = [], 0
    for one in elements:
        if one.get("type") == "way":
            said = _tags(one)
            if "highway" in said and tags.is_for_cars(said):
                ways += [(names, said) for names in _along(one, points)]
            else:
                closed += 1
    if len(points) > MOST_NODES:
        raise ParameterError(f"a map must have at most {MOST_NODES:,} nodes, got {len(points):,}")
    met = Counter(name for names, _ in ways for name in names)
    streets: list[Street] = []
    for names, said in ways:
        streets += _streets(names, said, met, points)
    joined = {name for one in streets for name in (one.start, one.end)}
    return RoadMap.of({name: points[name] for name in sorted(joined, key=str)}, streets, {"closed": closed})


def _along(way: dict[str, Any], points: dict[Hashable, Point]) -> list[list[Hashable]]:
    """The nodes of a way, in order, in as many pieces as are in the answer (`out geom` with a box cuts ways).

    Those of a geometry without names are called by their degrees.
    """
    names, shape = way.get("nodes"), way.get("geometry")
    if isinstance(shape, list) and shape:
        called = names if isinstance(names, list) and len(names) == len(shape) else None
        pieces: list[list[Hashable]] = [[]]
        for number, at in enumerate(shape):
            if at is None:
                pieces.append([])
                continue
            if not isinstance(at, dict):
                raise ParameterError(f"geometry of way {_shown(way.get('id'))} must be points or null")
            point = (_degrees("lat", at), _degrees("lon", at))
            by_degrees = (round(point[0], _DIGITS), round(point[1], _DIGITS))
            name: Hashable = by_degrees if called is None else _whole("nodes", called[number])
            points[name] = point
            pieces[-1].append(name)
        return [piece for piece in pieces if len(piece) > 1]
    if not isinstance(names, list) or not names:
        raise ParameterError(f"way {_shown(way.get('id'))} must have nodes or a geometry, got neither")
    listed: list[Hashable] = [_whole("nodes", one) for one in names]
    for one in listed:
        if one not in points:
            raise ParameterError(f"nodes of way {_shown(way.get('id'))} must be in the map, got {one}")
    return [listed]


def _streets(
    names: list[Hashable], said: dict[str, str], met: Counter[Hashable], points: dict[Hashable, Point]
) -> list[Street]:
    """Return a way cut where it meets others or itself."""
    (forward, backward), fast = tags.directions(said), tags.kmh(said)
    cuts = [at for at in range(len(names)) if at in (0, len(names) - 1) or met[names[at]] > 1]
    parts = [names[a : b + 1] for a, b in pairwise(cuts)]
    return [
        Street(part[0], part[-1], tuple(points[name] for name in part), None, forward, backward, fast)
        for part in parts
    ]


def _tags(way: dict[str, Any]) -> dict[str, str]:
    said = way.get("tags", {})
    if not isinstance(said, dict):
        raise ParameterError(f"tags of way {_shown(way.get('id'))} must be names and texts")
    return {str(key): value for key, value in said.items() if isinstance(value, str)}


def _degrees(key: str, one: dict[str, Any]) -> float:
    found = one.get(key)
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not -1e9 <= found <= 1e9:
        raise ParameterError(f"{key} must be a finite number of degrees, got {_shown(found)}")
    return float(found)


def _whole(key: str, given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise ParameterError(f"{key} must be a whole number, got {_shown(given)}")
    return given


def _shown(given: Any) -> str:
    return f"{given!r:.40}"
