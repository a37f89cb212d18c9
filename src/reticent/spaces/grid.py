"""A map cut into equal cells, in kilometres.

Cells are numbered row by row; row 0 is the southernmost, column 0 the westernmost. A guarantee by distance
holds between the centres of cells: two points on both sides of a border are as far apart as their cells'
centres.

Projection: the globe from far above the middle of the box (`globe.View`), a map that takes no two points of
the whole globe farther apart than they are. Kilometres are those of that view: those of the ground in the
middle, at most a tenth less in the corners of the largest box, a millionth over a city.
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
from reticent.spaces.globe import RADIUS_KM, View

MOST_CELLS = 1 << 22
MOST_REACH_KM = 2650.0  # from the middle of a box to its corners: there a kilometre is 1.1 on the ground
ROUNDING_KM = 2.0**-29  # two micrometres: of two points in doubles (`globe`), cut into cells
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
        if self.east - self.west > 180.0:
            raise ParameterError(
                f"box must span at most 180 degrees from west to east, got {self.east - self.west:g}"
            )
        if (reach := math.hypot(self.height_km, self.width_km) / 2.0) > MOST_REACH_KM:
            raise ParameterError(
                f"box must reach at most {MOST_REACH_KM:g} km from its middle, got {reach:.0f} km: "
                "seen from above, kilometres farther away are too short"
            )

    def contains(self, latitudes: Any, longitudes: Any) -> Flags:
        """Return for each point whether it lies in the box; a point that is no number does not."""
        north, east = _numbers(latitudes), _numbers(longitudes)
        return np.asarray(
            (self.south <= north) & (north <= self.north) & (self.west <= east) & (east <= self.east)
        )

    @cached_property
    def view(self) -> View:
        """From far above the middle."""
        return View((self.south + self.north) / 2.0, (self.west + self.east) / 2.0)

    @cached_property
    def height_km(self) -> float:
        """The height, from south to north, of the least rectangle about the middle that holds the box.

        The rectangle is measured as it is seen.

        A point at latitude b and a longitude a away is seen R (sin(b - m) + 2 sin m cos b sin^2(a / 2)) to
        the north, m the latitude of the middle. That grows with b, and with a where m is in the north; so one
        of the corners is the farthest.
        """
        middle, half = math.radians(self.view.latitude), math.radians(self.east - self.west) / 2.0
        bulge = 2.0 * math.sin(middle) * math.sin(half / 2.0) ** 2
        sides = (math.radians(self.south), math.radians(self.north))
        return 2.0 * RADIUS_KM * max(abs(math.sin(b - middle) + bulge * math.cos(b)) for b in sides)

    @cached_property
    def width_km(self) -> float:
        """The width, from west to east, of the rectangle of `height_km`, where the box is widest."""
        nearest = max(self.south, -self.north, 0.0)  # to the equator
        half = math.radians(self.east - self.west) / 2.0
        return 2.0 * RADIUS_KM * math.cos(math.radians(nearest)) * math.sin(half)


@dataclass(frozen=True)
class Grid:
    """Equal cells.

    Args:
        rows: Number of rows, from south to north.
        columns: Number of columns, from west to east.
        height: Height of a cell, in `unit`.
        width: Width of a cell.
        box: Box in which the grid lies, if points are to be found in it.
        closed: cells where nobody can be (water, say), which are never reported. Public knowledge.
        unit: Unit of distances: "km", or "cell" for grids of no particular size.
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
        if self.box is not None and self.unit != "km":
            raise ParameterError(f"unit must be km over a box, got {self.unit!r:.60}")
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
        """Return the grid that cuts a box, seen from above its middle, into so many rows and columns."""
        rows, columns = whole("rows", rows, low=1), whole("columns", columns, low=1)
        return cls(rows, columns, box.height_km / rows, box.width_km / columns, box, closed)

    @property
    def size(self) -> int:
        """The number of cells, closed ones too."""
        return self.rows * self.columns

    @cached_property
    def open(self) -> Flags:
        """The cells that are not closed, one flag each."""
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
        """Return the cell of each point: a total function, since a point is private.

        Points outside of the box belong to the cell that is nearest as they are seen, points in closed cells
        to the nearest open one, and what is no number to the middle of the box.
        """
        east, north = self.located_box.view.kilometres(_numbers(latitudes), _numbers(longitudes))
        rows, columns = _along(north, self.height, self.rows), _along(east, self.width, self.columns)
        return np.asarray(self._nearest_open[rows * self.columns + columns])

    def degrees(self, rows: Any, columns: Any) -> Floats:
        """Latitudes and longitudes (last axis) so many rows north, columns east of the south-western corner.

        Half a row and half a column is the centre of the first cell.
        """
        north = (np.asarray(rows, dtype=np.float64) - self.rows / 2.0) * self.height
        east = (np.asarray(columns, dtype=np.float64) - self.columns / 2.0) * self.width
        return self.located_box.view.degrees(*np.broadcast_arrays(east, north))

    @property
    def located_box(self) -> Box:
        """The box that the grid lies over.

        Raises:
            ParameterError: the grid lies nowhere in particular.
        """
        if self.box is None:
            raise ParameterError("box must be given to find points in a grid")
        return self.box

    @cached_property
    def _nearest_open(self) -> Cells:
        """The nearest open cell of each cell, or the cell itself: first along columns, then along rows."""
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
        """The most km that two points of the globe may be farther apart as cells than on the ground.

        Two points a hair apart on both sides of a border are told apart as if they were this far apart.

        Proof: let p, q be the two points as they are seen, moved to the nearest of the rectangle; |p - q| is
        at most the great circle between them (`globe`). The centres of their cells differ in each direction
        by at most a side more than p and q, and by nothing if there is one row (one column); so the centres
        are at most |p - q| and the diagonal apart, by the triangle inequality. Two centres in closed cells
        are each moved by no more than the farthest one is. The last bit is the rounding. Without closed cells
        there are pairs, diagonally across a corner in the middle of the map, that come as near as one likes.
        """
        moved = self.centres[self._nearest_open] - self.centres
        diagonal = math.hypot(self.height * (self.rows > 1), self.width * (self.columns > 1))
        return diagonal + 2.0 * float(np.hypot(moved[:, 0], moved[:, 1]).max()) + ROUNDING_KM

    def histogram(self, cells: Any) -> Cells:
        """Count the occurrences of each cell."""
        return np.bincount(np.asarray(cells, dtype=np.int64), minlength=self.size)


def _along(away: Floats, side: float, parts: int) -> Cells:
    """Return the index of the part, of so many about the middle; the first or the last beyond them."""
    return np.clip(np.floor(away / side + parts / 2.0), 0, parts - 1).astype(np.int64)


def _numbers(values: Any) -> Floats:
    """Return the values as doubles, each by what it holds itself; what is no real number becomes NaN."""
    if isinstance(values, list | tuple):
        return np.array([_number(item) for item in values], dtype=np.float64)
    array = np.asanyarray(values)
    if array.dtype.kind in "fiub" and not isinstance(array, np.ma.MaskedArray):
        return np.asarray(array, dtype=np.float64)
    return np.array([_number(item) for item in array.ravel().tolist()], dtype=np.float64).reshape(array.shape)


def _number(item: Any) -> float:
    try:
        return float(item)
    except OverflowError:
        return math.inf if item > 0 else -math.inf
    except Exception:  # the same
        return math.nan
