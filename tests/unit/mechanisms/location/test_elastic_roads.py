"""The pure channel on min(d, horizon): 2 beta at most on every network, its exact level from neighbours."""

import math

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.estimation.locations import estimated
from reticent.mechanisms.location import ElasticChannel, blahut_arimoto, exponential, keeping
from reticent.mechanisms.location.elastic import worst_level
from reticent.spaces import kernel
from reticent.spaces.roads import cut

from ...spaces.roads.networks import all_distances, lattice, long_street, random_roads

TOWN = cut(lattice(6), 50.0).within(0.4)


def case(seed):
    rng = np.random.default_rng(seed)
    roads = random_roads(rng, int(rng.integers(2, 16)))
    if seed % 2:
        roads = roads.within(max(roads.street.longest, float(rng.uniform(0.3, 3.0))))
    marginal = rng.dirichlet(np.full(roads.size, float(rng.choice([0.2, 1.0, 10.0])))) + 1e-12
    return roads, ElasticChannel(roads, marginal, float(rng.choice([0.2, 2.0, 9.0])))


def crowded_end(seed):
    """A street much longer than its horizon that is the more crowded the farther east."""
    rng = np.random.default_rng(seed)
    roads = long_street(int(rng.integers(20, 60)), horizon_km=float(rng.uniform(0.2, 1.0)))
    crowd = np.exp(np.linspace(0.0, float(rng.uniform(2.0, 12.0)), roads.size))
    return roads, ElasticChannel(roads, crowd, float(rng.choice([0.5, 2.0, 9.0])))


def worst_pair_level(roads, channel):
    """The level over all pairs in min(d, horizon), from the probabilities themselves."""
    return worst_level(
        np.log(channel.matrix), np.stack([roads.distances(place) for place in range(roads.size)])
    )


def check_exact_level(cases):
    for roads, channel in cases:
        assert channel.exact_level() == pytest.approx(worst_pair_level(roads, channel), rel=1e-9)
        assert channel.exact_level() <= channel.level * (1.0 + 1e-9)
        assert channel.level <= 2.0 * channel.beta * (1.0 + 1e-6)


def check_kept_level(cases):
    for roads, channel in cases:
        kept = keeping(roads, channel.marginal, 5.0)
        assert worst_pair_level(roads, kept) <= kept.level * (1.0 + 1e-9)


def test_exact_level_holds_beyond_the_horizon():
    check_exact_level(crowded_end(seed) for seed in range(60))
    check_kept_level(crowded_end(seed) for seed in range(20))


@pytest.mark.parametrize("check", [check_exact_level, check_kept_level])
def test_planted_level_of_neighbours_alone_is_found(monkeypatch, check):
    """The fault of earlier releases: losses of far pairs grew with d instead of min(d, horizon)."""

    def level_of_neighbours(channel):
        arcs, logs = channel.space.neighbours, np.log(channel.normaliser)
        return channel.beta + float((np.abs(logs[arcs.begins] - logs[arcs.ends]) / arcs.lengths).max())

    monkeypatch.setattr(ElasticChannel, "exact_level", level_of_neighbours)
    with pytest.raises(AssertionError):
        check(crowded_end(seed) for seed in range(20))


def test_pure_level_is_within_two_beta():
    check_exact_level(case(seed) for seed in range(100))


@pytest.mark.slow
def test_pure_level_is_within_two_beta_on_1000_networks():
    check_exact_level(case(seed) for seed in range(1000))


def test_planted_noise_without_its_normaliser_is_found():
    """Rows that are not scaled to sum to one keep beta, and are no channel; scaled by one number neither."""
    roads, channel = case(3)
    weights = channel.marginal * np.exp(
        -channel.beta * np.stack([roads.distances(x) for x in range(roads.size)])
    )
    rows = weights / weights.sum(axis=1).max()
    assert worst_level(np.log(weights), all_distances(roads.street)) <= channel.beta * (1.0 + 1e-9)
    assert np.abs(rows.sum(axis=1) - 1.0).max() > 1e-3


def test_planted_twice_beta_for_the_level_is_found():
    """A channel at beta 2 that claims level 2 is caught by its neighbours."""
    roads, _ = case(4)
    assert exponential(roads, 4.0).exact_level() > 2.0


