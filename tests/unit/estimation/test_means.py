"""Means: identities, exact coverage for every number of reports, a planted bug."""

import math

import numpy as np
import pytest
from scipy import stats

from reticent.errors import ParameterError, ParameterTypeError
from reticent.estimation import deviation_bound, mean_estimate, report_counts, symbol_counts
from reticent.mechanisms.numeric.hybrid import HMTP, PM, Duchi, PMSub, ThreeOutputs
from reticent.randomness import SimulationStream

CHANNELS = [Duchi(epsilon=1.0), ThreeOutputs(epsilon=2.0), PMSub(epsilon=4.0, levels=21), HMTP(epsilon=1.0)]
GRIDS = [Duchi(epsilon=1.0), Duchi(epsilon=4.0), ThreeOutputs(epsilon=2.0), PMSub(epsilon=4.0, levels=21)]
INPUTS = [(-1.0, 1.0), (0.0, 0.0), (1.0, 1.0), (0.9, -0.3)]  # half of the reporters each


@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
def test_the_estimate_is_the_mean_report(channel):
    reports = channel.perturb(np.linspace(-1, 1, 1001), SimulationStream(1))
    counts = report_counts(channel, reports)
    assert counts.sum() == 1001
    estimate = mean_estimate(channel, counts)
    assert estimate.value == pytest.approx(reports.mean(), abs=1e-12)
    assert estimate.standard_error == pytest.approx(math.sqrt(channel.worst_case_variance / 1001))
    assert (estimate.count, estimate.confidence, estimate.target) == (1001, 0.95, "reporters")


@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
def test_counts_of_symbols_and_of_reports_agree(channel):
    values = np.linspace(-1, 1, 500)
    symbols = channel.sample(values, SimulationStream(2))
    counts = symbol_counts(channel, symbols)
    again = report_counts(channel, channel.alphabet[symbols])
    assert mean_estimate(channel, counts) == mean_estimate(channel, again)


def test_bounds_shift_and_scale_everything():
    unit, celsius = PM(epsilon=1.0, levels=21), PM(epsilon=1.0, levels=21, bounds=(-10.0, 30.0))
    counts = np.arange(unit.size)
    for target in ("reporters", "population"):
        a, b = mean_estimate(unit, counts, target=target), mean_estimate(celsius, counts, target=target)
        assert b.standard_error == pytest.approx(20 * a.standard_error)
        assert [b.value, b.lower, b.upper] == pytest.approx(
            [10 + 20 * x for x in (a.value, a.lower, a.upper)]
        )


def test_a_population_has_a_wider_interval():
    channel = PM(epsilon=4.0, levels=201)
    counts = symbol_counts(channel, channel.sample(np.zeros(10_000), SimulationStream(3)))
    reporters, population = (mean_estimate(channel, counts, target=t) for t in ("reporters", "population"))
    assert population.value == reporters.value
    assert population.upper - population.lower > 1.5 * (reporters.upper - reporters.lower)
    # Duchi's reports have the variance C^2 - mean^2 whatever the population.
    duchi = mean_estimate(Duchi(epsilon=1.0), [1, 1], target="population")
    assert duchi.standard_error == pytest.approx(math.sqrt(4.68269437683 / 2))


def test_the_interval_stays_within_the_bounds():
    channel = Duchi(epsilon=1.0)
    one = mean_estimate(channel, [0, 1])
    assert (one.lower, one.upper) == (-1.0, 1.0)
    assert one.value == pytest.approx(2.16395341374)
    impossible = mean_estimate(channel, [0, 100_000])
    assert impossible.upper == 1.0
    assert 0.97 < impossible.lower < 0.99  # it keeps its width: 1.96 standard errors, and a little


