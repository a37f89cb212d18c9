"""Updates on a public grid: what is not so is refused by name, what is placed there always is so."""

import math

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.federated.robust import Grid
from reticent.federated.robust.grid import MOST_NORM

GRID = Grid(4, 100, 1000, floor=10)
GOOD = np.array([1, -2, 30, 400], dtype=np.int32)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, ">i4"])
def test_whole_numbers_of_any_width_are_the_same_update(dtype):
    given = np.array([1, 2, 30, 40]).astype(dtype)
    found = GRID.checked(given)
    assert found.dtype == np.int32
    assert found.tolist() == [1, 2, 30, 40]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([1, 2, 3, 4], "must be an array, got list"),
        (None, "must be an array, got NoneType"),
        (GOOD[:3], r"must have shape \(4,\), got \(3,\)"),
        (GOOD.reshape(2, 2), r"must have shape \(4,\), got \(2, 2\)"),
        (np.zeros((4, 0), dtype=np.int32), "must have shape"),
        (np.array([1.0, np.nan, 0, 0]), "must be finite"),
        (np.array([1.0, np.inf, 0, 0]), "must be finite"),
        (np.array([1.0, 1e200, 0, 0]), "must hold whole numbers of grid steps, got float64"),
        (GOOD.astype(np.float64), "must hold whole numbers of grid steps, got float64"),
        (GOOD > 0, "must hold whole numbers of grid steps, got bool"),
        (GOOD.astype(object), "must hold whole numbers"),
        (GOOD.astype(complex), "must hold whole numbers"),
        (np.array([0, 0, 0, 1001]), "must have a norm of at most 1000 grid steps"),
        (np.array([0, 0, 0, -1001]), "must have a norm"),
        (np.array([0, 0, 1, 1000]), "must have a norm"),
        (np.array([0, 0, 0, 1 << 62]), "must have a norm"),
        (np.array([0, 0, 0, -(1 << 63)]), "must have a norm"),
        (np.array([0, 0, 0, (1 << 64) - 1], dtype=np.uint64), "must have a norm"),
    ],
)
def test_anything_else_is_refused_by_name(given, words):
    with pytest.raises(ParameterError, match=f"^update 7 {words}"):
        GRID.checked(given, name="update 7")


def test_the_norm_is_compared_exactly():
    """300^2 + 400^2 + 866^2 + 11^2 + ... on both sides of the limit, at the largest norm too."""
    grid = Grid(3, 1, MOST_NORM)
    edge = math.isqrt(MOST_NORM**2 - (1 << 40) - 1)
    assert grid.squared_norm(grid.checked(np.array([edge, 1 << 20, 1]))) <= MOST_NORM**2
    with pytest.raises(ParameterError, match="norm"):
        grid.checked(np.array([edge + 1, 1 << 20, 1]))


def test_a_sum_that_would_be_rounded_is_still_too_long():
    grid = Grid(1 << 17, 1, MOST_NORM)
    for value in (MOST_NORM, MOST_NORM - 1, 1 << 17):
        with pytest.raises(ParameterError, match="norm"):
            grid.checked(np.full(1 << 17, value, dtype=np.int32))


def test_planted_squares_in_32_bits_would_let_it_pass():
    long = np.full(1 << 19, 1 << 16, dtype=np.int32)
    assert int((long * long).sum()) <= MOST_NORM**2, "the squares wrap to zero"
    with pytest.raises(ParameterError, match="norm"):
        Grid(1 << 19, 1, MOST_NORM).checked(long)


def test_whatever_was_learnt_is_placed_on_the_grid():
    draw = np.random.default_rng(1)
    grid = Grid(50, 1000, 700)
    for scale in (0.0, 1e-320, 1e-3, 1e-2, 0.1, 1.0, 1e10, 1e300):
        for _ in range(50):
            given = scale * draw.normal(size=50)
            found = grid.checked(grid.placed(given))
            length = np.linalg.norm(given / scale) * scale if scale else 0.0
            if length * 1000 < 690:
                assert np.abs(grid.values(found) - given).max() <= 0.5 / 1000
            else:
                assert grid.squared_norm(found) > 600**2, "it is not shortened more than it must be"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308])
def test_placing_is_a_total_function(bad):
    given = np.array([1.0, bad, -1.0, bad])
    assert GRID.checked(GRID.placed(given)).shape == (4,)


def test_slight_updates_are_known():
    assert GRID.is_slight(GRID.checked(np.zeros(4, dtype=np.int64)))
    assert GRID.is_slight(GRID.checked(np.array([9, 1, 1, 1])))
    assert not GRID.is_slight(GRID.checked(np.array([10, 0, 0, 0])))


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((0, 1, 1), "dimensions"),
        ((1, 0, 1), "steps"),
        ((1, 1, (1 << 25) + 1), "norm"),
        ((1, 1, 1, 2), "floor"),
    ],
)
def test_a_grid_that_cannot_be(numbers, words):
    with pytest.raises(ParameterError, match=words):
        Grid(*numbers)
