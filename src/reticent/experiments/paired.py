"""Paired comparisons: the protocol's intervals and its check for bias.

Errors of two mechanisms in the same repetition share people, attributes and randomness, so their difference
is compared, not the two separately.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from reticent.estimation.student import half_width, t_quantile
from reticent.mechanisms.base import Floats

FALSE_ALARM = 1e-6  # of one check for bias
FEWEST_FOR_BIAS = 30


@dataclass(frozen=True)
class Paired:
    """Mean difference of squared errors (other minus ours) with its 95 % interval."""

    difference: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Whose error is smaller, or "equal" if the interval holds 0."""
        if self.low > 0.0:
            return "ours smaller"
        return "ours larger" if self.high < 0.0 else "equal"


def paired(others: Floats, ours: Floats) -> Paired:
    """Compare squared errors of the same repetitions."""
    gaps = others - ours
    half, middle = half_width(gaps), float(gaps.mean())
    return Paired(middle, middle - half, middle + half)


def squared_errors(estimates: Floats, truth: Floats) -> Floats:
    """The error of each repetition: mean over the attributes of the squared deviation."""
    errors: Floats = np.mean((estimates - truth) ** 2, axis=1)
    return errors


def biased(estimates: Floats, truth: Floats) -> bool | None:
    """Whether the mean error of any attribute cannot be chance; None with fewer than 30 repetitions.

    False-alarm rate 1e-6, split over the attributes and both sides.
    """
    times, attributes = estimates.shape
    if times < FEWEST_FOR_BIAS:
        return None
    errors = estimates - truth
    spread = errors.std(axis=0, ddof=1) / math.sqrt(times)
    threshold = t_quantile(1.0 - FALSE_ALARM / (2 * attributes), times - 1)
    return bool(np.any(np.abs(errors.mean(axis=0)) > threshold * np.maximum(spread, 1e-300)))
