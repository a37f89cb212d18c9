"""Channels by a table: levels in rational arithmetic, and the linear program mixed until it keeps its own."""

import math

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.mechanisms.location import ElasticChannel, TableChannel, linear_program, tables
from reticent.randomness import SimulationStream
from reticent.spaces import FiniteSpace, Grid

from .exactly import chi_square, law, losses

LINE = FiniteSpace.of_points(np.arange(5.0)[:, None])


def random_table(space, seed, spread):
    rng = np.random.default_rng(seed)
    return np.exp(-spread * rng.random((space.size, space.size)))


@pytest.mark.parametrize("spread", [0.1, 5.0, 600.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_level_holds_exactly_and_no_less_would(seed, spread):
    channel = TableChannel(LINE, random_table(LINE, seed, spread))
    assert losses(channel) == 0
    assert losses(channel, channel.level * (1.0 - 1e-9) - 1e-12) > 0


def test_the_level_holds_where_rare_reports_differ_by_their_last_bits():
    """Logarithms near -700 are right to 1e-13, and the losses here are of that size."""
    line = FiniteSpace.of_points(np.arange(3.0)[:, None])

    def lost(allowed):
        rng, found = np.random.default_rng(3), 0
        for _ in range(60):
            table = np.full((3, 3), 0.5)
            table[:, 2] = math.exp(-rng.uniform(520.0, 700.0)) * (1.0 + rng.uniform(-1e-12, 1e-12, 3))
            channel = TableChannel(line, table)
            channel.level += allowed - 2.0**-41
            found += losses(channel)
        return found

    assert lost(2.0**-41) == 0
    assert lost(2.0**-44) > 0  # planted: as if logarithms were small


def test_draws_are_by_the_very_doubles():
    channel = TableChannel(LINE, random_table(LINE, 0, 600.0))
    for place in range(5):
        weights = channel.weights(place)
        assert min(weights) > 0
        np.testing.assert_allclose(law(channel, place), channel.matrix[place], rtol=1e-15)
    channel = TableChannel(LINE, random_table(LINE, 0, 3.0))
    counts = np.bincount(channel.sample(np.full(20_000, 2), SimulationStream(1)), minlength=5)
    assert chi_square(counts, channel.probabilities(2)) > 1e-7  # the rate of false alarms; seeded
    assert chi_square(counts, channel.probabilities(3)) < 1e-7  # planted


def test_sums_are_those_of_the_matrix():
    space = Grid(2, 3, 1.0, 1.0)
    elastic = ElasticChannel(space, [1, 2, 3, 4, 5, 6], 0.4)
    channel, theta = TableChannel(space, elastic.matrix), np.random.default_rng(0).dirichlet(np.ones(6))
    assert channel.level == pytest.approx(elastic.exact_level(), rel=1e-9)
    for method in ("forward", "back"):
        np.testing.assert_allclose(
            getattr(channel, method)(theta), getattr(elastic, method)(theta), rtol=1e-12
        )
    np.testing.assert_allclose(channel.factors(theta, theta), elastic.factors(theta, theta), rtol=1e-12)
    np.testing.assert_allclose(channel.displacement, elastic.displacement, rtol=1e-12)
    np.testing.assert_allclose(channel.staying, elastic.staying, rtol=1e-12)
    assert channel.distortion(theta) == pytest.approx(elastic.distortion(theta))
    assert channel.mutual_information(theta) == pytest.approx(elastic.mutual_information(theta), abs=1e-12)


def one_zero():
    table = np.ones((5, 5))
    table[0, 4] = 0.0
    return table


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (one_zero(), "matrix must reach the same places from everywhere: some loss is infinite"),
        (np.eye(5), "some loss is infinite"),
        (np.ones((5, 4)), r"matrix must have shape \(5, 5\), got \(5, 4\)"),
        (-np.ones((5, 5)), "numbers >= 0 and no empty row"),
        (np.zeros((5, 5)), "no empty row"),
        (np.full((5, 5), math.inf), "numbers >= 0"),
    ],
)
def test_bad_tables(matrix, message):
    with pytest.raises(ParameterError, match=message):
        TableChannel(LINE, matrix)


def test_closed_cells_are_never_reported():
    grid = Grid(1, 3, 1.0, 1.0, closed=(1,))
    with pytest.raises(ParameterError, match="0 in the columns of closed cells"):
        TableChannel(grid, np.ones((3, 3)))
    assert TableChannel(grid, np.ones((3, 3)) * grid.open).sample([1, 1, 1]).tolist().count(1) == 0


# The linear program


PROBLEMS = [
    (LINE, [0.1, 0.3, 0.2, 0.3, 0.1], 1.0),
    (FiniteSpace.of_points(np.random.default_rng(1).normal(size=(7, 2))), np.ones(7), 2.0),
    (Grid(2, 3, 1.0, 0.5), [1, 0, 0, 5, 1, 2], 0.5),
]


def rows_of(space):
    return np.stack([space.distances(x) for x in range(space.size)])


@pytest.mark.parametrize(("space", "prior", "level"), PROBLEMS)
def test_a_linear_program_keeps_its_level_in_rational_arithmetic(space, prior, level):
    channel = linear_program(space, prior, level)
    assert channel.level <= level
    assert losses(channel) == 0
    assert losses(channel, level) == 0
    shares = np.asarray(prior, dtype=float) / np.sum(prior)
    for other in (
        ElasticChannel(space, prior + 1e-9 * np.ones(space.size), level / 2),
        tables.exponential(space, level),
    ):
        assert channel.distortion(shares) <= other.distortion(shares) + 1e-9


@pytest.mark.parametrize(("space", "prior", "level"), PROBLEMS)
def test_a_linear_program_is_as_near_as_qifs(space, prior, level):
    qif = pytest.importorskip("qif")
    shares, ways = np.asarray(prior, dtype=float) / np.sum(prior), rows_of(space)
    theirs = np.asarray(
        qif.mechanism.d_privacy.min_loss_given_d(
            shares, space.size, lambda x, y: level * ways[x, y], lambda x, y: ways[x, y]
        )
    )
    best = float((shares[:, None] * theirs * ways).sum())
    assert linear_program(space, prior, level).distortion(shares) == pytest.approx(best, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("space", "prior", "level"), PROBLEMS[:2])
def test_planted_a_solver_that_is_a_little_off_is_found(space, prior, level):
    """As solvers are: conditions to 1e-6 only. The rational check says so, and mixing mends it."""
    channel = linear_program(space, prior, level)
    assert tables._keeps(channel, rows_of(space), level)
    off = []
    for place in range(space.size):
        table = channel.matrix.copy()
        table[place, np.argmax(table[place])] *= 1.0 + 1e-4
        off.append(tables._keeps(TableChannel(space, table), rows_of(space), level))
    assert not all(off)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: linear_program(Grid(4, 8, 1.0, 1.0), np.ones(32), 1.0), "at most 30 places, got 32"),
        (lambda: linear_program(LINE, np.ones(5), 0.0), "level must be > 0"),
        (lambda: linear_program(Grid(1, 3, 1.0, 1.0, closed=(1,)), [1, 0, 1], 1.0), "no closed cells"),
    ],
)
def test_bad_programs(call, message):
    with pytest.raises(ParameterError, match=message):
        call()
