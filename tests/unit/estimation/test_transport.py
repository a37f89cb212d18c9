"""Earth mover's distance: closed form on a line, linear program, and the stated error beyond 2,500 places."""

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.estimation import transport
from reticent.estimation.transport import earth_movers_distance
from reticent.spaces import FiniteSpace, Grid
from reticent.spaces.roads import Graph

from ..spaces.roads.networks import random_roads


def on_a_line(p, q, step):
    return float(np.abs(np.cumsum(p / p.sum() - q / q.sum())).sum() * step)


def by_program(space, p, q):
    """The transport problem as it is written."""
    from scipy.optimize import linprog

    n = space.size
    leaves, arrives = np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))
    ways = np.stack([space.distances(x) for x in range(n)]).reshape(-1)
    solved = linprog(ways, A_eq=np.vstack([leaves, arrives]), b_eq=np.concatenate([p, q]), method="highs")
    return float(solved.fun)


@pytest.mark.parametrize("seed", range(5))
def test_a_line_has_a_closed_form(seed):
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(50, 0.3)), rng.integers(0, 9, 50)
    found = earth_movers_distance(Grid(1, 50, 9.0, 0.7), p, q)
    assert found.value == pytest.approx(on_a_line(p, q, 0.7), rel=1e-9)
    assert (found.error, float(found)) == (0.0, found.value)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_linear_programs_value(seed):
    rng = np.random.default_rng(seed)
    space = Grid(3, 5, 1.0, 0.6) if seed % 2 else FiniteSpace.of_points(rng.normal(size=(14, 3)))
    p, q = rng.dirichlet(np.ones(space.size)), rng.dirichlet(np.full(space.size, 0.2))
    assert earth_movers_distance(space, p, q).value == pytest.approx(by_program(space, p, q), rel=1e-7)


def test_it_is_a_distance():
    rng, grid = np.random.default_rng(0), Grid(6, 7, 1.0, 1.0)
    p, q, r = (rng.dirichlet(np.full(42, 0.3)) for _ in range(3))
    far = earth_movers_distance
    assert far(grid, p, p).value == 0.0
    assert far(grid, p, q).value == pytest.approx(far(grid, q, p).value)
    assert far(grid, p, r).value <= far(grid, p, q).value + far(grid, q, r).value + 1e-12
    one, other = np.zeros(42), np.zeros(42)
    one[0], other[-1] = 5.0, 2.0
    assert far(grid, one, other).value == pytest.approx(grid.diameter)


def test_planted_squared_ways_are_found(monkeypatch):
    p, q = np.random.default_rng(0).dirichlet(np.ones(50), 2)
    true = Grid.distances
    monkeypatch.setattr(Grid, "distances", lambda self, place: true(self, place) ** 2)
    assert earth_movers_distance(Grid(1, 50, 1.0, 0.7), p, q).value != pytest.approx(
        on_a_line(p, q, 0.7), rel=0.01
    )


@pytest.mark.parametrize("cells", [2501, 4000, 9999])
def test_long_lines_are_within_the_stated_error(cells):
    rng = np.random.default_rng(cells)
    p, q = rng.dirichlet(np.full(cells, 0.3), 2)
    found = earth_movers_distance(Grid(1, cells, 9.0, 0.7), p, q)
    assert found.error > 0.0
    assert abs(found.value - on_a_line(p, q, 0.7)) <= found.error


def worst_share(monkeypatch, grid, cases):
    """The largest difference to the exact distance, in stated errors."""
    worst = 0.0
    for p, q in cases:
        exact = earth_movers_distance(grid, p, q).value
        with monkeypatch.context() as small:
            small.setattr(transport, "MOST_EXACT", 30)
            found = earth_movers_distance(grid, p, q)
        assert found.error > 0.0
        worst = max(worst, abs(found.value - exact) / found.error)
    return worst


def pairs(grid, seed=0):
    rng = np.random.default_rng(seed)
    for alpha in (0.01, 0.1, 1.0):
        for _ in range(5):
            yield rng.dirichlet(np.full(grid.size, alpha), 2)
    for one in range(0, grid.size, 7):  # a single move, also within a block
        for other in (one + 1, one + grid.columns + 1, grid.size - 1):
            if other < grid.size:
                yield np.eye(grid.size)[[one, other]]


@pytest.mark.parametrize("shape", [(9, 13), (12, 12), (3, 40)])
def test_blocks_are_within_the_stated_error(monkeypatch, shape):
    grid = Grid(*shape, 1.0, 0.5)
    assert worst_share(monkeypatch, grid, pairs(grid)) <= 1.0


def test_planted_half_of_the_error_is_too_little(monkeypatch):
    """Moves within a block, from corner to corner, are lost whole."""
    grid = Grid(12, 12, 1.0, 0.5)
    assert worst_share(monkeypatch, grid, pairs(grid)) > 0.5


def test_bad_parameters():
    grid = Grid(2, 2, 1.0, 1.0)
    with pytest.raises(ParameterError, match="prior must have one number for each of 4 places, got 3"):
        earth_movers_distance(grid, np.ones(4), np.ones(3))
    with pytest.raises(ParameterError, match="prior must be positive in an open place"):
        earth_movers_distance(grid, np.zeros(4), np.ones(4))


def road_case(seed, monkeypatch, *, horizon=np.inf, metric="street"):
    """A road network that counts as large, two distributions, and the exact distance of a small one."""
    rng = np.random.default_rng(seed)
    roads = random_roads(rng, 60, horizon=horizon).by(metric)
    p, q = rng.dirichlet(np.full(60, 0.3)), rng.integers(0, 9, 60)
    exact = earth_movers_distance(roads, p, q).value
    monkeypatch.setattr(transport, "MOST_EXACT", 20)
    return roads, p, q, exact


@pytest.mark.parametrize("horizon", [np.inf, 1.3])
@pytest.mark.parametrize("seed", range(5))
def test_on_large_road_networks_the_least_flow_is_exact(seed, horizon, monkeypatch):
    roads, p, q, exact = road_case(seed, monkeypatch, horizon=horizon)
    found = earth_movers_distance(roads, p, q)
    assert found.error == 0.0
    assert found.value == pytest.approx(exact, rel=1e-7)
    assert earth_movers_distance(roads, p, p).value == 0.0


def test_planted_streets_of_one_direction_are_found(monkeypatch):
    """Flow that may go each street in one direction only."""
    roads, p, q, exact = road_case(1, monkeypatch)
    ahead = roads.street.begins < roads.street.ends
    one_way = Graph.of(
        60,
        np.append(roads.street.begins[ahead], 59),
        np.append(roads.street.ends[ahead], 0),
        np.append(roads.street.lengths[ahead], 1.0),
    )
    monkeypatch.setattr(roads, "street", one_way)
    assert earth_movers_distance(roads, p, q).value > 1.01 * exact


@pytest.mark.parametrize("seed", range(5))
def test_by_straight_lines_places_are_gathered_within_the_stated_error(seed, monkeypatch):
    roads, p, q, exact = road_case(seed, monkeypatch, metric="straight")
    found = earth_movers_distance(roads, p, q)
    assert 0.0 < found.error < 8.0
    assert abs(found.value - exact) <= found.error
