"""Stored types of columns: which of them can hold what a declaration says, decided by the schema alone.

What the rows hold is never looked at. Text can hold everything, so it is refused nowhere; but of cells of
text nobody knows whether they can be read, so that a database or a Parquet file that stores numbers or
booleans as text must be declared to do so (`stored: text`). CSV files and data frames are text to us always:
what a frame stores a column as follows from its rows, and an answer must not tell that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from reticent.errors import ParameterError
from reticent.query.declarations.datasets import FORMATS, DataSet
from reticent.query.rows.bins import DUCKDB
from reticent.query.rows.columns import STORED_TEXT, Column, Kind


class StoredType(Enum):
    """What a column is stored as, in the words of error messages."""

    TEXT = "text"
    NUMBER = "numbers"
    BOOLEAN = "truth values"
    DAY = "days or moments"
    CLOCK = "times of day"
    SPAN = "spans of time"
    INTERVAL = "intervals"
    IDENTIFIER = "identifiers"
    NESTED = "lists, objects or bytes"
    EMPTY = "nothing"


_NEVER = {StoredType.INTERVAL, StoredType.NESTED}  # engines give no text or number of these
_NO_NUMBER = _NEVER | {StoredType.CLOCK, StoredType.SPAN, StoredType.IDENTIFIER}
# The types that can never hold what is declared. `docs/how-to/datasets.md` has the same table.
REFUSED: Mapping[Kind, frozenset[StoredType]] = {
    Kind.NUMBER: frozenset(_NO_NUMBER),
    Kind.INTEGER: frozenset(_NO_NUMBER),
    Kind.BOOLEAN: frozenset(_NO_NUMBER | {StoredType.DAY}),
    Kind.CATEGORY: frozenset(_NEVER),
}
# Rows whose person is a moment are nobody's, and do not count.
REFUSED_PERSONS = frozenset(_NEVER | {StoredType.DAY, StoredType.CLOCK, StoredType.SPAN})


def find_type_faults(data: DataSet, stored: Mapping[str, StoredType], *, is_frame: bool = False) -> list[str]:
    """Return one sentence for each column that can never hold what is declared.

    Args:
        data: Declaration of the rows.
        stored: Stored type of each column, by name, as the schema of the source says it.
        is_frame: Whether the rows are a data frame, whose text needs no declaration.
    """
    found = [_find_fault(column, stored[column.name], is_frame) for column in data.columns]
    if data.person is not None and stored[data.person] in REFUSED_PERSONS:
        held = stored[data.person].value
        found.append(
            f"unit.person: the source stores {held} in {data.person}, and rows of no person do not count"
        )
    return [fault for fault in found if fault is not None]


def _find_fault(column: Column, stored: StoredType, is_frame: bool) -> str | None:
    kind = column.kind.value
    if stored in REFUSED[column.kind]:
        return (
            f"columns.{column.name}: the source stores {stored.value}, which are never of type {kind}: "
            "declare another type, or leave the column out"
        )
    is_text = stored is StoredType.TEXT and not is_frame
    if is_text and column.kind is not Kind.CATEGORY and column.stored != STORED_TEXT:
        return (
            f"columns.{column.name}.stored must be text, got nothing: the source stores text where type "
            f"{kind} is declared, and cells may say something else"
        )
    return None


def check_types(data: DataSet, stored: Mapping[str, StoredType], *, is_frame: bool = False) -> None:
    """Refuse a source whose schema cannot hold what is declared. Format 1 refuses nothing.

    Raises:
        ParameterError: The first column that can never hold its type.
    """
    if data.format == FORMATS[0]:
        return
    for fault in find_type_faults(data, stored, is_frame=is_frame):
        raise ParameterError(fault)


def is_stored_as_text(data: DataSet, column: Column) -> bool:
    """Return whether cells of a number or boolean may be words, as far as the declaration says.

    Only the declaration decides: a type that a writer chose for the rows may follow from one of them.
    """
    if data.format == FORMATS[0] or column.kind is Kind.CATEGORY:
        return False
    typed = ("parquet", "duckdb", "url", "spark")
    return column.stored == STORED_TEXT or not any(form in data.source for form in typed)


# Schemas


def arrow_types(schema: Any, names: Sequence[str]) -> dict[str, StoredType]:
    """Return the stored types of columns of an Arrow schema."""
    return {name: of_arrow(schema.field(name).type) for name in names}


def of_arrow(kind: Any) -> StoredType:
    """Return the stored type that a type of Arrow is."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return of_arrow(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        known = {"arrow.uuid": StoredType.IDENTIFIER, "arrow.bool8": StoredType.BOOLEAN}
        known["arrow.json"] = StoredType.TEXT
        return known.get(kind.extension_name, StoredType.NESTED)
    if kind in (pa.string_view(), pa.binary_view()):
        return StoredType.TEXT
    for stored, tests in {
        StoredType.EMPTY: (types.is_null,),
        StoredType.BOOLEAN: (types.is_boolean,),
        StoredType.NUMBER: (types.is_integer, types.is_floating, types.is_decimal),
        StoredType.TEXT: (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary,
                          types.is_fixed_size_binary),
        StoredType.DAY: (types.is_date, types.is_timestamp),
        StoredType.CLOCK: (types.is_time,),
        StoredType.SPAN: (types.is_duration,),
        StoredType.INTERVAL: (types.is_interval,),
    }.items():  # fmt: skip
        if any(test(kind) for test in tests):
            return stored
    return StoredType.NESTED


