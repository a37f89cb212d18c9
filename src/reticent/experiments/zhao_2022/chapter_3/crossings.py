"""Where two worst-case variances are equal: sign changes on a grid, then bisection to the last bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Function = Callable[[float], float]


def bisect(f: Function, low: float, high: float) -> float:
    """The root of f between two points of opposite sign, as exact as doubles are."""
    negative = f(low) < 0.0
    while (middle := (low + high) / 2.0) not in (low, high):
        low, high = (middle, high) if (f(middle) < 0.0) == negative else (low, middle)
    return middle


def crossings(first: Function, second: Function, low: float, high: float, steps: int = 600) -> list[float]:
    """Every epsilon in (low, high) where first - second changes its sign.

    Where the two are equal on an interval (Three-Outputs is Duchi up to ln 2), the end of it counts: a
    difference below 5e-15 of the value is none.
    """

    def difference(epsilon: float) -> float:
        a, b = first(epsilon), second(epsilon)
        return 0.0 if abs(a - b) <= 5e-15 * abs(b) else a - b

    grid = np.geomspace(low, high, steps)
    signs = np.sign([difference(float(epsilon)) for epsilon in grid])
    found = []
    for place in np.flatnonzero(signs[1:] != signs[:-1]):
        left, right = float(grid[place]), float(grid[place + 1])
        before, after = signs[place], signs[place + 1]
        if before == 0.0:
            found.append(_end_of_equality(difference, left, right))
        elif after != 0.0:
            found.append(bisect(difference, left, right))
    return found


def _end_of_equality(difference: Function, low: float, high: float) -> float:
    while (middle := (low + high) / 2.0) not in (low, high):
        low, high = (middle, high) if difference(middle) == 0.0 else (low, middle)
    return middle
