"""Guarantees, their exact arithmetic, and the budgets of the ledger. Pure mathematics, no data.

* `guarantees`: what is promised, to whom, between which neighbours; composition within one kind.
* `gaussian_curve`: the exact (epsilon, delta) curve of Gaussian noise and its inverses.
* `conversions`: pure to Gaussian, zCDP to (epsilon, delta), sigma, and the classical formula compared.
* `budget`: integers of the ledger, 1 unit = 1e-12.
* `composition`: mixtures, through Google's dp-accounting (extra `accounting`).
* `normal`, `rounding`: the numerical ground: Mills ratio with its error bound, directed rounding.

Everything here rounds to the safe side: costs and guarantees up, caps and budgets down.
"""

from reticent.privacy.budget import (
    MAX_UNITS,
    UNITS_PER_ONE,
    Budget,
    cap_units,
    cost_units,
    format_units,
    mu2_cost,
    parse_decimal,
    parse_units,
    spent_epsilon,
)
from reticent.privacy.composition import from_event, mixture_delta, mixture_epsilon, to_event
from reticent.privacy.conversions import (
    ClassicalComparison,
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
from reticent.privacy.guarantees import (
    ApproximateDP,
    GaussianDP,
    Guarantee,
    LocalDP,
    MetricDP,
    Neighbours,
    PureDP,
    ZeroConcentratedDP,
    compose,
)

__all__ = [
    "MAX_UNITS",
    "UNITS_PER_ONE",
    "ApproximateDP",
    "Budget",
    "ClassicalComparison",
    "GaussianDP",
    "Guarantee",
    "LocalDP",
    "MetricDP",
    "Neighbours",
    "PureDP",
    "WastefulFormula",
    "ZeroConcentratedDP",
    "cap_units",
    "classical_sigma",
    "compose",
    "cost_units",
    "delta_of",
    "discrete_gaussian_sigma",
    "epsilon_of",
    "format_units",
    "from_event",
    "mixture_delta",
    "mixture_epsilon",
    "mu2_cost",
    "mu_of",
    "mu_of_sigma",
    "parse_decimal",
    "parse_units",
    "pure_to_mu",
    "sigma_of_mu",
    "spent_epsilon",
    "to_event",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_rho",
]
