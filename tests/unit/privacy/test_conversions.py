"""Conversions: golden numbers, second methods, and the safe side."""

import math
import random
import warnings
from fractions import Fraction

import mpmath
import pytest

from reticent.errors import ParameterError
from reticent.privacy import conversions
from reticent.privacy.conversions import (
    WastefulFormula,
    classical_sigma,
    discrete_gaussian_sigma,
    mu_of_sigma,
    pure_to_mu,
    sigma_of_mu,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)
from reticent.privacy.gaussian_curve import delta_of, epsilon_of, mu_of

BAD = [0, -1, math.nan, math.inf, 1e309, True, "1", None]

# Golden values, from an independent computation.
GOLDEN_PURE = {
    0.1: 0.12530901221160773,
    0.5: 0.6238925920985083,
    1.0: 1.232035385344901,
    2.0: 2.3579614856472473,
    4.0: 4.194478085560341,
}

# Golden values, from an independent computation, beside the exact crossings found here.
UNSOUND = {
    1e-3: (7.465, 7.463474370),
    1e-4: (7.995, 7.990992606),
    1e-5: (8.424, 8.419771302),
    1e-6: (8.784, 8.782091752),
    1e-8: (9.384, 9.374336740),
}


def excess_of_pure_mu(epsilon: float, mu: float) -> mpmath.mpf:
    """ln p - ln Phi(-mu/2) at the corner p = 1/(1+e^epsilon): >= 0 exactly when mu is large enough."""
    p = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
    return mpmath.log(p) - mpmath.log(mpmath.erfc(mpmath.mpf(mu) / mpmath.sqrt(8)) / 2)


@pytest.mark.parametrize(("epsilon", "mu"), GOLDEN_PURE.items())
def test_golden_pure_to_mu(epsilon, mu):
    assert pure_to_mu(epsilon) == pytest.approx(mu, rel=1e-13)
    assert f"{pure_to_mu(epsilon):.11g}" == f"{mu:.11g}"


def test_pure_to_mu_is_an_upper_bound_and_tight():
    generator = random.Random(1)
    with mpmath.workdps(60):
        for epsilon in [10 ** generator.uniform(-9, 6) for _ in range(2000)]:
            mu = pure_to_mu(epsilon)
            assert excess_of_pure_mu(epsilon, mu) >= 0
            assert excess_of_pure_mu(epsilon, mu * (1 - 1e-13)) < 0


def test_pure_to_mu_rounded_to_nearest_would_be_caught():
    """Planted bug: the stated mu, less the inflation, fails the same check."""
    with mpmath.workdps(60):
        epsilons = [0.01 * k for k in range(1, 300)]
        assert sum(excess_of_pure_mu(e, pure_to_mu(e) * (1 - 5e-14)) < 0 for e in epsilons) > 250


def test_a_pure_mechanism_is_below_its_gaussian_curve_everywhere():
    """Randomised response against its mu-GDP, whole curve; charged epsilon^2 it fails (mathematics 4.4)."""

    def worst_excess(epsilon: float, mu: float) -> float:
        grid = [epsilon * k / 200 for k in range(200)]
        response = [-math.expm1(t - epsilon) / (1 + math.exp(-epsilon)) for t in grid]
        return max(loss - delta_of(mu, t) for loss, t in zip(response, grid, strict=True))

    for epsilon in (0.1, 1.0, 3.0, 10.0):
        assert worst_excess(epsilon, pure_to_mu(epsilon)) <= 1e-15
    assert worst_excess(1.0, 1.0) == pytest.approx(0.08, abs=0.005)


def test_pure_to_mu_edges():
    assert pure_to_mu(0.0) == 0.0
    assert pure_to_mu(5e-324) > 5e-324
    assert pure_to_mu(9e-201) == 1.8e-200  # generous where nobody is
    assert pure_to_mu(1e-9) == pytest.approx(math.sqrt(math.pi / 2) * 1e-9, rel=1e-12)
    assert pure_to_mu(1e6) <= pure_to_mu(1.0000001e6) <= pure_to_mu(1e6) * 1.0001
    assert pure_to_mu(1.0) <= pure_to_mu(math.nextafter(1.0, 2.0)) <= pure_to_mu(1.0) * (1 + 1e-13)
    assert math.isfinite(pure_to_mu(1e308))
    assert not hasattr(conversions, "mu_to_pure")


