"""Exact discrete draws: right frequencies, and nothing possible becomes impossible."""

from bisect import bisect_right
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.errors import ParameterError, ParameterTypeError
from reticent.randomness import LATTICE, SimulationStream, Stream, bernoulli, categorical, uniform_below
from reticent.randomness.draws import _by_long_edges


def chi_square_z(counts, probabilities):
    """Standardised chi-square; |z| < 6 has a false-alarm rate below 1e-6 for a few cells."""
    expected = counts.sum() * np.asarray(probabilities)
    return ((counts - expected) ** 2 / expected).sum() - len(counts) + 1, np.sqrt(2 * (len(counts) - 1))


def test_bernoulli_has_its_frequency_and_its_edges():
    rng = SimulationStream(1)
    hits = bernoulli(LATTICE // 4, 200_000, rng).mean()
    assert abs(hits - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 200_000)
    assert not bernoulli(0, 1000, rng).any()
    assert bernoulli(LATTICE, 1000, rng).all()


def test_the_frequency_check_can_fail():
    hits = bernoulli(int(LATTICE * 0.26), 200_000, SimulationStream(1)).mean()
    assert abs(hits - 0.25) > 5 * np.sqrt(0.25 * 0.75 / 200_000)


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 1000])
def test_uniform_below_is_uniform(bound):
    draws = uniform_below(bound, 100_000, SimulationStream(2))
    counts = np.bincount(draws, minlength=bound)
    assert counts.size == bound
    if bound > 1:
        excess, scale = chi_square_z(counts, np.full(bound, 1 / bound))
        assert abs(excess) < 6 * scale + 12


def test_categorical_follows_integer_weights():
    counts = np.bincount(categorical([1, 2, 0, 5], 80_000, SimulationStream(3)), minlength=4)
    assert counts[2] == 0
    excess, scale = chi_square_z(counts[[0, 1, 3]], [1 / 8, 2 / 8, 5 / 8])
    assert excess < 6 * scale + 12


def test_a_weight_far_below_2_to_minus_64_keeps_its_place():
    """Weights of 300 bits are drawn exactly: the rare index is a real interval, not a rounded-away one."""
    rare, common = 1 << 200, 1 << 201
    counts = np.bincount(categorical([rare, 1, common], 3000, SimulationStream(4)), minlength=3)
    assert counts[1] <= 1
    assert abs(counts[0] / 3000 - 1 / 3) < 5 * np.sqrt(2 / 9 / 3000)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bernoulli(-1, 5), "count must be >= 0, got -1"),
        (lambda: bernoulli(LATTICE + 1, 5), "count must be <="),
        (lambda: uniform_below(0, 5), "bound must be >= 1, got 0"),
        (lambda: categorical([0, 0], 5), "weights must hold at least one positive weight"),
        (lambda: categorical([1, -2], 5), r"weights\[1\] must be >= 0, got -2"),
    ],
)
def test_bad_parameters(call, message):
    with pytest.raises(ParameterError, match=message):
        call()


def test_floats_are_no_weights():
    with pytest.raises(ParameterTypeError, match=r"weights\[0\] must be a whole number, got 0.5"):
        categorical([0.5, 0.5], 5)


# Totals of any length, against a uniform number of as many bits as it takes


class Written(Stream):
    """A uniform number in [0, 1) whose bits are known, 64 at a time; zeros after them."""

    def __init__(self, number, words):
        self._left = [number >> 64 * (words - 1 - place) & (1 << 64) - 1 for place in range(words)]

    def _take(self):
        raise NotImplementedError

    def _give_back(self, held):
        raise NotImplementedError

    def words(self, count):
        return np.array([self._left.pop(0) if self._left else 0 for _ in range(count)], dtype=np.uint64)


WORDS = 8


def misplaced(weights, draw=categorical):
    """How many numbers at, just below and just above an edge get another index than they should have."""
    edges, found = list(accumulate(weights)), 0
    for edge in [0, *edges]:
        at = (edge << 64 * WORDS) // edges[-1]
        for number in (at - 1, at, at + 1, at + (1 << 64 * (WORDS - 1)), at - (1 << 64 * (WORDS - 1))):
            if 0 <= number < 1 << 64 * WORDS:
                right = bisect_right(edges, number * edges[-1] >> 64 * WORDS)
                found += int(draw(weights, 1, Written(number, WORDS))[0]) != right
    return found


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2**200), min_size=1, max_size=6), st.integers(0, 3))
def test_long_totals_are_drawn_exactly(weights, zeros):
    """By enumeration of the edges: the index of a number is that of the exact law, to 512 bits."""
    weights = [*weights, 2**100, *[0] * zeros, 1, *[0] * zeros]
    assert misplaced(weights) == 0


def test_planted_64_bit_thresholds_are_found():
    def cut(weights, size, rng):
        edges = list(accumulate(weights))
        thresholds = np.array(
            [min((edge << 64) // edges[-1], 2**64 - 1) for edge in edges[:-1]], dtype=np.uint64
        )
        return np.searchsorted(thresholds, rng.words(size), side="right")

    weights = [2**150, 1, 3, 2**151]
    assert misplaced(weights) == 0
    assert misplaced(weights, cut) > 0


def test_the_short_and_the_long_way_have_one_law():
    """20,000 draws each by the same weights. False alarm: |z| > 6 at about 2e-9, by seeded streams."""
    weights = [1, 2, 0, 5]
    edges = list(accumulate(weights))
    counts = np.bincount(_by_long_edges(edges, 8, 20_000, SimulationStream(9)), minlength=4)
    assert counts[2] == 0
    excess, scale = chi_square_z(counts[[0, 1, 3]], [1 / 8, 2 / 8, 5 / 8])
    assert excess < 6 * scale + 12
