"""Where the rows are: every kind of source, refusals in one line, and no word of an engine."""

import csv
import shutil
import threading
import traceback

import duckdb
import pytest

from reticent.errors import ParameterError, SourceError
from reticent.ledger import MemoryLedger
from reticent.privacy import Budget
from reticent.query import Session
from reticent.query.declarations.datasets import DataSet
from reticent.query.language import tree
from reticent.query.rows import source, storage
from reticent.query.rows.columns import Column, Kind

COLUMNS = (
    Column("age", Kind.INTEGER, 0, 120),
    Column("race", Kind.CATEGORY, values=("white", "black", "other")),
    Column("citizen", Kind.BOOLEAN),
)
TEXT = "age,race,citizen,name\n5,white,yes,SECRET\n200,green,0,SECRET\n,black,?,SECRET\n"
CODES = [(5, 0, 1), (60, 1, 0), (120, 2, 0)]


def data_set(**given):
    return DataSet("d", "1", COLUMNS, Budget(1, 1e-6), rows=3, source=given)


def codes(table):
    return sorted(table.tally(f"SELECT * FROM {table.relation}"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the same rows as CSV, Parquet and DuckDB."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "d.csv").write_text(TEXT)
    rows = f"read_csv({source.quoted(folder / 'd.csv')}, all_varchar=true)"
    with duckdb.connect(str(folder / "d.db")) as connection:
        connection.execute(f"CREATE TABLE people AS SELECT * FROM {rows}")
        connection.execute("CREATE SCHEMA other; CREATE TABLE other.seen AS SELECT * FROM people LIMIT 0")
        connection.execute(f"COPY people TO {source.quoted(folder / 'd.parquet')}")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


class TestKinds:
    @pytest.mark.parametrize(
        "given", [{"csv": "d.csv"}, {"parquet": "d.parquet"}, {"duckdb": "d.db", "table": "people"}]
    )
    def test_files(self, folder, given):
        with source.connect(data_set(**given), folder) as table:
            assert table.names == {"age": "c0", "race": "c1", "citizen": "c2"}
            assert codes(table) == CODES
            assert table.tally(f"SELECT count(*), sum(c0) FROM {table.relation}") == [(3, 185)]

    def test_a_schema(self, folder):
        given = {"duckdb": "d.db", "table": "seen", "schema": "other"}
        with source.connect(data_set(**given), folder) as table:
            assert codes(table) == []

    def test_a_url(self, server):
        import psycopg

        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("CREATE TABLE people (age text, race text, citizen text)")
            with connection.cursor() as cursor:
                rows = [tuple(one or None for one in row[:3]) for row in csv.reader(TEXT.splitlines()[1:])]
                cursor.executemany("INSERT INTO people VALUES (%s, %s, %s)", rows)
            with source.connect(data_set(url=server, table="people"), None) as table:
                assert codes(table) == CODES
                with pytest.raises(SourceError):
                    table.tally("DELETE FROM people RETURNING 1")
                with pytest.raises(SourceError):
                    table.tally("SELECT nothing")
                assert codes(table) == CODES, "an error leaves the connection usable"

    def test_another_delimiter(self, tmp_path):
        (tmp_path / "d.csv").write_text(TEXT.replace(",", ";"))
        with source.connect(data_set(csv="d.csv", delimiter=";"), tmp_path) as table:
            assert codes(table) == CODES


class TestCsv:
    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("\ufeffage,race,citizen\n5,white,yes\n", [(5, 0, 1)]),
            ("age,race,citizen\r\n5,white,yes\r\n", [(5, 0, 1)]),
            ("age,race,citizen\n5,white\n", [(5, 0, 0)]),
            ("age,race,citizen\n5,white,yes,and,more\n", [(5, 0, 1)]),
            ('age,race,citizen\n5,"white\n",yes\n7,"bl""ack",no\n', [(5, 2, 1), (7, 2, 0)]),
            ('age,"race",citizen\n"5",white,"yes"\n', [(5, 0, 1)]),
            ("age,race,citizen\n#5,white,yes\n", [(60, 0, 1)]),
            ("citizen,age,race\nyes,5,white\n", [(5, 0, 1)]),
            ("age,race,citizen\n", []),
            ("age,race,citizen\n5,wh\rite,yes\r6,white,no\r7,white\n", [(5, 2, 0)]),
            ("age,race,citizen\r\n5,white,no\n6,black,yes\r\n7,black,1\r\n", [(5, 0, 0), (7, 1, 1)]),
            ("age,race,citizen\r5,white,yes\r\n6,black\r", [(5, 0, 1), (6, 1, 0)]),
        ],
        ids=[
            "mark",
            "crlf",
            "short",
            "long",
            "quotes",
            "quoted-names",
            "no-comments",
            "order",
            "empty",
            "lone-cr",
            "lone-lf",
            "cr",
        ],
    )
    def test_lines(self, tmp_path, text, found):
        (tmp_path / "d.csv").write_bytes(text.encode())
        with source.connect(data_set(csv="d.csv"), tmp_path) as table:
            assert codes(table) == found

    @pytest.mark.parametrize("options", ["delim=',', quote='\"', escape='\"'", "sample_size=-1"])
    def test_a_planted_reader_that_makes_rows_of_a_field_is_noticed(self, monkeypatch, tmp_path, options):
        """As an engine reads by itself, or under a dialect guessed from the rows."""

        def by_duckdb(path, data):
            given = (
                f"'{path}', {options}, header=true, all_varchar=true, strict_mode=false, null_padding=true"
            )
            table = duckdb.sql(f"SELECT * FROM read_csv({given})").to_arrow_table()
            return storage.Stream(table.schema, lambda: iter(table.to_batches()))

        mine = "\r".join(["5", *["6,white,yes"] * 50])
        (tmp_path / "d.csv").write_text(f"age,race,citizen\n{mine},white\n", newline="")
        with source.connect(data_set(csv="d.csv"), tmp_path) as table:
            assert len(codes(table)) == 1
        monkeypatch.setattr(source, "_csv", by_duckdb)
        with source.connect(data_set(csv="d.csv"), tmp_path) as table:
            assert len(codes(table)) > 1

    def test_names_are_taken_as_they_are(self, tmp_path):
        name = 'it\'s "odd"; DROP TABLE rows; -- é'
        with (tmp_path / "d'1.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([[name, "x"], ["5", "6"]])
        declared = DataSet(
            "d", "1", (Column(name, Kind.INTEGER, 0, 9),), Budget(1, 1e-6), rows=1, source={"csv": "d'1.csv"}
        )
        with source.connect(declared, tmp_path) as table:
            assert codes(table) == [(5,)]

    @pytest.mark.parametrize("text", ["", "\n5\n", "age,race,race\n", "age,,race\n"])
    def test_a_bad_header_is_refused(self, tmp_path, text):
        (tmp_path / "d.csv").write_text(text)
        with pytest.raises(ParameterError, match=r"^source\.csv must start with a line of column names"):
            source.connect(data_set(csv="d.csv"), tmp_path)


class TestRefusals:
    @pytest.mark.parametrize(
        ("given", "line"),
        [
            ({}, "source must be one of csv, parquet, duckdb, url, spark, got nothing"),
            ({"csv": "no.csv"}, "source.csv must be a file, there is none at"),
            ({"duckdb": "no.db", "table": "people"}, "source.duckdb must be a file"),
            ({"csv": "d[1].csv"}, r"source.csv must be a path without \* \? \["),
            ({"csv": "x.csv"}, "columns.age: the source has no such column, it has a, b"),
            ({"duckdb": "d.db", "table": "nobody"}, "source.table must be a table or view of that database"),
            (
                {"url": "nonsense://me:SECRET@nowhere/x", "table": "people"},
                "source.url must begin with postg",
            ),
        ],
    )
    def test_what_does_not_fit_is_said_in_one_line(self, folder, given, line):
        (folder / "d[1].csv").write_text(TEXT)
        (folder / "x.csv").write_text("a,b\n")
        with pytest.raises(ParameterError, match=f"^{line}") as raised:
            source.connect(data_set(**given), folder)
        assert "\n" not in str(raised.value)

    @pytest.mark.parametrize(
        "given",
        [
            {"duckdb": "d.csv", "table": "people"},
            {"parquet": "d.csv"},
            {"url": "postgresql://me:SECRET@127.0.0.1:1/x", "table": "people"},
        ],
    )
    def test_what_the_engine_says_is_dropped(self, folder, given):
        with pytest.raises(SourceError) as raised:
            source.connect(data_set(**given), folder)
        assert_silent(raised.value, "the source cannot be reached")


class TestEngines:
    """Only engines that pass T4 and the tests of total functions: the others are refused before a charge."""

    @pytest.mark.parametrize("scheme", ["spark", "pyspark", "mysql", "sqlite", "duckdb", "bigquery", "x-y"])
    def test_an_address_of_another_engine_is_refused_by_name(self, scheme):
        declared = data_set(url=f"{scheme}://me:SECRET@nowhere/x", table="people")
        with pytest.raises(
            ParameterError, match=f"^source.url must begin with postgresql://.*'{scheme}'"
        ) as raised:
            source.connect(declared, None)
        assert "SECRET" not in str(raised.value)

    def test_nothing_is_charged_for_it(self):
        ledger, declared = MemoryLedger(), data_set(url="spark://nowhere/x", table="people")
        with Session(declared, lambda: source.connect(declared, None), ledger) as session:
            with pytest.raises(ParameterError, match="of all engines, only DuckDB, PostgreSQL and Spark"):
                session.ask(tree.mean("age"), error=10)
            assert session.balance().spent == 0

    @pytest.mark.parametrize(
        ("said", "known"),
        [
            ("PostgreSQL 18.4 on x86_64-pc-linux-gnu, compiled by gcc (GCC) 14.2.1 20250110, 64-bit", True),
            ("PostgreSQL 16.3 (Debian 16.3-1.pgdg120+1) on x86_64-pc-linux-gnu", True),
            ("PostgreSQL 13.9 on x86_64-pc-linux-gnu", False),
            (
                "PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2, Redshift 1.0.63",
                False,
            ),
            ("PostgreSQL 15.12-YB-2.25.2.0-b0 on x86_64-pc-linux-gnu", False),
            ("PostgreSQL 14.4 (Greenplum Database 8.0) on x86_64", False),
            ("CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu)", False),
        ],
    )
    def test_what_only_speaks_as_postgresql_does_is_no_postgresql(self, said, known):
        assert bool(source._TESTED.match(said)) is known

    def test_settings_of_a_server_decide_nothing(self, server):
        """A role may write dates, moments and doubles in its own way."""
        import psycopg

        columns = (
            Column("day", Kind.CATEGORY, values=("2026-01-02", "none")),
            Column("share", Kind.CATEGORY, values=("0.30000000000000004", "none")),
        )
        declared = DataSet(
            "d", "1", columns, Budget(1, 1e-6), rows=2, source={"url": server, "table": "settings"}
        )
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("CREATE TABLE settings (day timestamptz, share float8)")
            connection.execute("INSERT INTO settings VALUES ('2026-01-02 00:30+00', 0.30000000000000004)")
            try:
                for setting in (
                    "DateStyle = 'German'",
                    "TimeZone = 'America/New_York'",
                    "extra_float_digits = -3",
                ):
                    connection.execute(f"ALTER ROLE CURRENT_USER SET {setting}")
                with source.connect(declared, None) as table:
                    assert codes(table) == [(0, 0)]
            finally:
                connection.execute("ALTER ROLE CURRENT_USER RESET ALL")


def assert_silent(error, line):
    """Nothing of the engine's words is in the error, not even where a traceback would show it."""
    assert str(error) == line
    assert (error.__cause__, error.__context__) == (None, None)
    assert "SECRET" not in "".join(traceback.format_exception(error))


class TestTally:
    @pytest.fixture
    def table(self, folder):
        with source.connect(data_set(csv="d.csv"), folder) as table:
            yield table

    @pytest.mark.parametrize(
        ("sql", "rows"),
        [
            ("SELECT 170141183460469231731687303715884105727::HUGEINT, NULL, TRUE", [(2**127 - 1, 0, 1)]),
            ("SELECT 12345678901234567890::DECIMAL(38, 0)", [(12345678901234567890,)]),
            ("SELECT 1 WHERE FALSE", []),
        ],
    )
    def test_every_value_is_a_whole_number(self, table, sql, rows):
        found = table.tally(sql)
        assert found == rows
        assert all(type(one) is int for row in found for one in row)

    def test_sums_of_nothing_are_zero(self, table):
        assert table.tally(f"SELECT count(*), sum(c0) FROM {table.relation} WHERE c0 > 300") == [(0, 0)]

    @pytest.mark.parametrize(
        "sql",
        [
            "SELECT nothing",
            "SELECT 'SECRET'::INTEGER",
            "SELECT error('SECRET')",
            "not SQL",
            "SELECT 'SECRET'",
            "SELECT 0.5::DOUBLE",
        ],
    )
    def test_a_failure_is_one_line_without_data(self, table, sql):
        with pytest.raises(SourceError) as raised:
            table.tally(sql)
        assert_silent(raised.value, "the data cannot be read")

    def test_bytes_that_are_no_text_are_marked_and_counted(self, folder):
        (folder / "d.csv").write_bytes(b"age,race,citizen\n5,SECRET\xff,yes\n6,white,\xc3\n")
        with source.connect(data_set(csv="d.csv"), folder) as table:
            assert codes(table) == [(5, 2, 1), (6, 0, 0)]

    def test_a_file_that_is_gone_fails_without_a_word_of_it(self, folder):
        with source.connect(data_set(csv="d.csv"), folder) as table:
            (folder / "d.csv").rename(folder / "SECRET.csv")
            with pytest.raises(SourceError) as raised:
                codes(table)
        assert_silent(raised.value, "the data cannot be read")

    def test_threads_take_turns(self, table):
        found = []
        threads = [threading.Thread(target=lambda: found.append(codes(table))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [CODES] * 8


def test_nothing_is_left_open(folder):
    with source.connect(data_set(duckdb="d.db", table="people"), folder):
        pass
    with duckdb.connect(str(folder / "d.db")) as connection:  # refused while a reader has it open
        connection.execute("DROP TABLE people")
    with pytest.raises(ParameterError, match=r"^source\.table must be a table"):
        source.connect(data_set(duckdb="d.db", table="people"), folder)
    with duckdb.connect(str(folder / "d.db")) as connection:
        connection.execute("CREATE TABLE people (x INTEGER)")
    with pytest.raises(ParameterError, match=r"^columns\.age: the source has no such column"):
        source.connect(data_set(duckdb="d.db", table="people"), folder)
    duckdb.connect(str(folder / "d.db")).close()


# Failures of engines


def failing_call() -> None:
    raise ValueError("SECRET of a row")


def test_the_cause_of_a_failure_is_named_without_its_message():
    with pytest.raises(SourceError, match="the source cannot be reached") as raised:
        source.quietly(failing_call, "the source cannot be reached")
    error = raised.value
    assert str(error) == "the source cannot be reached"
    assert error.__cause__ is None
    assert error.__context__ is None
    assert "Cause: builtins.ValueError" in error.details
    assert "test_source.py:" in error.details
    assert "in failing_call" in error.details
    assert "SECRET" not in error.details
    assert "SECRET" not in "".join(traceback.format_exception(error))