def test_zcdp_epsilon_against_a_plain_search_over_orders():
    def at_order(rho: float, delta: float, a: float) -> float:
        return a * rho + math.log1p(-1 / a) - math.log(a * delta) / (a - 1)

    for rho in (1e-4, 0.01, 0.5, 10.0, 80.0):
        for delta in (1e-12, 1e-6, 1e-2):
            best = min(at_order(rho, delta, 1 + 10 ** (k / 2000)) for k in range(-8000, 8000))
            assert zcdp_epsilon(rho, delta) <= max(best, 0) * (1 + 1e-12)
            assert zcdp_epsilon(rho, delta) == pytest.approx(max(best, 0), rel=1e-5)


def test_zcdp_is_looser_than_the_exact_gaussian_and_tighter_than_bun_and_steinke():
    for rho in (0.001, 0.1, 0.5, 4.0):
        for delta in (1e-9, 1e-5):
            epsilon = zcdp_epsilon(rho, delta)
            assert epsilon_of(math.sqrt(2 * rho), delta) < epsilon
            assert epsilon < rho + 2 * math.sqrt(rho * math.log(1 / delta))


def test_zcdp_round_trips_are_safe_and_tight():
    generator = random.Random(2)
    for _ in range(1000):
        epsilon, delta = 10 ** generator.uniform(-3, 2), 10 ** generator.uniform(-40, -1)
        rho = zcdp_rho(epsilon, delta)
        assert zcdp_epsilon(rho, delta) <= epsilon
        assert zcdp_delta(rho, epsilon) <= delta
        assert zcdp_epsilon(rho * (1 + 1e-9), delta) > epsilon


def test_zcdp_bounds_against_mpmath():
    """At the order the code picks, evaluated with 60 digits, the bound is not below."""
    generator = random.Random(3)
    with mpmath.workdps(60):
        for _ in range(500):
            rho, delta = 10 ** generator.uniform(-4, 2), 10 ** generator.uniform(-200, -1)
            depth = -mpmath.log(mpmath.mpf(delta))
            b = mpmath.findroot(lambda b: b * b * rho + mpmath.log1p(b) - depth, mpmath.sqrt(depth / rho))  # noqa: B023
            exact = (1 + b) * rho - mpmath.log1p(1 / b) + (depth - mpmath.log1p(b)) / b
            assert 0 <= zcdp_epsilon(rho, delta) - max(exact, 0) <= 1e-12 * max(1, exact)


def test_zcdp_delta_against_mpmath():
    """The best order, found with 60 digits: the bound is never below, and above by rounding alone."""
    generator = random.Random(5)
    with mpmath.workdps(60):
        for _ in range(500):
            rho = 10 ** generator.uniform(-4, 1)
            epsilon = generator.choice([0.0, rho, rho + generator.uniform(0.01, 30) * math.sqrt(2 * rho)])

            def slope(b, rho=rho, epsilon=epsilon):
                return (2 * b + 1) * rho - epsilon - mpmath.log1p(1 / mpmath.mpf(b))

            b = mpmath.exp(mpmath.findroot(lambda z: slope(mpmath.exp(z)), (-20, 20), solver="ridder"))
            exact = b * ((1 + b) * rho - epsilon) + b * mpmath.log(b) - (1 + b) * mpmath.log1p(b)
            excess = mpmath.log(zcdp_delta(rho, epsilon)) - exact
            assert 0 <= excess <= 1e-14 * (10 + b * ((1 + b) * rho + epsilon))


