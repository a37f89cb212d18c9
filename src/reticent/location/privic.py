"""PRIVIC: collect, estimate, make a better channel, collect again.

    1. publish the Blahut-Arimoto channel of what is thought to be the distribution of people
    2. collect one private report of each person
    3. estimate the distribution from all rounds so far (GIBU), and begin again

Reference: Biswas 2023, Section 3.6, Algorithm 1. Departures: the estimate is GIBU over all rounds from the
last one
    on, a few updates a round (more would fit the noise), instead of an average of rounds; and the channel is
    defended (`Defence`), since whoever reports false places shapes everybody's channel (Section 3.8).

Privacy: each report keeps 2 beta per unit of distance, whatever the rounds before learnt or were told. The
defence
    is about elasticity alone: how well an isolated place hides among others.
"""

from __future__ import annotations

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
from reticent.spaces.kernels import Kernel

TURNS = 8  # of Blahut-Arimoto in a round, as the documents for Paris
UPDATES = 20  # of GIBU in a round


@dataclass(frozen=True)
class Defence:
    """What keeps liars from shaping the channel of honest people.

    Args:
        most_staying: no place is reported as itself more often, whatever the reports say. floor: the share of
        the channel's mass that is spread evenly. growth: a place's mass in the channel's prior grows at most
        by this factor in a round, from at least its
            even share.
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
        estimate: where people are, as far as the rounds tell; even at first.
        rounds: the channels and counts so far.
        alarms: rounds after which the estimate jumped.
    """

    space: Space
    beta: float
    defence: Defence = field(default_factory=Defence)
    turns: int = TURNS
    updates: int = UPDATES
    rounds: list[tuple[ElasticChannel, Any]] = field(default_factory=list)
    alarms: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.beta = real("beta", self.beta, low=0.0)
        self.turns, self.updates = whole("turns", self.turns, low=0), whole("updates", self.updates, low=1)
        self.estimate: Floats = self._even
        self.prior: Floats = self._even  # of the channel: the estimate, defended
        self._sums: Kernel | None = None  # of all channels, once it is made

    @property
    def _even(self) -> Floats:
        return np.asarray(self.space.open / self.space.open.sum())

    def channel(self) -> ElasticChannel:
        """The channel of the next round."""
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
        rounds = [*self.rounds, (channel, checked_counts("counts", counts, self.space.size, least=0))]
        before = self.estimate
        start = np.maximum(before, 1e-12)  # the update never leaves a zero
        found = estimated(
            rounds, start=start, tolerance=0.0, max_iterations=self.updates, accelerated=False
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
