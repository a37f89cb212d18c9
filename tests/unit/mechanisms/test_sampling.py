import math
from fractions import Fraction
from itertools import combinations

import mpmath
import numpy as np
import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.numeric import HMTP, OneBit, formulas
from reticent.mechanisms.sampling import (
    VARIANCES,
    best_sample_size,
    documents_sample_size,
    epsilon_each,
    sample_sizes,
    sampled_attributes,
    worst_sampled_variance,
)
from reticent.randomness import SimulationStream

DIMENSIONS = (2, 3, 4, 5, 6, 8, 10, 16, 20, 32, 50, 100)
EPSILONS = (0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 20)

# mathematics 1.2: (d, epsilon, k) -> one-bit with rho = k/d (12 digits, golden.json "multi_d") and HM-TP.
GOLDEN = {
    (4, 1, 1): (17.814036784695137, 20.483),
    (10, 1, 1): (45.860272357004064, 52.707),
    (10, 4, 2): (7.686872083144838, 8.8576),
    (100, 4, 2): (85.20974961186882, 97.576),
}


@pytest.mark.parametrize(("case", "values"), GOLDEN.items())
def test_golden_variances(case, values):
    d, epsilon, k = case
    assert best_sample_size(epsilon, d) == best_sample_size(epsilon, d, HMTP) == k
    assert worst_sampled_variance(epsilon, d, k) == pytest.approx(values[0], rel=1e-12)
    assert worst_sampled_variance(epsilon, d, k, OneBit) == worst_sampled_variance(epsilon, d, k)
    assert worst_sampled_variance(epsilon, d, k, "HM-TP") == pytest.approx(values[1], rel=3e-5)


def rho_one(epsilon, d, k):
    """OneBit made for a single number (rho = 1), sampled all the same."""
    return d / k * (formulas.one_bit_worst(epsilon / k) + 1.0) - 1.0


@pytest.mark.parametrize(
    ("name", "worst_loss"),
    [
        ("Duchi", 1.248),
        ("PM", 1.208),
        ("HM", 1.380),
        ("PM-SUB", 1.207),
        ("PM-OPT", 1.212),
        ("Three-Outputs", 1.207),
        ("HM-TP", 1.330),
        ("one-bit (rho=1)", 1.704),
    ],
)
def test_worst_loss_of_the_documents_rule(name, worst_loss):
    """mathematics 1.2, last column, to its printed digits; always at epsilon 4."""
    losses = {}
    for d in DIMENSIONS:
        for epsilon in EPSILONS:
            sizes = range(1, min(d, 20) + 1)
            if name in VARIANCES:
                values = {k: worst_sampled_variance(epsilon, d, k, name) for k in sizes}
                assert best_sample_size(epsilon, d, name) == min(values, key=values.__getitem__)
            else:
                values = {k: rho_one(epsilon, d, k) for k in sizes}
            losses[d, epsilon] = values[documents_sample_size(epsilon, d)] / min(values.values())
    at = max(losses, key=losses.__getitem__)
    assert losses[at] == pytest.approx(worst_loss, abs=5e-4)
    assert at[1] == 4


@pytest.mark.parametrize("name", sorted(VARIANCES))
def test_objective_is_the_maximum_over_a_fine_grid(name):
    for epsilon, d, k in ((0.5, 3, 1), (4.0, 5, 2), (9.0, 4, 4), (3.0, 3, 2)):
        x = np.linspace(0.0, 1.0, 2001)
        spread = np.array([VARIANCES[name](epsilon / k, point) for point in x])
        brute = np.max(d / k * (spread + x * x) - x * x)
        assert worst_sampled_variance(epsilon, d, k, name) == pytest.approx(brute, rel=1e-6)


def test_all_attributes_sampled_is_the_plain_worst_case():
    for name, worst in (
        ("Duchi", formulas.duchi_worst),
        ("HM", formulas.hm_worst),
        ("HM-TP", formulas.hmtp_worst),
    ):
        assert worst_sampled_variance(3.0, 1, 1, name) == pytest.approx(worst(3.0), rel=1e-12)


def test_one_bit_beats_the_documents_mechanisms_once_d_is_two_k():
    """maths 1.2: what counts is then the largest E[Y^2], which nobody has below C^2; OneBit is near it."""
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        one_bit = worst_sampled_variance(epsilon, 10, 1)
        assert all(worst_sampled_variance(epsilon, 10, 1, name) > one_bit for name in VARIANCES)
        least = 10 * formulas.duchi_worst(epsilon) - 1
        assert least < one_bit < 1.005 * least


@pytest.mark.parametrize(
    ("epsilon", "d", "k"), [(1, 10, 1), (2.49, 10, 1), (2.5, 10, 1), (5, 10, 2), (9.9, 10, 3), (20, 3, 3)]
)
def test_documents_rule(epsilon, d, k):
    assert documents_sample_size(epsilon, d) == k


def test_sizes_worth_considering():
    assert list(sample_sizes(0.3, 10)) == [1]
    assert list(sample_sizes(3.2, 10)) == [1, 2, 3, 4]
    assert list(sample_sizes(20, 2)) == [1, 2]


def test_split_epsilon_never_exceeds_the_whole():
    for epsilon in np.linspace(0.01, 20, 500):
        for k in (1, 2, 3, 7, 11):
            each = epsilon_each(float(epsilon), k)
            assert Fraction(each) * k <= Fraction(float(epsilon))
            assert each >= epsilon / k * (1 - 1e-15)


def test_every_subset_is_equally_likely():
    n = 300_000
    rows = sampled_attributes(n, 6, 3, SimulationStream(1))
    assert (np.diff(rows, axis=1) > 0).all()
    codes = (1 << rows).sum(axis=1)
    counts = np.array(
        [np.count_nonzero(codes == sum(1 << i for i in subset)) for subset in combinations(range(6), 3)]
    )
    assert counts.sum() == n
    statistic = float(((counts - n / 20) ** 2 / (n / 20)).sum())
    assert mpmath.gammainc(19 / 2, statistic / 2, mpmath.inf, regularized=True) > 1e-6


def test_all_and_none():
    assert sampled_attributes(2, 4, 4, SimulationStream(1)).tolist() == [[0, 1, 2, 3]] * 2
    assert sampled_attributes(0, 4, 2).shape == (0, 2)
    assert math.isclose(sampled_attributes(20_000, 1000, 1, SimulationStream(2)).mean(), 499.5, rel_tol=0.03)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: best_sample_size(0, 3), ParameterError, "epsilon must be > 0, got 0"),
        (lambda: best_sample_size(1.0, 0), ParameterError, "dimensions must be >= 1, got 0"),
        (
            lambda: best_sample_size(1.0, 2.5),
            ParameterTypeError,
            "dimensions must be a whole number, got 2.5",
        ),
        (
            lambda: best_sample_size(1.0, 3, "Gauss"),
            ParameterError,
            "mechanism must be one of Duchi, .*'Gauss'",
        ),
        (lambda: worst_sampled_variance(1.0, 3, 4), ParameterError, "sample_size must be <= 3, got 4"),
        (lambda: documents_sample_size("1", 3), ParameterTypeError, "epsilon must be a number, got '1'"),
        (lambda: sampled_attributes(3, 2, 3), ParameterError, "sample_size must be <= 2, got 3"),
    ],
)
def test_bad_parameters(call, error, message):
    with pytest.raises(error, match=message):
        call()
