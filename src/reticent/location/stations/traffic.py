"""Invented journeys from a traffic model, for a library where there are no public journeys.

Where journeys begin and end is drawn by public weights (counts of a census, or even); between them cars take
the quickest way, and their place is noted every so many seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.arguments import whole
from reticent.errors import MissingExtra, ParameterError
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location.elastic import as_prior
from reticent.randomness import Stream, secure_or
from reticent.spaces.grid import Cells
from reticent.spaces.roads import Roads

_TRIES = 50


def invented(
    roads: Roads,
    weights: Any = None,
    *,
    count: int,
    seconds: int = 60,
    least: int = 5,
    rng: Stream | None = None,
) -> list[Cells]:
    """Sample journeys along quickest routes, each the places that it passes every so many seconds.

    Args:
        roads: Road network of the map.
        weights: Weight of each place as a start and as an end; public. None for equal weights.
        count: Number of journeys.
        seconds: Seconds from one point of a journey to the next.
        least: Minimal number of points of a journey; shorter ones are drawn again.
        rng: Random stream; None for secure randomness.

    Raises:
        ParameterError: Hardly any route of this map takes so long.
    """
    count, least = whole("count", count, low=1), whole("least", least, low=2)
    seconds = whole("seconds", seconds, low=1)
    law = as_prior(roads, np.ones(roads.size) if weights is None else weights)
    edges, stream = np.cumsum(law), secure_or(rng)
    found: list[Cells] = []
    for _ in range(_TRIES):
        wanted = count - len(found)
        ends = np.searchsorted(edges[:-1] / edges[-1], stream.units(2 * wanted) - 1.0, side="right")
        for begin, end in ends.reshape(wanted, 2).tolist():
            way = _way(roads, begin, end, seconds)
            if len(way) >= least:
                found.append(way)
        if len(found) == count:
            return found
    raise ParameterError(f"least must be smaller: few ways of this map take {(least - 1) * seconds} seconds")


def quickest(roads: Roads, begin: int, end: int, cost: str = "time") -> tuple[Cells, Floats]:
    """Return the places along the quickest (or shortest) route, and the driving cost to each, in order."""
    try:
        from scipy.sparse.csgraph import dijkstra
    except ImportError as error:
        raise MissingExtra("invented journeys", "location") from error
    took, before = dijkstra(roads.drive(cost).matrix, indices=begin, return_predecessors=True)
    passed = [end]
    while passed[-1] != begin:
        passed.append(int(before[passed[-1]]))
    passed.reverse()
    return np.asarray(passed), np.asarray(took[passed])


def _way(roads: Roads, begin: int, end: int, seconds: int) -> Cells:
    """Return the places of the quickest route, every so many seconds."""
    passed, took = quickest(roads, begin, end)
    ticks = np.arange(0.0, took[-1] + 1e-9, float(seconds))
    return passed[np.searchsorted(took, ticks, side="right") - 1]
