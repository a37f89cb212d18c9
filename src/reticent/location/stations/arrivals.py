"""Forecasts for each station from reported queries: arrivals, free connectors, and missing stations.

Every person who asks is assumed to drive to the site nearest to her own place. Arrivals of the next period,
if it is like the last one, are then Poisson with the demand of each cell. Intervals cover both the error of
the estimate (reports drawn again, estimated again) and the chance of the next period.

Connectors are a loss system: cars arrive at random, stay for an exponential time, and go elsewhere if all
connectors are taken (Erlang). `free_on_arrival` starts from the number that are taken now, if it is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.estimation.inputs import checked_counts
from reticent.estimation.locations import PlaceChannel
from reticent.location.stations.demand import Demand, demand_of
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location.elastic import as_prior
from reticent.randomness import Stream, secure_or
from reticent.spaces.grid import Cells
from reticent.spaces.roads import Rows, Stations

REPETITIONS = 40
MOST_CONNECTORS = 1000
_STEP = 256  # places whose surroundings are searched at once
_TAIL = 1e-12


@dataclass(frozen=True, eq=False)
class Forecast:
    """The forecast arrivals of the next period.

    Attributes:
        demand: Estimate of where people asked.
        arrivals: Expected arrivals at each site.
        low: Lower end of an interval at each site.
        high: Upper end of the interval at each site.
        confidence: Confidence of each interval.
    """

    demand: Demand
    arrivals: Floats
    low: Floats
    high: Floats
    confidence: float

    def free(
        self,
        connectors: Any,
        *,
        period_minutes: float,
        stay_minutes: float,
        busy: Any = None,
        minutes: float = 0.0,
    ) -> Floats:
        """Return the chance of a free connector on arrival, at each site: (expected, at `high`, at `low`).

        Args:
            connectors: Number of connectors at each site.
            period_minutes: Length of the period of the reports, in minutes.
            stay_minutes: Mean stay of a car, in minutes.
            busy: Connectors that are taken now; None if it is not known.
            minutes: Minutes from now until arrival.

        Returns:
            Chances, of shape (3, sites).
        """
        period = real("period_minutes", period_minutes, low=0.0, open_low=True)
        many = np.broadcast_to(np.asarray(connectors), self.arrivals.shape)
        taken = [None] * len(many) if busy is None else np.broadcast_to(np.asarray(busy), many.shape).tolist()
        return np.array(
            [
                [
                    free_on_arrival(
                        one, rate=come / period, stay_minutes=stay_minutes, busy=now, minutes=minutes
                    )
                    for one, come, now in zip(many.tolist(), arrivals.tolist(), taken, strict=True)
                ]
                for arrivals in (self.arrivals, self.high, self.low)
            ]
        )


def forecast(
    stations: Stations,
    channel: PlaceChannel,
    counts: Any,
    *,
    law: Any = None,
    m: int = 1,
    updates: int | None = None,
    free: Any = None,
    repetitions: int = REPETITIONS,
    confidence: float = 0.95,
    rng: Stream | None = None,
) -> Forecast:
    """Forecast the arrivals at each site in the next period, if it is like the period of the reports.

    Args:
        stations: Sites on the road network.
        channel: Channel of every report.
        counts: Number of reports of each place in the period, companions included.
        law: Place distribution of a companion; needed from m = 2 on.
        m: Number of reports of one query.
        updates: Number of IBU updates, see `demand`.
        free: Flag of each site, whether it counts; None for all.
        repetitions: Number of estimates from resampled reports, for the intervals.
        confidence: Confidence of the intervals.
        rng: Random stream; None for secure randomness.
    """
    repetitions = whole("repetitions", repetitions, low=2, high=10_000)
    confidence = real("confidence", confidence, low=0.0, high=1.0, open_low=True, open_high=True)
    held, stream = checked_counts("counts", counts, channel.space.size), secure_or(rng)
    found = demand_of(channel, held, law=law, m=m, updates=updates, rng=stream)
    cells, edges = _cells(stations, free), np.cumsum(held)
    drawn = np.empty((repetitions, stations.size))
    for again in range(repetitions):
        places = np.searchsorted(edges, (stream.units(int(edges[-1])) - 1.0) * edges[-1], side="right")
        other = demand_of(
            channel, np.bincount(places, minlength=len(held)), law=law, m=m, updates=found.updates
        )
        drawn[again] = found.queries * _by_cell(other.distribution, cells, stations.size)
    expected = found.queries * _by_cell(found.distribution, cells, stations.size)
    low, high = _interval(drawn, confidence)
    return Forecast(found, expected, low, high, confidence)


def _cells(stations: Stations, free: Any) -> Cells:
    return np.asarray(stations.nearest(1, free)[0][:, 0])


def _by_cell(mass: Floats, cells: Cells, size: int) -> Floats:
    return np.asarray(np.bincount(cells, mass, minlength=size), dtype=np.float64)


def _interval(means: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Return quantiles of a uniform mixture of Poisson distributions: shape (means, sites) to sites."""
    tail = (1.0 - confidence) / 2.0
    most = int(means.max() + 10.0 * math.sqrt(means.max() + 1.0) + 10.0)
    term = np.exp(-means)
    below = term.mean(axis=0)
    low, high = np.full(means.shape[1], -1.0), np.full(means.shape[1], float(most))
    for number in range(most + 1):
        low = np.where((low < 0.0) & (below > tail), float(number), low)
        high = np.where((high == most) & (below >= 1.0 - tail), float(number), high)
        term = term * means / (number + 1.0)
        below = below + term.mean(axis=0)
    return low, high


