"""Planar Laplace noise cut into cells: density proportional to exp(-level r) around the true cell's centre.

A point drawn outside of the grid is reported as the nearest cell. Every cell's share is an integral of the
density, so two true cells at distance d have shares within exp(level d): integration and remapping change
nothing. The shares are worked out once, as a table; its level is computed from the table itself, pair by
pair.

Reference: Andres, Bordenabe, Chatzikokolakis and Palamidessi 2013, Section 4, with remapping to a grid.
Departure: no point is ever drawn in doubles, which leak by their low bits; a cell is drawn from the table.
"""

from __future__ import annotations

import math

import numpy as np

from reticent.arguments import real
from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location.tables import TableChannel
from reticent.spaces.grid import Grid

_NODES = 12  # of Gauss-Legendre in each direction of a cell
_TAIL = 1e-13  # of the mass beyond the last cell that is integrated
_MOST_SIDE = 4000  # cells from the centre, in each direction


def planar_laplace(grid: Grid, level: float) -> TableChannel:
    """Return the channel of planar Laplace noise on a grid without closed cells.

    Args:
        grid: at most 1,024 cells.
        level: epsilon, in 1/unit of distance.
    """
    level = real("level", level, low=0.0, open_low=True)
    if grid.closed:
        raise ParameterError("planar Laplace noise must have no closed cells")
    reach = _reach(level)
    # Beyond the grid, too: a far border cell holds all that lies behind it, seen from everywhere.
    rows = grid.rows + math.ceil(reach / grid.height)
    columns = grid.columns + math.ceil(reach / grid.width)
    if max(rows, columns) > _MOST_SIDE:
        raise ParameterError(
            f"level must be at least {level * max(rows, columns) / _MOST_SIDE:g} on this grid, got {level:g}"
        )
    quarter = _shares(level, grid.height, grid.width, rows, columns)
    return TableChannel(grid, _folded(grid, quarter))


def _reach(level: float) -> float:
    """Return the radius beyond which lies less than `_TAIL`: (1 + level r) exp(-level r)."""
    scaled = 30.0
    while (1.0 + scaled) * math.exp(-scaled) > _TAIL:
        scaled += 0.5
    return scaled / level


def _shares(level: float, height: float, width: float, rows: int, columns: int) -> Floats:
    """Return the mass of each cell by rows and columns away, all >= 0: shape (rows + 1, columns + 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    shares = np.zeros((rows + 1, columns + 1))
    north = (np.arange(rows + 1)[:, None] + nodes / 2.0).reshape(-1) * height
    east = (np.arange(columns + 1)[:, None] + nodes / 2.0).reshape(-1) * width
    step = max(1, (1 << 21) // east.size // _NODES) * _NODES
    for start in range(0, north.size, step):
        density = np.exp(-level * np.hypot(north[start : start + step, None], east[None, :]))
        density = density.reshape(-1, _NODES, columns + 1, _NODES)
        shares[start // _NODES : start // _NODES + len(density)] = np.einsum(
            "aibj,i,j->ab", density, weights, weights
        )
    shares *= level**2 / (2.0 * math.pi) * height * width / 4.0
    shares[0, 0] = _central(level, height, width)
    return shares


def _central(level: float, height: float, width: float) -> float:
    """Return the mass of the true cell itself, where the density has a kink: in polar coordinates.

    1/(2 pi) times the integral over angles of 1 - (1 + level R) exp(-level R), R the way to the border.
    """
    corner = math.atan2(height, width)
    nodes, weights = np.polynomial.legendre.leggauss(64)
    total = 0.0
    for low, high, half, along in (
        (0.0, corner, width / 2.0, np.cos),
        (corner, math.pi / 2, height / 2.0, np.sin),
    ):
        angle = low + (nodes + 1.0) * (high - low) / 2.0
        way = level * half / along(angle)
        total += float(weights @ (1.0 - (1.0 + way) * np.exp(-way))) * (high - low) / 2.0
    return 4.0 * total / (2.0 * math.pi)


def _folded(grid: Grid, quarter: Floats) -> Floats:
    """Every true cell's law: what lies outside of the grid counts for the nearest cell."""
    rows, columns = quarter.shape[0] - 1, quarter.shape[1] - 1
    whole = np.empty((2 * rows + 1, 2 * columns + 1))
    whole[rows:, columns:] = quarter
    whole[rows:, :columns] = quarter[:, :0:-1]
    whole[:rows] = whole[:rows:-1]
    table = np.empty((grid.size, grid.size))
    for row in range(grid.rows):
        band = np.zeros((grid.rows, whole.shape[1]))
        np.add.at(band, np.clip(np.arange(-rows, rows + 1) + row, 0, grid.rows - 1), whole)
        for column in range(grid.columns):
            law = np.zeros((grid.columns, grid.rows))
            np.add.at(law, np.clip(np.arange(-columns, columns + 1) + column, 0, grid.columns - 1), band.T)
            table[row * grid.columns + column] = law.T.reshape(-1)
    return table
