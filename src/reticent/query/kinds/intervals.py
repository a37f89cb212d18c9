"""Estimates with intervals: linear ones, ratios, and what they make together.

Everything here is arithmetic on released numbers and public ones.

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
        low: and
        high: the ends of the interval, cut to what is possible.
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


def linear(value: float, sigma: float, factor: float, low: float, high: float) -> Estimate:
    """Value and interval are cut to what is possible."""

    def cut(number: float) -> float:
        return min(high, max(low, number))

    return Estimate(cut(value), sigma, cut(value - factor * sigma), cut(value + factor * sigma), value)


def cut(estimate: Estimate, low: float, high: float) -> Estimate:
    """An estimate of what lies between two numbers: value and interval are cut to them."""
    value, first, last = (min(high, max(low, one)) for one in (estimate.value, estimate.low, estimate.high))
    return Estimate(value, estimate.standard_error, first, last, estimate.unbiased)


def moved(estimate: Estimate, factor: float, offset: float) -> Estimate:
    """An estimate in other units."""
    return Estimate(
        offset + factor * estimate.value,
        factor * estimate.standard_error,
        offset + factor * estimate.low,
        offset + factor * estimate.high,
        None if estimate.unbiased is None else offset + factor * estimate.unbiased,
    )


def ratio(top: Normal, bottom: Normal, h: float, factor: float, covariance: float = 0.0) -> Estimate:
    """Return top / bottom, known to lie within [-h, h]; `covariance` is that of their noises.

    The interval is every r that the two numbers do not contradict: |top - r bottom| at most `factor`
    standard errors. If the group may be empty as far as the noise tells, nothing is excluded.
    Reference: Fieller 1954.
    """
    if bottom.value <= factor * bottom.sigma or bottom.value <= 0:
        value = min(h, max(-h, top.value / bottom.value)) if bottom.value > 0 else 0.0
        return Estimate(value, h, -h, h)
    value = min(h, max(-h, top.value / bottom.value))
    error = math.hypot(top.sigma, value * bottom.sigma) / bottom.value
    if covariance:
        square = top.sigma**2 - 2 * value * covariance + (value * bottom.sigma) ** 2
        error = math.sqrt(max(0.0, square)) / bottom.value
    a = bottom.value**2 - (factor * bottom.sigma) ** 2
    b = top.value * bottom.value - factor * factor * covariance
    c = top.value**2 - (factor * top.sigma) ** 2
    root = math.sqrt(max(0.0, b * b - a * c))
    low, high = min(h, max(-h, (b - root) / a)), min(h, max(-h, (b + root) / a))
    return Estimate(value, error, min(low, value), max(high, value))  # without noise, doubles may differ
