"""Figs. 3.8 to 3.10 again, with mechanisms made for the data at hand: `Tailored` and `Codebook`.

What differs from `fed_training`: a fifth of the records is public. Settings are tuned there and nowhere
else, and pilots and plans look at nothing else; the cross-validation is over the other four fifths, so that
no record on which an error is counted was ever looked at. A tuning draws its clients from the public training
records again and again, as many as there will be (as `federated.planning` does).

Same effort for all: one grid, the same draws, rate and rounds shared by all that sample coordinates. The
bound of a codebook is in the same unit: a bound b is a length b sqrt(d), that of a gradient whose d
coordinates all are b. Ours besides have a pilot, a histogram of the clipped gradients of public records where
training begins and where it leads, for which a `Tailored` is solved, and k with it. "Planned" is that
of typical, tailored and codebook which had the least error in tuning: one answer of ours where the documents
have the best of eight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.zhao_2022.chapter_3 import fed_data
from reticent.experiments.zhao_2022.chapter_3.fed_data import Problem
from reticent.experiments.zhao_2022.chapter_3.fed_methods import (
    CONTINUOUS,
    TYPICAL,
    Group,
    Make,
    Reporter,
    Sampled,
    methods,
    reporter,
)
from reticent.experiments.zhao_2022.chapter_3.fed_report import MEASURE, cases, counts, rows_of
from reticent.experiments.zhao_2022.chapter_3.fed_training import (
    BOUND_DRAWS,
    TUNING_RECORDS,
    Arm,
    Job,
    Key,
    Trainer,
    best_of_bounds,
    grid,
    mapping,
    without,
)
from reticent.experiments.zhao_2022.chapter_3.means import select
from reticent.federated import choice
from reticent.federated.comparing import on_the_way
from reticent.federated.simulation import Places
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric import NumericChannel
from reticent.mechanisms.numeric.priors import Prior
from reticent.mechanisms.vector import Codebook
from reticent.randomness import SimulationStream

TAILORED, CODEBOOK, PLANNED = "tailored", "codebook", "planned"
OURS = (TYPICAL, TAILORED, CODEBOOK)
SIGNS, ONE_HOT = "signs", "one-hot"
EPSILONS, QUICK_EPSILONS = (0.5, 1.0, 2.0, 4.0), (4.0,)
TIMES = 2
MOST_RECORDS = 20_000  # of a data set; the census has 92,368 and Adult 48,842
_PILOT = 4_000  # public records
_BLOCK = 1 << 10  # clients


class Directions(Reporter):
    """Whole gradients by a codebook, as whoever simulates draws them; bounds are in units of sqrt(d)."""

    def __init__(self, epsilon: float, dimensions: int) -> None:
        self.codebook: Codebook = choice.codebook(epsilon, dimensions)

    def average(self, group: Group, stream: SimulationStream) -> Floats:
        """Means of the reports."""
        longest = np.sqrt(group.dimensions)
        sums = np.zeros((group.arms, group.dimensions))
        for arm in range(group.arms):
            for start in range(0, group.clients, _BLOCK):
                part = slice(start, start + _BLOCK)
                gradients = group.slopes[arm, part, None] * group.x[part] + group.penalty[arm]
                sums[arm] += self.codebook.simulate(gradients / longest, stream).sum(axis=0)
        return np.asarray(sums * (longest / group.clients))


class Piloted(Reporter):
    """Sampled coordinates, each by the mechanism that is best for a pilot at its bound."""

    def __init__(self, channels: dict[float, NumericChannel], sample_size: int) -> None:
        self._channels, self.sample_size = channels, sample_size

    def average(self, group: Group, stream: SimulationStream) -> Floats:
        """As `Sampled`, bound by bound."""
        found = np.empty((group.arms, group.dimensions))
        assert self.sample_size is not None
        for bound in np.unique(group.bounds):
            mine = group.bounds == bound
            part = Group(group.x, group.slopes[mine], group.penalty[mine], np.ones(mine.sum()), group.asked)
            found[mine] = Sampled(self._channels[float(bound)], self.sample_size).average(part, stream)
        return found


@dataclass(frozen=True)
class SharperJob(Job):
    """As `Job`, with the encoding of the records."""

    encoding: str = SIGNS

    def trainer(self) -> SharperTrainer:
        """The data, the methods and the public records."""
        given = fed_data.problem(self.data, self.kind, self.folder, quick=self.quick, seed=self.seed)
        if self.encoding == ONE_HOT:
            given = replace(given, features=(given.features + 1.0) / 2.0)
        count = len(given.targets)
        order = np.argsort(SimulationStream(self.seed, path=(41,)).units(count))[:MOST_RECORDS]
        count = len(order)
        return SharperTrainer(given, order[: count // 5], order[count // 5 :], quick=self.quick)


class SharperTrainer(Trainer):
    """Trains the documents' methods and ours.

    Args:
        given: the problem.
        public: records for tuning and pilots.
        rest: all others.
        quick: the grid.
    """

    def __init__(self, given: Problem, public: Places, rest: Places, *, quick: bool) -> None:
        super().__init__(given, CONTINUOUS)
        self.public, self.rest = public, rest
        self._bounds = sorted({setting.bound for setting in grid(given.model.kind, quick=quick)})
        self._made: dict[Key, Reporter] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Of all methods."""
        return (*(name for name in methods(CONTINUOUS) if name != "default"), TAILORED, CODEBOOK)

    def _reporter(self, key: Key) -> Reporter:
        if key not in self._made:
            name, epsilon = key
            d = self._x.shape[1]
            make: dict[str, Make] = {CODEBOOK: Directions, TAILORED: self._tailored}
            self._made[key] = (
                make[name](epsilon, d) if name in make else reporter(CONTINUOUS, name, epsilon, d)
            )
        return self._made[key]

    @cached_property
    def _pilots(self) -> dict[float, Prior]:
        """Where clipped coordinates of public records lie, at the start of training and later."""
        rows = self.public[:_PILOT]
        x, y = self.problem.features[rows], self.problem.targets[rows]
        model = self.problem.model
        seen = [model.gradients(theta, x, y) for theta in on_the_way(model, x, y, later=True)]
        return {bound: choice.pilot(np.concatenate(seen), bound) for bound in self._bounds}

    def _tailored(self, epsilon: float, dimensions: int) -> Reporter:
        middle = self._bounds[len(self._bounds) // 2]
        _, k = choice.chosen(epsilon, dimensions, kind="Tailored", prior=self._pilots[middle])
        channels = {
            bound: choice.chosen(epsilon, dimensions, kind="Tailored", sample_size=k, prior=guess)[0]
            for bound, guess in self._pilots.items()
        }
        return Piloted(channels, k)


@dataclass(frozen=True)
class Tuned:
    """Settings of all methods, and which of ours is planned at each epsilon."""

    arms: tuple[Arm, ...]
    planned: dict[float, str]


def tuned(job: SharperJob) -> Tuned:
    """Settings by public records alone."""
    trainer, settings = job.trainer(), grid(job.kind, quick=job.quick)
    cut = len(trainer.public) // 5
    out, rows = trainer.public[:cut], trainer.public[cut:]
    clients = len(trainer.rest) * (job.folds - 1) // job.folds
    times = 1 if job.quick else max(1, TUNING_RECORDS // (clients + cut))
    keys = [(method, epsilon) for method in trainer.names for epsilon in job.epsilons]

    def errors_of(arms: Sequence[Arm], draws: range) -> Floats:
        found = []
        for draw in draws:
            again = (SimulationStream(job.seed, path=(42, draw)).units(clients) - 1.0) * len(rows)
            stream = SimulationStream(job.seed, path=(43, draw))
            found.append(trainer.errors_of(arms, rows[again.astype(np.int64)], out, stream))
        return np.asarray(np.mean(found, axis=0).reshape(len(keys), -1))

    first = errors_of([Arm(*key, setting) for key in keys for setting in settings], range(times))
    families = [(trainer.family(key), key[1]) for key in keys]
    together = {one: first[[place == one for place in families]].mean(axis=0) for one in set(families)}
    few = [best_of_bounds(settings, together[one]) for one in families]
    arms = [Arm(*key, setting) for key, some in zip(keys, few, strict=True) for setting in some]
    second = errors_of(arms, range(times, times * (1 + BOUND_DRAWS)))
    least = {key: float(row.min()) for key, row in zip(keys, second, strict=True)}
    planned = {one: min(OURS, key=lambda name: least[name, one]) for one in job.epsilons}
    chosen = [Arm(*key, some[int(row.argmin())]) for key, some, row in zip(keys, few, second, strict=True)]
    return Tuned(tuple(chosen), planned)


def validated(job: SharperJob) -> Floats:
    """The errors of one repetition on records that nobody looked at, shape (arms, folds)."""
    trainer = job.trainer()
    order = trainer.rest[job.order(len(trainer.rest))]
    errors = np.empty((len(job.arms), job.folds))
    for fold in range(job.folds):
        out, rows = without(order, fold, job.folds)
        stream = SimulationStream(job.seed, path=(44, job.time, fold))
        errors[:, fold] = trainer.errors_of(job.arms, rows, out, stream)
    return errors


def _problems(kind: str) -> Iterator[tuple[str, str]]:
    """Data sets and encodings; one-hot where there are categories."""
    for data in fed_data.names(kind):
        yield data, SIGNS
    yield from (("Census", ONE_HOT), ("Adult", ONE_HOT))


def run(options: Options) -> Outcome:
    """Every method on every data set, model and encoding, over epsilon."""
    epsilons = QUICK_EPSILONS if options.quick else EPSILONS
    times = options.repetitions or (1 if options.quick else TIMES)
    jobs = [
        SharperJob(data, kind, CONTINUOUS, options.seed, options.quick, options.data, epsilons, encoding=how)
        for kind in fed_data.KINDS
        for data, how in _problems(kind)
    ]
    with mapping(options) as run_all:
        settled = list(run_all(tuned, jobs))
        again = [
            replace(job, arms=found.arms, time=time)
            for job, found in zip(jobs, settled, strict=True)
            for time in range(times)
        ]
        errors = []
        for done, one in enumerate(run_all(validated, again)):
            errors.append(one)
            options.progress(done + 1, len(again))
    rows: list[Row] = []
    for place, (job, found) in enumerate(zip(jobs, settled, strict=True)):
        rows += _rows(job, found, np.concatenate(errors[place * times : (place + 1) * times], axis=1))
    return Outcome(rows, _caption(rows), lambda: _draw(rows))


def _rows(job: SharperJob, found: Tuned, errors: Floats) -> list[Row]:
    """One for each method and epsilon; what was planned is there a second time under its own name."""
    by_arm = dict(zip(found.arms, errors, strict=True))
    for arm in found.arms:
        if found.planned[arm.epsilon] == arm.method:
            by_arm[Arm(PLANNED, arm.epsilon, arm.setting)] = by_arm[arm]
    return [
        {"model": job.kind, "encoding": job.encoding, **row, "planned": found.planned[row["epsilon"]]}
        for row in rows_of(f"{job.kind}, {job.data}, {job.encoding}", by_arm)
    ]


def _caption(rows: Sequence[Row]) -> str:
    lines = [
        f"Figs. 3.8 to 3.10 again: {rows[0]['trainings']} cross-validated trainings each, on records that",
        "no tuning looked at. Gain: error of the best document less ours, with the paired 95 % interval.",
        "Printed: nothing of these; the documents sample coordinates by their own mechanisms.",
        "",
        f"  {'model, data':<27}{'eps':<5}{'best document':<22}{'tailored':<10}{'codebook':<10}planned: gain",
    ]
    for here in cases(rows):
        one = here[PLANNED]
        mark = {"ours smaller": "better", "ours larger": "WORSE"}.get(one["verdict"], "equal")
        lines.append(
            f"  {one['data']:<27}{one['epsilon']:<5g}{one['error_of_best']:<8.4g}{one['best_document']:<14}"
            f"{here[TAILORED]['error']:<10.4g}{here[CODEBOOK]['error']:<10.4g}"
            f"{one['planned']} {one['error']:.4g} {one['less_than_best']:+.4f} "
            f"[{one['less_low']:+.4f}, {one['less_high']:+.4f}] {mark}"
        )
    for how in (SIGNS, ONE_HOT):
        some = select(rows, encoding=how)
        lines += ["", f"Against the best document, {how}:"]
        lines += [f"  {name:<9}{counts(some, name)} cases" for name in (PLANNED, *OURS)]
    return "\n".join(lines)


def _draw(rows: Sequence[Row]) -> Any:
    """What planned gains on the best document, case by case, with 95 % intervals."""
    listed = list(dict.fromkeys((row["model"], row["encoding"]) for row in rows))
    figure, axes = plots.panels(1, len(listed), size=(3.0 * len(listed) + 2.2, 4.8))
    for axis, (model, how) in zip(axes[0], listed, strict=True):
        mine = select(rows, model=model, encoding=how, method=PLANNED)
        for place, row in enumerate(mine):
            half = row["less_high"] - row["less_than_best"]
            axis.errorbar(place, row["less_than_best"], half, elinewidth=1.0, **plots.style("typical"))
        axis.axhline(0.0, color="black", linewidth=0.8)
        named = [f"{row['data'].split(', ')[1]} {row['epsilon']:g}" for row in mine]
        axis.set_xticks(range(len(mine)), named, rotation=80, fontsize=7)
        axis.set_title(f"{model}, {how} ({MEASURE[model]})", fontsize=9)
    axes[0, 0].set_ylabel("error of the best document less ours")
    return figure
