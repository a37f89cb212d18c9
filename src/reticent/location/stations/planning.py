"""Choice of level, number of sites in an answer and radius from drivers' targets, and back.

A target is a share of queries without cost, or a mean detour. More noise makes both worse, so bisection finds
the least level, or the largest radius, that meets the target, and its cost is computed exactly (`cost`), not
simulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.arguments import real
from reticent.errors import ParameterError
from reticent.location.stations.cost import PrivacyCost, Queries, checked_target
from reticent.mechanisms.location import exposure
from reticent.spaces.roads import Stations

LEAST_LEVEL, MOST_LEVEL = 0.05, 200.0  # per km
_HALVINGS = 18  # a level is found to 0.01 %
KS = (1, 2, 3, 5)


@dataclass(frozen=True)
class StationPlan:
    """One set of parameters that meets the target.

    Attributes:
        channel: Name of the channel: "pure" or "truncated".
        level: Epsilon per km that a query costs; 2 beta of a pure channel.
        k: Number of sites in an answer.
        radius_km: Radius of a truncated channel; infinite for a pure one.
        delta: Delta that a query costs beside the level, by the documents' definition; 0 for a pure channel.
        usual_delta: Delta between the same two places by the usual definition (`WorstPair.usual_delta`).
        share_free: Share of queries without cost.
        mean_detour: Mean detour in km or seconds.
    """

    channel: str
    level: float
    k: int
    radius_km: float
    delta: float
    usual_delta: float
    share_free: float
    mean_detour: float

    @property
    def reach_km(self) -> float:
        """Distance from which on nothing is promised."""
        return exposure.reach(self.level, self.delta)


def level_for(
    queries: Queries,
    *,
    free: float | None = None,
    detour: float | None = None,
    radius_km: float | None = None,
    marginal: Any = None,
) -> float:
    """Return the least level per km that meets a share of free queries, or a mean detour.

    Args:
        queries: Prior of the queries and their answers.
        free: Target share of queries without cost; or
        detour: Target mean cost, in km or seconds.
        radius_km: Radius of a truncated channel; None for a pure one, whose level is 2 beta.
        marginal: Marginal of the pure channel.

    Raises:
        ParameterError: No level up to 200 per km meets the target.
    """
    gives = _gives(*checked_target(free, detour))
    if radius_km is None:
        found = _least(lambda level: gives(queries.pure(level / 2.0, marginal)), LEAST_LEVEL, MOST_LEVEL)
    else:
        found = _least(lambda level: gives(queries.truncated(level, radius_km)), LEAST_LEVEL, MOST_LEVEL)
    if found is None:
        raise ParameterError(f"no level up to {MOST_LEVEL:g} per km gives that with k = {queries.k}")
    return found


def radius_for(
    queries: Queries, level: float, *, free: float | None = None, detour: float | None = None
) -> float:
    """Return the largest radius in km, at most the limit, at which a truncated channel meets the target.

    A ball grows by whole places, so the answer is that of the last one that fits.

    Raises:
        ParameterError: Not even reports of the own place alone meet it.
    """
    gives, level = _gives(*checked_target(free, detour)), real("level", level, low=0.0, open_low=True)
    if gives(queries.truncated(level, queries.limit_km)):
        return queries.limit_km
    least = queries.stations.roads.street.lengths.min() / 2.0
    found = _least(
        lambda turned: gives(queries.truncated(level, 1.0 / turned)), 1.0 / queries.limit_km, 1.0 / least
    )
    if found is None:
        raise ParameterError(f"no radius gives that at {level:g} per km with k = {queries.k}")
    return 1.0 / found


def plans(
    stations: Stations,
    prior: Any,
    *,
    free: float | None = None,
    detour: float | None = None,
    ks: Sequence[int] = KS,
    radii_km: Sequence[float] = (),
    horizon_km: float = 4.0,
) -> list[StationPlan]:
    """Return all plans among these options that meet the target, the least level first.

    Args:
        stations: Sites on the road network.
        prior: Number of queries from each place; public.
        free: Target share of queries without cost; or
        detour: Target mean cost.
        ks: Numbers of sites that an answer may name.
        radii_km: Radii of truncated channels to evaluate beside the pure one.
        horizon_km: Horizon of the pure channel.
    """
    checked_target(free, detour)
    limit = max([horizon_km, *radii_km])
    found = []
    for k in ks:
        queries = Queries(stations, prior, k=k, limit_km=limit)
        for radius in (None, *radii_km):
            try:
                level = level_for(queries, free=free, detour=detour, radius_km=radius)
            except ParameterError:  # not with so few sites
                continue
            found.append(_planned(queries, level, radius))
    return sorted(found, key=lambda one: (one.level, one.k))


def _planned(queries: Queries, level: float, radius: float | None) -> StationPlan:
    roads = queries.stations.roads
    if radius is None:
        cost = queries.pure(level / 2.0)
        return StationPlan("pure", level, queries.k, math.inf, 0.0, 0.0, cost.share_free, cost.mean_detour)
    cost = queries.truncated(level, radius)
    pair = exposure.find_worst_pair(roads, exposure.Law.truncated(roads, level, radius), level)
    return StationPlan(
        "truncated", level, queries.k, radius, pair.delta, pair.usual_delta, cost.share_free, cost.mean_detour
    )


def _gives(what: str, wanted: float) -> Callable[[PrivacyCost], bool]:
    if what == "free":
        return lambda cost: cost.share_free >= wanted - 1e-12
    return lambda cost: cost.mean_detour <= wanted


def _least(gives: Callable[[float], bool], low: float, high: float) -> float | None:
    """Return the least number of a range from which on the test holds, by bisection of its logarithm."""
    if gives(low):
        return low
    if not gives(high):
        return None
    bottom, top = np.log(low), np.log(high)
    for _ in range(_HALVINGS):
        middle = (bottom + top) / 2.0
        bottom, top = (bottom, middle) if gives(math.exp(middle)) else (middle, top)
    return math.exp(top)
