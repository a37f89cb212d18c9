"""Grids: kilometres, total cells of points, closed cells, errors with field, rule and value."""

import decimal
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.errors import ParameterError
from reticent.spaces import Box, Grid

PARIS = Box(48.8286, 48.8798, 2.2855, 2.3909)


def great_circles_km(points):
    """Of every pair of points, on the sphere, by the haversine formula."""
    north, east = np.radians(points).T
    half = np.sin(np.subtract.outer(north, north) / 2) ** 2
    half += np.outer(np.cos(north), np.cos(north)) * np.sin(np.subtract.outer(east, east) / 2) ** 2
    return 2 * 6371.0088 * np.arcsin(np.sqrt(half))


@pytest.mark.parametrize(
    ("box", "short"),
    [
        (PARIS, 1e-7),
        (Box(37.5395, 37.7910, -122.5153, -122.3789), 2e-6),
        (Box(-1.0, 1.0, 10.0, 12.0), 1e-4),
        (Box(43.0, 51.0, -4.0, 8.0), 3e-3),
    ],
)
def test_kilometres_are_those_of_the_sphere(box, short):
    """And never more: every pair of cells of a city, of two degrees on the equator, of France."""
    grid = Grid.over(box, 3, 3)
    at = np.arange(3) + 0.5
    ground = great_circles_km(grid.degrees(at[:, None], at[None, :]).reshape(9, 2))
    assert (grid.matrix <= ground + 1e-9).all()
    np.testing.assert_allclose(grid.matrix, ground, rtol=short, atol=1e-9)


def test_the_documents_box_is_about_eight_by_six_kilometres():
    assert PARIS.width_km == pytest.approx(7.7, abs=0.1)
    assert PARIS.height_km == pytest.approx(5.7, abs=0.1)


def test_numbers_of_cells_and_their_distances():
    grid = Grid(3, 4, 2.0, 1.0)
    assert (grid.size, grid.shortest, grid.diameter) == (12, 1.0, 5.0)
    assert Grid(3, 1, 2.0, 1.0).shortest == 2.0
    assert Grid(1, 1, 2.0, 1.0).shortest == math.inf
    assert grid.centres[7].tolist() == [3.0, 2.0]
    straight = np.sqrt(np.square(grid.centres[:, None] - grid.centres[None]).sum(axis=-1))
    np.testing.assert_allclose(grid.matrix, straight, rtol=1e-15)
    assert (grid.matrix == grid.matrix.T).all()
    assert grid.histogram([0, 7, 7]).tolist() == [1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]


# Cells of points


@pytest.fixture
def unit_grid():
    """Cells of about one degree: row = floor(latitude), column = floor(longitude - 10)."""
    return Grid.over(Box(0.0, 4.0, 10.0, 15.0), 4, 5)


def test_points_within(unit_grid):
    assert unit_grid.cells([0.0, 0.5, 3.99, 1.1], [10.0, 14.99, 12.5, 11.1]).tolist() == [0, 4, 17, 6]


def test_points_outside_belong_to_the_nearest_cell(unit_grid):
    """Swapped latitude and longitude, poles, where all longitudes are one, the other side of the world."""
    north = [-90.0, 4.0, 1e308, -math.inf, 12.5, 2.5, 2.0, -2.5, 2.0]
    east = [200.0, 15.0, -1e308, 7.0, 2.5, 9.9, 100.0, -167.5, 192.5]
    assert unit_grid.cells(north, east).tolist() == [2, 19, 17, 2, 15, 10, 19, 7, 17]


class Raises:
    """Nothing can be made of it."""

    def _no(self, *_):
        raise RuntimeError("no")

    __float__ = __int__ = __index__ = __str__ = __repr__ = __bool__ = __gt__ = __lt__ = __array__ = _no


def test_what_is_no_number_is_in_the_middle(unit_grid):
    middle = 2 * 5 + 2
    assert unit_grid.cells([math.nan], [math.nan]).tolist() == [middle]
    odd = [None, "north", decimal.Decimal("sNaN"), 1j, {}, object(), Raises()]
    assert unit_grid.cells(odd, odd).tolist() == [middle] * len(odd)
    assert unit_grid.cells([10**400, -(10**400)], [0.0, 0.0]).tolist() == [17, 2]
    assert unit_grid.cells([1.5, math.nan, 1.5], [math.inf, 10.5, -(10**400)]).tolist() == [middle] * 3
    assert unit_grid.cells(["1.5"], ["10.5"]).tolist() == [5]


def test_planted_a_partial_function_is_found(unit_grid, monkeypatch):
    monkeypatch.setattr("reticent.spaces.grid._numbers", lambda values: np.asarray(values, dtype=np.float64))
    with pytest.raises(TypeError):
        unit_grid.cells([None, {}], [1.0, 2.0])