def law_of_sum(channel, inputs, n):
    """The exact law of the sum of n reports of a channel with an evenly spaced alphabet."""
    step = np.diff(channel.alphabet)
    assert np.ptp(step) < 1e-12
    first, second = inputs
    size = n * (channel.size - 1) + 1
    padded = 1 << size.bit_length()
    laws = [np.fft.rfft(channel.probabilities(x), padded) for x in (first, second)]
    law = np.fft.irfft(laws[0] ** (n - n // 2) * laws[1] ** (n // 2), padded)[:size].clip(0)
    sums = n * channel.alphabet[0] + step.mean() * np.arange(size)
    return law, sums / n, ((n - n // 2) * first + n // 2 * second) / n


@pytest.mark.parametrize("n", [1, 2, 5, 20, 100, 1000, 100_000])
def test_the_mean_of_the_reporters_is_covered(n):
    """By exact convolution: no draws, no false alarms."""
    worst = 1.0
    for channel in GRIDS:
        # Before it is clipped to bounds that hold the truth, the interval is value +- width.
        width = deviation_bound(n, channel.worst_case_variance, float(channel.alphabet[-1]) + 1.0)
        counts = np.zeros(channel.size, dtype=int)
        counts[0], counts[-1] = n - n // 2, n // 2
        probe = mean_estimate(channel, counts)
        assert probe.upper == pytest.approx(min(probe.value + width, 1.0))
        for inputs in INPUTS:
            law, values, truth = law_of_sum(channel, inputs, n)
            assert law.sum() == pytest.approx(1.0, abs=1e-6)
            worst = min(worst, float(law[np.abs(values - truth) <= width].sum()))
    print(f"n = {n}: least coverage {worst:.4f}")
    assert worst >= 0.95


def two_value_coverage(estimate, channel, x, n):
    """Exact coverage of (lower, upper) = estimate(channel, counts) for a channel of two symbols."""
    hits = np.arange(n + 1)
    law = stats.binom.pmf(hits, n, channel.probabilities(x)[1])
    limits = np.array([estimate(channel, [n - k, k]) for k in hits])
    return float(law[(limits[:, 0] <= x) & (x <= limits[:, 1])].sum())


def honest(channel, counts):
    estimate = mean_estimate(channel, counts)
    return estimate.lower, estimate.upper


def plug_in(channel, counts):
    """Planted bug: normal quantile, variance from the reports themselves."""
    n = sum(counts)
    value = np.dot(counts, channel.alphabet) / n
    spread = math.sqrt(np.dot(counts, (channel.alphabet - value) ** 2) / n)
    half = 1.96 * spread / math.sqrt(n)
    return np.clip(value - half, -1, 1), np.clip(value + half, -1, 1)


@pytest.mark.parametrize("n", [1, 2, 5, 20, 100])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_coverage_from_counts_to_limits(n, epsilon):
    channel = Duchi(epsilon=epsilon)
    for x in (-1.0, -0.9, 0.0, 0.5, 1.0):
        assert two_value_coverage(honest, channel, x, n) >= 0.95


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_coverage_check_catches_a_plug_in_variance(n):
    assert two_value_coverage(plug_in, Duchi(epsilon=4.0), 0.9, n) < 0.9


def test_a_hybrid_is_covered_in_simulation():
    # 400 rounds of 20 reports; 41 misses have probability below 1e-5 if 5 % is the true rate.
    channel, stream = HMTP(epsilon=1.0), SimulationStream(4)
    values = np.linspace(-1.0, 0.6, 20)
    misses = 0
    for _ in range(400):
        estimate = mean_estimate(channel, symbol_counts(channel, channel.sample(values, stream)))
        misses += not estimate.lower <= values.mean() <= estimate.upper
    assert misses < 41


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 5, 20, 100, 1000])
def test_a_population_is_covered_in_simulation(n):
    # 2,000 rounds each; 150 misses have probability below 1e-6 if 5 % is the true rate.
    channel, stream, rng = PM(epsilon=4.0, levels=201), SimulationStream(5), np.random.default_rng(5)
    misses = 0
    for _ in range(2000):
        values = np.where(rng.random(n) < 0.7, 1.0, -1.0)
        counts = symbol_counts(channel, channel.sample(values, stream))
        estimate = mean_estimate(channel, counts, target="population")
        misses += not estimate.lower <= 0.4 <= estimate.upper
    assert misses < 150


DUCHI = Duchi(epsilon=1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_estimate(DUCHI, [1, 2, 3]), "counts must have one entry per output, 2, got 3"),
        (lambda: mean_estimate(DUCHI, [0, 0]), "counts must sum to at least 1 and less than 2.53, got 0"),
        (lambda: mean_estimate(DUCHI, [-1, 2]), "counts must be >= 0"),
        (lambda: mean_estimate(DUCHI, []), "counts must be a non-empty vector"),
        (lambda: mean_estimate(DUCHI, [[1, 2]]), r"counts must be a non-empty vector, got shape \(1, 2\)"),
        (lambda: mean_estimate(DUCHI, [1, 2], confidence=1.2), "confidence must be > 0 and < 1, got 1.2"),
        (
            lambda: mean_estimate(DUCHI, [1, 2], target="all"),
            "target must be 'reporters' or 'population', got 'all'",
        ),
        (lambda: symbol_counts(DUCHI, [0, 2]), "symbols must be >= 0 and < 2"),
        (lambda: symbol_counts(DUCHI, np.array([], dtype=int)), "symbols must be a non-empty vector"),
        (
            lambda: report_counts(DUCHI, [0.0, 1e9]),
            "reports must be outputs of the channel, got 2 of 2 that are not",
        ),
        (lambda: report_counts(DUCHI, [math.nan]), "reports must be finite"),
    ],
)
def test_bad_parameters(call, message):
    with pytest.raises(ParameterError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_estimate(DUCHI, [0.5, 1.0]), "counts must be whole numbers, got dtype float64"),
        (lambda: mean_estimate(DUCHI, [True, False]), "counts must be whole numbers, got dtype bool"),
        (lambda: mean_estimate("Duchi", [1, 2]), "channel must be a NumericChannel, got str"),
        (lambda: mean_estimate(DUCHI, [1, 2], confidence="0.9"), "confidence must be a number, got '0.9'"),
        (lambda: symbol_counts(DUCHI, [0.0]), "symbols must be whole numbers, got dtype float64"),
        (lambda: report_counts(DUCHI, ["a"]), "reports must be numbers"),
    ],
)
def test_bad_types(call, message):
    with pytest.raises(ParameterTypeError, match=message):
        call()