def of_frame(frame: Any, names: Sequence[str]) -> dict[str, StoredType]:
    """Return the stored types of columns of a pandas data frame or an Arrow table."""
    if not hasattr(frame, "iloc"):
        return arrow_types(frame.schema, names)
    return {name: _of_dtype(frame[name].dtype) for name in names}


def _of_dtype(dtype: Any) -> StoredType:
    if hasattr(dtype, "pyarrow_dtype"):
        return of_arrow(dtype.pyarrow_dtype)
    if type(dtype).__name__ in ("PeriodDtype", "IntervalDtype"):
        return StoredType.NESTED
    if not isinstance(dtype, np.dtype) and hasattr(dtype, "categories"):
        return StoredType.TEXT
    kinds = {"M": StoredType.DAY, "m": StoredType.SPAN, "b": StoredType.BOOLEAN}
    kinds |= dict.fromkeys("iufc", StoredType.NUMBER)
    return kinds.get(getattr(dtype, "kind", "O"), StoredType.TEXT)


def of_table(table: Any, names: Sequence[str], engine: str) -> dict[str, StoredType]:
    """Return the stored types of columns of a table of an engine, an ibis expression."""
    schema = table.schema()
    return {name: _of_ibis(schema[name], engine) for name in names}


def of_spark(schema: Any, names: Sequence[str]) -> dict[str, StoredType]:
    """Return the stored types of columns of a schema of Spark."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    return {name: _of_spark_type(kinds[name]) for name in names}


def _of_spark_type(kind: str) -> StoredType:
    known = {"boolean": StoredType.BOOLEAN, "void": StoredType.EMPTY, "binary": StoredType.TEXT}
    known |= dict.fromkeys(("date", "timestamp", "timestamp_ntz"), StoredType.DAY)
    known |= dict.fromkeys(("tinyint", "smallint", "int", "bigint", "float", "double"), StoredType.NUMBER)
    for beginning, stored in {
        "string": StoredType.TEXT,
        "varchar": StoredType.TEXT,
        "char": StoredType.TEXT,
        "decimal": StoredType.NUMBER,
        "interval": StoredType.INTERVAL,
    }.items():
        if kind.startswith(beginning):
            return stored
    return known.get(kind, StoredType.NESTED)


def _of_ibis(kind: Any, engine: str) -> StoredType:
    if kind.is_json():  # others than DuckDB give the text with its quotes
        return StoredType.TEXT if engine == DUCKDB else StoredType.NESTED
    if kind.is_binary():
        return StoredType.TEXT if engine == DUCKDB else StoredType.NESTED
    for stored, is_so in {
        StoredType.EMPTY: kind.is_null(),
        StoredType.BOOLEAN: kind.is_boolean(),
        StoredType.NUMBER: kind.is_numeric(),
        StoredType.DAY: kind.is_date() or kind.is_timestamp(),
        StoredType.CLOCK: kind.is_time(),
        StoredType.INTERVAL: kind.is_interval(),
        StoredType.IDENTIFIER: kind.is_uuid() or kind.is_macaddr() or kind.is_inet(),
        StoredType.NESTED: kind.is_nested() or kind.is_geospatial(),
    }.items():
        if is_so:
            return stored
    return StoredType.TEXT
