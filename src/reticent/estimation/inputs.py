"""Checks of what estimators are given: counts, probabilities, channel matrices.

Reports are public, but a message still shows shapes and totals only, never the data.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real
from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.base import Floats

Counts = NDArray[np.int64]

_ROW_SUM_ERROR = 1e-9


def checked_counts(name: str, given: Any, size: int | None = None, *, least: int = 1) -> Counts:
    """Return a vector of whole numbers >= 0, of the right length, that sum to `least` or more."""
    counts = _array(name, given)
    if counts.ndim != 1 or counts.size == 0:
        raise ParameterError(f"{name} must be a non-empty vector, got shape {counts.shape}")
    if counts.dtype.kind not in "iu":
        raise ParameterTypeError(f"{name} must be whole numbers, got dtype {counts.dtype}")
    if size is not None and counts.size != size:
        raise ParameterError(f"{name} must have one entry per output, {size}, got {counts.size}")
    if counts.min() < 0:
        raise ParameterError(f"{name} must be >= 0")
    total = float(counts.sum(dtype=np.float64))
    if not least <= total < 2.0**53:
        raise ParameterError(f"{name} must sum to at least {least} and less than 2^53, got {total:g}")
    return counts.astype(np.int64)


def checked_reals(name: str, given: Any) -> Floats:
    """Return a non-empty vector of finite doubles."""
    numbers = _array(name, given)
    if numbers.dtype.kind not in "fiu":
        raise ParameterTypeError(f"{name} must be numbers, got dtype {numbers.dtype}")
    if numbers.ndim != 1 or numbers.size == 0:
        raise ParameterError(f"{name} must be a non-empty vector, got shape {numbers.shape}")
    if not np.isfinite(numbers).all():
        raise ParameterError(f"{name} must be finite")
    return numbers.astype(np.float64)


def checked_matrix(name: str, given: Any) -> Floats:
    """Return a channel matrix, matrix[x, y] = P(y | x): non-negative, rows that sum to one."""
    matrix = _array(name, given)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ParameterError(f"{name} must be a non-empty table [input, output], got shape {matrix.shape}")
    if matrix.dtype.kind not in "fiu":
        raise ParameterTypeError(f"{name} must be numbers, got dtype {matrix.dtype}")
    matrix = np.ascontiguousarray(matrix, dtype=np.float64)
    if not matrix.min() >= 0.0:
        raise ParameterError(f"{name} must be >= 0 in every entry")
    error = float(np.abs(matrix.sum(axis=1) - 1.0).max())
    if not error <= _ROW_SUM_ERROR:
        raise ParameterError(f"{name} must have rows (one per input) that sum to 1, off by {error:g}")
    return matrix


def checked_probability(name: str, given: Any) -> float:
    """Return a probability in [0, 1]; exact fractions are welcome."""
    return real(name, float(given) if isinstance(given, Fraction) else given, low=0.0, high=1.0)


def checked_support(p: Any, q: Any) -> tuple[float, float]:
    """Return the probabilities that a report supports one's own value (p), another value (q): q < p."""
    own, other = checked_probability("p", p), checked_probability("q", q)
    if not other < own:
        raise ParameterError(f"p must be > q, got p = {own:g} and q = {other:g}")
    return own, other


def checked_confidence(confidence: Any) -> float:
    """Return a confidence level strictly between 0 and 1."""
    return real("confidence", confidence, low=0.0, high=1.0, open_low=True, open_high=True)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, read-only from now on."""
    array.flags.writeable = False
    return array


def _array(name: str, given: Any) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise ParameterError(f"{name} must be a rectangular array") from error
