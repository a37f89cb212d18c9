"""Check-ins of a file as cells of a grid, or places on roads: CSV, gzipped or not, and Parquet.

For simulations, and for an operator that holds positions already. Rows are private, so reading is a total
function of them: a row that is short, odd or no number at all is a check-in in the middle of the box, one
outside of the box is in the nearest cell (`Grid.cells`). What a cell of the table says, and where a row ends,
depends on no other row (`tables.cells`, `tables.records`), and no type of a column is refused. Errors speak
of the file and its columns only, and never quote a line: a file without a header has a person in its first
one.

Privacy: none. Cells and histograms are the data themselves; nothing of them may leave but by a channel.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from reticent.arguments import real
from reticent.errors import MissingExtra, ParameterError, SourceError
from reticent.mechanisms.base import Floats
from reticent.spaces.grid import Cells, Grid
from reticent.tables import packed
from reticent.tables.arrow_columns import numbers
from reticent.tables.records import CsvFile

ROWS_AT_ONCE = 1 << 16
_FORMS = (".csv", ".csv.gz", ".parquet")

Points = tuple[Floats, Floats]  # latitudes and longitudes; NaN for what is no number


class Snaps(Protocol):
    """Whatever has a place for every point: `Grid`, `Roads`."""

    def cells(self, latitudes: Any, longitudes: Any) -> Cells:
        """Return the place of each point, a total function."""


def cells(
    path: str | os.PathLike[str],
    grid: Snaps,
    *,
    latitude: str = "lat",
    longitude: str = "lon",
    degrees: float = 1.0,
) -> Cells:
    """Return the cell of every check-in of a file, in its order.

    Args:
        path: a .csv, .csv.gz or .parquet file, as for `read_points`.
        grid: Grid over a box, or roads.
        latitude: Column of latitudes.
        longitude: Column of longitudes.
        degrees: Degrees that a one in these columns stands for: 1e-5 for degrees times 100,000.

    Raises:
        ParameterError: there is no such file or column.
        SourceError: the file is damaged.
    """
    with np.errstate(all="ignore"):
        return grid.cells(*read_points(path, latitude=latitude, longitude=longitude, degrees=degrees))


def read_points(
    path: str | os.PathLike[str],
    *,
    latitude: str = "lat",
    longitude: str = "lon",
    degrees: float = 1.0,
) -> Points:
    """Return latitudes and longitudes of every check-in of a file, in its order.

    Args:
        path: a .csv, .csv.gz or .parquet file. The first line of a CSV names its columns; empty lines do not
            count.
        latitude: Column of latitudes.
        longitude: Column of longitudes.
        degrees: Degrees that a one in these columns stands for: 1e-5 for degrees times 100,000.

    Raises:
        ParameterError: there is no such file or column.
        SourceError: the file is damaged.
    """
    degrees = real("degrees", degrees, low=0.0, open_low=True)
    batches = list(_points(Path(path), latitude, longitude)) or [(np.empty(0), np.empty(0))]
    with np.errstate(all="ignore"):
        north, east = (np.concatenate(columns) * degrees for columns in zip(*batches, strict=True))
    return north, east


def histogram(path: str | os.PathLike[str], grid: Grid, **columns: Any) -> Cells:
    """Count the check-ins of a file in each cell; columns as for `cells`."""
    return grid.histogram(cells(path, grid, **columns))


def _points(path: Path, latitude: str, longitude: str) -> Iterator[Points]:
    if not path.name.lower().endswith(_FORMS):
        raise ParameterError(f"path must end in {', '.join(_FORMS)}, got {path.name}")
    if not path.is_file():
        raise ParameterError(f"path must be a file, got {path}")
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtra("check-ins in a file", "location") from error
    try:
        for batch in _batches(path, latitude, longitude):
            yield numbers(batch.column(0)), numbers(batch.column(1))
    except (OSError, pa.ArrowException):  # Arrow's text may quote the rows
        raise SourceError(f"{path.name} cannot be read to its end") from None


def _batches(path: Path, latitude: str, longitude: str) -> Iterator[Any]:
    """Batches of these two columns."""
    if path.suffix.lower() == ".parquet":
        return _of_parquet(path, latitude, longitude)
    packed.check_whole(path)
    file = CsvFile(partial(packed.opened, path))
    file.names = [name.strip() for name in file.names]
    _check_names(file.names, latitude, longitude, path)
    return file.batches([latitude, longitude])


def _of_parquet(path: Path, latitude: str, longitude: str) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        _check_names(file.schema_arrow.names, latitude, longitude, path)
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=[latitude, longitude]):
            yield batch.select([latitude, longitude])


def _check_names(names: list[str], latitude: str, longitude: str, path: Path) -> None:
    for name in (latitude, longitude):
        if name not in names:
            raise ParameterError(f"{path.name} must have a column {name!r}")
