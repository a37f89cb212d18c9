"""A network that learns digits from one report of each client: a codebook against coordinates.

The documents train models of some hundred numbers. Here is a network of 1,666 (MNIST at 14 x 14 pixels, 8
hidden units, 10 classes): 20,000 clients with one picture each report once, 1,000 in a round. Everybody's
accuracy is that on the 10,000 pictures of the test set, in simulation only.

Settings are tuned on 10,000 public pictures and nowhere else: 8,000 of them, drawn again and again, are the
clients of trial trainings and 2,000 judge them. Same effort for all: one grid of rates and bounds, the same
draws, the least mean error. A codebook's bound b is a length b sqrt(d), that of a gradient whose coordinates
all are b, so that the same grid serves. Repetitions differ in who takes part, in order, start and noise;
methods share all of it but the noise, so their differences are paired. Of the documents' eight Laplace is
left out: with epsilon/d for each of 1,666 numbers nothing is learnt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_5 import writers
from reticent.experiments.zhao_2022.chapter_3.fed_methods import (
    CONTINUOUS,
    DOCUMENTS,
    NOBODY,
    TYPICAL,
    Group,
    Reporter,
    Sampled,
    reporter,
)
from reticent.experiments.zhao_2022.chapter_3.fed_report import cases, rows_of
from reticent.experiments.zhao_2022.chapter_3.fed_training import Arm, Setting, mapping
from reticent.experiments.zhao_2022.chapter_3.means import select
from reticent.experiments.zhao_2022.chapter_5.split_training import SIDE, halved
from reticent.federated import choice
from reticent.federated.networks import TwoLayerClasses
from reticent.federated.simulation import Places
from reticent.federated.softmax import Labels
from reticent.mechanisms.base import Floats
from reticent.mechanisms.sampling import sampled_attributes
from reticent.randomness import SimulationStream

TAILORED, CODEBOOK = "tailored", "codebook"
METHODS = (NOBODY, *(name for name in DOCUMENTS if name != "Laplace"), TYPICAL, TAILORED, CODEBOOK)
EPSILONS, QUICK_EPSILONS = (2.0, 4.0, 8.0), (2.0,)
RATES, BOUNDS = (0.3, 1.0, 3.0), (0.01, 0.03, 0.1, 0.3)
HIDDEN, CLASSES, ROUNDS, GROUP = 8, 10, 20, 1000
PUBLIC, JUDGES = 10_000, 2_000  # pictures that everybody may look at, and those of them that judge
DRAWS, TIMES = 2, 10


class Digits:
    """Pictures as rows of numbers in [0, 1], with what they show."""

    def __init__(self, split: str, count: int | None = None) -> None:
        images, self.digits = writers.pixels_of(split)
        self.rows = halved(images[:count]).reshape(-1, SIDE * SIDE).astype(np.float64)
        self.digits = self.digits[:count]

    def of(self, places: Places) -> tuple[Floats, Labels]:
        """Some of them."""
        return self.rows[places], self.digits[places]


@dataclass(frozen=True)
class Plan:
    """How large a training is."""

    hidden: int
    rounds: int
    group: int
    public: int
    judges: int
    pictures: int | None  # of each split; None for all

    @property
    def clients(self) -> int:
        """Of a training: each reports once."""
        return self.rounds * self.group

    @property
    def network(self) -> TwoLayerClasses:
        """What is learnt."""
        return TwoLayerClasses(SIDE * SIDE, self.hidden, CLASSES)


FULL = Plan(HIDDEN, ROUNDS, GROUP, PUBLIC, JUDGES, None)
QUICK = Plan(2, 2, 200, 300, 100, 1000)


@cache
def _digits(split: str, count: int | None) -> Digits:
    return Digits(split, count)


class Pictured(Group):
    """The clients of a round of a network, for one arm."""

    def __init__(
        self,
        network: TwoLayerClasses,
        theta: Floats,
        x: Floats,
        y: Labels,
        bound: float,
        asked: Places | None,
    ) -> None:
        self._network, self._at, self._shown, self._right = network, theta, x, y
        self.bound, self.asked = bound, asked
        self.arms, self.clients, self.dimensions = 1, len(x), network.dimensions

    def gradients(self) -> Floats:
        """Of all clients, not clipped."""
        return self._network.gradients(self._at, self._shown, self._right)

    def mean(self) -> Floats:
        """Of the gradients, not clipped."""
        return self._network.mean_gradient(self._at, self._shown, self._right)

    def units(self, arm: int) -> Floats:
        """The clipped gradients of all clients, in units of the bound: shape (clients, d)."""
        return self._units(self.gradients())

    def sampled(self) -> Floats:
        """The clipped coordinates that are asked for, shape (1, clients, k)."""
        assert self.asked is not None
        found = self._network.coordinates(self._at, self._shown, self._right, self.asked)
        return self._units(found)[None]

    def _units(self, found: Floats) -> Floats:
        """Clipped; what is no number, in a training that went astray, is 0."""
        found /= self.bound
        return np.clip(np.nan_to_num(found, copy=False, nan=0.0), -1.0, 1.0, out=found)


class Directions(Reporter):
    """Whole gradients by a codebook, as whoever simulates draws them; a bound b is a length b sqrt(d)."""

    def __init__(self, epsilon: float, dimensions: int) -> None:
        self.codebook = choice.codebook(epsilon, dimensions)

    def average(self, group: Group, stream: SimulationStream) -> Floats:
        """Means of the reports."""
        assert isinstance(group, Pictured)
        longest = np.sqrt(group.dimensions)
        reports = self.codebook.simulate(group.gradients() / (group.bound * longest), stream)
        return np.asarray(longest * reports.mean(axis=0, keepdims=True))


class Unclipped(Reporter):
    """The gradients as they are."""

    def average(self, group: Group, stream: SimulationStream) -> Floats:
        """Their means."""
        assert isinstance(group, Pictured)
        return np.asarray(group.mean()[None] / group.bound)


@lru_cache(maxsize=64)
def reporter_of(method: str, epsilon: float, dimensions: int) -> Reporter:
    """Who reports, made once. `TAILORED` is for "small gradients", with the k of `TYPICAL`."""
    if method == CODEBOOK:
        return Directions(epsilon, dimensions)
    if method == NOBODY:
        return Unclipped()
    found = reporter(CONTINUOUS, TYPICAL if method == TAILORED else method, epsilon, dimensions)
    if method != TAILORED:
        return found
    channel, k = choice.chosen(epsilon, dimensions, sample_size=found.sample_size, prior="small gradients")
    return Sampled(channel, k)


def trained(
    plan: Plan,
    arm: Arm,
    x: Callable[[Places], tuple[Floats, Labels]],
    clients: Places,
    seed: SimulationStream,
) -> Floats:
    """The parameters after every client reported once."""
    network = plan.network
    method = reporter_of(arm.method, arm.epsilon, network.dimensions)
    theta = network.start(int(seed.spawn(0).words(1)[0]))
    lots, noise, k = seed.spawn(1), seed.spawn(2), method.sample_size
    with np.errstate(all="ignore"):
        for number, some in enumerate(clients.reshape(plan.rounds, plan.group)):
            asked = None if k is None else sampled_attributes(some.size, network.dimensions, k, lots)
            group = Pictured(network, theta, *x(some), arm.setting.bound, asked)
            step = method.average(group, noise)[0] * arm.setting.bound
            theta = theta - arm.setting.rate / np.sqrt(1.0 + number) * step
    return theta


@dataclass(frozen=True)
class Job:
    """What one process does: tune a method at an epsilon, or train it once with settings that are settled."""

    plan: Plan
    method: str
    epsilon: float
    seed: int
    settings: tuple[Setting, ...]
    time: int = 0
    draws: int = DRAWS

    @property
    def arms(self) -> list[Arm]:
        """With each setting."""
        return [Arm(self.method, self.epsilon, one) for one in self.settings]


def _error(plan: Plan, theta: Floats, x: Floats, y: Labels) -> float:
    """The share of wrong answers; all are wrong where training went astray."""
    return plan.network.error(theta, x, y) if np.isfinite(theta).all() else 1.0


def tuned(job: Job) -> Setting:
    """The setting of least mean error, by public pictures alone."""
    plan, pictures = job.plan, _digits("train", job.plan.pictures)
    judges = pictures.of(np.arange(plan.judges))
    errors = np.zeros(len(job.settings))
    for draw in range(job.draws):
        stream = SimulationStream(job.seed, path=(61, draw))
        share = stream.spawn(3).units(plan.clients) - 1.0
        clients = plan.judges + (share * (plan.public - plan.judges)).astype(np.int64)
        errors += [
            _error(plan, trained(plan, arm, pictures.of, clients, stream), *judges) for arm in job.arms
        ]
    return job.settings[int(errors.argmin())]


def judged(job: Job) -> float:
    """The share of wrong answers on the test set after one training on pictures that no tuning looked at."""
    plan, pictures = job.plan, _digits("train", job.plan.pictures)
    stream = SimulationStream(job.seed, path=(62, job.time))
    order = np.argsort(stream.spawn(3).units(len(pictures.digits) - plan.public))
    clients = plan.public + order[: plan.clients]
    (arm,) = job.arms
    test = _digits("test", plan.pictures)
    return _error(plan, trained(plan, arm, pictures.of, clients, stream), test.rows, test.digits)


def run(options: Options) -> Outcome:
    """Every method at every epsilon."""
    plan, epsilons = (QUICK, QUICK_EPSILONS) if options.quick else (FULL, EPSILONS)
    times = options.repetitions or (2 if options.quick else TIMES)
    some = ((0.3,), (0.03,)) if options.quick else (RATES, BOUNDS)
    grid = tuple(Setting(rate, bound, plan.rounds) for rate, bound in product(*some))
    _digits("train", plan.pictures), _digits("test", plan.pictures)  # absent data are said before anything
    draws = 1 if options.quick else DRAWS
    jobs = [
        Job(plan, method, epsilon, options.seed, grid, draws=draws)
        for epsilon, method in product(epsilons, METHODS)
    ]
    with mapping(options) as run_all:
        settled = []
        for done, setting in enumerate(run_all(tuned, jobs)):
            settled.append(setting)
            options.progress(done + 1, len(jobs) * (1 + times))
        again = [
            replace(job, settings=(setting,), time=time)
            for job, setting in zip(jobs, settled, strict=True)
            for time in range(times)
        ]
        errors = []
        for done, error in enumerate(run_all(judged, again)):
            errors.append(error)
            options.progress(len(jobs) + done + 1, len(jobs) * (1 + times))
    found = np.array(errors).reshape(len(jobs), times)
    arms = [Arm(job.method, job.epsilon, one) for job, one in zip(jobs, settled, strict=True)]
    rows = rows_of("MNIST", dict(zip(arms, found, strict=True)))
    rows = [{**row, "accuracy": 1.0 - row["error"]} for row in rows]
    return Outcome(rows, _caption(plan, rows, grid, draws), lambda: _draw(rows))


def _caption(plan: Plan, rows: Sequence[Row], grid: Sequence[Setting], draws: int) -> str:
    rates, bounds = (sorted({getattr(one, name) for one in grid}) for name in ("rate", "bound"))
    lines = [
        wrapped(
            f"MNIST at {SIDE} x {SIDE}, {plan.hidden} hidden units ({plan.network.dimensions:,} numbers): "
            f"{plan.clients:,} clients with a picture each report once, {plan.group:,} in a round. Right "
            f"answers on the test set, means of {rows[0]['trainings']} trainings.",
            f"Tuned on {plan.public:,} other pictures, for every method and epsilon: rate "
            f"{_listed(rates)} and bound {_listed(bounds)} (of a codebook: times "
            f"{plan.network.dimensions**0.5:.3g} as a length), {draws} trial training(s) each.",
            "Printed: nothing of this; the documents train models of some hundred numbers.",
            "More: right answers of ours less those of the best document, with the paired 95 % interval. The "
            "best document is, for each training, the one that is best in all the others.",
        ),
        "",
        f"  {'eps':<5}{'method':<15}{'right':<8}{'more than the best document':<36}{'rate':<6}bound",
    ]
    for here in cases(rows):
        for name, row in here.items():
            more = ""
            if name not in DOCUMENTS and name != NOBODY:
                mark = {"ours smaller": "better", "ours larger": "WORSE"}.get(row["verdict"], "equal")
                more = (
                    f"{row['less_than_best']:+.3f} [{row['less_low']:+.3f}, {row['less_high']:+.3f}] {mark}"
                )
            elif name == row["best_document"]:
                more = "the best of the documents'"
            lines.append(
                f"  {row['epsilon']:<5g}{name:<15}{row['accuracy']:<8.3f}{more:<36}"
                f"{row['rate']:<6g}{row['bound']:g}"
            )
    return "\n".join(lines)


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{one:g}" for one in numbers)


def _draw(rows: Sequence[Row]) -> Any:
    """Right answers over epsilon, with 95 % intervals."""
    figure, axes = plots.panels(1, 1, size=(8.0, 4.8))
    axis = axes[0, 0]
    epsilons = sorted({row["epsilon"] for row in rows})
    for name in METHODS:
        mine = select(rows, method=name)
        axis.errorbar(
            np.array(epsilons) * (1.0 + 0.012 * (len(name) % 7 - 3)),
            [row["accuracy"] for row in mine],
            [row["half_width"] for row in mine],
            label=plots.label(name),
            elinewidth=0.7,
            **plots.style(name),
        )
    axis.axhline(1.0 / CLASSES, color="black", linewidth=0.8)
    plots.epsilon_axis(axis, epsilons, "epsilon of a client's one report")
    axis.set_ylabel("right answers on the test set")
    axis.set_title("MNIST, a network of two layers", loc="left", fontsize=11)
    plots.legend_right(figure, axis)
    return figure
