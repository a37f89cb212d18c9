"""The documents' continuous mechanisms in plain doubles: NOT private on real computers.

For comparison only (Fig. 3.11): which doubles come out tells inputs apart (Mironov 2012). The
private ones are the channels of `mechanisms.numeric`.
"""

from __future__ import annotations

import math

import numpy as np

from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric import formulas
from reticent.randomness import SimulationStream

_T = {
    "PM": formulas.pm_t,
    "HM": formulas.pm_t,
    "PM-SUB": formulas.pm_sub_t,
    "PM-OPT": formulas.pm_opt_t,
    "HM-TP": formulas.pm_sub_t,
}
SUFFIX = " (continuous)"
NAMES = tuple(name + SUFFIX for name in _T)


class Continuous:
    """One of the five mechanisms with a continuous part.

    Reference: Zhao et al. 2020, Algorithms 2 to 4; Wang et al. 2019, Algorithm 2.
    """

    def __init__(self, name: str, epsilon: float) -> None:
        base = name.removesuffix(SUFFIX)
        if base not in _T:
            raise ParameterError(f"name must be one of {', '.join(NAMES)}, got {name!r}")
        self.epsilon, self.t = epsilon, _T[base](epsilon)
        self.mixing = {"HM": formulas.hm_alpha, "HM-TP": formulas.hmtp_beta}.get(base, lambda e: 1.0)(epsilon)
        self.p00 = formulas.three_outputs_p00(epsilon) if base == "HM-TP" else 0.0

    def perturb(self, values: Floats, stream: SimulationStream) -> Floats:
        """One report per value, in doubles."""
        mixing, chance, place, side = (stream.units(values.size) - 1.0 for _ in range(4))
        piecewise = self._piecewise(values, chance, place)
        return np.where(mixing < self.mixing, piecewise, self._three(values, chance, side))

    def _piecewise(self, x: Floats, chance: Floats, place: Floats) -> Floats:
        """With probability c/(c+t) uniform in [L, R], else uniform in the rest of [-A, A]."""
        c, t = math.exp(self.epsilon), self.t
        bound, width = formulas.piecewise_bound(self.epsilon, t), 2.0 * (c + t) / (t * (c - 1.0))
        left = (c + t) * (x * t - 1.0) / (t * (c - 1.0))
        outside = -bound + place * (2.0 * bound - width)
        outside = np.where(outside < left, outside, outside + width)
        return np.where(chance < c / (c + t), left + place * width, outside)

    def _three(self, x: Floats, chance: Floats, side: Floats) -> Floats:
        """-Cc, 0 or Cc; with P(0|0) = 0 it is Duchi's mechanism."""
        c, a = math.exp(self.epsilon), self.p00
        bound = formulas.three_outputs_bound(self.epsilon, a)
        zero = a - a * (1.0 - 1.0 / c) * np.abs(x)
        plus = 0.5 + x / (2.0 * bound * (1.0 - zero))
        return np.where(chance < zero, 0.0, np.where(side < plus, bound, -bound))
