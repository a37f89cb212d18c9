"""Planted bugs in codebooks: who chooses them, what they stand for, and how rarely a far one is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.mechanisms.vector import Codebook
from reticent.mechanisms.vector.base import rows_of
from reticent.randomness import Stream, secure_or

_TRIED = 16


class OwnCodebook(Codebook):
    """A codebook of the client's choice: of 16 seeds that whose first direction is most along the vector."""

    def sample(self, values: ArrayLike, rng: Stream | None = None, *, seeds: Any = None) -> NDArray[Any]:
        """Reports under such seeds: each keeps epsilon given its seed, and the seed tells the rest."""
        stream, rows = secure_or(rng), rows_of(values, self.dimensions)
        tried = stream.words(len(rows) * _TRIED).reshape(len(rows), _TRIED)
        reports = np.zeros(tried.shape, dtype=[("seed", "<u8"), ("value", "<u2")])
        reports["seed"] = tried
        along = np.einsum("rsd,rd->rs", self.decode(reports), rows)
        best = np.take_along_axis(tried, along.argmax(axis=1)[:, None], axis=1)[:, 0]
        return super().sample(values, stream, seeds=best)


class CodebookScaleOff(Codebook):
    """A codebook whose reports are 2 % too long: every average of them is biased."""

    @property
    def scale(self) -> float:
        """Too much."""
        return 1.02 * super().scale


class LowFloor(Codebook):
    """A codebook that reports far directions half as often as epsilon wants: sharper, not private."""

    def __init__(self, *, epsilon: float, dimensions: int, bits: int, top: int | None = None) -> None:
        super().__init__(epsilon=epsilon, dimensions=dimensions, bits=bits, top=top)
        self._far //= 2

    def check(self) -> None:
        """The author was sure."""
