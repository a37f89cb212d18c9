"""Corners and forms against every row; fresh units of vectors; ratios whose parts share noise."""

from __future__ import annotations

import dataclasses
import math
import random
from fractions import Fraction

import numpy as np
import pytest

from reticent.query.kinds.base import Sums
from reticent.query.kinds.intervals import Normal, half_width_factor, ratio
from reticent.query.kinds.listed import Measured
from reticent.query.language import tree
from reticent.query.language.conditions import holds, resolve_condition
from reticent.query.span import Joint, combined_cells, is_combined
from reticent.query.span.corners import polynomial
from reticent.query.span.forms import forms

from .random_queries import predicate, query, random_schema
from .span_worlds import Dense, World, planned
from .test_span_planted import DATA, IN_A, OLD, PRIVATE, UNITS, WOMAN


def evaluated(found, codes):
    """A polynomial at every combination of codes."""
    size = next(iter(codes.values())).size
    steps = (
        times * np.prod([codes[column] >= least for column, least in corner], axis=0, initial=1)
        for corner, times in found.items()
    )
    return sum(steps, np.zeros(size, dtype=int))


def test_polynomials_are_conditions_and_equal_for_equal_ones():
    for seed in range(40):
        rng = random.Random(seed)
        declared = random_schema(rng)
        data = declared.data()
        codes = World(data, seed).codes
        seen = {}
        for _ in range(12):
            condition = resolve_condition(predicate(rng, declared, 3), data)
            found = polynomial(condition, data)
            rows = holds(condition, codes)
            assert (evaluated(found, codes) == rows).all()
            assert seen.setdefault(rows.tobytes(), found) == found


@pytest.mark.parametrize("data", [DATA, PRIVATE], ids=["replace", "add or remove"])
def test_forms_are_what_is_measured(data):
    """Every measure is linear, and its form with the sums of the rows gives the exact vector."""
    world, seen = World(data, 3), set()
    asked = [make(column, where=where) for make in (tree.total, tree.mean, tree.variance)
             for column in ("age", "large") for where in (None, OLD)]  # fmt: skip
    asked += [tree.count(where=OLD), tree.proportion(WOMAN, where=IN_A), tree.histogram("area")]
    for prepared in (planned(one, data) for one in asked):
        seen.add(prepared.question.measured.name)
        right = world.exact(prepared)
        for form, one in zip(forms(prepared), right, strict=True):
            total = Fraction(form.constant)
            for (power, column, _, corner), times in form.terms.items():
                rows = np.prod([world.codes[name] >= least for name, least in corner], axis=0, initial=1)
                x = world.codes[column].astype(object) ** -power if column else 1
                total += times * int((rows * x * world.numbers).sum())
            assert float(form.scale * total) == pytest.approx(one, rel=1e-12, abs=1e-6)
    assert seen == {one.name for one in Measured} - ({"squares"} if data is PRIVATE else set())


def test_every_measure_is_linear():
    rng = random.Random(1)
    for make in (tree.total, tree.mean, tree.variance):
        for where in (None, OLD):
            prepared = dataclasses.replace(planned(make("age", where=where), DATA), shift=2)
            measure = prepared.question.measured.coordinates
            one, other = (Sums(*(rng.randrange(10**6) for _ in range(3))) for _ in range(2))
            both = Sums(*(a + b for a, b in zip(one, other, strict=True)))
            parts = zip(measure(prepared, one), measure(prepared, other), strict=True)
            assert measure(prepared, both) == [a + b for a, b in parts]


def test_a_vector_buys_what_is_missing_and_no_more():
    """The least units at which dense least squares finds every cell as exact as promised."""
    bought = 0
    for seed in range(12):
        rng = random.Random(seed)
        declared = random_schema(rng)
        data = declared.data()
        world, found = World(data, seed), Joint(data)
        for _ in range(6):
            prepared = planned(query(rng, declared), data)
            if 1 < prepared.values <= 20 and prepared.coordinates == 1 and found._purchases:
                wanted = 10**11
                units = found.fresh(prepared, wanted)
                if 10**6 < units < 0.98 * wanted:
                    bought += 1
                    for part, enough in ((1.0, True), (0.98, False)):
                        dense = Dense(world)
                        dense.update(found)
                        reading = world.bought(prepared, None, int(units * part))
                        dense._readings[prepared.question.key] = prepared, reading
                        worst = min(information for _, information in dense.best(prepared))
                        assert (worst >= wanted * (1 - 1e-6)) == enough
            if prepared.question.key not in found._purchases and prepared.values <= 20:
                found.record(prepared, world.bought(prepared, None, 3 * 10**10))
    assert bought >= 3


# Ratios


def covered(covariance, claimed, draws=4000):
    """How often the interval of a ratio of two normals holds the truth."""
    rng, factor = np.random.default_rng(5), half_width_factor(0.95)
    drawn = rng.multivariate_normal([40.0, 100.0], [[25.0, covariance], [covariance, 25.0]], draws)
    found = (ratio(Normal(a, 5.0), Normal(b, 5.0), 10.0, factor, claimed) for a, b in drawn)
    return sum(one.low <= 0.4 <= one.high for one in found) / draws


def test_the_interval_of_a_ratio_under_covariance():
    # 5.5 standard errors of a share of 95 % in 4,000 draws: false alarms 4e-8
    far = 5.5 * math.sqrt(0.95 * 0.05 / 4000)
    assert covered(-20.0, -20.0) == pytest.approx(0.95, abs=far)
    assert covered(20.0, 20.0) == pytest.approx(0.95, abs=far)
    assert covered(-20.0, 0.0) < 0.95 - far  # planted: the covariance forgotten


@pytest.mark.parametrize("data", [DATA, PRIVATE], ids=["replace", "add or remove"])
def test_a_mean_from_a_sum_and_a_count(data):
    world, found = World(data, 1), Joint(data)
    for one in (tree.total("age", where=IN_A), tree.count(where=IN_A)):
        prepared = planned(one, data)
        found.record(prepared, world.bought(prepared, None, 10**6 * UNITS))
    asked = tree.mean("age", where=IN_A)
    prepared = planned(asked, data)
    assert is_combined(asked, prepared)
    (cell,) = combined_cells(asked, prepared, found.estimates(prepared), 0.95)
    rows = (world.codes["area"] == 0) * world.numbers
    right = float((rows * world.codes["age"]).sum() / rows.sum())
    assert cell.estimate.value == pytest.approx(right, abs=5.5 * cell.estimate.standard_error)
    assert cell.estimate.low < right < cell.estimate.high


def test_variances_and_quantiles_keep_to_their_keys():
    for one in (tree.variance("age", where=IN_A), tree.variance("age"), tree.median("age")):
        assert not is_combined(one, planned(one, DATA))
