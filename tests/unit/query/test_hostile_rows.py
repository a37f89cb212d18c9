"""Cells that made an engine read other rows otherwise, or fail after the charge: statistics, long texts."""

import contextlib
import math
import re
from pathlib import Path

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent.errors import SourceError
from reticent.privacy import Budget, Neighbours
from reticent.query.declarations.datasets import DataSet
from reticent.query.rows import prepare, sealed, source
from reticent.query.rows.columns import Column, Kind

NUMBERS = (
    Column("a0", Kind.NUMBER, 0, 10, missing=7.0),
    Column("a1", Kind.INTEGER, 0, 10, missing=7),
    Column("a2", Kind.CATEGORY, values=("1", "2", "other")),
    Column("a3", Kind.CATEGORY, values=("1", "2", *(f"v{number}" for number in range(70)), "other")),
    Column("a4", Kind.BOOLEAN, missing=True),
)
AMOUNT = Column("n", Kind.INTEGER, 0, 10)
WORDS = Column("a0", Kind.CATEGORY, values=("aa", "ab", "zz", "other"))
ODD = (math.nan, math.inf, -math.inf, -0.0, None)
OTHERS = ((1.0, 2.0), (1.0,) * 4, (0.0,) * 3, (-0.0, 5.5), (2.0, 9.0), ())


def data_set(columns, given, *, person=None):
    return DataSet(
        "d", "1", columns, Budget(1.0, 1e-6), Neighbours.ADD_REMOVE_ONE, person=person, source=given
    )


def codes(data, folder=Path()):
    """All rows of codes."""
    with source.connect(data, folder) as table:
        return sorted(table.tally(f"SELECT {', '.join(table.names.values())} FROM {table.relation}"))


def rows(cells, kind):
    return pa.table({column.name: pa.array(cells, kind) for column in NUMBERS})


def by_arrow(folder, cells, kind):
    pq.write_table(rows(cells, kind), folder / "t.parquet")
    return {"parquet": "t.parquet"}


def by_duckdb(folder, cells, kind):
    with contextlib.closing(duckdb.connect()) as connection:
        connection.register("rows", rows(cells, kind))
        connection.execute(f"COPY rows TO '{folder / 't.parquet'}' (FORMAT parquet)")
    return {"parquet": "t.parquet"}


def in_duckdb(folder, cells, kind):
    (folder / "t.db").unlink(missing_ok=True)
    with contextlib.closing(duckdb.connect(folder / "t.db")) as connection:
        connection.register("rows", rows(cells, kind))
        connection.execute("CREATE TABLE t AS SELECT * FROM rows")
    return {"duckdb": "t.db", "table": "t"}


def changed(write, folder, kinds, odd_cells, other_rows):
    """How many tables there are in which a cell's code follows from other rows."""

    def read(cells, kind):
        return codes(data_set(NUMBERS, write(folder, cells, kind)), folder)

    found = 0
    for kind in kinds:
        alone = {odd: read([odd], kind) for odd in odd_cells}
        for others in other_rows:
            theirs = [row for one in others for row in read([one], kind)]
            for odd in odd_cells:
                found += read([*others, odd, odd], kind) != sorted(theirs + 2 * alone[odd])
    return found


