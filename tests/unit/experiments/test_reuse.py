"""Chapter 4 of the thesis, redone: against the golden numbers."""

import gzip
import math

import numpy as np
import pytest

from reticent.experiments import Options
from reticent.experiments.ours import reuse_rules
from reticent.experiments.zhao_2022.chapter_4 import fig_4_6, reuse, table_4_2
from reticent.randomness import SimulationStream

# 3,000 runs: mean and standard deviation over runs of what 150 queries save.
GOLDEN = {
    "paper": {
        "total epsilon (Remark 4.1)": (0.7046, 0.0089),
        "epsilon squared (V)": (0.9127, 0.0053),
        "linear sum": (0.8945, 0.0106),
    },
    "thesis": {
        "total epsilon (Remark 4.1)": (0.7037, 0.0090),
        "epsilon squared (V)": (0.9122, 0.0054),
        "linear sum": (0.8943, 0.0104),
    },
}
RUNS = 1000
Z = 5.0  # false-alarm rate below 1e-6 for each of six comparisons


@pytest.mark.parametrize("deltas", GOLDEN)
def test_saving_of_150_queries(deltas):
    asked = reuse.requests(RUNS, 150, reuse.DELTAS[deltas], SimulationStream(1))
    found = reuse.savings(asked, 150)
    for measure, (mean, deviation) in GOLDEN[deltas].items():
        error = deviation * math.sqrt(1 / RUNS + 1 / 3000)
        assert abs(found[measure].mean() - mean) < Z * error + 5e-5  # the golden numbers have four digits


def test_a_wrong_rule_of_reuse_is_seen():
    """Planted: reusing only the last answer instead of the best one."""
    asked = reuse.requests(RUNS, 150, reuse.DELTAS["paper"], SimulationStream(1))
    added = np.zeros_like(asked.costs)
    for run in range(RUNS):
        last: dict[int, float] = {}
        for i, (kind, cost) in enumerate(zip(asked.kinds[run], asked.costs[run], strict=True)):
            added[run, i] = max(0.0, cost - last.get(kind, 0.0))
            last[kind] = cost
    saved = 1 - np.sqrt(added.sum(axis=1) / asked.costs.sum(axis=1))
    mean, deviation = GOLDEN["paper"]["total epsilon (Remark 4.1)"]
    assert abs(saved.mean() - mean) > 10 * deviation


def test_the_printed_52_percent_is_that_of_50_queries():
    asked = reuse.requests(RUNS, 150, reuse.DELTAS["paper"], SimulationStream(2))
    assert reuse.savings(asked, 50)["total epsilon (Remark 4.1)"].mean() == pytest.approx(0.52, abs=0.01)
    assert reuse.savings(asked, 20)["linear sum"].mean() == pytest.approx(0.52, abs=0.01)


def test_increments_add_up_to_the_largest_of_each_type():
    asked = reuse.requests(50, 150, reuse.DELTAS["paper"], SimulationStream(3))
    largest = [
        sum(costs[kinds == kind].max(initial=0.0) for kind in range(len(reuse.TYPES)))
        for kinds, costs in zip(asked.kinds, asked.costs, strict=True)
    ]
    assert reuse.increments(asked).sum(axis=1) == pytest.approx(largest, rel=1e-12)


def test_table_4_2_through_the_engine(tmp_path):
    outcome = table_4_2.run(Options(out=tmp_path))
    cases: dict[str, list[int]] = {}
    for row in outcome.rows:
        cases.setdefault(row["case"], []).append(row["request"])
    assert cases == {"1": [1, 2, 3], "2A": [7], "2B": [5, 6, 9, 10, 11, 13], "2C": [4, 8, 12]}
    assert outcome.rows[-1]["spent"] == pytest.approx(17.4444444444444, abs=1e-10)
    assert sum(row["naive cost"] for row in outcome.rows) == pytest.approx(25.8477777777778, abs=1e-10)


def test_dprovdb_ends_where_its_rule_says():
    assert reuse_rules.dprovdb(2.0, 2) == pytest.approx(2.64, abs=0.005)
    assert reuse_rules.dprovdb(2.0, 1) == pytest.approx(1.99, abs=0.005)


# Fig. 4.6


def errors_on_made_rows(folder):
    """The sums of relative errors of 20 requests on 3,000 made people, by way."""
    rng = np.random.default_rng(6)
    people = zip(
        rng.integers(0, 90_000, 3000),
        rng.integers(0, 60, 3000),
        rng.integers(0, 95, 3000),
        rng.integers(1, 6, 3000),
        rng.integers(1, 10, 3000),
        strict=True,
    )
    with gzip.open(folder / reuse.FILE, "wt", encoding="utf-8") as handle:
        handle.write("income,hours_worked,age,citizenship,race\n")
        handle.writelines(",".join(map(str, row)) + "\n" for row in people)
    stream = SimulationStream(2026, path=(6,))
    asked = reuse.requests(1, 20, reuse.DELTAS["paper"], stream)
    with reuse.census(None, folder) as (data, table):
        return {way: fig_4_6._errors(way, data, table, asked, stream).sum() for way in fig_4_6.WAYS}


def test_errors_of_reused_noise_are_like_those_of_fresh_noise(tmp_path):
    """Means are counted from the middle of their bounds, which the exact value once left out."""
    found = errors_on_made_rows(tmp_path)
    assert max(found.values()) < 5.0 * found[fig_4_6.WAYS[0]]


def test_planted_an_exact_value_without_the_middle_is_seen(tmp_path, monkeypatch):
    def without(prepared, on_grid, table):
        data, column = prepared.question.data, prepared.question.column
        unit = float(data.column(column).unit) if column is not None else 1.0
        counted = prepared.vector(table)[0] if on_grid is None else on_grid
        return counted * 2.0**-prepared.shift * unit / data.rows

    monkeypatch.setattr(fig_4_6, "_shown", without)
    found = errors_on_made_rows(tmp_path)
    assert max(found.values()) > 5.0 * found[fig_4_6.WAYS[0]]
