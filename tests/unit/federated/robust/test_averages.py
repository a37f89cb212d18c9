"""Averages are those of Python's fractions, halves rounded up, and hold against so many liars."""

import statistics
from fractions import Fraction
from math import floor

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.federated.robust import averages as module
from reticent.federated.robust import mean, median, trimmed_mean

HALF = Fraction(1, 2)


def rounded(value):
    return floor(value + HALF)


def columns(updates):
    return [[int(number) for number in column] for column in np.transpose(updates)]


@pytest.fixture(params=[1, 2, 3, 8, 9])
def updates(request):
    draw = np.random.default_rng(request.param)
    return draw.integers(-(1 << 25), 1 << 25, (request.param, 33), dtype=np.int32)


def test_mean(updates):
    assert mean(updates).tolist() == [rounded(Fraction(sum(one), len(one))) for one in columns(updates)]


def test_median(updates):
    assert median(updates).tolist() == [
        rounded(statistics.median([Fraction(number) for number in one])) for one in columns(updates)
    ]


@pytest.mark.parametrize("f", [0, 1, 4])
def test_trimmed_mean(updates, f):
    if len(updates) < 2 * f + 1:
        with pytest.raises(ParameterError, match=f"updates must be >= {2 * f + 1}"):
            trimmed_mean(updates, f)
        return
    inner = [sorted(one)[f : len(one) - f] for one in columns(updates)]
    assert trimmed_mean(updates, f).tolist() == [rounded(Fraction(sum(one), len(one))) for one in inner]


def test_nothing_is_changed_and_blocks_do_not_matter(updates, monkeypatch):
    before = updates.copy()
    wanted = [median(updates), trimmed_mean(updates, 0), mean(updates)]
    monkeypatch.setattr(module, "_COLUMNS", 5)
    found = [median(updates), trimmed_mean(updates, 0), mean(updates)]
    assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))
    assert np.array_equal(updates, before)


def test_halves_round_up_on_both_sides_of_zero():
    assert mean(np.array([[1, -1], [2, -2]], dtype=np.int32)).tolist() == [2, -1]


def test_liars_move_median_and_trimmed_mean_only_within_the_honest():
    honest = np.random.default_rng(7).integers(-100, 100, (7, 20)).astype(np.int32)
    for far in (-(1 << 25), 1 << 25):
        lying = np.vstack([honest, np.full((3, 20), far, dtype=np.int32)])
        for found in (median(lying), trimmed_mean(lying, 3)):
            assert (honest.min(axis=0) <= found).all()
            assert (found <= honest.max(axis=0)).all()
        assert (np.abs(mean(lying)) > 100).all(), "the mean does not"
