"""Personalised training on the synthetic people, in the ways that the figures compare.

Every way is several starts with people of their own, of which the best on public held-out users is kept: so
nobody pays twice, and no loss of a training client is looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from reticent.experiments.base import wrapped as wrapped
from reticent.experiments.biswas_2023.chapter_5 import data
from reticent.federated.personalised import PersonalTask, Records, Sanitiser, best
from reticent.federated.personalised.simulation import (
    Randomiser,
    Seen,
    documents_noise_without_guarantee,
    identity,
    simulate,
)
from reticent.mechanisms.base import Floats

NU = 5.0  # the documents' noise multiplier, Appendix E
HELD_OUT = 50  # users


@dataclass(frozen=True)
class Way:
    """One way to train.

    Attributes:
        name: of the row of a figure.
        users: of each start.
        group: users of a round.
        rounds: how many.
        settle: the hypotheses are averaged over so many rounds at the end.
        task: what else the task says.
        unguarded: noise without a guarantee instead of the task's.
    """

    name: str
    users: int
    group: int
    rounds: int
    settle: int
    task: dict[str, float | int | str]
    hypotheses: int = 2
    starts: int = 3
    unguarded: Randomiser | None = None

    def made(self, people: Records) -> PersonalTask:
        """The task for these people."""
        fields = {"participations": self.rounds, "reach": 25.0, "clip": 1.0, "level": 1.0} | self.task
        return PersonalTask(
            name="synthetic",
            version="1",
            purpose="redoing the documents' figures",
            model=people.model,
            dimensions=people.model.dimensions,
            hypotheses=self.hypotheses,
            rounds=self.rounds,
            group=self.group,
            **fields,  # type: ignore[arg-type]
        )


def sigma_of(nu: float, dimensions: int, clip: float) -> float:
    """The standard deviation of the documents' Laplace noise, epsilon = n / (nu S) for a public clip S."""
    return math.sqrt(dimensions + 1) * nu * clip / dimensions


# Local step 0.1 on half the square, as (f - y)^2 has twice the slope: 0.05.
DOCUMENTS: dict[str, float | int | str] = {"about": "hypothesis", "noise": "laplace", "rate": 0.05}
AVERAGING = Way("one hypothesis, no noise", 100, 7, 60, 1, DOCUMENTS, hypotheses=1, unguarded=identity)
CLUSTERED = Way("two hypotheses, no noise", 100, 7, 60, 1, DOCUMENTS, unguarded=identity)
AS_PRINTED = Way(
    "documents' noise, nu = 5: no guarantee",
    100, 7, 100, 20, DOCUMENTS, unguarded=documents_noise_without_guarantee(NU),
)  # fmt: skip
SMALL_CLIP = 0.03
FIXED_SCALE = Way(
    "the same noise for a public clip",
    100, 7, 400, 100,
    DOCUMENTS | {"clip": SMALL_CLIP, "level": 2.0 / (NU * SMALL_CLIP), "epochs": 10, "rate": 0.1},
)  # fmt: skip
OURS = Way(
    "slots, Gaussian of the same size (ours)",
    30_000, 1000, 30, 10,
    {"about": "slots", "level": sigma_of(NU, 2, 1.0), "epochs": 10, "rate": 0.1, "participations": 1},
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One run of a way: the start that was kept.

    Attributes:
        hypotheses: at the end, averaged over the last rounds.
        rounds: every round, seen from everywhere (simulation only).
        rmse: of the held-out users under the best hypothesis of each, after each round.
        most_charged: what the client that paid most paid for its dearest report, in mu^2 or epsilon.
        spent: by each client in all.
    """

    hypotheses: Floats
    rounds: list[Seen]
    rmse: list[float]
    most_charged: float
    spent: Floats


def shorter(way: Way) -> Way:
    """The same way from one start, with half the rounds: to see that it runs."""
    return replace(way, starts=1, rounds=way.rounds // 2, settle=1)


def run(way: Way, seed: int) -> Run:
    """Train from every start; keep the best on the held-out users."""
    held_out = data.two_laws(HELD_OUT, data.stream(seed, 3))
    runs = [_one(way, seed, place, held_out) for place in range(way.starts)]
    return runs[best([one.hypotheses for one in runs], held_out)]


def _one(way: Way, seed: int, place: int, held_out: Records) -> Run:
    people, rng = data.two_laws(way.users, data.stream(seed, 1, place)), data.stream(seed, 2, place)
    seen: list[Seen] = []
    first = data.start(way.hypotheses, people.model.dimensions, rng)
    done = simulate(way.made(people), people, first, rng=rng, unguarded=way.unguarded, on_round=seen.append)
    everyone = np.arange(len(held_out))
    rmse = [float(np.sqrt(held_out.losses(s.hypotheses, everyone).min(axis=1).mean())) for s in seen]
    return Run(done.training.settled(way.settle), seen, rmse, max(s.charge for s in seen), done.spent)


def charge_at_the_optima(clip: float, nu: float = NU) -> float:
    """The epsilon that a report of the documents' noise spends, the hypotheses being the optima.

    Reference: mathematics 4.11: epsilon (2 S + |theta_1 - theta_2|), 5.02 for S = 1 where 0.8 was claimed.
    """
    people = data.two_laws(2, data.stream(0))
    way = Way("", 2, 2, 1, 1, DOCUMENTS | {"clip": clip, "level": 2.0 / (nu * clip)})
    sanitiser = Sanitiser(way.made(people), data.OPTIMA)
    return sanitiser.units / 1e12
