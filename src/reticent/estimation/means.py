"""The mean of what people reported through a numeric channel, with an interval that holds for any number.

The reports are unbiased, so their average is the estimate. Its error is bounded by what the channel
publishes about itself, not by what the reports happen to show: a few reports that agree by chance
would otherwise look certain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from reticent.errors import ParameterError, ParameterTypeError
from reticent.estimation.inputs import Counts, checked_confidence, checked_counts, checked_reals
from reticent.estimation.intervals import deviation_bound
from reticent.mechanisms.numeric.base import NumericChannel

Target = Literal["reporters", "population"]


@dataclass(frozen=True)
class MeanEstimate:
    """An unbiased mean and its interval.

    `value` may lie outside the declared bounds (that is the price of no bias); `lower` and `upper` do
    not. If the interval before clipping misses the bounds altogether, both are the nearest bound:
    an event of probability below 1 - confidence among honest reporters.
    """

    value: float
    standard_error: float
    lower: float
    upper: float
    count: int
    confidence: float
    target: Target

    @classmethod
    def of(
        cls,
        value: float,
        width: float,
        variance: float,
        bounds: tuple[float, float],
        count: int,
        confidence: float,
        target: Target,
    ) -> MeanEstimate:
        """A mean with what its interval reaches to either side, cut to the bounds.

        Args:
            value: the mean.
            width: half of the interval before it is cut.
            variance: the largest of one report.
            bounds: between which the true mean lies.
            count: of reports.
            confidence: of the interval.
            target: what it is the mean of.
        """
        lower, upper = bounds
        low, high = min(max(value - width, lower), upper), max(min(value + width, upper), lower)
        return cls(value, math.sqrt(variance / count), low, high, count, confidence, target)

    @property
    def shown(self) -> float:
        """For people: the nearest to `value` that the interval holds. It is biased near the bounds."""
        return min(max(self.value, self.lower), self.upper)


def mean_estimate(
    channel: NumericChannel, counts: ArrayLike, *, confidence: float = 0.95, target: Target = "reporters"
) -> MeanEstimate:
    """Estimate a mean from the number of reports of each symbol.

    Args:
        channel: the mechanism that made the reports.
        counts: reports per symbol, in the order of `channel.alphabet`; counts of batches add up.
        confidence: at least this probability that [lower, upper] holds the mean.
        target: "reporters" for the mean of those who reported: only the mechanism's noise counts,
            of variance at most `channel.worst_case_variance` each. "population" for the mean of a
            population of which they are an independent sample: the spread of the values counts too,
            with the largest that the bounds allow.

    Returns:
        The mean, the largest standard error that the channel allows, and an interval proved for every
        number of reports (see `deviation_bound`). Nothing is estimated but the mean.
    """
    checked_channel(channel)
    tally = checked_counts("counts", counts, channel.size)
    confidence = checked_confidence(confidence)
    n = int(tally.sum())
    value = float(tally @ channel.alphabet) / n
    variance = variance_bound(channel, target)
    lower, upper = channel.bounds
    reach = max(float(channel.alphabet.max()) - lower, upper - float(channel.alphabet.min()))
    width = deviation_bound(n, variance, reach, confidence=confidence)
    return MeanEstimate.of(value, width, variance, channel.bounds, n, confidence, target)


def variance_bound(channel: NumericChannel, target: Target) -> float:
    """The largest variance of one report: of the noise alone, or of noise and value together."""
    if target == "reporters":
        return channel.worst_case_variance
    if target == "population":
        lower, upper = channel.bounds
        half_alphabet = float(np.ptp(channel.alphabet)) / 2.0  # Popoviciu: Var <= (half range)^2
        return min(channel.worst_case_variance + ((upper - lower) / 2.0) ** 2, half_alphabet**2)
    raise ParameterError(f"target must be 'reporters' or 'population', got {target!r}")


def symbol_counts(channel: NumericChannel, symbols: ArrayLike) -> Counts:
    """Count symbol indices, as `channel.sample` or `channel.unpack` give them; refuse illegal ones."""
    checked_channel(channel)
    indices = np.asarray(symbols)
    if indices.dtype.kind not in "iu":
        raise ParameterTypeError(f"symbols must be whole numbers, got dtype {indices.dtype}")
    if indices.ndim != 1 or indices.size == 0:
        raise ParameterError(f"symbols must be a non-empty vector, got shape {indices.shape}")
    if indices.min() < 0 or indices.max() >= channel.size:
        raise ParameterError(f"symbols must be >= 0 and < {channel.size}")
    return np.bincount(indices.astype(np.int64), minlength=channel.size).astype(np.int64)


def report_counts(channel: NumericChannel, reports: ArrayLike) -> Counts:
    """Count reports given as outputs, as `channel.perturb` gives them; refuse what is no output.

    Outputs are matched to 1e-9 of the alphabet's span. Two symbols with the same output cannot be told
    apart and count as one of them: the mean is the same.
    """
    checked_channel(channel)
    given = checked_reals("reports", reports)
    order = np.argsort(channel.alphabet, kind="stable")
    outputs = channel.alphabet[order]
    middles = (outputs[1:] + outputs[:-1]) / 2.0
    nearest = np.searchsorted(middles, given)
    illegal = int((np.abs(outputs[nearest] - given) > 1e-9 * np.ptp(outputs)).sum())
    if illegal:
        raise ParameterError(
            f"reports must be outputs of the channel, got {illegal} of {given.size} that are not"
        )
    return np.bincount(order[nearest], minlength=channel.size).astype(np.int64)


def checked_channel(channel: Any) -> NumericChannel:
    """Return the channel if it is numeric with a finite alphabet."""
    if not isinstance(channel, NumericChannel):
        raise ParameterTypeError(f"channel must be a NumericChannel, got {type(channel).__name__}")
    return channel
