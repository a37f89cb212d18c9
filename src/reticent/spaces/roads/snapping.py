"""Points to the nearest places, and which places are neighbours then."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from reticent.errors import MissingExtra
from reticent.spaces.finite import Flags, Floats
from reticent.spaces.grid import Cells, _numbers
from reticent.spaces.roads.graph import Graph, Rows

as_numbers = _numbers

_FEW = 64  # points that are looked up without a tree
_NEAR_KM = 1.0  # most neighbours are not farther by street
_SOURCES = 256
_ENDLESS_KM = 1e6


class Index:
    """The nearest of some places in the plane; of places at one point, the first.

    Args:
        seen: km east and north of each place.
    """

    def __init__(self, seen: Floats) -> None:
        self._low, self._high = seen.min(axis=0), seen.max(axis=0)
        self._at, self._place = np.unique(seen, axis=0, return_index=True)

    def nearest(self, east: Floats, north: Floats) -> Cells:
        """Return the place nearest to each point, which is moved into the rectangle of all places first."""
        where = np.stack([np.asarray(east).reshape(-1), np.asarray(north).reshape(-1)], axis=1)
        where = np.clip(where, self._low, self._high)
        if len(where) <= _FEW or self._tree is None:
            apart = [np.square(self._at - one).sum(axis=1) for one in where]
            found = np.array([int(one.argmin()) for one in apart], dtype=np.int64)
        else:
            found = self._tree.query(where)[1]
        return np.asarray(self._place[found]).reshape(np.shape(east))

    @cached_property
    def _tree(self) -> Any:
        try:
            from scipy.spatial import KDTree
        except ImportError:
            return None
        return KDTree(self._at)

    def touching(self) -> tuple[Cells, Cells]:
        """The pairs of places whose cells touch within the rectangle: that share a piece of border there."""
        try:
            from scipy.spatial import QhullError, Voronoi
        except ImportError as error:
            raise MissingExtra("what a border costs", "location") from error
        try:
            found = Voronoi(self._at)
        except (QhullError, ValueError):  # fewer than four, or all on a line
            pairs = np.array([(a, b) for a in range(len(self._at)) for b in range(a)]).reshape(-1, 2)
            if len(self._at) > 4:
                order = np.lexsort(self._at.T)
                pairs = np.stack([order[:-1], order[1:]], axis=1)
            return self._place[pairs[:, 0]], self._place[pairs[:, 1]]
        pairs, border = found.ridge_points, np.array(found.ridge_vertices)
        low, high = border.min(axis=1), border.max(axis=1)  # -1 for what has no end
        start, stop = found.vertices[high], found.vertices[low]
        along = self._at[pairs[:, 1]] - self._at[pairs[:, 0]]
        away = np.stack([-along[:, 1], along[:, 0]], axis=1)
        away /= np.hypot(*away.T)[:, None]
        middle = (self._at[pairs[:, 0]] + self._at[pairs[:, 1]]) / 2.0
        outward = np.sign(((middle - self._at.mean(axis=0)) * away).sum(axis=1, keepdims=True))
        stop[low < 0] = (start + np.where(outward == 0.0, 1.0, outward) * away * _ENDLESS_KM)[low < 0]
        inside = _meets(start, stop, self._low, self._high)
        return self._place[pairs[inside, 0]], self._place[pairs[inside, 1]]


def _meets(start: Floats, stop: Floats, low: Floats, high: Floats) -> Flags:
    """Whether pieces of lines meet a rectangle.

    Reference: Liang and Barsky 1984.
    """
    enter, leave = np.zeros(len(start)), np.ones(len(start))
    for axis in (0, 1):
        step = stop[:, axis] - start[:, axis]
        with np.errstate(divide="ignore", invalid="ignore"):
            first, second = (low[axis] - start[:, axis]) / step, (high[axis] - start[:, axis]) / step
        level = step == 0.0
        outside = level & ((start[:, axis] < low[axis]) | (start[:, axis] > high[axis]))
        np.maximum(enter, np.where(level, 0.0, np.minimum(first, second)), out=enter)
        np.minimum(leave, np.where(level, 1.0, np.maximum(first, second)), out=leave)
        leave[outside] = -1.0
    return np.asarray(enter <= leave)


def straight_rows(seen: Floats, limit: float, places: Any, least: float) -> Rows:
    """Return the places within a limit of each place by straight lines."""
    try:
        from scipy.spatial import KDTree
    except ImportError as error:
        raise MissingExtra("rows of a road network", "location") from error
    chosen = np.arange(len(seen)) if places is None else np.asarray(places, dtype=np.int64)
    tree, starts, near, far = KDTree(seen), [np.zeros(1, dtype=np.int64)], [], []
    for first in range(0, len(chosen), _SOURCES):
        some = chosen[first : first + _SOURCES]
        found = tree.query_ball_point(seen[some], limit * (1.0 + 1e-12), return_sorted=False)
        counts = np.array([len(one) for one in found])
        to = np.concatenate([np.asarray(one, dtype=np.int64) for one in found])
        away = seen[to] - np.repeat(seen[some], counts, axis=0)
        km = np.maximum(np.hypot(away[:, 0], away[:, 1]), least)
        begin = np.repeat(np.arange(len(some)), counts)
        km[to == some[begin]] = 0.0
        kept = km <= limit
        starts.append(np.bincount(begin[kept], minlength=len(some)))
        near.append(to[kept].astype(np.int32))
        far.append(km[kept])
    return Rows(np.cumsum(np.concatenate(starts)), np.concatenate(near), np.concatenate(far))


def farthest(graph: Graph, first: Cells, second: Cells, horizon: float) -> float:
    """Return the largest distance of some pairs, at most the horizon; bounded ways first, then whole ones."""
    worst, here = 0.0, np.full(graph.size, math.inf)
    for limit in (_NEAR_KM, 4.0 * _NEAR_KM, math.inf):
        limit = min(limit, horizon)
        order = np.argsort(first, kind="stable")
        first, second = first[order], second[order]
        way = np.empty(len(first))
        sources, begin = np.unique(first, return_index=True)
        bounds = np.append(begin, len(first)).tolist()
        rows = graph.rows(limit, sources) if limit < math.inf else None
        for at, source in enumerate(sources.tolist()):
            some = slice(bounds[at], bounds[at + 1])
            if rows is None:
                way[some] = graph.distances(source)[second[some]]
            else:
                places, far = rows.row(at)
                here[places] = far
                way[some] = here[second[some]]
                here[places] = math.inf
        beyond = ~np.isfinite(way)
        worst = max(worst, float(way[~beyond].max(initial=0.0)))
        if not beyond.any():
            return worst
        if limit == horizon:
            return horizon
        first, second = first[beyond], second[beyond]
    return worst
