"""IBU: closed forms, a second optimiser, asymmetric channels, planted bugs, a rival that transposes."""

import math
import warnings

import numpy as np
import pytest
from scipy import optimize

from reticent.errors import ParameterError, ParameterTypeError
from reticent.estimation import (
    bin_matrix,
    frequency_estimate,
    generalised_ibu,
    ibu,
    numeric_distribution,
    symbol_counts,
)
from reticent.mechanisms.numeric.hybrid import HMTP, PM, Duchi
from reticent.randomness import SimulationStream

ASYMMETRIC = np.array([[0.7, 0.2, 0.1], [0.05, 0.6, 0.35], [0.3, 0.1, 0.6]])
WIDE = np.array([[0.4, 0.3, 0.1, 0.1, 0.1], [0.1, 0.2, 0.4, 0.2, 0.1], [0.05, 0.05, 0.1, 0.3, 0.5]])


def krr_matrix(k, epsilon):
    c = math.exp(epsilon)
    return np.full((k, k), 1 / (c + k - 1)) + np.eye(k) * (c - 1) / (c + k - 1)


def log_likelihood(matrix, counts, theta):
    seen = counts > 0
    return float(counts[seen] @ np.log((theta @ matrix)[seen]))


@pytest.fixture(params=[True, False], ids=["accelerated", "plain"])
def accelerated(request):
    return request.param


@pytest.mark.parametrize("ones", [0, 10, 30, 45, 90, 100])
def test_two_categories_in_closed_form(ones, accelerated):
    # The likelihood has one parameter: its maximum is the unbiased estimate, cut to [0, 1].
    matrix = np.array([[0.8, 0.2], [0.3, 0.7]])
    found = ibu(matrix, [100 - ones, ones], tolerance=1e-13, accelerated=accelerated)
    closed = frequency_estimate([ones], 100, p=0.7, q=0.2).frequencies.clip(0, 1)[0]
    assert found.converged
    assert found.distribution[1] == pytest.approx(closed, abs=1e-5)


