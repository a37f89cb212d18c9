"""Figs. 3.8 to 3.10 again: reporters without bias, and no record in an error that a tuning has seen."""

from dataclasses import replace

import numpy as np
import pytest

from reticent.experiments import find
from reticent.experiments.base import Options
from reticent.experiments.ours import sharper_training
from reticent.experiments.ours.sharper_training import (
    CODEBOOK,
    ONE_HOT,
    PLANNED,
    TAILORED,
    Directions,
    Piloted,
    SharperJob,
    validated,
)
from reticent.experiments.zhao_2022.chapter_3 import fed_data
from reticent.experiments.zhao_2022.chapter_3.fed_methods import CONTINUOUS, Group, Sampled
from reticent.experiments.zhao_2022.chapter_3.fed_training import Arm, Setting
from reticent.mechanisms.numeric import Duchi, PMSub
from reticent.randomness import SimulationStream

from .test_fed import FEATURES, INPUTS, N, made
from .test_registry import check_files


@pytest.fixture(autouse=True)
def _made(monkeypatch):
    """One small problem in the place of the data sets."""
    monkeypatch.setattr(fed_data, "problem", made)


def job(**changes):
    return replace(SharperJob("made", "logistic", CONTINUOUS, 1, True, None), **changes)


def group(asked=None, clients=60, bounds=(0.5, 1.0)):
    x = np.column_stack([np.tile(FEATURES[:60], (clients // 60, 1)), np.ones(clients)])
    slopes = np.stack([np.linspace(0.2, 1.0, clients), np.linspace(0.5, 0.1, clients)])
    return Group(x, slopes, 1e-4 * np.ones((2, INPUTS + 1)), np.array(bounds), asked)


def test_a_codebook_averages_clipped_gradients_without_bias():
    """6 standard errors for each of 10 numbers: false alarms below 2e-8. Planted: another unit."""
    reporter, clients = Directions(4.0, INPUTS + 1), 24_000
    of = group(clients=clients)
    found = reporter.average(of, SimulationStream(3))
    longest = np.sqrt(INPUTS + 1)
    for arm in range(2):
        gradients = of.slopes[arm][:, None] * of.x + of.penalty[arm]
        lengths = np.linalg.norm(gradients, axis=1)[:, None]
        true = (gradients / np.maximum(1.0, lengths / longest)).mean(axis=0)
        spread = longest * np.sqrt(reporter.codebook.worst_case_error / clients)
        assert (np.abs(found[arm] - true) < 6.0 * spread).all()
        assert not (np.abs(longest * found[arm] - true) < 6.0 * spread).all()


def test_each_bound_has_its_mechanism():
    asked = np.arange(60)[:, None] % (INPUTS + 1)
    channels = {0.5: Duchi(epsilon=1.0), 1.0: PMSub(epsilon=1.0)}
    found = Piloted(channels, 1).average(group(asked), SimulationStream(5))
    stream = SimulationStream(5)
    for arm, bound in enumerate((0.5, 1.0)):
        whole = group(asked)
        part = Group(whole.x, whole.slopes[[arm]], whole.penalty[[arm]], np.ones(1), asked)
        np.testing.assert_array_equal(found[arm], Sampled(channels[bound], 1).average(part, stream)[0])


def test_no_record_is_public_and_counted(monkeypatch):
    trainer = job().trainer()
    assert len(trainer.public) == N // 5
    assert set(trainer.public.tolist()).isdisjoint(trainer.rest.tolist())
    assert len(trainer.public) + len(trainer.rest) == N
    seen = []
    monkeypatch.setattr(
        sharper_training.SharperTrainer,
        "errors_of",
        lambda self, arms, rows, out, stream: seen.append((set(rows), set(out))) or np.zeros(len(arms)),
    )
    sharper_training.tuned(job(epsilons=(4.0,)))
    looked = set().union(*(rows | out for rows, out in seen))
    assert looked <= set(trainer.public.tolist())
    seen.clear()
    validated(job(arms=(Arm(CODEBOOK, 4.0, Setting(1.0, 0.3, 10)),)))
    assert all(rows.isdisjoint(out) for rows, out in seen)
    counted = set().union(*(out for _, out in seen))
    assert counted == set(trainer.rest.tolist())
    assert counted.isdisjoint(looked)
    assert not counted.isdisjoint(looked | {next(iter(counted))})  # planted: one record of both


def test_one_hot_are_zeros_and_ones():
    features = job(encoding=ONE_HOT).trainer().problem.features
    np.testing.assert_allclose(features, (FEATURES + 1.0) / 2.0)


def test_a_quick_run_on_made_data(tmp_path, monkeypatch):
    monkeypatch.setattr(sharper_training, "_problems", lambda kind: [("made", "signs"), ("made", ONE_HOT)])
    monkeypatch.setattr(fed_data, "KINDS", ("logistic",))
    outcome, files = find("sharper-training").run(Options(tmp_path, quick=True))
    check_files("sharper-training", outcome, files)
    names = {row["method"] for row in outcome.rows}
    assert {TAILORED, CODEBOOK, PLANNED, "typical", "PM-SUB"} <= names
    for row in outcome.rows:
        if row["method"] == PLANNED:
            mine = [one for one in outcome.rows if one["data"] == row["data"]]
            assert row["error"] == next(one["error"] for one in mine if one["method"] == row["planned"])
