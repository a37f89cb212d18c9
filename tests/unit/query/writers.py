"""Tables as writers store them: the type of a column follows from its cells, all of them.

A writer takes columns of Python objects and a folder, and gives what `connect` takes. Where it refuses a
column, its text is written instead, as people do. So it is where Arrow would take numbers after a moment, a
time or a span for such: that changes what they say, which nobody can undo (docs/limits.md).
"""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import warnings
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

REFUSED = (pa.ArrowException, duckdb.Error, TypeError, ValueError, OverflowError)


def as_text(cells):
    return [None if cell is None else str(cell) for cell in cells]


def frame_of(columns, convert=lambda series: series):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = {}
        for name, cells in columns.items():
            try:
                made[name] = convert(pd.Series(cells))
            except REFUSED:
                made[name] = pd.Series(as_text(cells))
        return pd.DataFrame(made)


def numpy_array(cells):
    try:
        return np.array(cells)
    except ValueError:  # lists of different lengths
        return np.array([*cells, None], dtype=object)[:-1]


def arrow_array(cells):
    moments = [isinstance(cell, (dt.date, dt.time, dt.timedelta, np.datetime64)) for cell in cells]
    numbers = [isinstance(cell, (int, float, Decimal, np.number)) for cell in cells]
    try:
        return pa.array(as_text(cells) if any(moments) and any(numbers) else cells)
    except REFUSED:
        return pa.array(as_text(cells))


def arrow_table(columns):
    return pa.table({name: arrow_array(cells) for name, cells in columns.items()})


# Frames


def pandas(columns, folder):
    return {"frame": frame_of(columns)}


def objects(columns, folder):
    return {"frame": frame_of(columns, lambda series: series.astype(object))}


def nullable(columns, folder):
    return {"frame": frame_of(columns, lambda series: series.convert_dtypes())}


def categories(columns, folder):
    return {"frame": frame_of(columns, lambda series: series.astype("category"))}


def numpy(columns, folder):
    return {"frame": frame_of({name: numpy_array(cells) for name, cells in columns.items()})}


def arrow(columns, folder):
    return {"frame": arrow_table(columns)}


def arrow_dictionaries(columns, folder):
    table = arrow_table(columns)
    return {"frame": pa.table([dictionary_of(one) for one in table.columns], names=table.column_names)}


def dictionary_of(column):
    try:
        return column if pa.types.is_nested(column.type) else column.dictionary_encode()
    except REFUSED:  # of UUIDs there is none
        return column


# Files


def parquet_of_pandas(columns, folder):
    frame = frame_of(columns)
    for name in columns:
        if frame[name].dtype.kind in "Oc":
            frame[name] = pd.Series(arrow_array(columns[name]).to_pylist(), dtype=object)
    frame.to_parquet(folder / "rows.parquet")
    return {"parquet": "rows.parquet"}


def parquet_of_arrow(columns, folder):
    pa.parquet.write_table(arrow_table(columns), folder / "rows.parquet")
    return {"parquet": "rows.parquet"}


def csv_of_pandas(columns, folder):
    frame_of(columns).to_csv(folder / "rows.csv", index=False, lineterminator="\n")
    return {"csv": "rows.csv"}


def csv_of_python(columns, folder):
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return {"csv": "rows.csv"}


def csv_of_arrow(columns, folder):
    table = arrow_table(columns)
    for place, name in enumerate(columns):
        try:
            pa.csv.write_csv(table.select([name]), folder / "rows.csv")
        except REFUSED:
            table = table.set_column(place, name, [as_text(columns[name])])
    pa.csv.write_csv(table, folder / "rows.csv")
    return {"csv": "rows.csv"}


def csv_compressed(columns, folder):
    csv_of_python(columns, folder)
    (folder / "rows.csv.gz").write_bytes(gzip.compress((folder / "rows.csv").read_bytes()))
    return {"csv": "rows.csv.gz"}


# Databases


def _database(folder, make):
    path = folder / "rows.duckdb"
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as connection:
        make(connection)
    return {"duckdb": path.name, "table": "rows"}


def duckdb_of_arrow(columns, folder):
    def make(connection):
        connection.register("given", arrow_table(columns))
        connection.execute("CREATE TABLE rows AS SELECT * FROM given")

    return _database(folder, make)


def duckdb_of_csv(columns, folder):
    """Types guessed from the rows, as `CREATE TABLE .. AS FROM 'rows.csv'` does."""
    frame = frame_of(columns)
    frame.to_csv(folder / "guessed.csv", index=False, quoting=csv.QUOTE_NONNUMERIC)
    given = f"'{folder / 'guessed.csv'}', header=true, delim=',', quote='\"', escape='\"'"

    def make(connection):
        try:
            connection.execute(f"CREATE TABLE rows AS FROM read_csv({given})")
        except duckdb.Error:
            connection.execute(f"CREATE TABLE rows AS FROM read_csv({given}, all_varchar=true)")

    return _database(folder, make)


def postgresql(columns, server, table):
    """As `DataFrame.to_sql` does."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(server.replace("postgresql://", "postgresql+psycopg://"))
    frame = frame_of(columns)
    for name in columns:
        odd = pd.api.types.infer_dtype(frame[name], skipna=True)
        if odd.startswith("mixed") or odd in ("complex", "timedelta", "timedelta64", "bytes"):
            frame[name] = as_text(columns[name])
    try:
        frame.to_sql(table, engine, index=False, if_exists="replace")
    except (sqlalchemy.exc.SQLAlchemyError, pd.errors.DatabaseError):
        texts = pd.DataFrame({name: as_text(cells) for name, cells in columns.items()})
        texts.to_sql(table, engine, index=False, if_exists="replace")
    finally:
        engine.dispose()
    return {"url": server, "table": table}


FRAMES = (pandas, objects, nullable, categories, numpy, arrow, arrow_dictionaries)
FILES = (parquet_of_pandas, parquet_of_arrow, csv_of_pandas, csv_of_python, csv_of_arrow, csv_compressed)
TABLES = (duckdb_of_arrow, duckdb_of_csv)
WRITERS = {writer.__name__: writer for writer in (*FRAMES, *FILES, *TABLES)}
