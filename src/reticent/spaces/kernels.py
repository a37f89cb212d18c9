"""Sums over a space that fall off with distance: (K v)(x) = sum over y of f(d(x, y)) v(y).

On a grid K is a convolution, which two Fourier transforms do in O(n log n) and without an n x n matrix; below
about a thousand places the matrix is faster. The Fourier form is right to 1e-15 of the largest sum, not of
each sum (mathematics 3.1). It is guarded: rounding makes tiny sums negative or zero, and they are lifted
to 2^-53 of the largest, so that one may divide by them.

On a road network with a horizon h, beyond which nothing is farther, K is a constant and a sparse matrix: f(h)
times the sum of v, and f(d) - f(h) within h.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from reticent.errors import MissingExtra, ParameterError
from reticent.spaces.finite import MOST_DENSE, Floats, Space
from reticent.spaces.grid import Grid
from reticent.spaces.roads.network import Roads

DENSE_BELOW = 1000  # cells
_ENTRIES = 1 << 20  # that are weighed at once
Kernel = Callable[..., Floats]  # of values, and of where to write if need be
Weight = Callable[[Floats], Floats]  # of distances


def kernel(space: Space, weight: Weight, *, dense: bool | None = None) -> Kernel:
    """Return the sum with the weights of all distances.

    Args:
        space: Grid, road network, or anything with distances.
        weight: Function from distances to weights, of any shape.
        dense: True to keep the n x n matrix; by default for fewer than a thousand places.
    """
    if dense is None:
        dense = not isinstance(space, (Grid, Roads)) or space.size < DENSE_BELOW
    if not dense:
        if isinstance(space, Roads):
            return Sparse(space, weight)
        if not isinstance(space, Grid):
            raise ParameterError("dense must be true for a space that is neither a grid nor a road network")
        return _Fourier(space, weight)
    return Dense(weight(np.asarray(_matrix(space))))


def _matrix(space: Any) -> Floats:
    if isinstance(space, Roads):
        if space.size > MOST_DENSE:
            raise ParameterError(f"a matrix of {space.size} places is too large: at most {MOST_DENSE}")
        return np.stack([space.distances(place) for place in range(space.size)])
    return np.asarray(space.matrix)


class Dense:
    """The product with a symmetric matrix, as distances are; of many vectors at once, too."""

    def __init__(self, matrix: Floats) -> None:
        self.matrix = matrix

    def __call__(self, values: Floats, out: Floats | None = None) -> Floats:
        """K v, or K V for a matrix whose columns are vectors."""
        return self.matrix.dot(values, out)


class Sparse:
    """A constant and a sparse matrix, for places of which only the near ones differ: 12 bytes an entry.

    Args:
        roads: Network with a horizon.
        weight: Function from distances to weights.
    """

    def __init__(self, roads: Roads, weight: Weight) -> None:
        try:
            from scipy.sparse import csr_array
        except ImportError as error:
            raise MissingExtra("sums over a road network", "location") from error
        if not math.isfinite(roads.horizon):
            raise ParameterError(f"a road network of {roads.size} places must have a horizon: `within`")
        self.constant = float(weight(np.array([roads.horizon]))[0])
        rows = roads.rows(roads.horizon)
        for start in range(0, len(rows.far), _ENTRIES):
            some = slice(start, start + _ENTRIES)
            rows.far[some] = weight(rows.far[some]) - self.constant
        self.matrix = csr_array((rows.far, rows.places, rows.starts), shape=(roads.size, roads.size))

    def __call__(self, values: Floats, out: Floats | None = None) -> Floats:
        """K v, or K V for a matrix whose columns are vectors."""
        sums = self.matrix @ values
        if out is None:
            out = sums
        return np.asarray(np.add(sums, self.constant * values.sum(axis=0), out=out))


class _Fourier:
    """Convolution on a grid, padded so that nothing wraps around."""

    def __init__(self, grid: Grid, weight: Weight) -> None:
        from scipy import fft

        self._fft, self._shape = fft, (grid.rows, grid.columns)
        self._padded = tuple(fft.next_fast_len(2 * side - 1, real=True) for side in self._shape)
        wrapped = np.zeros(self._padded)
        values = weight(grid.offsets)
        rows, columns = self._shape
        wrapped[:rows, :columns] = values
        wrapped[:rows, self._padded[1] - columns + 1 :] = values[:, :0:-1]
        wrapped[self._padded[0] - rows + 1 :, :columns] = values[:0:-1, :]
        wrapped[self._padded[0] - rows + 1 :, self._padded[1] - columns + 1 :] = values[:0:-1, :0:-1]
        self._spectrum = fft.rfft2(wrapped)

    def __call__(self, values: Floats, out: Floats | None = None) -> Floats:
        rows, columns = self._shape
        spectrum = self._fft.rfft2(values.reshape(self._shape), s=self._padded)
        spectrum *= self._spectrum
        found = self._fft.irfft2(spectrum, s=self._padded, overwrite_x=True)[:rows, :columns]
        if out is None:
            out = np.empty(rows * columns)
        np.maximum(found, max(float(found.max()), 0.0) * 2.0**-53, out=out.reshape(self._shape))
        return out
