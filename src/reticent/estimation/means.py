"""The mean of what people reported through a numeric channel, with an interval that holds for any number.

The reports are unbiased, so their average is the estimate. Its error is bounded by what the channel
publishes about itself: a few reports that agree by chance would otherwise look certain. Only a tailored
channel, whose variance depends on the values, is asked for more (`variance_witness`): a bound on the average
variance of its reports that is proved for every number of them, too.
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
from reticent.estimation.variance_witness import find_witness
from reticent.mechanisms.numeric.base import NumericChannel
from reticent.mechanisms.numeric.tailored import Tailored

Target = Literal["reporters", "population"]
_WITNESS_SHARE = 0.05  # of what may fail, spent on the variance
_WORTH_IT = 0.95  # of the worst case, that a bound on the variance must be expected below
_LEAST = 1e-6  # of the worst case: a variance that is never zero


@dataclass(frozen=True)
class MeanEstimate:
    """An unbiased mean and its interval.

    `value` may lie outside the declared bounds (that is the price of no bias); `lower` and `upper` do
    not. They are those of the nearest mean within the bounds, so that an interval at a bound keeps its width.
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
        """Return a mean with the interval of the nearest possible one, cut to the bounds.

        That contains the interval of the mean itself as far as the bounds allow, so it covers as often.

        Args:
            value: The mean of the reports.
            width: Half of the interval before it is cut.
            variance: Largest average variance of one report.
            bounds: Bounds between which the true mean lies.
            count: Number of reports.
            confidence: Confidence of the interval.
            target: Group whose mean is estimated.
        """
        lower, upper = bounds
        nearest = min(max(value, lower), upper)
        low, high = max(nearest - width, lower), min(nearest + width, upper)
        return cls(value, math.sqrt(variance / count), low, high, count, confidence, target)

    @property
    def shown(self) -> float:
        """The value for display: the nearest to `value` in the interval. It is biased near the bounds."""
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
        number of reports (see `deviation_bound`). Of a tailored channel, standard error and interval follow
        from what its reports show of their variance, once there are enough of them to show it.
    """
    checked_channel(channel)
    tally = checked_counts("counts", counts, channel.size)
    confidence = checked_confidence(confidence)
    n = int(tally.sum())
    value = float(tally @ channel.alphabet) / n
    variance, left = _average_variance(channel, tally, target, confidence)
    lower, upper = channel.bounds
    reach = max(float(channel.alphabet.max()) - lower, upper - float(channel.alphabet.min()))
    width = deviation_bound(n, variance, reach, confidence=left)
    return MeanEstimate.of(value, width, variance, channel.bounds, n, confidence, target)


def _average_variance(
    channel: NumericChannel, tally: Counts, target: Target, confidence: float
) -> tuple[float, float]:
    """Return a bound on the average variance of the reports, and the confidence that is left for the mean.

    A tailored channel spends a twentieth of what may fail on its witness, where that is expected to pay.
    Whether it does depends on public numbers alone. With the average variance v and its bound V: the interval
    fails if V < v, or if the mean is farther from its expectation than v allows.
    """
    worst = variance_bound(channel, target)
    if not isinstance(channel, Tailored):
        return worst, confidence
    n = int(tally.sum())
    witness = find_witness(channel, of_population=target == "population")
    if witness.expected > _WORTH_IT * worst or witness.variance <= 0.0 or witness.reach <= 0.0:
        return worst, confidence
    doubt = (1.0 - confidence) * _WITNESS_SHARE
    above = deviation_bound(n, witness.variance, witness.reach, confidence=1.0 - 2.0 * doubt)
    if witness.expected + above > _WORTH_IT * worst:
        return worst, confidence
    shown = float(tally @ witness.values) / n + above
    return min(worst, max(shown, _LEAST * worst)), confidence + doubt


def variance_bound(channel: NumericChannel, target: Target) -> float:
    """Return the largest variance of one report: of the noise alone, or of noise and value together."""
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
