"""The documents' closed forms for one number in [-1, 1], as functions of epsilon.

Notation of the documents: c = e^epsilon, C = (c+1)/(c-1). A worst-case variance is the maximum
over the input of the variance of one unbiased report. These are the continuous, real-number
mechanisms; what is really run, and its exact variance, is in `hybrid`.

References: Zhao et al. 2020 (equation numbers of the thesis, Zhao 2022, in brackets);
Wang et al. 2019; Duchi et al. 2018. Departures are marked where they happen.
"""

from __future__ import annotations

import math

LN2 = math.log(2.0)
EPSILON_HM = 0.6093524930273095  # Wang et al. 2019, Eq. 7: below it HM is Duchi
EPSILON_THREE = math.log((3.0 + math.sqrt(65.0)) / 2.0)  # Three-Outputs: P00 is at its bound from here on
EPSILON_HMTP = 0.6109863354200205  # below it HM-TP is Three-Outputs
EPSILON_ONEBIT_OPTIMAL = 0.7122854309236591  # coth(tanh(eps/2)) = e^eps + 1; [OneBit]


def coth(x: float) -> float:
    """Hyperbolic cotangent."""
    return 1.0 / math.tanh(x)


def duchi_bound(epsilon: float) -> float:
    """C = coth(epsilon / 2): the outputs of Duchi et al. are -C and C."""
    return coth(epsilon / 2.0)


def three_outputs_p00(epsilon: float) -> float:
    """A = P(0 | 0), the optimal chance of the middle output for input 0.

    Reference: Zhao et al. 2020, Eqs. 5-9 [3.4-3.7].
    Departure: the middle case is the root in (0, c/(c+2)) of the cubic
        2a^3 - (c^2+4c+5) a^2 + (7c-4c^2-c^3) a + 2c^2(c-2) = 0, found by bisection
        (positive at 0, one sign change) where the documents print its trigonometric solution.
    """
    c = math.exp(epsilon)
    if epsilon <= LN2:
        return 0.0
    if epsilon >= EPSILON_THREE:
        return c / (c + 2.0)

    def cubic(a: float) -> float:
        return ((2.0 * a - (c * c + 4.0 * c + 5.0)) * a + c * (7.0 - 4.0 * c - c * c)) * a + 2.0 * c * c * (
            c - 2.0
        )

    low, high = 0.0, c / (c + 2.0)
    while (middle := (low + high) / 2.0) not in (low, high):
        low, high = (middle, high) if cubic(middle) > 0.0 else (low, middle)
    return middle


def three_outputs_bound(epsilon: float, p00: float) -> float:
    """The outputs of Three-Outputs are -Cc, 0 and Cc = c(c+1)/((c-1)(c-a)). Eq. 4 [3.3]."""
    c = math.exp(epsilon)
    return c * (c + 1.0) / ((c - 1.0) * (c - p00))


def three_outputs_variance(epsilon: float, x: float) -> float:
    """Cc^2 (1 - a + a (1 - 1/c) |x|) - x^2.

    Departure: |x| where Eq. 4 [3.3] prints x (printed, the probabilities do not sum to one).
    """
    c, a = math.exp(epsilon), three_outputs_p00(epsilon)
    bound = three_outputs_bound(epsilon, a)
    return bound**2 * (1.0 - a + a * (1.0 - 1.0 / c) * abs(x)) - x * x


def three_outputs_worst(epsilon: float) -> float:
    """Worst-case variance of Three-Outputs: a parabola in |x|, highest at x* or at 1."""
    c, a = math.exp(epsilon), three_outputs_p00(epsilon)
    peak = three_outputs_bound(epsilon, a) ** 2 * a * (1.0 - 1.0 / c) / 2.0
    return three_outputs_variance(epsilon, min(1.0, peak))


def pm_t(epsilon: float) -> float:
    """Wang et al. 2019: the piecewise family with t = e^(epsilon/2)."""
    return math.exp(epsilon / 2.0)


def pm_sub_t(epsilon: float) -> float:
    """Zhao et al. 2020, Section IV-C [3.3.3]: t = e^(epsilon/3)."""
    return math.exp(epsilon / 3.0)


def pm_opt_t(epsilon: float) -> float:
    """Return the positive root of t^4 + 2c t^3 - 2c t - c^2 = 0 (A.87), which minimises the worst case.

    Departure: the closed form of Eq. 24 [3.29] is misprinted and, corrected, loses nine digits. With
        t = e^(epsilon/3) u and q = e^(-2 epsilon/3) the quartic becomes q u^4 + 2u^3 - 2q u - 1 = 0;
        Newton from u = 1 converges monotonically, without overflow.
    """
    q = math.exp(-2.0 * epsilon / 3.0)
    u = 1.0
    for _ in range(8):
        u -= (((q * u + 2.0) * u * u - 2.0 * q) * u - 1.0) / ((4.0 * q * u + 6.0) * u * u - 2.0 * q)
    return math.exp(epsilon / 3.0) * u


