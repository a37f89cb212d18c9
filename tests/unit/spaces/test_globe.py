"""T25: over the whole globe, cells are no farther apart than the ground and `Grid.jump` say.

Boxes anywhere, pairs of points at all scales from a millimetre to half the way around the world, most of them
where a map could tear: poles, the date line, the meridian and the point opposite the box, borders of cells.
Nothing here is random but the sample: an honest map fails never.
"""

import math

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.spaces import Box, Grid
from reticent.spaces.globe import RADIUS_KM, View

QUICK, FULL = (60, 600), (10_000, 10_000)  # boxes, pairs for each


def on_the_ground(a, b):
    """Great circles between points (latitudes, longitudes), in km: haversines, good to a micrometre."""
    (north, east), (south, west) = np.radians(a), np.radians(b)
    half = np.sin((north - south) / 2) ** 2 + np.cos(north) * np.cos(south) * np.sin((east - west) / 2) ** 2
    return 2 * RADIUS_KM * np.arcsin(np.sqrt(np.minimum(half, 1.0)))


def moved(points, km, bearing):
    """The points so many km away in a direction."""
    north, east, angle = np.radians(points[0]), np.radians(points[1]), km / RADIUS_KM
    sine = np.sin(north) * np.cos(angle) + np.cos(north) * np.sin(angle) * np.cos(bearing)
    there = np.arcsin(np.clip(sine, -1.0, 1.0))
    turned = np.arctan2(
        np.sin(bearing) * np.sin(angle) * np.cos(north), np.cos(angle) - np.sin(north) * np.sin(there)
    )
    return np.stack([np.degrees(there), (np.degrees(east + turned) + 180.0) % 360.0 - 180.0])


def random_box(rng):
    """Anywhere, of any size that is allowed: from a hundred metres to half a continent, and thin ones."""
    while True:
        tall, wide = 10.0 ** rng.uniform(-3.0, 1.7, size=2)
        middle, east = rng.uniform(-85.0, 85.0), rng.choice([rng.uniform(-180.0, 180.0), 179.9, -179.9, 0.0])
        sides = np.clip([middle - tall / 2, middle + tall / 2], -85.0, 85.0)
        ends = np.clip([east - wide / 2, east + wide / 2], -180.0, 180.0)
        try:
            return Box(*sides, *ends)
        except ParameterError:
            continue


def random_grid(rng):
    box = random_box(rng)
    rows, columns = (int(side) for side in np.minimum(10.0 ** rng.uniform(0.0, 1.6, size=2), 40))
    closed = np.flatnonzero(rng.uniform(size=rows * columns) < rng.choice([0.0, 0.0, 0.1, 0.9]))
    return Grid.over(box, rows, columns, tuple(closed[: rows * columns - 1]))


def corners(rng, grid, count):
    """Where cells meet: found here, not by `Grid`."""
    box = grid.box
    middle = math.radians((box.south + box.north) / 2)
    rows, columns = rng.integers(grid.rows + 1, size=count), rng.integers(grid.columns + 1, size=count)
    x = (columns / grid.columns - 0.5) * box.width_km / RADIUS_KM
    y = (rows / grid.rows - 0.5) * box.height_km / RADIUS_KM
    z = np.sqrt(1.0 - x * x - y * y)
    north = np.arcsin(y * math.cos(middle) + z * math.sin(middle))
    east = np.arctan2(x, z * math.cos(middle) - y * math.sin(middle))
    return np.stack([np.degrees(north), (box.west + box.east) / 2 + np.degrees(east)])


