"""Every parameter of the room: an error names it, states the rule, shows the value; the edges are let in."""

import math
import re
import warnings
from fractions import Fraction

import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.privacy import (
    MAX_UNITS,
    ApproximateDP,
    Budget,
    GaussianDP,
    LocalDP,
    MetricDP,
    PureDP,
    WastefulFormula,
    ZeroConcentratedDP,
    classical_sigma,
    delta_of,
    discrete_gaussian_sigma,
    epsilon_of,
    format_units,
    mixture_delta,
    mixture_epsilon,
    mu_of,
    mu_of_sigma,
    pure_to_mu,
    sigma_of_mu,
    spent_epsilon,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)

# The rule as it is printed: values that break it, values at and near its edges that keep it.
RULES = {
    ">= 0": ([-0.5, -5e-324], [0, 0.0, 0.5]),
    "> 0": ([0, 0.0, -0.5], [1e-3, 0.5]),
    ">= 0 and <= 1": ([-5e-324, 1.0000001, 1.5], [0.0, 0.5, 1.0]),
    ">= 0 and < 1": ([-5e-324, 1, 1.0, 1.5], [0.0, 0.5, 0.999]),
    "> 0 and < 1": ([0, 0.0, 1.0, 1.5], [1e-3, 0.5, 0.999]),
    ">= 1": ([0, -1], [1, 2]),
    f"<= {MAX_UNITS}": ([MAX_UNITS + 1], [0, 1, MAX_UNITS]),
}

PARAMETERS = [
    (delta_of, {"mu": ">= 0", "epsilon": ">= 0"}),
    (epsilon_of, {"mu": ">= 0", "delta": ">= 0 and <= 1"}),
    (mu_of, {"epsilon": ">= 0", "delta": ">= 0 and < 1"}),
    (pure_to_mu, {"epsilon": ">= 0"}),
    (zcdp_delta, {"rho": ">= 0", "epsilon": ">= 0"}),
    (zcdp_epsilon, {"rho": ">= 0", "delta": ">= 0 and <= 1"}),
    (zcdp_rho, {"epsilon": "> 0", "delta": ">= 0 and < 1"}),
    (sigma_of_mu, {"sensitivity": "> 0", "mu": "> 0"}),
    (mu_of_sigma, {"sensitivity": "> 0", "sigma": "> 0"}),
    (discrete_gaussian_sigma, {"sensitivity": ">= 1", "information": "> 0"}),
    (classical_sigma, {"sensitivity": "> 0", "epsilon": "> 0", "delta": "> 0 and < 1"}),
    (Budget, {"epsilon": "> 0", "delta": "> 0 and < 1"}),
    (spent_epsilon, {"mu2_units": f"<= {MAX_UNITS}", "delta": ">= 0 and <= 1"}),
    (format_units, {"units": f"<= {MAX_UNITS}"}),
    (lambda delta: mixture_epsilon(PureDP(0.5), GaussianDP(0.5), delta=delta), {"delta": ">= 0 and < 1"}),
    (lambda epsilon: mixture_delta(PureDP(0.5), GaussianDP(0.5), epsilon=epsilon), {"epsilon": ">= 0"}),
    (PureDP, {"epsilon": "> 0"}),
    (ApproximateDP, {"epsilon": ">= 0", "delta": "> 0 and < 1"}),
    (GaussianDP, {"mu": "> 0"}),
    (ZeroConcentratedDP, {"rho": "> 0"}),
    (LocalDP, {"epsilon": "> 0"}),
    (lambda **given: MetricDP(distance_unit="km", **given), {"epsilon_per_unit": "> 0", "slack": ">= 0"}),
    (MetricDP(1.0, "km").within, {"diameter": "> 0"}),
    (PureDP(1.0).repeat, {"count": ">= 1"}),
]
CASES = [(function, rules, name) for function, rules in PARAMETERS for name in rules]


def good_arguments(rules):
    return {name: RULES[rule][1][1] for name, rule in rules.items()}


@pytest.mark.parametrize(("function", "rules", "name"), CASES)
def test_a_value_against_the_rule_is_refused_in_full_words(function, rules, name):
    for bad in RULES[rules[name]][0]:
        with pytest.raises(ParameterError) as caught:
            function(**(good_arguments(rules) | {name: bad}))
        assert str(caught.value) == f"{name} must be {rules[name]}, got {bad!r}"
    with pytest.raises(ParameterTypeError, match=rf"^{name} must be a (whole )?number, got 'x'$"):
        function(**(good_arguments(rules) | {name: "x"}))


@pytest.mark.parametrize(("function", "rules", "name"), CASES)
def test_the_edges_of_the_rule_are_let_in(function, rules, name):
    for good in RULES[rules[name]][1]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WastefulFormula)
            assert function(**(good_arguments(rules) | {name: good})) is not None


@pytest.mark.parametrize("function", [spent_epsilon, lambda units, _: format_units(units)])
def test_units_are_not_negative(function):
    with pytest.raises(ParameterError, match=r"^(mu2_)?units must be >= 0, got -1$"):
        function(-1, 0.5)


@pytest.mark.parametrize("bad", [Fraction(0), Fraction(-1, 3)])
def test_information_as_a_fraction_is_positive_too(bad):
    with pytest.raises(ParameterError, match=re.escape(f"information must be > 0, got {bad}")):
        discrete_gaussian_sigma(1, bad)


@pytest.mark.parametrize(
    ("attempt", "name"),
    [
        (lambda: sigma_of_mu(1e300, 1e-300), "sigma"),
        (lambda: mu_of_sigma(1e300, 1e-300), "mu"),
        (lambda: discrete_gaussian_sigma(10**300, 1e-300), "sigma"),
    ],
)
def test_what_overflows_is_named(attempt, name):
    with pytest.raises(
        ParameterError, match=rf"^{name} must be a finite number: these arguments overflow it$"
    ):
        attempt()
    assert math.isfinite(sigma_of_mu(1e300, 1e-8))
