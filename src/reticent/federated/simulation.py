"""Training in one process: every client of a round at once, for experiments, planning and tests.

The law is that of clients and a server that talk (`client`, `server`); two things differ. Which coordinates
a client reports, the dither levels of `OneBit` and what a `Codebook` comes to are drawn from the stream
instead of the task's `Lots`; and
nobody's ledger is asked: `Task.participations` bounds what a client spends, and each round says how much
that is by now.

Nothing here is private: the simulator holds everybody's records. Curves made of them exist in
simulation only.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.errors import ParameterError
from reticent.federated import fast, payload
from reticent.federated.models import Model
from reticent.federated.server import Training, averaged
from reticent.federated.tasks import Task
from reticent.files import appearing
from reticent.mechanisms.base import Floats
from reticent.mechanisms.sampling import sampled_attributes
from reticent.mechanisms.vector.codebook import Codebook
from reticent.randomness import SimulationStream, Stream, secure_or

PRIVATE, IDENTITY = "private", "identity"
_BLOCK = 1 << 18  # numbers worked on at once: for the caches

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Step:
    """One round that is over.

    Attributes:
        number: of the round.
        clients: who reported.
        noise: predicted: the root mean square over the coordinates of the averaged gradient's standard
            deviation, for the worst gradients; 0 for the identity.
        bytes_each: what one client sent.
        spent: the epsilon that the busiest client has spent by now; infinite for the identity.
    """

    number: int
    clients: int
    noise: float
    bytes_each: int
    spent: float


@dataclass(frozen=True)
class Simulated:
    """A training that ran to its end."""

    training: Training
    rounds: tuple[Step, ...]

    @property
    def theta(self) -> Floats:
        """The parameters that were learnt."""
        return self.training.theta


class Records:
    """Everybody's records: one client each, or those of the clients that `owners` names.

    Features are prepared once: `model` and `features` of this class are without the axes of the task's model.

    Args:
        model: whose gradients are taken.
        features: shape (n, inputs).
        targets: shape (n,).
        owners: whole numbers, shape (n,): who holds each record. None: each record is a client.
    """

    def __init__(self, model: Model, features: Any, targets: Any, owners: Any = None) -> None:
        self.model = model.plain
        self.features = np.ascontiguousarray(features, dtype=np.float64)
        self.targets = np.ascontiguousarray(targets, dtype=np.float64)
        n = len(self.targets)
        if self.features.shape != (n, model.inputs) or self.targets.shape != (n,) or n == 0:
            raise ParameterError(
                f"features and targets must have shapes (n, {model.inputs}) and (n,), "
                f"got {self.features.shape} and {self.targets.shape}"
            )
        self.features = np.ascontiguousarray(model.prepared(self.features))
        self._rows: Places | None = None
        self.clients = n
        if owners is not None:
            held = np.asarray(owners)
            if held.shape != (n,):
                raise ParameterError(f"owners must have shape ({n},), got {held.shape}")
            self._rows = np.argsort(held, kind="stable")
            self._counts = np.unique(held, return_counts=True)[1]
            self._starts = np.cumsum(self._counts) - self._counts
            self.clients = len(self._counts)

    def gradients(self, theta: Floats, clients: Places, asked: Places | None = None) -> Floats:
        """The mean gradient of each client's records, all of it or the coordinates `asked`."""
        if self._rows is None:
            return self._of(theta, clients, asked)
        counts = self._counts[clients]
        ends = np.cumsum(counts)
        inside = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
        rows = self._rows[np.repeat(self._starts[clients], counts) + inside]
        each = self._of(theta, rows, None if asked is None else np.repeat(asked, counts, axis=0))
        return np.asarray(np.add.reduceat(each, ends - counts, axis=0) / counts[:, None])

    def _of(self, theta: Floats, rows: Places, asked: Places | None) -> Floats:
        features, targets = self.of(rows)
        if asked is None:
            return self.model.gradients(theta, features, targets)
        return self.model.coordinates(theta, features, targets, asked)

    @property
    def has_one_each(self) -> bool:
        """Whether each record is a client."""
        return self._rows is None

    def of(self, rows: Places) -> tuple[Floats, Floats]:
        """The features and targets of some rows; a view of them where the rows follow each other."""
        if rows[-1] - rows[0] == rows.size - 1 and (np.diff(rows) == 1).all():
            return self.features[rows[0] : rows[-1] + 1], self.targets[rows[0] : rows[-1] + 1]
        return self.features[rows], self.targets[rows]


