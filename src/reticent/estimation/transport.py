"""Earth mover's distance between distributions over places: the least mean way from one to the other.

Exact to 2,500 places (network simplex of POT). Beyond, a grid is first cut into blocks of cells: mass moves
at most half a block's diagonal to its centre on either side, which is the stated error. On a road network it
is exact at any size: ways are made of streets, so the least flow along streets is the distance, a linear
program with one number for each street and direction (HiGHS); a horizon is a place that is half of it away
from all. By straight lines places are first gathered, and what differs is moved to where they are gathered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.errors import MissingExtra, ParameterError, ReticentError
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location.elastic import as_prior
from reticent.spaces.finite import Space
from reticent.spaces.grid import Grid
from reticent.spaces.roads.network import APART_KM, Roads

MOST_EXACT = 2500
_WHAT = "the earth mover's distance"


@dataclass(frozen=True)
class Distance:
    """An earth mover's distance, within `error` of the exact one, in the space's unit."""

    value: float
    error: float = 0.0

    def __float__(self) -> float:
        return self.value


def earth_movers_distance(space: Space, first: Any, second: Any) -> Distance:
    """Return the distance between two distributions (counts will do) over the places of a space."""
    p, q = as_prior(space, first), as_prior(space, second)
    if space.size <= MOST_EXACT:
        return Distance(_exact(space, p, q))
    if isinstance(space, Roads):
        return Distance(_least_flow(space, p, q)) if space.metric == "street" else _gathered(space, p, q)
    if not isinstance(space, Grid):
        raise ParameterError(
            f"space must be a grid or a road network, or have at most {MOST_EXACT} places, got {space.size}"
        )
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


def _least_flow(roads: Roads, p: Floats, q: Floats) -> float:
    """Return the least sum of flow times length, over flows along streets that turn p into q."""
    try:
        from scipy.optimize import linprog
        from scipy.sparse import csr_array
    except ImportError as error:
        raise MissingExtra(_WHAT, "location") from error
    if np.array_equal(p, q):
        return 0.0
    begins, ends, lengths = roads.street.begins, roads.street.ends, roads.street.lengths
    surplus = p - q
    if math.isfinite(roads.horizon):
        every, hub = np.arange(roads.size), np.full(roads.size, roads.size)
        begins, ends = np.concatenate([begins, every, hub]), np.concatenate([ends, hub, every])
        lengths = np.concatenate([lengths, np.full(2 * roads.size, roads.horizon / 2.0)])
        surplus = np.append(surplus, 0.0)
    arcs = np.arange(len(begins))
    signs = np.repeat([1.0, -1.0], len(begins))
    at = (np.concatenate([begins, ends]), np.concatenate([arcs, arcs]))
    balance = csr_array((signs, at), shape=(len(surplus), len(begins)))
    surplus[int(np.abs(surplus).argmax())] -= surplus.sum()  # of rounding
    found = linprog(lengths, A_eq=balance, b_eq=surplus, method="highs-ipm")
    if found.x is None:
        raise ReticentError(f"the earth mover's distance was not found: {found.message}")
    return float(found.fun)


def _gathered(roads: Roads, p: Floats, q: Floats) -> Distance:
    """Between squares as seen from above, each at that of its places which is nearest to its middle."""
    side, low = math.sqrt(np.prod(np.ptp(roads.seen, axis=0)) / MOST_EXACT), roads.seen.min(axis=0)
    while True:
        squares, of = np.unique(np.floor((roads.seen - low) / side), axis=0, return_inverse=True)
        if len(squares) <= MOST_EXACT:
            break
        side *= 1.1
    of, off = of.reshape(-1), np.hypot(*((roads.seen - low) / side % 1.0 - 0.5).T)
    order = np.lexsort((off, of))
    chosen = order[np.searchsorted(of[order], np.arange(len(squares)))]
    away = np.minimum(np.hypot(*(roads.seen - roads.seen[chosen[of]]).T) + APART_KM, roads.horizon)
    common = np.minimum(p, q)
    p, q = p - common, q - common
    here, there = (np.bincount(chosen[of], mass, minlength=roads.size).astype(np.float64) for mass in (p, q))
    return Distance(_exact(roads, here, there), error=float((p + q) @ away))


def _exact(space: Space, p: Floats, q: Floats) -> float:
    """Only what differs has to move."""
    try:
        import ot
    except ImportError as error:
        raise MissingExtra(_WHAT, "location") from error
    common = np.minimum(p, q)
    more, less = np.flatnonzero(p > q), np.flatnonzero(q > p)
    if not more.size or not less.size:
        return 0.0
    surplus, lack = (p - common)[more], (q - common)[less]
    total = surplus.sum()
    ways = np.stack([space.distances(int(place))[less] for place in more])
    return float(ot.emd2(surplus / total, lack / lack.sum(), ways, numItermax=10_000_000) * total)
