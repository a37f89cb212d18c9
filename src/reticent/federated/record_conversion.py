"""Conversion of a home's records to numbers, one record at a time.

A record's numbers depend on that record alone, so that replacing one record by any other (text, a short row,
a complex number, bytes, 10**400) changes one row of the result and nothing else. How many records there are
is public. Nothing that a record holds raises.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.base import as_floats

MAX_MAGNITUDE = 1e100  # of a number, so that its square stays finite


def convert_records(
    features: Any, labels: Any, width: int, *, max_records: int | None = None
) -> tuple[Floats, Floats]:
    """Return the features and labels of all records as finite numbers.

    Args:
        features: Records, one per item of a list, or an array with one row per record.
        labels: Label of each record, in the same order.
        width: Count of numbers in a record.
        max_records: Count of records to keep; None keeps all.

    Returns:
        Features of shape (records, width) and labels of shape (records,). A record without a label has the
        label 0; labels without a record are left out.
    """
    rows = convert_rows(features, width, max_rows=max_records)
    numbers = convert_rows(labels, 1, max_rows=len(rows))[:, 0]
    return rows, np.concatenate([numbers, np.zeros(len(rows) - len(numbers))])


def convert_rows(records: Any, width: int, *, max_rows: int | None = None) -> Floats:
    """Return each record as `width` finite numbers, whatever the records hold.

    A cell that is no real number becomes 0, a larger one than `MAX_MAGNITUDE` that bound, and a record of
    another size a row of zeros.

    Args:
        records: Records, one per item of a list, tuple, one-dimensional array of objects or column of a data
            frame (pandas, polars or Arrow), or an array of numbers with one row per record. Anything else
            holds no records.
        width: Count of numbers in a record.
        max_rows: Count of records to convert; None converts all.
    """
    records = _list_column(records)
    if isinstance(records, list | tuple) or _holds_objects(records):
        rows = [_convert_row(record, width) for record in records[:max_rows]]
        return np.array(rows, dtype=np.float64).reshape(-1, width)
    try:
        array = as_floats(records)
    except Exception:  # an object that is no array: its type is public
        return np.zeros((0, width))
    return _split_array(array, width)[:max_rows]


def convert_classes(labels: Floats, classes: int) -> NDArray[np.int64]:
    """Return labels as classes from 0; a label beyond the classes becomes the nearest one."""
    return np.clip(labels, 0, classes - 1).astype(np.int64)


def _list_column(records: Any) -> Any:
    """Return a column of a data frame as a list of its cells, and anything else as it is.

    A column is a list whatever its type: one odd cell turns a column of numbers into one of objects, and must
    not change what the other cells mean.
    """
    for name in ("to_list", "to_pylist"):
        convert = getattr(type(records), name, None)
        if callable(convert):
            try:
                return convert(records)
            except Exception:  # an odd object that is no column: its type is public
                return None
    return records


def _holds_objects(records: Any) -> bool:
    return isinstance(records, np.ndarray) and records.ndim == 1 and records.dtype == object


def _convert_row(record: Any, width: int) -> Floats:
    try:
        cells = as_floats(record).reshape(-1)
    except Exception:  # rows within the record that are not as long as each other, or an odd object
        return np.zeros(width)
    return _limit(cells) if cells.size == width else np.zeros(width)


def _split_array(array: Floats, width: int) -> Floats:
    """Return the rows of an array, whose shape is public."""
    if array.ndim == 0:
        return np.zeros((0, width))
    if array.ndim == 1 and array.size % width == 0:
        return _limit(array.reshape(-1, width))
    if array.size != len(array) * width:
        return np.zeros((len(array), width))
    return _limit(array.reshape(len(array), width))


def _limit(numbers: Floats) -> Floats:
    return np.clip(np.nan_to_num(numbers), -MAX_MAGNITUDE, MAX_MAGNITUDE)
