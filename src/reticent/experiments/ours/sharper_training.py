"""Figs. 3.8 to 3.10 again, with a public preparation of features (`Axes`) and a `Codebook`.

What differs from `fed_training`: a fifth of the records is public. Axes are fitted there, everything is tuned
and planned there and nowhere else; the cross-validation is over the other four fifths, so that no record on
which an error is counted was ever looked at. A trial draws its clients from four fifths of the public records
again and again, as many as there will be (as `federated.planning` does), and counts errors on the others.

Same effort for all: 8 methods of the documents with 18 settings each, and 8 ways of ours with as many:
typical coordinates and a codebook, each on features as they come and on 4, 8 and 24 axes. The bound of a
codebook is in the same unit: b is a length b sqrt(d), that of a gradient whose d coordinates all are b. On
axes features are shorter, and steps three times as long are tried. Of 18 settings the best 6 go on after two
trials each, the best 2 after two more, and six fresh trials choose one of them (thrice as many where there
are few records). Documents that sample
coordinates choose their 6 together, so that chance averages out. "Planned" is that of the 8 ways of ours
with the least error in its fresh trials: one answer of ours where the documents have the best of eight.

What is the mechanism's part and what the preparation's: the documents run once as printed, and once more with
each of theirs on whichever preparation its trials favour, which is four times our effort.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.zhao_2022.chapter_3 import fed_data
from reticent.experiments.zhao_2022.chapter_3.fed_data import Problem
from reticent.experiments.zhao_2022.chapter_3.fed_methods import (
    CONTINUOUS,
    DOCUMENTS,
    TYPICAL,
    Group,
    Reporter,
    reporter,
)
from reticent.experiments.zhao_2022.chapter_3.fed_report import MEASURE, cases, counts, rows_of
from reticent.experiments.zhao_2022.chapter_3.fed_training import (
    TUNING_RECORDS,
    Arm,
    Job,
    Key,
    Setting,
    Trainer,
    grid,
    mapping,
    without,
)
from reticent.experiments.zhao_2022.chapter_3.means import select
from reticent.federated import choice
from reticent.federated.models import MODELS, Axes
from reticent.federated.simulation import Places
from reticent.mechanisms.base import Floats
from reticent.mechanisms.vector import Codebook
from reticent.randomness import SimulationStream

CODEBOOK, PLANNED = "codebook", "planned"
OURS = (TYPICAL, CODEBOOK)
SIGNS, ONE_HOT = "signs", "one-hot"
PRINTED, PREPARED = "as printed", "prepared"
EPSILONS, QUICK_EPSILONS = (0.5, 1.0, 2.0, 4.0), (4.0,)
TIMES = 3
MOST_RECORDS = 20_000  # of a data set; the census has 92,368 and Adult 48,842
COUNTS = (0, 4, 8, 24)  # of axes; 0 for features as they come
LONGER = 3.0  # steps on axes
TRIALS = ((2, 6), (2, 2), (6, 1))  # trials of a stage, and how many settings are left after it
MOST_TIMES = 3  # as many where there are few records
SLICE, NOISE = "of a slice", "of noise"  # axes that are not of the clients' kind
_BLOCK = 1 << 10  # clients


class Directions(Reporter):
    """Whole gradients by a codebook, as whoever simulates draws them; bounds are in units of sqrt(d)."""

    def __init__(self, epsilon: float, dimensions: int) -> None:
        self.codebook: Codebook = choice.codebook(epsilon, dimensions)

    def average(self, group: Group, stream: SimulationStream) -> Floats:
        """Means of the reports."""
        longest = np.sqrt(group.dimensions)
        sums = np.zeros((group.arms, group.dimensions))
        step = max(1, _BLOCK // group.clients)  # arms at once
        for first, start in product(range(0, group.arms, step), range(0, group.clients, _BLOCK)):
            some, part = slice(first, first + step), slice(start, start + _BLOCK)
            gradients = group.slopes[some, part, None] * group.x[part] + group.penalty[some, None]
            sums[some] += self.codebook.simulate(gradients / longest, stream).sum(axis=1)
        return np.asarray(sums * (longest / group.clients))


_directions = lru_cache(maxsize=64)(Directions)


@dataclass(frozen=True)
class Way:
    """A method, and how features are prepared for it.

    Attributes:
        method: of the documents or ours.
        axes: how many; 0 for features as they come.
        of: what the axes are fitted on; public records, but for `SLICE` and `NOISE`.
    """

    method: str
    axes: int = 0
    of: str = ""

    @property
    def words(self) -> str:
        """The method and its preparation."""
        return f"{self.method}, {self.axes} axes" if self.axes else f"{self.method}, as they come"


@dataclass(frozen=True)
class Prepared(Arm):
    """An arm on features that are prepared."""

    axes: int = 0
    of: str = ""


def arm_of(way: Way, epsilon: float, setting: Setting) -> Prepared:
    """A training of a way."""
    return Prepared(way.method, epsilon, setting, way.axes, way.of)


@dataclass(frozen=True)
class SharperJob(Job):
    """As `Job`, with the encoding of the records and one epsilon."""

    encoding: str = SIGNS

    @property
    def epsilon(self) -> float:
        """The only one."""
        (found,) = self.epsilons
        return found

    def everything(self) -> SharperTrainer:
        """The data, the methods and the public records."""
        given = fed_data.problem(self.data, self.kind, self.folder, quick=self.quick, seed=self.seed)
        order = np.argsort(SimulationStream(self.seed, path=(41,)).units(len(given.targets)))[:MOST_RECORDS]
        features = given.features[order]
        if self.encoding == ONE_HOT:
            features = (features + 1.0) / 2.0
        return SharperTrainer(replace(given, features=features, targets=given.targets[order]))

    def settings(self, axes: int) -> list[Setting]:
        """The grid; on axes with longer steps."""
        found = grid(self.kind, quick=self.quick)
        return [replace(one, rate=LONGER * one.rate) for one in found] if axes else found


class OnFeatures(Trainer):
    """Trains the documents' methods and ours on features of one preparation."""

    def _reporter(self, key: Key) -> Reporter:
        name, epsilon = key
        d = self._x.shape[1]
        return _directions(epsilon, d) if name == CODEBOOK else reporter(CONTINUOUS, name, epsilon, d)


