"""Confidence intervals that hold for every number of reports, with proofs and no asymptotics.

`proportion_interval` is for sums of independent zeros and ones (frequencies), `deviation_bound` for
means of independent bounded numbers of which a bound on the variance is known (an LDP channel
publishes its own). Neither needs equal distributions: reporters differ. Both approach the width
of the usual normal interval as the reports grow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.estimation.inputs import checked_confidence, checked_reals
from reticent.mechanisms.base import Floats

BERRY_ESSEEN = 0.56
_HALVINGS = 60
_SPLITS = np.geomspace(1.0, 1.0 / 16.0, 128)


def proportion_interval(
    successes: ArrayLike, count: int, *, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Bound the mean probability pi of `count` independent trials, for each number of successes.

    The trials may have different probabilities; pi is their mean. For S successes,

        S - 1 >= n pi  =>  P(S or more) <= P(Bin(n, pi) >= S)                  Hoeffding 1956, Theorem 4
                                        <= Phi(-sqrt(2 n kl((S - 1)/n, pi)))   Zubkov and Serov 2013

    so the lower limit solves 2 n kl((S - 1)/n, pi) = z^2, and the upper one is its mirror image.
    S = n is exact: P(all) <= pi^n.

    Reference: Hoeffding 1956, Theorem 4; Zubkov and Serov 2013, Theorem 1.
    Invariant: covers pi with at least the stated confidence, for every count and every pi.

    Args:
        successes: Whole numbers in [0, count].
        count: Number of trials.
        confidence: Confidence of each interval singly.

    Returns:
        The lower and the upper limits, one each per entry of `successes`.
    """
    n = whole("count", count, low=1)
    hits = checked_reals("successes", successes)
    if not (hits.min() >= 0 and hits.max() <= n and (hits == np.floor(hits)).all()):
        raise ParameterError(f"successes must be whole numbers >= 0 and <= count = {n}")
    alpha = (1.0 - checked_confidence(confidence)) / 2.0
    return _lower_limit(hits, n, alpha), 1.0 - _lower_limit(n - hits, n, alpha)


def _lower_limit(hits: Floats, n: int, alpha: float) -> Floats:
    z = -NormalDist().inv_cdf(alpha)
    before = np.maximum(hits - 1.0, 0.0) / n
    limit = _least(lambda pi: kl(before, pi) > z * z / (2.0 * n), before)
    return np.where(hits == n, alpha ** (1.0 / n), limit)


def deviation_bound(count: int, variance: float, reach: float, *, confidence: float = 0.95) -> float:
    """Return a w such that the mean of `count` independent reports is within w of its expectation.

    Reports have variance at most `variance` on average and lie within `reach` of their own
    expectations. Two proofs are joined; which one decides depends on public numbers alone.

    1. Bennett-Hoeffding, any count: P(deviation >= w) <= exp(-n kl((w b + v)/(b^2 + v), v/(b^2 + v))).
    2. Berry-Esseen: P(deviation >= w) <= Phi(-w sqrt(n)/s) + 0.56 b/(s sqrt(n)) when the average
       variance is s^2, since third moments are at most b s^2.

    The variance need not be as large as its bound v. Cut at any v0 <= v: below it use the first proof
    with v0, above it the second with v in the normal tail and v0 in the error. The w returned is
    the least over 128 cuts, or that of the first proof alone: wider by 1.39 for few reports, within a
    few per cent of 1.96 sqrt(v/n) for many.

    Reference: Hoeffding 1963, Theorem 3; Shevtsova 2010 for the constant 0.56.
    Invariant: P(|deviation| > w) <= 1 - confidence for every count.
    """
    n = whole("count", count, low=1)
    v = real("variance", variance, low=0.0, open_low=True)
    b = real("reach", reach, low=0.0, open_low=True)
    alpha = (1.0 - checked_confidence(confidence)) / 2.0
    cuts = v * _SPLITS
    chernoff = _bennett_hoeffding(n, cuts, b, alpha)
    best = float(chernoff[0])
    for cut, first in zip(cuts, chernoff, strict=True):
        left = alpha - BERRY_ESSEEN * b / math.sqrt(cut * n)
        if left <= 0.0:
            break
        best = min(best, max(float(first), math.sqrt(v / n) * -NormalDist().inv_cdf(left)))
    return best


def bounded_deviation(count: int, variance: float, reach: float, *, confidence: float = 0.95) -> float:
    """Return the w of the first proof of `deviation_bound` alone.

    It needs no independence: given all reports before it, a report has its own expectation, and a variance
    whose sum over all reports is bounded by a number that no report moves.

    Reference: Fan, Grama and Liu 2012, Theorem 2.1.
    """
    n = whole("count", count, low=1)
    v = real("variance", variance, low=0.0, open_low=True)
    b = real("reach", reach, low=0.0, open_low=True)
    alpha = (1.0 - checked_confidence(confidence)) / 2.0
    return float(_bennett_hoeffding(n, np.array([v]), b, alpha)[0])


def _bennett_hoeffding(n: int, variances: Floats, b: float, alpha: float) -> Floats:
    """Return the w at which the first proof gives alpha, or its upper limit `b` where it never does."""
    rest = b * b / (b * b + variances)  # both coins are turned over: kl(1 - a, 1 - c) = kl(a, c)
    below = _least(lambda turned: kl(turned, rest) > -math.log(alpha) / n, rest)
    width = np.minimum(b, ((1.0 - below) * (b * b + variances) - variances) / b)
    return np.where(below > 0.0, width, b)


def kl(a: Floats, b: Floats) -> Floats:
    """Return the divergence of a coin a from a coin b, in nats; 0 log 0 = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(a > 0.0, a * np.log(a / b), 0.0)
        second = np.where(a < 1.0, (1.0 - a) * np.log((1.0 - a) / (1.0 - b)), 0.0)
    return np.asarray(np.maximum(first + second, 0.0))


def _least(outside: Callable[[Floats], NDArray[np.bool_]], top: Floats) -> Floats:
    """Bisect [0, top] for the least point that is not outside; the last one outside is returned."""
    low, high = np.zeros_like(top), top.copy()
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        out = outside(middle)
        low, high = np.where(out, middle, low), np.where(out, high, middle)
    return low
