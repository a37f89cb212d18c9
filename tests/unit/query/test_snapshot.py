"""A snapshot: the same codes as the source, in one file that appears whole or not at all."""

import dataclasses
import json
import shutil
from pathlib import Path

import duckdb
import pytest

from reticent.errors import ParameterError, SourceError
from reticent.privacy import Budget, Neighbours
from reticent.query.declarations.datasets import DataSet
from reticent.query.rows import snapshot, source
from reticent.query.rows.columns import Column, Kind
from reticent.tables.records import CsvFile

COLUMNS = (
    Column("age", Kind.INTEGER, 0, 120),
    Column("income", Kind.NUMBER, -10_000, 1_000_000, 1, missing=0),
    Column("fine", Kind.NUMBER, 0, 1 << 30, 0.5),
    Column("race", Kind.CATEGORY, values=("white", "black", "other")),
    Column("place", Kind.INTEGER, 0, 299),
    Column("citizen", Kind.BOOLEAN),
)
HEADER = "age,income,fine,race,place,citizen,person\n"
ROWS = "5,7e6,0.25,white,299,yes,a\n,x,1e99,?,1,no,a\n130,-3,3.25,black,7,1,a\n9,1,2,other,0,f,b\n"
BY_ROW = DataSet("d", "1", COLUMNS, Budget(1, 1e-6), rows=4, source={"csv": "d.csv"})
BY_PERSON = DataSet(
    *("d", "1", COLUMNS, Budget(1, 1e-6), Neighbours.ADD_REMOVE_ONE, None, "person", 2),
    source={"csv": "d.csv"},
)


def codes(table):
    return sorted(table.tally(f"SELECT * FROM {table.relation}"))


@pytest.fixture
def folder(tmp_path):
    """A folder with the rows."""
    (tmp_path / "d.csv").write_text(HEADER + ROWS)
    return tmp_path


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A snapshot, made once."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "d.csv").write_text(HEADER + ROWS)
    snapshot.make(BY_ROW, folder, folder / "d.snapshot")
    return folder / "d.snapshot"


@pytest.fixture
def made(folder, kept):
    """The path of a snapshot of one's own."""
    return Path(shutil.copy(kept, folder))


@pytest.mark.parametrize("data", [BY_ROW, BY_PERSON], ids=["row", "person"])
def test_it_holds_the_codes_of_the_source(folder, data):
    path = folder / "d.snapshot"
    snapshot.make(data, folder, path)
    with source.connect(data, folder) as live, snapshot.open(path, data) as table:
        assert codes(table) == codes(live)
        assert table.names == live.names
        assert table.relation == "rows"
    assert sorted(one.name for one in folder.iterdir()) == ["d.csv", "d.snapshot"]


def test_of_a_database(server, folder):
    import psycopg

    names = ", ".join(f"{name} text" for name in HEADER.strip().split(","))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE snapped ({names})")
        with connection.cursor() as cursor:
            rows = [tuple(one or None for one in line.split(",")) for line in ROWS.splitlines()]
            cursor.executemany("INSERT INTO snapped VALUES (%s, %s, %s, %s, %s, %s, %s)", rows)
    data = dataclasses.replace(BY_ROW, source={"url": server, "table": "snapped"})
    snapshot.make(data, folder, folder / "pg.snapshot")
    with source.connect(BY_ROW, folder) as live, snapshot.open(folder / "pg.snapshot", data) as table:
        assert codes(table) == codes(live)


def test_it_is_used_once_it_exists(folder, made):
    (folder / "d.csv").write_text(HEADER + ROWS + ROWS)
    with source.connect(BY_ROW, folder, made) as table:
        assert table.tally(f"SELECT count(*) FROM {table.relation}") == [(4,)]
    made.unlink()
    with source.connect(BY_ROW, folder, made) as table:
        assert table.tally(f"SELECT count(*) FROM {table.relation}") == [(8,)]


def test_types_are_the_smallest_signed_ones(made):
    with duckdb.connect(str(made), read_only=True) as connection:
        types = [row[1] for row in connection.execute("DESCRIBE rows").fetchall()]
        tables = connection.execute("SELECT table_name FROM information_schema.tables ORDER BY 1").fetchall()
    assert types == ["TINYINT", "INTEGER", "BIGINT", "TINYINT", "SMALLINT", "TINYINT"]
    assert tables == [("about",), ("rows",)]


