"""Planar Laplace noise on a grid: its integrals by other means, and the level that was asked for."""

import math

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.mechanisms.location import planar_laplace
from reticent.privacy import MetricDP
from reticent.spaces import Grid

from .exactly import chi_square, losses


def share(level, north, east, height, width):
    """The mass of one cell whose centre lies so far off, by adaptive quadrature."""
    from scipy.integrate import dblquad

    return dblquad(
        lambda y, x: level**2 / (2 * math.pi) * math.exp(-level * math.hypot(x, y)),
        east - width / 2,
        east + width / 2,
        north - height / 2,
        north + height / 2,
        epsabs=1e-13,
        epsrel=1e-10,
    )[0]


@pytest.mark.parametrize(("level", "height", "width"), [(0.9, 1.0, 1.0), (3.0, 0.5, 1.5), (0.2, 1.0, 2.0)])
def test_inner_cells_are_integrals_of_the_density(level, height, width):
    channel = planar_laplace(Grid(7, 7, height, width), level)
    for row, column in ((0, 1), (1, 1), (2, 0), (-2, 2)):
        place = (3 + row) * 7 + 3 + column
        assert channel.matrix[24, place] == pytest.approx(
            share(level, row * height, column * width, height, width), rel=1e-5
        )
    quarters = sum(
        share(level, a * height / 4, b * width / 4, height / 2, width / 2) for a in (1, -1) for b in (1, -1)
    )
    assert channel.matrix[24, 24] == pytest.approx(quarters, rel=1e-5)


def noisy_points(level, reports, seed=0):
    """Drawn in the plane: the radius has a gamma law."""
    rng = np.random.default_rng(seed)
    radius, angle = rng.gamma(2.0, 1.0 / level, reports), rng.uniform(0, 2 * math.pi, reports)
    return radius * np.sin(angle), radius * np.cos(angle)


def odds(channel, grid, place, level):
    north, east = noisy_points(level, 200_000)
    row, column = divmod(place, grid.columns)
    rows = np.clip(np.rint(row + north / grid.height), 0, grid.rows - 1)
    columns = np.clip(np.rint(column + east / grid.width), 0, grid.columns - 1)
    counts = np.bincount((rows * grid.columns + columns).astype(int), minlength=grid.size)
    return chi_square(counts, channel.probabilities(place))


@pytest.mark.parametrize("place", [0, 8, 14])
def test_points_of_the_plane_fall_by_its_law(place):
    """200,000 points remapped to the nearest cell. False alarm: 1e-7 each; seeded."""
    grid = Grid(3, 5, 1.2, 0.8)
    assert odds(planar_laplace(grid, 0.9), grid, place, 0.9) > 1e-7
    assert odds(planar_laplace(grid, 1.0), grid, place, 0.9) < 1e-7  # planted


def test_it_is_qifs_where_qif_integrates_whole_cells():
    """Inside; qif's border cells do not hold what lies behind them, and its rows do not sum to one."""
    qif = pytest.importorskip("qif")
    theirs = np.asarray(qif.mechanism.geo_ind.planar_laplace_grid(9, 9, 1.0, 0.9))
    ours = planar_laplace(Grid(9, 9, 1.0, 1.0), 0.9).matrix
    inner = [row * 9 + column for row in (3, 4, 5) for column in (3, 4, 5) if (row, column) != (4, 4)]
    np.testing.assert_allclose(ours[40, inner], theirs[40, inner], rtol=1e-3)


SPACES = [
    (Grid(4, 5, 1.0, 1.0), 0.9),
    (Grid(4, 5, 0.3, 2.0), 5.0),
    (Grid(1, 300, 1.0, 1.0), 0.5),
    (Grid(1, 60, 0.5, 0.5), 0.5),
    (Grid(15, 15, 0.3, 0.3), 1.0),
    (Grid(3, 3, 5.0, 5.0), 2.0),
]


@pytest.mark.parametrize(("grid", "level"), SPACES)
def test_the_level_is_what_was_asked(grid, level):
    """Worked out from the table pair by pair; the noise of the plane keeps it, whatever is remapped."""
    channel = planar_laplace(grid, level)
    assert channel.level <= level * (1.0 + 1e-9)
    np.testing.assert_allclose(channel.matrix.sum(axis=1), 1.0, rtol=1e-12)
    if grid.size <= 20:
        assert losses(channel) == 0


def test_planted_without_what_lies_beyond_the_grid_the_level_is_found_out(monkeypatch):
    """A window that ends where the noise of the nearest does: a far border cell would tell."""
    whole = planar_laplace.__globals__["_folded"]

    def cut(grid, quarter):
        return whole(grid, np.where(np.arange(quarter.shape[1]) < grid.columns, quarter, 0.0))

    monkeypatch.setitem(planar_laplace.__globals__, "_folded", cut)
    assert planar_laplace(Grid(1, 40, 1.0, 1.0), 0.5).level > 0.55


def test_sampling_and_sums():
    channel = planar_laplace(Grid(3, 4, 1.0, 1.0), 1.5)
    theta = np.full(12, 1 / 12)
    np.testing.assert_allclose(channel.forward(theta), theta @ channel.matrix)
    assert channel.sample([[0, 5], [11, 3]]).shape == (2, 2)
    assert channel.guarantee == MetricDP(channel.level, "km")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: planar_laplace(Grid(2, 2, 1.0, 1.0, closed=(0,)), 1.0), "must have no closed cells"),
        (lambda: planar_laplace(Grid(2, 2, 1.0, 1.0), 0.0), "level must be > 0"),
        (
            lambda: planar_laplace(Grid(2, 2, 1e-6, 1e-6), 1.0),
            r"level must be at least .* on this grid, got 1",
        ),
        (lambda: planar_laplace(Grid(40, 40, 1.0, 1.0), 1.0), "at most 1024 places, got 1600"),
        (lambda: planar_laplace(Grid(3, 3, 3e3, 3e3), 9.0), "some loss is infinite"),
    ],
)
def test_bad_parameters(call, message):
    with pytest.raises(ParameterError, match=message):
        call()