def test_no_box_no_points():
    with pytest.raises(ParameterError, match="box must be given"):
        Grid(2, 2, 1.0, 1.0).cells([1.0], [1.0])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.data())
def test_closed_cells_give_way_to_the_nearest_open_one(rows, columns, data):
    closed = data.draw(st.sets(st.integers(0, rows * columns - 1), max_size=rows * columns - 1))
    grid = Grid.over(Box(40.0, 41.0, 1.0, 3.0), rows, columns, tuple(closed))
    points = grid.degrees(np.arange(rows)[:, None] + 0.5, np.arange(columns)[None, :] + 0.5)
    found = grid.cells(points[..., 0].reshape(-1), points[..., 1].reshape(-1))
    for place, cell in enumerate(found.tolist()):
        nearest = np.where(grid.open, grid.distances(place), np.inf).min()
        assert grid.open[cell]
        assert grid.distances(place)[cell] == nearest
        assert place in closed or cell == place


def test_many_closed_cells_take_no_time():
    """Not n x n: 40,000 cells, half of them closed."""
    grid = Grid.over(PARIS, 200, 200, tuple(range(20_000)))
    assert grid.cells([PARIS.south], [PARIS.west]).tolist() == [20_000]


BAD_BOXES = [
    ({"south": 86.0}, "south must be >= -85 and <= 85, got 86"),
    ({"west": -181.0}, "west must be >= -180 and <= 180, got -181"),
    ({"south": math.nan}, "south must be"),
    ({"north": 40.0, "south": 41.0}, "south must be < north, got 41 and 40"),
    ({"west": 3.0, "east": 3.0}, "west must be < east, got 3 and 3"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_BOXES)
def test_bad_boxes(changes, message):
    with pytest.raises(ParameterError, match=message):
        Box(**{"south": 40.0, "north": 41.0, "west": 2.0, "east": 3.0} | changes)


BAD_GRIDS = [
    ({"rows": 0}, "rows must be >= 1, got 0"),
    ({"columns": 2**40}, "columns must be <= 4194304"),
    ({"rows": 4096, "columns": 4096}, "rows x columns must be at most 4194304, got 16777216"),
    ({"height": 0.0}, "height must be >= 1e-06"),
    ({"width": math.inf}, "width must be"),
    ({"closed": (6,)}, "closed must be <= 5, got 6"),
    ({"closed": (0.5,)}, "closed must be a whole number"),
    ({"closed": tuple(range(6))}, "closed must leave at least one cell open"),
    ({"box": PARIS, "unit": "cell"}, "unit must be km over a box, got 'cell'"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_GRIDS)
def test_bad_grids(changes, message):
    with pytest.raises((ParameterError, TypeError), match=message):
        Grid(**{"rows": 2, "columns": 3, "height": 1.0, "width": 1.0} | changes)


# What cells do to distances


def farther(grid, rng, count=2000):
    """How much farther apart pairs of near points are as cells than as points, in km: the largest."""
    corners = rng.integers(0, [[grid.rows + 1], [grid.columns + 1]], size=(2, count))
    at, moved = (corners + rng.normal(size=corners.shape) * 1e-3 for _ in range(2))
    apart = np.hypot(*((at - moved) * [[grid.height], [grid.width]]))
    cells = [grid.cells(*grid.degrees(*one).T) for one in (at, moved)]
    return float((np.hypot(*(grid.centres[cells[0]] - grid.centres[cells[1]]).T) - apart).max())


@pytest.mark.parametrize("closed", [(), (7, 19), tuple(range(1, 19))])
def test_points_are_taken_no_farther_apart_than_the_jump(closed):
    grid = Grid.over(PARIS, 4, 5, closed)
    found = farther(grid, np.random.default_rng(1))
    assert found <= grid.jump
    assert found > 0.9 * grid.height  # planted: a cell's height, or less, would be no bound


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 7), (6, 1), (6, 7)])
def test_one_row_has_no_border_to_the_north(rows, columns):
    """The jump is exact: a diagonal, of the sides that have a border."""
    grid = Grid.over(PARIS, rows, columns)
    expected = math.hypot(grid.height * (rows > 1), grid.width * (columns > 1))
    assert expected <= grid.jump <= expected + 2e-9
    assert max(farther(grid, np.random.default_rng(1), 20_000), 0.0) == pytest.approx(
        grid.jump, rel=0.01, abs=1e-8
    )


def test_closed_cells_and_many_columns_are_refused():
    """Looking for the nearest open cell takes columns x columns numbers."""
    with pytest.raises(ParameterError, match="columns must be at most 4096 with closed cells, got 5000"):
        Grid.over(PARIS, 1, 5000, (0,))
