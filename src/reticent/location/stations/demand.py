"""Estimation of where people asked, from what a provider sees: one unmarked true report among m.

With m - 1 companions beside every true place, reports follow

    (1/m) C theta  +  ((m - 1)/m) C w

C the channel, theta where people are, w the public distribution of companions. So the second part is known,
and theta is estimated by IBU over this mixture (`estimation.locations`), from the raw counts on. The reports
determine the number of updates: they are split at random into halves, and each half is updated as often as
the other half confirms, for more would fit the noise. That may be never: then the raw counts are the
estimate.

Reference: Biswas 2023, Section 4.6.2: (1/m) L + ((m - 1)/m) U, U uniform; 100 iterations.
Departures: companions are not uniform, and go through the channel; a start that is no worse than the raw
    counts, and a stopping rule. Theirs begins with an even guess.
Privacy: all of it is worked out from private reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.estimation.inputs import Counts, checked_counts, frozen
from reticent.estimation.locations import PlaceChannel, estimated
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location.elastic import as_prior
from reticent.randomness import Stream, secure_or

MOST_UPDATES = 400
_PATIENCE = 8  # updates that do not help, after which none is expected to
_LEAST = 1e-300
_ENOUGH = 4.0  # of the log-likelihood
_UNSEEN = 0.01  # of the reports of one half are expected where the other half rules them out
_FLOOR = 1e-4  # of all reports, spread over all places at the start: none would be none for ever


class Accompanied:
    """The channel as a provider sees it: the report of the true place, or of one of m - 1 companions.

    Args:
        channel: Channel that all of them go through.
        law: Place distribution of a companion, over all places (`Companions.law`).
        m: Number of reports of one query.
    """

    def __init__(self, channel: PlaceChannel, law: Any, m: int) -> None:
        self.channel, self.space = channel, channel.space
        self.m = whole("m", m, low=1, high=1 << 16)
        self.share = 1.0 / self.m
        self.others: Floats = (1.0 - self.share) * channel.forward(as_prior(self.space, law))

    def forward(self, theta: Floats) -> Floats:
        """Return the distribution of the reports."""
        return self.share * self.channel.forward(theta) + float(theta.sum()) * self.others

    def back(self, values: Floats) -> Floats:
        """Return the sum over y of P(y|x) values(y)."""
        return self.share * self.channel.back(values) + float(self.others @ values)

    def factors(self, theta: Floats, shares: Floats) -> Floats:
        """Return `back` of the ratio of shares to the distribution of the reports."""
        return self.back(shares / np.maximum(self.forward(theta), _LEAST))


@dataclass(frozen=True, eq=False)
class Demand:
    """The estimated distribution of where people asked.

    Attributes:
        distribution: Probability of each place.
        updates: Number of IBU updates.
        queries: Number of queries: reports over m.
    """

    distribution: Floats
    updates: int
    queries: float


def demand_of(
    channel: PlaceChannel,
    counts: Any,
    *,
    law: Any = None,
    m: int = 1,
    updates: int | None = None,
    start: Any = None,
    rng: Stream | None = None,
) -> Demand:
    """Estimate where people asked.

    Args:
        channel: Channel of every report.
        counts: Number of reports of each place, of true places and companions together.
        law: Place distribution of a companion; needed from m = 2 on.
        m: Number of reports of one query.
        updates: Number of IBU updates, possibly 0; None for the stopping rule.
        start: Initial distribution without zeros; None for the raw counts.
        rng: Random stream that splits the reports for the stopping rule; None for secure randomness.

    Raises:
        ParameterError: There are no reports, or no distribution of companions.
    """
    seen = accompanied(channel, law, m)
    held = checked_counts("counts", counts, channel.space.size)
    many = stopping(seen, held, start=start, rng=rng) if updates is None else whole("updates", updates, low=0)
    return Demand(_made(seen, held, many, start), many, float(held.sum()) / m)


def accompanied(channel: PlaceChannel, law: Any, m: int) -> PlaceChannel:
    """Return the channel as a provider sees it: the channel itself if m is 1."""
    if whole("m", m, low=1) == 1:
        return channel
    if law is None:
        raise ParameterError(f"law must be given for companions, since m is {m}")
    return Accompanied(channel, law, m)


def _made(channel: PlaceChannel, counts: Counts, updates: int, start: Any) -> Floats:
    if not updates and start is None:
        return frozen(counts / counts.sum())
    found = started(channel, counts, start)
    if updates:
        found = estimated(
            [(channel, counts)], start=found, tolerance=0.0, max_iterations=updates, accelerated=False
        ).distribution
    return frozen(found / found.sum())


def started(channel: PlaceChannel, counts: Counts, start: Any = None) -> Floats:
    """Return the initial distribution: a given one, else the raw counts and a little everywhere."""
    floor = _FLOOR * counts.sum() / len(counts)
    begin = counts + floor if start is None else np.asarray(start, dtype=np.float64)
    begin = np.where(channel.space.open, begin, 0.0)
    return np.asarray(begin / begin.sum())


def stopping(channel: PlaceChannel, counts: Any, *, start: Any = None, rng: Stream | None = None) -> int:
    """Return the least number of updates after which the estimate of one half fits the other half.

    Both halves estimate and both judge. Of all numbers it is the least whose log-likelihood is within 4 of
    the best: with many companions one half says so little of the other that the best is chance.
    """
    held = checked_counts("counts", counts, channel.space.size)
    halves = halved(held, rng)
    if min(half.sum() for half in halves) == 0:
        return 0
    thetas = [started(channel, half, start) for half in halves]
    judges = [(np.flatnonzero(half), half[half > 0]) for half in halves[::-1]]
    many, even = np.concatenate([count for _, count in judges]), _UNSEEN / float(channel.space.open.sum())
    fits: list[float] = []
    for update in range(MOST_UPDATES + 1):
        laws = [np.maximum(channel.forward(theta), _LEAST) for theta in thetas]
        there = np.concatenate([law[at] for law, (at, _) in zip(laws, judges, strict=True)])
        fits.append(float(many @ np.log((1.0 - _UNSEEN) * there + even)))
        if update - int(np.argmax(fits)) >= _PATIENCE:
            break
        thetas = [
            theta * channel.back(half / half.sum() / law)
            for theta, law, half in zip(thetas, laws, halves, strict=True)
        ]
    return next(at for at, fit in enumerate(fits) if fit >= max(fits) - _ENOUGH)


def halved(counts: Counts, rng: Stream | None = None) -> tuple[Counts, Counts]:
    """Split the reports at random into two halves, as counts."""
    reports = np.repeat(np.arange(len(counts)), counts)
    order = np.argsort(secure_or(rng).words(len(reports)), kind="stable")
    first = np.bincount(reports[order[: len(reports) // 2]], minlength=len(counts))
    return first, counts - first
