"""Finitely many places with any metric between them."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reticent.errors import ParameterError

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MOST_DENSE = 4096  # places, beyond which an n x n matrix must be asked for by name
_SLACK = 2.0**-48  # relative, of the triangle inequality in doubles; a channel's level pays for it


class Space(Protocol):
    """Places by number, and the distances between them, in `unit`."""

    @property
    def unit(self) -> str:
        """The unit of distances."""

    @property
    def size(self) -> int:
        """The number of places."""

    @property
    def open(self) -> Flags:
        """The places that can be reported and be true, one flag each."""

    @property
    def shortest(self) -> float:
        """The least distance between two places."""

    @property
    def diameter(self) -> float:
        """The largest distance between two places."""

    def distances(self, place: int) -> Floats:
        """From one place to every place."""


class FiniteSpace:
    """Places given by the distances between them.

    Args:
        matrix: Distances, symmetric, zero on the diagonal alone, with the triangle inequality.
        unit: Unit of the distances: "km".

    Raises:
        ParameterError: the matrix is no metric; a guarantee by distance would mean nothing.
    """

    def __init__(self, matrix: Any, *, unit: str = "km") -> None:
        self.unit = unit
        table = np.array(matrix, dtype=np.float64)
        if table.ndim != 2 or table.shape[0] != table.shape[1] or not len(table):
            raise ParameterError(f"matrix must be square, got shape {table.shape}")
        if len(table) > MOST_DENSE:
            raise ParameterError(f"matrix must have at most {MOST_DENSE} places, got {len(table)}")
        _check_metric(table)
        table.flags.writeable = False
        self.matrix = table
        self.open: Flags = np.ones(len(table), dtype=np.bool_)

    @classmethod
    def of_points(cls, points: Any, *, unit: str = "km") -> FiniteSpace:
        """Places in the plane, or in any R^n, with the Euclidean distance."""
        at = np.asarray(points, dtype=np.float64)
        if at.ndim != 2:
            raise ParameterError(f"points must have shape (places, coordinates), got {at.shape}")
        return cls(np.sqrt(np.square(at[:, None, :] - at[None, :, :]).sum(axis=-1)), unit=unit)

    @property
    def size(self) -> int:
        """The number of places."""
        return len(self.matrix)

    @property
    def shortest(self) -> float:
        """The least distance between two places; infinite for a single one."""
        apart = self.matrix[~np.eye(self.size, dtype=np.bool_)]
        return float(apart.min()) if apart.size else math.inf

    @property
    def diameter(self) -> float:
        """The largest distance between two places."""
        return float(self.matrix.max())

    def distances(self, place: int) -> Floats:
        """From one place to every place."""
        return np.asarray(self.matrix[place])


def _check_metric(table: Floats) -> None:
    if not np.isfinite(table).all() or table.min() < 0.0:
        raise ParameterError("matrix must hold finite distances >= 0")
    if (table != table.T).any():
        raise ParameterError("matrix must be symmetric")
    apart = ~np.eye(len(table), dtype=np.bool_)
    if table.diagonal().any() or not table[apart].all():
        raise ParameterError("matrix must be 0 on the diagonal and > 0 elsewhere")
    for through in range(len(table)):
        shortcut = table[:, through, None] + table[None, through]
        if (table > shortcut * (1.0 + _SLACK)).any():
            raise ParameterError("matrix must keep the triangle inequality")
