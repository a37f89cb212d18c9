"""Several attributes: sample k of d, spend epsilon/k on each (Algorithm 6), and which k is best.

A person reports k of d attributes, drawn uniformly without replacement and independently of the
data; the collector multiplies what arrives by d/k. For one number x in [-1, 1] the worst-case variance
of that is

    max over x of  (d/k) E[Y^2 | x] - x^2,    Y a report under epsilon/k.

References: Wang et al. 2019, Section IV; Zhao et al. 2020, Algorithm 6.
Departure: both print k = max(1, min(d, floor(epsilon / 2.5))), which is the optimum of a rounded
    problem and costs up to 70 % (at epsilon 4). `best_sample_size` evaluates the objective; the
    documents' rule keeps its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.mechanisms.numeric import formulas
from reticent.randomness import Stream, secure_or, uniform_below

MAX_DIMENSIONS = 1 << 22

Variance = Callable[[float, float], float]  # (epsilon, x) -> variance of one report of x


def _hm_variance(epsilon: float, x: float) -> float:
    """Variance of HM: the mixture of PM and Duchi. Wang et al. 2019, Eq. 7."""
    alpha = formulas.hm_alpha(epsilon)
    piecewise = formulas.piecewise_variance(epsilon, formulas.pm_t(epsilon), x)
    return alpha * piecewise + (1.0 - alpha) * _duchi_variance(epsilon, x)


def _duchi_variance(epsilon: float, x: float) -> float:
    return formulas.duchi_worst(epsilon) - x * x


def _piecewise(t: Callable[[float], float]) -> Variance:
    return lambda epsilon, x: formulas.piecewise_variance(epsilon, t(epsilon), x)


VARIANCES: dict[str, Variance] = {
    "Laplace": lambda epsilon, x: formulas.laplace_worst(epsilon),
    "Duchi": _duchi_variance,
    "PM": _piecewise(formulas.pm_t),
    "HM": _hm_variance,
    "Three-Outputs": formulas.three_outputs_variance,
    "PM-OPT": _piecewise(formulas.pm_opt_t),
    "PM-SUB": _piecewise(formulas.pm_sub_t),
    "HM-TP": formulas.hmtp_variance,
}
"""The documents' mechanisms by name; every variance is a quadratic in |x|."""

ONE_BIT = "OneBit"


def worst_sampled_variance(
    epsilon: float, dimensions: int, sample_size: int, mechanism: str | type = ONE_BIT
) -> float:
    """Return the worst-case variance of one of d attributes in [-1, 1] when k are sampled.

    Args:
        epsilon: the level of the whole record; each sampled attribute gets epsilon/k.
        dimensions: d.
        sample_size: k.
        mechanism: a numeric mechanism, or its name. `OneBit` is taken with rho = k/d, for which the
            variance is C_k coth(rho/C_k) - 1 for every x (mathematics 1.2).
    """
    d = whole("dimensions", dimensions, low=1, high=MAX_DIMENSIONS)
    k = whole("sample_size", sample_size, low=1, high=d)
    each = real("epsilon", epsilon, low=0.0, open_low=True) / k
    name = _name(mechanism)
    if name == ONE_BIT:
        return formulas.one_bit_worst(each, k / d)
    return _worst_of_quadratic(lambda x: d / k * (VARIANCES[name](each, x) + x * x) - x * x)


def best_sample_size(epsilon: float, dimensions: int, mechanism: str | type = ONE_BIT) -> int:
    """Return the k that makes `worst_sampled_variance` least, out of 1..min(d, ceil(epsilon)).

    Beyond ceil(epsilon) each attribute would get less than 1, far below the 1.9 to 2.5 that is best.
    """
    d = whole("dimensions", dimensions, low=1, high=MAX_DIMENSIONS)
    return min(sample_sizes(epsilon, d), key=lambda k: worst_sampled_variance(epsilon, d, k, mechanism))


def sample_sizes(epsilon: float, dimensions: int) -> range:
    """Return the sample sizes worth considering: 1..min(d, ceil(epsilon))."""
    level = real("epsilon", epsilon, low=0.0, open_low=True)
    return range(1, min(whole("dimensions", dimensions, low=1, high=MAX_DIMENSIONS), math.ceil(level)) + 1)


def documents_sample_size(epsilon: float, dimensions: int) -> int:
    """Return the documents' rule k = max(1, min(d, floor(epsilon / 2.5))).

    Reference: Zhao et al. 2020, Eq. 36 [3.35]; Wang et al. 2019, Section IV.
    """
    level = real("epsilon", epsilon, low=0.0, open_low=True)
    return max(1, min(whole("dimensions", dimensions, low=1, high=MAX_DIMENSIONS), math.floor(level / 2.5)))


def epsilon_each(epsilon: float, sample_size: int) -> float:
    """epsilon/k rounded down, so that k of them are together at most epsilon."""
    each = epsilon / sample_size
    while Fraction(each) * sample_size > Fraction(epsilon):
        each = math.nextafter(each, 0.0)
    return each


def sampled_attributes(
    count: int, dimensions: int, sample_size: int, rng: Stream | None = None
) -> NDArray[np.int64]:
    """Draw k of d attributes for each of `count` people: shape (count, k), increasing in each row.

    Reference: Floyd's algorithm (Bentley and Floyd 1987): for j = d-k..d-1 draw t uniform in 0..j and
        take t, or j if t was taken before. Every subset is exactly equally likely.
    """
    count = whole("count", count, low=0)
    d = whole("dimensions", dimensions, low=1, high=MAX_DIMENSIONS)
    k = whole("sample_size", sample_size, low=1, high=d)
    stream = secure_or(rng)
    taken = np.empty((count, k), dtype=np.int64)
    for column, j in enumerate(range(d - k, d)):
        drawn = uniform_below(j + 1, count, stream)
        again = (taken[:, :column] == drawn[:, None]).any(axis=1)
        taken[:, column] = np.where(again, j, drawn)
    taken.sort(axis=1)
    return taken


def _name(mechanism: Any) -> str:
    name = mechanism if isinstance(mechanism, str) else getattr(mechanism, "name", None)
    if not isinstance(name, str) or (name != ONE_BIT and name not in VARIANCES):
        known = ", ".join(sorted([ONE_BIT, *VARIANCES]))
        raise ParameterError(f"mechanism must be one of {known}, got {mechanism!r}")
    return name


def _worst_of_quadratic(at: Callable[[float], float]) -> float:
    """Return the maximum over [0, 1] of a quadratic: at 0, at 1, or at its top."""
    at_0, at_half, at_1 = at(0.0), at(0.5), at(1.0)
    curvature, slope = 2.0 * (at_1 - 2.0 * at_half + at_0), 4.0 * at_half - 3.0 * at_0 - at_1
    top = -slope / (2.0 * curvature) if curvature < 0.0 else 0.0
    return max(at_0, at_1, at(min(1.0, max(0.0, top))))