def seams(rng, grid, count):
    """Points, most of them about where a map could tear."""
    box = grid.box
    middle, east = (box.south + box.north) / 2, (box.west + box.east) / 2
    spread = 10.0 ** rng.uniform(-10.0, 1.5, size=(2, count)) * rng.choice([-1.0, 1.0], size=(2, count))
    north = np.degrees(np.arcsin(rng.uniform(-1.0, 1.0, size=count)))
    around = rng.uniform(-180.0, 180.0, size=count)
    kinds = [
        (north, around),
        (np.where(spread[0] > 0, 90.0, -90.0) - spread[0], around),
        (north, 180.0 - np.abs(spread[1])),
        (north, east + 180.0 + spread[1]),  # the meridian opposite the box
        (spread[0] - middle, east + 180.0 + spread[1]),  # the point opposite its middle
        tuple(corners(rng, grid, count)),
        (rng.uniform(box.south, box.north, count), rng.uniform(box.west, box.east, count)),
    ]
    north, east = np.array(kinds)[rng.integers(len(kinds), size=count), :, np.arange(count)].T
    return np.stack([np.clip(north, -90.0, 90.0), (east + 180.0) % 360.0 - 180.0])


def apart(grid, a, b):
    """How far apart the cells of points are."""
    cells = grid.cells(*a), grid.cells(*b)
    return np.hypot(*(grid.centres[cells[0]] - grid.centres[cells[1]]).T)


def beyond(boxes, pairs, seed=0):
    """By how many km pairs are farther apart as cells than the ground and `jump` say: the worst; and by what
    share of a jump they pass the ground: one, if the test has teeth."""
    rng, worst, most = np.random.default_rng(seed), -math.inf, 0.0
    for _ in range(boxes):
        grid = random_grid(rng)
        bearing, far = rng.uniform(-math.pi, math.pi, size=(2, pairs)), 10.0 ** rng.uniform(-6.0, 4.3, pairs)
        a = seams(rng, grid, pairs)
        b = moved(a, far, bearing[0])
        crossing = rng.uniform(size=pairs) < 0.2  # from beside one corner to beside another
        beside = 10.0 ** rng.uniform(-6.0, 1.0, size=pairs)
        a, b = (
            np.where(crossing, moved(corners(rng, grid, pairs), beside, turned), one)
            for one, turned in zip((a, b), bearing, strict=True)
        )
        more = apart(grid, a, b) - on_the_ground(a, b)
        worst, most = max(worst, float(more.max() - grid.jump)), max(most, float(more.max() / grid.jump))
    return worst, most


@pytest.mark.parametrize(("boxes", "pairs"), [QUICK, pytest.param(*FULL, marks=pytest.mark.slow)])
def test_no_cells_are_farther_apart_than_the_ground_and_the_jump(boxes, pairs):
    worst, most = beyond(boxes, pairs)
    assert worst <= 0.0
    assert most > 0.999, "a bound that is a thousandth less would be found"


def wrapped(self, latitudes, longitudes):
    """Planted: as it was. Degrees, the shorter way around the world, shrunk about the middle by latitude."""
    box, north, east = self.box, np.asarray(latitudes), np.asarray(longitudes)
    degree = np.cos(np.radians(np.clip(north, -90.0, 90.0)))
    shrunk = np.minimum(degree / np.cos(np.radians(np.clip(north, box.south, box.north))), 1.0)
    middle = (box.west + box.east) / 2.0
    away = (np.clip(east, -180.0, 180.0) - middle + 180.0) % 360.0 - 180.0
    within = (box.south <= north) & (north <= box.north) & (box.west <= east) & (east <= box.east)
    east = np.where(within, east, middle + away * shrunk)
    parts = ((north, box.south, box.north, self.rows), (east, box.west, box.east, self.columns))
    rows, columns = (
        np.clip(np.floor((values - low) / (high - low) * many), 0, many - 1).astype(np.int64)
        for values, low, high, many in parts
    )
    return self._nearest_open[rows * self.columns + columns]


def only_shrunk(self, latitudes, longitudes):
    """Planted: as it was, but for the tear: longitudes that are far away fold back. Still shrunk about the
    middle, so that a way to the north is one to the east as well."""
    middle = (self.box.west + self.box.east) / 2.0
    away = (np.asarray(longitudes) - middle + 180.0) % 360.0 - 180.0
    folded = np.sign(away) * np.minimum(np.abs(away), 180.0 - np.abs(away))
    return wrapped(self, latitudes, middle + folded)


