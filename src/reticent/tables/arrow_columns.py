"""Arrow columns of any type, read by the meaning of their cells as `reticent.tables.cells` defines it.

The stored type of a column follows from its rows: one odd cell makes pandas or Arrow choose another type for
all of them. `plain` keeps the meaning of each cell under a type that engines read alike; `numbers` and
`Numbering` are for callers who need doubles, or need to know which cells mean the same.

Invariant: nothing here fails because of what a column holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.tables import cells

_FIRST_DAY, _LAST_DAY = (int(np.datetime64(day).astype(int)) for day in ("0001-01-01", "9999-12-31"))
_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_KNOWN = ("arrow.uuid", "arrow.bool8", "arrow.json")  # names of the extension types that are read
_ENGINES_DIGITS = 38  # the most digits of DuckDB's decimals
# Numbers that Arrow reads as `cells.number` does, and faster.
_ORDINARY = r"^-?[0-9]{1,30}([.][0-9]{1,30})?([eE][+-]?[0-9]{1,2})?$"


def spelled(objects: Any) -> Any:
    """Convert any objects to an Arrow array of texts that mean the same."""
    import pyarrow as pa

    return pa.array(cells.all_spelled(objects), pa.large_string())


def numbers(column: Any) -> NDArray[np.float64]:
    """Return the number that each cell of a column means, and NaN where a cell means no number."""
    import pyarrow as pa

    column = plain(column)
    types = pa.types
    if types.is_date(column.type):
        return np.full(len(column), np.nan)
    if types.is_decimal(column.type):
        column = column.cast(pa.string())
    if not _is_text(column.type):
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64) + 0.0
    texts = _texts(column).combine_chunks()
    ordinary = pa.compute.match_substring_regex(texts, _ORDINARY).fill_null(False)
    found = pa.compute.if_else(ordinary, texts, None).cast(pa.float64()).to_numpy(zero_copy_only=False).copy()
    others = np.flatnonzero(~ordinary.to_numpy(zero_copy_only=False))
    if others.size:
        codes, said = _encoded(texts.take(pa.array(others)), cells.number)
        values = np.array([np.nan, *(np.nan if one is None else one for one in said)])
        found[others] = values[codes + 1]
    return np.asarray(found + 0.0)


class Numbering:
    """A numbering of cell meanings: equal meanings get equal numbers, cells that mean nothing get -1.

    Args:
        known: Numbers of the meanings that are known from the beginning.
        grows: True if all other meanings get the next number, in the order in which they are met; otherwise
            they get -1 too.
    """

    def __init__(self, known: Mapping[float | str, int] | None = None, *, grows: bool = False) -> None:
        self._known, self._grows = dict(known or {}), grows

    def of(self, column: Any) -> NDArray[np.int64]:
        """Return the number of each cell of a column."""
        import pyarrow as pa

        column = plain(column)
        if _is_text(column.type) or pa.types.is_date(column.type):
            codes, said = _encoded(_texts(column).combine_chunks(), cells.meaning)
        else:
            values, first, codes = np.unique(numbers(column), return_index=True, return_inverse=True)
            met = np.argsort(first)
            said = [None if one != one else one for one in values[met].tolist()]
            codes = np.argsort(met)[codes]
        if self._grows:
            for one in said:
                if one is not None:
                    self._known.setdefault(one, len(self._known))
        found = np.array([-1, *(-1 if one is None else self._known.get(one, -1) for one in said)])
        return np.asarray(found[codes + 1], dtype=np.int64)


def _encoded(texts: Any, said: Any) -> tuple[NDArray[np.int64], list[Any]]:
    """Return, for each text, the index of its meaning in a list (-1 for NULL); and the list."""
    encoded = texts.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, [said(one) for one in encoded.dictionary.to_pylist()]


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def _texts(column: Any) -> Any:
    """Convert texts, bytes and days to texts."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.chunked_array([spelled(column.to_pylist())])
    return column.cast(pa.large_string())


