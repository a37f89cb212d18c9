"""Channels P(y|x) = c(y) exp(-beta d(x, y)) / Z(x): near places, and crowded ones, are reported more.

c is any distribution over the places, without zeros where people may be. Whatever it is, the channel is
private by distance at the level 2 beta: numerator and normaliser each change by at most exp(beta d)
(mathematics 3.1). So c may be learnt, published, even poisoned: only accuracy and elasticity depend on it.

Privacy: loss <= 2 beta d(x, x') between any two places x, x' (centres of cells), for one report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real
from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats, Symbols
from reticent.privacy import MetricDP
from reticent.randomness import Stream, categorical, secure_or
from reticent.spaces.finite import Space
from reticent.spaces.kernels import Kernel, kernel

_BITS = 60  # of the largest weight of a row
_TRIES = 20
_LEAST_NORMALISER = 1e-280  # below, products of doubles are not right to their last digits
_MARGIN, _NEAR_ENOUGH = 1e-6, 0.9999  # of a level
MAX_EXPONENT = 20_000.0  # beta times the diameter: beyond, nobody could be reported far away

Weights = list[int]


class ElasticChannel:
    """One channel of the form.

    Args:
        space: the places.
        marginal: c, one number >= 0 for each place; scaled to sum to one. It must be positive somewhere, and
            zero in closed cells.
        beta: the loss parameter, in 1/unit of distance.
        dense: see `kernel`.
        sums: the kernel of another channel on this space with this beta, to spare making it again.
    """

    def __init__(
        self,
        space: Space,
        marginal: Any,
        beta: float,
        *,
        dense: bool | None = None,
        sums: Kernel | None = None,
    ) -> None:
        self.space = space
        self.beta = real("beta", beta, low=0.0)
        if self.beta * space.diameter > MAX_EXPONENT:
            raise ParameterError(
                f"beta must be at most {MAX_EXPONENT / space.diameter:g} on this space, got {self.beta:g}"
            )
        c = np.array(marginal, dtype=np.float64).reshape(-1)
        if c.size != space.size:
            raise ParameterError(
                f"marginal must have one number for each of {space.size} places, got {c.size}"
            )
        if not np.isfinite(c).all() or c.min() < 0.0 or not c.sum() > 0.0:
            raise ParameterError("marginal must hold numbers >= 0 that do not all vanish")
        if c[~space.open].any():
            raise ParameterError("marginal must be 0 in closed cells")
        self.marginal: Floats = c / c.sum()
        self.marginal.flags.writeable = False
        self._dense, self._sums, self._kept = dense, sums, math.inf

    @property
    def level(self) -> float:
        """The level that the sampler keeps, in 1/unit: 2 beta, and the rounding of its weights, rounded up.

        Of a channel made by `keeping`, the level that it was made for.
        """
        return min(self._kept, math.nextafter(2.0 * self.beta + self.rounding, math.inf))

    @property
    def rounding(self) -> float:
        """The increase of a level by rounding.

        Four weights enter a ratio, each right to (beta diameter - ln c + 64) 2^-50 of itself; and distances
        keep the triangle inequality to 2^-48, which is used twice.
        """
        depth = self.beta * self.space.diameter - math.log(self.marginal[self.marginal > 0.0].min())
        return (depth + 64.0) * 2.0**-44 / self.space.shortest

    @property
    def guarantee(self) -> MetricDP:
        """The guarantee of one report."""
        return MetricDP(self.level, self.space.unit)

    @cached_property
    def kernel(self) -> Kernel:
        """K v = sum over y of exp(-beta d(x, y)) v(y)."""
        return self._sums or kernel(self.space, lambda d: np.exp(-self.beta * d), dense=self._dense)

    @cached_property
    def normaliser(self) -> Floats:
        """Z(x), at least c(x)."""
        return np.maximum(np.maximum(self.kernel(self.marginal), self.marginal), 1e-300)

    def _log_normaliser(self) -> Floats:
        """Return ln Z(x), right for each place also where Z(x) is below the range of doubles."""
        logs = np.log(self.normaliser)
        for place in np.flatnonzero(self.normaliser < _LEAST_NORMALISER):
            terms = self._logs(int(place)) * math.log(2.0)
            top = terms.max()
            logs[place] = top + math.log(np.exp(terms - top).sum())
        return logs

    # The law

    def probabilities(self, place: int) -> Floats:
        """Return the law of the report of one place, in doubles."""
        weights = self.marginal * np.exp(-self.beta * self.space.distances(place))
        total = weights.sum()
        if not total > 0.0:  # all of it underflows: the nearest places with mass
            logs = self._logs(place)
            weights = np.exp((logs - logs.max()) * math.log(2.0))
            total = weights.sum()
        return np.asarray(weights / total)

    @property
    def matrix(self) -> Floats:
        """P(y|x), a row for each place; for small spaces."""
        return np.stack([self.probabilities(place) for place in range(self.space.size)])

    def _logs(self, place: int) -> Floats:
        with np.errstate(divide="ignore"):
            return np.log2(self.marginal) - self.space.distances(place) * (self.beta / math.log(2.0))

    def weights(self, place: int) -> Weights:
        """The law of the report of one place as whole numbers: nothing that is possible has weight zero."""
        return exact_weights(self._logs(place))

    def sample(self, places: Any, rng: Stream | None = None) -> Symbols:
        """Return the report of each place, exactly by `weights`."""
        return sampled(self, places, rng)

    # What it does

    def forward(self, theta: Floats) -> Floats:
        """Return the law of the reports of people who are distributed by theta: c K (theta / Z)."""
        law = self.kernel(theta / self.normaliser)
        return np.multiply(law, self.marginal, out=law)

    def back(self, values: Floats) -> Floats:
        """Return the sum over y of P(y|x) values(y), for each x."""
        sums = self.kernel(self.marginal * values)
        return np.divide(sums, self.normaliser, out=sums)

    def factors(self, theta: Floats, shares: Floats) -> Floats:
        """Return the sum over y of P(y|x) shares(y) / law(y), law that of `forward`: c cancels."""
        ratio = self.kernel(theta / self.normaliser)
        np.maximum(ratio, 1e-300, out=ratio)
        sums = self.kernel(np.divide(shares, ratio, out=ratio))
        return np.divide(sums, self.normaliser, out=sums)

    def distortion(self, prior: Floats) -> float:
        """Return the mean distance between a place and its report."""
        return float(np.asarray(prior) @ self.displacement)

    @cached_property
    def displacement(self) -> Floats:
        """The mean distance from each place to its report: elasticity per cell."""
        farther = kernel(self.space, lambda d: d * np.exp(-self.beta * d), dense=self._dense)
        return farther(self.marginal) / self.normaliser

    @property
    def staying(self) -> Floats:
        """P(x|x): how often each place is reported as it is."""
        return self.marginal / self.normaliser

    def mutual_information(self, prior: Floats) -> float:
        """Return the information of a report about the place, in nats, for a given prior.

        ln P(y|x) - ln m(y) = ln c(y) - beta d(x, y) - ln Z(x) - ln m(y), m the law of the reports.
        """
        prior = np.asarray(prior, dtype=np.float64)
        law = self.forward(prior)
        seen = (law > 0.0) & (self.marginal > 0.0)
        of_outputs = float(law[seen] @ (np.log(self.marginal[seen]) - np.log(law[seen])))
        return of_outputs - self.beta * self.distortion(prior) - float(prior @ np.log(self.normaliser))

    def exact_level(self) -> float:
        """Return the largest privacy loss per unit of distance over all pairs of places and reports.

        It is computed over all pairs on small spaces. On a road network with street distances it follows
        from the normaliser Z alone. Two places at the distance D = min(d, horizon) lose at most
        beta D + |ln Z(x) - ln Z(x')|, and exactly that at the report of one of the two, so the level is
        beta + max |ln Z(x) - ln Z(x')| / D. Within the horizon d is a sum of arcs, and differences of ln Z
        along a path add up, so the worst such pair are neighbours. Beyond it D is the horizon, and the worst
        pair are the places with the largest and the smallest Z; if these two are within the horizon, their
        quotient is below that of the neighbours between them. (If c vanishes somewhere, this is an upper
        bound.)
        """
        arcs = getattr(self.space, "neighbours", None)
        if arcs is not None:
            logs = self._log_normaliser()
            between_neighbours = (np.abs(logs[arcs.begins] - logs[arcs.ends]) / arcs.lengths).max()
            beyond_horizon = (logs.max() - logs.min()) / self.space.diameter
            return self.beta + float(max(between_neighbours, beyond_horizon))
        logs = np.stack([self._logs(place) for place in range(self.space.size)]) * math.log(2.0)
        tops = logs.max(axis=1, keepdims=True)
        logs -= tops + np.log(np.exp(logs - tops).sum(axis=1, keepdims=True))
        return worst_level(logs, np.stack([self.space.distances(x) for x in range(self.space.size)]))


def exponential(space: Space, level: float, *, dense: bool | None = None) -> ElasticChannel:
    """Return the exponential mechanism: c uniform, beta half of the level."""
    level = real("level", level, low=0.0)
    return ElasticChannel(space, space.open.astype(np.float64), level / 2.0, dense=dense)


def keeping(space: Space, marginal: Any, level: float, *, dense: bool | None = None) -> ElasticChannel:
    """The channel of the largest beta, to 0.01 %, whose exact level is at most `level`: at least half of it.

    Privacy: the level is that of `exact_level`, worked out for this c and this space, and the rounding. By 2
    beta the same noise would be charged up to twice as much.
    """
    level = real("level", level, low=0.0, open_low=True)
    low, high, slope = level / 2.0, level, 2.0  # kept at low; not, above high; level over beta
    kept = ElasticChannel(space, marginal, low, dense=dense)
    for _ in range(_TRIES):
        tried = ElasticChannel(space, marginal, min(high, max(low, level / slope)), dense=dense)
        found = tried.exact_level() * (1.0 + 1e-9) + tried.rounding
        if found <= level:
            low, kept, kept._kept = tried.beta, tried, level
            if found >= level * _NEAR_ENOUGH:
                break
        else:
            high = tried.beta
        slope = found / tried.beta * (1.0 + _MARGIN)  # the level is nearly proportional to beta
        if not low < level / slope < high:
            slope = 2.0 * level / (low + high)
    return kept


def sampled(channel: Any, places: Any, rng: Stream | None) -> Symbols:
    """Reports of many places, those of one place at a time; a total function of numbers of places."""
    given = np.asarray(places)
    if given.dtype.kind not in "iu":
        raise ParameterError(f"places must be numbers of places, got dtype {given.dtype}")
    stream = secure_or(rng)
    flat = np.clip(given.reshape(-1), 0, channel.space.size - 1)
    found = np.empty(flat.size, dtype=np.int64)
    order = np.argsort(flat, kind="stable")
    starts = np.flatnonzero(np.diff(flat[order], prepend=-1))
    for group in np.split(order, starts[1:]) if flat.size else []:
        found[group] = categorical(channel.weights(int(flat[group[0]])), group.size, stream)
    return found.reshape(given.shape)


def exact_weights(logs: Floats) -> Weights:
    """Whole numbers in the proportions 2^logs, to 60 bits each: nothing is zero but what -infinity is."""
    held = np.isfinite(logs)
    floors = np.floor(logs, where=held, out=np.zeros(logs.size))
    numbers = np.rint(np.exp2(logs - floors, where=held, out=np.zeros(logs.size)) * 2.0**_BITS)
    return whole_numbers(numbers, floors)


def whole_numbers(numbers: Floats, exponents: NDArray[Any]) -> Weights:
    """Whole numbers in the proportions numbers * 2^exponents, where numbers are whole and may be zero."""
    held = np.flatnonzero(numbers)
    shifts = (exponents[held] - exponents[held].min()).astype(np.int64)
    weights = [0] * numbers.size
    for at, number, shift in zip(held.tolist(), numbers[held].tolist(), shifts.tolist(), strict=True):
        weights[at] = int(number) << shift
    return weights


def worst_level(logs: Floats, distances: Floats) -> float:
    """The largest ln P(y|x)/P(y|x') over d(x, x'), from ln P; infinite if a report tells places apart."""
    worst = 0.0
    for x in range(len(logs)):
        with np.errstate(invalid="ignore"):
            apart = logs[x] - logs
        gaps = np.where(np.isnan(apart), 0.0, apart).max(axis=1)  # impossible from both: no loss
        gaps[x] = 0.0
        apart = np.where(distances[x] > 0.0, distances[x], 1.0)
        worst = max(worst, float((gaps / apart).max()))
    return worst


def as_prior(space: Space, prior: Any) -> Floats:
    """Return a distribution over the open places of a space; counts will do."""
    given = np.array(prior, dtype=np.float64).reshape(-1)
    if given.size != space.size:
        raise ParameterError(f"prior must have one number for each of {space.size} places, got {given.size}")
    if not np.isfinite(given).all() or given.min() < 0.0:
        raise ParameterError("prior must hold finite numbers >= 0")
    given[~space.open] = 0.0
    total = given.sum()
    if not total > 0.0:
        raise ParameterError("prior must be positive in an open place")
    return np.asarray(given / total)


Channels = Sequence[ElasticChannel]