@pytest.mark.parametrize("weight", [lambda d: np.exp(-5.0 * d), lambda d: d * np.exp(-5.0 * d), np.ones_like])
def test_a_constant_and_a_sparse_matrix_are_the_matrix(weight):
    rng = np.random.default_rng(0)
    for roads in (TOWN, TOWN.by("straight"), random_roads(rng, 50).within(2.0)):
        dense, sparse = kernel(roads, weight, dense=True), kernel(roads, weight, dense=False)
        for values in (
            rng.random(roads.size),
            rng.dirichlet(np.full(roads.size, 0.01)),
            rng.random((roads.size, 3)),
        ):
            np.testing.assert_allclose(sparse(values), dense(values), rtol=1e-12, atol=1e-15)
        out = np.empty(roads.size)
        assert sparse(np.ones(roads.size), out) is out


def test_a_large_network_needs_a_horizon(monkeypatch):
    with pytest.raises(ParameterError, match="a road network of 120 places must have a horizon"):
        kernel(TOWN.within(math.inf), np.ones_like, dense=False)
    monkeypatch.setattr("reticent.spaces.kernels.MOST_DENSE", 100)
    with pytest.raises(ParameterError, match="a matrix of 120 places is too large"):
        kernel(TOWN, np.ones_like, dense=True)


def test_channels_and_estimates_are_the_same_by_both_forms():
    rng = np.random.default_rng(1)
    prior = rng.dirichlet(np.full(TOWN.size, 0.3))
    dense, sparse = (blahut_arimoto(TOWN, prior, 4.0, turns=20, dense=flag) for flag in (True, False))
    np.testing.assert_allclose(dense.marginal, sparse.marginal, atol=1e-12)
    np.testing.assert_allclose(dense.forward(prior), prior @ dense.matrix, atol=1e-14)
    counts = rng.multinomial(5_000, sparse.forward(prior))
    options = {"max_iterations": 30, "accelerated": False, "tolerance": 0.0}
    found = [estimated([(channel, counts)], **options).distribution for channel in (dense, sparse)]
    np.testing.assert_allclose(found[0], found[1], atol=1e-9)


def test_keeping_a_level_exactly():
    for seed in range(10):
        roads, channel = case(seed)
        kept = keeping(roads, channel.marginal, 5.0)
        assert 2.5 <= kept.beta <= 5.0
        assert kept.exact_level() <= kept.level <= 5.0 * (1.0 + 1e-9)
        assert kept.exact_level() > 4.99 or kept.beta > 4.99
        assert kept.guarantee.epsilon_per_unit == kept.level
        wider = ElasticChannel(roads, channel.marginal, kept.beta * 1.01)
        assert wider.exact_level() > 5.0 * 0.999


def deserted_end(horizon_km):
    """A street whose far end has nearly no mass: there Z is below the smallest double that is not rounded."""
    roads = long_street(280, spacing_km=0.125, horizon_km=horizon_km)
    crowd = np.exp(-25.0 * 0.125 * np.arange(roads.size))
    return roads, np.where(crowd < 1e-299, 5e-324, crowd)


def check_deserted_ends():
    for horizon_km in (math.inf, 8.0):
        roads, crowd = deserted_end(horizon_km)
        for channel in (ElasticChannel(roads, crowd, 80.0), keeping(roads, crowd, 100.0)):
            claimed = min(channel.exact_level(), channel.level)
            logs = np.stack([channel._logs(place) for place in range(roads.size)]) * math.log(2.0)
            tops = logs.max(axis=1, keepdims=True)
            logs -= tops + np.log(np.exp(logs - tops).sum(axis=1, keepdims=True))
            distances = np.stack([roads.distances(place) for place in range(roads.size)])
            assert worst_level(logs, distances) <= claimed * (1.0 + 1e-9)


def test_exact_level_holds_where_the_normaliser_underflows():
    """A poisoned c with tiny masses: `keeping` claimed 100 and lost 165."""
    check_deserted_ends()


def test_planted_level_from_a_normaliser_with_a_floor_is_found(monkeypatch):
    """The fault of earlier releases: ln Z of doubles that were lifted to 1e-300."""
    monkeypatch.setattr(ElasticChannel, "_log_normaliser", lambda channel: np.log(channel.normaliser))
    with pytest.raises(AssertionError):
        check_deserted_ends()