def report_sums(task: Task, theta: Floats, records: Records, clients: Places, stream: Stream) -> Floats:
    """The sums by coordinate, in units of the bounds, of the private reports of some clients."""
    if task.codebook is not None:
        return _ball_sums(task, task.codebook, theta, records, clients, stream)
    d, k = task.dimensions, task.sample_size
    blocks, sums = _blocks(clients, d), np.zeros(d)
    if records.has_one_each and fast.is_worth(task, clients.size):
        return fast.report_sums(task, theta, map(records.of, blocks), stream)
    for some in blocks:
        asked = None if k == d else sampled_attributes(some.size, d, k, stream)
        with np.errstate(all="ignore"):  # what is no number the mechanism takes as 0
            units = records.gradients(theta, some, asked)
            units /= task.scale if asked is None else task.scale[asked]
        reports = task.channel.perturb(units, stream, out=units)
        if asked is None:
            reports[0] += sums  # one client after the other, whatever the size of the blocks
            sums = reports.sum(axis=0)
        else:
            sums += np.bincount(asked.reshape(-1), weights=reports.reshape(-1), minlength=d)
    return sums


def _ball_sums(
    task: Task, codebook: Codebook, theta: Floats, records: Records, clients: Places, stream: Stream
) -> Floats:
    """Return sums like `report_sums` for a codebook: drawn by their law, without going through directions."""
    sums = np.zeros(task.dimensions)
    for some in _blocks(clients, task.dimensions):
        with np.errstate(all="ignore"):
            units = records.gradients(theta, some) / task.scale
        reports = codebook.simulate(units, stream)
        reports[0] += sums
        sums = reports.sum(axis=0)
    return sums


def clipped_sums(task: Task, theta: Floats, records: Records, clients: Places) -> Floats:
    """The sums of the clipped gradients themselves, added one client after the other. NOT private."""
    sums = np.zeros(task.dimensions)
    for some in _blocks(clients, task.dimensions):
        with np.errstate(all="ignore"):
            found = records.gradients(theta, some)
            if task.codebook is not None:
                found = task.clipped(found) * task.scale
            found = np.nan_to_num(found, nan=0.0, posinf=np.inf, neginf=-np.inf)
            np.clip(found, -task.scale, task.scale, out=found)
        found[0] += sums
        sums = found.sum(axis=0)
    return sums


