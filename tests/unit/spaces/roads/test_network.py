"""Places of a cut map: a metric for privacy, another distance for driving, and a place for every point."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.errors import ParameterError
from reticent.spaces.roads import Graph, Roads, cut
from reticent.spaces.roads.network import GRAIN_KM
from reticent.spaces.roads.snapping import Index

from .networks import all_distances, city, lattice, random_graph, random_roads

SQUARE = cut(lattice(6), 50.0)
ONE_WAY = cut(lattice(6, one_way=True), 100.0)


def test_streets_are_cut_into_equal_parts_nearest_to_the_length():
    assert cut(lattice(6), 100.0).size == 60
    assert SQUARE.size == 120
    assert cut(lattice(6), 30.0).size == 180
    assert SQUARE.lines.shape == (120, 2, 2)
    assert SQUARE.streets.max() < 60
    np.testing.assert_allclose(SQUARE.points, SQUARE.lines.mean(axis=1), atol=1e-12)
    assert SQUARE.shortest == pytest.approx(0.0505, abs=4 * GRAIN_KM)


def test_lengths_are_whole_multiples_so_sums_are_exact():
    assert (SQUARE.street.lengths / GRAIN_KM % 1.0 == 0.0).all()
    far = all_distances(SQUARE.street)
    assert (far == far.T).all()
    assert all((far <= far[:, through, None] + far[through]).all() for through in range(SQUARE.size))


def test_neighbours_of_a_junction_are_half_of_both_apart():
    at = int(SQUARE.cells(37.7, -122.5))
    near = np.sort(SQUARE.distances(at))[1:3]
    np.testing.assert_allclose(near, 0.0505, atol=1e-5)


def test_driving_follows_one_way_streets_and_privacy_does_not():
    assert ONE_WAY.street.is_symmetric
    assert not ONE_WAY.driving.is_symmetric
    drive, street = all_distances(ONE_WAY.driving), all_distances(ONE_WAY.street)
    assert np.isfinite(drive).all()
    assert (drive >= street).all()
    assert (drive > 2.0 * street).any()
    seconds = all_distances(ONE_WAY.drive("time"))
    np.testing.assert_allclose(seconds, drive / 40.0 * 3600.0, rtol=1e-4, atol=1e-9)
    with pytest.raises(ParameterError, match="cost must be one of length, time, got 'fuel'"):
        ONE_WAY.drive("fuel")


def test_a_directed_distance_is_no_metric_and_refused():
    graph = random_graph(np.random.default_rng(0), 9, directed=True)
    points = np.random.default_rng(0).random((9, 2))
    with pytest.raises(ParameterError, match="street must be as long there as back"):
        Roads(points, graph, graph, graph)


def test_horizon():
    near = SQUARE.within(0.3)
    for place in (0, 50, 119):
        np.testing.assert_array_equal(near.distances(place), np.minimum(SQUARE.distances(place), 0.3))
    assert near.diameter == 0.3
    assert SQUARE.diameter >= all_distances(SQUARE.street).max()
    capped = np.minimum(all_distances(SQUARE.street), 0.3)
    assert all((capped <= capped[:, through, None] + capped[through]).all() for through in range(SQUARE.size))
    with pytest.raises(ParameterError, match=r"horizon_km must be >= 0\.0505"):
        SQUARE.within(0.01)


def test_straight_lines():
    straight = SQUARE.by("straight")
    far = np.stack([straight.distances(x) for x in range(straight.size)])
    street = all_distances(SQUARE.street)
    assert (far == far.T).all()
    assert (far <= street + 1e-9).all()
    assert straight.diameter >= far.max()
    assert straight.neighbours is None
    assert SQUARE.neighbours is SQUARE.street
    for limit in (0.05, 0.2, 3.0):
        rows = straight.rows(limit)
        for x in range(straight.size):
            places, found = rows.row(x)
            assert set(places.tolist()) == set(np.flatnonzero(far[x] <= limit).tolist())
            np.testing.assert_array_equal(found, far[x][places])
    with pytest.raises(ParameterError, match="metric must be one of street, straight, got 'driving'"):
        SQUARE.by("driving")


def test_islands_and_single_places_are_refused():
    apart = Graph.of(4, [0, 1, 2, 3], [1, 0, 3, 2], [1.0] * 4)
    with pytest.raises(ParameterError, match="must be joined by streets, got islands"):
        Roads(np.zeros((4, 2)) + np.arange(4)[:, None], apart, apart, apart)
    with pytest.raises(ParameterError, match="at least 2 places, got 1"):
        Roads([[1.0, 1.0]], *[Graph.of(1, [], [], [])] * 3)
    odd = Graph.of(2, [0, 1], [1, 0], [0.1, 0.1])
    with pytest.raises(ParameterError, match="lengths of street must be whole multiples of 2"):
        Roads([[1.0, 1.0], [1.0, 2.0]], odd, odd, odd)


anything = st.one_of(st.floats(), st.none(), st.text(max_size=3), st.integers(), st.just(10**400))


@given(st.lists(st.tuples(anything, anything), min_size=1, max_size=8))
def test_every_point_has_a_place(points):
    found = SQUARE.cells([one for one, _ in points], [other for _, other in points])
    assert found.shape == (len(points),)
    assert ((found >= 0) & (found < SQUARE.size)).all()


def test_few_and_many_points_go_to_the_same_places():
    rng = np.random.default_rng(5)
    latitudes, longitudes = 37.69 + 0.03 * rng.random(500), -122.51 + 0.03 * rng.random(500)
    many = SQUARE.cells(latitudes, longitudes)
    few = [int(SQUARE.cells(*pair)) for pair in zip(latitudes, longitudes, strict=True)]
    assert many.tolist() == few
    seen = np.stack(SQUARE.view.kilometres(latitudes, longitudes), axis=1)
    seen = np.clip(seen, SQUARE.seen.min(axis=0), SQUARE.seen.max(axis=0))
    apart = np.hypot(*(seen[:, None] - SQUARE.seen[None]).transpose(2, 0, 1))
    np.testing.assert_allclose(apart[np.arange(500), many], apart.min(axis=1))


def crossed(roads, rng, pairs, hair):
    """The largest distance of the places of two points a hair apart, in the rectangle and around it."""
    low, high = roads.seen.min(axis=0), roads.seen.max(axis=0)
    where = low - 0.2 + (high - low + 0.4) * rng.random((pairs, 2))
    angle = 2.0 * np.pi * rng.random(pairs)
    other = where + hair * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    index = Index(roads.seen)
    first, second = index.nearest(*where.T), index.nearest(*other.T)
    moved = np.flatnonzero(first != second)
    return max(float(roads.distances(int(first[one]))[second[one]]) for one in moved.tolist())


@pytest.mark.parametrize("metric", ["street", "straight"])
@pytest.mark.parametrize("seed", range(4))
def test_no_two_points_a_hair_apart_are_farther_than_the_jump(seed, metric):
    rng = np.random.default_rng(seed)
    roads = random_roads(rng, 40).by(metric)
    assert crossed(roads, rng, 20_000, 1e-3) <= roads.jump
    assert roads.within(roads.street.longest).jump <= roads.street.longest


def test_planted_a_jump_of_straight_lines_is_found():
    """Two banks of a river, 100 m apart, with one bridge at its end."""
    banks = np.stack([np.repeat([37.7, 37.7009], 20), np.tile(-122.5 + 0.001 * np.arange(20), 2)], axis=1)
    along = np.array([(a, a + 1) for a in range(39) if a != 19] + [(19, 39)])
    both = np.concatenate([along, along[:, ::-1]])
    streets = Graph.of(40, both[:, 0], both[:, 1], np.full(len(both), 0.125))
    roads = Roads(banks, streets, streets, streets)
    assert roads.jump == 39 * 0.125
    assert 1.0 < crossed(roads, np.random.default_rng(1), 20_000, 1e-3) <= roads.jump
    assert roads.by("straight").jump < 0.2


def test_jump_of_few_places_and_of_one_line():
    line = cut(lattice(2), 40.0)
    assert line.jump > 0.0
    nodes = np.stack([np.full(6, 37.7), -122.5 + 0.001 * np.arange(6)], axis=1)
    ring = Graph.of(6, [0, 1, 2, 3, 4, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0, 1, 2, 3, 4], [0.5] * 10)
    assert Roads(nodes, ring, ring, ring).jump == 0.5
    assert Roads(nodes[:2], *[Graph.of(2, [0, 1], [1, 0], [0.75, 0.75])] * 3).jump == 0.75


def test_the_city():
    """What the files of San Francisco hold, as README says; a jump is over water."""
    roads = city()
    assert roads.size == 21_343
    assert roads.told == {"closed": 0, "islands": 23}
    assert roads.within(4.0).horizon == 4.0
    assert math.isclose(roads.rows(0.5).starts[-1] / roads.size, 77.5, rel_tol=0.01)
    assert roads.driving.is_symmetric
