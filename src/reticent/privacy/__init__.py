"""Guarantees, their exact arithmetic, and the budgets of the ledger. Pure mathematics, no data.

* `guarantees`: what is promised, to whom, between which neighbours; composition within one kind.
* `gaussian_curve`: the exact (epsilon, delta) curve of Gaussian noise and its inverses.
* `conversions`: pure to Gaussian, zCDP to (epsilon, delta), sigma, and the classical formula compared.
* `budget`: integers of the ledger, 1 unit = 1e-12.
* `composition`: mixtures, through Google's dp-accounting (extra `accounting`).
* `normal`, `rounding`: the numerical ground: Mills ratio with its error bound, directed rounding.

Everything here rounds to the safe side: costs and guarantees up, caps and budgets down.

What is named here is loaded when it is first used: a device converts and composes nothing.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
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
        ApproximateMetricDP,
        GaussianDP,
        Guarantee,
        LocalDP,
        MetricDP,
        PureDP,
        ZeroConcentratedDP,
        compose,
    )
    from reticent.privacy.neighbours import Neighbours

__all__ = [
    "MAX_UNITS",
    "UNITS_PER_ONE",
    "ApproximateDP",
    "ApproximateMetricDP",
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

_HOMES = {
    "MAX_UNITS": "budget",
    "UNITS_PER_ONE": "budget",
    "ApproximateDP": "guarantees",
    "ApproximateMetricDP": "guarantees",
    "Budget": "budget",
    "ClassicalComparison": "conversions",
    "GaussianDP": "guarantees",
    "Guarantee": "guarantees",
    "LocalDP": "guarantees",
    "MetricDP": "guarantees",
    "Neighbours": "neighbours",
    "PureDP": "guarantees",
    "WastefulFormula": "conversions",
    "ZeroConcentratedDP": "guarantees",
    "cap_units": "budget",
    "classical_sigma": "conversions",
    "compose": "guarantees",
    "cost_units": "budget",
    "delta_of": "gaussian_curve",
    "discrete_gaussian_sigma": "conversions",
    "epsilon_of": "gaussian_curve",
    "format_units": "budget",
    "from_event": "composition",
    "mixture_delta": "composition",
    "mixture_epsilon": "composition",
    "mu2_cost": "budget",
    "mu_of": "gaussian_curve",
    "mu_of_sigma": "conversions",
    "parse_decimal": "budget",
    "parse_units": "budget",
    "pure_to_mu": "conversions",
    "sigma_of_mu": "conversions",
    "spent_epsilon": "budget",
    "to_event": "composition",
    "zcdp_delta": "conversions",
    "zcdp_epsilon": "conversions",
    "zcdp_rho": "conversions",
}


def __getattr__(name: str) -> _typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'reticent.privacy' has no attribute {name!r}")
    return getattr(_import_module(f"reticent.privacy.{_HOMES[name]}"), name)
