"""Public guesses of where values lie, for mechanisms that are made for them (`tailored`).

A guess is masses on equal bins of the declared bounds, each mass at its bin's middle. It decides accuracy
alone: privacy holds whatever was guessed, by whomever. It must not come from private data that was not paid
for: an estimate that was published already is one, the data themselves are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from reticent.arguments import real
from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.base import as_floats

BINS = 4000
MOST_BINS = 1 << 16
SMALL_GRADIENTS = "small gradients"
_SMALL = 0.05  # scale of small gradients, in halves of the bounds


@dataclass(frozen=True, eq=False)
class Prior:
    """A guess of the distribution of values in [-1, 1]: masses of equal bins that sum to one.

    Attributes:
        masses: Masses of the bins, read-only.
    """

    masses: Floats

    @classmethod
    def histogram(cls, weights: ArrayLike) -> Prior:
        """Build a prior from weights of equal bins of the bounds; negative weights become 0.

        The weights are counts, shares, or a published estimate.
        """
        given = as_floats(weights)
        if given.ndim != 1 or not 1 <= given.size <= MOST_BINS:
            raise ParameterError(f"prior must be a vector of 1 to {MOST_BINS} weights, got {given.shape}")
        kept = np.maximum(given, 0.0)
        if not np.isfinite(kept).all() or not 0.0 < kept.sum() < np.inf:
            raise ParameterError("prior must hold finite weights, one of them positive at least")
        repeats = -(-BINS // given.size)  # a bin's mass is spread over its width
        masses = np.repeat(kept / kept.sum() / repeats, repeats)
        masses.flags.writeable = False
        return cls(masses)

    @classmethod
    def normal(cls, mean: float, deviation: float) -> Prior:
        """A normal law, cut to [-1, 1]; mean and deviation in halves of the bounds from their middle."""
        deviation = real("deviation", deviation, low=1e-3)
        return cls._of(-0.5 * ((_points(BINS) - real("mean", mean, low=-1.0, high=1.0)) / deviation) ** 2)

    @classmethod
    def laplace(cls, centre: float, scale: float) -> Prior:
        """A Laplace law, cut to [-1, 1]; centre and scale in halves of the bounds from their middle."""
        scale = real("scale", scale, low=1e-3)
        return cls._of(-np.abs(_points(BINS) - real("centre", centre, low=-1.0, high=1.0)) / scale)

    @classmethod
    def _of(cls, logs: Floats) -> Prior:
        return cls.histogram(np.exp(logs - logs.max()))

    @property
    def points(self) -> Floats:
        """The positions of the masses."""
        return _points(self.masses.size)

    @property
    def mean(self) -> float:
        """The mean, in halves of the bounds from their middle."""
        return float(self.masses @ self.points)

    @property
    def second_moment(self) -> float:
        """The second moment, in the unit of `mean`, squared."""
        return float(self.masses @ self.points**2)

    def on(self, knots: Floats) -> Floats:
        """Return the masses as they are rounded at random, without bias, to knots from -1 to 1."""
        cell = np.clip(np.searchsorted(knots, self.points, side="right") - 1, 0, knots.size - 2)
        up = (self.points - knots[cell]) / np.diff(knots)[cell]
        weights = np.bincount(cell, self.masses * (1.0 - up), knots.size)
        return np.asarray(weights + np.bincount(cell + 1, self.masses * up, knots.size))


Guess: TypeAlias = "Prior | str | Sequence[float] | Floats"


def as_prior(guess: Any) -> Prior:
    """Return a prior from what people write: a `Prior`, a name, or the weights of equal bins."""
    if isinstance(guess, Prior):
        return guess
    if isinstance(guess, str):
        if guess == "uniform":
            return Prior.histogram([1.0])
        if guess == SMALL_GRADIENTS:
            return Prior.laplace(0.0, _SMALL)
        raise ParameterError(f"prior must be 'uniform', '{SMALL_GRADIENTS}', or weights, got {guess!r:.60}")
    if not isinstance(guess, (Sequence, np.ndarray)):
        raise ParameterTypeError(f"prior must be a Prior, a name or weights, got {type(guess).__name__}")
    return Prior.histogram(guess)


def _points(bins: int) -> Floats:
    return np.asarray((2.0 * np.arange(bins) + 1.0) / bins - 1.0)
