"""The rough place of values, from reports that were published: a guess for the next mechanism (`Tailored`).

A distribution is estimated by maximum likelihood and stopped early: once no distribution explains the reports
better by more than a few units of log-likelihood in all, what is left is noise. Few or noisy reports so leave
it where it started: at the uniform one, or for one of several attributes at what they have in common. Of the
result two numbers are kept, mean and deviation, rounded to a public grid: a normal law with these moments is
nearly as good a guess as the distribution itself (docs/how-to/reproduce.md), and does not follow its noise.

Privacy: post-processing of private reports. A mechanism that is shaped by it depends on the data through them
alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from reticent.errors import ParameterError
from reticent.estimation.distributions import bin_matrix, generalised_ibu
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.base import NumericChannel
from reticent.mechanisms.numeric.priors import Prior

BINS = 32
DEVIATIONS = (0.08, 0.12, 0.18, 0.27, 0.4, 0.6)
MEANS_PER_HALF = 8  # grid points of the mean, from the middle to a bound
SLACK = 2.0  # units of log-likelihood that are left to noise
MOST_UPDATES = 400
_LEAST = 1e-6  # mass of a bin where another estimate starts

Round = tuple[NumericChannel, ArrayLike]


@dataclass(frozen=True)
class Shape:
    """A normal law within the bounds: mean and deviation in halves of them, from their middle."""

    mean: float
    deviation: float

    def __post_init__(self) -> None:
        if self.deviation not in DEVIATIONS or self.mean * MEANS_PER_HALF % 1 or abs(self.mean) > 1.0:
            raise ParameterError(
                f"a shape must have a mean in steps of 1/{MEANS_PER_HALF} within [-1, 1] and a deviation of "
                f"{DEVIATIONS}, got {self.mean!r:.40} and {self.deviation!r:.40}"
            )

    @property
    def prior(self) -> Prior:
        """The normal prior with this mean and deviation."""
        return Prior.normal(self.mean, self.deviation)


def learnt(rounds: Sequence[Round], *, start: Floats | None = None) -> Floats:
    """Estimate the shares of 32 equal bins of the bounds behind reports of one or several channels.

    Args:
        rounds: Channels, each with its reports per symbol. Channels over different bounds show what their
            values have in common, as seen from their own bounds.
        start: Shares to start from, and to stay near if the reports say little; None for uniform.
    """
    used = [(channel, np.asarray(counts)) for channel, counts in rounds if np.asarray(counts).sum() > 0]
    first = np.full(BINS, 1.0 / BINS) if start is None else np.maximum(start, _LEAST)
    first = first / first.sum()
    if not used:
        return np.asarray(first)
    n = sum(int(counts.sum()) for _, counts in used)
    tables = [(bin_matrix(channel, BINS, points=2), counts) for channel, counts in used]
    found = generalised_ibu(tables, start=first, tolerance=SLACK / n, max_iterations=MOST_UPDATES)
    return found.distribution


def variance_of(shares: Floats) -> float:
    """Return the variance of a distribution over equal bins, in squares of half the bounds."""
    points = _points(shares)
    return max(0.0, float(shares @ points**2) - float(shares @ points) ** 2)


def _points(shares: Floats) -> Floats:
    return np.asarray((2.0 * np.arange(shares.size) + 1.0) / shares.size - 1.0)


def shape_of(shares: Floats) -> Shape:
    """Return the shape nearest to a distribution: its mean and deviation, rounded."""
    mean, deviation = float(shares @ _points(shares)), math.sqrt(variance_of(shares))
    nearest = min(DEVIATIONS, key=lambda one: abs(math.log(max(deviation, 1e-3) / one)))
    return Shape(round(mean * MEANS_PER_HALF) / MEANS_PER_HALF, nearest)
