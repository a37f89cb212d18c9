"""Intervals hold the exact answer as often as they say, values are unbiased, cells are in order.

False alarms: 3e-7 for each coverage (5 standard errors of a proportion, one-sided) and each mean.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query import By, Column, DataSet, Kind
from reticent.query.estimates import estimates, spread, widest
from reticent.query.kinds.intervals import Cell, Estimate, Normal, half_width_factor, ratio
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.language.tree import Comparison
from reticent.query.measure import plan
from reticent.randomness import SimulationStream

from .tables import ADD, BUDGET, REPLACE, Tallied

TIMES = 3_000
STANDARD_ERRORS = 5.0
CONFIDENCE = 0.9

COLUMNS = (
    Column("pay", Kind.NUMBER, low=-50, high=350, step=0.5),
    Column("flag", Kind.BOOLEAN),
    Column("cell", Kind.INTEGER, low=1, high=TIMES),
    Column("age", Kind.INTEGER, low=0, high=119),
)
FLAG = Comparison("flag", "=", True)
CELLS = By("cell", bins=TIMES)


def declared(relation, rows):
    return DataSet("d", "1", COLUMNS, BUDGET, relation, rows if relation is REPLACE else None)


def sums_of(codes):
    return len(codes), int(codes.sum()), int((codes.astype(object) ** 2).sum()) if len(codes) else 0


def repeated(query, data, sums, units, *, seed=1, times=1):
    """Estimates of every cell, `times` over, from independent noise."""
    measured = plan(resolve(query, data))
    exact = measured.vector(Tallied(data, [(cell, *one) for cell, one in enumerate(sums)]))
    noisy = measured.noise(units).perturb(np.array(exact * times), SimulationStream(seed)).tolist()
    found = []
    for i in range(0, len(noisy), len(exact)):
        found += estimates(query, measured, noisy[i : i + len(exact)], units, CONFIDENCE)
    return [cell.estimate for cell in found]


def check_coverage(found, exact, *, close=False):
    """The share of intervals that hold the exact answer is what they say; `close`: and not more."""
    exact = np.broadcast_to(exact, len(found))
    tolerance = STANDARD_ERRORS * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / len(found))
    low, high = np.array([one.low for one in found]), np.array([one.high for one in found])
    covered = ((low <= exact) & (exact <= high)).mean()
    assert covered > CONFIDENCE - tolerance
    if close:
        assert covered < CONFIDENCE + tolerance
        middle, half = (low + high) / 2, 0.7 * (high - low) / 2  # planted: a spread 30 % too small
        assert (abs(exact - middle) <= half).mean() < CONFIDENCE - tolerance


def check_unbiased(found, exact):
    values, error = np.array([one.unbiased for one in found]), found[0].standard_error
    assert abs((values - exact).mean()) < STANDARD_ERRORS * error / math.sqrt(len(found))
    assert values.std() == pytest.approx(error, rel=STANDARD_ERRORS / math.sqrt(2 * len(found)))


def groups(size, rng, low=-100, high=700):
    """The codes of 3,000 groups of one size, of values anywhere in the range."""
    return [rng.integers(low, high + 1, size=size) for _ in range(TIMES)]


# Where the noise is normal: counts, sums, and what is divided by a public number


@pytest.mark.parametrize("relation", [REPLACE, ADD])
def test_counts_and_sums(relation):
    rng = np.random.default_rng(1)
    codes = groups(9, rng)
    data, units = declared(relation, 9 * TIMES), UNITS_PER_ONE // 10
    found = repeated(tree.total("pay", by=CELLS), data, [sums_of(one) for one in codes], units)
    exact = np.array([one.sum() / 2 for one in codes])
    check_coverage(found, exact, close=True)
    check_unbiased(found, exact)
    found = repeated(tree.histogram(CELLS), data, [(1000, 0, 0)] * TIMES, units)
    check_unbiased(found, 1000)
    check_coverage(found, 1000, close=True)
    found = repeated(tree.histogram(CELLS), data, [(2, 0, 0)] * TIMES, units)
    check_unbiased(found, 2)  # also where half of the noisy counts are negative
    check_coverage(found, 2)
    assert min(one.low for one in found) == 0.0
    assert all(one.low <= one.value <= one.high for one in found)
    assert any(not one.low <= one.unbiased <= one.high for one in found)  # planted: a value that is not cut


def test_answers_over_a_public_number_of_rows():
    rng = np.random.default_rng(2)
    codes = rng.integers(-100, 701, size=400)
    data, units = declared(REPLACE, 400), UNITS_PER_ONE // 10
    sums = [sums_of(codes)]
    for query, exact in (
        (tree.mean("pay"), codes.mean() / 2),
        (tree.total("pay"), codes.sum() / 2),
        (tree.proportion(Comparison("pay", ">=", 0)), len(codes) / 400),
    ):
        found = repeated(query, data, sums, units, times=TIMES)
        check_unbiased(found, exact)
        check_coverage(found, exact, close=query.kind != "proportion")  # which is cut at 1
    found = repeated(tree.variance("pay"), data, sums, units, times=TIMES)
    check_coverage(found, codes.var() / 4)
    assert np.mean([one.value for one in found]) == pytest.approx(codes.var() / 4, rel=0.05)


def test_a_mean_of_values_far_from_zero():
    """The sum is measured about the middle of the range: nothing is cut off, nothing is lost in a double."""
    column = Column("at", Kind.INTEGER, low=1_700_000_000, high=1_700_000_100)
    data = DataSet("d", "1", (column,), BUDGET, rows=10_000_000)
    n, total = 10_000_000, 10_000_000 * 1_700_000_033
    for query, exact in ((tree.mean("at"), total / n), (tree.total("at"), float(total))):
        found = repeated(query, data, [(n, total, 0)], UNITS_PER_ONE, times=TIMES)
        check_coverage(found, exact, close=True)
        check_unbiased(found, exact)


# Ratios of two noisy numbers


@pytest.mark.parametrize("relation", [REPLACE, ADD])
@pytest.mark.parametrize("size", [1, 3, 20, 100, 2000])
def test_the_mean_of_a_group_of_private_size(size, relation):
    """From groups that drown in noise (spread of the count: about 10) to ones that do not."""
    rng = np.random.default_rng(size)
    codes = groups(size, rng, low=300) if size < 10 else groups(size, rng)
    data, units = declared(relation, size * TIMES), 4 * UNITS_PER_ONE // 100
    found = repeated(tree.mean("pay", by=CELLS), data, [sums_of(one) for one in codes], units)
    check_coverage(found, np.array([one.mean() / 2 for one in codes]), close=size >= 2000)
    assert all(-50 <= one.low <= one.value <= one.high <= 350 for one in found)


@pytest.mark.parametrize("size", [1, 20, 2000])
def test_the_share_of_a_group_of_private_size(size):
    data, units = declared(ADD, None), 4 * UNITS_PER_ONE // 100
    ones = [cell % (size + 1) for cell in range(TIMES)]
    found = repeated(tree.proportion(FLAG, by=CELLS), data, [(size, one, 0) for one in ones], units)
    check_coverage(found, np.array(ones) / size)
    assert all(0 <= one.low <= one.value <= one.high <= 1 for one in found)


@pytest.mark.parametrize("relation", [REPLACE, ADD])
@pytest.mark.parametrize("size", [1, 20, 2000])
def test_the_variance_of_a_group_of_private_size(size, relation):
    rng = np.random.default_rng(size)
    codes = groups(size, rng)
    data, units = declared(relation, size * TIMES), 4 * UNITS_PER_ONE // 100
    found = repeated(tree.variance("pay", by=CELLS), data, [sums_of(one) for one in codes], units)
    check_coverage(found, np.array([one.var() / 4 for one in codes]))
    assert all(0 <= one.low <= one.high <= 200**2 for one in found)


@pytest.mark.parametrize(
    ("query", "ends"),
    [
        (tree.mean("pay", by=CELLS), (-50, 350)),
        (tree.proportion(FLAG, by=CELLS), (0, 1)),
        (tree.variance("pay", by=CELLS), (0, 200**2)),
    ],
)
def test_an_empty_group_is_answered_with_all_that_is_possible(query, ends):
    """There is no exact answer; as far as the noise tells the group may be empty, and nothing is excluded."""
    found = repeated(query, declared(ADD, None), [], UNITS_PER_ONE)
    assert all(math.isfinite(one.value) and ends[0] <= one.low <= one.high <= ends[1] for one in found)
    everything = np.mean([(one.low, one.high) == ends for one in found])
    confidence = (1 + CONFIDENCE) / 2  # one-sided
    assert everything > confidence - STANDARD_ERRORS * math.sqrt(confidence * (1 - confidence) / TIMES)


# Quantiles


@pytest.mark.parametrize("mu2", [0.001, 0.01, 0.1])
def test_quantiles(mu2):
    """Whatever the noise hides: the exact quantile lies between the edges that are named."""
    rng = np.random.default_rng(3)
    ages = np.clip(rng.normal(45, 18, size=500), 0, 119).astype(int)
    levels = (0.05, 0.5, 0.9)
    query = tree.quantile("age", levels, bins=24)
    counts = np.bincount(ages // 5, minlength=24)
    found = repeated(
        query,
        declared(REPLACE, 500),
        [(count, 0, 0) for count in counts.tolist()],
        round(mu2 * 1e12),
        times=1000,
    )
    for place, level in enumerate(levels):
        exact = np.sort(ages)[math.ceil(level * 500) - 1]
        check_coverage(found[place::3], exact)
        assert all(0 <= one.low <= one.value <= one.high <= 119 for one in found[place::3])


def test_quantiles_without_noise_are_those_of_the_bins():
    counts = [10, 0, 30, 60]
    query = tree.quantile("age", (0.05, 0.1, 0.25, 0.7, 0.999), bins=4)
    data = declared(REPLACE, 100)
    measured = plan(resolve(query, data))
    exact = measured.vector(Tallied(data, [(cell, count, 0, 0) for cell, count in enumerate(counts)]))
    found = [cell.estimate.value for cell in estimates(query, measured, exact, 4 * 10**18, 0.9)]
    assert found == [14.0, 29.0, 74.0, 104.0, 119.0]  # the least ages that these shares reach


# Order and names of cells


def test_cells_come_in_the_order_of_the_query():
    columns = (
        Column("b", Kind.CATEGORY, values=("x", "y", "z")),
        Column("a", Kind.BOOLEAN),
        Column("c", Kind.INTEGER, low=0, high=99),
    )
    data = DataSet("d", "1", columns, BUDGET, rows=100)
    ways = {"a": By("a"), "b": By("b"), "c": By("c", edges=(10, 50))}
    labels = {"a": (False, True), "b": ("x", "y", "z"), "c": ("0 to 10", "10 to 50", "50 to 99")}
    shown = {}
    for order in itertools.permutations("abc"):
        query = tree.histogram([ways[name] for name in order])
        measured = plan(resolve(query, data))
        exact = [cell << measured.shift for cell in range(18)]
        cells = estimates(query, measured, exact, UNITS_PER_ONE, 0.9)
        assert [cell.labels for cell in cells] == list(itertools.product(*(labels[name] for name in order)))
        for cell in cells:
            named = frozenset(zip(order, cell.labels, strict=True))
            assert shown.setdefault(named, cell.estimate.value) == cell.estimate.value
    # Brute force: the groupings are digits in the order of their columns' names, the last one fastest.
    for number, parts in enumerate(itertools.product(*(labels[name] for name in "abc"))):
        assert shown[frozenset(zip("abc", parts, strict=True))] == number


def test_the_spread_is_that_of_the_noise():
    data = declared(REPLACE, 100)
    measured = plan(resolve(tree.mean("pay", by="flag"), data))
    for units in (1, 10**9, UNITS_PER_ONE):
        assert spread(measured, units) == measured.noise(units).sigma


def test_small_things():
    assert half_width_factor(0.95) == pytest.approx(1.959963984540054)
    cells = [Cell((), Estimate(0.0, 1.0, -1.0, 1.0)), Cell((), Estimate(0.0, 1.0, -1.0, 4.0))]
    assert widest(cells) == 2.5


OFF = Column("pay", Kind.NUMBER, low=3, high=5.5, step=2.5)  # its grid is 2.5 and 5


def within(found, low, high):
    return all(low <= one.low <= one.value <= one.high <= high for one in found)


@pytest.mark.parametrize("query", [tree.mean("pay"), tree.mean("pay", where=FLAG), tree.median("pay")])
def test_intervals_lie_within_bounds_that_are_no_steps(query, monkeypatch):
    data = DataSet("d", "1", (OFF, *COLUMNS[1:]), BUDGET, ADD, None)
    assert within(repeated(query, data, [(20, 20, 20)], 10**9, times=20), 3, 5.5)
    grid = (float(OFF.first * OFF.unit), float(OFF.last * OFF.unit))
    monkeypatch.setattr(Column, "possible", grid)  # planted: as the grid has it
    assert not within(repeated(query, data, [(20, 20, 20)], 10**9, times=20), 3, 5.5)


def test_a_sum_of_what_is_never_negative_is_not_negative():
    data = declared(ADD, None)
    found = repeated(tree.total("age"), data, [(0, 0, 0)], 10**9, times=20)
    assert within(found, 0, math.inf)
    assert any(one.unbiased < 0 for one in found)  # the noise alone would say so
    public = repeated(tree.total("age", where=FLAG), declared(REPLACE, 5), [(5, 300, 0)], 10**6, times=20)
    assert within(public, 0, 5 * 119)
    assert any(one.unbiased > 5 * 119 for one in public)


def test_an_interval_holds_its_answer_where_nothing_is_uncertain():
    """Roots of doubles: without noise both ends could be a last digit away from the answer."""
    rng = np.random.default_rng(1)
    for top, bottom in rng.uniform(-1, 1, (500, 2)) * 10.0 ** rng.integers(-3, 9, (500, 1)):
        found = ratio(Normal(top, 0.0), Normal(abs(bottom), 0.0), 40.0, 1.96)
        assert found.low <= found.value <= found.high
