"""The choice of a numeric mechanism: `Optimal` for the least variance, `best` within a number of bits."""

from __future__ import annotations

from functools import lru_cache

from reticent.arguments import whole
from reticent.mechanisms.base import checked_epsilon
from reticent.mechanisms.numeric.formulas import EPSILON_ONEBIT_OPTIMAL
from reticent.mechanisms.numeric.hybrid import PMOpt, ThreeOutputs
from reticent.mechanisms.numeric.one_bit import OneBit
from reticent.mechanisms.numeric.window import Window

Chosen = OneBit | ThreeOutputs | Window | PMOpt

_WINDOW_BITS = 6  # 64 outputs are within 0.5 % of the limit up to epsilon 5
_GRID_BITS = 11  # 2001 levels
_GRID_FROM = 9.0  # below this epsilon 64 outputs always beat PM-OPT; they lose from 11.48 on


def Optimal(*, epsilon: float, bounds: tuple[float, float] = (-1.0, 1.0)) -> Chosen:
    """Return the mechanism of least worst-case variance at this epsilon, as an instance of its own class.

    `OneBit` up to epsilon 0.712 (nothing has less variance) and a little beyond, then `Window` with at
    most 64 outputs (up to epsilon 5 nothing has more than 0.5 % less), from epsilon 11.5 on `PMOpt`.
    Reference: docs/references.md, [OneBit] and [Window].
    """
    return best(epsilon, bounds=bounds)


@lru_cache(maxsize=256)
def least_worst_variance(epsilon: float) -> float:
    """Return the worst-case variance of `Optimal`, over [-1, 1]: what a `regret` is measured by."""
    return Optimal(epsilon=epsilon).worst_case_variance


def best(epsilon: float, *, bits: int | None = None, bounds: tuple[float, float] = (-1.0, 1.0)) -> Chosen:
    """The mechanism of least exact worst-case variance whose report fits into `bits` bits (None: any)."""
    epsilon = checked_epsilon(epsilon)
    bits = _GRID_BITS if bits is None else whole("bits", bits, low=1)
    candidates: list[Chosen] = [OneBit(epsilon=epsilon, bounds=bounds)]
    if bits > 1 and epsilon > EPSILON_ONEBIT_OPTIMAL:
        candidates.append(ThreeOutputs(epsilon=epsilon, bounds=bounds))
        candidates.append(Window(epsilon=epsilon, outputs=1 << min(bits, _WINDOW_BITS), bounds=bounds))
    if bits >= _GRID_BITS and epsilon > _GRID_FROM:
        candidates.append(PMOpt(epsilon=epsilon, bounds=bounds))
    return min(candidates, key=lambda mechanism: mechanism.worst_case_variance)
