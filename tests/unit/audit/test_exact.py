"""The exact check on matrices whose losses are known, and on every finite channel of the library."""

import math
from fractions import Fraction

import numpy as np
import pytest

from reticent.audit import check_channel, check_matrix
from reticent.audit.exact import exp_below_exact, log_ratio, telling_inputs
from reticent.audit.places import check_places
from reticent.errors import ParameterError
from reticent.mechanisms.base import exp_below
from reticent.mechanisms.categorical import KRR
from reticent.mechanisms.location import TruncatedLaplace, exponential, keeping
from reticent.mechanisms.location.exposure import Law, delta_over_sets
from reticent.mechanisms.numeric import HMTP, PM, Duchi, OneBit, PMOpt, ThreeOutputs, Window

from ..spaces.roads.networks import grid_graph, random_graph, random_roads

COIN = [[Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)]]


def test_the_loss_of_a_coin():
    assert check_matrix(COIN, math.log(3) + 1e-9).passed
    found = check_matrix(COIN, math.log(3) - 1e-9)
    assert not found.passed
    assert found.loss == pytest.approx(math.log(3), abs=1e-15)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[Fraction(1, 2), Fraction(1, 2)], [Fraction(1, 2), Fraction(1, 3)]], "sum to 1 -0.167"),
        ([[Fraction(1, 2), Fraction(1, 2)], [Fraction(3, 2), Fraction(-1, 2)]], "negative"),
        ([[Fraction(1, 2), Fraction(1, 2)], [Fraction(1)]], "1 symbols"),
        ([[Fraction(1), Fraction(0)], [Fraction(1, 2), Fraction(1, 2)]], "exceed"),
    ],
)
def test_what_is_no_channel_or_not_private_is_refused(rows, words):
    found = check_matrix(rows, 1.0)
    assert not found.passed
    assert words in found.detail


def test_something_possible_under_one_input_only_is_an_infinite_loss():
    assert check_matrix([[Fraction(1), Fraction(0)], [Fraction(1, 2), Fraction(1, 2)]], 20.0).loss == math.inf


def test_one_unit_of_2_to_the_52_is_seen():
    total = 1 << 52
    low = math.ceil(total / (1 + exp_below(1.0)))
    for count, passed in ((low, True), (low - 1, False)):
        row = [Fraction(count, total), Fraction(total - count, total)]
        assert check_matrix([row, row[::-1]], 1.0).passed is passed


def test_delta_is_over_sets_and_not_per_symbol():
    # Eight symbols with an excess of 1/100 each: pointwise 0.01, over sets 0.08.
    here = [Fraction(1, 100)] * 8 + [Fraction(92, 100)] + [Fraction(0)] * 8
    there = [Fraction(0)] * 8 + [Fraction(92, 100)] + [Fraction(1, 100)] * 8
    assert not check_matrix([here, there], 1.0, delta=Fraction(5, 100)).passed
    found = check_matrix([here, there], 1.0, delta=Fraction(8, 100))
    assert found.passed
    assert found.delta == pytest.approx(0.08)


def test_metric_privacy_by_distance():
    found = check_matrix(COIN, math.log(3) / 2 + 1e-9, distances=[[0, 2], [2, 0]])
    assert found.passed
    assert found.loss == pytest.approx(math.log(3) / 2)
    assert not check_matrix(COIN, math.log(3) / 2 + 1e-9, distances=[[0, 2], [1, 0]]).passed, "one-way street"
    assert not check_matrix(COIN, 5.0, distances=[[0, 0], [0, 0]]).passed


def test_distances_and_delta_together_on_a_road():
    """Noise that ends at a radius: its delta over sets passes, a little less does not, nor the printed."""
    graph, level, radius = grid_graph(3), 0.5, 2
    law = Law.truncated(graph, level, radius)
    far = np.stack([graph.distances(x) for x in range(graph.size)])
    rows = [[Fraction(one) for one in np.zeros(graph.size)] for _ in range(graph.size)]
    for x in range(graph.size):
        places, chances = law.row(x)
        total = sum(Fraction(one) for one in chances.tolist())
        for y, chance in zip(places.tolist(), chances.tolist(), strict=True):
            rows[x][y] = Fraction(chance) / total
    delta = delta_over_sets(graph, law, level)
    found = check_matrix(rows, level, delta=delta * (1 + 1e-9), distances=far.tolist())
    assert found.passed
    assert found.delta == pytest.approx(delta, rel=1e-9)
    table = np.array([[float(one) for one in row] for row in rows])
    printed = (np.exp(-level * far)[:, :, None] * table[:, None] - table[None]).max()
    for claim in (delta * (1 - 1e-9), printed):
        assert not check_matrix(rows, level, delta=float(claim), distances=far.tolist()).passed
    assert not check_matrix(rows, level, distances=far.tolist()).passed, "no level is kept without a delta"


