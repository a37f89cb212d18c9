"""Outputs of any mechanism as codes for a black-box audit.

A mechanism may return numbers, texts, tuples, rows of bits or doubles. Each `View` turns outputs into
whole numbers in one way that it learnt from the first part of the samples: single values, bins between
quantiles, the last binary digit of a double, each column of a row, its length. A view never sees the second
half before an event is chosen, which is what makes the bounds of `black_box` honest.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.errors import ParameterError, ParameterTypeError
from reticent.randomness import Stream

Codes = NDArray[np.int64]
Array = NDArray[Any]
Sampler = Callable[[Any, int], Any]

BINS = 256
_FEWEST_BINS, _PER_BIN = 8, 32  # of few outputs: the order of bins must not be that of their noise
MOST_SYMBOLS = 1 << 17
_COLUMNS = 8
_ATOM = 8  # a double seen so often in the first half is a value of its own


def as_sampler(function: Any, rng: Stream | None = None) -> Sampler:
    """Return (value, size) -> outputs for f(value), f(value, size) or f(value, size, rng)."""
    if not callable(function):
        raise ParameterTypeError(f"mechanism must be callable, got {type(function).__name__}")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = None
    places = [p for p in parameters or () if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in places if p.default is p.empty]
    names = {p.name for p in parameters or ()}
    if rng is not None and "rng" in names:
        return lambda value, size: function(value, size, rng=rng)
    if (
        parameters is None
        or len(required) >= 2
        or (len(places) >= 2 and places[1].name in ("size", "n", "count"))
    ):
        return lambda value, size: function(value, size)
    return lambda value, size: [function(value) for _ in range(size)]


def drawn(sampler: Sampler, value: Any, size: int) -> Array:
    """Draw `size` outputs as an array with one row per output."""
    outputs = as_rows(sampler(value, size))
    if len(outputs) != size:
        raise ParameterError(
            f"mechanism must return one output per draw: asked for {size}, got {len(outputs)}"
        )
    return outputs


def as_rows(outputs: Any) -> Array:
    """Convert outputs to an array of numbers (one or two axes), or of objects with one axis."""
    try:
        array = np.asarray(outputs)
    except ValueError:  # ragged
        array = _objects(outputs)
    if array.ndim == 0:
        array = array.reshape(1)
    if array.dtype.names is not None:
        return np.ascontiguousarray(array).view(f"V{array.dtype.itemsize}")
    if array.dtype.kind in "biuf":
        array = array.astype({"f": np.float64, "b": np.int8}.get(array.dtype.kind, np.int64), copy=False)
        return array.reshape(len(array), -1) if array.ndim > 1 else array
    if array.dtype.kind == "O" or array.ndim > 1:
        return _factorised(outputs)
    return array


def _objects(outputs: Any) -> Array:
    array = np.empty(len(outputs), dtype=object)
    array[:] = list(outputs)
    return array


def _factorised(outputs: Any) -> Array:
    """Represent any other outputs by their texts: hashable or not, equal outputs have equal texts."""
    return np.array([repr(item) for item in outputs])


@dataclass(frozen=True)
class View:
    """A rule that turns outputs into codes.

    Attributes:
        codes: Function of outputs -> codes in [0, size), -1 for outputs that the first half did not hold.
        size: Number of codes.
        words: Function of codes -> description of the set.
    """

    codes: Callable[[Array], Codes]
    size: int
    words: Callable[[Codes], str]


def views(first: list[Array]) -> Iterator[View]:
    """Yield every view that fits outputs like those of the first halves."""
    if first[0].ndim == 1:
        yield from _column_views(first, lambda array: array, "output")
        return
    columns = first[0].shape[1]
    rows = _symbols([row_codes(array) for array in first])
    if rows.size <= MOST_SYMBOLS:
        yield _symbol_view(rows, row_codes, "row", shown=False)
    for column in range(min(columns, _COLUMNS)):
        yield from _column_views(first, partial(_column, column), f"column {column}")
    yield from _column_views(first, lambda array: np.square(array).sum(axis=1), "squared length")
    weights = _discriminant(first)
    if weights.any():
        yield from _column_views(first, lambda array: array @ weights, "weighted sum of the columns")


def _discriminant(first: list[Array]) -> Array:
    """Return weights of columns that distinguish the inputs: mean difference over variance, without noise."""
    a, b = (array.astype(np.float64) for array in (first[0], first[-1]))
    with np.errstate(all="ignore"):
        difference, variance = a.mean(axis=0) - b.mean(axis=0), a.var(axis=0) + b.var(axis=0)
        weights = difference / variance
        clear = np.abs(difference) > 5.0 * np.sqrt(variance / min(len(a), len(b)))
    return np.where(clear & np.isfinite(weights), weights, 0.0)


def _column(column: int, array: Array) -> Array:
    return array[:, column]


def _column_views(first: list[Array], pick: Callable[[Array], Array], name: str) -> Iterator[View]:
    picked = [pick(array) for array in first]
    symbols = _symbols(picked)
    if picked[0].dtype.kind != "f":
        if symbols.size <= MOST_SYMBOLS:
            yield _symbol_view(symbols, pick, name)
        if picked[0].dtype.kind != "i" or symbols.size <= BINS:
            return
    else:
        values, counts = np.unique(np.concatenate(picked), return_counts=True)
        atoms = values[counts >= _ATOM]
        if 0 < atoms.size <= MOST_SYMBOLS:
            yield _symbol_view(atoms, pick, name)
        yield View(lambda array: last_digit(pick(array)) + 1100, 2200, _digits_in_words(name))
    pooled = np.concatenate(picked)
    bins = min(BINS, max(_FEWEST_BINS, pooled.size // _PER_BIN))
    edges = np.unique(np.quantile(pooled, np.linspace(0.0, 1.0, bins + 1)[1:-1]))

    def binned(array: Array) -> Codes:
        return np.searchsorted(edges, pick(array), side="right").astype(np.int64)

    yield View(binned, edges.size + 1, lambda codes: _bins_in_words(name, edges, codes))


def _symbols(arrays: list[Array]) -> Array:
    return np.unique(np.concatenate(arrays))


def row_codes(array: Array) -> Array:
    """Hash rows to 64-bit numbers, equal for equal rows. A collision can only hide something."""
    rows = np.ascontiguousarray(array).view(np.uint8).reshape(len(array), -1)
    padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 8))).view(np.uint64)
    mixed = np.zeros(len(array), dtype=np.uint64)
    for column in padded.T:
        mixed = (mixed ^ column) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed.view(np.int64)


def _symbol_view(symbols: Array, pick: Callable[[Array], Array], name: str, *, shown: bool = True) -> View:
    def known(array: Array) -> Codes:
        picked = pick(array)
        place = np.minimum(np.searchsorted(symbols, picked), symbols.size - 1)
        return np.where(symbols[place] == picked, place, -1)

    def words(codes: Codes) -> str:
        if not shown:
            return f"{name} is one of {codes.size} of {symbols.size} seen"
        few = ", ".join(_in_words(symbol) for symbol in symbols[codes[:4]].tolist())
        return f"{name} in {{{few}{', ...' if codes.size > 4 else ''}}} ({codes.size} of {symbols.size})"

    return View(known, symbols.size, words)


def _in_words(symbol: Any) -> str:
    return f"{symbol:.6g}" if isinstance(symbol, float) else str(symbol)


def last_digit(numbers: Array) -> Codes:
    """Return the exponent of the last binary digit that is 1: y is an odd multiple of 2 to that power."""
    finite = np.where(np.isfinite(numbers), numbers, 0.0)
    mantissa, exponent = np.frexp(finite)
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    low = (whole & -whole).astype(np.float64)
    position = np.where(whole == 0, 1023, exponent - 53 + np.frexp(np.maximum(low, 1.0))[1] - 1)
    return np.clip(position, -1100, 1099).astype(np.int64)


def _digits_in_words(name: str) -> Callable[[Codes], str]:
    def words(codes: Codes) -> str:
        powers = ", ".join(f"2^{power}" for power in (codes[:4] - 1100).tolist())
        return f"last binary digit of the {name} at {powers}{', ...' if codes.size > 4 else ''}"

    return words


def _bins_in_words(name: str, edges: Array, codes: Codes) -> str:
    """Describe the first three intervals that neighbouring bins join into."""
    ordered = np.sort(codes)
    runs = np.split(ordered, np.flatnonzero(np.diff(ordered) > 1) + 1)
    parts = []
    for run in runs[:3]:
        low = "-inf" if run[0] == 0 else f"{edges[run[0] - 1]:.6g}"
        high = "inf" if run[-1] == edges.size else f"{edges[run[-1]]:.6g}"
        parts.append(f"[{low}, {high})")
    return f"{name} in {' or '.join(parts)}{' or ...' if len(runs) > 3 else ''}"
