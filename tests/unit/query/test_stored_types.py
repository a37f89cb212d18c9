"""Declared types x stored types x engines: each pair is read right, refused at opening, or noted.

20 cells of each pair. What is right is said in Python by `stored_cells`; what is refused by one table; and a
word in a column of numbers must be in a source that the declaration says to be text, whose answers carry a
note. So no count is wrong in silence.
"""

from __future__ import annotations

import csv
import datetime as dt
from typing import ClassVar

import duckdb
import pandas as pd
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent.errors import ParameterError
from reticent.privacy import Budget
from reticent.query.declarations.datasets import DataSet
from reticent.query.rows import day_numbers, prepare, source, stored_types
from reticent.query.rows.columns import Column, Kind, ReadabilityColumn

from .stored_cells import CELLS, DECLARED, cells_of, declared, expected_code, expected_unreadable

pytestmark = [pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")]

# Of each engine: a stored type, the kind of its cells, and which declared types it is refused for.
NEVER = {"integer", "number", "boolean", "category", "many days"}
NO_NUMBER, NO_BOOLEAN, SAID = NEVER - {"category", "many days"}, {"boolean"}, set()
DUCKDB = {
    "VARCHAR": ("text", SAID),
    "BIGINT": ("whole", SAID),
    "DOUBLE": ("double", SAID),
    "DECIMAL(12, 2)": ("decimal", SAID),
    "BOOLEAN": ("truth", SAID),
    "DATE": ("day", NO_BOOLEAN),
    "TIMESTAMP": ("moment", NO_BOOLEAN),
    "TIMESTAMPTZ": ("zoned", NO_BOOLEAN),
    "TIME": ("clock", NO_NUMBER),
    "INTERVAL": ("span", NEVER),
    "UUID": ("uuid", NO_NUMBER),
    "INTEGER[]": ("list", NEVER),
}
POSTGRES = {
    "text": ("text", SAID),
    "varchar(40)": ("text", SAID),
    "bigint": ("whole", SAID),
    "double precision": ("double", SAID),
    "numeric": ("decimal", SAID),
    "boolean": ("truth", SAID),
    "date": ("day", NO_BOOLEAN),
    "timestamp": ("moment", NO_BOOLEAN),
    "timestamptz": ("zoned", NO_BOOLEAN),
    "time": ("clock", NO_NUMBER),
    "interval": ("span", NEVER),
    "uuid": ("uuid", NO_NUMBER),
    "integer[]": ("list", NEVER),
}
ARROW = {
    "string": (pa.string(), "text", SAID),
    "large string": (pa.large_string(), "text", SAID),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), "text", SAID),
    "int64": (pa.int64(), "whole", SAID),
    "float64": (pa.float64(), "double", SAID),
    "decimal": (pa.decimal128(12, 2), "decimal", SAID),
    "bool": (pa.bool_(), "truth", SAID),
    "date32": (pa.date32(), "day", NO_BOOLEAN),
    "timestamp": (pa.timestamp("us"), "moment", NO_BOOLEAN),
    "zoned": (pa.timestamp("us", "Europe/Paris"), "zoned", NO_BOOLEAN),
    "time": (pa.time64("us"), "clock", NO_NUMBER),
    "duration": (pa.duration("us"), "span", NO_NUMBER),
    "list": (pa.list_(pa.int64()), "list", NEVER),
}
PANDAS = {
    "object": (object, "text", SAID),
    "mixed object": (object, "day", SAID),
    "string": ("string", "text", SAID),
    "category": ("category", "text", SAID),
    "Int64": ("Int64", "whole", SAID),
    "float64": ("float64", "double", SAID),
    "boolean": ("boolean", "truth", SAID),
    "datetime64": ("datetime64[us]", "moment", NO_BOOLEAN),
    "zoned": ("datetime64[us, UTC]", "zoned", NO_BOOLEAN),
    "timedelta64": ("timedelta64[us]", "span", NO_NUMBER),
}


# Sources of each engine: how rows are given, and the pairs of it


def as_text(cell) -> str:
    """Return a cell as a CSV file holds it."""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, dt.timedelta):
        return f"{cell.days} days"
    return "" if cell is None else cell.isoformat() if isinstance(cell, dt.date) else str(cell)


