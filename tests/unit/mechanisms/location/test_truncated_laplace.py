"""Laplace noise on roads that ends at a radius: refused unless its delta is named, drawn by its own law."""

import numpy as np
import pytest
from scipy import stats

from reticent.errors import ParameterError
from reticent.mechanisms.location import TruncatedLaplace
from reticent.privacy import ApproximateMetricDP
from reticent.randomness import SimulationStream
from reticent.spaces.roads import cut

from ...spaces.roads.networks import all_distances, lattice, random_graph, random_roads

TOWN = cut(lattice(5), 50.0)
CHANNEL = TruncatedLaplace(TOWN, 8.0, 0.4, most_delta=0.2)


def matrix(channel):
    return np.stack([channel.probabilities(place) for place in range(channel.space.size)])


def test_law():
    far = all_distances(TOWN.street)
    weights = np.where(far <= 0.4, np.exp(-8.0 * far), 0.0)
    np.testing.assert_allclose(matrix(CHANNEL), weights / weights.sum(axis=1, keepdims=True), atol=1e-14)
    np.testing.assert_allclose(CHANNEL.staying, matrix(CHANNEL).diagonal())
    np.testing.assert_allclose(CHANNEL.displacement, (matrix(CHANNEL) * far).sum(axis=1), atol=1e-12)


def test_whole_numbers_are_the_law_and_do_not_depend_on_a_horizon():
    near = TruncatedLaplace(TOWN.within(0.2), 8.0, 0.4, most_delta=0.2)
    for place in (0, 17, 79):
        weights = CHANNEL.weights(place)
        total = sum(weights)
        np.testing.assert_allclose([one / total for one in weights], CHANNEL.probabilities(place), atol=1e-14)
        assert near.weights(place) == weights


def test_reports_fit_the_law():
    """False alarms: 1e-6; a channel at another level is found."""
    rng = SimulationStream(7)
    reports = np.bincount(CHANNEL.sample(np.full(20_000, 33), rng), minlength=TOWN.size)
    law = CHANNEL.probabilities(33)
    held = law > 0.0
    assert reports[~held].sum() == 0
    assert stats.chisquare(reports[held], law[held] * 20_000).pvalue > 1e-6
    other = TruncatedLaplace(TOWN, 10.0, 0.4, most_delta=0.2).probabilities(33)
    assert stats.chisquare(reports[held], other[held] * 20_000).pvalue < 1e-6


def test_sums_are_those_of_the_table():
    rng = np.random.default_rng(0)
    table, theta = matrix(CHANNEL), rng.dirichlet(np.ones(TOWN.size))
    values = rng.random(TOWN.size)
    np.testing.assert_allclose(CHANNEL.forward(theta), theta @ table, atol=1e-15)
    np.testing.assert_allclose(CHANNEL.back(values), table @ values, atol=1e-14)
    np.testing.assert_allclose(CHANNEL.factors(theta, values), table @ (values / (theta @ table)), rtol=1e-10)
    assert CHANNEL.distortion(theta) == pytest.approx(float(theta @ CHANNEL.displacement))


def test_what_it_keeps():
    assert 0.01 < CHANNEL.delta < 0.2
    assert CHANNEL.guarantee == ApproximateMetricDP(8.0, CHANNEL.delta, "km")
    assert CHANNEL.reach_km == pytest.approx(-np.log(CHANNEL.delta) / 8.0)
    by_place = CHANNEL.delta_by_place()
    assert by_place.max() == pytest.approx(CHANNEL.delta, abs=1e-15)
    assert (by_place < 0.7 * CHANNEL.delta).any()
    curve = CHANNEL.curve([4.0, 8.0, 16.0])
    assert curve[0] > curve[1] == CHANNEL.delta > curve[2]


def test_a_large_delta_must_be_named_and_a_direction_is_refused():
    with pytest.raises(
        ParameterError, match=r"most_delta must be at least 0\.\d+ for this channel, got 0\.01: some"
    ):
        TruncatedLaplace(TOWN, 8.0, 0.4)
    one_way = random_graph(np.random.default_rng(0), 9, directed=True)
    with pytest.raises(ParameterError, match="distances with a direction are no metric, got Graph"):
        TruncatedLaplace(one_way, 8.0, 0.4, most_delta=1.0)
    with pytest.raises(ParameterError, match="level must be > 0"):
        TruncatedLaplace(TOWN, 0.0, 0.4)
    assert TruncatedLaplace(random_roads(np.random.default_rng(1), 5), 0.01, 100.0).delta < 0.01
