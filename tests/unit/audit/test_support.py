"""Supports: exact for channels, by membership and by sets for callables."""

from fractions import Fraction

import numpy as np
import pytest

from reticent.audit import check_support, check_support_exact
from reticent.audit.planted.samplers import PiecewiseOnDoubles
from reticent.audit.planted.tables import Table
from reticent.mechanisms.numeric import HMTP, Duchi


def test_channels_have_one_support():
    found = check_support_exact(HMTP(epsilon=1.0))
    assert found.passed
    assert found.outputs == HMTP(epsilon=1.0).size


def test_alphabets_of_different_size_are_found():
    law = {True: [Fraction(1, 2)] * 2, False: [Fraction(1, 3)] * 3}
    assert not check_support_exact(Table(1.0, lambda x: law[x > 0], 3), inputs=[-1.0, 1.0]).passed


def test_piecewise_on_doubles_as_in_the_documents(rng):
    """At epsilon 1 one report excludes a wrong x for certain in 30-41 % of cases."""
    piecewise = PiecewiseOnDoubles(1.0, rng)
    found = check_support(piecewise, [0.1, 0.1001], epsilon=1.0, possible=piecewise.possible, outputs=20_000)
    assert not found.passed
    assert 0.25 < found.impossible / 20_000 < 0.5
    own = piecewise(0.1, 20_000)
    assert piecewise.possible(own, 0.1).all(), "the test never excludes the truth"


def test_sets_find_what_comes_from_one_input_only(rng):
    def leaky(value, size):
        return np.where(rng.units(size) - 1.0 < 0.01, 10 + value, 0)

    assert not check_support(leaky, [0, 1], epsilon=1.0, outputs=40_000).passed
    assert check_support(leaky, [0, 1], epsilon=8.0, outputs=4_000).passed, (
        "20 hits are within chance at epsilon 8"
    )


def test_nothing_is_said_about_large_alphabets_without_repeats(rng):
    found = check_support(
        lambda value, size: rng.words(size).view(np.int64), [0, 1], epsilon=1.0, outputs=5_000
    )
    assert found.passed


def test_false_alarms_stay_away(rng):
    duchi = Duchi(epsilon=4.0)
    for _ in range(50):
        assert check_support(
            lambda value, size: duchi.perturb(np.full(size, value), rng),
            [-1.0, 1.0],
            epsilon=4.0,
            outputs=300,
        ).passed


@pytest.mark.parametrize("columns", [1, 3])
def test_rows(columns, rng):
    def rows(value, size):
        noise = (rng.units(size * columns).reshape(size, columns) * 4).astype(int)
        noise[:, 0] = 2 * noise[:, 0] + value
        return noise

    assert not check_support(rows, [0, 1], epsilon=1.0, outputs=2_000).passed
