"""Federations: the documents' numbers, Shapley values against every coalition, cents that add up."""

import math
from fractions import Fraction

import numpy as np
import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.market import (
    Valuation,
    catalysed,
    contribution,
    deal_share,
    earnings,
    free_riders,
    in_units,
    pooled_level,
    sampled_values,
    saving,
    shapley,
    threshold_values,
)
from reticent.market.federations import formulas
from reticent.randomness import SimulationStream

TEN = [16, 2, 4, 5, 4, 16, 17, 12, 1, 2]
VALUES_OF_TEN = [
    0.201587301587, 0.019841269841, 0.053174603175, 0.070634920635, 0.053174603175,
    0.201587301587, 0.213492063492, 0.157936507937, 0.00873015873, 0.019841269841,
]  # fmt: skip


def by_fractions(weights, quota):
    """Every coalition, in exact fractions."""
    n, found = len(weights), [Fraction(0)] * len(weights)
    for coalition in range(1 << n):
        total = sum(weight for place, weight in enumerate(weights) if coalition >> place & 1)
        if total >= quota or coalition == (1 << n) - 1:
            continue
        size = coalition.bit_count()
        share = Fraction(math.factorial(size) * math.factorial(n - size - 1), math.factorial(n))
        for place, weight in enumerate(weights):
            if not coalition >> place & 1 and total + weight >= quota:
                found[place] += share
    return np.array([float(one) for one in found])


def worst_gap(values, games, most, seed, high=30):
    drawn, worst = np.random.default_rng(seed), 0.0
    for _ in range(games):
        weights = drawn.integers(0, high, drawn.integers(1, most + 1)).tolist()
        quota = int(drawn.integers(1, sum(weights) + 3))
        worst = max(worst, float(np.abs(values(weights, quota) - by_fractions(weights, quota)).max()))
    return worst


def test_shapley_values_equal_exact_fractions():
    assert worst_gap(threshold_values, 150, 8, seed=1) < 1e-14
    assert worst_gap(threshold_values, 40, 7, seed=2, high=10**9) < 1e-14


@pytest.mark.slow
def test_shapley_values_of_twelve_equal_exact_fractions():
    assert worst_gap(threshold_values, 60, 12, seed=3) < 1e-14
    assert worst_gap(threshold_values, 30, 12, seed=4, high=10**9) < 1e-14


HEAVY = [(400, 100, 200), (400, 150, 300), (900, 500, 600), (100, 40, 60)]


def gap_with_one_heavy_member(members, heavy, quota):
    """How far shares are from the exact ones of members of weight 1 and one heavy member.

    She reaches the quota if quota - heavy to quota - 1 of the others come before her, and the number of those
    is uniform on 0 to members - 1.
    """
    shares = threshold_values([1] * (members - 1) + [heavy], quota)
    exact = Fraction(min(members, quota) - max(0, quota - heavy), members)
    light = (1 - exact) / (members - 1)
    return max(abs(shares[-1] - float(exact)), abs(shares[:-1] - float(light)).max(), abs(shares.sum() - 1.0))


@pytest.mark.parametrize(("members", "heavy", "quota"), HEAVY)
def test_one_heavy_member_among_many_is_exact(members, heavy, quota):
    """It was off by up to 1.6e-5 with 2,000 members: the window in which nodes lay was all of (0, 1)."""
    assert gap_with_one_heavy_member(members, heavy, quota) < 1e-12


def test_planted_too_few_nodes_are_caught(monkeypatch):
    monkeypatch.setattr(shapley, "_gauss_size", lambda degree, low, high: 2 * math.isqrt(degree + 1) + 18)
    assert max(gap_with_one_heavy_member(*game) for game in HEAVY) > 1e-9


def test_deals_of_earlier_releases_are_divided_as_they_were():
    """An act of settling says what was paid, and is redone whenever its federation is opened."""
    game = [1] * 399 + [150], 300
    assert abs(threshold_values(*game, earlier_rule=True) - threshold_values(*game)).max() > 1e-12
    assert earnings(*game, 10**14, earlier_rule=True) != earnings(*game, 10**14)


def exact_share(weights, quota, member):
    """The share of a member by counting coalitions of the others by size and weight, in whole numbers."""
    others = [weight for place, weight in enumerate(weights) if place != member]
    counts = np.zeros((len(weights), quota), dtype=object)
    counts[0, 0] = 1
    for weight in others:
        moved = counts[:-1, : quota - weight] if weight < quota else counts[:-1, :0]
        counts[1:, weight : weight + moved.shape[1]] += moved.copy()
    sizes = counts[:, max(0, quota - weights[member]) :].sum(axis=1)
    n = len(weights)
    return sum(Fraction(int(sizes[size]), n * math.comb(n - 1, size)) for size in range(n))


