"""One estimate from reports of several epsilons, with levels weighted by the inverse of their variances.

A level l of n_l reports, each of variance at most V_l, has the weight w_l = (n_l/V_l) / sum (n_j/V_j), which
makes the bound on the variance of sum w_l mean_l least. V_l is a number that the mechanism publishes: weights
that looked at the reports would bias the estimate and narrow its interval. The sum is a mean of N independent
reports scaled by a_l = N w_l/n_l, of variance at most the mean of a_l^2 V_l, so that the interval of
`intervals.deviation_bound` is proved for it, for every number of reports.

The estimated quantity is sum w_l mu_l: the mean of the population if the reporters of one level are like
those of another. If they differ (`are_apart` tests this), it is a mean that gives more weight to the levels
with more information.

Reference: Hoeffding 1963, Theorem 3, for the interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from reticent.errors import ParameterError
from reticent.estimation.frequencies import FrequencyEstimate, frequency_estimate
from reticent.estimation.inputs import checked_confidence, checked_support, frozen
from reticent.estimation.intervals import deviation_bound
from reticent.estimation.means import MeanEstimate, Target, mean_estimate, variance_bound
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.base import NumericChannel


@dataclass(frozen=True)
class Weighted:
    """The weights of the reports of several levels.

    Attributes:
        weights: Weights of the levels; they sum to one.
        scales: Factors of the reports of each level, where all reports together are averaged.
        variance: Upper bound on the variance of a report scaled so, on average.
        count: Number of all reports.
    """

    weights: Floats
    scales: Floats
    variance: float
    count: int


def weighted(counts: Sequence[int], variances: Sequence[float]) -> Weighted:
    """Weights of levels with so many reports, each report of at most this variance."""
    n, v = np.asarray(counts, dtype=np.float64), np.asarray(variances, dtype=np.float64)
    if not n.size or n.shape != v.shape or not (n.min() >= 1 and v.min() > 0.0 and np.isfinite(v).all()):
        raise ParameterError("levels must have at least one report and a variance > 0 each")
    information = n / v
    w = information / information.sum()
    a = n.sum() * w / n
    return Weighted(w, a, float((n * a * a * v).sum() / n.sum()), int(n.sum()))


def combined_mean(
    levels: Sequence[tuple[NumericChannel, ArrayLike]],
    *,
    confidence: float = 0.95,
    target: Target = "population",
) -> MeanEstimate:
    """Estimate the mean from reports of several channels over the same bounds.

    Args:
        levels: Channel of each level, and its reports per symbol; at least one report each.
        confidence: Probability, at least, that [lower, upper] holds the estimated quantity.
        target: Target of the estimate, see `mean_estimate`. "reporters" is the mean of the levels' reporters
            with their weights.
    """
    confidence = checked_confidence(confidence)
    bounds = {channel.bounds for channel, _ in levels}
    if len(bounds) != 1:
        raise ParameterError(f"levels must be over the same bounds, got {len(bounds)}")
    each = [mean_estimate(channel, n, confidence=confidence, target=target) for channel, n in levels]
    if len(each) == 1:
        return each[0]
    variances = [variance_bound(channel, target) for channel, _ in levels]  # no report moves these
    joint = weighted([one.count for one in each], variances)
    ((lower, upper),) = bounds
    reach = max(
        scale * max(float(channel.alphabet.max()) - lower, upper - float(channel.alphabet.min()))
        for scale, (channel, _) in zip(joint.scales.tolist(), levels, strict=True)
    )
    value = float(joint.weights @ np.array([one.value for one in each]))
    width = deviation_bound(joint.count, joint.variance, reach, confidence=confidence)
    held = joint.variance, (lower, upper), joint.count
    return MeanEstimate.of(value, width, *held, confidence, target)


def combined_frequencies(
    levels: Sequence[tuple[ArrayLike, int, float | Fraction, float | Fraction]], *, confidence: float = 0.95
) -> FrequencyEstimate:
    """Estimate frequencies from reports of several pure protocols over the same categories.

    Args:
        levels: Support counts, number of reports, and the p and q of `frequency_estimate`, for each level.
        confidence: Confidence of each interval.
    """
    confidence = checked_confidence(confidence)
    each = [frequency_estimate(counts, n, p=p, q=q, confidence=confidence) for counts, n, p, q in levels]
    if len({one.frequencies.size for one in each}) != 1:
        raise ParameterError("levels must be over the same categories")
    if len(each) == 1:
        return each[0]
    pairs = [checked_support(p, q) for _, _, p, q in levels]
    joint = weighted([one.count for one in each], [support_variance(p, q) for p, q in pairs])
    reach = max(
        scale * max(p, 1.0 - q) / (p - q) for scale, (p, q) in zip(joint.scales.tolist(), pairs, strict=True)
    )
    width = deviation_bound(joint.count, joint.variance, reach, confidence=confidence)
    found = joint.weights @ np.array([one.frequencies for one in each])
    nearest = np.clip(found, 0.0, 1.0)  # an interval at 0 or 1 keeps its width
    return FrequencyEstimate(
        frequencies=frozen(found),
        standard_errors=frozen(np.full(found.size, math.sqrt(joint.variance / joint.count))),
        lower=frozen(np.maximum(nearest - width, 0.0)),
        upper=frozen(np.minimum(nearest + width, 1.0)),
        count=joint.count,
        confidence=confidence,
        simultaneous=False,
    )


def support_variance(p: float, q: float) -> float:
    """Return the most that a report adds to a frequency's variance: pi (1 - pi)/(p - q)^2, pi in [q, p]."""
    nearest = min(max(0.5, q), p)
    return nearest * (1.0 - nearest) / (p - q) ** 2


def are_apart(
    values: Sequence[ArrayLike], counts: Sequence[int], variances: Sequence[float], *, alarm: float = 1e-3
) -> bool:
    """Return whether some level differs from the others together by more than noise would explain.

    Args:
        values: Estimate of each level: one number, or as many as there are categories.
        counts: Number of reports of each level.
        variances: Upper bound on the variance of one report of each level.
        alarm: Chance of a false alarm, at most up to the normal approximation: a difference is compared with
            the variance that the mechanisms allow, and the alarm is shared by all comparisons.
    """
    if len(values) < 2:
        return False
    table = np.array([np.atleast_1d(np.asarray(one, dtype=np.float64)) for one in values])
    information = np.asarray(counts, dtype=np.float64) / np.asarray(variances, dtype=np.float64)
    rest = information.sum() - information
    others = ((information @ table)[None, :] - information[:, None] * table) / rest[:, None]
    scale = np.sqrt(1.0 / information + 1.0 / rest)[:, None]
    limit = -NormalDist().inv_cdf(alarm / (2.0 * table.size))
    return bool((np.abs(table - others) > limit * scale).any())
