"""The Blahut-Arimoto channel: the least mutual information at a given mean distance, found by turns.

    P(y|x) = c(y) exp(-beta d(x, y)) / Z(x)        Biswas 2023, Eq. 3.2
    c(y)   = sum over x of prior(x) P(y|x)         Eq. 3.3

Both are sums that fall with distance, so a turn is two of them: c <- c K(prior / K c).

Departures: Algorithm 2 of Biswas 2023 prints the normaliser over the wrong argument (its rows would not sum
to
    one); Eq. 3.2 is right and is used. In the limit c may lose its support, and with it any use for
    estimation; so turns are few, and c is kept above a floor (mathematics 3.1).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location.elastic import MAX_EXPONENT, ElasticChannel, as_prior
from reticent.spaces.finite import Space
from reticent.spaces.kernels import Kernel

TURNS = 100
TOLERANCE = 1e-6
FLOOR = 1e-3  # of the mass, spread evenly
_JUST_BELOW, _WELL_BELOW = 0.999, 0.998  # a cap, so that rounding to a published c does not matter
_POWERS = 200


def blahut_arimoto(
    space: Space,
    prior: Any,
    beta: float,
    *,
    turns: int = TURNS,
    tolerance: float = TOLERANCE,
    floor: float = FLOOR,
    dense: bool | None = None,
    sums: Kernel | None = None,
) -> ElasticChannel:
    """Return the channel after `turns` from a uniform c, or when c moves by less than `tolerance` in all.

    Args:
        space: the places.
        prior: Distribution of people, as it is thought to be; counts will do.
        beta: the loss parameter; the level is 2 beta.
        turns: Largest number of turns.
        tolerance: Tolerance of the sum of |change of c|.
        floor: the share of the mass that is spread over all open places.
        dense: see `kernel`.
        sums: see `ElasticChannel`.
    """
    turns = whole("turns", turns, low=0)
    tolerance = real("tolerance", tolerance, low=0.0)
    floor = real("floor", floor, low=0.0, high=1.0)
    weights = as_prior(space, prior)
    even = space.open / space.open.sum()
    sums = ElasticChannel(space, even, beta, dense=dense, sums=sums).kernel
    c, turned, ratio = np.array(even), np.empty(space.size), np.empty(space.size)
    for _ in range(turns):
        sums(c, ratio)
        np.maximum(ratio, 1e-300, out=ratio)
        np.divide(weights, ratio, out=ratio)
        sums(ratio, turned)
        np.multiply(turned, c, out=turned)
        c, turned = turned, c
        if tolerance and float(np.abs(turned - c).sum()) < tolerance:
            break
    c /= c.sum()
    return ElasticChannel(space, (1.0 - floor) * c + floor * even, beta, dense=dense, sums=sums)


def for_distortion(space: Space, prior: Any, distortion: float, **options: Any) -> ElasticChannel:
    """Return the channel whose reports are so far from the truth on average, by bisection of ln beta."""
    wanted = real("distortion", distortion, low=0.0, open_low=True)
    weights = as_prior(space, prior)

    def at(log_beta: float) -> ElasticChannel:
        return blahut_arimoto(space, weights, math.exp(log_beta), **options)

    if space.size < 2:
        raise ParameterError("space must have at least two places to choose a distortion")
    low = math.log(1e-4 / space.diameter)
    high = math.log(min(60.0 / space.shortest, MAX_EXPONENT / space.diameter)) - 1e-9
    if not at(high).distortion(weights) <= wanted <= at(low).distortion(weights):
        raise ParameterError(
            f"distortion must be between {at(high).distortion(weights):g} and "
            f"{at(low).distortion(weights):g} {space.unit} for this prior, got {wanted:g}"
        )
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if at(middle).distortion(weights) > wanted else (low, middle)
    return at(high)


def capped(channel: ElasticChannel, most: float, *, turns: int = 50) -> ElasticChannel:
    """Return the channel with c changed so that no place is reported as itself more often than `most`.

    P(x|x) = c(x)/Z(x) <= most, i.e. c(x) <= ratio (K c - c)(x), ratio = most/(1-most). c is cut where it is
    above, a few times, since cutting lowers the right side elsewhere. What is left is made good by adding as
    much as needed of an even v that has room everywhere.

    Where a space is too sparse for any c (K has no eigenvalue above 1/most), c is v itself: nearly the
    eigenvector, which reports all places as themselves equally often.

    Privacy: unchanged, since any c keeps 2 beta; this is about who is hidden among whom, whatever liars
    report.
    """
    most = real("most", most, low=0.0, high=1.0, open_low=True)
    if most == 1.0 or (channel.staying <= most).all():
        return channel
    sums, is_open = channel.kernel, channel.space.open
    even, room = _even_staying(channel, most)
    c, ratio = np.array(channel.marginal), most * _JUST_BELOW / (1.0 - most * _JUST_BELOW)
    if room:
        for _ in range(turns):
            np.minimum(c, ratio * np.maximum(sums(c) - c, 0.0), out=c)
        lack = c - ratio * (sums(c) - c)
        spare = ratio * (sums(even) - even) - even
        c += even * max(0.0, float((lack[is_open] / spare[is_open]).max()))
    return ElasticChannel(channel.space, c if room else even, channel.beta, dense=channel._dense, sums=sums)


def _even_staying(channel: ElasticChannel, most: float) -> tuple[Floats, bool]:
    """A c that stays nowhere more often than a little less than `most`, by power iteration; if it does."""
    sums, is_open = channel.kernel, channel.space.open
    even = is_open / is_open.sum()
    for _ in range(_POWERS):
        grown = np.where(is_open, sums(even), 0.0)
        if (even <= most * _WELL_BELOW * grown).all():
            return even, True
        even = grown / grown.sum()
    return even, False


def uniform_over(space: Space) -> Floats:
    """Return the distribution with as many people at every open place."""
    return np.asarray(space.open / space.open.sum())
