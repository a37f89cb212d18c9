"""Check-ins of a file as cells of a grid: CSV, gzipped or not, and Parquet.

For simulations, and for whoever holds positions already. Rows are private, so reading is a total function of
them: a row that is short, odd or no number at all is a check-in in the middle of the box, one outside of the
box is in the nearest cell (`Grid.cells`). Errors speak of the file and its columns only, and never quote a
line: a file without a header has a person in its first one.

Privacy: none. Cells and histograms are the data themselves; nothing of them may leave but by a channel.
"""

from __future__ import annotations

import csv
import gzip
import os
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from reticent.arguments import real
from reticent.errors import MissingExtra, ParameterError, SourceError
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.base import as_floats
from reticent.spaces.grid import Cells, Grid

ROWS_AT_ONCE = 1 << 16
_FORMS = (".csv", ".csv.gz", ".parquet")

Points = tuple[list[Any], list[Any]]  # latitudes and longitudes, numbers or anything else


def cells(
    path: str | os.PathLike[str],
    grid: Grid,
    *,
    latitude: str = "lat",
    longitude: str = "lon",
    degrees: float = 1.0,
) -> Cells:
    """The cell of every check-in of a file, in its order.

    Args:
        path: a .csv, .csv.gz or .parquet file. The first line of a CSV names its columns; empty lines do not
            count.
        grid: over a box.
        latitude: the column of latitudes.
        longitude: the column of longitudes.
        degrees: what a one in these columns stands for: 1e-5 for degrees times 100,000.

    Raises:
        ParameterError: there is no such file or column, or a column of another type.
        SourceError: the file is damaged.
    """
    degrees = real("degrees", degrees, low=0.0, open_low=True)
    found = [
        grid.cells(_scaled(north, degrees), _scaled(east, degrees))
        for north, east in _points(Path(path), latitude, longitude)
    ]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def histogram(path: str | os.PathLike[str], grid: Grid, **columns: Any) -> Cells:
    """How many check-ins of a file are in each cell; columns as for `cells`."""
    return grid.histogram(cells(path, grid, **columns))


def _scaled(values: list[Any], degrees: float) -> Floats:
    with np.errstate(all="ignore"):
        return np.asarray(as_floats(values) * degrees)


def _points(path: Path, latitude: str, longitude: str) -> Iterator[Points]:
    if not path.name.lower().endswith(_FORMS):
        raise ParameterError(f"path must end in {', '.join(_FORMS)}, got {path.name}")
    if not path.is_file():
        raise ParameterError(f"path must be a file, got {path}")
    if path.suffix.lower() == ".parquet":
        return _of_parquet(path, latitude, longitude)
    return _of_csv(path, latitude, longitude)


def _of_csv(path: Path, latitude: str, longitude: str) -> Iterator[Points]:
    try:
        with _opened(path) as file:
            rows = _rows(file)
            names = [name.strip() for name in next(rows, [])]
            north, east = (_place(names, name, path) for name in (latitude, longitude))
            while chosen := list(islice(rows, ROWS_AT_ONCE)):
                yield [_field(row, north) for row in chosen], [_field(row, east) for row in chosen]
    except (OSError, EOFError, zlib.error):
        raise SourceError(f"{path.name} cannot be read to its end") from None


def _opened(path: Path) -> IO[str]:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace", newline="")
    return path.open(encoding="utf-8-sig", errors="replace", newline="")


def _rows(file: IO[str]) -> Iterator[list[str]]:
    """The lines of a CSV that are not empty; one that cannot be read has no fields that are numbers."""
    reader = csv.reader(file)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            row = [""]
        if row:
            yield row


def _place(names: list[str], name: str, path: Path) -> int:
    if name not in names:
        raise ParameterError(f"{path.name} must have a column {name!r} in its first line")
    return names.index(name)


def _field(row: list[str], place: int) -> str:
    return row[place] if place < len(row) else ""


def _of_parquet(path: Path, latitude: str, longitude: str) -> Iterator[Points]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("a Parquet file", "location") from None
    try:
        with pq.ParquetFile(path) as file:
            for name in (latitude, longitude):
                _check_type(pa, file.schema_arrow, name, path)
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=[latitude, longitude]):
                yield _listed(pa, batch.column(latitude)), _listed(pa, batch.column(longitude))
    except (OSError, pa.ArrowException):
        raise SourceError(f"{path.name} is no Parquet file that can be read") from None


def _check_type(pa: Any, schema: Any, name: str, path: Path) -> None:
    if name not in schema.names:
        raise ParameterError(f"{path.name} must have a column {name!r}")
    kind, types = schema.field(name).type, pa.types
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if not (number or _is_text(pa, kind)):
        raise ParameterError(f"{name} must be a column of numbers or text, got {kind}")


def _is_text(pa: Any, kind: Any) -> bool:
    return kind in (pa.string(), pa.large_string())


def _listed(pa: Any, column: Any) -> list[Any]:
    """Texts as bytes, since they may be no texts; numbers are read from bytes just as well."""
    found: list[Any] = (column.cast(pa.large_binary()) if _is_text(pa, column.type) else column).to_pylist()
    return found
