"""A map cut into equal segments, each a place, joined where they meet.

A street is cut into as many equal parts as make them nearest to the wanted length. A place stands for a part,
and where it is, is its middle; two parts that meet are as far apart as half of both. What cannot be reached
from, and does not reach, the largest part of the network is left out: people there belong to the nearest
place (`snapping`).

Reference: Biswas 2023, Section 4.6.2: edges cut into segments of equal length.
Departure: lengths are whole multiples of 2^-19 km (2 mm), rounded up and at least 1 m: see `Roads`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real
from reticent.errors import MissingExtra, ParameterError
from reticent.spaces.finite import Flags, Floats
from reticent.spaces.globe import View
from reticent.spaces.roads.graph import Graph
from reticent.spaces.roads.maps import Numbers, RoadMap
from reticent.spaces.roads.network import GRAIN_KM, Roads

MOST_PLACES = 1 << 20
LEAST_KM = 0.001  # of a part


def cut(roads: RoadMap, segment_m: float = 100.0, *, metric: str = "street") -> Roads:
    """Cut a map into places.

    Args:
        roads: Map to cut.
        segment_m: Wanted length of the parts, in metres.
        metric: Metric, see `Roads`.

    Raises:
        ParameterError: there would be more than 2^20 places, or fewer than two.
    """
    segment_m = real("segment_m", segment_m, low=1.0, high=1e5)
    kept = _kept(roads)
    parts = np.maximum(1, np.round(roads.metres[kept] / segment_m)).astype(np.int64)
    if parts.sum() > MOST_PLACES:
        raise ParameterError(
            f"segment_m must cut a map into at most {MOST_PLACES:,} places, got {parts.sum():,} "
            f"by {segment_m:g} m"
        )
    if parts.sum() < 2:
        raise ParameterError("a map must have at least 2 places that cars reach from each other, got fewer")
    street = np.repeat(kept, parts)
    number = np.arange(street.size) - np.repeat(np.cumsum(parts) - parts, parts)
    of = np.repeat(parts, parts)
    points, ends = _points(roads, kept, parts)
    first, last = _joints(roads, street, number, of)
    order = _along_a_curve(points)
    street, of, first, last = street[order], of[order], first[order], last[order]
    raw = roads.metres[street] / of / 1000.0
    km = np.ceil(np.maximum(raw, LEAST_KM) / (2.0 * GRAIN_KM)) * (2.0 * GRAIN_KM)
    hours = np.maximum(raw, LEAST_KM) / roads.kmh[street]
    forward, backward = roads.forward[street], roads.backward[street]
    everywhere = np.ones(street.size, dtype=np.bool_)
    told = dict(roads.told, islands=len(roads.metres) - len(kept))
    return Roads(
        points[order],
        _joined(first, last, km, everywhere, everywhere),
        _joined(first, last, km, forward, backward),
        _joined(first, last, hours * 3600.0, forward, backward),
        metric=metric,
        lines=ends[order],
        streets=street,
        told=told,
    )


def _kept(roads: RoadMap) -> Numbers:
    """Return the streets of the largest part whose nodes reach each other by car."""
    try:
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components
    except ImportError as error:
        raise MissingExtra("cutting a map", "location") from error
    begin = np.concatenate([roads.starts[roads.forward], roads.ends[roads.backward]])
    end = np.concatenate([roads.ends[roads.forward], roads.starts[roads.backward]])
    size = len(roads.points)
    arcs = coo_array((np.ones(begin.size), (begin, end)), shape=(size, size))
    count, part = connected_components(arcs.tocsr(), directed=True, connection="strong")
    inside = part[roads.starts] == part[roads.ends]
    metres = np.bincount(part[roads.starts][inside], weights=roads.metres[inside], minlength=count)
    largest = int(metres.argmax()) if inside.any() else -1
    return np.flatnonzero(inside & (part[roads.starts] == largest))


def _points(roads: RoadMap, kept: Numbers, parts: Numbers) -> tuple[Floats, Floats]:
    """Return the middle of every part, in degrees; and its two ends."""
    middles, ends = [], []
    for street, count in zip(kept.tolist(), parts.tolist(), strict=True):
        line = roads.lines[street]
        scale = math.cos(math.radians(float(line[0, 0])))
        steps = np.hypot(np.diff(line[:, 0]), np.diff(line[:, 1]) * scale)
        along = np.concatenate([[0.0], np.cumsum(steps)])
        wanted = np.arange(2 * count + 1) / (2.0 * count) * along[-1]
        at = np.stack([np.interp(wanted, along, line[:, 0]), np.interp(wanted, along, line[:, 1])], axis=1)
        middles.append(at[1::2])
        ends.append(np.stack([at[:-1:2], at[2::2]], axis=1))
    return np.concatenate(middles), np.concatenate(ends)


def _joints(roads: RoadMap, street: Numbers, number: Numbers, of: Numbers) -> tuple[Numbers, Numbers]:
    """Return the joints at both ends of each part: nodes by their number, cuts by numbers beyond."""
    cuts = len(roads.points) + np.arange(street.size)  # the cut after each part
    first = np.where(number == 0, roads.starts[street], np.concatenate([[0], cuts[:-1]]))
    last = np.where(number == of - 1, roads.ends[street], cuts)
    return first, last


def _joined(first: Numbers, last: Numbers, lengths: Floats, forward: Flags, backward: Flags) -> Graph:
    """Return the arcs from the middle of a part to that of the next, where one may arrive and leave."""
    part = np.arange(len(first))
    joint = np.concatenate([first, last])
    part = np.concatenate([part, part])
    arriving, leaving = np.concatenate([backward, forward]), np.concatenate([forward, backward])
    order = np.argsort(joint, kind="stable")
    joint, part, arriving, leaving = joint[order], part[order], arriving[order], leaving[order]
    groups = np.flatnonzero(np.diff(joint, prepend=-1))
    counts = np.diff(np.append(groups, len(joint)))
    many = np.repeat(counts, counts)  # how many meet where each of them is
    begin = np.repeat(np.arange(len(joint)), many)
    offset = np.arange(begin.size) - np.repeat(np.cumsum(many) - many, many)
    end = np.repeat(np.repeat(groups, counts), many) + offset
    allowed = arriving[begin] & leaving[end] & (part[begin] != part[end])
    begin, end = part[begin[allowed]], part[end[allowed]]
    return Graph.of(len(first), begin, end, lengths[begin] / 2.0 + lengths[end] / 2.0)


def _along_a_curve(points: Floats) -> NDArray[Any]:
    """Return an order in which near places have near numbers: Morton's curve."""
    middle = View(*points.mean(axis=0))
    east, north = middle.kilometres(points[:, 0], points[:, 1])
    code = np.zeros(len(points), dtype=np.int64)
    for axis, km in enumerate((east, north)):
        span = max(float(km.max() - km.min()), 1e-9)
        cell = ((km - km.min()) / span * 65535.0).astype(np.int64)
        for bit in range(16):
            code |= ((cell >> bit) & 1) << (2 * bit + axis)
    return np.argsort(code, kind="stable")