def planted_tables(graph, level, radius):
    """The documents' slips: Algorithm 4's branches, one normaliser for all, both orientations in one."""
    there = np.stack([graph.distances(x) for x in range(graph.size)])
    back = np.stack([graph.backward.distances(x) for x in range(graph.size)])
    near, weights = there <= radius, np.exp(-level * there)
    held = np.where(near, weights, 0.0)
    return {
        "branches": (np.where(near, 0.0, weights), True),
        "normaliser": (held / held.sum(axis=1).max(), False),
        "orientation": (np.where(near, np.exp(-level * back), 0.0), True),
    }


def as_fractions(table, *, scaled):
    rows = [[Fraction(one) for one in row] for row in table.tolist()]
    return [[one / (sum(row) or 1) for one in row] for row in rows] if scaled else rows


@pytest.mark.parametrize("name", ["branches", "normaliser", "orientation"])
def test_planted_slips_of_noise_on_roads_are_found(name):
    caught, level, radius = 0, 4.0, 0.7
    for seed in range(6):
        graph = random_graph(np.random.default_rng(seed), 7, directed=True)
        far = [graph.distances(x).tolist() for x in range(graph.size)]
        delta = delta_over_sets(graph, Law.truncated(graph, level, radius), level) * (1 + 1e-9)
        table, scaled = planted_tables(graph, level, radius)[name]
        found = check_matrix(as_fractions(table, scaled=scaled), level, delta=delta, distances=far)
        caught += not found.passed
    assert caught >= 4


def test_channels_on_roads_are_audited():
    roads = random_roads(np.random.default_rng(2), 12)
    found = check_places(TruncatedLaplace(roads, 3.0, 0.6, most_delta=1.0))
    assert found.passed
    assert 0.0 < found.delta <= TruncatedLaplace(roads, 3.0, 0.6, most_delta=1.0).delta
    assert check_places(exponential(roads, 3.0)).passed
    assert check_places(keeping(roads, np.ones(roads.size), 3.0)).passed


def test_one_row_is_no_audit():
    with pytest.raises(ParameterError, match="at least two"):
        check_matrix([[Fraction(1)]], 1.0)


def test_log_ratio_keeps_its_digits():
    assert log_ratio(Fraction(10**20 + 1, 10**20), Fraction(1)) == pytest.approx(1e-20, rel=1e-12)
    assert log_ratio(Fraction(3) ** 2000, Fraction(1)) == pytest.approx(2000 * math.log(3))
    assert log_ratio(Fraction(0), Fraction(0)) == 0.0


def test_exact_exponents_stay_below():
    assert exp_below_exact(Fraction(1)) <= exp_below(1.0) * (1 + Fraction(1, 10**45))
    third = exp_below_exact(Fraction(1, 3))
    assert third**3 < exp_below(1.0) * (1 + Fraction(1, 10**48))
    assert float(third) == pytest.approx(math.exp(1 / 3), rel=1e-15)


CHANNELS = [Duchi, ThreeOutputs, PM, PMOpt, HMTP, OneBit, Window]


@pytest.mark.parametrize("epsilon", [0.01, 0.5, math.log(2), 1.0, 3.0, 8.0])
@pytest.mark.parametrize("kind", CHANNELS)
def test_every_channel_keeps_its_claim_and_uses_it(kind, epsilon):
    found = check_channel(kind(epsilon=epsilon))
    assert found.passed, found.detail
    assert found.loss == pytest.approx(epsilon, rel=1e-3)


def test_knots_and_odd_values_are_among_the_inputs():
    window = Window(epsilon=2.0, outputs=8)
    inputs = telling_inputs(window)
    assert set(window.knots) <= set(inputs)
    assert any(math.isnan(x) for x in inputs)
    assert {-1.0, 0.0, 1.0, math.inf} <= set(inputs)


def test_the_extremes_of_every_symbol_are_among_the_inputs():
    channel = PM(epsilon=6.0)
    rows = channel.probabilities(np.array(telling_inputs(channel)))
    grid = channel.probabilities(np.linspace(-1, 1, 257))
    assert (rows.max(axis=0) >= grid.max(axis=0)).all()
    assert (rows.min(axis=0) <= grid.min(axis=0)).all()


def test_bounds_are_respected():
    assert check_channel(PMOpt(epsilon=1.0, bounds=(0.0, 130.0))).passed


@pytest.mark.parametrize("categories", [2, 7, 3000, ("red", "green", "blue")])
def test_categories(categories):
    found = check_channel(KRR(epsilon=1.0, categories=categories))
    assert found.passed
    assert found.inputs >= 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", CHANNELS)
def test_two_hundred_epsilons(kind):
    # T1: no violation at 200 levels in [0.01, 10].
    failed = [e for e in np.geomspace(0.01, 10.0, 200) if not check_channel(kind(epsilon=float(e))).passed]
    assert failed == []
