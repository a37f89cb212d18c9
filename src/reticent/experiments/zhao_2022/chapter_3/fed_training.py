"""Cross-validated training of many methods at once: what Figs. 3.8 to 3.15 share.

Each record is a client that reports once: a training goes through its records in `rounds` groups. Methods,
epsilons and settings that share the number of rounds run together, on the same clients in the same order.

One grid of settings for all methods: rate of the first step (it falls as 1/sqrt(1 + t)), clip bound, rounds.
Tuning trains on four fifths of the first fold's training records and looks at the error on the others.
First, for each epsilon and bound, rate and rounds are those of least mean error over all methods that sample
coordinates (their noise is alike; Laplace and Duchi are alone), so that chance averages out; then each
method takes its own bound by further draws. That look at data is paid by nobody: it is the same for all, and
in simulation only.
"""

from __future__ import annotations

import multiprocessing
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from reticent.experiments.base import Options
from reticent.experiments.zhao_2022.chapter_3.fed_data import Problem, names, problem
from reticent.experiments.zhao_2022.chapter_3.fed_methods import Group, How, Reporter, methods, reporter
from reticent.federated.models import MODELS
from reticent.federated.simulation import Places
from reticent.mechanisms.base import Floats
from reticent.mechanisms.sampling import sampled_attributes
from reticent.processes import end_with_parent
from reticent.randomness import SimulationStream

RATES = {"linear": (0.01, 0.03, 0.1), "logistic": (0.3, 1.0, 3.0), "svm": (0.3, 1.0, 3.0)}
BOUNDS, ROUNDS = (0.1, 0.3, 1.0), (20, 80)
TUNING_RECORDS = 30_000  # more draws where there are few records
BOUND_DRAWS = 4  # of the bounds, for each draw of the others
FOLDS, TIMES = 10, 5
QUICK_FOLDS = 2
_ONE = np.ones(1)


@dataclass(frozen=True)
class Setting:
    """What is tuned."""

    rate: float
    bound: float
    rounds: int


def grid(kind: str, *, quick: bool) -> list[Setting]:
    """The settings of a kind of model, the same for all methods."""
    if quick:
        return [Setting(RATES[kind][1], 0.3, 10)]
    return [Setting(*chosen) for chosen in product(RATES[kind], BOUNDS, ROUNDS)]


@dataclass(frozen=True)
class Arm:
    """One training: a method at an epsilon with a setting."""

    method: str
    epsilon: float
    setting: Setting


@dataclass(frozen=True)
class Job:
    """What one process does: tune all methods on one problem, or cross-validate them once.

    Attributes:
        data: the name of the data set.
        kind: of the model.
        how: see `fed_methods.methods`.
        seed: of the experiment.
        quick: few rows, folds and settings.
        folder: of the data sets.
        epsilons: to tune for.
        time: the number of the repetition.
        arms: with the settings that tuning gave; empty before.
    """

    data: str
    kind: str
    how: How
    seed: int
    quick: bool
    folder: Path | None
    epsilons: tuple[float, ...] = ()
    time: int = 0
    arms: tuple[Arm, ...] = ()

    @property
    def folds(self) -> int:
        """How many there are."""
        return QUICK_FOLDS if self.quick else FOLDS

    def order(self, count: int) -> Places:
        """The records in the order of this repetition."""
        return np.argsort(SimulationStream(self.seed, path=(40, self.time)).units(count))

    def trainer(self) -> Trainer:
        """The data and the methods."""
        given = problem(self.data, self.kind, self.folder, quick=self.quick, seed=self.seed)
        return Trainer(given, self.how)


Key = tuple[str, float]  # method and epsilon


