"""From one kind of guarantee to another, only where it is sound, always to the safe side.

There is no `mu_to_pure`: a Gaussian has no pure epsilon at any mu > 0 (its delta is positive for
every epsilon). Nor is there a conversion of zCDP to GDP: rho-zCDP bounds mu^2 by 2 rho for Gaussian
noise only (mathematics 4.4).

The classical formula of the documents is here as a labelled comparison, never as a calibration.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.privacy.gaussian_curve import delta_of, mu_of
from reticent.privacy.normal import (
    LOG_SQRT_TWO_PI,
    ROUNDING,
    SQRT_HALF,
    SQRT_HALF_PI,
    log_error,
    log_upper_tail,
    mills_ratio,
    rough_quantile,
)
from reticent.privacy.rounding import divide_up, sqrt_up

# Noise finer than this many grid units is not close enough to Gaussian for mathematics 4.4.
LEAST_GRID_SIGMA = 1024.0


def pure_to_mu(epsilon: float) -> float:
    """Return the mu of the GDP guarantee that a pure epsilon implies, rounded up.

    mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)): the Gaussian trade-off curve through the corner of the
    pure one, hence below it everywhere by convexity (mathematics 2). Relative excess below 1e-13.

    Reference: Dong, Roth and Su 2022, Section 2 (trade-off functions of pure and Gaussian privacy).
    """
    epsilon = real("epsilon", epsilon, low=0.0)
    if epsilon == 0.0:
        return 0.0
    if epsilon < 1e-200:
        return 2.0 * epsilon  # mu is about 1.2533 epsilon
    if epsilon > 1e6:  # Phi(-z) <= exp(-z^2/2) / 2 <= 1 / (1 + e^epsilon) at z = sqrt(2 epsilon)
        return 2.0 * sqrt_up(2 * Fraction(epsilon))
    z = _centre_quantile(epsilon) if epsilon <= 1.0 else _tail_quantile(epsilon)
    return 2.0 * z


def _centre_quantile(epsilon: float) -> float:
    """The z with erf(z / sqrt 2) >= tanh(epsilon / 2): the same equation, kept exact for small epsilon."""
    wanted = math.tanh(0.5 * epsilon) * (1.0 + 16.0 * ROUNDING)
    z = SQRT_HALF_PI * wanted
    for _ in range(20):
        miss = wanted - math.erf(z * SQRT_HALF)
        z += 0.5 * miss * math.exp(0.5 * z * z + LOG_SQRT_TWO_PI)
        if abs(miss) <= 4.0 * ROUNDING * wanted:
            break
    grow = 4.0 * ROUNDING
    while math.erf(z * SQRT_HALF) * (1.0 - 16.0 * ROUNDING) < wanted:
        grow *= 2.0
        z *= 1.0 + grow
    return z


def _tail_quantile(epsilon: float) -> float:
    """Return the z with ln Phi(-z) <= -ln(1 + e^epsilon), for large epsilon."""
    wanted = -(epsilon + math.log1p(math.exp(-epsilon))) * (1.0 + 4.0 * ROUNDING)
    z = rough_quantile(wanted)
    for _ in range(20):
        miss = log_upper_tail(z) + 1.5 * log_error(z) - wanted
        z += miss * mills_ratio(z)
        if abs(miss) <= 0.25 * log_error(z):
            break
    grow = ROUNDING
    while log_upper_tail(z) + log_error(z) > wanted:
        grow *= 2.0
        z *= 1.0 + grow
    return z


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Upper bound on the delta of rho-zCDP at `epsilon`.

    delta = min over a > 1 of exp((a-1)(a rho - epsilon)) / (a-1) * (1 - 1/a)^a. Any a is sound, so
    rounding can only cost tightness. The best a solves (2a-1) rho - epsilon + ln(1 - 1/a) = 0.

    Reference: Canonne, Kamath and Steinke 2020, Corollary 13.
    """
    rho = real("rho", rho, low=0.0)
    epsilon = real("epsilon", epsilon, low=0.0)
    if rho == 0.0:
        return 0.0
    a = 1.0 + _root(lambda b: (2.0 * b + 1.0) * rho - epsilon - math.log1p(1.0 / b))
    gain = (a - 1.0) * (a * rho - epsilon)
    log_delta = gain - math.log(a) + (a - 1.0) * math.log1p(-1.0 / a)
    size = (a - 1.0) * (a * rho + epsilon) + abs(math.log(a)) + 4.0
    log_delta += 16.0 * ROUNDING * size
    return min(1.0, math.exp(min(0.0, log_delta)) * (1.0 + 8.0 * ROUNDING) + 5e-324)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Upper bound on the epsilon of rho-zCDP at `delta`.

    epsilon = min over a > 1 of a rho + ln(1 - 1/a) - ln(a delta)/(a-1). The best a solves
    (a-1)^2 rho + ln a = ln(1/delta). Edges: rho = 0 gives 0, delta = 0 gives infinity.

    Reference: Canonne, Kamath and Steinke 2020, Corollary 13, solved for epsilon.
    """
    rho = real("rho", rho, low=0.0)
    delta = real("delta", delta, low=0.0, high=1.0)
    if rho == 0.0 or delta == 1.0:
        return 0.0
    if delta == 0.0:
        return math.inf
    depth = -math.log(delta)
    b = _root(lambda b: b * b * rho + math.log1p(b) - depth)
    a = 1.0 + b
    b = a - 1.0  # the order actually used is a; its distance from 1 must be exact
    epsilon = a * rho - math.log1p(1.0 / b) + (depth - math.log1p(b)) / b
    size = a * rho + math.log1p(1.0 / b) + (depth + math.log1p(b)) / b
    return max(0.0, epsilon + 16.0 * ROUNDING * size)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho that keeps (epsilon, delta), rounded down until the two above confirm it.

    rho = max over a > 1 of (epsilon - ln(1 - 1/a) + ln(a delta)/(a-1)) / a.
    """
    epsilon = real("epsilon", epsilon, low=0.0, open_low=True)
    delta = real("delta", delta, low=0.0, high=1.0, open_high=True)
    if delta == 0.0:
        return 0.0
    depth = -math.log(delta)
    b = _root(lambda b: b * b * (epsilon + math.log1p(1.0 / b)) / (2.0 * b + 1.0) + math.log1p(b) - depth)
    rho = max(0.0, (epsilon + math.log1p(1.0 / b) + (math.log1p(b) - depth) / b) / (1.0 + b))
    shrink = ROUNDING
    while zcdp_epsilon(rho, delta) > epsilon or zcdp_delta(rho, epsilon) > delta:
        shrink *= 2.0
        rho = rho * (1.0 - shrink) if shrink < 0.5 else 0.0
    return rho


