"""The physical limit: no unbiased epsilon-LDP mechanism has less worst-case variance.

Up to epsilon 0.7122854309 it is that of OneBit, exactly. Beyond, the numbers are lower bounds from a
linear programme (column generation). Reference: docs/references.md, [OneBit] and [Window].
"""

from __future__ import annotations

import math

import numpy as np

from reticent.experiments.contenders import wire_worst
from reticent.mechanisms.numeric import formulas

LOWER_BOUNDS = {
    0.8: 6.255851,
    1.0: 3.990543,
    1.2: 2.738601,
    1.5: 1.691432,
    2.0: 0.865349,
    2.5: 0.493183,
    3.0: 0.304006,
    4.0: 0.127034,
    5.0: 0.057331,
    6.0: 0.027105,
    8.0: 0.006465,
}
"""Lower bound on the worst-case variance at each epsilon; [Window]."""

KNOWN = (0.1, 0.3, 0.5, *LOWER_BOUNDS)
"""Epsilons at which nothing is interpolated; quick runs use these alone."""


def limit(epsilon: float) -> float:
    """The limit at an epsilon up to 8, NaN beyond.

    Exact up to 0.7122854309, then the bounds above. Between them, for drawing only, the ratio of the
    bound to `Optimal` is interpolated: it lies between 0.97 and 1 throughout.
    """
    if epsilon <= formulas.EPSILON_ONEBIT_OPTIMAL:
        return formulas.one_bit_worst(epsilon)
    if epsilon in LOWER_BOUNDS:
        return LOWER_BOUNDS[epsilon]
    if epsilon > max(LOWER_BOUNDS):
        return math.nan
    places = [formulas.EPSILON_ONEBIT_OPTIMAL, *LOWER_BOUNDS]
    ratios = [1.0, *(bound / wire_worst("Optimal", place) for place, bound in LOWER_BOUNDS.items())]
    return float(np.interp(epsilon, places, ratios)) * wire_worst("Optimal", epsilon)