class Trainer:
    """Trains arms on rows of a problem.

    Args:
        given: the problem.
        how: see `fed_methods.methods`.
    """

    def __init__(self, given: Problem, how: How) -> None:
        self.problem, self._how = given, how
        self._unit = MODELS[given.model.kind](1, l2=0.0, intercept=False)
        self._x = np.column_stack([given.features, np.ones(len(given.targets))])

    @property
    def rows(self) -> int:
        """How many records there are."""
        return len(self._x)

    def _reporter(self, key: Key) -> Reporter:
        return reporter(self._how, *key, self._x.shape[1])

    def family(self, key: Key) -> str:
        """Methods that sample coordinates are tuned together, the others alone."""
        return key[0] if self._reporter(key).sample_size is None else "sampled"

    def _slopes(self, scores: Floats, targets: Floats) -> Floats:
        """The model's slopes of scores, shape (arms, clients): a model of one feature with weight one."""
        repeated = np.broadcast_to(targets, scores.shape).reshape(-1)
        return self._unit.slopes(_ONE, scores.reshape(-1, 1), repeated).reshape(scores.shape)

    def errors(self, thetas: Floats, rows: Places) -> Floats:
        """The error of each arm on some rows; infinite where training went astray."""
        x, y = self._x[rows], self.problem.targets[rows]
        with np.errstate(all="ignore"):
            found = np.array([self._unit.error(_ONE, scores[:, None], y) for scores in thetas @ x.T])
            astray = ~np.isfinite(thetas).all(axis=1)
        return np.where(astray | ~np.isfinite(found), np.inf, found)

    def train(self, arms: Sequence[Arm], rows: Places, stream: SimulationStream) -> Floats:
        """The parameters of each arm after one pass over the rows; all arms have the same rounds."""
        (rounds,) = {arm.setting.rounds for arm in arms}
        d, group = self._x.shape[1], len(rows) // rounds
        places: dict[Key, list[int]] = defaultdict(list)
        for place, arm in enumerate(arms):
            places[arm.method, arm.epsilon].append(place)
        bounds = np.array([arm.setting.bound for arm in arms])
        rates = np.array([arm.setting.rate for arm in arms])[:, None]
        draws = {key: stream.spawn(0) for key in places}
        sizes = {self._reporter(key).sample_size for key in places}
        lots = {k: stream.spawn(k) for k in sizes if k is not None}
        thetas, gradients = np.zeros((len(arms), d)), np.empty((len(arms), d))
        with np.errstate(all="ignore"):
            for number in range(rounds):
                part = rows[number * group : (number + 1) * group]
                x, y = self._x[part], self.problem.targets[part]
                slopes = self._slopes(thetas @ x.T, y)
                penalty = self.problem.model.l2 * thetas
                asked = {k: sampled_attributes(group, d, k, lot) for k, lot in lots.items()}
                for key, mine in places.items():
                    method = self._reporter(key)
                    drawn = None if method.sample_size is None else asked[method.sample_size]
                    seen = Group(x, slopes[mine], penalty[mine], bounds[mine], drawn)
                    gradients[mine] = method.average(seen, draws[key]) * bounds[mine][:, None]
                thetas -= rates / np.sqrt(1.0 + number) * gradients
        return thetas

    def errors_of(self, arms: Sequence[Arm], rows: Places, out: Places, stream: SimulationStream) -> Floats:
        """Train arms of any rounds on `rows`; their errors on `out`."""
        found = np.empty(len(arms))
        for rounds in sorted({arm.setting.rounds for arm in arms}):
            places = [place for place, arm in enumerate(arms) if arm.setting.rounds == rounds]
            thetas = self.train([arms[place] for place in places], rows, stream)
            found[places] = self.errors(thetas, out)
        return found


