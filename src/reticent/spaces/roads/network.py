"""Places on a road network: private by a symmetric distance, driven to by a directed one.

What is promised is counted in street kilometres without direction, or in straight lines: both are metrics.
Kilometres along one-way streets are none, since there and back differ; they are what cars drive, and never
what a guarantee is stated in.
"""

from __future__ import annotations

import copy
import hashlib
import math
from functools import cached_property
from typing import Any

import numpy as np

from reticent.arguments import real
from reticent.errors import ParameterError
from reticent.spaces.finite import Flags, Floats
from reticent.spaces.globe import View
from reticent.spaces.grid import Cells
from reticent.spaces.roads import snapping
from reticent.spaces.roads.graph import Graph, Rows

METRICS = ("street", "straight")
COSTS = ("length", "time")
GRAIN_KM = 2.0**-20  # what all street distances are multiples of
MOST_LONGITUDE = 720.0  # degrees go on beyond the date line
MOST_SECONDS = 1e9  # of one arc: the digest counts them in whole milliseconds
APART_KM = 0.001  # the least distance of two places by a straight line: bridges cross streets


class Roads:
    """Places of a cut map, a `Space`; made by `cut`.

    Distances are those of the metric up to the horizon: min(d, horizon) is a metric again, in which all that
    is far is as far.

    Args:
        points: latitude and longitude of each place.
        street: arcs in km without direction: as long there as back, in whole multiples of 2^-20 km (a
            millimetre). So their sums are exact in doubles, in whatever order: distances are symmetric and
            keep the triangle inequality exactly.
        driving: arcs in km as cars drive.
        seconds: Arcs in seconds as cars drive.
        metric: "street" for kilometres along streets without direction, "straight" for straight lines.
        horizon_km: Horizon beyond which nothing is farther.
        lines: both ends of each place, in degrees; to draw it.
        streets: the street of the map that each place is a part of.
        told: Counts of what was left out of the map, by reason.

    Raises:
        ParameterError: there are fewer than two places, or some that do not reach each other; street is
            no metric.
    """

    unit = "km"

    def __init__(
        self,
        points: Any,
        street: Graph,
        driving: Graph,
        seconds: Graph,
        *,
        metric: str = "street",
        horizon_km: float = math.inf,
        lines: Floats | None = None,
        streets: Cells | None = None,
        told: dict[str, int] | None = None,
    ) -> None:
        self.points: Floats = np.asarray(points, dtype=np.float64).reshape(-1, 2)
        if len(self.points) < 2:
            raise ParameterError(f"a road network must have at least 2 places, got {len(self.points)}")
        if not (np.abs(self.points) <= (90.0, MOST_LONGITUDE)).all():  # what is no number is neither
            raise ParameterError("points must be latitudes and longitudes")
        for name, graph in (("street", street), ("driving", driving), ("seconds", seconds)):
            if graph.size != len(self.points):
                raise ParameterError(f"{name} must join {len(self.points)} places, got {graph.size}")
        if not street.is_symmetric:
            raise ParameterError("street must be as long there as back: a metric has no direction")
        if (np.rint(street.lengths / GRAIN_KM) * GRAIN_KM != street.lengths).any():
            raise ParameterError(
                "lengths of street must be whole multiples of 2^-20 km: their sums are exact"
            )
        if seconds.longest > MOST_SECONDS:
            raise ParameterError(f"seconds must be at most {MOST_SECONDS:g} for an arc")
        self.street, self.driving, self.seconds = street, driving, seconds
        self.metric = _one_of("metric", metric, METRICS)
        self.horizon = _horizon(horizon_km, street)
        self.lines, self.streets, self.told = lines, streets, dict(told or {})
        self.open: Flags = np.ones(len(self.points), dtype=np.bool_)
        self.open.flags.writeable = False
        self._reach = street.distances(0)
        if not np.isfinite(self._reach).all():
            raise ParameterError("all places of a road network must be joined by streets, got islands")

    def within(self, horizon_km: float) -> Roads:
        """Return the places with a horizon: all that is farther is as far as the horizon."""
        return self._changed(horizon=_horizon(horizon_km, self.street))

    def by(self, metric: str) -> Roads:
        """Return the places with another metric."""
        return self._changed(metric=_one_of("metric", metric, METRICS))

    def _changed(self, **fields: Any) -> Roads:
        other = copy.copy(self)
        for name in ("jump", "diameter"):
            other.__dict__.pop(name, None)
        other.__dict__.update(fields)
        return other

    # A space

    @property
    def size(self) -> int:
        """The number of places."""
        return len(self.points)

    @property
    def shortest(self) -> float:
        """A distance that no two places are nearer than."""
        return float(self.street.lengths.min()) if self.metric == "street" else APART_KM

    @cached_property
    def diameter(self) -> float:
        """A distance that no two places are farther apart than."""
        if self.metric == "street":
            return min(self.horizon, 2.0 * float(self._reach.max()))
        spans = self.seen.max(axis=0) - self.seen.min(axis=0)
        return min(self.horizon, max(APART_KM, math.hypot(*spans)))

    def distances(self, place: int) -> Floats:
        """From one place to every place."""
        if self.metric == "street":
            return np.minimum(self.street.distances(place, self.horizon), self.horizon)
        away = self.seen - self.seen[place]
        far = np.clip(np.hypot(away[:, 0], away[:, 1]), APART_KM, self.horizon)
        far[place] = 0.0
        return np.asarray(far)

    def rows(self, limit_km: float, places: Any = None) -> Rows:
        """Return the places within a limit of each place (of all, or of some)."""
        if self.metric == "street":
            return self.street.rows(limit_km, places)
        return snapping.straight_rows(self.seen, limit_km, places, APART_KM)

    @property
    def neighbours(self) -> Graph | None:
        """The arcs that every distance is a sum of; None for straight lines, which are no sums."""
        return self.street if self.metric == "street" else None

    def drive(self, cost: str = "length") -> Graph:
        """Return the graph of driving from place to place: "length" in km, or "time" in seconds."""
        return self.driving if _one_of("cost", cost, COSTS) == "length" else self.seconds

    # Points

    @cached_property
    def view(self) -> View:
        """From far above the middle of the places."""
        low, high = self.points.min(axis=0), self.points.max(axis=0)
        return View(*((low + high) / 2.0).tolist())

    @cached_property
    def seen(self) -> Floats:
        """The positions at which the places are seen, in km east and north of the middle."""
        return np.stack(self.view.kilometres(self.points[:, 0], self.points[:, 1]), axis=1)

    @cached_property
    def _index(self) -> snapping.Index:
        return snapping.Index(self.seen)

    def cells(self, latitudes: Any, longitudes: Any) -> Cells:
        """Return the place of each point: a total function, since a point is private.

        That whose middle is nearest as it is seen from above; points beyond the rectangle of all places are
        first moved to its border, and what is no number is in the middle.
        """
        east, north = self.view.kilometres(snapping.as_numbers(latitudes), snapping.as_numbers(longitudes))
        return self._index.nearest(east, north)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the places and of all arcs, whatever metric and horizon: which map a text is about.

        Points count to a ten-millionth of a degree, lengths to a millimetre, times to a millisecond.
        """
        content = hashlib.sha256(np.rint(self.points * 1e7).astype(">i8").tobytes())
        for graph, grain in ((self.street, GRAIN_KM), (self.driving, GRAIN_KM), (self.seconds, 1e-3)):
            for numbers in (graph.starts, graph.ends, np.rint(graph.lengths / grain)):
                content.update(np.asarray(numbers).astype(">i8").tobytes())
        return content.hexdigest()

    @cached_property
    def jump(self) -> float:
        """The largest distance as places of two points that are a hair apart on the ground, in km.

        The largest distance between two places whose cells touch, within the rectangle of all places: on both
        banks of a river it is the way over the next bridge. Never more than the horizon. A way on the ground
        that crosses so many borders costs as many jumps at most.
        """
        first, second = self._index.touching()
        if self.metric == "straight":
            apart = np.hypot(*(self.seen[first] - self.seen[second]).T)
            return min(self.horizon, max(APART_KM, float(apart.max(initial=0.0))))
        return snapping.farthest(self.street, first, second, self.horizon)


def _one_of(name: str, given: Any, allowed: tuple[str, ...]) -> str:
    if given not in allowed:
        raise ParameterError(f"{name} must be one of {', '.join(allowed)}, got {given!r:.40}")
    return str(given)


def _horizon(given: Any, street: Graph) -> float:
    if given == math.inf:
        return math.inf
    return real("horizon_km", given, low=street.longest)
