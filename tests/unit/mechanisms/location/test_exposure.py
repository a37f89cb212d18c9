"""Delta over sets is that of brute force over all sets; wrong forms of it, and wrong channels, are found."""

import itertools
import math

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.mechanisms.location import exposure
from reticent.mechanisms.location.exposure import (
    Law,
    delta_of_places,
    delta_over_sets,
    find_worst_pair,
    reach,
)

from ...spaces.roads.networks import all_distances, city, grid_graph, random_graph, random_roads

# 9 x 9 junctions, one unit of street between neighbours: epsilon, radius, pointwise, over sets.
GOLDEN = [
    (0.2, 3, 0.06565616, 0.36356105),
    (0.5, 3, 0.03463457, 0.14180979),
    (0.5, 5, 0.02550398, 0.06676603),
    (1.0, 3, 0.03003039, 0.05673844),
    (1.0, 5, 0.02818555, 0.04529081),
    (0.3, 100, 0.01197323, 0.03510866),
]


def table(law):
    found = np.zeros((law.size, law.size))
    for place in range(law.size):
        places, chances = law.row(place)
        found[place, places] = chances
    return found


def over_all_sets(matrix, distances, claim):
    """The largest e^(-claim d) P(S|x) - P(S|x') over all pairs and all 2^n sets S."""
    sets = np.array(list(itertools.product([0.0, 1.0], repeat=matrix.shape[1])))
    of_sets = matrix @ sets.T
    gaps = np.exp(-claim * distances)[:, :, None] * of_sets[:, None, :] - of_sets[None, :, :]
    return float(gaps.max())


def pointwise(matrix, distances, claim):
    """Theorem 4.3 as printed: the largest of single reports."""
    gaps = np.exp(-claim * distances)[:, :, None] * matrix[:, None, :] - matrix[None, :, :]
    return max(0.0, float(gaps.max()))


def case(seed, directed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(2, 10)), directed=directed)
    level, radius = float(rng.choice([0.5, 2.0, 10.0])), float(rng.uniform(0.0, 3.0))
    return graph, level, radius, level * float(rng.choice([0.5, 1.0, 1.7]))


def compared(seeds, monkeypatch=None):
    worst = 0.0
    for seed in seeds:
        for directed in (False, True):
            graph, level, radius, claim = case(seed, directed)
            law, distances = Law.truncated(graph, level, radius), all_distances(graph)
            expected = over_all_sets(table(law), distances, claim)
            worst = max(worst, abs(delta_over_sets(graph, law, claim) - expected))
            by_place = delta_of_places(graph, law, claim)
            sums = np.maximum(
                0.0, np.exp(-claim * distances)[:, :, None] * table(law)[:, None] - table(law)[None]
            )
            worst = max(worst, float(np.abs(by_place - sums.sum(axis=2).max(axis=1)).max()))
    return worst


def test_delta_is_that_of_all_sets():
    assert compared(range(100)) < 1e-12


@pytest.mark.slow
def test_delta_is_that_of_all_sets_on_1000_graphs():
    """500 with and 500 without one-way streets."""
    assert compared(range(500)) < 1e-12


def usual_delta(matrix, distances, claim):
    """The delta of each pair that is added after the factor: the sum of what exceeds it."""
    gaps = matrix[:, None, :] - np.exp(claim * distances)[:, :, None] * matrix[None, :, :]
    return np.maximum(0.0, gaps).sum(axis=2)


def check_worst_pairs(find=find_worst_pair):
    for seed in range(60):
        graph, level, radius, claim = case(seed, directed=False)
        law, distances = Law.truncated(graph, level, radius), all_distances(graph)
        pair = find(graph, law, claim)
        usual = usual_delta(table(law), distances, claim)
        at_distance = np.abs(distances - pair.distance) < 1e-12
        assert np.abs(usual[at_distance] - pair.usual_delta).min() < 1e-9
        assert pair.delta <= pair.usual_delta


def test_usual_delta_is_that_of_the_same_pair(monkeypatch):
    check_worst_pairs()
    monkeypatch.setattr(exposure, "_loop", lambda compiled: exposure._plain)
    check_worst_pairs()


def test_planted_documents_delta_as_the_usual_one_is_found():
    def documents_delta(graph, law, claim):
        pair = find_worst_pair(graph, law, claim)
        return exposure.WorstPair(pair.delta, pair.distance, 0.0)  # without the factor e^(claim distance)

    with pytest.raises(AssertionError):
        check_worst_pairs(documents_delta)


def test_without_numba_it_is_the_same(monkeypatch):
    graphs = [case(seed, directed) for seed in range(30) for directed in (False, True)]
    laws = [Law.truncated(graph, level, radius) for graph, level, radius, _ in graphs]
    compiled = [delta_over_sets(one[0], law, one[3]) for one, law in zip(graphs, laws, strict=True)]
    monkeypatch.setattr(exposure, "_loop", lambda compiled: exposure._plain)
    plain = [delta_over_sets(one[0], law, one[3]) for one, law in zip(graphs, laws, strict=True)]
    np.testing.assert_allclose(plain, compiled, atol=1e-14)
    np.testing.assert_allclose(
        delta_of_places(graphs[7][0], laws[7], 2.0).max(), delta_over_sets(graphs[7][0], laws[7], 2.0)
    )