class SharperTrainer:
    """Trains on every preparation. The first fifth of the records is public.

    Args:
        given: the problem.
    """

    def __init__(self, given: Problem) -> None:
        self.given = given
        count = len(given.targets)
        self.public, self.rest = np.arange(count // 5), np.arange(count // 5, count)
        self._trainers: dict[tuple[int, str], OnFeatures] = {}

    @property
    def counts(self) -> list[int]:
        """Of axes that are tried."""
        return [count for count in COUNTS if count < self.given.model.inputs]

    def on(self, axes: int, of: str = "") -> OnFeatures:
        """The trainer of a preparation."""
        if (axes, of) not in self._trainers:
            given = self.given
            if axes:
                found = Axes.fitted(self._fitted_on(of), axes)
                model = MODELS[given.model.kind](axes, l2=given.model.l2)
                given = replace(given, features=found.of(given.features), model=model)
            self._trainers[axes, of] = OnFeatures(given, CONTINUOUS)
        return self._trainers[axes, of]

    def _fitted_on(self, of: str) -> Floats:
        """Public records; the quarter of them that is lowest in the first feature; or coins."""
        public = self.given.features[self.public]
        if of == SLICE:
            return public[np.argsort(public[:, 0], kind="stable")[: len(public) // 4]]
        if of == NOISE:
            return np.where(SimulationStream(0, path=(45,)).units(public.size) < 1.5, -1.0, 1.0).reshape(
                public.shape
            )
        return public

    def errors_of(
        self, arms: Sequence[Prepared], rows: Places, out: Places, stream: SimulationStream
    ) -> Floats:
        """Train arms of any preparation on `rows`; their errors on `out`."""
        found = np.empty(len(arms))
        for axes, of in dict.fromkeys((arm.axes, arm.of) for arm in arms):
            places = [place for place, arm in enumerate(arms) if (arm.axes, arm.of) == (axes, of)]
            some = [arms[place] for place in places]
            found[places] = self.on(axes, of).errors_of(some, rows, out, stream.spawn(axes))
        return found


Tuned = dict[Way, tuple[Setting, float]]  # the setting, and the error of its fresh trials


def tuned(job: SharperJob, trainer: SharperTrainer) -> Tuned:
    """The setting of each method, the documents' and ours, on each preparation, by public records alone."""
    public, clients = trainer.public, len(trainer.rest) * (job.folds - 1) // job.folds
    enough = TUNING_RECORDS // (clients + len(public) // 5)
    times = 1 if job.quick else min(MOST_TIMES, max(1, enough))
    left = {Way(name, axes): job.settings(axes) for axes in trainer.counts for name in (*DOCUMENTS, *OURS)}
    sums = {(way, setting): 0.0 for way, some in left.items() for setting in some}
    done, errors = 0, sums
    for stage, (trials, keep) in enumerate(TRIALS):
        arms = [arm_of(way, job.epsilon, setting) for way, some in left.items() for setting in some]
        found = np.zeros(len(arms))
        for trial in range(done, done + trials * times):
            out, rows = without(public, trial % 5, 5)
            again = (SimulationStream(job.seed, path=(42, trial)).units(clients) - 1.0) * len(rows)
            stream = SimulationStream(job.seed, path=(43, trial))
            found += trainer.errors_of(arms, rows[again.astype(np.int64)], out, stream)
        done += trials * times
        keys = [(way, setting) for way, some in left.items() for setting in some]
        errors = dict(zip(keys, (found / (trials * times)).tolist(), strict=True))
        sums = {key: sums[key] + trials * error for key, error in errors.items()}
        ranks = errors if keep == 1 else sums
        left = {way: _best(trainer, way, some, ranks, stage == 0)[:keep] for way, some in left.items()}
    return {way: (setting, errors[way, setting]) for way, (setting,) in left.items()}


def _best(
    trainer: SharperTrainer,
    way: Way,
    settings: Sequence[Setting],
    errors: dict[tuple[Way, Setting], float],
    together: bool,
) -> list[Setting]:
    """Settings, best first; documents that sample coordinates rank them together, if asked to."""
    ways = [way]
    if together and way.method in DOCUMENTS:
        family = trainer.on(way.axes).family
        mine = family((way.method, 1.0))
        ways = [Way(name, way.axes) for name in DOCUMENTS if family((name, 1.0)) == mine]
    return sorted(settings, key=lambda setting: sum(errors[one, setting] for one in ways))


@dataclass(frozen=True)
class Measured:
    """What a case came to.

    Attributes:
        arms: by name and whether the documents are `PRINTED` or `PREPARED`; names of ours are in both.
        planned: the way of ours with the least error in tuning.
        errors: of each arm in each training, on records that nobody looked at.
    """

    arms: dict[tuple[str, str], Prepared]
    planned: Way
    errors: dict[Prepared, Floats]


def measured(job: SharperJob) -> Measured:
    """Tune, plan and cross-validate one case."""
    trainer = job.everything()
    found = tuned(job, trainer)

    def least(method: str) -> Way:
        return min((way for way in found if way.method == method), key=lambda way: found[way][1])

    def arm(way: Way, of: str = "") -> Prepared:
        return arm_of(replace(way, of=of), job.epsilon, found[way][0])

    planned = min((least(name) for name in OURS), key=lambda way: found[way][1])
    ours = {PLANNED: arm(planned)} | {name: arm(Way(name)) for name in OURS}
    ours |= {f"{name}, {PREPARED}": arm(least(name)) for name in OURS}
    if planned.axes:
        ours |= {f"{PLANNED}, axes {of}": arm(planned, of) for of in (SLICE, NOISE)}
    arms: dict[tuple[str, str], Prepared] = {}
    for how in (PRINTED, PREPARED):
        arms |= {(how, name): arm(Way(name) if how == PRINTED else least(name)) for name in DOCUMENTS}
        arms |= {(how, name): one for name, one in ours.items()}
    distinct = list(dict.fromkeys(arms.values()))
    errors = [validated(replace(job, time=time), trainer, distinct) for time in range(job.time)]
    return Measured(arms, planned, dict(zip(distinct, np.concatenate(errors, axis=1), strict=True)))


def validated(job: SharperJob, trainer: SharperTrainer, arms: Sequence[Prepared]) -> Floats:
    """The errors of one repetition on records that nobody looked at, shape (arms, folds)."""
    order = trainer.rest[job.order(len(trainer.rest))]
    errors = np.empty((len(arms), job.folds))
    for fold in range(job.folds):
        out, rows = without(order, fold, job.folds)
        stream = SimulationStream(job.seed, path=(44, job.time, fold))
        errors[:, fold] = trainer.errors_of(arms, rows, out, stream)
    return errors


def _problems(kind: str) -> Iterator[tuple[str, str]]:
    """Data sets and encodings; one-hot where there are categories."""
    for data in fed_data.names(kind):
        yield data, SIGNS
    yield from (("Census", ONE_HOT), ("Adult", ONE_HOT))


def jobs(options: Options) -> list[SharperJob]:
    """Every case; `time` is how many repetitions there are."""
    epsilons = QUICK_EPSILONS if options.quick else EPSILONS
    times = options.repetitions or (1 if options.quick else TIMES)
    return [
        SharperJob(
            data, kind, CONTINUOUS, options.seed, options.quick, options.data, (one,), times, encoding=how
        )
        for kind in fed_data.KINDS
        for data, how in _problems(kind)
        for one in epsilons
    ]


def run(options: Options) -> Outcome:
    """Every method on every data set, model and encoding, over epsilon."""
    rows: list[Row] = []
    asked = jobs(options)
    with mapping(options) as run_all:
        for done, (job, found) in enumerate(zip(asked, run_all(measured, asked), strict=True)):
            rows += _rows(job, found)
            options.progress(done + 1, len(asked))
    return Outcome(rows, _caption(rows), lambda: _draw(rows))


def _rows(job: SharperJob, found: Measured) -> list[Row]:
    """One for each method, against the documents as printed and prepared."""
    rows: list[Row] = []
    for how in (PRINTED, PREPARED):
        mine = {name: arm for (one, name), arm in found.arms.items() if one == how}
        by_name = {Arm(name, arm.epsilon, arm.setting): found.errors[arm] for name, arm in mine.items()}
        for row in rows_of(f"{job.kind}, {job.data}, {job.encoding}", by_name):
            told = {"model": job.kind, "encoding": job.encoding, "documents": how, **row}
            rows.append({**told, "axes": mine[row["method"]].axes, "planned": found.planned.words})
    return rows


def _caption(rows: Sequence[Row]) -> str:
    lines = [
        f"Figs. 3.8 to 3.10 again: {rows[0]['trainings']} cross-validated trainings each, on records that",
        "no tuning looked at; axes, settings and plans come from a public fifth. Tuned: 8 methods of the",
        "documents and 8 ways of ours, 18 settings each (rate, bound, rounds); prepared documents 32 ways.",
        "Gain: error of the best document less ours, with the paired 95 % interval; first against documents",
        "as printed, then against documents on the best preparation of each. Printed: no axes, no codebook.",
        "",
        f"  {'model, data':<27}{'eps':<5}{'best document':<22}{'planned':<25}{'gain':<42}"
        f"{'best, prepared':<22}gain",
    ]
    printed, prepared = (select(rows, method=PLANNED, documents=how) for how in (PRINTED, PREPARED))
    for one, other in zip(printed, prepared, strict=True):
        lines.append(
            f"  {one['data']:<27}{one['epsilon']:<5g}{one['error_of_best']:<8.4g}{one['best_document']:<14}"
            f"{one['planned']:<25}{_gain(one):<42}"
            f"{other['error_of_best']:<8.4g}{other['best_document']:<14}{_gain(other, '')}".rstrip()
        )
    for how in (SIGNS, ONE_HOT):
        for against in (PRINTED, PREPARED):
            some = select(rows, encoding=how, documents=against)
            lines += ["", f"Against the best document {against}, {how}:"]
            names = (PLANNED, *OURS, *(f"{name}, {PREPARED}" for name in OURS))
            lines += [f"  {name:<19}{counts(some, name)} cases" for name in names]
    return "\n".join([*lines, "", *_strangers(rows)])


def _gain(row: Row, error: str = "error") -> str:
    mark = {"ours smaller": "better", "ours larger": "WORSE"}.get(row["verdict"], "equal")
    shown = f"{row[error]:.4g} " if error else ""
    return f"{shown}{row['less_than_best']:+.4f} [{row['less_low']:+.4f}, {row['less_high']:+.4f}] {mark}"


def _strangers(rows: Sequence[Row]) -> list[str]:
    """What axes of other rows than the clients' come to, where axes were planned."""
    lines = ["Planned with axes of other rows, same settings: mean error over the cases that have axes"]
    for kind in dict.fromkeys(row["model"] for row in rows):
        mine = [here for here in cases(select(rows, model=kind, documents=PRINTED)) if len(here) > _FEWEST]
        if not mine:
            continue
        means = [
            float(np.mean([here[name]["error"] for here in mine]))
            for name in (PLANNED, f"{PLANNED}, axes {SLICE}", f"{PLANNED}, axes {NOISE}")
        ]
        best = float(np.mean([here[PLANNED]["error_of_best"] for here in mine]))
        lines.append(
            f"  {kind:<9}{len(mine):>3} cases: public {means[0]:.4g}, a quarter of them {means[1]:.4g},"
            f" coins {means[2]:.4g}; best document as printed {best:.4g}"
        )
    return lines


_FEWEST = len(DOCUMENTS) + 1 + 2 * len(OURS)  # methods of a case that was planned without axes


def _draw(rows: Sequence[Row]) -> Any:
    """What planned gains on the best document, case by case, with 95 % intervals."""
    listed = list(dict.fromkeys((row["model"], row["encoding"]) for row in rows))
    figure, axes = plots.panels(1, len(listed), size=(3.0 * len(listed) + 2.2, 4.8))
    for axis, (model, how) in zip(axes[0], listed, strict=True):
        for documents, look, shift in ((PRINTED, "typical", -0.15), (PREPARED, "PM-SUB", 0.15)):
            mine = select(rows, model=model, encoding=how, method=PLANNED, documents=documents)
            for place, row in enumerate(mine):
                half = row["less_high"] - row["less_than_best"]
                label = f"documents {documents}" if place == 0 else None
                where, gain = place + shift, row["less_than_best"]
                axis.errorbar(where, gain, half, elinewidth=1.0, label=label, **plots.style(look))
        axis.axhline(0.0, color="black", linewidth=0.8)
        named = [f"{row['data'].split(', ')[1]} {row['epsilon']:g}" for row in mine]
        axis.set_xticks(range(len(mine)), named, rotation=80, fontsize=7)
        axis.set_title(f"{model}, {how} ({MEASURE[model]})", fontsize=9)
    axes[0, 0].set_ylabel("error of the best document less ours")
    plots.legend_right(figure, axes[0, 0])
    return figure
