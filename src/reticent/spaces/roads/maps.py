"""A map of streets, whatever file it came from: checked once, here.

A street leads from one node to another, along a line, for so many metres; cars may use it forward, backward
or both ways. Whatever is no such map is refused with the field, the rule and the value: a map is public.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from reticent.errors import ParameterError
from reticent.spaces.finite import Flags, Floats
from reticent.spaces.globe import RADIUS_KM

MOST_NODES = 1 << 21
MOST_STREETS = 1 << 20
MOST_STREETS_OF_NODE = 64
MOST_METRES = 1e6
MOST_DEGREES = 3.0  # of latitude, from end to end
MOST_LATITUDE = 85.0
DEFAULT_KMH = 40.0
LEAST_KMH, MOST_KMH = 5.0, 150.0
_SHORTER = 0.9  # a street may be so much shorter than the straight line between its ends, and ...
_SHORTER_M = 100.0  # ... so many metres: maps place nodes by rounding

Numbers = NDArray[np.int64]
Point = tuple[float, float]  # latitude, longitude


@dataclass(frozen=True)
class Street:
    """One street while a map is read.

    Args:
        start: Node where the street begins, as the file calls it.
        end: Node where the street ends.
        line: Latitudes and longitudes from start to end, both included; None for a straight one.
        metres: Length of the street; None for that of the line.
        forward: True if cars may drive from start to end.
        backward: True if cars may drive from end to start.
        kmh: Speed of cars.
    """

    start: Hashable
    end: Hashable
    line: tuple[Point, ...] | None = None
    metres: float | None = None
    forward: bool = True
    backward: bool = True
    kmh: float = DEFAULT_KMH


@dataclass(frozen=True, eq=False)
class RoadMap:
    """Streets between nodes.

    Attributes:
        points: Latitude and longitude of each node.
        starts: Node where each street begins.
        ends: Node where each street ends.
        metres: Length of each street.
        forward: Flag of each street: cars may drive from start to end.
        backward: Flag of each street: cars may drive from end to start.
        kmh: Speed of cars on each street.
        lines: Points of each street, from start to end: shape (points, 2).
        told: Counts of what was left out while reading, by reason.
    """

    points: Floats
    starts: Numbers
    ends: Numbers
    metres: Floats
    forward: Flags
    backward: Flags
    kmh: Floats
    lines: list[Floats]
    told: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, nodes: dict[Hashable, Point], streets: Sequence[Street], told: dict[str, int] | None = None
    ) -> RoadMap:
        """Return the map of nodes and streets.

        Raises:
            ParameterError: it is none; the message names field, rule and value.
        """
        for what, count, most in (("nodes", len(nodes), MOST_NODES), ("streets", len(streets), MOST_STREETS)):
            if count > most:
                raise ParameterError(f"a map must have at most {most:,} {what}, got {count:,}")
        if not streets:
            raise ParameterError("a map must have at least one street that cars may use, got none")
        order = {name: at for at, name in enumerate(nodes)}
        points = np.array([_point(name, at) for name, at in nodes.items()], dtype=np.float64).reshape(-1, 2)
        for name in (name for one in streets for name in (one.start, one.end)):
            if name not in order:
                raise ParameterError(f"every node of a street must be listed, got {_shown(name)}")
        lines = [_line(one, nodes) for one in streets]
        metres = np.array([_metres(*pair) for pair in zip(streets, lines, strict=True)])
        found = cls(
            points,
            np.array([order[one.start] for one in streets], dtype=np.int64),
            np.array([order[one.end] for one in streets], dtype=np.int64),
            metres,
            np.array([one.forward for one in streets], dtype=np.bool_),
            np.array([one.backward for one in streets], dtype=np.bool_),
            np.array([_kmh(one) for one in streets], dtype=np.float64),
            lines,
            dict(told or {}),
        )
        found._check(list(nodes))
        return found

    def _check(self, names: list[Hashable]) -> None:
        used = np.union1d(self.starts, self.ends)
        if used.size < 2:
            raise ParameterError(f"streets must join at least 2 nodes, got {used.size}")
        for field_, column in (("latitude", 0), ("longitude", 1)):
            low, high = self.points[used, column].min(), self.points[used, column].max()
            most = MOST_DEGREES if column == 0 else MOST_DEGREES / math.cos(math.radians(MOST_LATITUDE))
            if high - low > most:
                raise ParameterError(
                    f"{field_} must span at most {most:g} degrees in a map, got {low:g} to {high:g}"
                )
        degree = np.bincount(np.concatenate([self.starts, self.ends]), minlength=len(names))
        if degree.max() > MOST_STREETS_OF_NODE:
            name = names[int(degree.argmax())]
            raise ParameterError(
                f"a node must join at most {MOST_STREETS_OF_NODE} streets, "
                f"got {degree.max()} at {_shown(name)}"
            )

    @property
    def one_way(self) -> float:
        """The share of the street length that cars may drive in one direction only."""
        return float(self.metres[self.forward != self.backward].sum() / self.metres.sum())


def _point(name: Hashable, at: Point) -> Point:
    latitude, longitude = at
    if not (math.isfinite(latitude) and abs(latitude) <= MOST_LATITUDE):
        swapped = ": are latitude and longitude swapped?" if abs(longitude) <= MOST_LATITUDE else ""
        raise ParameterError(
            f"lat must be between -{MOST_LATITUDE:g} and {MOST_LATITUDE:g}, "
            f"got {latitude:g} at node {_shown(name)}{swapped}"
        )
    if not (math.isfinite(longitude) and abs(longitude) <= 180.0):
        raise ParameterError(f"lon must be between -180 and 180, got {longitude:g} at node {_shown(name)}")
    return at


def _line(one: Street, nodes: dict[Hashable, Point]) -> Floats:
    ends = (nodes[one.start], nodes[one.end])
    line = np.array(one.line if one.line and len(one.line) > 1 else ends, dtype=np.float64)
    if not np.isfinite(line).all() or np.abs(line[:, 0]).max() > MOST_LATITUDE:
        raise ParameterError(
            f"the points of a street must be finite, lat between -{MOST_LATITUDE:g} and {MOST_LATITUDE:g}"
        )
    return line


def _metres(one: Street, line: Floats) -> float:
    if one.metres is None:
        return float(great_circle_m(line[:-1], line[1:]).sum())
    metres = float(one.metres)
    if not (math.isfinite(metres) and 0.0 <= metres <= MOST_METRES):
        raise ParameterError(
            f"length must be between 0 and {MOST_METRES:g} m, got {metres:g} from {_shown(one.start)}"
        )
    apart = float(great_circle_m(line[:1], line[-1:])[0])
    if metres < _SHORTER * apart - _SHORTER_M:
        raise ParameterError(
            f"length must be at least the straight line between the ends, {apart:.0f} m, got {metres:g} m "
            f"from {_shown(one.start)}: are latitude and longitude swapped?"
        )
    return metres


def _kmh(one: Street) -> float:
    return min(max(float(one.kmh), LEAST_KMH), MOST_KMH) if math.isfinite(one.kmh) else DEFAULT_KMH


def great_circle_m(first: Floats, second: Floats) -> Floats:
    """Metres between points, latitudes and longitudes in the last axis."""
    a, b = np.radians(first), np.radians(second)
    half = np.square(np.sin((b - a) / 2.0))
    inner = half[..., 0] + np.cos(a[..., 0]) * np.cos(b[..., 0]) * half[..., 1]
    return np.asarray(2000.0 * RADIUS_KM * np.arcsin(np.sqrt(np.minimum(1.0, inner))))


def _shown(name: Hashable) -> str:
    return f"{name!s:.40}" if isinstance(name, (str, int)) else f"{name!r:.60}"