@pytest.mark.parametrize(("level", "radius", "printed", "sound"), GOLDEN)
def test_golden_values_of_a_street_grid(level, radius, printed, sound):
    graph = grid_graph(9)
    law = Law.truncated(graph, level, radius)
    assert delta_over_sets(graph, law, level) == pytest.approx(sound, abs=1e-8)
    assert pointwise(table(law), all_distances(graph), level) == pytest.approx(printed, abs=1e-8)


def wrong_channels(graph, level, radius):
    """The documents' slips, each as a table that claims to be the truncated Laplace mechanism."""
    there, back = all_distances(graph), all_distances(graph.backward)
    near = there <= radius
    yield "branches of Algorithm 4 swapped", np.where(near, 0.0, np.exp(-level * there)), True
    yield "orientation mixed", np.where(near, np.exp(-level * back), 0.0), True
    weights = np.where(near, np.exp(-level * there), 0.0)
    yield "one normaliser for all", weights / weights.sum(axis=1).max(), False


def keeps(matrix, distances, level, delta):
    """Whether a table is a channel, and keeps (level, delta) over all sets."""
    if np.abs(matrix.sum(axis=1) - 1.0).max() > 1e-9:
        return False
    return over_all_sets(matrix, distances, level) <= delta + 1e-12


def test_planted_channels_are_found():
    caught, kept = (
        dict.fromkeys(["branches of Algorithm 4 swapped", "orientation mixed", "one normaliser for all"], 0),
        0,
    )
    for seed in range(20):
        graph = random_graph(np.random.default_rng(seed), 7, directed=True)
        distances, level, radius = all_distances(graph), 4.0, 0.7
        law = Law.truncated(graph, level, radius)
        delta = delta_over_sets(graph, law, level)
        kept += keeps(table(law), distances, level, delta)
        for name, weights, scaled in wrong_channels(graph, level, radius):
            sums = weights.sum(axis=1, keepdims=True)
            rows = weights / np.where(sums > 0.0, sums, 1.0) if scaled else weights
            caught[name] += not keeps(rows, distances, level, delta)
    assert kept == 20
    assert min(caught.values()) >= 15, caught


def test_planted_pointwise_delta_is_found():
    """The printed delta is too small wherever there is truncation: the sets say so."""
    found = 0
    for seed in range(20):
        graph, level, _, _ = case(seed, False)
        law, distances = Law.truncated(graph, level, 0.5), all_distances(graph)
        found += not keeps(table(law), distances, level, pointwise(table(law), distances, level))
    assert found >= 10


def test_the_search_widens_until_it_is_sure(monkeypatch):
    """Places with small deltas need far pairs."""
    rng = np.random.default_rng(2)
    graph = random_graph(rng, 60, arcs=0.2)
    distances = all_distances(graph)
    for first in (0.01, 0.3, 3.0):
        monkeypatch.setattr(exposure, "_FIRST", first)
        for level, radius in ((0.3, 1.0), (3.0, 0.5), (8.0, 3.0)):
            law = Law.truncated(graph, level, radius)
            sums = np.maximum(
                0.0, np.exp(-level * distances)[:, :, None] * table(law)[:, None] - table(law)[None]
            )
            sums = sums.sum(axis=2)
            assert delta_over_sets(graph, law, level) == pytest.approx(sums.max(), abs=1e-12)
            np.testing.assert_allclose(delta_of_places(graph, law, level), sums.max(axis=1), atol=1e-12)


def test_straight_lines_too():
    roads = random_roads(np.random.default_rng(4), 30).by("straight")
    distances = np.stack([roads.distances(x) for x in range(30)])
    law = Law.truncated(roads, 1.0, 2.0)
    sums = np.maximum(0.0, np.exp(-distances)[:, :, None] * table(law)[:, None] - table(law)[None])
    assert delta_over_sets(roads, law, 1.0) == pytest.approx(sums.sum(axis=2).max(), abs=1e-12)


def test_a_curve_falls_and_everything_within_the_radius_leaves_nothing_at_twice_the_level():
    graph = grid_graph(5)
    law = Law.truncated(graph, 0.5, 100.0)
    curve = [delta_over_sets(graph, law, claim) for claim in (0.3, 0.5, 0.8, 1.0)]
    assert all(a >= b for a, b in itertools.pairwise(curve))
    assert curve[0] > 0.0
    assert curve[-1] == pytest.approx(0.0, abs=1e-15)


def test_reach():
    assert reach(5.0, 0.0817) == pytest.approx(math.log(1 / 0.0817) / 5.0)
    assert reach(5.0, 1.0) == 0.0
    assert reach(5.0, 0.0) == math.inf
    with pytest.raises(ParameterError, match="claim must be > 0"):
        reach(0.0, 0.1)
    graph = grid_graph(3)
    with pytest.raises(ParameterError, match="law must have a row for each of 9 places, got 16"):
        delta_over_sets(graph, Law.truncated(grid_graph(4), 1.0, 1.0), 1.0)


def test_the_city():
    """At 5 and 10 per km, radius 1 km (epsilon 0.5 and 1 per segment, r 10): 0.082 and 0.067."""
    roads = city()
    for level, expected in ((5.0, 0.082), (10.0, 0.067)):
        delta = delta_over_sets(roads, Law.truncated(roads, level, 1.0), level)
        assert delta == pytest.approx(expected, abs=0.0005)
