"""One estimate from several levels: unbiased, as exact as can be, and intervals that cover."""

import math

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.estimation import combined_frequencies, combined_mean, mean_estimate
from reticent.estimation.combining import are_apart, support_variance, weighted
from reticent.mechanisms.categorical import KRR, OUE
from reticent.mechanisms.numeric import OneBit, ThreeOutputs
from reticent.randomness import SimulationStream

CHANNELS = (OneBit(epsilon=0.25), OneBit(epsilon=0.5), ThreeOutputs(epsilon=2.0))
COUNTS = (400, 200, 50)


def drawn(values, seed, channels=CHANNELS):
    """Symbol counts of levels that perturb these values."""
    stream = SimulationStream(seed)
    return [
        (one, np.bincount(one.sample(value, stream), minlength=one.size))
        for one, value in zip(channels, values, strict=True)
    ]


def uncovered(markets, shift=0.0, narrow=1.0):
    """How often the interval missed the mean, in this many markets."""
    missed = 0
    for seed in range(markets):
        rng = np.random.default_rng(seed)
        values = [rng.uniform(-0.2, 0.6, n) + shift * (n == 50) for n in COUNTS]
        found = combined_mean(drawn([np.clip(one, -1.0, 1.0) for one in values], seed))
        half = narrow * (found.upper - found.lower) / 2.0
        middle = (found.upper + found.lower) / 2.0
        missed += not middle - half <= 0.2 <= middle + half
    return missed


def test_intervals_of_mixed_levels_cover():
    """At most 5 % may miss: 40 markets with 9 misses are less likely than 1e-4 (binomial)."""
    assert uncovered(40) <= 8


@pytest.mark.slow
def test_intervals_of_mixed_levels_cover_in_full():
    """1,000 markets; 5 % and five standard deviations of the count."""
    assert uncovered(1000) <= 50 + 5 * math.sqrt(1000 * 0.05 * 0.95)


def test_planted_narrow_intervals_and_a_biased_level_are_caught():
    assert uncovered(40, narrow=0.1) > 8
    assert uncovered(40, shift=-1.2) > 8


def test_weights_make_the_variance_least():
    joint = weighted([400, 200, 50], [9.0, 4.0, 1.0])
    assert joint.weights.sum() == pytest.approx(1.0)
    assert joint.count == 650
    best = joint.variance / joint.count
    assert best == pytest.approx(1.0 / (400 / 9 + 200 / 4 + 50))
    rng = np.random.default_rng(1)
    for _ in range(200):
        other = rng.dirichlet(np.ones(3))
        assert (other**2 * np.array([9 / 400, 4 / 200, 1 / 50])).sum() >= best * (1 - 1e-12)


def test_it_is_never_wider_than_the_best_level_by_much_and_one_level_is_itself():
    levels = drawn([np.full(n, 0.25) for n in COUNTS], 3)
    together = combined_mean(levels)
    alone = [mean_estimate(channel, counts, target="population") for channel, counts in levels]
    assert together.standard_error < min(one.standard_error for one in alone)
    assert combined_mean(levels[:1]) == alone[0]


def test_the_mean_is_unbiased():
    """5 standard errors of the mean of 400 markets: a false alarm once in 1.7 million."""
    found = [combined_mean(drawn([np.full(n, -0.4) for n in COUNTS], seed)).value for seed in range(400)]
    spread = np.std(found, ddof=1) / math.sqrt(len(found))
    assert abs(np.mean(found) + 0.4) < 5 * spread
    assert abs(np.mean(found) + 0.4 - 6 * spread) > 5 * spread  # a bias of 6 would be seen


def test_frequencies_of_several_protocols():
    stream, truth = SimulationStream(5), np.array([0.5, 0.3, 0.2])
    values = np.repeat(["a", "b", "c"], (5000, 3000, 2000))
    names = ["a", "b", "c"]
    levels = []
    for one in (KRR(epsilon=0.5, categories=names), OUE(epsilon=1.0, categories=names)):
        reports = one.sample(values, stream) if isinstance(one, KRR) else one.perturb(values, stream)
        supports = np.bincount(reports, minlength=3) if isinstance(one, KRR) else one.support_counts(reports)
        levels.append((supports, len(values), one.p, one.q))
    found = combined_frequencies(levels)
    assert (found.lower <= truth).all()
    assert (truth <= found.upper).all()
    assert (np.abs(found.frequencies - truth) < 5 * found.standard_errors).all()
    assert found.count == 20_000


def test_the_largest_variance_of_a_support():
    for p, q in ((0.5, 0.2), (0.9, 0.1), (0.3, 0.1), (0.9, 0.6)):
        pi = np.linspace(q, p, 10_001)
        assert support_variance(p, q) == pytest.approx((pi * (1 - pi)).max() / (p - q) ** 2, rel=1e-6)


def test_levels_that_differ_are_seen_and_equal_ones_are_not():
    assert are_apart([0.0, 1.0], [1000, 1000], [10.0, 10.0])
    assert not are_apart([0.0, 0.1], [1000, 1000], [10.0, 10.0])
    assert not are_apart([0.0], [1000], [10.0])
    rng = np.random.default_rng(2)
    alarms = sum(
        are_apart(rng.normal(0.0, [0.1, 0.05, 0.2]).tolist(), [100, 400, 25], [1.0, 1.0, 1.0])
        for _ in range(2000)
    )
    assert alarms <= 12  # 1e-3 each: 13 of 2,000 are less likely than 1e-6


def test_what_does_not_belong_together_is_refused():
    with pytest.raises(ParameterError, match="same bounds"):
        combined_mean(
            [(OneBit(epsilon=1.0), [1, 1] * 1024), (OneBit(epsilon=1.0, bounds=(0, 9)), [1] * 2048)]
        )
    with pytest.raises(ParameterError, match="same categories"):
        combined_frequencies([([1, 1], 2, 0.7, 0.3), ([1, 1, 0], 2, 0.7, 0.3)])
    with pytest.raises(ParameterError, match="at least one report"):
        weighted([], [])
