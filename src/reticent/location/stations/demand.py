"""Where those who ask are, from what a provider sees: one true report among m, and no word which.

With m - 1 companions beside every true place, reports follow

    (1/m) C theta  +  ((m - 1)/m) C w

C the channel, theta where people are, w the law of companions, which is public. So the second part is known,
and theta is estimated by IBU over this mixture (`estimation.locations`), from the raw counts on. How many
updates, the reports say themselves: they are split at random into halves, and as many are made as the other
half confirms, for more would fit the noise. That may be none: then the raw counts are what is known.

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
    """What a provider sees of a channel: the report of the true place, or of one of m - 1 companions.

    Args:
        channel: that all of them go through.
        law: of a companion's place, over all places (`Companions.law`).
        m: reports of one query.
    """

    def __init__(self, channel: PlaceChannel, law: Any, m: int) -> None:
        self.channel, self.space = channel, channel.space
        self.m = whole("m", m, low=1, high=1 << 16)
        self.share = 1.0 / self.m
        self.others: Floats = (1.0 - self.share) * channel.forward(as_prior(self.space, law))

    def forward(self, theta: Floats) -> Floats:
        """The law of the reports."""
        return self.share * self.channel.forward(theta) + float(theta.sum()) * self.others

    def back(self, values: Floats) -> Floats:
        """The sum over y of P(y|x) values(y)."""
        return self.share * self.channel.back(values) + float(self.others @ values)

    def factors(self, theta: Floats, shares: Floats) -> Floats:
        """The same of shares / law of the reports."""
        return self.back(shares / np.maximum(self.forward(theta), _LEAST))


@dataclass(frozen=True, eq=False)
class Demand:
    """Where those who asked are, as far as their reports tell.

    Attributes:
        distribution: over places.
        updates: of IBU that were made.
        queries: how many there were: reports over m.
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
        channel: of every report.
        counts: how often each place was reported, of true places and companions together.
        law: of a companion's place; needed from m = 2 on.
        m: reports of one query.
        updates: of IBU, or none at all; None for the stopping rule.
        start: a distribution without zeros to begin from; None for the raw counts.
        rng: of the halves of the stopping rule; None for secure randomness.

    Raises:
        ParameterError: there are no reports, or no law.
    """
    seen = accompanied(channel, law, m)
    held = checked_counts("counts", counts, channel.space.size)
    many = stopping(seen, held, start=start, rng=rng) if updates is None else whole("updates", updates, low=0)
    return Demand(_made(seen, held, many, start), many, float(held.sum()) / m)


def accompanied(channel: PlaceChannel, law: Any, m: int) -> PlaceChannel:
    """The channel as a provider sees it; itself if nobody has companions."""
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
    """What the updates begin from: a given distribution, else the raw counts and a little everywhere."""
    floor = _FLOOR * counts.sum() / len(counts)
    begin = counts + floor if start is None else np.asarray(start, dtype=np.float64)
    begin = np.where(channel.space.open, begin, 0.0)
    return np.asarray(begin / begin.sum())


def stopping(channel: PlaceChannel, counts: Any, *, start: Any = None, rng: Stream | None = None) -> int:
    """The least number of updates after which the estimate of one half of the reports fits the other half.

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
    """The reports in two halves at random, as counts."""
    reports = np.repeat(np.arange(len(counts)), counts)
    order = np.argsort(secure_or(rng).words(len(reports)), kind="stable")
    first = np.bincount(reports[order[: len(reports) // 2]], minlength=len(counts))
    return first, counts - first