def test_zcdp_rho_is_safe_at_the_ends_of_the_floats():
    for epsilon in (5e-324, 1e-100, 1.0, 1e308, math.nextafter(math.inf, 0.0)):
        for delta in (5e-324, 1e-320, 1e-100, 0.5, 0.999999999, math.nextafter(1.0, 0.0)):
            rho = zcdp_rho(epsilon, delta)
            assert rho >= 0.0
            assert zcdp_epsilon(rho, delta) <= epsilon
            assert zcdp_delta(rho, epsilon) <= delta


def test_zcdp_edges():
    assert zcdp_epsilon(0.0, 1e-5) == 0.0
    assert zcdp_epsilon(0.5, 0.0) == math.inf
    assert zcdp_epsilon(0.5, 1.0) == zcdp_epsilon(1e9, 1.0) == 0.0
    assert zcdp_epsilon(0.0, 0.0) == 0.0
    assert zcdp_epsilon(1.0, 1e-5) > 7.0
    assert zcdp_delta(0.0, 1.0) == 0.0
    assert zcdp_delta(1e6, 1.0) == 1.0
    assert zcdp_delta(1e-6, 700.0) > 0.0
    assert zcdp_rho(1.0, 0.0) == 0.0


def test_sigma_and_mu_round_up():
    generator = random.Random(4)
    for _ in range(1000):
        d, mu = generator.uniform(1e-3, 1e6), 10 ** generator.uniform(-4, 2)
        sigma = sigma_of_mu(d, mu)
        assert Fraction(sigma) * Fraction(mu) >= Fraction(d)
        assert Fraction(mu_of_sigma(d, sigma)) * Fraction(sigma) >= Fraction(d)
        assert mu_of_sigma(d, sigma) == pytest.approx(mu, rel=1e-15)


def test_sigma_overflow_is_an_error():
    with pytest.raises(ParameterError, match="sigma must be a finite number"):
        sigma_of_mu(1e300, 1e-300)


def test_discrete_gaussian_sigma_follows_the_rule():
    for d, information in ((2**24, 1.0), (2**24, 1e-6), (7, 0.3), (2**24, Fraction(1, 3)), (1, 1e9)):
        sigma = Fraction(discrete_gaussian_sigma(d, information))
        assert sigma >= 1024
        assert sigma**2 >= Fraction(d * d) / Fraction(information) + Fraction(1, 6)
    for d, information in ((2**24, 1.0), (1100, 1.0), (1100, Fraction(1, 3))):
        tight = discrete_gaussian_sigma(d, information)
        assert Fraction(math.nextafter(tight, 0)) ** 2 < d * d / Fraction(information) + Fraction(1, 6)
    assert discrete_gaussian_sigma(1, 1e9) == 1024.0


def needed_mu(variance: int, d: int) -> mpmath.mpf:
    """The smallest mu whose Gaussian curve covers a discrete Gaussian shifted by d, over all vertices."""
    width = 3 * (12 * math.isqrt(variance) + d)
    mass = {k: mpmath.exp(-mpmath.mpf(k * k) / (2 * variance)) for k in range(-width, width + 1)}
    total, tail, tails = sum(mass.values()), mpmath.mpf(0), {}
    for k in range(width, -width - 1, -1):
        tail += mass[k]
        tails[k] = tail / total

    def z(k: int) -> mpmath.mpf:
        if k <= 0:
            return -z(1 - k)
        start = mpmath.sqrt(max(0, -2 * mpmath.log(2 * tails[k]))) + mpmath.mpf("0.01")
        return mpmath.findroot(
            lambda x: mpmath.log(mpmath.erfc(x / mpmath.sqrt(2)) / 2) - mpmath.log(tails[k]), start
        )

    reach = width // 3
    return max(z(k) + z(d - k + 1) for k in range(d - reach + 1, reach + 1))


