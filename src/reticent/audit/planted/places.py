"""Planted bugs in channels for places: each has been written by somebody, or nearly."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from reticent.mechanisms.base import Floats, Symbols
from reticent.mechanisms.location import ElasticChannel, TableChannel, exponential
from reticent.mechanisms.numeric.base import as_floats
from reticent.randomness import Stream
from reticent.spaces import FiniteSpace, Grid
from reticent.spaces.finite import Space
from reticent.spaces.grid import Cells

GRID = Grid(4, 5, 0.5, 0.5)  # cells of half a kilometre
BETA = 1.0


def crowds(space: Space) -> Floats:
    """One crowded place, the rest nearly empty."""
    return np.where(np.arange(space.size) == space.size // 2, 1.0, 0.01)


class HalfTheLevel(ElasticChannel):
    """A channel c(y) e^(-beta d) / Z(x) that claims beta: its normaliser changes too, so it is 2 beta."""

    def __init__(self) -> None:
        super().__init__(GRID, crowds(GRID), BETA)

    @property
    def level(self) -> float:
        """The author forgot the normaliser."""
        return self.beta


class PrintedNormaliser:
    """Algorithm 2 as printed: normalised over d(z, y) instead of d(x, z), so rows do not sum to one."""

    def __init__(self, *, printed: bool = True) -> None:
        self.claim = 2.0 * BETA
        self.distances = GRID.matrix.tolist()
        self._printed = printed

    def rows(self) -> list[list[Fraction]]:
        """P(y|x) = c(y) e^(-beta d(x,y)) over a sum, in rationals."""
        c = [Fraction(float(mass)) for mass in crowds(GRID)]
        kernel = [[Fraction(math.exp(-BETA * d)) for d in row] for row in self.distances]
        sums = [sum(mass * weight for mass, weight in zip(c, row, strict=True)) for row in kernel]
        places = range(GRID.size)
        return [[c[y] * kernel[x][y] / sums[y if self._printed else x] for y in places] for x in places]


class Claimed(TableChannel):
    """A table that claims a level instead of working it out."""

    def __init__(self, space: Space, matrix: Any, claim: float = 2.0 * BETA) -> None:
        super().__init__(space, matrix)
        self.level = claim


class OneNormaliser(Claimed):
    """One normaliser for all places, that of the most crowded: what is left over is reported as the truth."""

    def __init__(self) -> None:
        weights = crowds(GRID) * np.exp(-BETA * GRID.matrix)
        table = weights / weights.sum(axis=1).max()
        super().__init__(GRID, table + np.diag(1.0 - table.sum(axis=1)))


class SquaredDistances(Claimed):
    """Weights by the squared distance: twice as far, four times the loss."""

    def __init__(self) -> None:
        super().__init__(GRID, np.exp(-BETA * GRID.matrix**2))


class CellsForKilometres(Claimed):
    """Distances counted in cells, the level claimed per kilometre: half a kilometre counts as a whole one."""

    def __init__(self) -> None:
        super().__init__(GRID, exponential(Grid(GRID.rows, GRID.columns, 1.0, 1.0), 2.0 * BETA).matrix)


class CutOff(ElasticChannel):
    """Truncated: nothing is reported beyond a radius, so a far report excludes places for certain."""

    def __init__(self, radius: float = 1.0) -> None:
        super().__init__(GRID, crowds(GRID), BETA)
        self._radius = radius

    def weights(self, place: int) -> list[int]:
        """Zero beyond the radius."""
        near = self.space.distances(place) <= self._radius
        return [weight if kept else 0 for weight, kept in zip(super().weights(place), near, strict=True)]


class SixtyFourBits(ElasticChannel):
    """Thresholds of 64 bits: a report from 60 km away, of chance e^-60, becomes impossible."""

    def __init__(self) -> None:
        super().__init__(FiniteSpace.of_points([[0.0], [60.0]]), [0.5, 0.5], BETA)

    def weights(self, place: int) -> list[int]:
        """Cut to 64 bits of their sum."""
        exact = super().weights(place)
        total = sum(exact)
        return [(weight << 64) // total for weight in exact]


class OtherCrowds(ElasticChannel):
    """Draws by the map of an earlier round, uniform, while the one of this round is published."""

    def __init__(self) -> None:
        super().__init__(GRID, crowds(GRID), BETA)
        self._earlier = exponential(GRID, 2.0 * BETA)

    def sample(self, places: Any, rng: Stream | None = None) -> Symbols:
        """By the other channel."""
        return self._earlier.sample(places, rng)


class TornGrid(Grid):
    """Longitudes cut at the date line: neighbours beyond the far side are at opposite borders."""

    def cells(self, latitudes: Any, longitudes: Any) -> Cells:
        """Return the nearest cell by degrees."""
        assert self.box is not None
        parts = (
            (as_floats(latitudes), self.box.south, self.box.north, self.rows),
            (as_floats(longitudes), self.box.west, self.box.east, self.columns),
        )
        row, column = (
            np.clip(
                (np.clip(np.nan_to_num(at), low, high) - low) / (high - low) * count, 0, count - 1
            ).astype(np.int64)
            for at, low, high, count in parts
        )
        return np.asarray(row * self.columns + column)
