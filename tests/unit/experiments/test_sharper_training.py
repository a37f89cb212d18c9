"""Figs. 3.8 to 3.10 again: reporters without bias, and no record in an error that a tuning has seen."""

from dataclasses import replace

import numpy as np
import pytest

from reticent.experiments import find
from reticent.experiments.base import Options
from reticent.experiments.ours import sharper_training
from reticent.experiments.ours.sharper_training import (
    CODEBOOK,
    NOISE,
    ONE_HOT,
    PLANNED,
    PREPARED,
    PRINTED,
    Directions,
    SharperJob,
    Way,
    arm_of,
    tuned,
    validated,
)
from reticent.experiments.zhao_2022.chapter_3 import fed_data
from reticent.experiments.zhao_2022.chapter_3.fed_methods import CONTINUOUS, Group
from reticent.experiments.zhao_2022.chapter_3.fed_training import Setting
from reticent.federated.models import Axes
from reticent.randomness import SimulationStream

from .test_fed import FEATURES, INPUTS, N, made
from .test_registry import check_files


@pytest.fixture(autouse=True)
def _made(monkeypatch):
    """One small problem in the place of the data sets."""
    monkeypatch.setattr(fed_data, "problem", made)


def job(**changes):
    return replace(SharperJob("made", "logistic", CONTINUOUS, 1, True, None, (4.0,)), **changes)


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


def test_no_record_is_public_and_counted(monkeypatch):
    trainer = job().everything()
    public, rest = set(trainer.public.tolist()), set(trainer.rest.tolist())
    assert (len(public), public & rest, len(public | rest)) == (N // 5, set(), N)
    fitted, seen = [], []
    fit = Axes.fitted
    monkeypatch.setattr(Axes, "fitted", lambda rows, count: fitted.append(rows) or fit(rows, count))
    monkeypatch.setattr(
        sharper_training.SharperTrainer,
        "errors_of",
        lambda self, arms, rows, out, stream: seen.append((set(rows), set(out))) or np.zeros(len(arms)),
    )
    trainer.on(3)
    np.testing.assert_array_equal(fitted[0], trainer.given.features[trainer.public])
    tuned(job(), trainer)
    assert all(rows.isdisjoint(out) for rows, out in seen)
    looked = set().union(*(rows | out for rows, out in seen))
    assert looked <= public
    seen.clear()
    validated(job(), trainer, [arm_of(Way(CODEBOOK, 3), 4.0, Setting(1.0, 0.3, 10))])
    assert all(rows.isdisjoint(out) for rows, out in seen)
    counted = set().union(*(out for _, out in seen))
    assert counted == rest
    assert counted.isdisjoint(looked)
    assert not counted.isdisjoint(looked | {next(iter(counted))})  # planted: one record of both


def test_the_best_setting_is_found_alike_by_all(monkeypatch):
    """Errors are rates, and more on 2 axes: the smallest rate is taken, by methods and ways alike."""

    def errors(self, arms, rows, out, stream):
        return np.array([arm.setting.rate + 0.1 * (arm.axes == 2) for arm in arms])

    monkeypatch.setattr(sharper_training.SharperTrainer, "errors_of", errors)
    monkeypatch.setattr(sharper_training, "COUNTS", (0, 2))
    one = job(quick=False, data="made")
    found = tuned(one, one.everything())
    assert {setting.rate for way, (setting, _) in found.items() if way.axes == 0} == {0.3}
    assert [error for way, (_, error) in found.items() if way.axes == 2] == pytest.approx([1.0] * 10)
    names = {way.method for way in found}
    assert len(names) == 10
    assert len(found) == len(names) * len(one.everything().counts)


def test_one_hot_are_zeros_and_ones():
    given, plain = (one.everything().given for one in (job(encoding=ONE_HOT), job()))
    np.testing.assert_allclose(given.features, (plain.features + 1.0) / 2.0)


def test_a_quick_run_on_made_data(tmp_path, monkeypatch):
    monkeypatch.setattr(sharper_training, "_problems", lambda kind: [("made", "signs"), ("made", ONE_HOT)])
    monkeypatch.setattr(sharper_training, "COUNTS", (0, 2))
    monkeypatch.setattr(fed_data, "KINDS", ("logistic",))
    outcome, files = find("sharper-training").run(Options(tmp_path, quick=True))
    check_files("sharper-training", outcome, files)
    names = {row["method"] for row in outcome.rows}
    assert {CODEBOOK, PLANNED, f"{CODEBOOK}, {PREPARED}", "typical", "PM-SUB"} <= names
    for row in outcome.rows:
        if row["method"] == PLANNED:
            mine = {
                one["method"]: one["error"]
                for one in outcome.rows
                if (one["data"], one["documents"]) == (row["data"], row["documents"])
            }
            method = row["planned"].split(",")[0]
            assert row["error"] == mine[f"{method}, {PREPARED}"]
            assert (f"{PLANNED}, axes {NOISE}" in mine) == (row["axes"] > 0)
    assert {row["documents"] for row in outcome.rows} == {PRINTED, PREPARED}
    assert {row["axes"] for row in outcome.rows if row["documents"] == PRINTED and row["method"] == "PM"} == {
        0
    }
