"""Estimates with intervals: linear ones, ratios, and what they make together.

Everything here is arithmetic on released numbers and public ones.

An exact answer lies within public limits, but its noisy measurement may not. Cutting the interval of such a
measurement to the limits can leave a single point, which claims certainty and is wrong. Every interval here
is therefore that of the nearest possible measurement, cut to the limits. It contains the interval that
cutting alone leaves, so it holds the exact answer at least as often, and it keeps its width at a limit. The
older rule, `cut_only`, remains for checking answers that earlier releases gave.

Reference: Fieller 1954 for the interval of a ratio of two normal estimates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any


@dataclass(frozen=True)
class Estimate:
    """One number with its error: `low` and `high` hold the exact answer with the stated confidence.

    Attributes:
        value: the best guess: within the interval, and possible. Where noise made it impossible, as a count
            below zero, it is the nearest that is possible.
        standard_error: of the noise.
        low: Lower end of the interval, cut to what is possible.
        high: Upper end of the interval, cut to what is possible.
        unbiased: the value before it was cut, to be added up with others; None for ratios and quantiles.
    """

    value: float
    standard_error: float
    low: float
    high: float
    unbiased: float | None = None


@dataclass(frozen=True)
class Cell:
    """The estimate for one group. `labels` is empty when nothing was grouped."""

    labels: tuple[Any, ...]
    estimate: Estimate


@dataclass(frozen=True)
class Normal:
    """An estimate with normal noise."""

    value: float
    sigma: float


@lru_cache(maxsize=1024)
def half_width_factor(confidence: float) -> float:
    """Standard errors between an estimate and either end of its interval."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def shown_half_width(estimate: Estimate, confidence: float = 0.95) -> float:
    """Return what stands behind the ±: half the interval, or more where the interval was cut."""
    return max((estimate.high - estimate.low) / 2, half_width_factor(confidence) * estimate.standard_error)


def linear(
    value: float, sigma: float, factor: float, low: float, high: float, *, cut_only: bool = False
) -> Estimate:
    """Return the estimate of a number in [low, high] that was measured with normal noise.

    Args:
        value: Measured number.
        sigma: Standard deviation of its noise.
        factor: Standard errors on either side (`half_width_factor`).
        low: Least number that is possible.
        high: Largest number that is possible.
        cut_only: Whether the interval is only cut, as by earlier releases.
    """
    measured = Estimate(value, sigma, value - factor * sigma, value + factor * sigma, value)
    return fit_to_range(measured, low, high, cut_only=cut_only)


def fit_to_range(estimate: Estimate, low: float, high: float, *, cut_only: bool = False) -> Estimate:
    """Return an estimate of a number that is known to lie in [low, high].

    The value becomes the nearest possible one. If that moves the value, the end of the interval on the
    possible side moves with it; then both ends are cut. An interval that held the exact answer still does.
    """
    value = min(high, max(low, estimate.value))
    moved_by = 0.0 if cut_only else value - estimate.value
    first, last = estimate.low + min(0.0, moved_by), estimate.high + max(0.0, moved_by)
    return Estimate(
        value,
        estimate.standard_error,
        min(high, max(low, first)),
        min(high, max(low, last)),
        estimate.unbiased,
    )


def moved(estimate: Estimate, factor: float, offset: float) -> Estimate:
    """An estimate in other units."""
    return Estimate(
        offset + factor * estimate.value,
        factor * estimate.standard_error,
        offset + factor * estimate.low,
        offset + factor * estimate.high,
        None if estimate.unbiased is None else offset + factor * estimate.unbiased,
    )


def ratio(
    top: Normal,
    bottom: Normal,
    h: float,
    factor: float,
    covariance: float = 0.0,
    *,
    cut_only: bool = False,
) -> Estimate:
    """Return top / bottom, known to lie within [-h, h]; `covariance` is that of their noises.

    The interval is every r that the two numbers do not contradict: |top - r bottom| at most `factor`
    standard errors. If the group may be empty as far as the noise tells, nothing is excluded. A top that no
    ratio within [-h, h] explains is taken as the nearest one that some ratio explains: that brings it closer
    to every possible r, so no r is lost.
    Reference: Fieller 1954.
    """
    if bottom.value <= factor * bottom.sigma or bottom.value <= 0:
        value = min(h, max(-h, top.value / bottom.value)) if bottom.value > 0 else 0.0
        return Estimate(value, h, -h, h)
    value = min(h, max(-h, top.value / bottom.value))
    nearest_top = top.value if cut_only else value * bottom.value
    error = math.hypot(top.sigma, value * bottom.sigma) / bottom.value
    if covariance:
        square = top.sigma**2 - 2 * value * covariance + (value * bottom.sigma) ** 2
        error = math.sqrt(max(0.0, square)) / bottom.value
    a = bottom.value**2 - (factor * bottom.sigma) ** 2
    b = nearest_top * bottom.value - factor * factor * covariance
    c = nearest_top**2 - (factor * top.sigma) ** 2
    root = math.sqrt(max(0.0, b * b - a * c))
    low, high = min(h, max(-h, (b - root) / a)), min(h, max(-h, (b + root) / a))
    return Estimate(value, error, min(low, value), max(high, value))  # without noise, doubles may differ
