"""A map cut into equal cells, in kilometres.

Cells are numbered row by row; row 0 is the southernmost, column 0 the westernmost. A guarantee by distance
holds between the centres of cells: two points on both sides of a border are as far apart as their cells'
centres.

Projection: kilometres per degree at the middle latitude of the box (equirectangular), on a sphere of
6371.0088 km. Over a city that is right to two thousandths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.spaces.finite import MOST_DENSE, Flags, Floats

KM_PER_DEGREE = 6371.0088 * math.pi / 180.0
MOST_CELLS = 1 << 22
Cells = NDArray[np.int64]


@dataclass(frozen=True)
class Box:
    """A rectangle of latitudes and longitudes, in degrees, that does not cross the date line."""

    south: float
    north: float
    west: float
    east: float

    def __post_init__(self) -> None:
        for name, most in (("south", 85.0), ("north", 85.0), ("west", 180.0), ("east", 180.0)):
            object.__setattr__(self, name, real(name, getattr(self, name), low=-most, high=most))
        for low, high in (("south", "north"), ("west", "east")):
            if not getattr(self, low) < getattr(self, high):
                raise ParameterError(
                    f"{low} must be < {high}, got {getattr(self, low):g} and {getattr(self, high):g}"
                )

    @property
    def height_km(self) -> float:
        """From south to north."""
        return (self.north - self.south) * KM_PER_DEGREE

    @property
    def width_km(self) -> float:
        """From west to east, at the middle latitude."""
        return (self.east - self.west) * KM_PER_DEGREE * math.cos(math.radians((self.south + self.north) / 2))

    @property
    def stretch(self) -> float:
        """How much longer than on the ground a way to the east may be: at the side nearer to a pole."""
        farthest = max(abs(self.south), abs(self.north))
        return math.cos(math.radians((self.south + self.north) / 2)) / math.cos(math.radians(farthest))


@dataclass(frozen=True)
class Grid:
    """Equal cells.

    Args:
        rows: from south to north.
        columns: from west to east.
        height: of a cell, in `unit`.
        width: of a cell.
        box: where the grid lies, if points are to be found in it.
        closed: cells where nobody can be (water, say), which are never reported. Public knowledge.
        unit: of distances: "km", or "cell" for grids of no particular size.
    """

    rows: int
    columns: int
    height: float
    width: float
    box: Box | None = None
    closed: tuple[int, ...] = ()
    unit: str = field(default="km")

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", whole("rows", self.rows, low=1, high=MOST_CELLS))
        object.__setattr__(self, "columns", whole("columns", self.columns, low=1, high=MOST_CELLS))
        if self.rows * self.columns > MOST_CELLS:
            raise ParameterError(f"rows x columns must be at most {MOST_CELLS}, got {self.size}")
        object.__setattr__(self, "height", real("height", self.height, low=1e-6, high=1e6))
        object.__setattr__(self, "width", real("width", self.width, low=1e-6, high=1e6))
        closed = tuple(sorted({whole("closed", one, low=0, high=self.size - 1) for one in self.closed}))
        if len(closed) == self.size:
            raise ParameterError("closed must leave at least one cell open")
        if closed and self.columns > MOST_DENSE:
            raise ParameterError(
                f"columns must be at most {MOST_DENSE} with closed cells, got {self.columns}"
            )
        object.__setattr__(self, "closed", closed)

    @classmethod
    def over(cls, box: Box, rows: int, columns: int, closed: tuple[int, ...] = ()) -> Grid:
        """The grid that cuts a box into so many rows and columns."""
        rows, columns = whole("rows", rows, low=1), whole("columns", columns, low=1)
        return cls(rows, columns, box.height_km / rows, box.width_km / columns, box, closed)

    @property
    def size(self) -> int:
        """The number of cells, closed ones too."""
        return self.rows * self.columns

    @cached_property
    def open(self) -> Flags:
        """Which cells are not closed."""
        flags = np.ones(self.size, dtype=np.bool_)
        flags[list(self.closed)] = False
        flags.flags.writeable = False
        return flags

    @property
    def shortest(self) -> float:
        """The least distance between two cells; infinite for a single one."""
        sides = [self.height] * (self.rows > 1) + [self.width] * (self.columns > 1)
        return min(sides, default=math.inf)

    @property
    def diameter(self) -> float:
        """From corner to corner."""
        return math.hypot((self.rows - 1) * self.height, (self.columns - 1) * self.width)

    @cached_property
    def centres(self) -> Floats:
        """The centres of the cells, in `unit` east and north of the first: shape (cells, 2)."""
        east, north = np.arange(self.columns) * self.width, np.arange(self.rows) * self.height
        return np.stack([np.tile(east, self.rows), np.repeat(north, self.columns)], axis=1)

    @cached_property
    def offsets(self) -> Floats:
        """Distances by whole rows and columns apart: shape (rows, columns)."""
        north = (np.arange(self.rows) * self.height)[:, None]
        east = (np.arange(self.columns) * self.width)[None, :]
        return np.asarray(np.hypot(north, east))

    def distances(self, place: int) -> Floats:
        """From one cell to every cell."""
        row, column = divmod(place, self.columns)
        rows = np.abs(np.arange(self.rows) - row)
        columns = np.abs(np.arange(self.columns) - column)
        return np.asarray(self.offsets[rows[:, None], columns[None, :]]).reshape(-1)

    @cached_property
    def matrix(self) -> Floats:
        """All distances, for small grids."""
        if self.size > MOST_DENSE:
            raise ParameterError(f"a matrix of {self.size} cells is too large: at most {MOST_DENSE}")
        return np.stack([self.distances(place) for place in range(self.size)])

    def cells(self, latitudes: Any, longitudes: Any) -> Cells:
        """The cell of each point: a total function, since a point is private.

        Points outside of the box belong to the nearest cell, points in closed cells to the nearest open one,
        and what is no number to the middle of the box.
        """
        if self.box is None:
            raise ParameterError("box must be given to find points in a grid")
        box, north, east = self.box, _numbers(latitudes), _numbers(longitudes)
        rows = _along(north, box.south, box.north, self.rows)
        columns = _along(_seen_from(box, north, east), box.west, box.east, self.columns)
        return np.asarray(self._nearest_open[rows * self.columns + columns])

    @cached_property
    def _nearest_open(self) -> Cells:
        """Of each cell itself, or the open cell nearest to it: first along columns, then along rows."""
        nearest = np.arange(self.size)
        if not self.closed:
            return nearest
        table = self.open.reshape(self.rows, self.columns)
        steps = np.where(table, 0.0, np.inf)  # rows to the nearest open cell of the column
        for order in (range(1, self.rows), range(self.rows - 2, -1, -1)):
            for row in order:
                np.minimum(steps[row], steps[row - order.step] + 1.0, out=steps[row])
        across = np.abs(np.subtract.outer(np.arange(self.columns), np.arange(self.columns))) * self.width
        for row in np.flatnonzero(~table.all(axis=1)).tolist():
            column = np.argmin(np.hypot(across, steps[row] * self.height), axis=1)
            away = steps[row, column].astype(np.int64)
            above = np.minimum(row + away, self.rows - 1)
            found = np.where(table[above, column] & (above == row + away), above, row - away)
            nearest[row * self.columns : (row + 1) * self.columns] = found * self.columns + column
        return nearest

    @cached_property
    def jump(self) -> float:
        """How much farther apart two points may be as cells than they are: a diagonal, and what is closed.

        Two points a hair apart on both sides of a border are told apart as if they were this far apart.
        """
        moved = self.centres[self._nearest_open] - self.centres
        return math.hypot(self.height, self.width) + 2.0 * float(np.hypot(moved[:, 0], moved[:, 1]).max())

    def histogram(self, cells: Any) -> Cells:
        """How many of the cells are each one."""
        return np.bincount(np.asarray(cells, dtype=np.int64), minlength=self.size)


def _seen_from(box: Box, north: Floats, east: Floats) -> Floats:
    """The longitudes of points, changed outside of the box so that no two are taken farther apart.

    The shorter way around the world; and nearer to a pole closer to the middle, as degrees are shorter there.
    """
    with np.errstate(all="ignore"):
        degree = np.cos(np.radians(np.clip(north, -90.0, 90.0)))
        shrunk = np.minimum(degree / np.cos(np.radians(np.clip(north, box.south, box.north))), 1.0)
        middle = (box.west + box.east) / 2.0
        away = (np.clip(east, -180.0, 180.0) - middle + 180.0) % 360.0 - 180.0
        within = (box.south <= north) & (north <= box.north) & (box.west <= east) & (east <= box.east)
        return np.where(within, east, middle + away * np.nan_to_num(shrunk, nan=1.0))


def _along(values: Floats, low: float, high: float, parts: int) -> Cells:
    with np.errstate(all="ignore"):
        share = (values - low) / (high - low) * parts
        share = np.nan_to_num(share, nan=parts / 2, posinf=parts, neginf=0.0)
    return np.clip(np.floor(share), 0, parts - 1).astype(np.int64)


def _numbers(values: Any) -> Floats:
    """Doubles whatever the values hold; what is no number becomes NaN."""
    try:
        return np.asarray(values, dtype=np.float64)
    except Exception:  # a total function of where people are
        return np.array([_number(item) for item in values], dtype=np.float64)


def _number(item: Any) -> float:
    try:
        return float(item)
    except OverflowError:
        return math.inf if item > 0 else -math.inf
    except Exception:
        return math.nan
