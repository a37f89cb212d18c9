"""Intervals of tailored channels follow from their reports: narrower where the guess was right, never wrong.

All seeds are fixed. Coverage may be below its level by 5 standard errors of a proportion: 3e-7 each.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from reticent.estimation import means, variance_witness
from reticent.estimation.means import mean_estimate, symbol_counts, variance_bound
from reticent.estimation.variance_witness import find_witness
from reticent.mechanisms.numeric import Optimal
from reticent.mechanisms.numeric.priors import Prior
from reticent.mechanisms.numeric.tailored import Tailored
from reticent.randomness import SimulationStream

BOUNDS = (-20.0, 60.0)
REPORTS = 8_000
VALUES = {
    "as guessed": lambda rng, n: rng.normal(0.0, 0.25, n),
    "elsewhere": lambda rng, n: rng.normal(0.8, 0.1, n),
    "at both ends": lambda rng, n: rng.choice([-1.0, 1.0], n),
    "one value": lambda rng, n: np.full(n, 0.03),
}


@pytest.fixture(scope="module")
def channels():
    return {
        epsilon: Tailored(epsilon=epsilon, prior=Prior.normal(0.0, 0.27), regret=0.25, bounds=BOUNDS)
        for epsilon in (2.0, 4.0)
    }


def draw_values(name, rng, count=REPORTS):
    return 20.0 + 40.0 * np.clip(VALUES[name](rng, count), -1.0, 1.0)


def estimate(channel, values, seed, **options):
    return mean_estimate(
        channel, symbol_counts(channel, channel.sample(values, SimulationStream(seed))), **options
    )


def least_margin(channel):
    """How far the expectation of the witness is above the variance, at the worst input."""
    witness = find_witness.__wrapped__(channel, of_population=False)
    inputs = np.linspace(*BOUNDS, 4_001)
    return float((channel.probabilities(inputs) @ witness.values - channel.variance(inputs)).min())


def test_the_witness_is_above_the_variance_at_every_input(channels, monkeypatch):
    for channel in channels.values():
        assert least_margin(channel) >= 0.0
    monkeypatch.setattr(variance_witness, "_between_knots", np.zeros_like)  # planted: only at the knots
    assert min(map(least_margin, channels.values())) < 0.0


def test_the_witness_of_a_population_is_above_variance_and_spread(channels):
    rng = np.random.default_rng(2)
    for channel in channels.values():
        witness = find_witness(channel, of_population=True)
        for name in VALUES:
            values = draw_values(name, rng)
            whole = channel.variance(values).mean() + values.var()
            assert (channel.probabilities(values) @ witness.values).mean() >= whole * (1 - 1e-9)


def test_the_variance_of_the_witness_is_its_largest(channels):
    for channel in channels.values():
        witness = find_witness(channel, of_population=False)
        law = channel.probabilities(np.linspace(*BOUNDS, 4_001))
        spread = law @ witness.values**2 - (law @ witness.values) ** 2
        assert spread.max() <= witness.variance * (1 + 1e-9)
        assert spread.max() == pytest.approx(witness.variance, rel=1e-3)


def coverage(channel, name, times=100):
    rng, held = np.random.default_rng(7), 0
    for seed in range(times):
        values = draw_values(name, rng)
        found = estimate(channel, values, seed)
        held += found.lower <= values.mean() <= found.upper
    return held / times


@pytest.mark.parametrize("name", VALUES)
def test_intervals_hold_wherever_the_values_lie(channels, name):
    for channel in channels.values():
        assert coverage(channel, name) > 0.95 - 5 * math.sqrt(0.95 * 0.05 / 100)


def test_planted_a_witness_that_is_too_small_is_caught(channels, monkeypatch):
    def a_fiftieth(channel, *, of_population):
        right = find_witness(channel, of_population=of_population)
        return variance_witness.VarianceWitness(
            0.1 * right.values, 0.01 * right.variance, 0.1 * right.expected
        )

    monkeypatch.setattr(means, "find_witness", a_fiftieth)
    assert coverage(channels[4.0], "as guessed") < 0.95 - 5 * math.sqrt(0.95 * 0.05 / 100)


def width_beside_optimal(channel):
    """The width of the interval where the guess is right, beside that of the mechanism for no guess."""
    values = draw_values("as guessed", np.random.default_rng(9))
    plain = Optimal(epsilon=channel.epsilon, bounds=BOUNDS)
    widths = [one.upper - one.lower for one in (estimate(each, values, 3) for each in (channel, plain))]
    return widths[0] / widths[1]


def test_a_right_guess_narrows_the_interval(channels, monkeypatch):
    """As told: tailored surveys had smaller errors and wider intervals."""
    assert width_beside_optimal(channels[2.0]) < 0.95
    assert width_beside_optimal(channels[4.0]) < 0.85
    monkeypatch.setattr(means, "_WORTH_IT", 0.0)  # planted: the worst case counts
    assert width_beside_optimal(channels[2.0]) > 1.05
    assert width_beside_optimal(channels[4.0]) > 1.05


def test_few_reports_rest_on_the_worst_case(channels):
    values = draw_values("as guessed", np.random.default_rng(1), 5)
    for target in ("reporters", "population"):
        found = estimate(channels[4.0], values, 1, target=target)
        assert found.standard_error**2 * 5 == pytest.approx(variance_bound(channels[4.0], target))


# Intervals at a bound


def test_a_mean_at_a_bound_keeps_its_width():
    plain = Optimal(epsilon=0.5, bounds=BOUNDS)
    narrowest = math.inf
    for seed in range(200):
        found = estimate(plain, np.full(40, BOUNDS[0]), seed)
        assert found.lower <= BOUNDS[0] <= found.upper
        assert found.lower <= found.shown <= found.upper
        narrowest = min(narrowest, (found.upper - found.lower) / found.standard_error)
    assert narrowest > 1.0


def test_planted_a_mean_that_is_only_cut_is_caught():
    """The interval before: both ends of an interval outside of the bounds were the nearest bound."""
    found = means.MeanEstimate.of(-40.0, 5.0, 1.0, BOUNDS, 10, 0.95, "reporters")
    before = tuple(min(max(end, BOUNDS[0]), BOUNDS[1]) for end in (-45.0, -35.0))
    assert before == (-20.0, -20.0)
    assert (found.lower, found.upper) == (-20.0, -15.0)
