"""Earth mover's distance between distributions over places: the least mean way from one to the other.

Exact to 2,500 places (network simplex of POT). Beyond, a grid is first cut into blocks of cells: mass moves
at most half a block's diagonal to its centre on either side, which is the stated error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.errors import MissingExtra, ParameterError
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location.elastic import as_prior
from reticent.spaces.finite import Space
from reticent.spaces.grid import Grid

MOST_EXACT = 2500


@dataclass(frozen=True)
class Distance:
    """An earth mover's distance, within `error` of the exact one, in the space's unit."""

    value: float
    error: float = 0.0

    def __float__(self) -> float:
        return self.value


def earth_movers_distance(space: Space, first: Any, second: Any) -> Distance:
    """The distance between two distributions (counts will do) over the places of a space."""
    p, q = as_prior(space, first), as_prior(space, second)
    if space.size <= MOST_EXACT:
        return Distance(_exact(space, p, q))
    if not isinstance(space, Grid):
        raise ParameterError(f"space must be a grid, or have at most {MOST_EXACT} places, got {space.size}")
    side = math.ceil(math.sqrt(space.size / MOST_EXACT))
    while math.ceil(space.rows / side) * math.ceil(space.columns / side) > MOST_EXACT:
        side += 1
    rows, columns = math.ceil(space.rows / side), math.ceil(space.columns / side)
    coarse = Grid(rows, columns, space.height * side, space.width * side, unit=space.unit)
    value = _exact(coarse, _blocks(space, p, side, coarse), _blocks(space, q, side, coarse))
    return Distance(value, error=(side - 1) * math.hypot(space.height, space.width))


def _blocks(grid: Grid, mass: Floats, side: int, coarse: Grid) -> Floats:
    row, column = np.divmod(np.arange(grid.size), grid.columns)
    blocks = row // side * coarse.columns + column // side
    return np.bincount(blocks, mass, minlength=coarse.size).astype(np.float64)


def _exact(space: Space, p: Floats, q: Floats) -> float:
    """Only what differs has to move."""
    try:
        import ot
    except ImportError as error:
        raise MissingExtra("the earth mover's distance", "location") from error
    common = np.minimum(p, q)
    more, less = np.flatnonzero(p > q), np.flatnonzero(q > p)
    if not more.size or not less.size:
        return 0.0
    surplus, lack = (p - common)[more], (q - common)[less]
    total = surplus.sum()
    ways = np.stack([space.distances(int(place))[less] for place in more])
    return float(ot.emd2(surplus / total, lack / lack.sum(), ways, numItermax=10_000_000) * total)
