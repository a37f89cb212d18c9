"""The common base of mechanisms for several numbers: rows, and the blocks in which they are worked on."""

from __future__ import annotations

from collections.abc import Iterator

from numpy.typing import ArrayLike

from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.base import as_floats

BLOCK = 1 << 17  # numbers worked on at once


def rows_of(values: ArrayLike, dimensions: int) -> Floats:
    """Return the values as doubles of shape (..., dimensions); the shape is public, the content is not."""
    given = as_floats(values)
    if given.ndim == 0 or given.shape[-1] != dimensions:
        raise ParameterError(f"values must have {dimensions} numbers per row, got shape {given.shape}")
    if given.size == 0:
        raise ParameterError(f"values must hold at least one row, got shape {given.shape}")
    return given


def row_blocks(rows: int, dimensions: int) -> Iterator[slice]:
    """Return the slices of rows that are worked on at once."""
    size = max(1, BLOCK // dimensions)
    return (slice(start, min(rows, start + size)) for start in range(0, rows, size))