@pytest.mark.parametrize("seed", range(3))
def test_shares_of_members_of_all_sizes_equal_exact_fractions(seed):
    """Weights over two orders of magnitude, and three members of nearly the quota."""
    drawn = np.random.default_rng(seed)
    weights = [*np.ceil(np.exp(drawn.uniform(0, 4, 60))).astype(int).tolist(), 200, 250, 300]
    quota = int(drawn.integers(250, 500))
    shares = threshold_values(weights, quota)
    for member in (0, 30, 60, 62):
        assert abs(shares[member] - float(exact_share(weights, quota, member))) < 1e-12


def test_planted_division_without_the_dual_game_is_caught(monkeypatch):
    """Dividing a member out where t > 1/2 multiplies rounding by (t / (1 - t))^steps."""
    weights = [1] * 60 + [3] * 60
    quota = sum(weights) * 9 // 10

    def forward_only(held, goal):
        nodes, areas = shapley._nodes(held, goal)
        different, places = np.unique(np.array(held), return_inverse=True)
        found = np.zeros(len(different))
        for node, area in zip(nodes, areas, strict=True):
            windows = np.zeros(len(different))
            shapley._windows_in_arrays(different, np.bincount(places), node, np.zeros(goal), windows)
            found += area * windows
        return found[places]

    assert abs(threshold_values(weights, quota).sum() - 1.0) < 1e-12
    with np.errstate(all="ignore"):
        assert not abs(forward_only(weights, quota).sum() - 1.0) < 1e-12


def test_compiled_and_plain_kernels_agree(monkeypatch):
    weights = np.random.default_rng(5).integers(0, 40, 60).tolist()
    first = threshold_values(weights, 500)
    monkeypatch.setattr(shapley, "_kernel", lambda: shapley._windows_in_arrays)
    assert np.abs(first - threshold_values(weights, 500)).max() < 1e-15


def test_known_values():
    assert np.abs(threshold_values(TEN, 55) - VALUES_OF_TEN).max() < 1e-12
    assert earnings([10, 5, 3], 14, 60) == [30, 30, 0]  # printed: 40, 20, 0
    assert earnings([10, 5, 3], 13, 60) == [40, 10, 10]
    assert earnings([2, 1, 1], 3, 5) == [
        3,
        1,
        1,
    ]  # of 3.33, 0.83 and 0.83: the largest fractions are rounded up
    assert earnings(in_units([1.0, 0.5, 0.3]), 1_400_000, 6_000) == [3_000, 3_000, 0]


def test_a_hundred_members_share_fairly():
    """Efficiency, symmetry, null players, as with 1,000 in the slow test."""
    fair(100)


@pytest.mark.slow
def test_a_thousand_members_share_fairly():
    fair(1_000)