class CsvSource:
    """Every kind of cell as text."""

    stored: ClassVar = {kind: (kind, SAID) for kind, _ in DUCKDB.values() if kind != "list"}
    is_text = True

    def __init__(self, folder):
        rows = zip(*(map(as_text, cells_of(kind)) for kind in self.stored), strict=True)
        with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([list(self.stored), *rows])
        self.options, self.folder, self.frame = {"source": {"csv": "rows.csv"}}, folder, None

    def cell(self, kind, cell):
        return as_text(cell)


class TypedSource:
    """Cells as they are."""

    is_text = False
    frame = None

    def cell(self, kind, cell):
        return cell


class ParquetSource(TypedSource):
    stored: ClassVar = {name: (kind, refused) for name, (_, kind, refused) in ARROW.items()}

    def __init__(self, folder):
        arrays = [pa.array(cells_of(kind), of_type) for of_type, kind, _ in ARROW.values()]
        pq.write_table(pa.table(arrays, names=list(ARROW)), folder / "rows.parquet")
        self.options, self.folder = {"source": {"parquet": "rows.parquet"}}, folder


class ArrowSource(ParquetSource):
    """The same table in memory. Its text needs no declaration, as that of frames."""

    is_text = True

    def __init__(self, folder):
        arrays = [pa.array(cells_of(kind), of_type) for of_type, kind, _ in ARROW.values()]
        self.frame, self.options, self.folder = pa.table(arrays, names=list(ARROW)), {}, folder


class FrameSource(TypedSource):
    stored: ClassVar = {name: (kind, refused) for name, (_, kind, refused) in PANDAS.items()}
    is_text = True

    def __init__(self, folder):
        series = {}
        for name, (dtype, kind, _) in PANDAS.items():
            cells = cells_of(kind)
            if kind == "zoned":
                cells = [None if cell is None else pd.Timestamp(cell).tz_convert("UTC") for cell in cells]
            series[name] = pd.Series(cells, dtype=object).astype(dtype)
        self.frame, self.options, self.folder = pd.DataFrame(series), {}, folder


class DuckDbSource(TypedSource):
    stored = DUCKDB

    def __init__(self, folder):
        with duckdb.connect(str(folder / "rows.db")) as connection:
            names = ", ".join(f'"{name}" {name}' for name in DUCKDB)
            connection.execute(f"CREATE TABLE rows ({names})")
            rows = list(zip(*(cells_of(kind) for kind, _ in DUCKDB.values()), strict=True))
            connection.executemany(f"INSERT INTO rows VALUES ({', '.join('?' * len(DUCKDB))})", rows)
        self.options, self.folder = {"source": {"duckdb": "rows.db", "table": "rows"}}, folder


class PostgresSource(TypedSource):
    stored = POSTGRES

    def __init__(self, folder, server):
        with psycopg.connect(server, autocommit=True) as connection:
            names = ", ".join(f'"{name}" {name}' for name in POSTGRES)
            connection.execute("DROP TABLE IF EXISTS all_types")
            connection.execute(f"CREATE TABLE all_types ({names})")
            rows = list(zip(*(cells_of(kind) for kind, _ in POSTGRES.values()), strict=True))
            with connection.cursor() as cursor:
                cursor.executemany(
                    f"INSERT INTO all_types VALUES ({', '.join(['%s'] * len(POSTGRES))})", rows
                )
        self.options, self.folder = {"source": {"url": server, "table": "all_types"}}, folder


