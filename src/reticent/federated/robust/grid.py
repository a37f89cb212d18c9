"""The grid of legal updates: whole numbers of a public step, no longer than a public norm.

Sums of floats depend on their order, so two machines that average the same floats differ in the last bits and
a committee would never agree. Sums of whole numbers do not.

All arithmetic of this room is exact, in whatever order a machine adds, since no partial sum leaves the whole
numbers that a double or an int64 holds (mathematics 6.1):

- a product of two updates, over any of their numbers: at most |a| |b| <= 2^50 < 2^53 (Cauchy and Schwarz),
  so a product of matrices in doubles is exact;
- a squared distance: at most (|a| + |b|)^2 <= 2^52; a sum of 1,024 of them 2^62 < 2^63;
- a sum of 1,024 numbers of updates: at most 2^35.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats

MOST_DIMENSIONS = 1 << 26
MOST_NORM = 1 << 25  # grid steps
MOST_UPDATES = 1 << 10  # of a round
MOST_STEPS = 1 << 40  # in 1.0
_BLOCK = 1 << 16  # numbers that are looked at together

Update = NDArray[np.int32]


@dataclass(frozen=True)
class Grid:
    """The updates of a task.

    Attributes:
        dimensions: numbers of an update.
        steps: steps of the grid in 1.0.
        norm: the longest update, in steps (Euclidean).
        floor: an update that is shorter counts, and earns nothing.
    """

    dimensions: int
    steps: int
    norm: int
    floor: int = 0

    def __post_init__(self) -> None:
        whole("dimensions", self.dimensions, low=1, high=MOST_DIMENSIONS)
        whole("steps", self.steps, low=1, high=MOST_STEPS)
        whole("norm", self.norm, low=1, high=MOST_NORM)
        whole("floor", self.floor, low=0, high=self.norm)

    def placed(self, update: Floats) -> Update:
        """An update on the grid, shortened to the norm if it is longer. For who trained it.

        A total function, like all that meets somebody's records: what is no number counts as 0.
        """
        given = np.nan_to_num(np.asarray(update, dtype=np.float64).reshape(-1), posinf=1e300, neginf=-1e300)
        if given.size != self.dimensions:
            raise ParameterError(f"update must have {self.dimensions} numbers, got {given.size}")
        largest = float(np.abs(given).max())
        if largest == 0.0:
            return np.zeros(self.dimensions, dtype=np.int32)
        length = largest * float(np.linalg.norm(given / largest))
        shrunk = given * min(float(self.steps), self.norm / length)
        found = np.rint(shrunk).astype(np.int32)
        if self.squared_norm(found) > self.norm**2:
            found = np.trunc(shrunk * (1.0 - 1e-9)).astype(np.int32)  # shorter in every number
        return found

    def values(self, update: NDArray[Any]) -> Floats:
        """Return the values that numbers of the grid stand for."""
        return np.asarray(update, dtype=np.float64) / self.steps

    def checked(self, update: Any, *, name: str = "update") -> Update:
        """An update as it must be; what is not so is refused, never mended.

        Raises:
            ParameterError: it is no array, holds what is no whole number, has another shape, or is too long.
        """
        if not isinstance(update, np.ndarray):
            raise ParameterError(f"{name} must be an array, got {type(update).__name__}")
        if update.shape != (self.dimensions,):
            raise ParameterError(f"{name} must have shape ({self.dimensions},), got {update.shape}")
        if update.dtype.kind == "f" and not np.isfinite(update).all():
            raise ParameterError(f"{name} must be finite")
        if update.dtype.kind not in "iu":
            raise ParameterError(f"{name} must hold whole numbers of grid steps, got {update.dtype}")
        if int(update.max()) > self.norm or int(update.min()) < -self.norm:
            raise ParameterError(f"{name} must have a norm of at most {self.norm} grid steps")
        found = np.ascontiguousarray(update, dtype=np.int32)
        if self.squared_norm(found) > self.norm**2:
            raise ParameterError(f"{name} must have a norm of at most {self.norm} grid steps")
        return found

    def squared_norm(self, update: Update) -> int:
        """The sum of the squares: exact up to 2^50, and more than that for every longer update.

        Squares are not negative and rounding is monotone, so a sum that passes 2^53, the first that might be
        rounded, never comes back below it.
        """
        total = 0
        for at in range(0, update.size, _BLOCK):
            part = update[at : at + _BLOCK].astype(np.float64)
            total += int(part @ part)
        return total

    def is_slight(self, update: Update) -> bool:
        """Whether an update is shorter than the floor: zeros, or nearly."""
        return self.squared_norm(update) < self.floor**2
