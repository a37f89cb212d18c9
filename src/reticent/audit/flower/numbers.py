"""Values of one part over many runs, as a table of numbers without loss of information."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64] | NDArray[np.int64]

_EXACT = 2**53  # whole numbers up to here are doubles
_NARROW = 16  # bits of whole numbers that come again and again


def as_table(values: Sequence[Any], absent: Any) -> Table | None:
    """Return a row for each value; None if the values are not numbers of one shape and kind.

    Columns before the numbers say what these cannot: that the part is absent, and which are infinite, none,
    or zero below zero.

    Args:
        values: Texts, numbers, bytes, tuples of them, or arrays.
        absent: Value that stands for a missing part.
    """
    missing = np.array([value is absent for value in values])
    rows = [_row(value) for value in values if value is not absent]
    known = [row for row in rows if row is not None]
    if not known or len(known) < len(rows) or len({row.shape for row in known}) > 1:
        return None
    if len({row.dtype for row in known}) > 1:
        if any(row.dtype.kind == "i" and (np.abs(row) > _EXACT).any() for row in known):
            return None
        known = [row.astype(np.float64) for row in known]
    table: Any = np.zeros((len(values), known[0].size), dtype=known[0].dtype)
    table[~missing] = np.stack(known)
    columns = [missing[:, None].astype(table.dtype)]
    if table.dtype.kind == "f":
        columns.append(_forms(table))
        table = np.where(np.isfinite(table), table, 0.0)
    elif (table >> _NARROW).any():  # among so many, hardly one comes twice: their last digits do
        table = np.hstack([table, table & 0xFF])
    return np.hstack([*columns, table])


def _forms(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 0 for each usual number, other codes for infinities, NaN, and negative zero."""
    none, below = np.isnan(table), np.signbit(table)
    return np.select([none & below, none, np.isinf(table) & below, np.isinf(table), (table == 0.0) & below],
                     [1.0, 2.0, 3.0, 4.0, 5.0], 0.0)  # fmt: skip


def _row(value: Any) -> Any:
    """Return a value as 64-bit integers or doubles; None for texts and other values that are not numbers."""
    if isinstance(value, bytes):
        return np.frombuffer(value, dtype=np.uint8).astype(np.int64)
    if isinstance(value, int | float):
        return _of_numbers([value])
    if isinstance(value, tuple):
        return _of_numbers(value) if all(isinstance(one, int | float) for one in value) else None
    return _of_array(value) if isinstance(value, np.ndarray) else None


def _of_numbers(values: Sequence[float]) -> Any:
    if any(isinstance(one, int) and not -(2**63) <= one < 2**63 for one in values):
        return None
    if all(isinstance(one, int) for one in values):
        return np.array(values, dtype=np.int64)
    is_exact = all(isinstance(one, float) or abs(one) <= _EXACT for one in values)
    return np.array(values, dtype=np.float64) if is_exact else None


def _of_array(array: NDArray[Any]) -> Any:
    """Return numbers unchanged, and the bytes of every other kind (texts, dates, long doubles)."""
    flat = np.ascontiguousarray(array).reshape(-1)
    kind, size = flat.dtype.kind, flat.dtype.itemsize
    if kind in "biu" and flat.dtype != np.uint64:
        return flat.astype(np.int64)
    if kind == "f" and size <= 8:
        return flat.astype(np.float64)
    if kind == "c" and size <= 16:
        return np.concatenate([flat.real, flat.imag]).astype(np.float64)
    return np.frombuffer(flat.tobytes(), dtype=np.uint8).astype(np.int64)
