"""Figs. 3.8 to 3.15: reporters without bias, one grid, honest pairs, and every figure on made data.

Statistical checks: 5.5 standard errors on at most 40 numbers, false-alarm rate below 2e-6 each.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from reticent.experiments import find
from reticent.experiments.zhao_2022.chapter_3 import fed_data, fed_methods, fed_report, fed_training
from reticent.experiments.zhao_2022.chapter_3.fed_data import Problem, names, problem
from reticent.experiments.zhao_2022.chapter_3.fed_methods import (
    CONTINUOUS,
    DOCUMENTS,
    NOBODY,
    OURS,
    SENT,
    Group,
    methods,
)
from reticent.experiments.zhao_2022.chapter_3.fed_training import Arm, Job, Setting, Trainer, tuned, validated
from reticent.federated import Logistic
from reticent.federated.models import MODELS
from reticent.federated.simulation import IDENTITY, simulate
from reticent.federated.tasks import designed
from reticent.mechanisms.sampling import sampled_attributes
from reticent.randomness import SimulationStream

RNG = np.random.default_rng(4)
N, INPUTS = 400, 4
FEATURES = RNG.uniform(-1.0, 1.0, (N, INPUTS))
TARGETS = np.where(FEATURES[:, 0] + FEATURES[:, 1] > 0.1, 1.0, -1.0)


def made(data, kind, *_, **__):
    return Problem(data, MODELS[kind](INPUTS, l2=1e-4), FEATURES, TARGETS)


@pytest.fixture
def _made(monkeypatch):
    """One small problem in the place of the data sets."""
    monkeypatch.setattr(fed_training, "problem", made)
    monkeypatch.setattr(fed_training, "names", lambda kind: ("made",))


def group(asked):
    x = np.column_stack([FEATURES[:60], np.ones(60)])
    slopes = np.stack([np.linspace(-1.0, 1.0, 60), np.linspace(0.5, -0.2, 60)])
    penalty = 1e-4 * np.ones((2, INPUTS + 1))
    return Group(x, slopes, penalty, np.array([0.5, 1.0]), asked)


def off(reporter, times, stream):
    """How far the mean of many averages is from the truth, in its own standard errors."""
    d, found = INPUTS + 1, []
    for _ in range(times):
        k = reporter.sample_size
        found.append(reporter.average(group(k and sampled_attributes(60, d, k, stream)), stream))
    whole = group(None)
    truth = np.stack([whole.units(arm).mean(axis=0) for arm in range(2)])
    spread = np.std(found, axis=0, ddof=1) / math.sqrt(times)
    return float(np.abs((np.mean(found, axis=0) - truth) / spread).max())


@pytest.mark.parametrize("how", [CONTINUOUS, (5,)])
def test_every_reporter_is_unbiased_for_the_clipped_gradient(how, monkeypatch):
    makes = methods(how)
    for name in [name for name in makes if name not in (NOBODY, *OURS)] + ["default"]:
        assert off(makes[name](2.0, INPUTS + 1), 200, SimulationStream(3)) < 5.5, name
    biased = makes["Three-Outputs"](2.0, INPUTS + 1)  # planted: d/k forgotten
    right = biased.average
    monkeypatch.setattr(biased, "average", lambda *args: right(*args) / (INPUTS + 1))
    assert off(biased, 200, SimulationStream(3)) > 5.5


@pytest.mark.parametrize("shape", [1, 7, 4_000])
def test_gamma_has_its_mean_variance_and_skewness(shape):
    n, drawn = 40_000, fed_methods.gamma(shape, 40_000, SimulationStream(2))
    z = (drawn - shape) / math.sqrt(shape)
    assert drawn.min() > 0.0
    assert abs(z.mean()) < 5.5 / math.sqrt(n)
    assert abs(z.var() - 1.0) < 5.5 * math.sqrt((2.0 + 6.0 / shape) / n)
    assert np.mean(z**3) == pytest.approx(2.0 / math.sqrt(shape), abs=0.25 + 2.0 / shape)
    wrong = 1.3 * z  # planted: a 30 % wrong scale
    assert abs(wrong.var() - 1.0) > 5.5 * math.sqrt((2.0 + 6.0 / shape) / n)


def test_without_noise_training_is_that_of_the_simulator():
    order = np.arange(N)
    for kind, model in MODELS.items():
        task = designed(
            "t",
            model(INPUTS),
            epsilon=1.0,
            purpose="x",
            rounds=8,
            group=50,
            rate=0.3,
            bounds=1e6,
            mechanism="Duchi",
        )
        plain = simulate(task, FEATURES, TARGETS, rng=SimulationStream(1), order=order, randomiser=IDENTITY)
        trainer = Trainer(made("made", kind), CONTINUOUS)
        arm = Arm(NOBODY, 1.0, Setting(0.3, 1.0, 8))
        assert trainer.train([arm], order, SimulationStream(1))[0] == pytest.approx(plain.theta, rel=1e-9)
        error = trainer.errors(plain.theta[None], order)[0]
        assert error == pytest.approx(task.model.error(plain.theta, FEATURES, TARGETS))


def test_arms_share_clients_coordinates_and_draws():
    """A method trained beside others, or with another setting beside it, gives the same parameters."""
    trainer = Trainer(made("made", "logistic"), SENT)
    arms = [Arm(name, 2.0, Setting(0.3, 0.3, 8)) for name in ("Laplace", "Duchi", "HM-TP", "Three-Outputs")]
    together = trainer.train(arms, np.arange(N), SimulationStream(1))
    for place, arm in enumerate(arms):
        alone = trainer.train([arm], np.arange(N), SimulationStream(1))[0]
        assert together[place] == pytest.approx(alone, rel=1e-9)


def test_a_training_that_went_astray_counts_as_infinite():
    trainer = Trainer(made("made", "linear"), CONTINUOUS)
    thetas = trainer.train([Arm(NOBODY, 1.0, Setting(1e200, 1.0, 8))], np.arange(N), SimulationStream(1))
    assert trainer.errors(thetas, np.arange(N)).tolist() == [np.inf]


def test_folds_part_the_records():
    order = np.arange(23)
    parts = [fed_training.without(order, fold, 10) for fold in range(10)]
    assert sorted(np.concatenate([out for out, _ in parts]).tolist()) == order.tolist()
    assert all(set(out) | set(rest) == set(order) and not set(out) & set(rest) for out, rest in parts)


@pytest.mark.usefixtures("_made")
def test_tuning_takes_the_least_error_of_one_grid(monkeypatch):
    settings = [Setting(0.3, 0.3, 10), Setting(3.0, 0.3, 10), Setting(1e-9, 0.3, 10)]
    monkeypatch.setattr(fed_training, "grid", lambda kind, quick: settings)
    monkeypatch.setattr(
        fed_training, "methods", lambda how: {name: methods(SENT)[name] for name in (NOBODY, "HM")}
    )
    job = Job("made", "logistic", SENT, 5, True, None, epsilons=(2.0, 4.0))
    arms = tuned(job)
    assert [(arm.method, arm.epsilon) for arm in arms] == [(m, e) for m in (NOBODY, "HM") for e in (2.0, 4.0)]
    assert all(arm.setting in settings[:2] for arm in arms[:2])
    errors = validated(Job("made", "logistic", SENT, 5, True, None, arms=arms))
    assert errors.shape == (4, 2)
    assert (errors[0] < 0.2).all()
    again = validated(Job("made", "logistic", SENT, 5, True, None, arms=arms))
    assert errors.tolist() == again.tolist()


def test_the_best_document_is_the_yardstick():
    """A method that is better, one that is equal and one that is worse are told apart."""
    setting, chance = Setting(1.0, 1.0, 10), RNG.normal(0.0, 0.001, 50)
    means = dict.fromkeys((NOBODY, *DOCUMENTS), 0.3) | {"HM": 0.25, "default": 0.2, "typical": 0.25}
    found = {
        Arm(name, 1.0, setting): mean + RNG.normal(0.0, 0.001, 50) + chance for name, mean in means.items()
    }
    rows = {row["method"]: row for row in fed_report.rows_of("made", found)}
    assert {row["best_document"] for row in rows.values()} == {"HM"}
    assert rows["default"]["verdict"] == "ours smaller"
    assert rows["PM"]["verdict"] == "ours larger"
    assert rows["default"]["less_than_best"] == pytest.approx(0.05, abs=0.002)
    assert rows["default"]["error_of_best"] == pytest.approx(0.25, abs=0.002)
    alike = RNG.normal(
        0.3, 0.01, (8, 50)
    )  # equal methods: their least mean is below 0.3 by chance, this is not
    assert abs(fed_report.best_by_the_others(alike).mean() - 0.3) < 5.5 * 0.01 / math.sqrt(50)
    assert fed_report.best_by_the_others(np.array([[0.1, 0.1, 9.0], [0.2, 0.2, 0.2]])).tolist() == [
        0.2,
        0.2,
        9.0,
    ]
    worse = found | {Arm(name, 1.0, setting): 0.4 + chance for name in OURS}
    lines = fed_report.lost(fed_report.rows_of("made", worse))
    assert len(lines) == 1
    assert "HM with rate 1" in lines[0]
    assert fed_report.lost(list(rows.values())) == []


@pytest.mark.usefixtures("_made")
@pytest.mark.parametrize(
    "name",
    [
        "fig-3.8",
        "fig-3.15",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("fig-3.9", "fig-3.10", "fig-3.12", "fig-3.13", "fig-3.14")
        ),
    ],
)
def test_quick_run_on_made_data(name, quick):
    outcome, files = find(name).run(replace(quick, repetitions=None))
    assert len(files.csv.read_text().splitlines()) == len(outcome.rows) + 1
    assert files.png.stat().st_size > 20_000
    assert files.caption.read_text() == outcome.caption + "\n"
    assert "Printed" in outcome.caption
    assert max(map(len, outcome.caption.splitlines())) <= 140


@pytest.mark.slow
@pytest.mark.usefixtures("_data")
def test_the_data_sets_are_encoded_as_said():
    shapes = {"Census": (92_368, 108), "Adult": (48_842, 100), "WISDM": (5_418, 42), "Vehicle": (1_860, 100)}
    for data in names("svm"):
        given = problem(data, "svm")
        assert given.features.shape == shapes[data]
        assert np.abs(given.features).max() <= 1.0
        assert set(given.targets.tolist()) == {-1.0, 1.0}
        assert 0.2 < given.trivial < 0.5
    assert problem("WISDM", "linear").features.shape == (5_418, 41)
    assert isinstance(problem("WISDM", "logistic").model, Logistic)
    assert len(fed_data.problem("Adult", "linear", quick=True).targets) == fed_data.QUICK_ROWS
    assert fed_methods.TYPICAL_SHARE == 0.1
