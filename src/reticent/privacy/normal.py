"""The standard normal tail, from the standard library alone: Mills ratio, log tail, rough quantile.

Everything about the Gaussian curve goes through the Mills ratio

    R(x) = Phi(-x) / phi(x) = integral over t > 0 of exp(-x t - t^2 / 2),

because it neither underflows nor cancels. Relative error of `mills_ratio`: at most 32 units of
`ROUNDING` (2^-53) for x >= 0, when `erfc`, `exp` and `log` of the platform are within 4 units in the
last place. Measured against mpmath: below 12 units (tests/unit/privacy/test_normal.py).
"""

from __future__ import annotations

import math

ROUNDING = 2.0**-53
LOG_SQRT_TWO_PI = 0.9189385332046727
SQRT_HALF = 0.7071067811865476
SQRT_HALF_PI = 1.2533141373155003

# Below this the formula with erfc is used, from it on the continued fraction.
FRACTION_FROM = 2.0


def fraction_terms(x: float) -> int:
    """Terms of the continued fraction that leave a truncation error below 2^-53, for x >= 2."""
    return 10 + int(270.0 / (x * x))


def fraction_tail(x: float, k: int) -> float:
    """Start value of the fraction: the fixed point of r = k / (x + r), half a step on.

    r_k = M_k / M_{k-1} for the moments M_k = integral of t^k exp(-x t - t^2 / 2).
    """
    return 0.5 * (math.sqrt(x * x + 4.0 * k - 2.0) - x)


def mills_ratio(x: float) -> float:
    """R(x) for x >= 0.

    Reference: Laplace's continued fraction, NIST DLMF 7.9.1: R = 1/(x + 1/(x + 2/(x + 3/(x + ...)))).
    All terms are positive, so the backward evaluation is stable.
    """
    if x < FRACTION_FROM:
        return SQRT_HALF_PI * math.erfc(x * SQRT_HALF) * math.exp(0.5 * x * x)
    n = fraction_terms(x)
    r = fraction_tail(x, n + 1)
    for k in range(n, 0, -1):
        r = k / (x + r)
    return 1.0 / (x + r)


def log_upper_tail(z: float) -> float:
    """Return the logarithm of Phi(-z), for every real z, with absolute error at most `log_error(z)`."""
    if z < -1.0:
        return math.log1p(-0.5 * math.erfc(-z * SQRT_HALF))
    if z < FRACTION_FROM:
        return math.log(0.5 * math.erfc(z * SQRT_HALF))
    return math.log(mills_ratio(z)) - 0.5 * z * z - LOG_SQRT_TWO_PI


def log_error(y: float) -> float:
    """Bound on the absolute error of a logarithm computed from arguments of size |y|.

    Rounding x by one unit moves ln phi(x) by x^2 units; the constant covers the library functions,
    the Mills ratio and the sums. The factor 4 is a proof's, not a measurement's: see the tests.
    """
    size = abs(y) + 2.0
    return ROUNDING * (64.0 + 4.0 * size * size)


def rough_quantile(log_tail: float) -> float:
    """Return the z with ln Phi(-z) about `log_tail` (< 0), to 5e-4: only ever a starting point.

    Reference: Abramowitz and Stegun 1964, 26.2.23, in log space so that no tail underflows.
    """
    if log_tail > -math.log(2.0):
        return -rough_quantile(math.log(-math.expm1(log_tail)))
    t = math.sqrt(-2.0 * log_tail)
    above = 2.515517 + t * (0.802853 + t * 0.010328)
    below = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))
    return t - above / below
