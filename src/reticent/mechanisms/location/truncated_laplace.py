"""Laplace noise on a road network, cut off at a radius: never far away, and never purely private.

    P(y | x) = exp(-epsilon d(x, y)) / Z(x)   if d(x, y) <= r, else 0

Reports beyond the radius are impossible, so some reports tell places apart for certain, and a delta is left;
it is worked out over all sets (`exposure`). The kernel of `elastic` on min(d, horizon) has none, and is the
default wherever there is a choice.

Reference: Biswas 2023, Definition 4.3.2, Algorithms 4 and 5.
Departures: delta over sets; a metric without direction; the branches of Algorithm 4 the other way round.
Privacy: (epsilon, delta) by distance (`ApproximateMetricDP`), for one report. Beyond `reach_km` that says
    nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from reticent.arguments import real
from reticent.errors import MissingExtra, ParameterError
from reticent.mechanisms.base import Floats, Symbols
from reticent.mechanisms.location import exposure
from reticent.mechanisms.location.elastic import exact_weights, sampled
from reticent.privacy import ApproximateMetricDP
from reticent.randomness import Stream
from reticent.spaces.roads import Roads

MOST_DELTA = 0.01
_ROUNDING = 1e-12  # of delta: chances in doubles, weights in whole numbers


class TruncatedLaplace:
    """One channel on a road network.

    Args:
        space: Network, by a metric without direction.
        level: Level epsilon, in 1/km.
        radius_km: Radius beyond which nothing is reported.
        most_delta: Largest delta that is accepted; more than 0.01 must be asked for by name.

    Attributes:
        law: Rows of the channel.
        delta: Delta over all places, pairs and sets, at this level.

    Raises:
        ParameterError: the space has a direction, or delta is larger.
    """

    def __init__(
        self, space: Roads, level: float, radius_km: float, *, most_delta: float = MOST_DELTA
    ) -> None:
        if not isinstance(space, Roads):
            raise ParameterError(
                "space must be a road network by street or straight line: distances with a direction are no "
                f"metric, got {type(space).__name__}"
            )
        self.space = space.within(math.inf)
        self.level = real("level", level, low=0.0, open_low=True)
        self.radius_km = real("radius_km", radius_km, low=0.0)
        most_delta = real("most_delta", most_delta, low=0.0, high=1.0)
        self.law = exposure.Law.truncated(space, self.level, self.radius_km)
        self.delta = self.delta_at(self.level)
        if self.delta > most_delta:
            raise ParameterError(
                f"most_delta must be at least {self.delta:.4g} for this channel, got {most_delta:g}: some "
                f"reports tell places apart, and nothing is promised beyond {1000.0 * self.reach_km:.0f} m"
            )

    # What it keeps

    @property
    def guarantee(self) -> ApproximateMetricDP:
        """The guarantee of one report."""
        return ApproximateMetricDP(self.level, self.delta, self.space.unit)

    def delta_at(self, claim: float) -> float:
        """Delta over all sets at another level than that of the noise, rounded up."""
        return min(1.0, exposure.delta_over_sets(self.space, self.law, claim) + _ROUNDING)

    def curve(self, claims: Sequence[float]) -> Floats:
        """Delta at each of some levels: claiming more leaves less."""
        return np.array([self.delta_at(claim) for claim in claims])

    def delta_by_place(self, claim: float | None = None) -> Floats:
        """Delta of each place against all others."""
        found = exposure.delta_of_places(self.space, self.law, self.level if claim is None else claim)
        return np.minimum(1.0, found + _ROUNDING)

    @property
    def reach_km(self) -> float:
        """The distance from which on nothing is promised."""
        return exposure.reach(self.level, self.delta)

    # The law

    def probabilities(self, place: int) -> Floats:
        """Return the law of the report of one place."""
        found = np.zeros(self.space.size)
        places, chances = self.law.row(place)
        found[places] = chances
        return found

    def weights(self, place: int) -> list[int]:
        """Return the law of one place's report as whole numbers: positive within the radius, zero beyond."""
        far = self.space.distances(place)
        logs = np.where(far <= self.radius_km, far * (-self.level / math.log(2.0)), -np.inf)
        return exact_weights(logs)

    def sample(self, places: Any, rng: Stream | None = None) -> Symbols:
        """Return the report of each place, exactly by `weights`."""
        return sampled(self, places, rng)

    # What it does

    @cached_property
    def _matrix(self) -> Any:
        try:
            from scipy.sparse import csr_array
        except ImportError as error:
            raise MissingExtra("sums over a road network", "location") from error
        size, law = self.space.size, self.law
        return csr_array((law.chances, law.places, law.starts), shape=(size, size))

    def forward(self, theta: Floats) -> Floats:
        """Return the law of the reports of people who are distributed by theta.

        d is symmetric, so P(y|x) Z(x) = P(x|y) Z(y): the same matrix serves both ways.
        """
        sums = self._matrix @ (theta / self.law.totals)
        return np.asarray(np.multiply(sums, self.law.totals, out=sums))

    def back(self, values: Floats) -> Floats:
        """Return the sum over y of P(y|x) values(y), for each x."""
        return np.asarray(self._matrix @ values)

    def factors(self, theta: Floats, shares: Floats) -> Floats:
        """Return the sum over y of P(y|x) shares(y) / law(y), law that of `forward`."""
        law = self.forward(theta)
        np.maximum(law, 1e-300, out=law)
        return self.back(np.divide(shares, law, out=law))

    @property
    def displacement(self) -> Floats:
        """The mean distance from each place to its report."""
        return np.asarray(np.add.reduceat(self._moved(), self.law.starts[:-1]))

    def _moved(self) -> Floats:
        """P(y|x) d(x, y), from ln P(y|x) = -level d(x, y) - ln Z(x)."""
        logs = np.log(self.law.chances) + np.repeat(np.log(self.law.totals), np.diff(self.law.starts))
        return np.asarray(self.law.chances * np.maximum(0.0, -logs) / self.level)

    def distortion(self, prior: Floats) -> float:
        """Return the mean distance between a place and its report."""
        return float(np.asarray(prior) @ self.displacement)

    @property
    def staying(self) -> Floats:
        """P(x|x)."""
        return 1.0 / self.law.totals
