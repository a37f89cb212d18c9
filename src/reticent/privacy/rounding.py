"""Directed rounding: exact rationals become floats on a chosen side, never to the nearest.

Costs and guarantees round up, caps and budgets round down. Sums, quotients and squares are formed
exactly as `Fraction` and rounded once, so a chain of operations loses one unit in the last place
and never the direction.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction


def float_up(exact: Fraction) -> float:
    """Return the smallest float that is not below `exact`; infinity when there is no such finite float."""
    try:
        nearest = exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -sys.float_info.max
    return math.nextafter(nearest, math.inf) if Fraction(nearest) < exact else nearest


def float_down(exact: Fraction) -> float:
    """Return the largest float that is not above `exact`."""
    return -float_up(-exact)


def divide_up(numerator: float, denominator: float) -> float:
    """Return the smallest float that is not below numerator / denominator."""
    return float_up(Fraction(numerator) / Fraction(denominator))


def divide_down(numerator: float, denominator: float) -> float:
    """Return the largest float that is not above numerator / denominator."""
    return float_down(Fraction(numerator) / Fraction(denominator))


def sqrt_up(exact: Fraction) -> float:
    """Return the smallest float whose exact square is not below `exact` (which is >= 0)."""
    if exact == 0:
        return 0.0
    # 128 extra bits keep the integer root far more exact than a float; the loops settle the last place.
    shift = 2 * max(0, 128 - (exact.numerator.bit_length() - exact.denominator.bit_length()))
    shift += shift % 4
    scaled = (exact.numerator << shift) // exact.denominator
    root = float_up(Fraction(math.isqrt(scaled), 1 << (shift // 2)))
    if root == math.inf:
        return root
    while Fraction(root) ** 2 < exact:
        root = math.nextafter(root, math.inf)
    while root > 0 and Fraction(math.nextafter(root, 0.0)) ** 2 >= exact:
        root = math.nextafter(root, 0.0)
    return root