def _planted(change):
    """The honest grid, on a view that is changed: (east, north, whether it is on the far side) to km."""
    honest = View.kilometres

    def kilometres(self, latitudes, longitudes):
        east, north = honest(self, latitudes, longitudes)
        here, there = math.radians(self.latitude), np.radians(latitudes)
        turned = np.radians(np.asarray(longitudes) - self.longitude)
        depth = math.sin(here) * np.sin(there) + math.cos(here) * np.cos(there) * np.cos(turned)
        scale = change(np.maximum(np.hypot(east, north), 1e-300), depth)
        return east * scale, north * scale

    return kilometres


PLANTED_VIEWS = {
    "the far hemisphere at the limb": lambda away, depth: np.where(depth < 0.0, RADIUS_KM / away, 1.0),
    "equidistant": lambda away, depth: RADIUS_KM * np.arccos(np.clip(depth, -1.0, 1.0)) / away,
    "an Earth a hundredth larger": lambda away, depth: np.full_like(away, 1.01),
    "stereographic": lambda away, depth: 2.0 / np.maximum(1.0 + depth, 1e-12),
}


@pytest.mark.parametrize(
    "planted", [wrapped, only_shrunk, *PLANTED_VIEWS], ids=lambda one: getattr(one, "__name__", one)
)
def test_planted_maps_that_tear_or_stretch_are_found(planted, monkeypatch):
    if callable(planted):
        monkeypatch.setattr(Grid, "cells", planted)
    else:
        monkeypatch.setattr(View, "kilometres", _planted(PLANTED_VIEWS[planted]))
    assert beyond(*QUICK)[0] > 0.01  # km


def test_planted_a_jump_that_forgets_closed_cells_is_found(monkeypatch):
    monkeypatch.setattr(Grid, "jump", property(lambda self: math.hypot(self.height, self.width)))
    assert beyond(*QUICK)[0] > 0.5


# The view


