"""Frames, Arrow tables and files as columns that engines read alike: numbers, truth values, days and texts.

What a column is stored as follows from its rows: one odd cell makes pandas or Arrow choose another type for
all of them, also one that DuckDB would refuse or round otherwise. Here each cell keeps what it says
(`reticent.tables.cells`) under whatever type it comes, and no type is refused.

Invariant: nothing here fails because of what a column holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reticent.errors import ParameterError, ParameterTypeError
from reticent.tables.arrow_columns import is_native, plain, plain_chunk, plain_type, spelled

_BATCH = 1 << 17  # rows


class Stream:
    """Record batches that DuckDB asks for anew at every statement.

    Args:
        schema: of the batches.
        batches: makes them.
    """

    def __init__(self, schema: Any, batches: Callable[[], Iterator[Any]]) -> None:
        self._schema, self._batches = schema, batches

    def __arrow_c_schema__(self) -> object:
        """The schema, for whoever speaks Arrow's C interface."""
        found: object = self._schema.__arrow_c_schema__()
        return found

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The batches from the beginning."""
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        found: object = reader.__arrow_c_stream__(requested_schema)
        return found


def of_texts(names: Sequence[str], batches: Callable[[], Iterator[Any]]) -> Stream:
    """A stream of columns of text."""
    import pyarrow as pa

    return Stream(pa.schema([(name, pa.large_string()) for name in names]), batches)


# Frames


def of_frame(frame: Any, chosen: Callable[[Sequence[str]], Sequence[str]]) -> Any:
    """Columns of a pandas data frame, or of what is or becomes an Arrow table, as an Arrow table.

    Args:
        frame: it.
        chosen: which of its columns, by their names.

    Raises:
        ParameterTypeError: it is neither.
        ParameterError: a name is given to two columns.
    """
    import pyarrow as pa

    is_pandas = hasattr(frame, "columns") and hasattr(frame, "iloc")
    if not is_pandas and callable(getattr(frame, "to_arrow", None)):  # of Polars
        frame = frame.to_arrow()
    if not is_pandas and not isinstance(frame, (pa.Table, pa.RecordBatch)):
        raise ParameterTypeError(f"frame must be a data frame or an Arrow table, got {type(frame).__name__}")
    known = [name for name in (frame.columns if is_pandas else frame.schema.names) if isinstance(name, str)]
    names = chosen(known)
    for name in names:
        if known.count(name) > 1:
            raise ParameterError(f"columns.{name}: the frame has more than one column of this name")
    columns = [_of_series(frame[name]) if is_pandas else plain(frame.column(name)) for name in names]
    return pa.table(columns, names=list(names))


def _of_series(series: Any) -> Any:
    """One column of pandas."""
    import pyarrow as pa

    kind = series.dtype
    if isinstance(kind, np.dtype) and kind.hasobject:
        return spelled(series)
    if hasattr(series, "cat"):
        texts = spelled(series.cat.categories.astype(object))
        codes = np.asarray(series.cat.codes, dtype=np.int64)
        return texts.take(pa.array(codes, mask=codes < 0))
    if type(kind).__name__ in ("PeriodDtype", "IntervalDtype"):
        return pa.nulls(len(series), pa.large_string())
    if getattr(kind, "kind", "") == "c":
        values = np.asarray(series)
        return pa.array(np.where(values.imag == 0, values.real, np.nan).astype(np.float64))
    try:
        if isinstance(kind, np.dtype) and kind.kind == "f" and kind.itemsize > 8:
            series = series.astype(np.float64)
        return plain(pa.array(series, from_pandas=True))
    except (pa.ArrowException, TypeError, ValueError):  # what Arrow does not know, cell by cell
        return spelled(series.astype(object))


# Parquet


def of_parquet(path: Path, names: Sequence[str]) -> Stream | None:
    """These columns of a Parquet file, or None if DuckDB reads all of them as they are.

    Raises:
        OSError: it is no Parquet file; Arrow's errors too.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.read_schema(path)
    found = [name for name in names if name in schema.names]
    if all(is_native(_of_dictionary(schema.field(name).type)) for name in found):
        return None

    def batches() -> Iterator[Any]:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH, columns=found):
                yield pa.record_batch([plain_chunk(batch.column(name)) for name in found], names=found)

    kinds = [plain_type(schema.field(name).type) for name in found]
    return Stream(pa.schema(list(zip(found, kinds, strict=True))), batches)


def _of_dictionary(kind: Any) -> Any:
    import pyarrow.types as types

    return kind.value_type if types.is_dictionary(kind) else kind
