"""Who takes part: the documents' eight mechanisms and ours, with one way to make each.

The documents compare Laplace, Duchi, PM, HM, Three-Outputs, PM-SUB and HM-TP (and PM-OPT in Fig. 3.2 and
3.5). Ours are OneBit and Optimal (OneBit, then Window); figures about bits add small Windows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric import (
    HM,
    HMTP,
    PM,
    Duchi,
    NumericRandomiser,
    OneBit,
    Optimal,
    PMOpt,
    PMSub,
    ThreeOutputs,
    formulas,
)
from reticent.mechanisms.numeric.laplace import Laplace

GRID = np.linspace(0.0, 1.0, 101)  # of |x|: every variance is symmetric

Make = Callable[[float, float], NumericRandomiser]


@dataclass(frozen=True)
class Contender:
    """One mechanism.

    Attributes:
        name: as in the documents, or ours.
        ours: whether it is ours.
        make: (epsilon, rho = k/d) -> mechanism; only OneBit looks at rho.
        ideal: the worst-case variance in real-number arithmetic, as a function of epsilon.
    """

    name: str
    ours: bool
    make: Make
    ideal: Callable[[float], float]


def _plain(kind: Callable[..., NumericRandomiser]) -> Make:
    return lambda epsilon, rho: kind(epsilon=epsilon)


@lru_cache(maxsize=1024)
def _optimal_worst(epsilon: float) -> float:
    return Optimal(epsilon=epsilon).worst_case_variance


DOCUMENTS = (
    Contender("Laplace", False, _plain(Laplace), formulas.laplace_worst),
    Contender("Duchi", False, _plain(Duchi), formulas.duchi_worst),
    Contender("PM", False, _plain(PM), lambda e: formulas.piecewise_worst(e, formulas.pm_t(e))),
    Contender("HM", False, _plain(HM), formulas.hm_worst),
    Contender("Three-Outputs", False, _plain(ThreeOutputs), formulas.three_outputs_worst),
    Contender("PM-SUB", False, _plain(PMSub), lambda e: formulas.piecewise_worst(e, formulas.pm_sub_t(e))),
    Contender("PM-OPT", False, _plain(PMOpt), lambda e: formulas.piecewise_worst(e, formulas.pm_opt_t(e))),
    Contender("HM-TP", False, _plain(HMTP), formulas.hmtp_worst),
)
OURS = (
    Contender("OneBit", True, lambda e, rho: OneBit(epsilon=e, rho=rho), formulas.one_bit_worst),
    Contender("Optimal", True, _plain(Optimal), _optimal_worst),
)
ALL = (*DOCUMENTS, *OURS)
BY_NAME = {contender.name: contender for contender in ALL}


def mean_variance(mechanism: Any, values: Floats) -> float:
    """The mean over the values of the exact variance of one report, interpolated on `GRID`."""
    return float(np.mean(np.interp(np.abs(values), GRID, mechanism.variance(GRID))))


def wire_worst(name: str, epsilon: float) -> float:
    """The worst-case variance of what is really sent."""
    if name == "Optimal":
        return _optimal_worst(epsilon)
    return BY_NAME[name].make(epsilon, 1.0).worst_case_variance
