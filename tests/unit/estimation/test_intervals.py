"""Coverage by exact computation: no draws, so no false alarms."""

import math
from functools import lru_cache

import numpy as np
import pytest
from scipy import stats

from reticent.errors import ParameterError, ParameterTypeError
from reticent.estimation import deviation_bound, proportion_interval
from reticent.estimation.intervals import kl


def binomial_sum(n, share, p, q):
    """The law of successes when round(share n) trials have probability p and the others q."""
    own = round(share * n)
    size = 1 << (n + 1).bit_length()
    first = np.fft.rfft(stats.binom.pmf(np.arange(own + 1), own, p), size)
    second = np.fft.rfft(stats.binom.pmf(np.arange(n - own + 1), n - own, q), size)
    return own, np.fft.irfft(first * second, size)[: n + 1].clip(0)


@lru_cache(maxsize=8)
def limits(interval, n, confidence):
    return interval(np.arange(n + 1), n, confidence=confidence)


def proportion_coverage(interval, n, share, p, q, confidence=0.95):
    own, law = binomial_sum(n, share, p, q)
    pi = (own * p + (n - own) * q) / n
    lower, upper = limits(interval, n, confidence)
    return float(law[(lower <= pi) & (pi <= upper)].sum())


CASES = [
    (share, p, q)
    for share in (0.0, 0.05, 0.5, 1.0)
    for p, q in ((0.731, 0.269), (0.5, 0.269), (0.9, 0.001), (0.2, 0.0003), (1.0, 0.0))
]


@pytest.mark.parametrize("n", [1, 2, 5, 20, 100, 1000, 100_000])
def test_proportions_are_covered(n):
    worst = min(proportion_coverage(proportion_interval, n, *case) for case in CASES)
    print(f"n = {n}: least coverage {worst:.4f}")
    assert worst >= 0.95 - 1e-9


@pytest.mark.parametrize("confidence", [0.1, 0.5, 0.999])
def test_proportions_are_covered_at_other_levels(confidence):
    for n in (1, 3, 30, 300):
        for case in CASES:
            assert (
                proportion_coverage(proportion_interval, n, *case, confidence=confidence) >= confidence - 1e-9
            )


def test_every_binomial_of_a_small_count_is_covered():
    for n in range(1, 12):
        for pi in np.linspace(0.0, 1.0, 101):
            assert proportion_coverage(proportion_interval, n, 1.0, pi, pi) >= 0.95 - 1e-9


def wald(successes, count, *, confidence):
    """Planted bug: the normal interval with plug-in variance."""
    mean = np.asarray(successes) / count
    half = stats.norm.ppf(0.5 + confidence / 2) * np.sqrt(mean * (1 - mean) / count)
    return mean - half, mean + half


@pytest.mark.parametrize("n", [5, 20, 100, 1000])
def test_the_coverage_check_catches_a_plug_in_interval(n):
    assert min(proportion_coverage(wald, n, *case) for case in CASES) < 0.95 - 0.005


@pytest.mark.parametrize("n", [10, 1000, 100_000])
def test_proportion_limits_enclose_clopper_pearson_within_one_count(n):
    hits = np.unique(np.linspace(1, n - 1, 50).round())
    lower, upper = proportion_interval(hits, n)
    exact_lower = stats.beta.ppf(0.025, hits, n - hits + 1)
    exact_upper = stats.beta.ppf(0.975, hits + 1, n - hits)
    assert (lower <= exact_lower + 1e-12).all()
    assert (upper >= exact_upper - 1e-12).all()
    assert (lower >= stats.beta.ppf(0.025, np.maximum(hits - 1, 1), n - hits + 2) * (hits > 1) - 1e-12).all()


def test_ends_are_exact():
    lower, upper = proportion_interval([0, 7], 7)
    assert lower[0] == 0.0
    assert upper[1] == 1.0
    assert upper[0] == pytest.approx(1 - 0.025 ** (1 / 7))
    assert lower[1] == pytest.approx(0.025 ** (1 / 7))


def test_divergence_of_coins():
    assert kl(np.array([0.0, 1.0, 0.3]), np.array([0.5, 0.5, 0.3])) == pytest.approx(
        [math.log(2), math.log(2), 0]
    )
    assert kl(np.array([0.5]), np.array([0.0]))[0] == math.inf


def exact_tail(n, variance, reach, width):
    """P(deviation of the mean >= width) of the extremal law, two values with mean 0."""
    p = variance / (reach * reach + variance)  # of the value `reach`; the other is -variance/reach
    least = (width + variance / reach) / (reach + variance / reach) * n
    return stats.binom.sf(math.ceil(least - 1e-9) - 1, n, p)


@pytest.mark.parametrize("n", [1, 2, 5, 20, 100, 1000, 10_000, 100_000, 10_000_000])
@pytest.mark.parametrize("reach", [1.1, 3.0, 30.0])
@pytest.mark.parametrize("true_share", [1.0, 0.5, 0.1, 0.01])
def test_deviation_bound_holds_for_two_values(n, reach, true_share):
    # The variance may be smaller than its bound: the law then only gets more skew.
    width = deviation_bound(n, 1.0, reach)
    assert exact_tail(n, true_share, reach, width) <= 0.025 or width == reach


def test_deviation_bound_shrinks_to_the_normal_width():
    ratio = [
        deviation_bound(n, 4.0, 3.0) / (1.959964 * math.sqrt(4.0 / n)) for n in (300, 10_000, 10**6, 10**8)
    ]
    assert ratio == sorted(ratio, reverse=True)
    assert ratio[1] < 1.15
    assert 1.0 < ratio[3] < 1.01


def test_deviation_bound_is_monotone():
    base = deviation_bound(500, 4.0, 3.0)
    assert deviation_bound(600, 4.0, 3.0) < base
    assert deviation_bound(500, 5.0, 3.0) > base
    assert deviation_bound(500, 4.0, 4.0) > base
    assert deviation_bound(500, 4.0, 3.0, confidence=0.99) > base
    assert deviation_bound(1, 4.0, 3.0) == 3.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: deviation_bound(0, 1.0, 1.0), "count must be >= 1, got 0"),
        (lambda: deviation_bound(1, 0.0, 1.0), "variance must be > 0, got 0.0"),
        (lambda: deviation_bound(1, 1.0, math.nan), "reach must be finite, got nan"),
        (lambda: deviation_bound(1, 1.0, 1.0, confidence=1.0), "confidence must be > 0 and < 1, got 1.0"),
        (lambda: proportion_interval([1], 0), "count must be >= 1, got 0"),
        (lambda: proportion_interval([3], 2), "successes must be whole numbers >= 0 and <= count = 2"),
        (lambda: proportion_interval([0.5], 2), "successes must be whole numbers"),
        (lambda: proportion_interval([], 2), "successes must be a non-empty vector"),
        (lambda: proportion_interval([1], 2, confidence=0), "confidence must be > 0 and < 1, got 0"),
    ],
)
def test_bad_parameters(call, message):
    with pytest.raises(ParameterError, match=message):
        call()


def test_a_count_that_is_no_whole_number():
    with pytest.raises(ParameterTypeError, match=r"count must be a whole number, got 1\.5"):
        deviation_bound(1.5, 1.0, 1.0)
