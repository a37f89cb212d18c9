"""The stations that are nearest by car, and the places they serve: cells of a road network.

The cell of a station are the places that drive to it first (Voronoi); with k, the places that have it among
their k nearest. A fenced place has only places of its own cell about it: whichever of them is reported, the
answer is as good.

Reference: Biswas 2023, Definitions 4.5.2 to 4.5.4.
Departures: of stations that are as near, the first counts, so that cells are disjoint as 4.5.2 says and as it
    does not print. Balls are of the metric that privacy is stated in, cells of what driving costs.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.spaces.finite import Flags, Floats
from reticent.spaces.grid import Cells
from reticent.spaces.roads.graph import Graph, Rows
from reticent.spaces.roads.network import Roads

MOST_COSTS = 1 << 27  # stations times places


@dataclass(frozen=True, eq=False)
class Stations:
    """Sites on a road network.

    Args:
        roads: Road network.
        places: Places of the sites; stations at one place are one site.
        cost: Cost that driving is counted in, "length" (km) or "time" (seconds).
    """

    roads: Roads
    places: Cells
    cost: str = "length"

    def __post_init__(self) -> None:
        given = np.unique(np.asarray(self.places, dtype=np.int64))
        if not given.size or given[0] < 0 or given[-1] >= self.roads.size:
            raise ParameterError(f"places of stations must be below {self.roads.size}, and at least one")
        object.__setattr__(self, "places", given)
        self.roads.drive(self.cost)

    @classmethod
    def at(cls, roads: Roads, latitudes: Any, longitudes: Any, cost: str = "length") -> Stations:
        """The sites of stations at these points."""
        return cls(roads, roads.cells(latitudes, longitudes), cost)

    @property
    def size(self) -> int:
        """The number of sites."""
        return len(self.places)

    @property
    def graph(self) -> Graph:
        """The graph of the cost of driving."""
        return self.roads.drive(self.cost)

    def nearest(self, k: int = 1, free: Any = None) -> tuple[Cells, Floats]:
        """Return the k nearest sites of every place and the cost of driving there: shapes (places, k).

        Where there are fewer sites than k, the last columns say site -1 at an infinite cost.

        Args:
            k: Number of sites.
            free: Flags of the sites that count, one each; None for all.
        """
        k = whole("k", k, low=1, high=64)
        counted = np.ones(self.size, dtype=np.bool_) if free is None else np.asarray(free, dtype=np.bool_)
        if counted.shape != (self.size,):
            raise ParameterError(f"free must have one flag for each of {self.size} sites")
        return _nearest(self.graph.backward, self.places, counted, k)

    @cached_property
    def costs(self) -> Floats:
        """Return the cost of driving from every place to every site: shape (places, sites)."""
        if self.size * self.roads.size > MOST_COSTS:
            raise ParameterError(f"sites times places must be at most {MOST_COSTS:,}")
        back, found = self.graph.backward, np.empty((self.roads.size, self.size))
        for number, place in enumerate(self.places.tolist()):
            found[:, number] = back.distances(place)
        return found

    def fenced(self, balls: Rows, k: int = 1, free: Any = None) -> Flags:
        """Return flags of the places whose ball lies within the cell of their nearest site.

        Args:
            balls: Places that may be reported from each place, `roads.rows(radius)`.
            k: Number of sites that an answer names: within then means that the site is among the k nearest.
            free: see `nearest`.
        """
        if len(balls) != self.roads.size:
            raise ParameterError("balls must have a row for each place")
        sites, _ = self.nearest(k, free)
        own = np.repeat(sites[:, 0], np.diff(balls.starts))
        within = np.zeros(len(own), dtype=np.bool_)
        for column in range(k):
            within |= sites[balls.places, column] == own
        inside = np.logical_and.reduceat(within, balls.starts[:-1])
        return np.asarray(inside & (np.diff(balls.starts) > 0))


def _nearest(back: Graph, sites: Cells, counted: Flags, k: int) -> tuple[NDArray[np.int64], Floats]:
    """By one search from all sites at once, in which a place is reached at most k times."""
    size = back.size
    found, costs = np.full((size, k), -1, dtype=np.int64), np.full((size, k), math.inf)
    taken: list[list[int]] = [[] for _ in range(size)]
    starts, ends, lengths = back.starts.tolist(), back.ends.tolist(), back.lengths.tolist()
    queue = [(0.0, number, place) for number, place in enumerate(sites.tolist()) if counted[number]]
    heapq.heapify(queue)
    while queue:
        way, site, at = heapq.heappop(queue)
        have = taken[at]
        if len(have) == k or site in have:
            continue
        found[at, len(have)], costs[at, len(have)] = site, way
        have.append(site)
        for arc in range(starts[at], starts[at + 1]):
            to = ends[arc]
            if len(taken[to]) < k:
                heapq.heappush(queue, (way + lengths[arc], site, to))
    return found, costs