def piecewise_bound(epsilon: float, t: float) -> float:
    """A = (c+t)(t+1)/(t(c-1)): reports lie in [-A, A]. Eq. 20 [3.25]."""
    c = math.exp(epsilon)
    return (c + t) * (t + 1.0) / (t * math.expm1(epsilon))


def piecewise_variance(epsilon: float, t: float, x: float) -> float:
    """(t+1) x^2/(c-1) + (t+c)((t+1)^3+c-1)/(3 t^2 (c-1)^2). Eq. 22 [3.27]."""
    c, below = math.exp(epsilon), math.expm1(epsilon)
    return (t + 1.0) * x * x / below + (t + c) * ((t + 1.0) ** 3 + below) / (3.0 * t * t * below * below)


def hm_alpha(epsilon: float) -> float:
    """Chance that HM uses PM rather than Duchi. Wang et al. 2019, Eq. 7."""
    return -math.expm1(-epsilon / 2.0) if epsilon > EPSILON_HM else 0.0


def hmtp_beta(epsilon: float) -> float:
    """Chance that HM-TP uses PM-SUB rather than Three-Outputs. Eq. 28 [3.34].

    Departure: for epsilon >= ln 2, beta = (c - 1 - sqrt(w2/w1))/(c + t). The printed beta_4 places
        "+c" and "-1" wrongly around the radical and turns negative.
    """
    c, t, a = math.exp(epsilon), pm_sub_t(epsilon), three_outputs_p00(epsilon)
    if epsilon < EPSILON_HMTP:
        return 0.0
    if epsilon < LN2 or a == 0.0:
        return (c - 1.0) / (c + t)
    k = a * a * c * c * (c + 1.0) ** 4 / ((c + t) ** 2 * (c - a) ** 4 * (c - 1.0))
    w1 = (
        -k / 4.0
        + ((t + 1.0) ** 3 + c - 1.0) / (3.0 * t * t * (c - 1.0) ** 2)
        - (1.0 - a) * c * c * (c + 1.0) ** 2 / ((c + t) * (c - 1.0) ** 2 * (c - a) ** 2)
    )
    w2 = -((1.0 + t) ** 2) * k / 4.0
    return (c - 1.0 - math.sqrt(w2 / w1)) / (c + t)


def hmtp_variance(epsilon: float, x: float) -> float:
    """Return the mixture's variance: both parts are unbiased, so it is the mixture of variances."""
    beta = hmtp_beta(epsilon)
    piecewise = piecewise_variance(epsilon, pm_sub_t(epsilon), x)
    return beta * piecewise + (1.0 - beta) * three_outputs_variance(epsilon, x)


def hmtp_worst(epsilon: float) -> float:
    """Worst-case variance of HM-TP: a parabola in |x|; the maximum is at 0, its top, or 1 (Lemma 11)."""
    at_0, at_half, at_1 = (hmtp_variance(epsilon, x) for x in (0.0, 0.5, 1.0))
    curvature, slope = 2.0 * (at_1 - 2.0 * at_half + at_0), 4.0 * at_half - 3.0 * at_0 - at_1
    inner = -slope / (2.0 * curvature) if curvature < 0.0 else 0.0
    return max(at_0, at_1, hmtp_variance(epsilon, min(1.0, max(0.0, inner))))


def laplace_worst(epsilon: float) -> float:
    """8 / epsilon^2: Laplace noise of scale 2 / epsilon."""
    return 8.0 / (epsilon * epsilon)


def duchi_worst(epsilon: float) -> float:
    """C^2, at x = 0."""
    return duchi_bound(epsilon) ** 2


def piecewise_worst(epsilon: float, t: float) -> float:
    """The variance of the piecewise family is largest at |x| = 1."""
    return piecewise_variance(epsilon, t, 1.0)


def hm_worst(epsilon: float) -> float:
    """Return the variance of HM, constant in x above EPSILON_HM."""
    alpha = hm_alpha(epsilon)
    at_0 = alpha * piecewise_variance(epsilon, pm_t(epsilon), 0.0) + (1.0 - alpha) * duchi_worst(epsilon)
    at_1 = alpha * piecewise_variance(epsilon, pm_t(epsilon), 1.0) + (1.0 - alpha) * (
        duchi_worst(epsilon) - 1.0
    )
    return max(at_0, at_1)


def one_bit_worst(epsilon: float, rho: float = 1.0) -> float:
    """C coth(rho/C) - 1 for rho = 1, constant in x: the exact optimum up to EPSILON_ONEBIT_OPTIMAL.

    For rho = k/d it is the worst-case variance of one of d attributes of which k are sampled, each
    with this epsilon. Reference: [OneBit] in docs/references.md.
    """
    bound = duchi_bound(epsilon)
    return bound * coth(rho / bound) - 1.0
