"""Columns of Arrow and pandas under every type: none fails, and each cell still says what it said."""

import datetime as dt
from decimal import Decimal
from uuid import UUID

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.query.rows import storage
from reticent.tables import cells

MOMENT = dt.datetime(2026, 1, 2, 5, tzinfo=dt.UTC)
BAD = pa.array([b"a", b"\xff", b"1"]).view(pa.string())
ARROW = {
    "whole": (pa.array([1, None]), ["1.0", None]),
    "large": (pa.array([2**64 - 1], pa.uint64()), ["1.8446744073709552e+19"]),
    "half": (pa.array(np.array([1.5], dtype="f2")), ["1.5"]),
    "decimal32": (pa.array([Decimal("1.50")], pa.decimal32(5, 2)), ["1.5"]),
    "decimal256": (pa.array([Decimal("1.10"), Decimal("1e-30"), Decimal("1e37")]), ["1.1", "1e-30", "1e+37"]),
    "truth": (pa.array([True, None]), ["true", None]),
    "dictionary": (pa.array(["a", "b", None]).dictionary_encode(), ["a", "b", None]),
    "runs": (pa.compute.run_end_encode(pa.array([1, 1, 2])), ["1.0", "1.0", "2.0"]),
    "view": (pa.array(["a"], pa.string_view()), ["a"]),
    "bytes": (pa.array(["a", b"\xff"]), ["a", None]),
    "bytes of one length": (pa.array([b"ab"], pa.binary(2)), ["ab"]),
    "no text": (BAD, ["a", None, "1"]),
    "day": (pa.array([dt.date(2026, 1, 2), None]), ["2026-01-02", None]),
    "day of 64 bits": (pa.array([dt.date(2026, 1, 2)], pa.date64()), ["2026-01-02"]),
    "moment": (pa.array([MOMENT, None], pa.timestamp("ns", "Asia/Tokyo")), ["2026-01-02", None]),
    "moment of no calendar": (pa.array([10**15, -1], pa.timestamp("s")), [None, "1969-12-31"]),
    "day of no calendar": (pa.array([2**31 - 1, -(2**31)], pa.int32()).view(pa.date32()), [None, None]),
    "time": (pa.array([dt.time(12, 30, 1), None]), ["12:30", None]),
    "time of no day": (pa.array([-1, 90_000], pa.int32()).view(pa.time32("s")), [None, None]),
    "span": (pa.array([dt.timedelta(hours=30), None]), ["1 days", None]),
    "uuid": (pa.array([UUID(int=5)]), [str(UUID(int=5))]),
    "list": (pa.array([[1], None]), [None, None]),
    "struct": (pa.array([{"a": 1}]), [None]),
    "months": (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), [None]),
    "nothing": (pa.nulls(2), [None, None]),
    "no rows": (pa.chunked_array([], pa.timestamp("us")), []),
}
PANDAS = {
    "objects": (pd.Series([1, "x", None, 1.5, b"a", True, [1], dt.date(2026, 1, 2)], dtype=object),
                ["1.0", "x", None, "1.5", "a", "true", None, "2026-01-02"]),
    "doubles": (pd.Series([1, None]), ["1.0", None]),
    "nullable": (pd.Series([1, None], dtype="Int64"), ["1.0", None]),
    "nullable truth": (pd.Series([True, None], dtype="boolean"), ["true", None]),
    "categories": (pd.Series(["a", 2, None], dtype="category"), ["a", "2.0", None]),
    "complex": (pd.Series([1 + 0j, 1j]), ["1.0", None]),
    "long": (pd.Series(np.array([1.5], dtype="g")), ["1.5"]),
    "other end": (pd.Series(np.array([1], dtype=">i8")), ["1.0"]),
    "zone": (pd.Series(pd.to_datetime(["2026-01-03 00:30"]).tz_localize("Europe/Paris")), ["2026-01-02"]),
    "span": (pd.Series(pd.to_timedelta(["30h"])), ["1 days"]),
    "period": (pd.Series(pd.period_range("2026-01", periods=1)), [None]),
    "interval": (pd.Series(pd.interval_range(0, 1)), [None]),
    "sparse": (pd.Series(pd.arrays.SparseArray([1.0, np.nan])), ["1.0", None]),
    "arrow": (pd.Series([Decimal("1.1")], dtype=pd.ArrowDtype(pa.decimal256(50, 5))), ["1.1"]),
}  # fmt: skip


def said(table):
    """What DuckDB reads, spelled."""
    with duckdb.connect() as connection:
        connection.register("given", table)
        return cells.all_spelled(row[0] for row in connection.execute("SELECT x FROM given").fetchall())


def meanings(texts):
    return [None if one is None else cells.meaning(one) for one in texts]


@pytest.mark.parametrize("name", ARROW)
def test_every_type_of_arrow(name):
    column, expected = ARROW[name]
    found = said(storage.of_frame(pa.table({"x": column}), lambda names: names))
    assert meanings(found) == meanings(expected)


@pytest.mark.parametrize("name", PANDAS)
def test_every_type_of_pandas(name):
    series, expected = PANDAS[name]
    found = said(storage.of_frame(pd.DataFrame({"x": series}), lambda names: names))
    assert meanings(found) == meanings(expected)


def test_a_planted_text_that_is_none_is_noticed():
    """DuckDB does not survive what Arrow does not mind."""
    with duckdb.connect() as connection:
        connection.register("given", pa.table({"x": BAD}))
        with pytest.raises((duckdb.Error, UnicodeDecodeError)):
            connection.execute("SELECT lower(x), x FROM given").fetchall()


def test_parquet_is_streamed_only_where_duckdb_would_read_otherwise(tmp_path):
    path = tmp_path / "x.parquet"
    pa.parquet.write_table(
        pa.table({"a": [1], "b": ["x"], "c": pa.array([Decimal("1.1")], pa.decimal256(60, 5))}), path
    )
    assert storage.of_parquet(path, ["a", "b"]) is None
    stream = storage.of_parquet(path, ["a", "c"])
    for _ in range(2):
        assert pa.table(stream).to_pylist() == [{"a": 1, "c": "1.10000"}]


@pytest.mark.parametrize("given", [3, "x", [1], None, {"x": [1]}, pd.Series([1])])
def test_what_is_no_frame_is_refused_by_name(given):
    with pytest.raises(ParameterTypeError, match=f"got {type(given).__name__}$"):
        storage.of_frame(given, lambda names: names)


def test_two_columns_of_a_name_are_refused():
    frame = pd.DataFrame([[1, 2]], columns=["x", "x"])
    for one in (frame, pa.table([[1], [2]], names=["x", "x"])):
        with pytest.raises(
            ParameterError, match=r"^columns\.x: the frame has more than one column of this name$"
        ):
            storage.of_frame(one, lambda names: ["x"])
