"""The law of one number: how far the direction that a `Codebook` reports points the way of the input.

Of M directions, uniform on the unit sphere of R^n and independent, K that are most along a unit vector x are
drawn with one chance each, the others with another. Everything about the drawn direction u that matters is
the law of t = <u, x>: the rest of u is uniform on the sphere around x. With t = sin(s),

    f(s) = cos(s)^(n-2) / Z                               one coordinate of a uniform direction,
    Q(s) = P(a direction is further along than t),
    h(s) = P(fewer than K of the M - 1 others are further along)
         = 1 - I_Q(K, M - K),                             the regularised incomplete beta function,

the density of t is f(s) M (A h(s) + B (1 - h(s))), with A and B the two chances.

Reference: mathematics 1.5. Bhowmick et al. 2018 have caps of a sphere where this has ranks.
Invariant: only accuracy rests on these doubles, never privacy.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache

import numpy as np

from reticent.mechanisms.base import Floats

_POINTS = 8001
_REACH = 20.0  # of the grid, about 31 standard deviations of t where n is large


class Sphere:
    """One coordinate t of a uniform direction in R^n, on a grid of s with sin(s) = t.

    s = (pi/2) tanh(v) for equal steps of v: where n is small, points crowd at the poles, where the first
    of many directions lie.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        reach = _REACH / math.sqrt(n)
        v = np.linspace(-reach, reach, _POINTS)
        gap = math.pi / (np.exp(2.0 * np.abs(v)) + 1.0)  # pi/2 - |s|, exact near the poles
        self.t = np.copysign(np.cos(gap), v)
        self.cosine = np.sin(gap)
        logs = (n - 2) * np.log(self.cosine) - 2.0 * np.log(np.cosh(v))
        density = np.exp(logs)
        self.weights = density / density.sum()  # f(s) ds at the points
        self._step = 2.0 * reach / (_POINTS - 1)
        self._total = math.pi / 2.0 * self._step * float(density.sum())  # Z
        self.beyond = np.clip(self._tail(np.ones(_POINTS)), 1e-300, 1.0)

    def _tail(self, values: Floats) -> Floats:
        """E[values; t beyond s]: the trapezoidal rule, with the first term of Euler and Maclaurin."""
        parts = self.weights * values
        return np.asarray(np.cumsum(parts[::-1])[::-1] - parts / 2.0 + np.gradient(parts) / 12.0)

    @cached_property
    def first(self) -> Floats:
        """E[t; t beyond s] = cos(s)^(n-1) / ((n-1) Z)."""
        return np.asarray(np.exp((self.n - 1) * np.log(self.cosine)) / ((self.n - 1) * self._total))

    @cached_property
    def second(self) -> Floats:
        """E[t^2; t beyond s]."""
        return self._tail(self.t**2)

    def threshold(self, size: int, top: int) -> Floats:
        """Return the law of the K-th furthest of M - 1 directions, at the points."""
        beyond = self.beyond
        before = np.maximum(beyond[::-1], 1e-300)  # P(a direction is less far along), by symmetry
        scale = math.lgamma(size) - math.lgamma(top) - math.lgamma(size - top)
        logs = scale + (top - 1) * np.log(beyond) + (size - 1 - top) * np.log(before)
        return np.asarray(np.exp(logs) * self.weights)

    def among_first(self, size: int, top: int) -> Floats:
        """Return the function h at the points."""
        law = self.threshold(size, top)
        return np.clip(np.cumsum(law) - law / 2.0, 0.0, 1.0)


@lru_cache(maxsize=32)
def sphere(n: int) -> Sphere:
    """Return the grid of a dimension, made once."""
    return Sphere(n)


def top_mean(n: int, size: int, top: int) -> float:
    """E of the mean of t over the K directions that are furthest along."""
    grid = sphere(n)
    return float(size / top * (grid.threshold(size, top) * grid.first).sum())


def top_square(n: int, size: int, top: int) -> float:
    """E of the mean of t^2 over the same."""
    grid = sphere(n)
    return float(size / top * (grid.threshold(size, top) * grid.second).sum())


class Along:
    """The law of t for the direction that is reported.

    Args:
        n: numbers of a direction.
        size: M.
        top: K.
        near: A, the chance of each of the K furthest along.
        far: B, that of each other.
    """

    def __init__(self, n: int, size: int, top: int, near: float, far: float) -> None:
        self._grid, self._size, self._top, self._near, self._far = sphere(n), size, top, near, far
        self.mean = top * top_mean(n, size, top) * (near - far)  # all M means together are 0
        near_square = top * top_square(n, size, top)
        self.square = near * near_square + far * (size / n - near_square)

    @cached_property
    def _below(self) -> Floats:
        """P(t is less far along) at the points."""
        first = self._grid.among_first(self._size, self._top)
        parts = self._grid.weights * self._size * (self._near * first + self._far * (1.0 - first))
        below = np.cumsum(parts) - parts / 2.0
        return np.asarray(below / (below[-1] + parts[-1] / 2.0))

    def quantile(self, chances: Floats) -> Floats:
        """Return the t that is not reached with these chances: of uniform numbers, draws of t."""
        return np.interp(chances, self._below, self._grid.t)
