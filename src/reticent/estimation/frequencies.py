"""Frequencies of categories from support counts, projection to the simplex, matrix inversion.

Every pure protocol (KRR, OUE, OLH, Subset) reports something that supports a set of values: one's own with
probability p, any other given value with probability q. Support counts add up over batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.estimation.inputs import (
    checked_confidence,
    checked_counts,
    checked_matrix,
    checked_reals,
    checked_support,
    frozen,
)
from reticent.estimation.intervals import proportion_interval
from reticent.mechanisms.base import Floats


@dataclass(frozen=True)
class FrequencyEstimate:
    """Unbiased frequencies, one per category, with an interval each.

    `frequencies` may be negative, exceed one and not sum to one; `lower` and `upper` are in [0, 1].
    """

    frequencies: Floats
    standard_errors: Floats
    lower: Floats
    upper: Floats
    count: int
    confidence: float
    simultaneous: bool

    @property
    def shown(self) -> Floats:
        """The values for display: the nearest to `frequencies` in each interval, biased near 0 and 1."""
        return np.clip(self.frequencies, self.lower, self.upper)


def frequency_estimate(
    support_counts: ArrayLike,
    count: int,
    *,
    p: float | Fraction,
    q: float | Fraction,
    confidence: float = 0.95,
    simultaneous: bool = False,
) -> FrequencyEstimate:
    """Estimate the frequency of each category.

    A category of frequency f is supported by each report with the mean probability q + f (p - q), so
    an interval for that probability (`proportion_interval`, proved for every count) is one for f. It
    holds both for the frequency among those who reported and for that in a population of which
    they are an independent sample. Fewer supports than a frequency of 0 leads one to expect, n q, count as
    n q for the upper limit, and more than n p as n p for the lower one: the interval grows, and keeps its
    width at 0 and 1.

    Args:
        support_counts: Number of reports that support each category.
        count: Number of all reports.
        p: Probability that a report supports the reporter's own value.
        q: Probability that a report supports another given value.
        confidence: Confidence of each interval, or of all together if `simultaneous` (Bonferroni).
        simultaneous: True if all intervals shall hold at once.

    Returns:
        Frequencies with intervals. A standard error is that of the mechanism's noise, the largest for
        any frequency in the interval.

    Reference: Wang et al. 2017, the estimator of pure protocols.
    """
    n = whole("count", count, low=1)
    own, other = checked_support(p, q)
    confidence = checked_confidence(confidence)
    supports = checked_counts("support_counts", support_counts, least=0).astype(np.float64)
    if supports.max() > n:
        raise ParameterError(f"support_counts must be <= count = {n}, got {supports.max():.0f}")
    each = 1.0 - (1.0 - confidence) / supports.size if simultaneous else confidence
    limits = (
        proportion_interval(np.minimum(supports, np.floor(n * own)), n, confidence=each)[0],
        proportion_interval(np.maximum(supports, np.ceil(n * other)), n, confidence=each)[1],
    )
    lower, upper = (np.clip((limit - other) / (own - other), 0.0, 1.0) for limit in limits)
    slope, base = own * (1.0 - own) - other * (1.0 - other), other * (1.0 - other)
    variance = base + np.maximum(slope * lower, slope * upper)  # linear in f: largest at an end
    return FrequencyEstimate(
        frequencies=frozen((supports / n - other) / (own - other)),
        standard_errors=frozen(np.sqrt(variance / n) / (own - other)),
        lower=frozen(lower),
        upper=frozen(upper),
        count=n,
        confidence=confidence,
        simultaneous=bool(simultaneous),
    )


def project_to_simplex(frequencies: ArrayLike) -> Floats:
    """Return the nearest distribution: non-negative, sum one, least Euclidean distance.

    The projection subtracts one threshold from every entry and cuts at zero. It is biased; use it for
    display and sampling, not before adding estimates up.

    Reference: Duchi et al. 2008, Figure 1.
    """
    given = checked_reals("frequencies", frequencies)
    given = given - given.max()  # the projection ignores a common offset; this keeps its digits
    falling = np.sort(given)[::-1]
    thresholds = (np.cumsum(falling) - 1.0) / np.arange(1, given.size + 1)
    kept = int(np.flatnonzero(falling > thresholds)[-1])
    inside = np.maximum(given - thresholds[kept], 0.0)
    return np.asarray(inside / inside.sum())


@dataclass(frozen=True)
class Inversion:
    """The frequencies of the inputs by matrix inversion, and how far to trust them.

    `condition` is the factor by which noise in the output frequencies may grow. If `rank` is less than
    the number of inputs, the inputs are not determined by the outputs: of all solutions this is
    the shortest, and it is not unbiased.
    """

    frequencies: Floats
    condition: float
    rank: int

    @property
    def determined(self) -> bool:
        """Whether the outputs determine the inputs."""
        return self.rank == self.frequencies.size


def invert(matrix: ArrayLike, counts: ArrayLike, *, max_condition: float = 1e8) -> Inversion:
    """Solve `frequencies @ matrix = counts / n` by least squares.

    Directions that the channel loses entirely (singular values below rounding) are left out. A channel
    that nearly loses one is refused: the answer would be rounding errors, magnified. `ibu` has no such limit.

    Args:
        matrix: matrix[x, y] = P(y | x).
        counts: reports of each output y.
        max_condition: the largest condition number that is accepted.

    Reference: Agrawal, Srikant and Thomas 2005 for a channel with as many outputs as inputs.
    """
    table = checked_matrix("matrix", matrix)
    tally = checked_counts("counts", counts, table.shape[1])
    limit = real("max_condition", max_condition, low=1.0)
    left, values, right = np.linalg.svd(table, full_matrices=False)
    kept = values > values[0] * max(table.shape) * np.finfo(np.float64).eps
    rank = int(kept.sum())
    condition = float(values[0] / values[rank - 1])
    if condition > limit:
        raise ParameterError(
            f"matrix must have a condition number <= {limit:g}, got {condition:.3g}; use ibu"
        )
    observed = tally / tally.sum()
    frequencies = (observed @ right[:rank].T / values[:rank]) @ left[:, :rank].T
    return Inversion(frozen(frequencies), condition, rank)
