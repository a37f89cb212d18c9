"""How many clients it takes, before anyone trains.

Two answers. `noise` and `clients_for` are exact arithmetic: how far the averaged gradient of a group is from
the clipped one. `plan` trains: on public rows, drawn again and again to play N clients, for several N, and
says from which N on the error is what was asked for. It is a simulation on public data, no promise:
clients may differ from public rows, and more clients than rows bring nothing new but less noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.estimation.student import half_width
from reticent.federated.server import Training, averaged
from reticent.federated.simulation import Places, Records, clipped_sums, report_sums
from reticent.federated.tasks import Task
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream
from reticent.randomness.draws import uniform_below

FEWEST_ROUNDS, MOST_ROUNDS = 10, 100
NOISE_SHARE = 0.5
HELD_OUT = 0.2
FEWEST_ROWS = 20


def noise(task: Task, clients: int, gradient: Any = None) -> float:
    """The root mean square over the coordinates of the noise of an average of `clients` reports.

    For a clipped gradient that all share, or for the worst they may hold: see `Task.noise`.
    """
    return math.sqrt(float(np.mean(task.noise(clients, gradient))))


def clients_for(task: Task, wanted: float, gradient: Any = None) -> int:
    """The fewest clients in a round whose average has at most this noise."""
    wanted = real("wanted", wanted, low=0.0, open_low=True)
    return max(1, math.ceil((noise(task, 1, gradient) / wanted) ** 2))


@dataclass(frozen=True)
class Shape:
    """How N clients are spread over rounds.

    Attributes:
        rounds: how many there are.
        group: clients of one round.
        noise: of the averaged gradient of a round, as a share of the mean bound.
    """

    rounds: int
    group: int
    noise: float


def shape(task: Task, clients: int) -> Shape:
    """Rounds and groups for N clients that report once.

    The rule: as many rounds as leave each of them a noise of at most half the clip bound, but at least 10 and
    at most 100. For a fixed way that training goes in all, the noise that ends in the parameters hardly
    depends on the rounds (half as many twice as long steps, each with half the variance); too few are coarse
    steps, too many are spent on noise.
    """
    clients = whole("clients", clients, low=1)
    bound = task.reach
    rounds = clients // clients_for(task, NOISE_SHARE * bound)
    rounds = min(clients, max(FEWEST_ROUNDS, min(MOST_ROUNDS, rounds)))
    group = clients // rounds
    return Shape(rounds, group, noise(task, group) / bound)


@dataclass(frozen=True)
class Point:
    """What N clients came to.

    Attributes:
        clients: N.
        shape: of their rounds.
        error: mean over the repetitions: a share of wrong answers, or a squared error.
        low: of the 95 % interval of that mean.
        high: of the same.
        repetitions: simulated trainings.
    """

    clients: int
    shape: Shape
    error: float
    low: float
    high: float
    repetitions: int


@dataclass(frozen=True)
class Plan:
    """Errors over N, by simulation on public rows.

    Attributes:
        points: by growing N.
        floor: the error without any noise, with all training rows in every round: more clients like these
            rows cannot do better.
        start: the error of the parameters that training begins with.
        rows: how many public rows there were.
        target: the error to reach, if one was given.
    """

    points: tuple[Point, ...]
    floor: float
    start: float
    rows: int
    target: float | None = None

    @property
    def clients(self) -> int | None:
        """The fewest N tried from which on the whole interval is at or below the target; None if none is."""
        if self.target is None:
            return None
        reached = [point.high <= self.target for point in self.points]
        for place, point in enumerate(self.points):
            if all(reached[place:]):
                return point.clients
        return None


def plan(
    task: Task,
    features: Any,
    targets: Any,
    *,
    clients: Sequence[int],
    target: float | None = None,
    repetitions: int = 5,
    seed: int = 2026,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Plan:
    """Train a task with different numbers of clients, played by public rows.

    Each repetition holds a fifth of the rows out for the error; the others are drawn with replacement. Rounds
    and groups are those of `shape`; everything else is as the task says, one report for each client.

    Args:
        task: what is learnt; it needs a model. Its own rounds and group are not used.
        features: public rows.
        targets: of the same.
        clients: the numbers to try.
        target: the error to reach.
        repetitions: simulated trainings for each number.
        seed: of the simulation.
        progress: called with (trainings done, trainings in all).
    """
    if task.model is None:
        raise ParameterError("task must have a model")
    tried = sorted({whole("clients", number, low=FEWEST_ROUNDS) for number in clients})
    if not tried:
        raise ParameterError("clients must hold at least one number, got none")
    repetitions = whole("repetitions", repetitions, low=2)
    target = None if target is None else real("target", target, low=0.0)
    records = Records(task.model, features, targets)
    if records.clients < FEWEST_ROWS:
        raise ParameterError(f"there must be at least {FEWEST_ROWS} public rows, got {records.clients}")
    errors = np.empty((len(tried), repetitions))
    floors, starts = np.empty(repetitions), np.empty(repetitions)
    for time in range(repetitions):
        stream = SimulationStream(seed).spawn(time)
        order = np.argsort(stream.units(records.clients))
        out = max(1, round(HELD_OUT * order.size))
        held, pool = records.of(order[:out]), order[out:]
        for place, number in enumerate(tried):
            theta = _trained(task, records, pool, shape(task, number), stream.spawn(place))
            errors[place, time] = records.model.error(theta, *held)
            progress(time * len(tried) + place + 1, repetitions * len(tried))
        floors[time] = records.model.error(_without_noise(task, records, pool), *held)
        starts[time] = records.model.error(task.model.start(), *held)
    points = tuple(_point(task, number, row) for number, row in zip(tried, errors, strict=True))
    return Plan(points, float(floors.mean()), float(starts.mean()), records.clients, target)


def _trained(task: Task, records: Records, pool: Places, shape: Shape, stream: SimulationStream) -> Floats:
    assert task.model is not None
    training = Training.begun(
        replace(task, rounds=shape.rounds, group=shape.group, participations=1), task.model.start()
    )
    while not training.is_over:
        rows = pool[uniform_below(pool.size, shape.group, stream)]
        sums = report_sums(task, training.theta, records, rows, stream)
        training.step(averaged(task, sums, shape.group))
    return training.theta


def _without_noise(task: Task, records: Records, pool: Places) -> Floats:
    assert task.model is not None
    training = Training.begun(replace(task, rounds=MOST_ROUNDS, participations=1), task.model.start())
    while not training.is_over:
        training.step(clipped_sums(task, training.theta, records, pool) / pool.size)
    return training.theta


def _point(task: Task, clients: int, errors: Floats) -> Point:
    middle, half = float(errors.mean()), half_width(errors)
    return Point(clients, shape(task, clients), middle, middle - half, middle + half, errors.size)