@pytest.mark.parametrize(
    ("first", "last", "name"),
    [
        (-128, 127, "TINYINT"),
        (-129, 0, "SMALLINT"),
        (0, 128, "SMALLINT"),
        (0, 1 << 15, "INTEGER"),
        (0, (1 << 31) - 1, "INTEGER"),
        (0, 1 << 31, "BIGINT"),
        (-(1 << 31), 0, "INTEGER"),
    ],
)
def test_a_type_holds_the_whole_range(first, last, name):
    assert snapshot.smallest_type(Column("x", Kind.INTEGER, first, last)) == name


OTHERS = {
    "name": {"name": "e"},
    "version": {"version": "2"},
    "unit": {"person": "person", "contribution": 1, "rows": None},
    "columns": {"columns": (Column("age", Kind.INTEGER, 0, 119), *COLUMNS[1:])},
}


@pytest.mark.parametrize("part", OTHERS)
def test_another_declaration_is_refused(made, part):
    other = dataclasses.replace(BY_ROW, **OTHERS[part])
    line = f"^snapshot must be made under this declaration, d.snapshot has another {part}: make it anew$"
    with pytest.raises(ParameterError, match=line):
        snapshot.open(made, other)


def test_budget_policy_and_place_of_the_source_may_change(made):
    other = dataclasses.replace(BY_ROW, budget=Budget(2, 1e-6), source={"csv": "gone.csv"})
    snapshot.open(made, other).close()


def test_the_order_of_the_columns_is_part_of_the_declaration(made):
    other = dataclasses.replace(BY_ROW, columns=COLUMNS[::-1])
    with pytest.raises(ParameterError, match="another columns"):
        snapshot.open(made, other)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO rows SELECT * FROM rows RETURNING 1",
        "SELECT count(*) FROM read_csv('/etc/passwd')",
        "SET enable_external_access = true",
        "ATTACH ':memory:' AS other",
    ],
)
def test_a_snapshot_is_only_read(made, sql):
    with snapshot.open(made, BY_ROW) as table, pytest.raises(SourceError, match=r"^the data cannot be read$"):
        table.tally(sql)


def test_several_may_read_at_once(made):
    with snapshot.open(made, BY_ROW) as one, snapshot.open(made, BY_ROW) as other:
        assert codes(one) == codes(other)


class TestFailures:
    def left(self, folder):
        return sorted(one.name for one in folder.iterdir())

    def test_a_source_that_cannot_be_read_leaves_nothing(self, folder, monkeypatch):
        def torn(*_):
            raise OSError("SECRET")
            yield

        monkeypatch.setattr(CsvFile, "batches", torn)
        with pytest.raises(SourceError, match=r"^the data cannot be read$") as raised:
            snapshot.make(BY_ROW, folder, folder / "d.snapshot")
        assert raised.value.__context__ is None
        assert self.left(folder) == ["d.csv"]

    def test_another_number_of_rows_than_the_public_one_leaves_nothing(self, folder):
        data = dataclasses.replace(BY_ROW, rows=5)
        with pytest.raises(ParameterError, match=r"^rows must be the public number of rows.*, 4, got 5$"):
            snapshot.make(data, folder, folder / "d.snapshot")
        assert self.left(folder) == ["d.csv"]

    def test_an_older_one_stays_if_the_new_one_fails(self, folder, made):
        before = made.read_bytes()
        with pytest.raises(ParameterError):
            snapshot.make(dataclasses.replace(BY_ROW, rows=5), folder, made)
        assert made.read_bytes() == before

    def test_no_file(self, folder):
        with pytest.raises(ParameterError, match=r"^snapshot must be a file, there is none at"):
            snapshot.open(folder / "d.snapshot", BY_ROW)

    def test_another_file(self, folder):
        with pytest.raises(SourceError, match=r"^the data cannot be read$"):
            snapshot.open(folder / "d.csv", BY_ROW)

    @pytest.mark.parametrize("text", ["[]", "{}", '"x"', '{"format": 1}'])
    def test_a_declaration_of_another_kind(self, made, text):
        with duckdb.connect(str(made)) as connection:
            connection.execute("UPDATE about SET declaration = ?", [text])
        with pytest.raises(ParameterError, match="another format"):
            snapshot.open(made, BY_ROW)

    def test_a_torn_declaration(self, made):
        with duckdb.connect(str(made)) as connection:
            connection.execute("DELETE FROM about")
        with pytest.raises(SourceError, match=r"^the data cannot be read$"):
            snapshot.open(made, BY_ROW)


def test_the_kept_declaration_is_canonical_json(made):
    with duckdb.connect(str(made), read_only=True) as connection:
        ((text,),) = connection.execute("SELECT declaration FROM about").fetchall()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    assert json.loads(text) == json.loads(json.dumps(snapshot.declaration(BY_ROW)))
