"""Random quantile questions: values of the declared domain, without bias, and intervals that hold.

The quantiles of level p of some codes are all codes c with at most p n rows below c and at least p n rows at
or below it: one code, or two and all codes between them where exactly p n rows end. The error of an estimate
is its signed distance to that set in stated standard errors. The bias of many questions is the mean of their
errors, compared with the standard error of that mean. Domains, distributions and levels are drawn as often as
their mirror images, so an estimator that prefers neither side has no bias. (For one level alone, the rows of
a wide bin that are not spread evenly leave up to a tenth of a stated standard error.) All seeds are fixed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pytest

from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query import Column, DataSet, Kind
from reticent.query.estimates import estimates
from reticent.query.kinds import quantile
from reticent.query.kinds.intervals import Cell, Estimate, half_width_factor
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.measure import plan
from reticent.randomness import SimulationStream

from .tables import ADD, BUDGET, REPLACE, Tallied

CONFIDENCE = 0.95
LEAST_COVERAGE = 0.94
LARGEST_BIAS = 3.0  # standard errors of the mean error
QUICK, FULL = 400, 10_000
SHAPES = ("beta", "atoms", "one side", "uniform", "two ends")


@dataclass(frozen=True)
class AnsweredQuestion:
    """One random question, its exact quantiles and its estimate."""

    column: Column
    shape: str
    level: float
    bins: str
    mu2: float
    least: float
    most: float
    estimate: Estimate

    @property
    def error(self):
        """Signed distance to the exact quantiles, in stated standard errors."""
        nearest = min(self.most, max(self.least, self.estimate.value))
        return (self.estimate.value - nearest) / self.estimate.standard_error

    @property
    def is_covered(self):
        slack = 1e-9 * float(self.column.unit)
        return self.estimate.low - slack <= self.least and self.most <= self.estimate.high + slack


def draw_column(rng):
    """A domain of integers with a bin for each, of integers with wide bins, or of a stepped number."""
    width = "unit" if rng.random() < 0.6 else "wide"
    codes = int(rng.integers(2, 257)) if width == "unit" else int(rng.integers(300, 4000))
    start = int(rng.integers(-2000, 2000))
    if rng.random() < 0.5:
        return width, Column("x", Kind.INTEGER, low=start, high=start + codes - 1)
    step = float(rng.choice([0.01, 0.25, 0.5, 5.0]))
    return width, Column("x", Kind.NUMBER, low=start * step, high=(start + codes - 1) * step, step=step)


def draw_codes(rng, shape, size, count):
    """Codes from 0 to size - 1, from a distribution of the shape or its mirror image."""
    if shape == "beta":
        parts = rng.beta(*rng.uniform(0.5, 6, 2), size=count)
    elif shape == "atoms":
        parts = rng.choice(rng.random(rng.integers(1, 6)), size=count)
    elif shape == "one side":
        parts = np.minimum(rng.exponential(rng.uniform(0.02, 0.3), size=count), 1)
    elif shape == "two ends":
        parts = (rng.random(count) < rng.uniform(0.2, 0.8)).astype(float)
    else:
        parts = rng.random(count)
    codes = np.minimum((parts * size).astype(int), size - 1)
    return codes if rng.random() < 0.5 else size - 1 - codes


def ask_random_questions(count, seed):
    rng = np.random.default_rng(seed)
    return [ask_random_question(rng, seed * 100_000 + number) for number in range(count)]


def ask_random_question(rng, seed):
    width, column = draw_column(rng)
    shape = str(rng.choice(SHAPES))
    rows = int(rng.integers(50, 5_000))
    codes = draw_codes(rng, shape, column.last - column.first + 1, rows)
    level = float(rng.choice([0.1, 0.25, 0.5, 0.75, 0.9])) if rng.random() < 0.5 else rng.uniform(0.03, 0.97)
    mu2 = 10.0 ** rng.uniform(-2, 2)
    relation = (REPLACE, ADD)[rng.integers(2)]
    data = DataSet("d", "1", (column,), BUDGET, relation, rows if relation is REPLACE else None)
    query = tree.quantile("x", level)
    measured = plan(resolve(query, data))
    starts = np.array([column.first, *measured.question.by[0].cuts])
    counts = np.bincount(
        np.searchsorted(starts, codes + column.first, side="right") - 1, minlength=len(starts)
    )
    exact = measured.vector(Tallied(data, [(cell, one, 0, 0) for cell, one in enumerate(counts.tolist())]))
    units = round(mu2 * UNITS_PER_ONE)
    noisy = measured.noise(units).perturb(np.array(exact), SimulationStream(seed)).tolist()
    (cell,) = estimates(query, measured, noisy, units, CONFIDENCE)
    least, most = exact_quantiles(codes, level)
    unit = float(column.unit)
    ends = ((column.first + least) * unit, (column.first + most) * unit)
    return AnsweredQuestion(column, shape, level, width, mu2, *ends, cell.estimate)


def exact_quantiles(codes, level):
    """The least and the largest code that is a quantile."""
    ordered, at = np.sort(codes), level * len(codes)
    nearest = round(at)
    if math.isclose(at, nearest, abs_tol=1e-9):
        return int(ordered[nearest - 1]), int(ordered[min(nearest, len(codes) - 1)])
    return (int(ordered[math.floor(at)]),) * 2


def groups_of(answered):
    """All questions, and those with one thing in common that does not favour a side."""
    groups = defaultdict(list)
    for one in answered:
        groups["all"].append(one)
        groups[one.shape].append(one)
        groups[one.bins].append(one)
        groups[one.column.kind.value].append(one)
        groups[f"mu2 near 1e{round(math.log10(one.mu2)):+d}"].append(one)
        groups["middle levels" if 0.3 < one.level < 0.7 else "outer levels"].append(one)
    return groups


def bias_in_standard_errors(answered):
    errors = np.array([one.error for one in answered])
    spread = errors.std() / math.sqrt(len(errors))
    return errors.mean() / spread if spread else 0.0


def check_questions(answered):
    for name, group in groups_of(answered).items():
        assert abs(bias_in_standard_errors(group)) <= LARGEST_BIAS, name
        tolerance = 0.0 if len(group) >= FULL else 3 * math.sqrt(0.94 * 0.06 / len(group))
        assert np.mean([one.is_covered for one in group]) >= LEAST_COVERAGE - tolerance, name
    for one in answered:
        unit, (low, high) = one.column.unit, one.column.possible
        assert low <= one.estimate.low <= one.estimate.value <= one.estimate.high <= high
        code = one.estimate.value / float(unit)
        assert abs(code - round(code)) < 1e-6  # a value of the domain
        assert one.estimate.standard_error > 0


def test_random_quantiles_are_unbiased_and_covered():
    check_questions(ask_random_questions(QUICK, seed=1))


def test_ten_thousand_random_quantiles_are_unbiased_and_covered():
    check_questions(ask_random_questions(FULL, seed=2))


# Planted faults


def interpolated(query, measured, counts, sigma, confidence):
    """The estimator before: the code k is spread over [k, k + 1), and the first crossing counts."""
    grouping = measured.question.by[0]
    column = measured.question.data.column(grouping.column)
    edges = [float(code * column.unit) for code in (column.first, *grouping.cuts, column.last)]
    bins, factor = len(counts), half_width_factor(confidence)
    below, cells = np.concatenate([[0.0], np.cumsum(counts)]), []
    for level in query.levels:
        t = below - level * below[-1]
        at = np.arange(bins + 1)
        errors = sigma * np.sqrt(at * (1 - level) ** 2 + (bins - at) * level**2)
        low = next((j for j in range(1, bins) if t[j] >= -factor * errors[j]), bins) - 1
        high = next((j for j in range(bins - 1, 0, -1) if t[j] <= factor * errors[j]), 0) + 1
        risen, value = np.maximum.accumulate(t), edges[-1]
        for j in range(1, bins + 1):
            if risen[j] >= 0:
                before = min(risen[j - 1], 0.0)
                value = edges[j - 1] - before / (risen[j] - before or 1.0) * (edges[j] - edges[j - 1])
                break
        error = max(edges[high] - edges[low], float(column.unit)) / (2 * factor)
        cells.append(Cell((level,), Estimate(value, error, min(edges[low], value), max(edges[high], value))))
    return cells


def test_planted_codes_that_are_spread_over_their_step_are_caught(monkeypatch):
    monkeypatch.setitem(quantile.KIND.__dict__, "estimates", interpolated)
    answered = ask_random_questions(QUICK, seed=1)
    assert bias_in_standard_errors(answered) > LARGEST_BIAS


def test_planted_intervals_of_a_quarter_of_the_width_are_caught(monkeypatch):
    monkeypatch.setattr(
        quantile, "half_width_factor", lambda confidence: 0.25 * half_width_factor(confidence)
    )
    answered = ask_random_questions(QUICK, seed=1)
    assert np.mean([one.is_covered for one in answered]) < LEAST_COVERAGE


# One question


def days(counts, levels, mu2, seed=None, bins=256):
    """The estimates of quantiles of days, of which so many rows have 0, 1, 2, ..."""
    column = Column("days", Kind.INTEGER, low=0, high=len(counts) - 1)
    data = DataSet("d", "1", (column,), BUDGET, REPLACE, sum(counts))
    query = tree.quantile("days", levels, bins=bins)
    measured = plan(resolve(query, data))
    exact = measured.vector(Tallied(data, [(cell, one, 0, 0) for cell, one in enumerate(counts)]))
    units = round(mu2 * UNITS_PER_ONE)
    if seed is not None:
        exact = measured.noise(units).perturb(np.array(exact), SimulationStream(seed)).tolist()
    return [cell.estimate for cell in estimates(query, measured, exact, units, CONFIDENCE)]


def test_the_median_of_days_is_a_day():
    """As told: a true 3 was answered with 3.79, at any budget."""
    counts = [300, 500, 400, 2500, 800, 300, 200, 100, 50, 50]
    for seed in range(20):
        (median,) = days(counts, [0.5], 1.0, seed)
        assert (median.value, median.low, median.high) == (3.0, 3.0, 3.0)
        assert median.standard_error == pytest.approx(0.5 / half_width_factor(CONFIDENCE))


def bias_of_flat_median():
    """The bias of the median of 200 equal counts that drown in noise, in standard errors."""
    errors = np.array([days([5] * 200, [0.5], 0.002, seed)[0].value - 99.5 for seed in range(300)])
    return errors.mean() / (errors.std() / math.sqrt(len(errors)))


def test_neither_side_is_preferred_where_noise_is_large(monkeypatch):
    assert abs(bias_of_flat_median()) <= LARGEST_BIAS
    monkeypatch.setattr(quantile, "fit_rising", np.maximum.accumulate)  # planted: the first crossing counts
    assert bias_of_flat_median() < -LARGEST_BIAS


def test_a_share_that_ends_at_an_edge_leaves_both_sides_possible():
    """Half of the rows are 0 and half are 4: every code from 0 to 4 is a median."""
    (median,) = days([50, 0, 0, 0, 50], [0.5], 100.0)
    assert 0 <= median.value <= 4
    assert (median.low, median.high) == (0.0, 4.0)


def test_codes_of_a_wide_bin_are_taken_to_have_equal_rows():
    found = [one.value for one in days([1] * 100, [0.01, 0.1, 0.11, 0.5, 0.995], 1e6, bins=4)]
    assert found == [0.0, 9.0, 10.0, 49.0, 99.0]


def test_the_rising_fit_is_that_of_least_squares():
    rng = np.random.default_rng(5)
    for _ in range(50):
        values = rng.normal(np.arange(12) / 4, 1.0)
        fitted = np.array(quantile.fit_rising(values.tolist()))
        assert (np.diff(fitted) >= 0).all()
        assert fitted.sum() == pytest.approx(values.sum())
        mirrored = -np.array(quantile.fit_rising((-values[::-1]).tolist()))[::-1]
        assert fitted == pytest.approx(mirrored)  # neither direction is preferred
        rising = np.sort(rng.normal(1.5, 2.0, (200, 12)), axis=1)
        assert ((rising - values) ** 2).sum(axis=1).min() >= ((fitted - values) ** 2).sum()
