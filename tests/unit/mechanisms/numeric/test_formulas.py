"""The documents' closed forms against the golden tables (corrected specification, sections 1.2, 1.3, 2)."""

import math

import numpy as np
import pytest

from reticent.mechanisms.numeric import formulas as f

COLUMNS = {
    "laplace_var": f.laplace_worst,
    "duchi_C": f.duchi_bound,
    "duchi_var": f.duchi_worst,
    "pm_C": lambda e: f.piecewise_bound(e, f.pm_t(e)),
    "pm_var": lambda e: f.piecewise_worst(e, f.pm_t(e)),
    "hm_alpha": f.hm_alpha,
    "hm_var": f.hm_worst,
    "three_P00": f.three_outputs_p00,
    "three_C": lambda e: f.three_outputs_bound(e, f.three_outputs_p00(e)),
    "three_var": f.three_outputs_worst,
    "pmopt_t": f.pm_opt_t,
    "pmopt_A": lambda e: f.piecewise_bound(e, f.pm_opt_t(e)),
    "pmopt_var": lambda e: f.piecewise_worst(e, f.pm_opt_t(e)),
    "pmsub_t": f.pm_sub_t,
    "pmsub_A": lambda e: f.piecewise_bound(e, f.pm_sub_t(e)),
    "pmsub_var": lambda e: f.piecewise_worst(e, f.pm_sub_t(e)),
    "hmtp_beta": f.hmtp_beta,
    "hmtp_var": f.hmtp_worst,
    "onebit_C": f.duchi_bound,
    "onebit_var": f.one_bit_worst,
}


@pytest.mark.parametrize("column", COLUMNS)
def test_golden_column(golden, column):
    for row in golden["mechanisms"].values():
        assert COLUMNS[column](row["eps"]) == pytest.approx(row[column], rel=1e-12, abs=1e-13), row["eps"]


def worst_of(name):
    t = {"pm": f.pm_t, "pmopt": f.pm_opt_t, "pmsub": f.pm_sub_t}
    if name in t:
        return lambda e: f.piecewise_worst(e, t[name](e))
    others = {"duchi": f.duchi_worst, "laplace": f.laplace_worst, "three": f.three_outputs_worst}
    return {**others, "hm": f.hm_worst, "hmtp": f.hmtp_worst, "onebit": f.one_bit_worst}[name]


def test_crossings(golden):
    """Table II / 3.1: where one worst-case variance overtakes another."""
    for pair, where in golden["constants"]["cross"].items():
        first, second = (worst_of(name) for name in pair.split("_"))
        for epsilon in np.atleast_1d(where):
            assert first(epsilon) == pytest.approx(second(epsilon), rel=1e-10)
            before, after = (first(epsilon + d) - second(epsilon + d) for d in (-1e-3, 1e-3))
            assert before * after < 0


def test_branch_points(golden):
    assert pytest.approx(golden["constants"]["eps_hm"], rel=1e-14) == f.EPSILON_HM
    assert pytest.approx(golden["constants"]["eps_prime_three"], rel=1e-14) == f.EPSILON_THREE
    assert pytest.approx(golden["constants"]["eps_star_hmtp"], rel=1e-14) == f.EPSILON_HMTP
    epsilon = f.EPSILON_ONEBIT_OPTIMAL
    assert f.coth(math.tanh(epsilon / 2)) == pytest.approx(math.exp(epsilon) + 1, rel=1e-14)


def brute_force_minimum(objective, low, high):
    grid = np.linspace(low, high, 4001)
    return min(objective(float(point)) for point in grid)


@pytest.mark.parametrize("epsilon", [0.3, 0.8, 1.0, 1.5, 2.0, 3.0, 6.0])
def test_parameters_minimise_what_they_claim(epsilon):
    """Second method: a grid search cannot beat the closed forms by more than its resolution."""
    t = f.pm_opt_t(epsilon)
    found = brute_force_minimum(lambda s: f.piecewise_worst(epsilon, s), t / 2, t * 2)
    assert f.piecewise_worst(epsilon, t) <= found * (1 + 1e-12)
    c = math.exp(epsilon)

    def three_worst(a):
        bound = f.three_outputs_bound(epsilon, a)
        top = min(1.0, bound**2 * a * (1 - 1 / c) / 2)
        return bound**2 * (1 - a + a * (1 - 1 / c) * top) - top * top

    assert f.three_outputs_worst(epsilon) <= brute_force_minimum(three_worst, 0.0, c / (c + 2)) * (1 + 1e-9)
    if epsilon > f.EPSILON_HMTP:
        x = np.linspace(0, 1, 2001)
        pm = np.array([f.piecewise_variance(epsilon, f.pm_sub_t(epsilon), v) for v in x])
        three = np.array([f.three_outputs_variance(epsilon, v) for v in x])
        found = brute_force_minimum(lambda beta: (beta * pm + (1 - beta) * three).max(), 0.0, 1.0)
        assert f.hmtp_worst(epsilon) <= found * (1 + 1e-6)


def test_the_printed_hybrid_weight_is_refused_by_this_check():
    """Planted: beta_4 as printed is negative at epsilon 1, which no probability is."""
    c, t, a = math.e, f.pm_sub_t(1.0), f.three_outputs_p00(1.0)
    assert 0 < f.hmtp_beta(1.0) < 1
    k = a * a * c * c * (c + 1) ** 4 / ((c + t) ** 2 * (c - a) ** 4 * (c - 1))
    w1 = -k / 4 + ((t + 1) ** 3 + c - 1) / (3 * t * t * (c - 1) ** 2)
    w1 -= (1 - a) * c * c * (c + 1) ** 2 / ((c + t) * (c - 1) ** 2 * (c - a) ** 2)
    printed = (-math.sqrt(-((1 + t) ** 2) * k / 4 / w1) + c - 1) / (c + t) - 1 + t / (c + t)
    assert printed < 0


def test_one_bit_multi_dimensional_golden(golden):
    for case, variance in golden["multi_d"]["values"].items():
        d, epsilon, k = (float(part.strip("depsk")) for part in case.split(","))
        assert f.one_bit_worst(epsilon / k, k / d) == pytest.approx(variance, rel=1e-12)