@pytest.mark.parametrize("matrix", [ASYMMETRIC, WIDE], ids=["square", "wide"])
@pytest.mark.parametrize("seed", range(5))
def test_against_a_general_optimiser(matrix, seed, accelerated):
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(300, rng.dirichlet(np.ones(3) * 0.7) @ matrix)
    found = ibu(matrix, counts, tolerance=1e-11, accelerated=accelerated)
    other = optimize.minimize(
        lambda theta: -log_likelihood(matrix, counts, theta) / 300,
        np.full(3, 1 / 3),
        bounds=[(1e-12, 1)] * 3,
        constraints={"type": "eq", "fun": lambda theta: theta.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    assert found.distribution == pytest.approx(other.x, abs=1e-4)
    assert found.log_likelihood == pytest.approx(log_likelihood(matrix, counts, found.distribution))
    assert found.log_likelihood >= -other.fun * 300 - 1e-6


def transposed_ibu(matrix, counts, iterations=5000):
    """Planted bug: one product with the matrix where its transpose belongs."""
    theta, shares = np.full(len(matrix), 1 / len(matrix)), counts / counts.sum()
    for _ in range(iterations):
        theta = theta * (matrix @ (shares / (matrix @ theta)))
    return theta


def recovery_error(estimate, matrix=ASYMMETRIC):
    """How far an estimator is from the truth when the counts are exactly as expected."""
    truth = np.array([0.5, 0.3, 0.2])
    counts = np.round(truth @ matrix * 10**6).astype(int)
    return np.abs(estimate(matrix, counts) - truth).max()


def test_an_asymmetric_channel_comes_out_right_and_a_transposed_one_is_caught():
    assert recovery_error(lambda m, c: ibu(m, c, tolerance=1e-12).distribution) < 1e-4
    assert recovery_error(transposed_ibu) > 0.05
    assert recovery_error(transposed_ibu, krr_matrix(3, 1.0)) < 1e-4  # a symmetric channel hides it


def rival():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip(
            "multi_freq_ldpy.estimators.Histogram_estimator", reason="multi-freq-ldpy is not installed"
        )
        module.IBU(2, np.eye(2), np.array([0.5, 0.5]), 1, 1e-9, "max_abs")  # compile
    return module.IBU


def test_multi_freq_ldpy_is_wrong_on_asymmetric_channels():
    their = rival()
    error = recovery_error(lambda m, c: their(3, m, c / c.sum(), 5000, 1e-15, "max_abs"))
    assert error > 0.05


def test_same_updates_as_multi_freq_ldpy_on_symmetric_channels():
    their = rival()
    matrix = krr_matrix(20, 1.0)
    counts = np.random.default_rng(0).multinomial(1000, np.full(20, 0.05))
    found = ibu(matrix, counts, accelerated=False, tolerance=0.0, max_iterations=100)
    assert found.iterations == 100
    assert found.distribution == pytest.approx(
        their(20, matrix, counts / 1000, 100, 1e-300, "max_abs"), abs=1e-14
    )


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_acceleration_has_the_same_limit_and_takes_fewer_updates(epsilon):
    rng = np.random.default_rng(7)
    matrix = krr_matrix(50, epsilon)
    counts = rng.multinomial(100_000, rng.dirichlet(np.ones(50)) @ matrix)
    fast = ibu(matrix, counts, tolerance=1e-7)
    slow = ibu(matrix, counts, tolerance=1e-7, accelerated=False, max_iterations=100_000)
    assert fast.converged
    assert slow.converged
    assert fast.iterations < slow.iterations / 3
    assert fast.log_likelihood == pytest.approx(slow.log_likelihood, abs=1e-7 * 100_000)
    assert fast.distribution == pytest.approx(slow.distribution, abs=2e-3 / epsilon)


def test_the_likelihood_never_falls(accelerated):
    rng = np.random.default_rng(8)
    matrix = krr_matrix(30, 1.0)
    counts = rng.multinomial(1000, rng.dirichlet(np.ones(30)) @ matrix)
    reached = [
        ibu(matrix, counts, tolerance=0.0, max_iterations=m, accelerated=accelerated).log_likelihood
        for m in range(1, 60)
    ]
    assert (np.diff(reached) >= -1e-9).all()


def test_the_gap_bounds_what_is_left(accelerated):
    rng = np.random.default_rng(9)
    matrix = krr_matrix(30, 1.0)
    counts = rng.multinomial(1000, rng.dirichlet(np.ones(30)) @ matrix)
    best = ibu(matrix, counts, tolerance=1e-12, max_iterations=100_000).log_likelihood
    for limit in (1, 5, 20, 100):
        early = ibu(matrix, counts, tolerance=0.0, max_iterations=limit, accelerated=accelerated)
        assert not early.converged
        assert best - early.log_likelihood <= early.gap * 1000 + 1e-9


def test_the_start_is_used_and_does_not_matter_in_the_end():
    counts = np.array([40, 30, 30])
    start = np.array([0.90, 0.05, 0.05])
    assert ibu(
        ASYMMETRIC, counts, start=start, max_iterations=1, tolerance=0.0
    ).distribution == pytest.approx(start * (ASYMMETRIC @ (counts / 100 / (start @ ASYMMETRIC))))
    ends = [ibu(ASYMMETRIC, counts, start=s, tolerance=1e-12).distribution for s in (None, start)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-5)


def test_outputs_never_seen_and_impossible_outputs():
    padded = np.concatenate([ASYMMETRIC, np.zeros((3, 5))], axis=1)
    counts = np.array([40, 30, 30])
    expected = ibu(ASYMMETRIC, counts)
    assert ibu(padded, np.append(counts, np.zeros(5, int))).distribution == pytest.approx(
        expected.distribution
    )
    one_short = np.concatenate([ASYMMETRIC, np.zeros((3, 1))], axis=1)
    assert ibu(one_short, np.append(counts, 0)).distribution == pytest.approx(expected.distribution)
    assert ibu(np.eye(3), [5, 0, 5]).distribution == pytest.approx([0.5, 0.0, 0.5])
    with pytest.raises(ParameterError, match="counts must be 0 for outputs that the matrix makes impossible"):
        ibu(padded, np.append(counts, np.ones(5, int)))


def test_result_is_a_frozen_distribution(accelerated):
    found = ibu(WIDE, [1, 2, 3, 4, 5], accelerated=accelerated)
    assert found.distribution.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.distribution.min() >= 0.0
    assert not found.distribution.flags.writeable
    with pytest.raises(AttributeError):
        found.gap = 0.0


def test_rounds_with_different_channels():
    truth = np.array([0.5, 0.3, 0.2])
    rounds = [(m, np.round(truth @ m * size).astype(int)) for m, size in ((ASYMMETRIC, 10**6), (WIDE, 10**5))]
    assert generalised_ibu(rounds, tolerance=1e-12).distribution == pytest.approx(truth, abs=1e-4)
    single = generalised_ibu(rounds[:1])
    assert single.distribution == pytest.approx(ibu(*rounds[0]).distribution)
    # Two rounds of one channel are one round of the sum.
    a, b = np.array([10, 20, 30]), np.array([5, 0, 1])
    both = generalised_ibu([(ASYMMETRIC, a), (ASYMMETRIC, b)], tolerance=1e-12)
    assert both.distribution == pytest.approx(ibu(ASYMMETRIC, a + b, tolerance=1e-12).distribution, abs=1e-4)


@pytest.mark.parametrize(
    "channel", [PM(epsilon=1.0, levels=21), Duchi(epsilon=2.0, bounds=(0.0, 5.0))], ids=repr
)
def test_bin_matrix(channel):
    lower, upper = channel.bounds
    centres = lower + (upper - lower) * (np.arange(5) + 0.5) / 5
    assert bin_matrix(channel, 5, points=1) == pytest.approx(channel.probabilities(centres))
    fine = lower + (upper - lower) * (np.arange(5 * 400) + 0.5) / (5 * 400)
    averaged = channel.probabilities(fine).reshape(5, 400, -1).mean(axis=1)
    assert bin_matrix(channel, 5) == pytest.approx(averaged, abs=2e-3)
    assert bin_matrix(channel, 5).sum(axis=1) == pytest.approx(1.0)


def test_numeric_distribution_finds_two_groups():
    channel, rng = HMTP(epsilon=4.0, levels=201), np.random.default_rng(3)
    values = np.where(
        rng.random(200_000) < 0.7, rng.uniform(-0.8, -0.4, 200_000), rng.uniform(0.4, 0.8, 200_000)
    )
    counts = symbol_counts(channel, channel.sample(values, SimulationStream(3)))
    found = numeric_distribution(channel, counts, 5)
    truth = np.histogram(values, bins=5, range=(-1, 1))[0] / values.size
    # Standard errors are near 0.005; the false-alarm rate is below 1e-6, and a mirrored one is caught.
    assert found.distribution == pytest.approx(truth, abs=0.03)
    assert found.distribution[::-1] != pytest.approx(truth, abs=0.03)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ibu(ASYMMETRIC, [1, 2]), "counts must have one entry per output, 3, got 2"),
        (lambda: ibu(ASYMMETRIC, [0, 0, 0]), "counts must sum to at least 1"),
        (lambda: ibu(ASYMMETRIC, [1, -1, 1]), "counts must be >= 0"),
        (lambda: ibu(ASYMMETRIC.T, [1, 1, 1]), r"matrix must have rows \(one per input\) that sum to 1"),
        (lambda: ibu(np.zeros((0, 3)), [1, 1, 1]), "matrix must be a non-empty table"),
        (
            lambda: ibu(ASYMMETRIC, [1, 1, 1], start=[0.5, 0.5]),
            "start must have one entry per input, 3, got 2",
        ),
        (lambda: ibu(ASYMMETRIC, [1, 1, 1], start=[0.5, 0.5, 0.0]), "start must be > 0 in every entry"),
        (lambda: ibu(ASYMMETRIC, [1, 1, 1], tolerance=-1.0), "tolerance must be >= 0, got -1.0"),
        (lambda: ibu(ASYMMETRIC, [1, 1, 1], max_iterations=0), "max_iterations must be >= 1, got 0"),
        (lambda: generalised_ibu([]), "rounds must hold at least one"),
        (
            lambda: generalised_ibu([(np.eye(2), [1, 1]), (np.eye(3), [1, 1, 1])]),
            r"share their inputs, got \[2, 3\]",
        ),
        (lambda: bin_matrix(Duchi(epsilon=1.0), 0), "bins must be >= 1, got 0"),
        (
            lambda: numeric_distribution(Duchi(epsilon=1.0), [1, 2, 3], 4),
            "counts must have one entry per output, 2",
        ),
    ],
)
def test_bad_parameters(call, message):
    with pytest.raises(ParameterError, match=message):
        call()


def test_bad_types():
    with pytest.raises(ParameterTypeError, match="counts must be whole numbers, got dtype float64"):
        ibu(ASYMMETRIC, [0.5, 0.3, 0.2])
    with pytest.raises(ParameterTypeError, match="tolerance must be a number, got None"):
        ibu(ASYMMETRIC, [1, 1, 1], tolerance=None)
    with pytest.raises(ParameterTypeError, match="channel must be a NumericChannel, got int"):
        numeric_distribution(3, [1], 4)
