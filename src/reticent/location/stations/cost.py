"""Exact cost of privacy for a person who asks for a station, without simulation.

Somebody at x reports y, is told the k nearest sites of y, and drives to the best of them for x:

    cost(x, y) = min over the sites s told of c(x, s)  -  min over all sites of c(x, s)

The chance of no cost and the mean cost are sums over the distribution of y. On min(d, horizon) it is a
constant and a sparse part, so only the rows of the asking places are needed: within the horizon by their
distance, and the mean over all places once, whatever the level.

Reference: Biswas 2023, Definition 4.5.1, Theorems 4.4 and 4.5.
Departures: k sites in an answer, of which the best is taken (k = 1 is theirs); c may be directed, or time. A
    site that is as near as the nearest costs nothing, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location.elastic import as_prior
from reticent.spaces.grid import Cells
from reticent.spaces.roads import Stations

_KEPT = 1 << 25  # entries that are kept between calls
_BLOCK = 1 << 22  # entries that are looked at together


@dataclass(frozen=True, eq=False)
class PrivacyCost:
    """The cost of a channel for the people who ask.

    Attributes:
        prior: Share of queries from each place that is asked from.
        free: Chance of no cost, of each of these places.
        detour: Mean cost of each of these places, in km or seconds.
    """

    prior: Floats
    free: Floats
    detour: Floats

    @property
    def share_free(self) -> float:
        """The share of queries without cost."""
        return float(self.prior @ self.free)

    @property
    def mean_detour(self) -> float:
        """The mean cost of a query."""
        return float(self.prior @ self.detour)


@dataclass(frozen=True, eq=False)
class _Block:
    """Some of the asking places and their possible reports: entries by rows."""

    first: int
    starts: Any
    places: Any
    far: Floats
    cost: Floats


class Queries:
    """The prior of asking places and the answers that they get.

    Args:
        stations: Sites on a road network.
        prior: Number of queries from each place; public knowledge (counts will do).
        k: Number of sites that an answer names.
        limit_km: Distance up to which reports are evaluated one by one: the horizon of pure channels, the
            largest radius.

    Attributes:
        answers: The k nearest sites of every place, -1 where there are fewer: shape (places, k).
    """

    def __init__(self, stations: Stations, prior: Any, *, k: int = 1, limit_km: float = 4.0) -> None:
        roads = stations.roads
        self.stations, self.k = stations, whole("k", k, low=1, high=64)
        self.limit_km = real("limit_km", limit_km, low=roads.street.longest)
        shares = as_prior(roads, prior)
        self.places: Cells = np.flatnonzero(shares)
        self.prior: Floats = shares[self.places]
        self.answers, _ = stations.nearest(self.k)
        self._kept: list[_Block] | None = None

    def costs(self, place: int, reported: Any) -> Floats:
        """Return cost(x, y) of one place and some reports."""
        told = np.minimum.reduce(self._of(place, self.answers[reported]), axis=-1)
        return np.asarray(told - self._least[place])

    def _of(self, place: int, sites: Any) -> Floats:
        """Return c(x, s); infinite where there is no site."""
        return np.where(sites < 0, np.inf, self.stations.costs[place][sites])

    @cached_property
    def _least(self) -> Floats:
        return np.asarray(self.stations.costs.min(axis=1))

    # The channels

    def pure(self, beta: float, marginal: Any = None) -> PrivacyCost:
        """Compute the cost of an `ElasticChannel` on min(d, limit_km), whose level is at most 2 beta.

        Args:
            beta: Parameter beta of the channel, in 1/km.
            marginal: Marginal of the channel; None for a uniform one.
        """
        beta = real("beta", beta, low=0.0)
        size = self.stations.roads.size
        c = np.full(size, 1.0 / size) if marginal is None else as_prior(self.stations.roads, marginal)
        floor = math.exp(-beta * self.limit_km)
        free, mean = self._far if marginal is None else self._everywhere(c)
        found = self._summed(lambda far, places: (np.exp(-beta * far) - floor) * c[places])
        totals, frees, costs = found[0] + floor, found[1] + floor * free, found[2] + floor * mean
        return PrivacyCost(self.prior, np.minimum(1.0, frees / totals), costs / totals)

    def truncated(self, level: float, radius_km: float) -> PrivacyCost:
        """Compute the cost of a `TruncatedLaplace` channel.

        Args:
            level: Level of the channel, in 1/km.
            radius_km: Radius of the channel, at most `limit_km`.
        """
        level = real("level", level, low=0.0)
        radius_km = real("radius_km", radius_km, low=0.0, high=self.limit_km)
        found = self._summed(lambda far, _: np.where(far <= radius_km, np.exp(-level * far), 0.0))
        return PrivacyCost(self.prior, np.minimum(1.0, found[1] / found[0]), found[2] / found[0])

    # The sums

    def _summed(self, weight: Any) -> tuple[Floats, Floats, Floats]:
        """Sum over reports the weights, the weights where there is no cost, and the weights times costs."""
        sums = np.zeros((3, len(self.places)))
        for block in self._blocks():
            weights = weight(block.far, block.places)
            rows = slice(block.first, block.first + len(block.starts) - 1)
            for line, values in enumerate((weights, weights * (block.cost <= 0.0), weights * block.cost)):
                sums[line, rows] = np.add.reduceat(values, block.starts[:-1])
        return sums[0], sums[1], sums[2]

    def _blocks(self) -> Iterator[_Block]:
        if self._kept is not None:
            yield from self._kept
            return
        kept, entries, first, step = [], 0, 0, 64
        while first < len(self.places):
            some = self.places[first : first + step]
            rows = self.stations.roads.rows(self.limit_km, some)
            at = np.repeat(some, np.diff(rows.starts))
            cost = np.full(len(at), np.inf)
            for column in range(self.k):
                sites = self.answers[rows.places, column]
                told = np.where(sites < 0, np.inf, self.stations.costs[at, sites])
                np.minimum(cost, told, out=cost)
            cost -= self._least[at]
            block = _Block(first, rows.starts, rows.places, rows.far, cost)
            entries += len(at)
            if entries <= _KEPT:
                kept.append(block)
            first += len(some)
            step = max(1, int(_BLOCK * len(some) / max(1, len(at))))
            yield block
        if entries <= _KEPT:
            self._kept = kept

    @cached_property
    def _far(self) -> tuple[Floats, Floats]:
        size = self.stations.roads.size
        return self._everywhere(np.full(size, 1.0 / size))

    def _everywhere(self, c: Floats) -> tuple[Floats, Floats]:
        """Return the share of all places, by c, that cost each x nothing if reported; and their mean cost."""
        answers, of = np.unique(np.sort(self.answers, axis=1), axis=0, return_inverse=True)
        mass = np.bincount(of.reshape(-1), weights=c, minlength=len(answers))
        free, mean = np.empty(len(self.places)), np.empty(len(self.places))
        for number, place in enumerate(self.places.tolist()):
            cost = self._of(place, answers).min(axis=1) - self._least[place]
            free[number], mean[number] = mass[cost <= 0.0].sum(), float(mass @ cost)
        return free, mean


def checked_target(free: float | None, detour: float | None) -> tuple[str, float]:
    """Validate that exactly one target is set: a share of free queries, or a mean detour."""
    if (free is None) == (detour is None):
        raise ParameterError("one of free and detour must be given")
    if free is not None:
        return "free", real("free", free, low=0.0, high=1.0, open_low=True)
    return "detour", real("detour", detour, low=0.0, open_low=True)