def plain(column: Any) -> Any:
    """Convert a column to a type that DuckDB reads as it is."""
    import pyarrow as pa

    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.chunked_array([plain_chunk(chunk) for chunk in chunks], plain_type(column.type))


def plain_type(kind: Any) -> Any:
    """Return the type that `plain` gives to a column of this type."""
    import pyarrow as pa

    return plain_chunk(pa.nulls(0, kind)).type


def plain_chunk(column: Any) -> Any:
    """Convert an array to a type that DuckDB reads as it is."""
    import pyarrow as pa

    kind, types = column.type, pa.types
    if types.is_dictionary(kind):
        return plain_chunk(column.dictionary_decode())
    if types.is_run_end_encoded(kind):
        return plain_chunk(pa.compute.run_end_decode(column))
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name in _KNOWN:
        is_uuid = kind.extension_name == "arrow.uuid"
        return spelled(column.to_pylist()) if is_uuid else plain_chunk(column.storage)
    if types.is_string(kind) or types.is_large_string(kind):
        return _valid(column)
    if is_native(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return column
    if types.is_float16(kind):
        return column.cast(pa.float32())
    if types.is_decimal(kind):
        return _decimals(column)
    if types.is_date(kind) or types.is_timestamp(kind):
        return _days(column)
    if types.is_time(kind):
        return _minutes(column)
    if types.is_duration(kind):
        days, missing = _counted(column, 86_400 * _A_SECOND[kind.unit])
        return spelled(None if gone else f"{day} days" for day, gone in zip(days, missing, strict=True))
    for view, plain in ((pa.string_view(), pa.large_string()), (pa.binary_view(), pa.large_binary())):
        if kind == view:
            return plain_chunk(column.cast(plain))
    if types.is_fixed_size_binary(kind):
        return column.cast(pa.large_binary())
    return pa.nulls(len(column), pa.large_string())


def _valid(column: Any) -> Any:
    """Replace texts that are not UTF-8, which Arrow does not mind and DuckDB does not survive, by NULL."""
    import pyarrow as pa

    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return spelled(column.cast(pa.large_binary()).to_pylist())
    return column.cast(pa.large_string())


def is_native(kind: Any) -> bool:
    """Return whether DuckDB reads this Arrow type, in memory and in Parquet, with its own meaning."""
    import pyarrow.types as types

    return bool(
        types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_boolean(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or (types.is_decimal128(kind) and kind.precision <= _ENGINES_DIGITS)
    )


def _decimals(column: Any) -> Any:
    """Convert decimals that DuckDB lacks to 128 bits, or to texts if they have too many digits."""
    import pyarrow as pa

    kind = column.type
    if kind.precision <= _ENGINES_DIGITS and 0 <= kind.scale <= kind.precision:
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column.cast(pa.string())


def _counted(column: Any, per: int) -> tuple[Any, Any]:
    """Divide the whole numbers behind times by `per`, rounding down, and mark the missing ones."""
    import pyarrow as pa

    width = pa.int32() if column.type.bit_width == 32 else pa.int64()
    missing = column.is_null().to_numpy(zero_copy_only=False)
    counts = column.view(width).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return counts // per, missing


def _days(column: Any) -> Any:
    """Convert moments to days in UTC; days whose year does not have four digits become NULL."""
    import pyarrow as pa

    kind = column.type
    units = {pa.date32(): 1, pa.date64(): 86_400_000}
    days, missing = _counted(column, units.get(kind) or 86_400 * _A_SECOND[kind.unit])
    missing |= (days < _FIRST_DAY) | (days > _LAST_DAY)
    return pa.array(np.where(missing, 0, days).astype(np.int32), mask=missing).view(pa.date32())


def _minutes(column: Any) -> Any:
    import pyarrow as pa

    minutes, missing = _counted(column, 60 * _A_SECOND[column.type.unit])
    missing |= (minutes < 0) | (minutes >= 24 * 60)
    texts = pa.array([f"{minute // 60:02}:{minute % 60:02}" for minute in range(24 * 60)], pa.large_string())
    return texts.take(pa.array(minutes, mask=missing))