@pytest.fixture(scope="module", params=["csv", "parquet", "arrow", "frame", "duckdb", "postgresql"])
def given(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "postgresql":
        return PostgresSource(folder, request.getfixturevalue("server"))
    made = {"csv": CsvSource, "parquet": ParquetSource, "arrow": ArrowSource, "frame": FrameSource}
    return (made | {"duckdb": DuckDbSource})[request.param](folder)


def data_set(columns, given) -> DataSet:
    return DataSet("d", "1", tuple(columns), Budget(1, 1e-6), rows=CELLS, format=2, **given.options)


def opened(data, given):
    return source.connect(data, given.folder, None, given.frame, order_key="0" * 64)


def column_of(kind, name, given) -> Column:
    """Return the declaration of a column; a database that stores words where numbers are declared says so."""
    is_word = given.stored[name][0] == "text" and kind in NO_NUMBER and not given.is_text
    return declared(kind, name, **({"stored": "text"} if is_word else {}))


# The fuzz


def wrong_cells(kind, given) -> list[str]:
    """Return the cells that are neither read right nor refused nor noted, over all stored types."""
    names = [name for name, (_, refused) in given.stored.items() if kind not in refused]
    data = data_set([column_of(kind, name, given) for name in names], given)
    wrong = []
    with opened(data, given) as table:
        rows = table.tally(f"SELECT * FROM {table.relation}")
    columns = list(zip(*rows, strict=True))
    for (code_name, column), codes in zip(data.coded.items(), columns, strict=True):
        checked = data.columns[int(code_name[1:])]
        stored_kind = given.stored[checked.name][0]
        cells = [given.cell(stored_kind, cell) for cell in cells_of(stored_kind)]
        is_flag = isinstance(column, ReadabilityColumn)
        due = [(expected_unreadable if is_flag else expected_code)(checked, cell) for cell in cells]
        wrong += [f"{checked.name}: {cell!r} is {code}, not {right}"
                  for cell, code, right in zip(cells, codes, due, strict=True) if code != right]  # fmt: skip
        is_silent = is_flag and any(due) and not stored_types.is_stored_as_text(data, checked)
        if is_silent and not (checked.kind is Kind.BOOLEAN and stored_kind in ("whole", "double", "decimal")):
            wrong.append(f"{checked.name}: unreadable cells, and no note")
    return wrong


@pytest.mark.parametrize("kind", DECLARED)
def test_no_count_is_wrong_in_silence(given, kind):
    assert wrong_cells(kind, given) == []


@pytest.mark.parametrize("kind", DECLARED)
def test_what_can_never_hold_the_type_is_refused_by_name(given, kind):
    for name, (_, refused) in given.stored.items():
        if kind in refused:
            data = data_set([declared(kind, name)], given)
            with pytest.raises(ParameterError, match=r"^columns\..*: the source stores .* never of type"):
                opened(data, given)


def test_text_in_a_typed_source_must_be_declared(given):
    for name, (cells, _) in given.stored.items():
        for kind in sorted(NO_NUMBER):
            if cells == "text" and not given.is_text:
                with pytest.raises(ParameterError, match=r"^columns\..*\.stored must be text, got nothing"):
                    opened(data_set([declared(kind, name)], given), given)


def test_format_1_refuses_no_type(given):
    for kind in DECLARED:
        columns = tuple(declared(kind, name) for name in given.stored)
        opened(DataSet("d", "1", columns, Budget(1, 1e-6), rows=CELLS, **given.options), given).close()


def test_persons_that_are_moments_are_refused(given):
    """Rows of no person do not count: of such a column none would."""
    counted = next(name for name, (cells, _) in given.stored.items() if cells == "whole")
    for name, (cells, _) in given.stored.items():
        if isinstance(given, CsvSource) or name == "mixed object":  # which are text
            continue
        persons = DataSet("d", "1", (declared("integer", counted),), Budget(1, 1e-6), person=name, format=2,
                          **given.options)  # fmt: skip
        if cells in ("day", "moment", "zoned", "clock", "span", "list"):
            with pytest.raises(ParameterError, match=r"^unit.person: the source stores"):
                opened(persons, given)
        else:
            opened(persons, given).close()


# Planted


def test_planted_days_that_are_missing_are_caught(given, monkeypatch):
    monkeypatch.setattr(prepare, "add_day_numbers", lambda engine, table, data: table)
    assert wrong_cells("integer", given) != []
    assert wrong_cells("number", given) != []


def test_planted_days_without_their_offset_are_caught(tmp_path, monkeypatch):
    given = CsvSource(tmp_path)
    monkeypatch.setattr(day_numbers.cells, "UTC_OFFSET", "(never)(never)$")
    assert wrong_cells("integer", given) != []


def test_planted_others_in_the_last_category_are_caught(given, monkeypatch):
    last = property(lambda column: len(column.values) - 2)
    monkeypatch.setattr(Column, "undeclared_code", last)
    assert wrong_cells("category", given) != []


def test_planted_a_type_that_is_not_refused_is_caught(tmp_path, monkeypatch):
    given = DuckDbSource(tmp_path)
    monkeypatch.setattr(stored_types, "check_types", lambda *arguments, **options: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_what_can_never_hold_the_type_is_refused_by_name(given, "integer")
