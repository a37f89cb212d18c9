"""Intervals at the limits of what is possible: they keep a width there, and hold the exact answer.

Counts of 0 with a standard error of 119 were answered with the interval [0, 0]: noise far below zero, cut to
what is possible. False alarms of coverage: 3e-7 each (5 standard errors of a proportion), at fixed seeds.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query import By, Case, Column, DataSet, Kind
from reticent.query.estimates import estimates
from reticent.query.kinds import base, mean, variance
from reticent.query.kinds.intervals import Normal, half_width_factor, linear, ratio
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.language.tree import Comparison
from reticent.query.measure import plan
from reticent.randomness import SimulationStream

from .reusing import Town
from .tables import ADD, BUDGET, REPLACE, Tallied

CONFIDENCE = 0.95
FACTOR = half_width_factor(CONFIDENCE)
CELLS = 2_000
COLUMNS = (
    Column("cell", Kind.INTEGER, low=1, high=CELLS),
    Column("pay", Kind.NUMBER, low=0, high=400, step=0.5),
    Column("flag", Kind.BOOLEAN),
)
BY = By("cell", bins=CELLS)
FLAG = Comparison("flag", "=", True)
FULL = 800  # the largest code of pay

QUESTIONS = {  # the query, rows, sum and squares of each cell, and the exact answer
    "counts": (tree.histogram(BY), (0, 0, 0), 0.0),
    "small counts": (tree.histogram(BY), (1, 0, 0), 1.0),
    "sums": (tree.total("pay", by=BY), (0, 0, 0), 0.0),
    "sums of a group": (tree.total("pay", by=BY), (2, 2 * FULL, 2 * FULL**2), 800.0),
    "least means": (tree.mean("pay", by=BY), (400, 0, 0), 0.0),
    "largest means": (tree.mean("pay", by=BY), (400, 400 * FULL, 400 * FULL**2), 400.0),
    "no share": (tree.proportion(FLAG, by=BY), (400, 0, 0), 0.0),
    "whole share": (tree.proportion(FLAG, by=BY), (400, 400, 400), 1.0),
    "no variance": (tree.variance("pay", by=BY), (4000, 0, 0), 0.0),
    "largest variance": (tree.variance("pay", by=BY), (4000, 2000 * FULL, 2000 * FULL**2), 200.0**2),
}


def estimate_cells(name, relation=ADD, mu2=0.01, seed=1):
    """The estimates of 2,000 cells that hold the same rows."""
    query, sums, _ = QUESTIONS[name]
    rows = CELLS * 4000 if relation is REPLACE else None
    data = DataSet("d", "1", COLUMNS, BUDGET, relation, rows)
    measured = plan(resolve(query, data))
    exact = measured.vector(Tallied(data, [(cell, *sums) for cell in range(CELLS)]))
    units = round(mu2 * UNITS_PER_ONE)
    noisy = measured.noise(units).perturb(np.array(exact), SimulationStream(seed)).tolist()
    return [cell.estimate for cell in estimates(query, measured, noisy, units, CONFIDENCE)]


def check_intervals(found, exact):
    """No interval is narrower than one side of its standard error; the exact answer is held often enough."""
    tolerance = 5 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / len(found))
    assert np.mean([one.low <= exact <= one.high for one in found]) > CONFIDENCE - tolerance
    assert all(one.low <= one.value <= one.high for one in found)
    narrowest = min((one.high - one.low) / one.standard_error for one in found)
    assert narrowest > 0.9 * FACTOR, "an interval claims more than its standard error"


@pytest.mark.parametrize("relation", [REPLACE, ADD])
@pytest.mark.parametrize("name", QUESTIONS)
def test_intervals_keep_their_width_at_a_limit(name, relation):
    check_intervals(estimate_cells(name, relation), QUESTIONS[name][2])


def cut_linear(*args, **named):
    return linear(*args, **{**named, "cut_only": True})


def cut_ratio(*args, **named):
    return ratio(*args, **{**named, "cut_only": True})


@pytest.mark.parametrize(
    ("name", "module", "function", "planted"),
    [
        ("counts", base, "linear", cut_linear),
        ("sums", base, "linear", cut_linear),
        ("largest means", mean, "ratio", cut_ratio),
        ("no share", mean, "ratio", cut_ratio),
        ("no variance", variance, "ratio", cut_ratio),
    ],
)
def test_planted_intervals_that_are_only_cut_are_caught(name, module, function, planted, monkeypatch):
    monkeypatch.setattr(module, function, planted)
    with pytest.raises(AssertionError, match="claims more than its standard error"):
        check_intervals(estimate_cells(name), QUESTIONS[name][2])


@pytest.mark.parametrize("truth", [0.0, 0.5, 1.0, 3.0, 9.5, 10.0])
def test_every_interval_that_held_the_truth_still_does(truth):
    """Seeded draws around every kind of truth: the new interval contains the old one, and has a width."""
    rng = np.random.default_rng(4)
    for value in rng.normal(truth, 2.0, 500):
        now, before = (linear(value, 2.0, FACTOR, 0.0, 10.0, cut_only=cut_only) for cut_only in (False, True))
        assert now.low <= before.low <= before.high <= now.high
        assert now.high - now.low >= 2.0 * FACTOR - 1e-9
        assert (now.value, now.unbiased, now.standard_error) == (before.value, before.unbiased, 2.0)
    for top, bottom in rng.normal((10 * truth - 50, 10), 2.0, (500, 2)):
        parts = (Normal(top, 2.0), Normal(bottom, 2.0), 5.0, FACTOR, 0.5)
        now, before = (ratio(*parts, cut_only=cut_only) for cut_only in (False, True))
        assert now.low <= before.low + 1e-9
        assert before.high - 1e-9 <= now.high
        assert now.high - now.low > 0


def combined_estimates():
    """Counts of empty regions, each combined from two tables."""
    found = []
    for seed in range(4):
        town = Town(np.zeros((50, 2), dtype=int), seed=seed)
        town.by_region(information=0.02)
        town.by_both(information=0.03)
        answers = [town.among([region], information=0.022) for region in range(50)]
        assert all(answer.case is Case.SPAN for answer in answers)
        found += [cell.estimate for answer in answers for cell in answer.cells]
    return found


def test_combined_answers_keep_their_width_too(monkeypatch):
    check_intervals(combined_estimates(), 0.0)
    monkeypatch.setattr(base, "linear", cut_linear)  # planted
    with pytest.raises(AssertionError, match="claims more than its standard error"):
        check_intervals(combined_estimates(), 0.0)
