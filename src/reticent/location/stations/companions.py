"""Companions: dummy journeys sent beside the true one, made only of public journeys and chance.

A companion begins at a random point of a random journey of the library. At each step it may change to another
journey that passes nearby in the same direction (one of the `NEIGHBOURS` nearest points, by place and
velocity) and follows it to its next point. So it drives as people do, but repeats nobody: an attacker who
knows the library finds no journey in it again. The points of a library and these steps are a Markov chain,
whose distribution everybody can compute exactly: attackers and forecasts do.

Neither the true place nor the true journey enters. Companions go through the same channel as the true points.

Privacy: none is claimed. The channel alone protects a report, whatever else is sent. With m - 1 companions
    an attacker finds the true journey at least as often as by guessing, 1/m; how much better an attacker who
    knows the traffic does is measured, not proved.
Reference: Biswas 2023, Section 4.4.5. Departures: theirs are random places followed by places within reach,
    sent without noise; an attacker who knows both laws finds the true journey in most cases.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.location.stations.library import JourneyLibrary
from reticent.mechanisms.base import Floats
from reticent.randomness import Stream, uniform_below
from reticent.spaces.grid import Cells
from reticent.spaces.roads import Roads

NEIGHBOURS = 8  # points among which a step is chosen
AHEAD = 2.0  # by how much a difference in velocity (km a step) counts more than one in place
MOST_STEPS = 10_000
_ENOUGH = 0.2  # of the journeys must last as long as a companion's
_FEW = 256  # points whose neighbours are looked for without a tree
_ROWS = 64


class Companions:
    """The Markov chain of dummy journeys made from one library on one map.

    Args:
        roads: Road network of the map.
        library: Public journeys on this map.
        stride: Number of library steps (`library.seconds` each) between two queries.
        neighbours: Number of points among which a step chooses; 1 replays journeys as they are.
    """

    def __init__(
        self, roads: Roads, library: JourneyLibrary, *, stride: int = 1, neighbours: int = NEIGHBOURS
    ) -> None:
        self.roads, self.library = roads, library.on(roads)
        self.stride = whole("stride", stride, low=1, high=MOST_STEPS)
        self.places: Cells = library.points
        self._steady = np.setdiff1d(np.arange(len(self.places)), library.starts[1:] - 1)
        self.neighbours = min(whole("neighbours", neighbours, low=1, high=1024), len(self._steady))

    @property
    def size(self) -> int:
        """The number of points of the chain."""
        return len(self.places)

    def journeys(self, count: int, queries: int, rng: Stream | None = None) -> Cells:
        """Sample the place of each companion at each query: shape (count, queries).

        Args:
            count: Number of companions.
            queries: Number of queries of the whole journey, `stride` steps apart.
            rng: Random stream; None for secure randomness.
        """
        count, span = whole("count", count, low=0), self._span(queries)
        found = np.empty((count, queries), dtype=np.int64)
        at = self._begun(count, span, rng)
        for query in range(queries):
            for _ in range(self.stride if query else 0):
                choices = self._next(at)
                at = choices[np.arange(count), uniform_below(self.neighbours, count, rng)]
            found[:, query] = self.places[at]
        return found

    def _span(self, queries: int) -> int:
        queries = whole("queries", queries, low=1)
        span = (queries - 1) * self.stride + 1
        if span > MOST_STEPS:
            raise ParameterError(f"queries must be at most {MOST_STEPS // self.stride}, got {queries}")
        return span

    def _begun(self, count: int, span: int, rng: Stream | None) -> Cells:
        """Sample the first point of each companion: see `beginnings`."""
        first, rooms = self._rooms(span)
        journeys = uniform_below(len(first), count, rng)
        offsets = np.empty(count, dtype=np.int64)
        for room in np.unique(rooms[journeys]).tolist():
            here = rooms[journeys] == room
            offsets[here] = uniform_below(room, int(here.sum()), rng)
        return np.asarray(first[journeys] + offsets)

    def _rooms(self, span: int) -> tuple[Cells, Cells]:
        """Return the first point of each long enough journey and the number of its possible starting points.

        If few journeys last for `span` points, all companions would begin alike, and be recognized by that;
        then any point of any journey serves: steps go on from journey to journey.
        """
        lengths = np.diff(self.library.starts)
        held = np.flatnonzero(lengths >= span)
        if len(held) < _ENOUGH * len(lengths):
            return self.library.starts[:-1], lengths
        return self.library.starts[held], lengths[held] - span + 1

    # The chain

    def beginnings(self, queries: int) -> Floats:
        """Return the distribution of a companion's first point, for a journey of so many queries.

        A journey that lasts long enough, each alike; then a point of it that leaves enough to follow. See
        `_rooms` for libraries of short ones.
        """
        found = np.zeros(self.size)
        first, rooms = self._rooms(self._span(queries))
        for start, room in zip(first.tolist(), rooms.tolist(), strict=True):
            found[start : start + room] = 1.0 / room / len(first)
        return found

    def moved(self, law: Floats) -> Floats:
        """Return the distribution over points at the next query, given that at this query."""
        for _ in range(self.stride):
            shares = np.repeat(law / self.neighbours, self.neighbours)
            law = np.asarray(np.bincount(self.followers.reshape(-1), shares, minlength=self.size), np.float64)
        return law

    def law(self, queries: int) -> Floats:
        """Return how often a companion is at each place of the map, on average over its queries."""
        at, total = self.beginnings(queries), np.zeros(self.size)
        for query in range(queries):
            at = self.moved(at) if query else at
            total += at
        return np.asarray(np.bincount(self.places, total / queries, minlength=self.roads.size), np.float64)

    @cached_property
    def followers(self) -> Cells:
        """Points that may follow each point: shape (points, neighbours)."""
        return self._next(np.arange(self.size))

    @cached_property
    def _motion(self) -> Floats:
        """Position and weighted velocity of each point: km east and north, on the flat map."""
        seen = self.roads.seen[self.places]
        pace = np.diff(seen, axis=0, prepend=seen[:1])  # as it came
        first = self.library.starts[:-1]
        pace[first] = pace[first + 1]  # as it goes
        return np.hstack([seen, AHEAD * pace])

    def _next(self, at: Cells) -> Cells:
        """Return the points that may follow: the successors of the points nearest by motion."""
        if "followers" in self.__dict__:
            return np.asarray(self.followers[at])
        if self.neighbours == 1:
            return self._alone(at)
        motion, steady = self._motion, self._steady
        if len(at) > _FEW and (tree := self._tree) is not None:
            near = tree.query(motion[at], self.neighbours)[1]
            return np.asarray(steady[near] + 1)
        found = np.empty((len(at), self.neighbours), dtype=np.int64)
        for first in range(0, len(at), _ROWS):
            some = motion[at[first : first + _ROWS]]
            apart = np.zeros((len(some), len(steady)))
            for column in range(motion.shape[1]):
                apart += np.square(some[:, column, None] - motion[steady, column])
            near = np.argpartition(apart, self.neighbours - 1, axis=1)[:, : self.neighbours]
            found[first : first + _ROWS] = steady[near] + 1
        return found

    def _alone(self, at: Cells) -> Cells:
        """Return the next point of the journey, or its last point again, for a chain without neighbours."""
        stays = np.isin(at, self.library.starts[1:] - 1)
        return np.where(stays, at, at + 1)[:, None]

    @cached_property
    def _tree(self) -> Any:
        try:
            from scipy.spatial import KDTree
        except ImportError:
            return None
        return KDTree(self._motion[self._steady])