@pytest.mark.parametrize("write", [by_arrow, by_duckdb, in_duckdb])
def test_no_code_follows_from_other_rows_by_way_of_statistics(write, tmp_path):
    assert changed(write, tmp_path, [pa.float64()], ODD[:1], OTHERS[:1]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("write", [by_arrow, by_duckdb, in_duckdb])
def test_no_code_of_all_follows_from_other_rows(write, tmp_path):
    assert changed(write, tmp_path, [pa.float64(), pa.float32()], ODD, OTHERS) == 0


def test_planted_trust_in_statistics_is_noticed(tmp_path, monkeypatch):
    """One person's 11 instead of 1 makes every NaN the largest value instead of none."""
    monkeypatch.setattr(sealed, "_UNBELIEVED", {})
    found = []
    for one in (1.0, 11.0):
        given = by_arrow(tmp_path, [1.0, one, *[math.nan] * 5], pa.float64())
        found.append([code for (code,) in codes(data_set(NUMBERS[1:2], given), tmp_path)])
    assert found == [[0, 0, 0, 0, 0, 1, 1], [1, 10, 10, 10, 10, 10, 10]]


def lying(folder):
    """A file whose footer says that nothing is greater than `ab`, though `zz` is there."""
    file = folder / "t.parquet"
    pq.write_table(pa.table({"a0": ["aa", "zz"]}), file, compression="none", use_dictionary=False)
    content = file.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    file.write_bytes(content[:footer] + content[footer:].replace(b"zz", b"ab"))
    told = pq.read_metadata(file).row_group(0).column(0).statistics
    assert (told.min, told.max) == ("aa", "ab")
    return {"parquet": "t.parquet"}


def test_statistics_that_lie_change_nothing(tmp_path, monkeypatch):
    data = data_set((WORDS,), lying(tmp_path))
    assert codes(data, tmp_path) == [(0,), (2,)]
    monkeypatch.setattr(sealed, "_UNBELIEVED", {})
    assert codes(data, tmp_path) == [(0,), (3,)]  # planted


def test_names_of_folders_are_no_columns(tmp_path):
    """DuckDB took every age in a folder `a1=7` for 7."""
    for name in ("plain", "a1=7", "a0=word", "a9=1"):
        (tmp_path / name).mkdir()
        given = by_arrow(tmp_path / name, [1.0, 2.0], pa.float64())
        assert codes(data_set(NUMBERS[1:2], given), tmp_path / name) == [(1,), (2,)]


# PostgreSQL and long texts


@contextlib.contextmanager
def texts(server, table, length, many=2):
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {table} (a0 text, p text, n int)")
        connection.execute(f"INSERT INTO {table} VALUES ('aa', 'x', 1), ('1', 'y', 1)")
        connection.execute(
            f"INSERT INTO {table} SELECT long, long || last, 2 "
            "FROM unnest(%s::text[]) AS last, repeat('t', %s) AS long",
            (["b", "c"][:many], length),
        )
        try:
            yield {"url": server, "table": table}
        finally:
            connection.execute(f"DROP TABLE {table}")


def test_persons_with_long_names_in_postgresql_are_nobody(server):
    with texts(server, "named", 1000) as given:
        assert codes(data_set((AMOUNT,), given, person="p")) == [(1,), (1,)]
    with texts(server, "shorter", 998) as given:
        assert codes(data_set((AMOUNT,), given, person="p")) == [(1,), (1,), (2,), (2,)]


def test_planted_long_names_that_are_one_person_are_noticed(server, monkeypatch):
    monkeypatch.setattr(prepare, "_LONGEST", 900)
    kept = prepare._person
    monkeypatch.setattr(
        prepare, "_person", lambda field, engine: kept(prepare._text(field, engine).left(899), engine)
    )
    with texts(server, "merged", 998) as given:
        found = codes(data_set((AMOUNT,), given, person="p"))
    assert found == [(1,), (1,), (2,)]


@pytest.mark.slow
def test_no_cell_in_postgresql_is_too_long(server, monkeypatch):
    """A cell of 270 MB failed every statement about it, after the charge."""
    with texts(server, "long", 270_000_000, many=1) as given:
        for column in (NUMBERS[0], WORDS):
            assert len(codes(data_set((column,), given))) == 3
        assert codes(data_set((AMOUNT,), given, person="p")) == [(1,), (1,)]
        monkeypatch.setattr(prepare, "_LONGEST", 1 << 30)  # planted
        with pytest.raises(SourceError, match=re.escape("the data cannot be read")):
            codes(data_set((AMOUNT,), given, person="p"))
