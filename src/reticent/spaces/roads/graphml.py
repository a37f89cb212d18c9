"""Maps in GraphML as OSMnx writes it: a directed graph in which a two-way street is two edges.

The document is read by expat as a stream, without a tree. A document type is refused before anything that it
declares: entities that unfold are declared there and nowhere else.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Hashable
from typing import Any
from xml.parsers import expat

from reticent.errors import ParameterError
from reticent.spaces.roads import tags
from reticent.spaces.roads.maps import MOST_NODES, MOST_STREETS, Point, RoadMap, Street

MOST_VALUE = 1 << 20  # characters of one value
_LINESTRING = re.compile(r"LINESTRING ?\(([^()]*)\)")
_SAME_M = 0.01  # two edges there and back are one street if their lengths differ by no more

Values = dict[str, str]


def read(text: bytes) -> RoadMap:
    """Return the map of a document."""
    found = _Document()
    found.parse(text)
    points: dict[Hashable, Point] = {
        name: (_number("y", name, said), _number("x", name, said)) for name, said in found.nodes.items()
    }
    streets: list[Street] = []
    backs: dict[Any, list[int]] = defaultdict(list)  # streets that wait for their other direction
    closed = merged = 0
    for start, end, said in found.edges:
        if not tags.is_for_cars(said):
            closed += 1
            continue
        street = _street(start, end, said, directed=found.directed)
        one_way = set(tags._several(said.get("oneway", ""))) in ({"true"}, {"yes"}, {"1"})
        osmid = frozenset(tags._several(said.get("osmid", "")))
        back = None if one_way or not found.directed else _twin(streets, backs[end, start, osmid], street)
        if back is not None:
            streets[back] = _both_ways(streets[back])
            merged += 1
            continue
        if found.directed and not one_way:
            backs[start, end, osmid].append(len(streets))
        streets.append(street)
    return RoadMap.of(points, streets, {"closed": closed, "merged": merged})


def _twin(streets: list[Street], waiting: list[int], street: Street) -> int | None:
    """Return the street whose other direction this is, taken from those that wait."""
    for at in waiting:
        if abs((streets[at].metres or 0.0) - (street.metres or 0.0)) <= _SAME_M:
            waiting.remove(at)
            return at
    return None


def _both_ways(one: Street) -> Street:
    return Street(one.start, one.end, one.line, one.metres, True, True, one.kmh)


def _street(start: str, end: str, said: Values, *, directed: bool) -> Street:
    """One edge; in a directed graph it leads from its source to its target, whatever its tags say."""
    line = None
    if shape := said.get("geometry"):
        found = _LINESTRING.fullmatch(shape.strip())
        try:
            pairs = [tuple(map(float, one.split()))[:2] for one in found[1].split(",")] if found else []
            line = tuple((latitude, longitude) for longitude, latitude in pairs)
        except ValueError:
            line = None
        if line is None or len(line) < 2:
            raise ParameterError(
                f"geometry must be a LINESTRING of pairs, got {shape:.40} from node {start:.40}"
            )
    metres = _number("length", start, said) if "length" in said or line is None else None
    if metres is not None and metres < 0.0:
        raise ParameterError(f"length must be >= 0, got {metres:g} from node {start:.40}")
    forward, backward = (True, False) if directed else tags.directions(said)
    return Street(start, end, line, metres, forward, backward, tags.kmh(said))


def _number(key: str, name: str, said: Values) -> float:
    if key not in said:
        raise ParameterError(f"{key} must be there, got none at node {name:.40}")
    try:
        found = float(said[key])
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ParameterError(f"{key} must be a finite number, got {said[key]:.40} at node {name:.40}")
    return found


class _Document:
    """The document that is put together from the events of expat."""

    def __init__(self) -> None:
        self.nodes: dict[str, Values] = {}
        self.edges: list[tuple[str, str, Values]] = []
        self.directed = True
        self._keys: dict[str, str] = {}
        self._into: Values = {}
        self._key: str | None = None
        self._value: list[str] = []
        self._length = 0

    def parse(self, text: bytes) -> None:
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._text
        parser.buffer_text = True
        try:
            parser.Parse(text, True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise ParameterError(f"a map in GraphML must be XML, line {error.lineno}: {reason}") from error
        if not self.nodes:
            raise ParameterError("a map in GraphML must have nodes, got none")

    def _doctype(self, *_: object) -> None:
        raise ParameterError("a map in GraphML must have no document type: entities are not read")

    def _start(self, name: str, said: dict[str, str]) -> None:
        what = name.rpartition(" ")[2]
        if what == "key":
            self._keys[said.get("id", "")] = said.get("attr.name", "")
        elif what == "graph":
            self.directed = said.get("edgedefault", "directed") != "undirected"
        elif what == "node":
            if len(self.nodes) >= MOST_NODES:
                raise ParameterError(f"a map must have at most {MOST_NODES:,} nodes, got more")
            self._into = self.nodes.setdefault(_named("id", said), {})
        elif what == "edge":
            if len(self.edges) >= 2 * MOST_STREETS:
                raise ParameterError(f"a map must have at most {2 * MOST_STREETS:,} edges, got more")
            self._into = {}
            self.edges.append((_named("source", said), _named("target", said), self._into))
        elif what == "data":
            self._key, self._value, self._length = self._keys.get(said.get("key", "")), [], 0

    def _text(self, text: str) -> None:
        if self._key is not None:
            self._length += len(text)
            if self._length > MOST_VALUE:
                raise ParameterError(f"{self._key:.40} must have at most {MOST_VALUE:,} characters, got more")
            self._value.append(text)

    def _end(self, name: str) -> None:
        what = name.rpartition(" ")[2]
        if what == "data" and self._key is not None:
            self._into[self._key] = "".join(self._value)
            self._key = None
        elif what in ("node", "edge"):
            self._into = {}


def _named(key: str, said: dict[str, str]) -> str:
    if not said.get(key):
        raise ParameterError(f"{key} must be there in every node and edge, got none")
    return said[key]