def _blocks(clients: Places, dimensions: int) -> Iterator[Places]:
    size = max(1, _BLOCK // dimensions)
    return (clients[start : start + size] for start in range(0, clients.size, size))


def simulate(
    task: Task,
    features: Any,
    targets: Any,
    *,
    owners: Any = None,
    rng: Stream | None = None,
    order: Any = None,
    start: Floats | None = None,
    randomiser: str = PRIVATE,
    paying: Callable[[int, int], None] | None = None,
    on_round: Callable[[Step, Floats], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
) -> Simulated:
    """Train a task's model on everybody's records.

    Args:
        task: Task to learn; it needs a model.
        features: one row for each record.
        targets: one number for each record.
        owners: Holder of each record; None if each record is a client.
        rng: None for secure randomness; a SimulationStream, from which every draw is spawned, makes a run
            that can be repeated bit for bit.
        order: the clients in the order in which they report, `group` of them in each round. None: one random
            order, gone through again and again as far as `participations` goes.
        start: the parameters to begin with, which must be public; the model's start if not given.
        randomiser: "private", or "identity": clipped gradients as they are, all coordinates, NOT private and
            refused with secure randomness. There is no such thing outside this module.
        paying: called before every round with its number and how many report: where it is entered into a
            ledger that the round will be seen. What it raises ends the training.
        on_round: called after every round with it and the parameters.
        checkpoint: a file to write after every round, for its owner alone.
        resume: go on from `checkpoint`, if it is there. With the same SimulationStream the result is that of
            a run without a break, bit for bit.

    Raises:
        ParameterError: too few clients for the rounds, or a checkpoint of another run.
    """
    if task.model is None:
        raise ParameterError("task must have a model")
    stream = secure_or(rng)
    if randomiser not in (PRIVATE, IDENTITY):
        raise ParameterError(f"randomiser must be {PRIVATE} or {IDENTITY}, got {randomiser!r:.60}")
    if randomiser == IDENTITY and not isinstance(stream, SimulationStream):
        raise ParameterError("randomiser identity needs a SimulationStream as rng: it is not private")
    records = Records(task.model, features, targets, owners)
    training = Training.begun(task, task.model.start() if start is None else start)
    mark = _mark(task, records.clients, randomiser)
    seed = int(_spawned(stream, 0).words(1)[0])
    if checkpoint is not None and resume and Path(checkpoint).exists():
        training, seed = _loaded(Path(checkpoint), task, mark)
    walked = (
        _drawn_order(task, records.clients, seed)
        if order is None
        else _checked_order(task, records.clients, order)
    )
    rounds: list[Step] = []
    predicted = _predicted(task, randomiser)
    times = np.zeros(records.clients, dtype=np.int64)
    for number, clients in enumerate(walked.reshape(task.rounds, task.group)):
        times[clients] += 1
        rounds.append(_step(task, number, randomiser, predicted, int(times.max())))
        if number < training.number:  # before the checkpoint
            continue
        if paying is not None:
            paying(number, clients.size)
        if randomiser == IDENTITY:
            gradient = clipped_sums(task, training.theta, records, clients) / task.group
        else:
            sums = report_sums(task, training.theta, records, clients, _spawned(stream, 1 + number))
            gradient = averaged(task, sums, task.group)
        training.step(gradient)
        if checkpoint is not None:
            _save(Path(checkpoint), training, seed, mark)
        if on_round is not None:
            on_round(rounds[-1], training.theta)
    return Simulated(training, tuple(rounds))


def _spawned(stream: Stream, number: int) -> Stream:
    """The stream of one round: after a break it must be where it would have been."""
    return stream.spawn(number) if isinstance(stream, SimulationStream) else stream


def _predicted(task: Task, randomiser: str) -> float:
    """The noise of every round."""
    return 0.0 if randomiser == IDENTITY else math.sqrt(float(task.noise(task.group).mean()))


def _step(task: Task, number: int, randomiser: str, noise: float, busiest: int) -> Step:
    if randomiser == IDENTITY:
        return Step(number, task.group, noise, 4 * task.dimensions, math.inf)
    return Step(number, task.group, noise, payload.size(task), busiest * task.epsilon)


def _drawn_order(task: Task, clients: int, seed: int) -> Places:
    """One random order, again and again: a client's rounds are as far apart as can be."""
    needed = task.rounds * task.group
    if needed > clients * task.participations or task.group > clients:
        raise ParameterError(
            f"{task.rounds} rounds of {task.group} need {needed} reports, "
            f"{clients} clients may give {task.participations} each"
        )
    return np.resize(np.argsort(SimulationStream(seed).units(clients)), needed)


def _checked_order(task: Task, clients: int, order: Any) -> Places:
    given = np.asarray(order)
    needed = task.rounds * task.group
    if given.shape != (needed,) or not np.issubdtype(given.dtype, np.integer):
        raise ParameterError(f"order must be {needed} whole numbers, got shape {given.shape}")
    if given.min() < 0 or given.max() >= clients:
        raise ParameterError(f"order must name clients 0 to {clients - 1}")
    if np.bincount(given).max() > task.participations:
        raise ParameterError(f"order must name no client more than {task.participations} times")
    in_rounds = np.sort(given.reshape(task.rounds, task.group), axis=1)
    if (in_rounds[:, 1:] == in_rounds[:, :-1]).any():
        raise ParameterError("order must name no client twice in a round")
    return given.astype(np.int64)


# Checkpoints: one file of numpy arrays, no pickle, replaced as a whole.


def _mark(task: Task, clients: int, randomiser: str) -> bytes:
    """Return the bytes that must agree for a checkpoint to be of the same run."""
    return task.id + clients.to_bytes(8, "big") + randomiser.encode()


def _save(path: Path, training: Training, seed: int, mark: bytes) -> None:
    with appearing(path, mode=0o600) as file:  # who reports in which round follows from the seed
        np.savez(
            file,
            theta=training.theta,
            velocity=training.velocity,
            number=np.int64(training.number),
            seed=np.uint64(seed),
            mark=np.frombuffer(mark, dtype=np.uint8),
        )


def _loaded(path: Path, task: Task, mark: bytes) -> tuple[Training, int]:
    try:
        with np.load(path, allow_pickle=False) as held:
            found = {name: held[name] for name in ("theta", "velocity", "number", "seed", "mark")}
    except Exception as error:
        raise ParameterError(f"checkpoint {path.name} must be one that a simulation wrote") from error
    if found["mark"].tobytes() != mark:
        raise ParameterError(f"checkpoint {path.name} must be of the same task, clients and randomiser")
    training = Training(task, found["theta"], found["velocity"], int(found["number"]))
    return training, int(found["seed"])
