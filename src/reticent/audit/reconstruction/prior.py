"""A public prior of records before an update is seen: a normal law of public ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats


@dataclass(frozen=True)
class GaussianPrior:
    """Records are mean + factor z, z standard normal.

    Attributes:
        mean: Mean of d features, flat. The best guess without an update.
        factor: shape (d, directions), orthogonal columns whose lengths are standard deviations.
    """

    mean: Floats
    factor: Floats

    @classmethod
    def of(cls, public: Any, *, directions: int | None = None, floor: float = 1e-3) -> GaussianPrior:
        """Return the normal law of public records.

        Args:
            public: Records, one a row, of any shape each.
            directions: Number of principal directions that are kept; None for all.
            floor: no standard deviation is taken to be less, in units of a feature.
        """
        rows = np.asarray(public, dtype=np.float64)
        if rows.ndim < 2 or len(rows) < 2 or not np.isfinite(rows).all():
            raise ParameterError(f"public must be two or more records of finite numbers, got {rows.shape}")
        rows = rows.reshape(len(rows), -1)
        mean = rows.mean(axis=0)
        width = rows.shape[1]
        kept = width if directions is None else whole("directions", directions, low=1, high=width)
        values, vectors = np.linalg.eigh(np.cov(rows, rowvar=False).reshape(width, width))
        spread = np.sqrt(np.maximum(values[::-1][:kept], real("floor", floor, low=0.0, open_low=True) ** 2))
        return cls(mean, vectors[:, ::-1][:, :kept] * spread)