def fair(members):
    weights = np.random.default_rng(7).integers(1, 101, members).tolist()
    weights[0], weights[1], weights[2] = 0, 50, 50
    values = threshold_values(weights, sum(weights) // 3)
    assert abs(values.sum() - 1.0) < 1e-12
    assert values[0] == 0.0
    assert abs(values[1] - values[2]) < 1e-12


def outside(draw, games, seed):
    """In how many games a bound does not hold: at confidence 0.999 at most 1 in 1,000 by chance."""
    drawn, found = np.random.default_rng(seed), 0
    for game in range(games):
        weights = drawn.integers(0, 30, drawn.integers(2, 9)).tolist()
        quota = int(drawn.integers(1, sum(weights) + 2))
        shares, low, high = draw(weights, quota, SimulationStream(seed, path=(game,)))
        exact = threshold_values(weights, quota)
        assert abs(shares.sum() - exact.sum()) < 1e-12
        found += bool((exact < low - 1e-12).any() or (exact > high + 1e-12).any())
    return found


def test_sampled_values_lie_within_their_bounds():
    """False-alarm rate: 40 games at 0.001 each, two or more with 0.0008."""
    assert outside(lambda w, q, rng: sampled_values(w, q, orders=2_000, rng=rng), games=40, seed=10) <= 1


def test_planted_orders_that_are_not_drawn_are_caught():
    class Still(SimulationStream):
        """Everybody comes in the same order each time."""

        def units(self, count):
            return 1.0 + np.tile(np.arange(members), count // members) / 1e3

    def sorted_orders(weights, quota, rng):
        nonlocal members
        members = len(weights)
        return sampled_values(weights, quota, orders=2_000, rng=Still(1))

    members = 0
    assert outside(sorted_orders, games=40, seed=10) > 10


def test_sampled_values_of_many_members():
    """20,000 members, of whom the exact way would take minutes: bounds are told."""
    weights = np.random.default_rng(11).integers(1, 10**6, 20_000).tolist()
    with pytest.raises(ParameterError, match="more than can be worked out in time"):
        threshold_values(weights, sum(weights) // 2)
    shares, low, high = sampled_values(weights, sum(weights) // 2, orders=300, rng=SimulationStream(12))
    assert shares.sum() == pytest.approx(1.0)
    assert (low <= shares).all()
    assert (shares <= high).all()
    assert float(high.max()) < 0.1


def test_cents_add_up_whatever_the_split():
    drawn = np.random.default_rng(8)
    for _ in range(200):
        weights = drawn.integers(0, 1_000, drawn.integers(1, 9)).tolist()
        cents, quota = int(drawn.integers(0, 10_000)), int(drawn.integers(1, sum(weights) + 2))
        paid = earnings(weights, quota, cents)
        assert sum(paid) == (cents if sum(weights) >= quota else 0)
        assert min(paid) >= 0


@pytest.mark.parametrize("off", [1e-12, -1e-12])
def test_cents_add_up_where_last_digits_are_cents(monkeypatch, off):
    shares = np.array([0.3, 0.3, 0.2, 0.2, 0.0]) * (1.0 + off)
    monkeypatch.setattr(formulas, "threshold_values", lambda weights, quota, **_: shares)
    paid = earnings([1] * 5, 1, 10**15)
    assert paid == [3 * 10**14, 3 * 10**14, 2 * 10**14, 2 * 10**14, 0]


def test_levels_beyond_the_largest_exponential():
    assert pooled_level([3], [1000.0], 4) == pytest.approx(1000.0)
    assert pooled_level([1, 1], [5000.0, 1000.0], 4) == pytest.approx(1000.0 + np.log(2.0))
    assert pooled_level([0, 1], [0.0, 1000.0], 4) == pytest.approx(1000.0)


def test_the_documents_numbers():
    assert pooled_level([100, 50, 30], [1, 2, 0.5], 4) == pytest.approx(1.1817324603657269, rel=1e-14)
    assert deal_share(Valuation(0.1, 0.05), [2, 3, 1.5], 150) == pytest.approx(0.5358313186639864, rel=1e-14)
    assert deal_share(Valuation(0.1, 0.05), [2, 3, 1.5], 1e6) == 1.0


def test_a_deal_is_within_the_budget():
    drawn = np.random.default_rng(9)
    for _ in range(300):
        levels, worth = (
            drawn.uniform(0.1, 9.0, drawn.integers(1, 9)).tolist(),
            Valuation(*drawn.uniform(0.01, 1.0, 2)),
        )
        budget = float(drawn.uniform(0.0, 200.0))
        share = deal_share(worth, levels, budget)
        assert math.fsum(worth.money(share * level) for level in levels) <= budget


def test_planted_the_pooled_level_is_no_quota():
    """Eq. 8.1 falls when a member joins, so it cannot say what was contributed; contributions add up."""
    assert pooled_level([1], [3.0], 4) > pooled_level([1, 10], [3.0, 0.2], 4)
    alone, both = contribution([1], [3.0], 4), contribution([1, 10], [3.0, 0.2], 4)
    assert both.sum() > alone.sum()
    assert both[0] == alone[0]


def test_savings_catalyse_within_the_threshold():
    assert saving(10, 5.0, 3.0) == 20.0
    assert saving(10, 5.0, 6.0) == 0.0
    assert catalysed(1.0, 0.0, 10, 5.0) == 1.0
    assert catalysed(1.0, 120.0, 10, 5.0) == 3.0
    assert catalysed(2.0, 1e6, 10, 5.0) == 5.0
    assert free_riders([0.0, 1.0, 2.0, 3.0], 2.0) == [2, 3]
    assert len(free_riders([0.0, 1.0, 2.0, 3.0], 1.0)) > len(free_riders([0.0, 1.0, 2.0, 3.0], 3.0))


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: threshold_values([], 1), "at least one member"),
        (lambda: threshold_values([1], 0), "quota must be >= 1"),
        (lambda: threshold_values([-1], 1), "weights must be >= 0"),
        (lambda: threshold_values([1.5], 1), "weights must be a whole number"),
        (lambda: sampled_values([], 1), "at least one member"),
        (lambda: sampled_values([1], 1, orders=0), "orders must be >= 1"),
        (lambda: sampled_values([1], 1, confidence=1.0), "confidence must be > 0 and < 1"),
        (lambda: pooled_level([], [], 4), "same members"),
        (lambda: pooled_level([1], [math.nan], 4), "epsilons must be finite"),
        (lambda: pooled_level([0], [1.0], 4), "not all be zero"),
        (lambda: Valuation(0.0, 1.0), "k1 must be > 0"),
        (lambda: deal_share(Valuation(1.0, 1.0), [], 1.0), "at least one federation"),
    ],
)
def test_bad_federations_name_their_rule(make, rule):
    with pytest.raises((ParameterError, ParameterTypeError), match=rule):
        make()