def _root(increasing: Callable[[float], float]) -> float:
    """Bisection on ln b for the zero of an increasing function of b = a - 1 > 0."""
    low, high = 1e-9, 1.0
    while increasing(high) < 0.0 and high < 1e150:
        low, high = high, high * 1024.0
    for _ in range(64):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if increasing(middle) < 0.0 else (low, middle)
    return high


def sigma_of_mu(sensitivity: float, mu: float) -> float:
    """The sigma of Gaussian noise for mu-GDP, sensitivity / mu, rounded up. Valid for every epsilon."""
    sensitivity = real("sensitivity", sensitivity, low=0.0, open_low=True)
    return _finite("sigma", divide_up(sensitivity, real("mu", mu, low=0.0, open_low=True)))


def mu_of_sigma(sensitivity: float, sigma: float) -> float:
    """Return the mu that Gaussian noise costs, sensitivity / sigma, rounded up. Valid for every epsilon."""
    sensitivity = real("sensitivity", sensitivity, low=0.0, open_low=True)
    return _finite("mu", divide_up(sensitivity, real("sigma", sigma, low=0.0, open_low=True)))


def _finite(name: str, value: float) -> float:
    if value == math.inf:
        raise ParameterError(f"{name} must be a finite number: these arguments overflow it")
    return value


def discrete_gaussian_sigma(sensitivity: int, information: float | Fraction) -> float:
    """Return the sigma, in grid units, at which a discrete Gaussian costs at most `information` (mu^2).

    A discrete Gaussian is not exactly (D/sigma)-GDP: its effective mu is (D/sigma)(1 + 1/(24 sigma^2)).
    sigma^2 >= D^2 / information + 1/6 and sigma >= 2^10 make the ledger's figure a true bound.

    Reference: mathematics 4.4. Units: sensitivity and sigma in grid units, rounded up.
    """
    d = whole("sensitivity", sensitivity, low=1)
    if not isinstance(information, Fraction):
        information = Fraction(real("information", information, low=0.0, open_low=True))
    elif information <= 0:
        raise ParameterError(f"information must be > 0, got {information}")
    sigma = sqrt_up(d * d / information + Fraction(1, 6))
    return _finite("sigma", max(LEAST_GRID_SIGMA, sigma))


class WastefulFormula(UserWarning):
    """The classical Gaussian formula asks for more noise than the promise needs."""


@dataclass(frozen=True)
class ClassicalComparison:
    """The documents' Gaussian formula beside the exact one, for the same (epsilon, delta).

    Attributes:
        classical_sigma: sqrt(2 ln(1.25/delta)) * sensitivity / epsilon.
        exact_sigma: Sigma that the exact curve needs. Use this one.
        ratio: classical_sigma / exact_sigma.
        true_delta: The delta that the classical sigma really keeps at this epsilon.
    """

    classical_sigma: float
    exact_sigma: float
    ratio: float
    true_delta: float


def classical_sigma(sensitivity: float, epsilon: float, delta: float) -> ClassicalComparison:
    """Return the textbook sigma, as a labelled comparison with the exact one. Not for calibration.

    The formula is proved for epsilon < 1 and wasteful there. It first fails at epsilon 7.995 for
    delta = 1e-4 (mathematics 2).

    Reference: Dwork and Roth 2014, Theorem A.1.

    Raises:
        ParameterError: The formula is unsound here: its true delta exceeds the claimed one.

    Warns:
        WastefulFormula: It is sound, and noisier than needed.
    """
    sensitivity = real("sensitivity", sensitivity, low=0.0, open_low=True)
    epsilon = real("epsilon", epsilon, low=0.0, open_low=True)
    delta = real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    classical = math.sqrt(2.0 * math.log(1.25 / delta)) * sensitivity / epsilon
    true_delta = delta_of(mu_of_sigma(sensitivity, classical), epsilon)
    if true_delta > delta:
        raise ParameterError(
            f"the classical Gaussian formula is unsound at epsilon {epsilon:g}: it claims delta {delta:g} "
            f"and keeps {true_delta:.4g}; use sigma_of_mu(sensitivity, mu_of(epsilon, delta))"
        )
    exact = sigma_of_mu(sensitivity, mu_of(epsilon, delta))
    ratio = classical / exact
    if ratio > 1.0:
        warnings.warn(
            f"the classical Gaussian formula adds {100 * (ratio - 1):.3g} % more noise than "
            f"({epsilon:g}, {delta:g}) needs: sigma {classical:.6g} instead of {exact:.6g}",
            WastefulFormula,
            stacklevel=2,
        )
    return ClassicalComparison(classical, exact, ratio, true_delta)
