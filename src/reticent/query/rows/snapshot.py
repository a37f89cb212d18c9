"""A snapshot: the prepared rows in one file, for speed, and so that no later edit of the source is seen.

It is a DuckDB file with two tables: `rows` holds the codes, in the smallest integers that hold their range,
and `about` the declaration under which they were made. A snapshot of another declaration is refused. It holds
the data, so keep it where the source is kept. Rows on Spark have another form (`spark_snapshot`).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from reticent.errors import ParameterError
from reticent.files import tightened
from reticent.query.declarations.datasets import FORMATS, DataSet
from reticent.query.rows import sealed, spark
from reticent.query.rows.bins import SPARK
from reticent.query.rows.columns import Column
from reticent.query.rows.source import Table, fetched, numbered, quietly, reach

_FORMAT = 2  # 1: a cell could mean something else under another type of its column
_BATCH = 200_000
_SIGNED = {"TINYINT": 7, "SMALLINT": 15, "INTEGER": 31, "BIGINT": 63}  # unsigned ones fail on a difference


def make(
    data: DataSet,
    base: Path,
    path: Path,
    seen: spark.Seen | None = None,
    *,
    order_key: str | None = None,
) -> None:
    """Write the prepared rows of a data set's source to a file, which appears only when it is complete.

    Args:
        data: The declaration.
        base: Folder that paths are relative to.
        path: Path of the file; of a folder for rows on Spark, which writes it.
        seen: Is told now and then how many tasks of Spark are done, of how many that are known.
        order_key: The secret that orders the rows of each person (`row_order`), for rows that need one.

    Raises:
        ParameterError: the source is not there or does not fit the declaration; a public number of rows is
            compared with theirs.
        SourceError: it cannot be read.
    """
    engine, expression = reach(data, base, order_key)
    if engine.name == SPARK:
        from reticent.query.rows import spark_snapshot  # which needs this module

        return spark_snapshot.make(engine, engine.compile(expression), data, path, seen)
    try:
        with _appearing(path) as draft:
            quietly(lambda: _write(draft, _batches(engine, expression), data))
    finally:
        engine.disconnect()


def open(path: Path, data: DataSet) -> Table:  # noqa: A001 - read as snapshot.open
    """The rows of a snapshot, read only.

    Raises:
        ParameterError: there is none, or it was made under another declaration.
        SourceError: it cannot be read.
    """
    if "spark" in data.source:
        from reticent.query.rows import spark_snapshot  # as above

        return spark_snapshot.open(path, data)
    if not path.is_file():
        raise ParameterError(f"snapshot must be a file, there is none at {path}")
    connection = quietly(lambda: sealed.database(path))
    try:
        kept = quietly(lambda: json.loads(fetched(connection, "SELECT declaration FROM about")[0][0]))
        compare(kept, declaration(data), path)
    except BaseException:
        connection.close()
        raise
    return Table("rows", numbered(data), partial(fetched, connection), connection.close)


def declaration(data: DataSet) -> dict[str, Any]:
    """Return all that decides the codes."""
    cells = {} if data.format == FORMATS[0] else {"cells": data.format}
    unit = "row" if data.person is None else {"person": data.person, "rows": data.contribution}
    return {
        "format": _FORMAT,
        "name": data.name,
        "version": data.version,
        "unit": unit,
        "columns": [column.declaration() for column in data.columns],
    } | cells


def check_rows(data: DataSet, found: int) -> None:
    """Refuse a public number of rows that is not theirs. Where the number is private nothing is compared."""
    if data.rows is not None and data.rows != found:
        raise ParameterError(
            f"rows must be the public number of rows in the source, {found:,}, got {data.rows:,}"
        )


def compare(kept: Any, wanted: dict[str, Any], path: Path) -> None:
    """Refuse a snapshot that was made under another declaration."""
    stored = kept if isinstance(kept, dict) else {}
    for part in wanted | stored:
        if stored.get(part) != wanted.get(part):
            raise ParameterError(
                f"snapshot must be made under this declaration, {path.name} has another {part}: make it anew"
            )


def _batches(engine: Any, expression: Any) -> Any:
    """The codes as a stream of Arrow batches."""
    if engine.name == "duckdb":  # ibis 12 calls a method that DuckDB 2 has no more
        return engine.con.sql(engine.compile(expression)).to_arrow_reader(_BATCH)
    return engine.to_pyarrow_batches(expression, chunk_size=_BATCH)


def _write(draft: Path, batches: Any, data: DataSet) -> None:
    columns = ", ".join(f"{name} {smallest_type(column)}" for name, column in data.coded.items())
    with contextlib.closing(sealed.database(draft, read_only=False)) as connection:
        draft.chmod(0o600)  # before there is anything in it
        connection.execute(f"CREATE TABLE rows ({columns})")
        connection.register("batches", batches)
        connection.execute("INSERT INTO rows SELECT * FROM batches")
        connection.unregister("batches")
        check_rows(data, fetched(connection, "SELECT count(*) FROM rows")[0][0])
        connection.execute("CREATE TABLE about (declaration VARCHAR)")
        text = json.dumps(declaration(data), sort_keys=True, separators=(",", ":"))
        connection.execute("INSERT INTO about VALUES (?)", [text])
        connection.execute("CHECKPOINT")


def smallest_type(column: Column) -> str:
    """The smallest integers of SQL that hold the codes of a column."""
    return next(
        name for name, bits in _SIGNED.items() if -(1 << bits) <= column.first and column.last < 1 << bits
    )


@contextlib.contextmanager
def _appearing(path: Path) -> Iterator[Path]:
    """A name to write under; the file moves to its place when all went well."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        tightened(draft).replace(path)
    finally:
        for left in (draft, draft.with_name(draft.name + ".wal")):
            left.unlink(missing_ok=True)
