"""The distribution of the inputs of any channel by maximum likelihood: the iterative Bayesian update.

IBU is the EM algorithm for a mixture whose components, the rows of the channel, are known. It never
leaves the simplex and needs no inverse, so it serves channels that cannot be inverted. The matrix
is used the way it is written, matrix[x, y] = P(y | x), so asymmetric channels come out right.
Not here: channels that are convolutions (see `locations`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.estimation.inputs import (
    Counts,
    checked_counts,
    checked_matrix,
    checked_reals,
    frozen,
)
from reticent.estimation.means import checked_channel
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.base import NumericChannel

MAX_ITERATIONS = 10_000
TOLERANCE = 1e-9
_CHECK_EVERY = 16
_CAP_GROWTH, _CAP_CUT, _LEAST_CAP = 4.0, 16.0, 1.5
_LEAST_SHRINK = 1e-3  # an extrapolation may shrink an entry by this factor, never to zero


@dataclass(frozen=True)
class DistributionEstimate:
    """A distribution of maximum likelihood, and how near to the maximum it is.

    `gap` is a proved bound on (maximum - log_likelihood) / reports. `log_likelihood` leaves out the
    multinomial coefficient. `iterations` counts evaluations of the update.
    """

    distribution: Floats
    iterations: int
    log_likelihood: float
    gap: float
    converged: bool


def ibu(
    matrix: ArrayLike,
    counts: ArrayLike,
    *,
    start: ArrayLike | None = None,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
    accelerated: bool = True,
) -> DistributionEstimate:
    """Estimate the distribution of the inputs of a channel from counts of its outputs.

        theta_x <- theta_x R_x,   R_x = sum_y (counts_y / n) P(y|x) / sum_z theta_z P(y|z)

    Stopping rule: the log-likelihood is concave with gradient n R, hence no distribution has a
    log-likelihood per report that exceeds the current one by more than max_x R_x - 1. Iteration
    stops when that `gap` is at most `tolerance`; a plain run checks every 16th update.

    Args:
        matrix: matrix[x, y] = P(y | x), a row per input.
        counts: reports of each output y.
        start: a distribution without zeros; None for the uniform one.
        tolerance: the gap to reach; 0 runs all iterations.
        max_iterations: updates at most.
        accelerated: extrapolate from pairs of updates (SQUAREM); an extrapolation that would
            lower the likelihood is dropped for the plain update, so the limit is the same.

    Reference: Agrawal and Aggarwal 2001; ElSalamouny and Palamidessi 2020; Varadhan
        and Roland 2008, scheme S3, for the acceleration.
    """
    table = checked_matrix("matrix", matrix)
    tally = checked_counts("counts", counts, table.shape[1])
    return _run(table, tally, start, tolerance, max_iterations, accelerated)


def generalised_ibu(
    rounds: Sequence[tuple[ArrayLike, ArrayLike]],
    *,
    start: ArrayLike | None = None,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
    accelerated: bool = True,
) -> DistributionEstimate:
    """Estimate one distribution from several rounds (matrix, counts), each with its own channel.

    The update sums R over the rounds, weighted by their shares of the reports: that of `ibu` with the
    matrices side by side.

    Reference: ElSalamouny and Palamidessi 2020 (GIBU).
    """
    if not rounds:
        raise ParameterError("rounds must hold at least one (matrix, counts)")
    tables = [checked_matrix(f"rounds[{i}] matrix", matrix) for i, (matrix, _) in enumerate(rounds)]
    if len({table.shape[0] for table in tables}) > 1:
        raise ParameterError(f"rounds must share their inputs, got {[t.shape[0] for t in tables]} rows")
    tallies = [
        checked_counts(f"rounds[{i}] counts", counts, tables[i].shape[1])
        for i, (_, counts) in enumerate(rounds)
    ]
    joint = np.concatenate(tables, axis=1)
    return _run(joint, np.concatenate(tallies), start, tolerance, max_iterations, accelerated)


def bin_matrix(channel: NumericChannel, bins: int, *, points: int = 8) -> Floats:
    """Return the law of a numeric channel for a value in each of `bins` equal bins of its bounds.

    Averaged over `points` equally spaced values within the bin; one point is the bin's centre.
    """
    checked_channel(channel)
    bins, points = whole("bins", bins, low=1), whole("points", points, low=1)
    lower, upper = channel.bounds
    matrix = np.zeros((bins, channel.size))
    for point in range(points):
        place = (np.arange(bins) + (point + 0.5) / points) / bins
        matrix += channel.probabilities(lower * (1.0 - place) + upper * place)
    matrix /= points
    return matrix


def numeric_distribution(
    channel: NumericChannel,
    counts: ArrayLike,
    bins: int,
    *,
    points: int = 8,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
) -> DistributionEstimate:
    """Estimate a histogram of the values behind the reports of a numeric channel.

    Args:
        channel: the mechanism that made the reports.
        counts: reports per symbol, in the order of `channel.alphabet`.
        bins: equal bins over `channel.bounds`.
        points: values per bin over which the law is averaged (`bin_matrix`).
        tolerance: see `ibu`. Many bins fit noise: fewer bins, or a larger tolerance, smooth.
        max_iterations: see `ibu`.
    """
    tally = checked_counts("counts", counts, checked_channel(channel).size)
    matrix = bin_matrix(channel, bins, points=points)
    return _run(matrix, tally, None, tolerance, max_iterations, accelerated=True)


def _run(
    matrix: Floats,
    counts: Counts,
    start: ArrayLike | None,
    tolerance: float,
    max_iterations: int,
    accelerated: bool,
) -> DistributionEstimate:
    tolerance = real("tolerance", tolerance, low=0.0)
    max_iterations = whole("max_iterations", max_iterations, low=1)
    theta = checked_start(start, matrix.shape[0])
    seen = counts > 0
    if not matrix.max(axis=0)[seen].all():
        raise ParameterError("counts must be 0 for outputs that the matrix makes impossible")
    # Outputs never seen add nothing. They are cut out where that saves half, or where they could be
    # impossible (0/0); otherwise they stay, which saves a copy of the matrix.
    if 2 * seen.sum() <= seen.size or not matrix.min(axis=0)[~seen].all():
        matrix, counts = np.ascontiguousarray(matrix[:, seen]), counts[seen]
    update = _Update(matrix, counts)
    solve = accelerated_updates if accelerated else _plain
    with np.errstate(under="ignore"):
        theta, iterations, gap = solve(update, theta, tolerance, max_iterations)
        log_likelihood = float(counts.sum()) * update.forward(theta)
    return DistributionEstimate(frozen(theta), iterations, log_likelihood, gap, gap <= tolerance)


class Update(Protocol):
    """One update of theta for reports of any kind, which `accelerated_updates` repeats."""

    factors: Floats

    def forward(self, theta: Floats) -> float:
        """Set the law of the outputs under theta; return the log-likelihood per report."""

    def back(self) -> float:
        """Set the factors R at the theta of the last `forward`; return the gap."""


def checked_start(start: ArrayLike | None, size: int) -> Floats:
    """Check a distribution without zeros to start from; return the uniform one if `start` is None."""
    if start is None:
        return np.full(size, 1.0 / size)
    theta = checked_reals("start", start)
    if theta.size != size:
        raise ParameterError(f"start must have one entry per input, {size}, got {theta.size}")
    if not theta.min() > 0.0:
        raise ParameterError("start must be > 0 in every entry: the update never leaves a zero")
    return np.asarray(theta / theta.sum())


class _Update:
    """The update by two products of the matrix with a vector, into the same memory each time."""

    def __init__(self, matrix: Floats, counts: Counts) -> None:
        self.matrix = matrix
        self.shares = counts / counts.sum()
        self.law = np.empty(counts.size)  # sum_z theta_z P(y|z), then shares / law
        self.factors = np.empty(matrix.shape[0])  # R_x

    def forward(self, theta: Floats) -> float:
        """Set the law of the outputs under theta; return the log-likelihood per report."""
        theta.dot(self.matrix, self.law)
        return float(self.shares @ np.log(self.law))

    def back(self) -> float:
        """Set the factors R at the theta of the last `forward`; return the gap."""
        np.divide(self.shares, self.law, self.law)
        self.matrix.dot(self.law, self.factors)
        return float(self.factors.max()) - 1.0


def _plain(update: _Update, theta: Floats, tolerance: float, limit: int) -> tuple[Floats, int, float]:
    """Repeat the update as it is. A gap holds for what follows it: the likelihood never falls."""
    shares, law, factors, matrix = update.shares, update.law, update.factors, update.matrix
    forward, divide, back, multiply = theta.dot, np.divide, matrix.dot, np.multiply
    done, gap = 0, np.inf
    while done < limit and gap > tolerance:
        steps = min(_CHECK_EVERY, limit - done)
        for _ in range(steps):
            forward(matrix, law)
            divide(shares, law, law)
            back(law, factors)
            multiply(theta, factors, theta)
        done, gap = done + steps, min(gap, float(factors.max()) - 1.0)
    return theta, done, gap


def accelerated_updates(
    update: Update, theta: Floats, tolerance: float, limit: int
) -> tuple[Floats, int, float]:
    """Two updates, then a jump along the parabola through them if the likelihood allows it.

    Reference: Varadhan and Roland 2008, SQUAREM with steplength S3.
    Departure: entries that the jump would make negative are kept positive; a jump must reach the
        likelihood of the first update, not of the second, which saves a product; the length
        is capped, the cap grows with success and shrinks with failure.
    """
    done, gap, cap = 0, np.inf, _CAP_GROWTH
    update.forward(theta)
    while True:
        gap = min(gap, update.back())
        once, done = theta * update.factors, done + 1
        if gap <= tolerance or done == limit:
            return once, done, gap
        reached = update.forward(once)
        gap = min(gap, update.back())
        twice, done = once * update.factors, done + 1
        if gap <= tolerance or done == limit:
            return twice, done, gap
        first = once - theta
        bend = twice - once - first
        bent = float(bend @ bend)
        length = min(math.sqrt(float(first @ first) / bent), cap) if bent > 0.0 else 1.0
        if length > 1.0:
            jump = theta + length * (2.0 * first + length * bend)
            np.maximum(jump, _LEAST_SHRINK * twice, out=jump)
            jump /= jump.sum()
            if update.forward(jump) >= reached:
                theta, cap = jump, cap * _CAP_GROWTH if length == cap else cap
                continue
            cap = max(length / _CAP_CUT, _LEAST_CAP)
        theta = twice
        update.forward(theta)
