"""Predictions of the number of clients that a training needs, before anyone trains.

Two answers. `noise` and `clients_for` are exact arithmetic: how far the averaged gradient of a group is from
the clipped one. `plan` trains: on public rows, drawn again and again to play N clients, for several N, and
says from which N on the error is what was asked for. The schedule is that of the task: its rounds and its
reports of each client, for other N with larger or smaller groups. Beside it stands the schedule of the rule
in `shape`, which may be better, and the error of an answer that looks at no feature. It is a simulation on
public data, no promise: clients may differ from public rows, and more clients than rows bring nothing new
but less noise.
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
from reticent.federated.models import Linear, Model
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
    """The spread of N clients over rounds.

    Attributes:
        rounds: Number of rounds.
        group: clients of one round.
        noise: Noise of the averaged gradient of a round, as a share of the mean bound.
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


def written_shape(task: Task, clients: int) -> Shape:
    """Return how N clients are spread over the rounds that the task has, with its reports of each client.

    `written_clients` give the group of the task itself.
    """
    clients = whole("clients", clients, low=1)
    reports = clients * task.participations
    rounds = min(task.rounds, reports)
    group = max(1, min(clients, reports // rounds))
    return Shape(rounds, group, noise(task, group) / task.reach)


def written_clients(task: Task) -> int:
    """Return the fewest clients that all rounds of the task as written take."""
    return max(task.group, -(-task.rounds * task.group // task.participations))


@dataclass(frozen=True)
class Point:
    """The result of N clients.

    Attributes:
        clients: N.
        shape: Shape of their rounds.
        error: mean over the repetitions: a share of wrong answers, or a squared error.
        low: Lower end of the 95 % interval of that mean.
        high: Upper end of the same interval.
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
        points: Errors by growing N, with the rounds of the task (`written_shape`).
        floor: Error without any noise, with all training rows in every round, in 100 rounds: more clients
            like these rows cannot do better.
        start: Error of the parameters that training begins with.
        rows: Count of public rows.
        target: Error to reach, if one was given.
        proposals: Errors of the same N, with the rounds of the rule (`shape`).
        baseline: Error of an answer that looks at no feature: the majority class, or the mean.
        written: Clients of the task as it is written, one of the N.
    """

    points: tuple[Point, ...]
    floor: float
    start: float
    rows: int
    target: float | None = None
    proposals: tuple[Point, ...] = ()
    baseline: float = math.nan
    written: int | None = None

    @property
    def as_written(self) -> tuple[Point, Point] | None:
        """The task as it is written, and what the rule proposes for as many clients."""
        pairs = zip(self.points, self.proposals, strict=False)
        return next((pair for pair in pairs if pair[0].clients == self.written), None)

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

    Each repetition holds a fifth of the rows out for the error; the others are drawn with replacement. Every
    number of clients is trained twice: with the rounds of the task, and with those of `shape`.

    Args:
        task: Task to plan; it needs a model.
        features: Public rows.
        targets: Targets of the public rows.
        clients: Numbers of clients to try; that of the task as written is tried in any case.
        target: Error to reach.
        repetitions: Count of simulated trainings for each number and schedule.
        seed: Seed of the simulation.
        progress: Function that is called with (trainings done, trainings in all).
    """
    if task.model is None:
        raise ParameterError("task must have a model")
    tried = sorted({whole("clients", number, low=FEWEST_ROUNDS) for number in clients})
    if not tried:
        raise ParameterError("clients must hold at least one number, got none")
    written = written_clients(task)
    tried = sorted({*tried, written})
    schedules = [(written_shape(task, number), shape(task, number)) for number in tried]
    repetitions = whole("repetitions", repetitions, low=2)
    target = None if target is None else real("target", target, low=0.0)
    records = Records(task.model, features, targets)
    if records.clients < FEWEST_ROWS:
        raise ParameterError(f"there must be at least {FEWEST_ROWS} public rows, got {records.clients}")
    errors = np.empty((len(tried), 2, repetitions))
    floors, starts, baselines = np.empty(repetitions), np.empty(repetitions), np.empty(repetitions)
    for time in range(repetitions):
        stream = SimulationStream(seed).spawn(time)
        order = np.argsort(stream.units(records.clients))
        out = max(1, round(HELD_OUT * order.size))
        held, pool = records.of(order[:out]), order[out:]
        for place, pair in enumerate(schedules):
            for which, schedule in enumerate(pair):
                theta = _trained(task, records, pool, schedule, stream.spawn(place).spawn(which))
                errors[place, which, time] = records.model.error(theta, *held)
            progress(time * len(tried) + place + 1, repetitions * len(tried))
        floors[time] = records.model.error(_without_noise(task, records, pool), *held)
        starts[time] = records.model.error(task.model.start(), *held)
        baselines[time] = _baseline_error(task.model, records.of(pool)[1], held[1])
    points, proposals = (
        tuple(
            _point(number, pair[which], row[which])
            for number, pair, row in zip(tried, schedules, errors, strict=True)
        )
        for which in range(2)
    )
    return Plan(
        points, float(floors.mean()), float(starts.mean()), records.clients, target, proposals,
        float(baselines.mean()), written,
    )  # fmt: skip


def _baseline_error(model: Model, known: Floats, held: Floats) -> float:
    """Return the error of one answer for everybody: the mean of known targets, or their majority class."""
    if isinstance(model, Linear):
        return float(np.mean(np.square(held - known.mean())))
    majority = 1.0 if np.mean(known > 0.0) >= 0.5 else -1.0
    return float(np.mean(held != majority))


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


def _point(clients: int, schedule: Shape, errors: Floats) -> Point:
    middle, half = float(errors.mean()), half_width(errors)
    return Point(clients, schedule, middle, middle - half, middle + half, errors.size)
