"""Attacks that look for the true journey among its companions.

They see m journeys, each a report at every query, and are told which reports belong to one journey (more than
a provider knows, and no less than provider and edge together). They know the channel, the map, how people
drive and the exact law of companions. The true journey is that with the largest ratio

    P(reports | somebody's journey) / P(reports | a companion)

Both are hidden Markov models: states are points of journeys with their velocity, on the map; they move as
`Companions` do, and are seen through the channel. For people the attacker takes journeys of his own, for
companions the library itself, so he is fitted to the very companions that he faces. No attacker does better
than the ratio of the true distributions; guessing succeeds with probability 1/m.

`RandomDummies` are those of the reference: random places, then any place within reach, sent as they are.

Reference: Biswas 2023, Sections 4.4.5 and 4.6.3. Departures: its chance 1/m^k holds only if dummies look like
    private reports of people; its (alpha, beta)-identifiability is a density, taken here by Bayes' rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.location.stations.companions import Companions
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location import ElasticChannel, TruncatedLaplace
from reticent.randomness import Stream, uniform_below
from reticent.spaces.grid import Cells
from reticent.spaces.roads import Roads, Rows

_LEAST = 1e-300

PlaceNoise = ElasticChannel | TruncatedLaplace


def sight(channel: PlaceNoise, report: int) -> Floats:
    """Return P(report | x) of every place x, up to a factor: distances are the same in both directions."""
    if isinstance(channel, TruncatedLaplace):
        far = channel.space.distances(report)
        weights = np.where(far <= channel.radius_km, np.exp(-channel.level * far), 0.0)
        return np.asarray(weights / channel.law.totals)
    weights = np.exp(-channel.beta * channel.space.distances(report))
    return np.asarray(weights * channel.marginal[report] / channel.normaliser)


class Law(Protocol):
    """A probability model of journeys that an attacker knows: the likelihood of reports, query by query."""

    def logs(self, reports: Cells, sights: list[Floats]) -> Floats:
        """Return the log-probability of the reports up to each query."""


@dataclass(frozen=True, eq=False)
class Driving:
    """A hidden Markov model of journeys that are seen through a channel.

    Args:
        chain: Markov chain of the journeys.
        queries: Number of queries of a whole journey.
    """

    chain: Companions
    queries: int

    @cached_property
    def _begin(self) -> Floats:
        return self.chain.beginnings(self.queries)

    def logs(self, reports: Cells, sights: list[Floats]) -> Floats:
        """Return the log-probability of the reports up to each query, by the forward algorithm."""
        return np.cumsum([math.log(total) for total, _ in self._steps(sights)])

    def last(self, sights: list[Floats]) -> Floats:
        """Return the posterior distribution of the place at the last query, over the places of the map."""
        *_, (_, law) = self._steps(sights)
        found = np.bincount(self.chain.places, law, minlength=self.chain.roads.size)
        return np.asarray(found, dtype=np.float64)

    def _steps(self, sights: list[Floats]) -> list[tuple[float, Floats]]:
        at, found = self._begin, []
        for number, seen in enumerate(sights):
            law = (self.chain.moved(at) if number else at) * seen[self.chain.places]
            total = max(float(law.sum()), _LEAST)
            at = law / total
            found.append((total, at))
        return found


class RandomDummies:
    """The dummies of the reference: a random place, then any place within reach of the last one.

    Args:
        roads: Road network of the map.
        reach_km: Distance that a car can drive between two queries.

    Reference: Biswas 2023, Section 4.4.5.
    """

    def __init__(self, roads: Roads, reach_km: float) -> None:
        self.roads = roads.within(math.inf)
        self.reach_km = real("reach_km", reach_km, low=roads.street.longest)

    def journeys(self, count: int, queries: int, rng: Stream | None = None) -> Cells:
        """Sample the place of each dummy at each query: shape (count, queries)."""
        found = np.empty((whole("count", count, low=0), whole("queries", queries, low=1)), dtype=np.int64)
        if count:
            found[:, 0] = uniform_below(self.roads.size, count, rng)
        for query in range(1, queries):
            near = self.roads.rows(self.reach_km, found[:, query - 1])
            for one in range(count):
                places, _ = near.row(one)
                found[one, query] = np.sort(places)[int(uniform_below(len(places), 1, rng)[0])]
        return found

    def logs(self, reports: Cells, sights: list[Floats]) -> Floats:
        """Return the log-probability of dummies at these places: -inf once a step is too long."""
        found = [-math.log(self.roads.size)]
        near = self.roads.rows(self.reach_km, reports[:-1]) if len(reports) > 1 else None
        for query, to in enumerate(reports[1:].tolist()):
            assert near is not None
            places, _ = near.row(query)
            found.append(-math.log(len(places)) if to in places else -math.inf)
        return np.cumsum(found)


@dataclass(frozen=True, eq=False)
class Attacker:
    """An attacker who compares the likelihood of a person's journey with that of a companion's.

    Args:
        channel: Channel that people's places go through.
        people: Model of how people drive, as far as the attacker knows.
        companions: Model of the dummy journeys.
    """

    channel: PlaceNoise
    people: Driving
    companions: Law

    def scores(self, reports: Any) -> Floats:
        """Return the log-likelihood ratio at each query: shape (journeys, queries); the largest is named."""
        given = np.atleast_2d(np.asarray(reports, dtype=np.int64))
        found = np.empty(given.shape)
        for number, journey in enumerate(given):
            sights = [sight(self.channel, int(one)) for one in journey]
            found[number] = self.people.logs(journey, sights) - self.companions.logs(journey, sights)
        return found

    def guess(self, reports: Any, within: Rows) -> tuple[int, float]:
        """Return the attacker's best guess of a person's place now, and its posterior probability.

        Bayes' rule over which journey is true, each alike beforehand, and over where it is.

        Args:
            reports: Reports of the person's m journeys: shape (m, queries).
            within: Places within alpha of each place, `roads.rows(alpha)`.
        """
        given = np.atleast_2d(np.asarray(reports, dtype=np.int64))
        scores, places = self.scores(given)[:, -1], np.zeros(len(within))
        weights = np.exp(np.minimum(scores - scores[np.isfinite(scores)].max(initial=0.0), 0.0))
        for journey, weight in zip(given, weights / weights.sum(), strict=True):
            if weight > 1e-9:
                places += weight * self.people.last([sight(self.channel, int(one)) for one in journey])
        near = np.add.reduceat(places[within.places], within.starts[:-1])
        best = int(near.argmax())
        return best, float(near[best])


def chance_of_finding(true: Any, companions: Any, m: int) -> float:
    """Return how often the true journey scores highest among m, over all groups of m - 1 companions.

    Exactly: a group has no larger one with the chance that all m - 1, drawn without replacement, are smaller.
    Ties are broken by guessing; half of them count as smaller.

    Args:
        true: Scores of true journeys.
        companions: Scores of companions, at least m - 1. They are drawn independently of the true journeys,
            so any of them may be in any group.
        m: Number of journeys in a group.
    """
    others, m = np.sort(np.asarray(companions, dtype=np.float64)), whole("m", m, low=1)
    if len(others) < m - 1:
        raise ParameterError(f"companions must be at least {m - 1}, got {len(others)}")
    given = np.asarray(true, dtype=np.float64)
    smaller = (np.searchsorted(others, given, "left") + np.searchsorted(others, given, "right")) // 2
    total = math.comb(len(others), m - 1)
    return float(np.mean([math.comb(int(one), m - 1) / total for one in smaller]))
