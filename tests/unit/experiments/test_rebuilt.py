"""Digits rebuilt and named: quick runs on made pictures."""

import numpy as np
import pytest

from reticent.experiments import find
from reticent.experiments.biswas_2023.chapter_5 import rebuilt, writers
from reticent.experiments.ours import leakage_bounds
from reticent.randomness import SimulationStream

from .test_registry import check_files


@pytest.fixture
def _made_pictures(tmp_path_factory, monkeypatch):
    """Two hundred pictures of each split, whose digit is a bar."""
    pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
    folder = tmp_path_factory.mktemp("mnist")
    for number, piece in enumerate(writers.PIECES.values()):
        labels = np.arange(200) % 10
        units = SimulationStream(number).units(200 * 784).reshape(200, 28, 28) - 1.0
        images = (units * 60).astype(np.uint8)
        images[np.arange(200), 2 * labels, :14] = 255
        (folder / f"{piece}-images-idx3-ubyte").write_bytes(bytes(16) + images.tobytes())
        (folder / f"{piece}-labels-idx1-ubyte").write_bytes(bytes(8) + labels.astype(np.uint8).tobytes())
    monkeypatch.setenv(writers.VARIABLE, str(folder))
    for held in (rebuilt.pictures, rebuilt.prior):
        held.cache_clear()
    yield
    for held in (rebuilt.pictures, rebuilt.prior):
        held.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("_made_pictures")
def test_fig_5_7_quick(quick):
    outcome, files = find("fig-5.7").run(quick)
    check_files("fig-5.7", outcome, files)
    searches = {(row["network"], row["attack"]) for row in outcome.rows}
    assert {(name, attack) for name in rebuilt.NETWORKS for attack in rebuilt.SEARCHES} <= searches
    assert all(row["guaranteed"] == "none" for row in outcome.rows)
    n = 1_199_882
    row = next(row for row in outcome.rows if row["network"] == rebuilt.TRAINED and row["nu"] == 1.0)
    assert (row["claimed"], row["epsilon if the scale were public"]) == (n, 2 * n)


@pytest.mark.usefixtures("_made_pictures")
def test_leakage_bounds_quick(quick):
    outcome, files = find("leakage-bounds").run(quick)
    check_files("leakage-bounds", outcome, files)
    exact = [row for row in outcome.rows if row["attack"] == leakage_bounds.EXACT]
    assert all(row["guess"] <= row["success"] <= row["bound"] for row in exact)
    assert not any(row["above"] for row in outcome.rows)


def test_planted_an_attack_above_its_bound_is_marked():
    """Ninety of a hundred named right, of twenty, under epsilon 1; and an exact success a hair above."""
    assert leakage_bounds._row("epsilon", 1.0, "planted", 20, 100, 0.9)["above"] == 1
    bound = leakage_bounds._row("mu", 1.0, "exact", 20, float("inf"), 0.1)["bound"]
    assert leakage_bounds._row("mu", 1.0, "exact", 20, float("inf"), bound * 1.001)["above"] == 1
    assert leakage_bounds._row("mu", 1.0, "exact", 20, float("inf"), bound)["above"] == 0
