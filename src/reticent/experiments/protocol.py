"""One protocol for all mechanisms: the same people, the same sampled attributes, the same randomness.

A person reports k of d numbers under epsilon/k each (Algorithm 6). The collector estimates the means in
one of two ways from the same reports:

    design     d/k times the sum, divided by n, as the documents do
    realised   the sum divided by the number of those who reported the attribute, which is public

Repetitions run in batches, each from its own `SimulationStream`, so results do not depend on the number
of processes. Within a repetition the attributes are nested: who reports one attribute at k = 1 reports it
at every k.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.experiments import contenders
from reticent.experiments.ours.learning_waves import LearningWaves
from reticent.experiments.ours.waves import TwoWaves
from reticent.experiments.zhao_2022.chapter_3 import continuous
from reticent.mechanisms.base import Floats
from reticent.mechanisms.sampling import epsilon_each
from reticent.mechanisms.vector import VectorDuchi
from reticent.processes import end_with_parent
from reticent.randomness import SimulationStream

VECTOR, WAVES, LEARNING = "Duchi (vector)", "two waves", "learning waves"
_BATCH_NUMBERS = 600_000  # numbers in one batch: enough for compiled kernels, little memory

Symbols = NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """One way to collect: a mechanism, the budget of all the numbers, and how many are sampled.

    Attributes:
        mechanism: a contender's name, "Duchi (vector)", "two waves", "learning waves", or a continuous one.
        epsilon: the budget of a person's numbers.
        sample_size: k.
    """

    mechanism: str
    epsilon: float
    sample_size: int


@dataclass(frozen=True)
class Estimates:
    """Estimated means, shape (repetitions, attributes), for both ways to weigh."""

    design: Floats
    realised: Floats


Collector = Callable[["Batch", int, SimulationStream], tuple[Floats, Floats]]


class Batch:
    """Some repetitions at once: people in random order, and the order in which each samples attributes."""

    def __init__(self, numbers: Floats, times: int, stream: SimulationStream) -> None:
        self.times, (self.n, self.d) = times, numbers.shape
        keys = stream.units(times * self.n).reshape(times, self.n)
        self.values = numbers[np.argsort(keys, axis=1).reshape(-1)]
        self._order = np.argsort(stream.units(self.values.size).reshape(self.values.shape), axis=1)
        self._sampled: dict[int, tuple[Floats, Symbols, Floats]] = {}

    def sampled(self, k: int) -> tuple[Floats, Symbols, Floats]:
        """The sampled values, the cell (repetition, attribute) of each, and the counts of the cells."""
        if k not in self._sampled:
            places = self._order[:, :k]
            values = np.ascontiguousarray(np.take_along_axis(self.values, places, axis=1)).reshape(-1)
            repetition = np.repeat(np.arange(self.times), self.n)[:, None]
            cells = (repetition * self.d + places).reshape(-1)
            self._sampled[k] = values, cells, self.totals(cells, None)
        return self._sampled[k]

    def totals(self, cells: Symbols, reports: Floats | None) -> Floats:
        """The sums of the reports, or the counts, of each cell: shape (repetitions, attributes)."""
        sums = np.bincount(cells, weights=reports, minlength=self.times * self.d)
        return sums.reshape(self.times, self.d).astype(np.float64)

    def estimates(self, k: int, reports: Floats) -> tuple[Floats, Floats]:
        """Design and realised estimates from one report per sampled value."""
        _, cells, counts = self.sampled(k)
        sums = self.totals(cells, reports)
        return sums * (self.d / k / self.n), sums / np.maximum(counts, 1.0)


def collector(plan: Plan, dimensions: int) -> Collector:
    """Make the mechanism of a plan once; what is returned runs it on a batch."""
    k = whole("sample_size", plan.sample_size, low=1, high=dimensions)
    each = epsilon_each(plan.epsilon, k)
    if plan.mechanism == VECTOR:
        return _vector(VectorDuchi(epsilon=plan.epsilon, dimensions=dimensions))
    if plan.mechanism == WAVES:
        return TwoWaves(each).collect
    if plan.mechanism == LEARNING:
        return LearningWaves(plan.epsilon, k, dimensions).collect
    if plan.mechanism in continuous.NAMES:
        ideal = continuous.Continuous(plan.mechanism, each)
        return lambda batch, k, stream: batch.estimates(k, ideal.perturb(batch.sampled(k)[0], stream))
    made: Any = contenders.BY_NAME[plan.mechanism].make(each, k / dimensions)
    return lambda batch, k, stream: batch.estimates(k, made.perturb(batch.sampled(k)[0], stream))


def _vector(mechanism: VectorDuchi) -> Collector:
    def collect(batch: Batch, k: int, stream: SimulationStream) -> tuple[Floats, Floats]:
        reports = mechanism.perturb(batch.values, stream)
        means: Floats = reports.reshape(batch.times, batch.n, batch.d).mean(axis=1)
        return means, means

    return collect


def simulate(
    numbers: Floats,
    plans: Sequence[Plan],
    repetitions: int,
    seed: int,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[Plan, Estimates]:
    """Run every plan on the same repetitions."""
    plans = list(dict.fromkeys(plans))
    sizes = _batch_sizes(numbers.size, repetitions)
    parts: dict[Plan, list[tuple[Floats, Floats]]] = {plan: [] for plan in plans}
    for done, batch in enumerate(_batches(numbers, plans, sizes, seed, workers)):
        for plan, both in zip(plans, batch, strict=True):
            parts[plan].append(both)
        progress(done + 1, len(sizes))
    return {
        plan: Estimates(np.concatenate([a for a, _ in both]), np.concatenate([b for _, b in both]))
        for plan, both in parts.items()
    }


def _batch_sizes(numbers: int, repetitions: int) -> list[int]:
    """Repetitions of each batch; from the sizes alone, so that the streams do not depend on the machine."""
    most = max(1, min(_BATCH_NUMBERS // numbers, -(-repetitions // 8)))
    return [min(most, repetitions - start) for start in range(0, repetitions, most)]


def _batches(
    numbers: Floats, plans: Sequence[Plan], sizes: list[int], seed: int, workers: int
) -> Iterator[list[tuple[Floats, Floats]]]:
    if workers == 1:
        worker = Worker(numbers, plans, seed)
        yield from (worker.batch(number, size) for number, size in enumerate(sizes))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, _start, (numbers, tuple(plans), seed)) as pool:
        yield from pool.map(_batch, range(len(sizes)), sizes)


class Worker:
    """The collectors of all plans, made once per process."""

    def __init__(self, numbers: Floats, plans: Sequence[Plan], seed: int) -> None:
        self.numbers, self.seed = numbers, seed
        self.collectors = [(plan.sample_size, collector(plan, numbers.shape[1])) for plan in plans]

    def batch(self, number: int, times: int) -> list[tuple[Floats, Floats]]:
        """Run every plan on one batch; all plans draw their noise from the same stream anew."""
        stream = SimulationStream(self.seed).spawn(number)
        batch = Batch(self.numbers, times, stream.spawn(0))
        return [collect(batch, k, stream.spawn(1)) for k, collect in self.collectors]


_WORKER: list[Worker] = []


def _start(numbers: Floats, plans: tuple[Plan, ...], seed: int) -> None:
    end_with_parent()
    _WORKER[:] = [Worker(numbers, plans, seed)]


def _batch(number: int, times: int) -> list[tuple[Floats, Floats]]:
    return _WORKER[0].batch(number, times)