def test_the_view_is_the_inner_product():
    """P(v) = R (v.e, v.n), written out; and back again on the near hemisphere."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        latitude, longitude = rng.uniform(-90.0, 90.0), rng.uniform(-180.0, 180.0)
        a, b = math.radians(latitude), math.radians(longitude)
        east = np.array([-math.sin(b), math.cos(b), 0.0])
        north = np.array([-math.sin(a) * math.cos(b), -math.sin(a) * math.sin(b), math.cos(a)])
        centre = np.cross(east, north)
        points = np.stack([rng.uniform(-90.0, 90.0, 50), rng.uniform(-180.0, 180.0, 50)])
        c, d = np.radians(points)
        v = np.stack([np.cos(c) * np.cos(d), np.cos(c) * np.sin(d), np.sin(c)])
        view = View(latitude, longitude)
        x, y = view.kilometres(*points)
        np.testing.assert_allclose([x, y], RADIUS_KM * np.stack([east @ v, north @ v]), atol=1e-10)
        back = np.radians(view.degrees(x, y).T)
        w = np.stack([np.cos(back[0]) * np.cos(back[1]), np.cos(back[0]) * np.sin(back[1]), np.sin(back[0])])
        near = centre @ v > 0.1
        np.testing.assert_allclose(w[:, near], v[:, near], atol=1e-13)


def test_the_view_is_total():
    """Every double is seen somewhere; what is no place is in the middle."""
    view = View(48.85, 2.35)
    odd = [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0, 91.0, -1e9]
    north, east = (one.reshape(-1) for one in np.meshgrid(odd, odd))
    x, y = view.kilometres(north, east)
    assert (np.hypot(x, y) <= RADIUS_KM).all()
    missing = np.isnan(north) | ~np.isfinite(east)
    assert not x[missing].any()
    assert not y[missing].any()
    assert np.hypot(x, y)[~missing].min() > 1.0
    around = [view.kilometres(np.array([10.0]), np.array([east])) for east in (-160.0, 200.0, 3800.0)]
    np.testing.assert_allclose(around[1:], [around[0]] * 2, atol=1e-9)


def test_who_is_counted_within_from_far_away():
    """The mirror image of the rectangle on the other side of the world, and nobody else outside."""
    rng = np.random.default_rng(2)
    grid = Grid.over(Box(40.0, 46.0, 0.0, 9.0), 7, 9)
    points = np.stack([np.degrees(np.arcsin(rng.uniform(-1, 1, 100_000))), rng.uniform(-180, 180, 100_000)])
    rows, columns = np.divmod(grid.cells(*points), grid.columns)
    within = (rows % 6 > 0) & (columns % 8 > 0)
    x, y = grid.box.view.kilometres(*points)
    in_view = (np.abs(x) < grid.box.width_km / 2) & (np.abs(y) < grid.box.height_km / 2)
    assert not (within & ~in_view).any()
    far = on_the_ground(points, np.array([[43.0], [4.5]])) > RADIUS_KM * math.pi / 2
    mirrored = grid.cells(-points[0], points[1] + 180.0)
    inner = within & far
    assert inner.sum() > 20
    # Through the centre of the Earth east and north change sign: the cell is turned by half a circle.
    assert (grid.size - 1 - mirrored[inner] == rows[inner] * grid.columns + columns[inner]).all()


# Boxes


def test_a_rectangle_holds_its_box():
    """The least about the middle, that is: a border touches."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        box = random_box(rng)
        north = np.concatenate([[box.south, box.north], rng.uniform(box.south, box.north, 60)])
        if box.south < 0.0 < box.north:
            north = np.append(north, 0.0)
        east = np.linspace(box.west, box.east, 41)
        x, y = box.view.kilometres(*np.meshgrid(north, east))
        assert np.abs(x).max() == pytest.approx(box.width_km / 2, rel=1e-9, abs=1e-9)
        assert np.abs(y).max() == pytest.approx(box.height_km / 2, rel=1e-9, abs=1e-9)


TOO_LARGE = [
    (Box, (-10.0, 80.0, 0.0, 20.0), r"box must reach at most 2650 km from its middle, got 4\d\d\d km"),
    (Box, (0.0, 80.0, 0.0, 80.0), r"box must reach at most 2650 km from its middle, got 5910 km"),
    (Box, (84.0, 85.0, -100.0, 100.0), "box must span at most 180 degrees from west to east, got 200"),
]


@pytest.mark.parametrize(("kind", "sides", "message"), TOO_LARGE)
def test_a_box_that_is_too_large_is_refused(kind, sides, message):
    with pytest.raises(ParameterError, match=message):
        kind(*sides)


def test_kilometres_are_a_tenth_short_at_most():
    """In the corners of the largest boxes, from the middle outward; about an hundredth over 1,800 km."""
    worst, rng = 1.0, np.random.default_rng(4)
    for _ in range(2000):
        box = random_box(rng)
        grid = Grid.over(box, 100, 100)
        a, b = grid.degrees(0.0, 0.0), grid.degrees(0.5, 0.5)
        worst = max(worst, float(on_the_ground(a, b)) / (math.hypot(grid.height, grid.width) / 2))
    assert 1.05 < worst < 1.1
    grid = Grid.over(Box(43.0, 51.0, -4.0, 8.0), 100, 100)
    apart = math.hypot(grid.height, grid.width) / 2
    assert on_the_ground(grid.degrees(0.0, 0.0), grid.degrees(0.5, 0.5)) == pytest.approx(apart, rel=0.01)


def test_centres_come_back():
    grid = Grid.over(Box(-18.0, -17.0, 179.0, 180.0), 30, 40)
    found = grid.degrees(np.arange(30)[:, None] + 0.5, np.arange(40)[None, :] + 0.5)
    assert grid.cells(found[..., 0], found[..., 1]).reshape(-1).tolist() == list(range(1200))