def free_on_arrival(
    connectors: int,
    *,
    rate: float,
    stay_minutes: float,
    busy: int | None = None,
    minutes: float = 0.0,
) -> float:
    """Return the chance that a connector of a site is free.

    Args:
        connectors: Number of connectors of the site; with none, nothing is free.
        rate: Arriving cars a minute.
        stay_minutes: Mean stay of a car, in minutes.
        busy: Connectors that are taken now; None for the long run (Erlang's loss formula).
        minutes: Minutes from now.

    Reference: Erlang 1917, B(c, a) = (a^c / c!) / sum over j <= c of a^j / j!, by B(c) = a B(c - 1) / (c +
        a B(c - 1)); the way there by uniformisation of the chain of taken connectors.
    """
    many = whole("connectors", connectors, low=0, high=MOST_CONNECTORS)
    load = real("rate", rate, low=0.0) * real("stay_minutes", stay_minutes, low=0.0, open_low=True)
    if many == 0:
        return 0.0
    if busy is None:
        lost = 1.0
        for one in range(1, many + 1):
            lost = load * lost / (one + load * lost)
        return 1.0 - lost
    now, time = whole("busy", busy, low=0, high=many), real("minutes", minutes, low=0.0)
    return 1.0 - float(_later(many, load, now, time / stay_minutes)[many])


def _later(many: int, load: float, now: int, stays: float) -> Floats:
    """Return the distribution of taken connectors after some mean stays: e^(Qt) by uniformisation."""
    fastest = load + many
    law, at = np.zeros(many + 1), np.arange(many + 1)
    law[now] = 1.0
    up, down = np.where(at < many, load, 0.0) / fastest, at / fastest
    found, steps = np.zeros(many + 1), fastest * stays
    logs, done, term = -steps, 0.0, 0
    while done < 1.0 - _TAIL and term < steps + 40.0 * math.sqrt(steps + 1.0) + 40.0:
        share = math.exp(logs)
        found, done = found + share * law, done + share
        term, logs = term + 1, logs + math.log(steps / (term + 1)) if steps > 0.0 else -math.inf
        moved = law * (1.0 - up - down)
        moved[1:] += (law * up)[:-1]
        moved[:-1] += (law * down)[1:]
        law = moved
    return np.asarray(found / found.sum())


# Where a station is missing


@dataclass(frozen=True)
class NewSite:
    """A suggested place for a new station.

    Attributes:
        place: Place of the map.
        saved: Reduction of the mean distance to the nearest site, in km or seconds.
        share: Share of the queries that would come here.
    """

    place: int
    saved: float
    share: float


def new_sites(stations: Stations, distribution: Any, count: int = 1, *, free: Any = None) -> list[NewSite]:
    """Return the places where further stations would shorten trips most, chosen greedily one by one.

    All places are evaluated exactly: by how much each shortens the distance from every place to its nearest
    site.

    Args:
        stations: Existing sites.
        distribution: Distribution of queries over places (`Demand.distribution`).
        count: Number of new sites.
        free: Flag of each site, whether it counts; None for all.
    """
    mass = as_prior(stations.roads, distribution)
    least = stations.nearest(1, free)[1][:, 0].copy()
    if not np.isfinite(least).all():
        raise ParameterError("stations must hold a free site that all places reach")
    found = []
    for _ in range(whole("count", count, low=1, high=100)):
        gains = np.zeros(stations.roads.size)
        for first, rows in _around(stations, float(least[mass > 0.0].max())):
            begin = np.repeat(np.arange(len(rows)), np.diff(rows.starts))
            saved = mass[rows.places] * np.maximum(0.0, least[rows.places] - rows.far)
            gains[first : first + len(rows)] = np.bincount(begin, saved, minlength=len(rows))
        place = int(gains.argmax())
        way = stations.graph.backward.distances(place)
        found.append(NewSite(place, float(gains[place]), float(mass[way < least].sum())))
        least = np.minimum(least, way)
    return found


def _around(stations: Stations, limit: float) -> Iterator[tuple[int, Rows]]:
    """Yield the places from which each place is reached within a limit, some places at a time."""
    back = stations.graph.backward
    for first in range(0, back.size, _STEP):
        yield first, back.rows(limit, np.arange(first, min(first + _STEP, back.size)))
