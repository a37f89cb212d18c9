"""Server and clients of personalised training in one process, vectorised over the clients of a round.

The same clipping, noise and steps as in production, from a stream that can be repeated. Losses of training
clients, and everything else that a server does not see, are here for curves marked "simulation only".

Also here, and only here: the noise of the documents, whose scale is read off the secret update. It keeps no
guarantee, which its name says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real
from reticent.errors import ParameterError
from reticent.federated.personalised.clustering import k_means, within
from reticent.federated.personalised.learners import Indices, Population, chosen
from reticent.federated.personalised.noise import Sanitiser
from reticent.federated.personalised.server import PersonalTraining
from reticent.federated.personalised.tasks import PersonalTask
from reticent.mechanisms.base import Floats
from reticent.privacy import UNITS_PER_ONE
from reticent.randomness import SimulationStream, Stream


@dataclass(frozen=True)
class Seen:
    """One round, seen from everywhere: simulation only.

    Attributes:
        number: of the round.
        who: took part.
        choices: of each, which hypothesis.
        sent: the vectors as the server gets them; for slots the update moved to its hypothesis.
        hypotheses: after the round.
        charge: what each paid, in mu^2 or epsilon; infinite where nothing is guaranteed.
    """

    number: int
    who: Indices
    choices: Indices
    sent: Floats
    hypotheses: Floats
    charge: float


@dataclass(frozen=True)
class Simulated:
    """A training that was simulated.

    Attributes:
        training: the server's state at the end.
        spent: by each client, in mu^2 or epsilon.
    """

    training: PersonalTraining
    spent: Floats


Randomiser = Callable[[Floats, Floats, Stream], Floats]


def simulate(
    task: PersonalTask,
    population: Population,
    start: Floats,
    *,
    rng: Stream,
    unguarded: Randomiser | None = None,
    on_round: Callable[[Seen], bool | None] | None = None,
) -> Simulated:
    """Train from public hypotheses.

    Args:
        task: Task to learn.
        population: Population that holds the data.
        start: the hypotheses of the first round.
        rng: a SimulationStream.
        unguarded: instead of the task's noise, a function of (hypothesis of each, updated, stream) that makes
            what is sent: `identity` or `documents_noise_without_guarantee`. Nothing is guaranteed then.
        on_round: called after each round; True ends the training.

    Raises:
        ParameterError: rng is not for simulations.
    """
    if not isinstance(rng, SimulationStream):
        raise ParameterError("rng must be a SimulationStream")
    training = PersonalTraining.begun(task, start)
    taken, spent = np.zeros(len(population), dtype=np.int64), np.zeros(len(population))
    while not training.is_over:
        who = drawn(np.flatnonzero(taken < task.participations), task.group, rng)
        sanitiser = Sanitiser(task, training.hypotheses)
        with np.errstate(all="ignore"):
            choices = chosen(population.losses(training.hypotheses, who))
            starts = training.hypotheses[choices]
            updated = population.updated(starts, who, rate=task.rate, epochs=task.epochs)
        if unguarded is None:
            charge = sanitiser.units / UNITS_PER_ONE
            sent = sanitiser.decoded(sanitiser.sample(sanitiser.vectors(choices, updated), rng))
            training.step(sent)
        else:
            charge, sent = np.inf, unguarded(starts, updated, rng)
            _step_unguarded(training, sent)
        taken[who] += 1
        spent[who] += charge
        if task.about == "slots" and unguarded is None:
            slots = sent.reshape(len(who), task.hypotheses, -1)[np.arange(len(who)), choices]
            sent = starts + slots[:, : task.dimensions]
        seen = Seen(training.number - 1, who, choices, sent, training.hypotheses, charge)
        if on_round is not None and on_round(seen):
            break
    return Simulated(training, spent)


def _step_unguarded(training: PersonalTraining, sent: Floats) -> None:
    """A round of Algorithm 6 on vectors that nothing is promised of."""
    training.history.append(training.hypotheses)
    training.hypotheses = within(k_means(sent, training.hypotheses), training.task.reach)
    training.number += 1


def drawn(from_: NDArray[np.int64], count: int, rng: Stream) -> Indices:
    """`count` of them at random, each at most once; fewer if there are no more."""
    if from_.size == 0:
        raise ParameterError("every client has taken part as often as the task allows")
    order = np.argsort(rng.words(from_.size), kind="stable")
    return np.sort(from_[order[:count]])


def identity(starts: Floats, updated: Floats, rng: Stream) -> Floats:
    """No noise at all."""
    return updated


def documents_noise_without_guarantee(multiplier: float) -> Randomiser:
    """The documents' noise: Laplace with epsilon = n / (nu |delta|), delta the client's own update.

    Reference: Biswas 2023, Algorithm 7.
    Privacy: none. The scale is computed from the secret: it tells the update's length, and an update of
        length 0 gets no noise (mathematics 3.2). For comparisons in simulations only.
    """
    nu = real("multiplier", multiplier, low=0.0, open_low=True)

    def noisy(starts: Floats, updated: Floats, rng: Stream) -> Floats:
        n = updated.shape[1]
        lengths = np.sqrt(np.square(updated - starts).sum(axis=1, keepdims=True))
        radii = (
            -np.log(2.0 - rng.units(updated.shape[0] * n)).reshape(updated.shape).sum(axis=1, keepdims=True)
        )
        ways = normals(updated.size, rng).reshape(updated.shape)
        ways /= np.sqrt(np.square(ways).sum(axis=1, keepdims=True))
        return np.asarray(updated + ways * radii * lengths * nu / n)

    return noisy


def normals(count: int, rng: Stream) -> Floats:
    """Standard normal numbers from a stream, for simulations (Box and Muller)."""
    u, v = rng.units(2 * count).reshape(2, count)
    return np.asarray(np.sqrt(-2.0 * np.log(2.0 - u)) * np.cos(2.0 * np.pi * v))
