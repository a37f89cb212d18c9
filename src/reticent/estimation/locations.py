"""Estimates of people's places, by maximum likelihood from private reports, over rounds of any channels.

IBU and GIBU as in `distributions`, with the channels' own sums in the place of a matrix: O(n log n) an update
on a grid of n cells and no n x n matrix. The likelihood never falls; iteration stops when no distribution can
have a log-likelihood per report that is higher by more than `tolerance`, or after `max_iterations` (which
smooths: the maximum fits the noise).

References: ElSalamouny and Palamidessi 2020 (GIBU); Biswas 2023, Algorithm 3. Departure: Algorithm 1 averages
the
    estimates of the rounds, which is not the maximum; GIBU over all rounds is (mathematics 3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Protocol

import numpy as np

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.estimation.distributions import (
    DistributionEstimate,
    accelerated_updates,
    checked_start,
)
from reticent.estimation.inputs import Counts, checked_counts, frozen
from reticent.mechanisms.base import Floats
from reticent.randomness import Stream, secure_or
from reticent.spaces.kernels import Dense

TOLERANCE = 1e-6
MAX_ITERATIONS = 1000
_LEAST = 1e-300
_CHECK_EVERY = 16


class PlaceChannel(Protocol):
    """The part of a channel that an estimate needs."""

    space: Any

    def forward(self, theta: Floats) -> Floats:
        """Return the law of the reports under theta."""

    def back(self, values: Floats) -> Floats:
        """Return the sum over y of P(y|x) values(y)."""

    def factors(self, theta: Floats, shares: Floats) -> Floats:
        """Return the sum over y of P(y|x) shares(y) / law(y), the law of reports: one update of theta."""


Round = tuple[PlaceChannel, Any]  # a channel, and how often each place was reported under it


def estimated(
    rounds: Sequence[Round],
    *,
    start: Any = None,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
    accelerated: bool = True,
) -> DistributionEstimate:
    """Estimate the distribution of people over places, from one round (IBU) or several (GIBU).

    Args:
        rounds: Channels, each with the counts of its reports; rounds without reports are passed over.
        start: Distribution without zeros; None for the uniform one. Closed places get nothing.
        tolerance: Tolerance of the log-likelihood per report.
        max_iterations: Largest number of updates.
        accelerated: True to extrapolate, see `ibu`; the limit is the same.
    """
    tolerance = real("tolerance", tolerance, low=0.0)
    limit = whole("max_iterations", max_iterations, low=1)
    if not rounds:
        raise ParameterError("rounds must hold at least one (channel, counts)")
    size = rounds[0][0].space.size
    held = []
    for place, (channel, counts) in enumerate(rounds):
        if channel.space.size != size:
            raise ParameterError(f"rounds[{place}] must be about {size} places, got {channel.space.size}")
        given = np.asarray(counts)
        if given.size and given.any():
            checked = checked_counts(f"rounds[{place}] counts", counts, size)
            if checked[~channel.space.open].any():
                raise ParameterError(f"rounds[{place}] counts must be 0 in closed cells")
            held.append((channel, checked))
    theta = np.where(rounds[0][0].space.open, checked_start(start, size), 0.0)
    theta /= theta.sum()
    if not held:
        return DistributionEstimate(frozen(theta), 0, 0.0, float("inf"), converged=False)
    update = _RoundsUpdate(held)
    reports = float(sum(counts.sum() for _, counts in held))
    with np.errstate(under="ignore"):
        solve = accelerated_updates if accelerated else _plain
        theta, iterations, gap = solve(update, theta, tolerance, limit)
        log_likelihood = reports * update.forward(theta)
    return DistributionEstimate(frozen(theta), iterations, log_likelihood, gap, gap <= tolerance)


class _RoundsUpdate:
    """R_x = sum over rounds of their share times the sum over y of P(y|x) q(y) / law(y)."""

    def __init__(self, rounds: Sequence[tuple[PlaceChannel, Counts]]) -> None:
        total = float(sum(counts.sum() for _, counts in rounds))
        self._rounds = [(channel, counts / total, counts > 0) for channel, counts in rounds]
        self._laws: list[Floats] = []
        self._closed = np.flatnonzero(~rounds[0][0].space.open)
        self._stack = _stacked([(channel, shares) for channel, shares, _ in self._rounds])
        self.factors = np.empty(rounds[0][1].size)

    def forward(self, theta: Floats) -> float:
        """Set the laws of the reports under theta, and return the log-likelihood per report."""
        self._laws = [np.maximum(channel.forward(theta), _LEAST) for channel, _, _ in self._rounds]
        return float(
            sum(
                shares[seen] @ np.log(law[seen])
                for (_, shares, seen), law in zip(self._rounds, self._laws, strict=True)
            )
        )

    def back(self) -> float:
        """Set the factors, return the gap."""
        self._sum(
            channel.back(shares / law)
            for (channel, shares, _), law in zip(self._rounds, self._laws, strict=True)
        )
        return float(self.factors.max()) - 1.0

    def step(self, theta: Floats) -> None:
        """Set the factors at theta, without its likelihood."""
        if self._stack is None:
            self._sum(channel.factors(theta, shares) for channel, shares, _ in self._rounds)
            return
        self.factors = self._stack(theta)
        if self._closed.size:
            self.factors[self._closed] = 0.0

    def _sum(self, parts: Iterable[Floats]) -> None:
        self.factors = reduce(np.add, parts)
        if self._closed.size:
            self.factors[self._closed] = 0.0


def _stacked(rounds: Sequence[tuple[PlaceChannel, Floats]]) -> Callable[[Floats], Floats] | None:
    """Return the factors of rounds whose channels differ in c alone: one product for all; else None."""
    sums = [getattr(channel, "kernel", None) for channel, _ in rounds]
    if not isinstance(sums[0], Dense) or any(one is not sums[0] for one in sums):
        return None
    product, alone = sums[0].matrix.dot, len(rounds) == 1
    normalisers = np.stack([channel.normaliser for channel, _ in rounds], axis=1)  # type: ignore[attr-defined]
    shares = np.stack([of for _, of in rounds], axis=1)
    if alone:
        normalisers, shares = normalisers.reshape(-1), shares.reshape(-1)
    there, back = np.empty(shares.shape), np.empty(shares.shape)

    def factors(theta: Floats) -> Floats:
        np.divide(theta if alone else theta[:, None], normalisers, out=there)
        product(there, back)
        np.maximum(back, _LEAST, out=back)
        np.divide(shares, back, out=back)
        product(back, there)
        np.divide(there, normalisers, out=there)
        return there if alone else np.asarray(there.sum(axis=1))

    return factors


def _plain(update: _RoundsUpdate, theta: Floats, tolerance: float, limit: int) -> tuple[Floats, int, float]:
    """Repeat the update as it is. A gap holds for what follows it: the likelihood never falls."""
    done, gap = 0, np.inf
    while done < limit and gap > tolerance:
        steps = min(_CHECK_EVERY, limit - done)
        for _ in range(steps):
            update.step(theta)
            theta = theta * update.factors
        done, gap = done + steps, min(gap, float(update.factors.max()) - 1.0)
    return theta, done, gap


def bootstrapped(
    reports: Any,
    people: Any,
    channels: Sequence[PlaceChannel],
    statistic: Callable[[Floats], Any],
    *,
    repetitions: int = 200,
    rng: Stream | None = None,
    **options: Any,
) -> list[Any]:
    """Compute a statistic of the estimate repeatedly, with people resampled, to show its variation by chance.

    People are resampled with all of their reports, since the reports of one person are not independent.

    Args:
        reports: Round and place of each report, shape (reports, 2).
        people: Number of the person who made each report.
        channels: Channels of the rounds.
        statistic: Function of an estimated distribution.
        repetitions: Number of repetitions.
        rng: Random stream; None for secure randomness.
        options: Options of `estimated`.
    """
    rows = np.asarray(reports, dtype=np.int64).reshape(-1, 2)
    owners, size = np.unique(np.asarray(people), return_inverse=True)[1], channels[0].space.size
    persons = int(owners.max()) + 1 if len(owners) else 0
    if not persons:
        raise ParameterError("reports must hold at least one report")
    stream = secure_or(rng)
    found = []
    for _ in range(whole("repetitions", repetitions, low=1)):
        drawn = np.bincount(((stream.units(persons) - 1.0) * persons).astype(np.int64), minlength=persons)
        counts = np.bincount(rows[:, 0] * size + rows[:, 1], drawn[owners], minlength=len(channels) * size)
        tables = counts.astype(np.int64).reshape(len(channels), size)
        rounds = list(zip(channels, tables, strict=True))
        found.append(statistic(estimated(rounds, **options).distribution))
    return found
