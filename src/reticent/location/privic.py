"""PRIVIC: collect, estimate, make a better channel, collect again.

    1. publish the Blahut-Arimoto channel of what is thought to be the distribution of people
    2. collect one private report of each person
    3. estimate the distribution from all rounds so far (GIBU), and begin again

Reference: Biswas 2023, Section 3.6, Algorithm 1. Departures: the estimate is GIBU over all rounds from the
    last one on, so many updates a round as its reports allow (`updates_for`; more would fit the noise),
    instead of an average of rounds; and the channel is defended (`Defence`), since people who report false
    places shape everybody's channel (Section 3.8).

Privacy: each report keeps 2 beta per unit of distance, whatever the rounds before learnt or were told. The
    defence is about elasticity alone: how well an isolated place hides among others. The number of updates is
    worked out from counts that everybody may see.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.estimation.inputs import checked_counts
from reticent.estimation.locations import estimated
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location import ElasticChannel, blahut_arimoto
from reticent.mechanisms.location.blahut_arimoto import capped
from reticent.spaces.finite import Space
from reticent.spaces.kernels import Kernel, kernel

TURNS = 8  # of Blahut-Arimoto in a round, as the documents for Paris
_UPDATES, _REPORTS, _GROWTH = 250.0, 10_000.0, 0.75  # see `updates_for`
MOST_UPDATES = 400


def updates_for(reports: int, beta: float, spread: float) -> int:
    """Return the number of updates of GIBU for a round: 250 (reports / 10,000)^(3/4) / (beta spread)^2.

    Few updates leave the estimate too smooth, many fit the noise. More reports carry more of them; and the
    more the noise blurs, whose length is 1/beta beside the spread of the people, the more are needed to see
    as sharply. Between 1 and 400.

    Reference: Reticent, docs/references.md [Updates]: chosen on Paris and San Francisco.
    """
    blur = max(beta * spread, 1e-6)
    wanted = _UPDATES * (reports / _REPORTS) ** _GROWTH / blur**2
    return int(min(max(1, round(wanted)), MOST_UPDATES))


@dataclass(frozen=True)
class Defence:
    """The limits that keep liars from shaping the channel of honest people.

    Args:
        most_staying: no place is reported as itself more often, whatever the reports say.
        floor: the share of the channel's mass that is spread evenly.
        growth: a place's mass in the channel's prior grows at most by this factor in a round, from at least
            its even share.
        alarm: a change of the estimate from one round to the next, in total variation, that is worth a look.
    """

    most_staying: float = 0.3
    floor: float = 1e-3
    growth: float = 4.0
    alarm: float = 0.2

    def __post_init__(self) -> None:
        real("most_staying", self.most_staying, low=0.0, high=1.0, open_low=True)
        real("floor", self.floor, low=0.0, high=1.0)
        real("growth", self.growth, low=1.0)
        real("alarm", self.alarm, low=0.0, high=1.0)


NONE = Defence(most_staying=1.0, floor=0.0, growth=1e300, alarm=1.0)
"""No defence: the documents' method."""


@dataclass
class Privic:
    """The service's side of a campaign, between rounds.

    Attributes:
        space: the places.
        beta: the loss parameter of every round's channel.
        turns: Turns of Blahut-Arimoto in a round.
        updates: Updates of GIBU in a round; None for as many as `updates_for` says.
        estimate: Distribution of people, as far as the rounds tell; even at first.
        rounds: the channels and counts so far.
        alarms: rounds after which the estimate jumped.
    """

    space: Space
    beta: float
    defence: Defence = field(default_factory=Defence)
    turns: int = TURNS
    updates: int | None = None
    rounds: list[tuple[ElasticChannel, Any]] = field(default_factory=list)
    alarms: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.beta = real("beta", self.beta, low=0.0)
        self.turns = whole("turns", self.turns, low=0)
        if self.updates is not None:
            self.updates = whole("updates", self.updates, low=1)
        self.estimate: Floats = self._even
        self.prior: Floats = self._even  # of the channel: the estimate, defended
        self._sums: Kernel | None = None  # of all channels, once it is made
        self._squares: Kernel | None = None  # of squared distances

    @property
    def _even(self) -> Floats:
        return np.asarray(self.space.open / self.space.open.sum())

    @property
    def spread(self) -> float:
        """The distance of people from their middle, by the estimate: the root of the mean square.

        Half of the mean squared distance between two of them, which needs no middle.
        """
        if self._squares is None:
            self._squares = kernel(self.space, np.square)
        return math.sqrt(max(float(self.estimate @ self._squares(self.estimate)) / 2.0, 0.0))

    def copy(self) -> Privic:
        """Return a copy of the state that may learn something else."""
        found = copy(self)
        found.rounds, found.alarms = list(self.rounds), list(self.alarms)
        return found

    def channel(self) -> ElasticChannel:
        """Return the channel of the next round."""
        found = blahut_arimoto(
            self.space,
            self.prior,
            self.beta,
            turns=self.turns,
            tolerance=0.0,
            floor=self.defence.floor,
            sums=self._sums,
        )
        self._sums = found.kernel
        return capped(found, self.defence.most_staying)

    def learn(self, channel: ElasticChannel, counts: Any) -> None:
        """End a round: its channel, and how often each place was reported. An empty round changes nothing."""
        given = checked_counts("counts", counts, self.space.size, least=0)
        rounds = [*self.rounds, (channel, given)]
        before = self.estimate
        start = np.maximum(before, 1e-12)  # the update never leaves a zero
        updates = self.updates or updates_for(int(given.sum()), self.beta, self.spread)
        found = estimated(
            rounds, start=start, tolerance=0.0, max_iterations=updates, accelerated=False
        ).distribution
        self.rounds = rounds
        if not np.any(counts):
            return
        self.estimate = found / found.sum()
        if len(self.rounds) > 1 and np.abs(self.estimate - before).sum() / 2.0 > self.defence.alarm:
            self.alarms.append(len(self.rounds) - 1)
        most = self.defence.growth * np.maximum(self.prior, self._even)
        self.prior = np.minimum(self.estimate, most)
        self.prior = self.prior / self.prior.sum()
