"""Fourier sums are the matrix's sums to 1e-10, and nothing of them is negative, zero or NaN."""

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.mechanisms.location import ElasticChannel, blahut_arimoto
from reticent.spaces import FiniteSpace, Grid, kernel, kernels

SHAPES = [(1, 1), (1, 40), (40, 1), (2, 2), (7, 5), (16, 24), (31, 33)]
WEIGHTS = {
    "near": lambda d: np.exp(-0.05 * d),
    "usual": lambda d: np.exp(-0.7 * d),
    "huge beta": lambda d: np.exp(-60.0 * d),
    "none": lambda d: np.exp(-0.0 * d),
    "farther": lambda d: d * np.exp(-0.7 * d),
}


def vectors(grid, seed=0):
    rng = np.random.default_rng(seed)
    single = np.zeros(grid.size)
    single[grid.size // 3] = 1.0
    return [
        rng.dirichlet(np.ones(grid.size)),
        rng.dirichlet(np.full(grid.size, 0.01)),
        single,
        np.where(rng.random(grid.size) < 0.5, 0.0, rng.random(grid.size)),
        np.zeros(grid.size),
    ]


def worst(grid, weight):
    """The largest difference between the two forms."""
    dense, fourier = kernel(grid, weight, dense=True), kernel(grid, weight, dense=False)
    return max(float(np.abs(dense(one) - fourier(one)).max()) for one in vectors(grid))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weight", WEIGHTS)
def test_fourier_is_dense(shape, weight):
    assert worst(Grid(*shape, 1.5, 1.0), WEIGHTS[weight]) < 1e-10


def test_planted_a_sum_that_wraps_around_is_found(monkeypatch):
    """Without padding, the far border is near."""

    class Wrapped(kernels._Fourier):
        def __init__(self, grid, weight):
            from scipy import fft

            self._fft, self._shape, self._padded = fft, (grid.rows, grid.columns), (grid.rows, grid.columns)
            self._spectrum = fft.rfft2(weight(np.minimum(grid.offsets, grid.offsets[::-1, ::-1])))

    monkeypatch.setattr(kernels, "_Fourier", Wrapped)
    assert worst(Grid(7, 6, 1.0, 1.0), WEIGHTS["usual"]) > 1e-3


@pytest.mark.parametrize("shape", SHAPES[1:])
@pytest.mark.parametrize("beta", [0.0, 0.3, 5.0, 200.0])
def test_everything_built_on_it_is_guarded(shape, beta):
    """Prior in one cell, closed cells, huge beta: no NaN, nothing negative, rows that sum to one."""
    grid = Grid(*shape, 1.0, 1.0, closed=(0,))
    prior = np.zeros(grid.size)
    prior[-1] = 1.0
    channel = blahut_arimoto(grid, prior, beta, turns=20, dense=False)
    theta = np.where(grid.open, 1.0, 0.0) / grid.open.sum()
    for found in (
        channel.marginal,
        channel.normaliser,
        channel.forward(theta),
        channel.back(theta),
        channel.factors(theta, theta),
        channel.displacement,
        channel.staying,
    ):
        assert np.isfinite(found).all()
        assert found.min() >= 0.0
    assert channel.marginal[0] == 0.0
    assert channel.forward(theta).sum() == pytest.approx(1.0, abs=1e-9)


def test_the_guard_lifts_what_rounding_loses():
    """A sum far below rounding of the largest is some positive number, never zero or less."""
    grid = Grid(1, 3000, 1.0, 1.0)
    values = np.zeros(3000)
    values[0] = 1.0
    found = kernel(grid, lambda d: np.exp(-d))(values)
    assert found.min() == found.max() * 2.0**-53
    assert kernel(grid, lambda d: np.exp(-d))(np.zeros(3000)).tolist() == [0.0] * 3000


def test_large_grids_never_make_a_matrix(monkeypatch):
    monkeypatch.setattr(Grid, "matrix", property(lambda self: pytest.fail("n x n")))
    grid = Grid(40, 40, 1.0, 1.0)
    channel = ElasticChannel(grid, np.ones(grid.size), 0.5)
    assert channel.normaliser.size == channel.displacement.size == 1600


def test_the_result_goes_where_it_is_wanted():
    for dense in (True, False):
        grid, out = Grid(5, 6, 1.0, 1.0), np.empty(30)
        values = np.random.default_rng(1).random(30)
        sums = kernel(grid, WEIGHTS["usual"], dense=dense)
        assert sums(values, out) is out
        np.testing.assert_array_equal(out, sums(values))


def test_other_spaces_are_dense():
    space = FiniteSpace.of_points(np.arange(6.0)[:, None])
    assert kernel(space, WEIGHTS["usual"])(np.ones(6)).shape == (6,)
    with pytest.raises(ParameterError, match="dense must be true for a space that is neither a grid"):
        kernel(space, WEIGHTS["usual"], dense=False)
