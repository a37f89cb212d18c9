"""The Blahut-Arimoto channel: the least mutual information at a given mean distance, found by turns.

    P(y|x) = c(y) exp(-beta d(x, y)) / Z(x)        Biswas 2023, Eq. 3.2
    c(y)   = sum over x of prior(x) P(y|x)         Eq. 3.3

Both are sums that fall with distance, so a turn is two of them: c <- c K(prior / K c).

Departures: Algorithm 2 of Biswas 2023 prints the normaliser over the wrong argument (its rows would not sum
to
    one); Eq. 3.2 is right and is used. In the limit c may lose its support, and with it any use for
    estimation; so turns are few, and c is kept above a floor (MATH.md section 4).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location.elastic import ElasticChannel, as_prior
from reticent.spaces.finite import Space

TURNS = 100
TOLERANCE = 1e-6
FLOOR = 1e-3  # of the mass, spread evenly


def blahut_arimoto(
    space: Space,
    prior: Any,
    beta: float,
    *,
    turns: int = TURNS,
    tolerance: float = TOLERANCE,
    floor: float = FLOOR,
    dense: bool | None = None,
) -> ElasticChannel:
    """The channel after so many turns from a uniform c, or when c moves by less than `tolerance` in all.

    Args:
        space: the places.
        prior: where people are thought to be; counts will do.
        beta: the loss parameter; the level is 2 beta.
        turns: at most.
        tolerance: of the sum of |change of c|.
        floor: the share of the mass that is spread over all open places.
        dense: see `kernel`.
    """
    turns = whole("turns", turns, low=0)
    tolerance = real("tolerance", tolerance, low=0.0)
    floor = real("floor", floor, low=0.0, high=1.0)
    weights = as_prior(space, prior)
    even = space.open / space.open.sum()
    channel = ElasticChannel(space, even, beta, dense=dense)
    sums, c = channel.kernel, np.array(even)
    for _ in range(turns):
        turned = c * sums(weights / np.maximum(sums(c), 1e-300))
        turned /= turned.sum()
        moved = float(np.abs(turned - c).sum())
        c = turned
        if moved < tolerance:
            break
    found = ElasticChannel(space, (1.0 - floor) * c + floor * even, beta, dense=dense)
    found.__dict__["kernel"] = sums  # the same beta
    return found


def for_distortion(space: Space, prior: Any, distortion: float, **options: Any) -> ElasticChannel:
    """The channel whose reports are so far from the truth on average, by bisection of ln beta."""
    wanted = real("distortion", distortion, low=0.0, open_low=True)
    weights = as_prior(space, prior)

    def at(log_beta: float) -> ElasticChannel:
        return blahut_arimoto(space, weights, math.exp(log_beta), **options)

    low, high = math.log(1e-4 / space.diameter), math.log(60.0 / space.shortest)
    if not at(high).distortion(weights) <= wanted <= at(low).distortion(weights):
        raise ParameterError(
            f"distortion must be between {at(high).distortion(weights):g} and "
            f"{at(low).distortion(weights):g} {space.unit} for this prior, got {wanted:g}"
        )
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if at(middle).distortion(weights) > wanted else (low, middle)
    return at(high)


def capped(channel: ElasticChannel, most: float, *, turns: int = 200) -> ElasticChannel:
    """The same channel with c cut so that no place is reported as itself more often than `most`.

    P(x|x) = c(x)/Z(x) <= most, i.e. c(x) <= most/(1-most) times the sum over y != x of c(y) exp(-beta d).
    Cutting lowers the right side elsewhere, so it is repeated; then all of c may be scaled, which changes
    nothing. Where a space is too sparse for it (a single place), the most even c is as far as it goes.

    Privacy: unchanged, since any c keeps 2 beta; this is about who is hidden among whom, whoever lies.
    """
    most = real("most", most, low=0.0, high=1.0, open_low=True)
    if most == 1.0:
        return channel
    c, ratio = np.array(channel.marginal), most / (1.0 - most)
    for _ in range(turns):
        others = np.maximum(channel.kernel(c) - c, 0.0)
        over = c > ratio * others * (1.0 + 1e-12)
        if not over.any():
            break
        c = np.where(over, ratio * others, c)
    if not c.sum() > 0.0:
        return channel
    found = ElasticChannel(channel.space, c, channel.beta, dense=channel._dense)
    found.__dict__["kernel"] = channel.kernel
    return found


def uniform_over(space: Space) -> Floats:
    """As many people everywhere."""
    return np.asarray(space.open / space.open.sum())