def test_discrete_gaussian_rule_is_a_true_bound():
    """maths 4.4 at sigma of 1 to 3 grid units, harsher than the 2^10 we run; without the 1/6 it fails."""
    with mpmath.workdps(100):
        for variance, d in ((1, 1), (4, 3), (9, 2)):
            mu = needed_mu(variance, d)
            assert mu <= d / mpmath.sqrt(variance - mpmath.mpf(1) / 6)
            assert mu > d / mpmath.sqrt(variance)


@pytest.mark.parametrize(("delta", "edges"), UNSOUND.items())
def test_classical_formula_is_refused_where_it_is_unsound(delta, edges):
    printed, crossing = edges
    for epsilon in (printed, crossing + 1e-6, 20.0):
        with pytest.raises(ParameterError, match="unsound at epsilon"):
            classical_sigma(1.0, epsilon, delta)
    with pytest.warns(WastefulFormula, match="more noise than"):
        assert classical_sigma(1.0, crossing - 1e-6, delta).true_delta <= delta


def test_classical_formula_of_the_documents_budget():
    """(8, 1e-4), their own budget, is just past the edge; at (20, 1e-4) delta is 1.3e-2 (mathematics 2)."""
    with pytest.raises(ParameterError, match=r"claims delta 0.0001 and keeps 0.0001005"):
        classical_sigma(1.0, 8.0, 1e-4)
    with pytest.raises(ParameterError, match=r"keeps 0.01329"):
        classical_sigma(1.0, 20.0, 1e-4)


def test_classical_comparison_reports_the_waste():
    """V exact / V paper = 1.86 at (1, 1e-4) (mathematics 2); epsilon is really 0.705."""
    with pytest.warns(
        WastefulFormula,
        match=r"adds 36\.3 % more noise than \(1, 0\.0001\) needs: sigma 43\.4361 instead of 31\.857$",
    ):
        found = classical_sigma(10.0, 1.0, 1e-4)
    assert found.ratio**2 == pytest.approx(1.859052, rel=1e-6)
    assert found.exact_sigma == pytest.approx(10 / mu_of(1.0, 1e-4), rel=1e-12)
    assert found.classical_sigma == pytest.approx(10 * math.sqrt(2 * math.log(12500)), rel=1e-12)
    assert epsilon_of(10 / found.classical_sigma, 1e-4) == pytest.approx(0.705, abs=5e-4)
    # mathematics 2: V_paper at (1, 1e-4).
    assert 100 / found.classical_sigma**2 == pytest.approx(0.05300268745521966, rel=1e-12)


def test_the_warning_is_a_user_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        classical_sigma(1.0, 0.5, 1e-5)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (sigma_of_mu, {"sensitivity": 1.0, "mu": 1.0}, "sensitivity"),
        (sigma_of_mu, {"sensitivity": 1.0, "mu": 1.0}, "mu"),
        (mu_of_sigma, {"sensitivity": 1.0, "sigma": 1.0}, "sigma"),
        (zcdp_rho, {"epsilon": 1.0, "delta": 1e-5}, "epsilon"),
        (discrete_gaussian_sigma, {"sensitivity": 1, "information": 1.0}, "sensitivity"),
        (discrete_gaussian_sigma, {"sensitivity": 1, "information": 1.0}, "information"),
        (classical_sigma, {"sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-5}, "epsilon"),
        (classical_sigma, {"sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-5}, "delta"),
    ],
)
def test_bad_parameters_are_named(function, arguments, name, bad):
    with pytest.raises((ValueError, TypeError), match=rf"^{name} must be .*, got "):
        function(**(arguments | {name: bad}))


def test_information_as_a_fraction_must_be_positive():
    with pytest.raises(ParameterError, match="information must be > 0, got -1/3"):
        discrete_gaussian_sigma(1, Fraction(-1, 3))


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, True, "1", None])
@pytest.mark.parametrize(
    "function", [pure_to_mu, lambda x: zcdp_epsilon(x, 0.1), lambda x: zcdp_delta(x, 1.0)]
)
def test_bad_first_parameter(function, bad):
    with pytest.raises((ValueError, TypeError), match=r"^(epsilon|rho) must be .*, got "):
        function(bad)
