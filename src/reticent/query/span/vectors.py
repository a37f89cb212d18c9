"""How much fresh information a vector needs, when some combinations of its coordinates are known already.

A fresh measurement of the vector with i units has noise s^2 = D^2 / i in each coordinate, in grid units. Let
Z hold the combinations that the purchases know, and C the covariance of their estimates. Together the
covariance is s^2 (I - s^2 Z (C + s^2 Z'Z)^-1 Z'). With an orthonormal basis of Z in which C is diagonal,
lambda_l with directions g_l, it is s^2 (I - sum g_l g_l') + sum (lambda_l s^2 / (lambda_l + s^2)) g_l g_l',
which falls with i in every direction.

What is promised is the covariance of t units under the question itself, D^2 / t in every direction of a cell:
its coordinates make ratios, and a ratio's error is that of a combination of both.

Reference: docs/mathematics.md 7.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reticent.query.span.best import Weights
from reticent.query.span.elimination import Made

_SAME = 1e-9  # more than what is promised by this part of it is the same


def least_information(
    known: Sequence[Made],
    weights: Sequence[Weights],
    variances: NDArray[np.float64],
    spreads: Sequence[float],
    size: int,
    wanted: int,
) -> int:
    """The fewest fresh units at which every cell is as exact as with `wanted` under the question itself.

    Args:
        known: combinations of the question's forms that rows make, by the places of the forms.
        weights: the rows that make each, exactly.
        variances: of the rows' noise, in units of forms at one unit of information.
        spreads: sensitivity over scale of each of the question's forms: its noise at one unit.
        size: coordinates of a cell.
        wanted: at most so much is needed.
    """
    directions, values = _known(known, weights, variances, spreads)

    def suffices(units: int, same: float = 0.0) -> bool:
        return _widest(directions, values, size, units) <= (1 + same) / wanted

    # All of it is known, exactly; and well enough, up to what floats may lose since it was bought.
    if len(known) == len(spreads) and suffices(0, _SAME):
        return 0
    low, high = 0, wanted  # high suffices: what is known does no harm
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def _known(
    known: Sequence[Made],
    weights: Sequence[Weights],
    variances: NDArray[np.float64],
    spreads: Sequence[float],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Orthonormal directions that are known, as columns, and lambda of each, at one unit of information."""
    z = np.zeros((len(spreads), len(known)))
    for column, one in enumerate(known):
        for place, value in one.items():
            z[place, column] = float(value) * spreads[place]  # of coordinates whose noise is one
    rows = {
        row: place
        for place, row in enumerate(dict.fromkeys(row for one in weights for row in one.numerators))
    }
    w = np.zeros((len(rows), len(weights)))
    for column, made in enumerate(weights):
        for row, weight in made.numerators.items():
            w[rows[row], column] = weight / made.denominator * math.sqrt(variances[row])
    basis, upper = np.linalg.qr(z)
    turned = np.linalg.solve(upper.T, w.T)  # w in that basis
    values, vectors = np.linalg.eigh(turned @ turned.T)
    return basis @ vectors, np.maximum(values, 0.0)


def _widest(directions: NDArray[np.float64], values: NDArray[np.float64], size: int, units: int) -> float:
    """The largest variance of a combination, of length one, of the coordinates of a cell.

    Without a fresh measurement only what is known counts: all of it must be.
    """
    cells = directions.reshape(-1, size, directions.shape[1])
    within = values / (1.0 + units * values)
    total = np.einsum("cil,l,cjl->cij", cells, within, cells)
    if units:
        total += (np.eye(size) - np.einsum("cil,cjl->cij", cells, cells)) / units
    return float(np.linalg.eigvalsh(total).max())