def tuned(job: Job) -> tuple[Arm, ...]:
    """The setting of each method at each epsilon."""
    trainer, settings = job.trainer(), grid(job.kind, quick=job.quick)
    rows = without(job.order(trainer.rows), 0, job.folds)[1]
    cut = len(rows) // 5
    times = 1 if job.quick else max(1, TUNING_RECORDS // trainer.rows)
    keys = [(method, epsilon) for method in methods(job.how) for epsilon in job.epsilons]

    def errors_of(arms: Sequence[Arm], draws: range) -> Floats:
        found = [
            trainer.errors_of(arms, rows[cut:], rows[:cut], SimulationStream(job.seed, path=(38, draw)))
            for draw in draws
        ]
        return np.asarray(np.mean(found, axis=0).reshape(len(keys), -1))

    first = errors_of([Arm(*key, setting) for key in keys for setting in settings], range(times))
    families = [(trainer.family(key), key[1]) for key in keys]
    together = {one: first[[place == one for place in families]].mean(axis=0) for one in set(families)}
    few = [best_of_bounds(settings, together[one]) for one in families]
    arms = [Arm(*key, setting) for key, some in zip(keys, few, strict=True) for setting in some]
    second = errors_of(arms, range(times, times * (1 + BOUND_DRAWS)))
    return tuple(Arm(*key, some[int(row.argmin())]) for key, some, row in zip(keys, few, second, strict=True))


def best_of_bounds(settings: Sequence[Setting], errors: Floats) -> list[Setting]:
    """For each bound, the setting of least error."""
    best: dict[float, tuple[float, Setting]] = {}
    for setting, error in zip(settings, errors.tolist(), strict=True):
        if setting.bound not in best or error < best[setting.bound][0]:
            best[setting.bound] = error, setting
    return [setting for _, setting in best.values()]


def validated(job: Job) -> Floats:
    """The errors of one repetition, shape (arms, folds)."""
    trainer = job.trainer()
    order = job.order(trainer.rows)
    errors = np.empty((len(job.arms), job.folds))
    for fold in range(job.folds):
        out, rows = without(order, fold, job.folds)
        stream = SimulationStream(job.seed, path=(39, job.time, fold))
        errors[:, fold] = trainer.errors_of(job.arms, rows, out, stream)
    return errors


def without(order: Places, fold: int, folds: int) -> tuple[Places, Places]:
    """The rows of a fold, and the others."""
    edges = np.linspace(0, order.size, folds + 1).astype(int)
    inside = slice(edges[fold], edges[fold + 1])
    return order[inside], np.delete(order, inside)


Found = dict[Arm, Floats]  # the errors of all folds of all repetitions


Settled = dict[str, tuple[Arm, ...]]  # by data set


def settled(kind: str, epsilons: tuple[float, ...], how: How, options: Options) -> Settled:
    """Tune every method on each data set of a kind of model."""
    jobs = [_job(data, kind, how, options, epsilons=epsilons) for data in names(kind)]
    with mapping(options) as run:
        return dict(zip(names(kind), run(tuned, jobs), strict=True))


def cross_validated(kind: str, arms: Settled, how: How, options: Options) -> dict[str, Found]:
    """The errors of all methods on each data set, with settings that are settled."""
    times = options.repetitions or (1 if options.quick else TIMES)
    jobs = [
        _job(data, kind, how, options, arms=some, time=time)
        for data, some in arms.items()
        for time in range(times)
    ]
    parts: dict[str, list[Floats]] = defaultdict(list)
    with mapping(options) as run:
        for done, (job, errors) in enumerate(zip(jobs, run(validated, jobs), strict=True)):
            parts[job.data].append(errors)
            options.progress(done + 1, len(jobs))
    return {
        data: dict(zip(some, np.concatenate(parts[data], axis=1), strict=True)) for data, some in arms.items()
    }


def _job(data: str, kind: str, how: How, options: Options, **more: Any) -> Job:
    return Job(data, kind, how, options.seed, options.quick, options.data, **more)


@contextmanager
def mapping(options: Options) -> Iterator[Callable[..., Any]]:
    """`map`, in this process or over several."""
    if options.quick or options.workers == 1:
        yield map
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, context, end_with_parent) as pool:
        yield pool.map
