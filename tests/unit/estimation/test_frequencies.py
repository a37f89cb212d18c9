"""Frequencies, projection, inversion."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize, stats

from reticent.errors import ParameterError, ParameterTypeError
from reticent.estimation import frequency_estimate, invert, project_to_simplex

E = math.e
KRR = (E / (E + 9), 1 / (E + 9))
OUE = (0.5, 1 / (E + 1))


def krr_matrix(k, epsilon):
    c = math.exp(epsilon)
    return np.full((k, k), 1 / (c + k - 1)) + np.eye(k) * (c - 1) / (c + k - 1)


def test_expected_counts_give_the_truth():
    p, q = Fraction(1, 2), Fraction(1, 4)
    estimate = frequency_estimate([400, 250, 350], 1000, p=p, q=q)
    assert estimate.frequencies == pytest.approx([0.6, 0.0, 0.4])
    assert not estimate.frequencies.flags.writeable
    assert (estimate.lower <= [0.6, 0.0, 0.4]).all()
    assert (estimate.upper >= [0.6, 0.0, 0.4]).all()


def test_standard_error_is_that_of_the_mechanism():
    # Wang et al. 2017, the variance of a pure protocol at f = 0: q(1 - q)/(n (p - q)^2).
    p, q = OUE
    n = 10**10
    estimate = frequency_estimate([round(q * n)], n, p=p, q=q)
    assert estimate.standard_errors[0] == pytest.approx(math.sqrt(q * (1 - q) / n) / (p - q), rel=1e-4)


def coverage(n, share, p, q):
    """Exact, as a sum of two binomials: no draws, no false alarms."""
    own = round(share * n)
    law = np.convolve(
        stats.binom.pmf(np.arange(own + 1), own, p), stats.binom.pmf(np.arange(n - own + 1), n - own, q)
    )
    estimate = frequency_estimate(np.arange(n + 1), n, p=p, q=q)
    return float(law[(estimate.lower <= own / n) & (own / n <= estimate.upper)].sum())


@pytest.mark.parametrize(("p", "q"), [KRR, OUE])
@pytest.mark.parametrize("n", [1, 2, 5, 20, 100, 1000])
def test_each_frequency_is_covered(n, p, q):
    assert min(coverage(n, share, p, q) for share in (0.0, 0.01, 0.3, 1.0)) >= 0.95 - 1e-9


def test_many_reports_give_the_normal_width():
    p, q = KRR
    n = 10**7
    estimate = frequency_estimate([n // 5], n, p=p, q=q)
    assert estimate.upper[0] - estimate.lower[0] == pytest.approx(
        2 * 1.959964 * math.sqrt(0.2 * 0.8 / n) / (p - q), rel=0.01
    )


def test_simultaneous_intervals_are_bonferroni():
    p, q = OUE
    joint = frequency_estimate([300, 280, 310, 290], 1000, p=p, q=q, confidence=0.9, simultaneous=True)
    each = frequency_estimate([300, 280, 310, 290], 1000, p=p, q=q, confidence=0.975)
    assert joint.upper == pytest.approx(each.upper)
    assert (joint.confidence, joint.simultaneous) == (0.9, True)


def test_all_supports_may_be_zero():
    assert (frequency_estimate([0, 0], 3, p=0.5, q=0.25).frequencies == -1.0).all()


@pytest.mark.parametrize("seed", range(20))
def test_projection_against_a_second_method(seed):
    given = np.random.default_rng(seed).normal(0.1, 0.5, 7)
    found = project_to_simplex(given)
    assert found.sum() == pytest.approx(1.0)
    assert found.min() >= 0.0
    threshold = optimize.brentq(lambda t: np.maximum(given - t, 0).sum() - 1, -10, 10, xtol=1e-15)
    assert found == pytest.approx(np.maximum(given - threshold, 0), abs=1e-12)


def test_projection_leaves_a_distribution_alone_and_ignores_an_offset():
    given = np.array([0.2, 0.5, 0.3, 0.0])
    assert project_to_simplex(given) == pytest.approx(given, abs=1e-15)
    assert project_to_simplex(given + 1e6) == pytest.approx(given, abs=1e-9)
    assert project_to_simplex([-3.0]) == pytest.approx([1.0])


def test_inversion_equals_the_closed_form():
    counts = np.array([30, 50, 15, 5])
    matrix = krr_matrix(4, 1.0)
    found = invert(matrix, counts)
    p, q = matrix[0, 0], matrix[0, 1]
    assert found.frequencies == pytest.approx((counts / 100 - q) / (p - q))
    assert found.determined
    assert found.condition == pytest.approx(1 / (p - q))  # eigenvalues 1 and p - q


def test_inversion_of_an_asymmetric_channel():
    matrix = np.array([[0.7, 0.2, 0.05, 0.05], [0.1, 0.3, 0.3, 0.3], [0.25, 0.25, 0.0, 0.5]])
    truth = np.array([0.5, 0.2, 0.3])
    counts = (truth @ matrix * 1000).round().astype(int)
    assert invert(matrix, counts).frequencies == pytest.approx(truth, abs=1e-9)
    # Planted bug: the transposed system gives something else.
    assert np.linalg.lstsq(matrix[:, :3], counts[:3] / 1000, rcond=None)[0] != pytest.approx(truth, abs=0.05)


def test_a_singular_channel_gives_the_shortest_solution():
    matrix = np.array([[0.5, 0.5], [0.5, 0.5], [0.9, 0.1]])
    found = invert(matrix, [70, 30])
    assert (found.rank, found.determined) == (2, False)
    assert found.frequencies == pytest.approx(np.linalg.pinv(matrix.T) @ [0.7, 0.3])


def test_a_numerically_void_channel_is_refused():
    place = np.arange(40.0)
    weight = np.exp(-0.1 * (place[:, None] - place[None]) ** 2)
    matrix = weight / weight.sum(axis=1, keepdims=True)
    with pytest.raises(
        ParameterError, match=r"matrix must have a condition number <= 1e\+08, got .*; use ibu"
    ):
        invert(matrix, np.full(40, 10))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: frequency_estimate([1], 2, p=0.2, q=0.3), "p must be > q, got p = 0.2 and q = 0.3"),
        (lambda: frequency_estimate([1], 2, p=1.2, q=0.3), "p must be >= 0 and <= 1, got 1.2"),
        (lambda: frequency_estimate([1], 2, p=0.5, q=math.nan), "q must be finite, got nan"),
        (lambda: frequency_estimate([3], 2, p=0.5, q=0.2), "support_counts must be <= count = 2, got 3"),
        (lambda: frequency_estimate([-3], 2, p=0.5, q=0.2), "support_counts must be >= 0"),
        (lambda: frequency_estimate([], 2, p=0.5, q=0.2), "support_counts must be a non-empty vector"),
        (lambda: frequency_estimate([1], 0, p=0.5, q=0.2), "count must be >= 1, got 0"),
        (
            lambda: frequency_estimate([1], 2, p=0.5, q=0.2, confidence=-1),
            "confidence must be > 0 and < 1, got -1",
        ),
        (lambda: project_to_simplex([]), "frequencies must be a non-empty vector"),
        (lambda: project_to_simplex([1.0, math.inf]), "frequencies must be finite"),
        (lambda: invert([[0.5, 0.6]], [1, 1]), "matrix must have rows .* that sum to 1, off by 0.1"),
        (lambda: invert([[1.5, -0.5]], [1, 1]), "matrix must be >= 0 in every entry"),
        (lambda: invert([[math.nan, 0.5]], [1, 1]), "matrix must be >= 0 in every entry"),
        (lambda: invert([0.5, 0.5], [1, 1]), r"matrix must be a non-empty table .*, got shape \(2,\)"),
        (lambda: invert([[0.5, 0.5], [1.0]], [1, 1]), "matrix must be a rectangular array"),
        (lambda: invert(np.eye(2), [1, 1, 1]), "counts must have one entry per output, 2, got 3"),
        (lambda: invert(np.eye(2), [1, 1], max_condition=0.5), "max_condition must be >= 1, got 0.5"),
    ],
)
def test_bad_parameters(call, message):
    with pytest.raises(ParameterError, match=message):
        call()


def test_bad_types():
    with pytest.raises(ParameterTypeError, match=r"p must be a number, got '0\.5'"):
        frequency_estimate([1], 2, p="0.5", q=0.1)
    with pytest.raises(ParameterTypeError, match="matrix must be numbers"):
        invert([["a", "b"]], [1, 1])


def test_what_people_are_shown_is_in_its_interval():
    """Planted: the unbiased frequency itself may be below zero, where the interval ends."""
    estimate = frequency_estimate([900, 100], 1000, p=0.5, q=0.25)
    assert estimate.frequencies[1] < estimate.lower[1] == 0.0
    assert ((estimate.lower <= estimate.shown) & (estimate.shown <= estimate.upper)).all()
    assert ((estimate.shown >= 0.0) & (estimate.shown <= 1.0)).all()
