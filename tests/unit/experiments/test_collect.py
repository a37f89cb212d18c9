"""The experiments of collection, small: the way of a report adds nothing, and loses nothing."""

import numpy as np
import pytest

from reticent.experiments.base import Options
from reticent.experiments.data import People
from reticent.experiments.ours import collect_mse, collect_pipeline
from reticent.randomness import SimulationStream


def test_errors_are_what_theory_expects(tmp_path, monkeypatch):
    """Mean of squared error / variance, within 6 sd of a chi-square at 9 x 20 degrees: below 1e-8."""
    monkeypatch.setattr(collect_mse, "QUICK_PEOPLE", 2000)
    monkeypatch.setattr(collect_mse, "QUICK_EPSILONS", (1.0,))
    outcome = collect_mse.run(Options(tmp_path, quick=True, repetitions=20))
    ratios = np.array([row["ratio"] for row in outcome.rows])
    spread = (2 / (20 * ratios.size)) ** 0.5
    assert abs(ratios.mean() - 1) < 6 * spread
    assert {row["mechanism"] for row in outcome.rows} == set(collect_mse.NAMES)
    assert all(47 <= row["report_bytes"] <= 48 for row in outcome.rows)


@pytest.fixture
def _made(monkeypatch):
    """A small population in the place of the data sets."""
    units = SimulationStream(8).units(600).reshape(200, 3) - 1.0
    monkeypatch.setattr(collect_pipeline.data, "load", lambda *_: People("made", units * 1.5 - 0.6))


@pytest.mark.usefixtures("_made")
def test_the_wire_is_the_library_in_distribution(tmp_path, monkeypatch):
    """Three tests at p < 1e-7. Planted: a collector that takes the next dither level."""
    options = Options(tmp_path, quick=True, repetitions=40)
    rows = collect_pipeline.run(options).rows
    assert min(row["p_value"] for row in rows) > 1e-7
    real = collect_pipeline.Collector.tally

    def shifted(self, survey, *given):
        found = real(self, survey, *given)
        found.counts = [np.roll(one, 1, axis=1) for one in found.counts]
        return found

    monkeypatch.setattr(collect_pipeline.Collector, "tally", shifted)
    rows = collect_pipeline.run(options).rows
    assert min(row["p_value"] for row in rows) < 1e-7
