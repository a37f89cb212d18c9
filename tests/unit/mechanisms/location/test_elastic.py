"""Elastic channels: any c keeps 2 beta, exactly, in the whole numbers that reports are drawn by."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.location import ElasticChannel, elastic, exponential
from reticent.privacy import MetricDP
from reticent.randomness import SimulationStream, Stream
from reticent.spaces import FiniteSpace, Grid

from .exactly import chi_square, law, losses

SQUARE = Grid(4, 5, 0.7, 1.3)
LINE = Grid(1, 12, 1.0, 0.1)


def skewed(size, seed=0, alpha=0.3):
    return np.random.default_rng(seed).dirichlet(np.full(size, alpha)) + 1e-12


def points(seed, size=12):
    return FiniteSpace.of_points(np.random.default_rng(seed).normal(size=(size, 3)))


# The guarantee


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([SQUARE, LINE, Grid(3, 3, 1.0, 1.0, closed=(0, 8)), points(1), points(2, 5)]),
    st.sampled_from([0.0, 1e-6, 0.01, 0.5, 2.0, 30.0, 300.0]),
    st.integers(0, 1000),
    st.sampled_from([1e-3, 0.05, 1.0]),
)
def test_any_c_keeps_its_level_exactly(space, beta, seed, alpha):
    """The rational check of every pair of places and every report, rounding of the weights included."""
    c = np.where(space.open, skewed(space.size, seed, alpha) + 1e-290, 0.0)
    channel = ElasticChannel(space, c, beta)
    assert losses(channel) == 0
    assert channel.exact_level() <= channel.level
    assert channel.guarantee == MetricDP(channel.level, space.unit)
    assert 2.0 * beta <= channel.level <= 2.0 * beta * (1.0 + 1e-8) + 1e-7


@pytest.mark.parametrize("beta", [0.3, 1.0])
def test_the_level_is_tight(beta):
    """Near 2 beta where one far place has nearly all of the mass (mathematics 3.1: 1.996 to 2.000)."""
    c = np.full(64, 1e-9)
    c[0] = 1.0
    channel = ElasticChannel(Grid(8, 8, 1.0, 1.0), c, beta)
    assert 1.95 * beta < channel.exact_level() <= channel.level


def test_planted_twice_the_beta_is_found(monkeypatch):
    channel = ElasticChannel(SQUARE, skewed(20), 0.5)
    double = ElasticChannel(SQUARE, skewed(20), 1.0)
    assert losses(channel) == 0
    monkeypatch.setattr(channel, "weights", double.weights)
    assert losses(channel) > 0


def test_planted_64_bit_thresholds_are_found(monkeypatch):
    """A cell of probability e^-55 < 2^-64 becomes impossible from afar: 38 km at beta 1 (maths 4.13)."""
    channel = ElasticChannel(Grid(1, 12, 1.0, 5.0), np.ones(12), 1.0)
    assert losses(channel) == 0
    true = channel.weights

    def cut(place):
        weights = true(place)
        return [(weight << 64) // sum(weights) for weight in weights]

    monkeypatch.setattr(channel, "weights", cut)
    assert losses(channel) > 0


def test_planted_algorithm_2_as_printed_is_no_channel():
    """It sums over d(z, y) in the denominator; its rows do not sum to one (mathematics 3.1)."""
    channel = ElasticChannel(SQUARE, skewed(20), 0.5)
    kernel = channel.marginal * np.exp(-0.5 * SQUARE.matrix)
    np.testing.assert_allclose(channel.matrix.sum(axis=1), 1.0, rtol=1e-14)
    assert np.abs((kernel / kernel.sum(axis=0)).sum(axis=1) - 1.0).max() > 0.1


def test_what_rounding_adds_to_the_level_is_small():
    """Under one part in a thousand million for a city of 100 m cells."""
    channel = ElasticChannel(Grid(60, 80, 0.1, 0.1), skewed(4800), 1.0)
    assert 2.0 < channel.level < 2.0 * (1.0 + 1e-9)


# The law and its draws


@pytest.mark.parametrize("space", [SQUARE, LINE, points(3)])
def test_weights_probabilities_and_matrix_are_one_law(space):
    channel = ElasticChannel(space, skewed(space.size), 0.8)
    straight = channel.marginal * np.exp(-0.8 * np.stack([space.distances(x) for x in range(space.size)]))
    straight /= straight.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(channel.matrix, straight, rtol=1e-12)
    for place in range(space.size):
        np.testing.assert_allclose(law(channel, place), straight[place], rtol=1e-12)
        np.testing.assert_allclose(channel.probabilities(place), straight[place], rtol=1e-12)


def drawn_odds(channel, place, reports=20_000):
    counts = np.bincount(channel.sample(np.full(reports, place), SimulationStream(5)), minlength=20)
    return chi_square(counts, ElasticChannel(SQUARE, skewed(20), 0.5).probabilities(place))


@pytest.mark.parametrize("place", [0, 7, 19])
def test_draws_follow_the_law(place):
    """False alarm: 1e-7 each; the stream is seeded."""
    assert drawn_odds(ElasticChannel(SQUARE, skewed(20), 0.5), place) > 1e-7


def test_planted_draws_of_another_law_are_found():
    assert drawn_odds(ElasticChannel(SQUARE, skewed(20), 1.0), 7) < 1e-7
    assert drawn_odds(ElasticChannel(SQUARE, np.ones(20), 0.5), 7) < 1e-7


def test_many_places_at_once_keep_their_order():
    channel = ElasticChannel(SQUARE, np.ones(20), 400.0)  # everybody stays
    places = np.random.default_rng(0).integers(0, 20, (30, 7))
    assert (channel.sample(places, SimulationStream(1)) == places).all()
    assert channel.sample(np.array([-5, 99]), SimulationStream(1)).tolist() == [0, 19]
    assert channel.sample(np.zeros(0, dtype=int)).size == 0
    with pytest.raises(ParameterError, match="places must be numbers of places, got dtype float64"):
        channel.sample([0.5])


class Ones(Stream):
    """Words of ones, then one word of zeros, then ones again."""

    def __init__(self, zero_at):
        self.given, self._zero_at = 0, zero_at

    def _take(self):
        raise NotImplementedError

    def _give_back(self, held):
        raise NotImplementedError

    def words(self, count):
        found = np.full(count, np.uint64(2**64 - 1))
        if self.given <= self._zero_at < self.given + count:
            found[self._zero_at - self.given] = 0
        self.given += count
        return found


def test_a_cell_of_probability_far_below_2_to_minus_64_can_be_drawn():
    """The last of 200 cells, e^-199 = 2^-287: drawn by the five words that say so, and by no fewer."""
    channel = ElasticChannel(Grid(1, 200, 1.0, 1.0), np.ones(200), 1.0)
    weights = channel.weights(0)
    assert min(weights) > 0
    assert sum(weights) > 2**286 * weights[-1]
    assert channel.sample([0], Ones(zero_at=99)).tolist() == [199]
    for zero_at in range(1, 4):
        assert 40 < channel.sample([0], Ones(zero_at))[0] < 199


def test_a_closed_last_cell_changes_nothing():
    channel = ElasticChannel(Grid(1, 200, 1.0, 1.0, closed=(0, 198, 199)), [0.0, *[1.0] * 197, 0.0, 0.0], 1.0)
    assert channel.sample([0, 5, 199], SimulationStream(3)).shape == (3,)
    assert channel.sample([5], Ones(zero_at=99)).tolist() == [197]
    assert losses(ElasticChannel(Grid(1, 9, 1.0, 8.0, closed=(8,)), [1.0] * 8 + [0.0], 1.0)) == 0


# What it does


@pytest.mark.parametrize("dense", [True, False])
def test_sums_are_those_of_the_matrix(dense):
    prior, rng = skewed(20, 1), np.random.default_rng(2)
    channel = ElasticChannel(SQUARE, skewed(20), 0.8, dense=dense)
    table, values, theta = channel.matrix, rng.random(20), rng.dirichlet(np.ones(20))
    np.testing.assert_allclose(channel.forward(theta), theta @ table, rtol=1e-10)
    np.testing.assert_allclose(channel.back(values), table @ values, rtol=1e-10)
    np.testing.assert_allclose(channel.factors(theta, values), table @ (values / (theta @ table)), rtol=1e-10)
    np.testing.assert_allclose(channel.displacement, (table * SQUARE.matrix).sum(axis=1), rtol=1e-10)
    np.testing.assert_allclose(channel.staying, table.diagonal(), rtol=1e-10)
    prior = prior / prior.sum()
    assert channel.distortion(prior) == pytest.approx(prior @ (table * SQUARE.matrix).sum(axis=1), rel=1e-10)
    told = (prior[:, None] * table * np.log(table / (prior @ table))).sum()
    assert channel.mutual_information(prior) == pytest.approx(told, abs=1e-10)


def test_nothing_is_told_at_beta_0_and_everything_at_a_huge_one():
    prior = np.full(20, 0.05)
    assert ElasticChannel(SQUARE, skewed(20), 0.0).mutual_information(prior) == pytest.approx(0.0, abs=1e-12)
    assert ElasticChannel(SQUARE, np.ones(20), 1000.0).mutual_information(prior) == pytest.approx(
        math.log(20)
    )
    assert ElasticChannel(SQUARE, np.ones(20), 1000.0).distortion(prior) == pytest.approx(0.0, abs=1e-12)


def test_probabilities_that_all_underflow_are_a_law_still():
    """All mass is 1,000 beta away; the nearest of it is reported."""
    space = Grid(1, 40, 1.0, 50.0)
    c = np.zeros(40)
    c[30:] = 1.0
    channel = ElasticChannel(space, c, 1.0)
    assert channel.probabilities(0)[30] == pytest.approx(1.0)
    assert losses(channel) == 0
    assert channel.exact_level() <= channel.level
    assert channel.sample([0], SimulationStream(0)).tolist() == [30]


def test_the_exponential_mechanism():
    channel = exponential(SQUARE, 1.4)
    np.testing.assert_allclose(
        channel.matrix[3], np.exp(-0.7 * SQUARE.distances(3)) / 20 / channel.normaliser[3]
    )
    assert losses(channel) == 0
    masked = exponential(Grid(2, 2, 1.0, 1.0, closed=(1,)), 1.4)
    assert masked.marginal.tolist() == pytest.approx([1 / 3, 0.0, 1 / 3, 1 / 3])
    with pytest.raises(ParameterError, match="level must be >= 0, got -1"):
        exponential(SQUARE, -1.0)


BAD = [
    (lambda: ElasticChannel(SQUARE, np.ones(20), -0.1), "beta must be >= 0, got -0.1"),
    (lambda: ElasticChannel(SQUARE, np.ones(20), math.inf), "beta must be finite"),
    (
        lambda: ElasticChannel(SQUARE, np.ones(20), 1e9),
        r"beta must be at most 3566\.\d+ on this space, got 1e\+09",
    ),
    (lambda: ElasticChannel(SQUARE, np.ones(19), 1.0), "one number for each of 20 places, got 19"),
    (lambda: ElasticChannel(SQUARE, np.zeros(20), 1.0), "numbers >= 0 that do not all vanish"),
    (lambda: ElasticChannel(SQUARE, np.full(20, np.nan), 1.0), "numbers >= 0"),
    (lambda: ElasticChannel(SQUARE, [-1.0] + [1.0] * 19, 1.0), "numbers >= 0"),
    (lambda: ElasticChannel(Grid(1, 2, 1.0, 1.0, closed=(1,)), [1, 1], 1.0), "0 in closed cells"),
    (lambda: elastic.as_prior(SQUARE, np.ones(3)), "prior must have one number for each of 20 places, got 3"),
    (lambda: elastic.as_prior(SQUARE, np.full(20, -1.0)), "prior must hold finite numbers >= 0"),
    (lambda: elastic.as_prior(SQUARE, np.zeros(20)), "prior must be positive in an open place"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_parameters(call, message):
    with pytest.raises((ParameterError, ParameterTypeError), match=message):
        call()
