"""T26 on the library: no name leads to a file that was not meant, whoever wrote the declaration.

Each hole is planted beside its test. The tests of names fail on the code before them: a table
'/elsewhere/x.csv' was read, and so was a ledger, a key or a declaration that was called a source.
"""

import contextlib
import os
from pathlib import Path

import duckdb
import pytest

from reticent.errors import ParameterError, SourceError
from reticent.privacy import Budget
from reticent.query.declarations import dataset_file
from reticent.query.declarations.datasets import DataSet
from reticent.query.rows import sealed, snapshot, source
from reticent.query.rows.columns import Column, Kind
from reticent.query.rows.rehearsal import rehearsal
from reticent.tables import row_files

from . import hostile
from .watching import Watch

COUNTS = [pytest.param(60, id="quick"), pytest.param(10_000, id="full", marks=pytest.mark.slow)]


def data_set(**given):
    columns = (Column("age", Kind.INTEGER, 0, 1 << 30),)
    return DataSet("d", "1", columns, Budget(1, 1e-6), rows=2, source=given)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return hostile.rigged(tmp_path_factory.mktemp("rigged"))


def codes(world, **given):
    with source.connect(data_set(**given), world.desk) as table:
        return table.tally(f"SELECT * FROM {table.relation}")


def read_through_tables(world, count):
    """What hostile names of tables came to: names not refused in one line, files opened."""
    found = []
    with Watch(world.elsewhere) as watch:
        for table, schema in hostile.tables(world, count):
            given = {"duckdb": "rows.db", "table": table} | ({} if schema is None else {"schema": schema})
            try:
                found.append(f"{table!r} gave {codes(world, **given)}")
            except ParameterError as refusal:
                if "\n" in str(refusal) or not str(refusal).startswith(
                    "source.table must be a table or view"
                ):
                    found.append(f"{table!r} was refused with {refusal}")
            except SourceError:
                found.append(f"{table!r} reached the engine")
            found += [f"{table!r} opened {name}" for name in watch.opened()]
    return found


class TestTables:
    @pytest.mark.parametrize("count", COUNTS)
    def test_no_name_of_a_table_reads_another_file(self, world, count):
        assert read_through_tables(world, count) == []

    def test_planted_names_that_are_not_looked_up(self, world, monkeypatch):
        """With external access off, nothing is read even so; the engine says no."""
        monkeypatch.setattr(
            sealed, "own_table", lambda _, table, schema=None: ("source", schema or "main", table)
        )
        found = read_through_tables(world, 40)
        assert any("reached the engine" in one for one in found)
        assert not any("opened" in one for one in found)

    def test_planted_external_access_left_on(self, world, monkeypatch):
        monkeypatch.setattr(sealed, "_SHUT", {})
        with Watch(world.elsewhere) as watch:
            assert codes(world, duckdb="rows.db", table="called") == [(hostile.CANARY,)] * 2
            assert watch.opened() == {"x.csv"}
        monkeypatch.setattr(source.sealed, "own_table", lambda _, table, schema=None: (table,))
        monkeypatch.setattr(source, "described", lambda engine, name, within=None: engine.table(name))
        assert any("opened x.csv" in one for one in read_through_tables(world, 40))

    @pytest.mark.parametrize("view", ["called", "replaced", "through"])
    def test_a_view_that_calls_for_another_file_reads_nothing(self, world, view):
        with Watch(world.elsewhere) as watch:
            with pytest.raises(SourceError, match=r"^the source cannot be reached$"):
                codes(world, duckdb="rows.db", table=view)
            assert watch.opened() == set()

    @pytest.mark.parametrize(
        ("table", "schema"), [("people", None), ("PEOPLE", "Main"), ("people", "main"), ("adults", None)]
    )
    def test_what_the_database_holds_is_read(self, world, table, schema):
        given = {"duckdb": "rows.db", "table": table} | ({} if schema is None else {"schema": schema})
        assert codes(world, **given) == ([] if table == "adults" else [(5,), (5,)])

    def test_odd_names_that_a_database_really_has(self, tmp_path):
        with duckdb.connect(str(tmp_path / "memory.db")) as made:  # named as the engine's own
            made.execute('CREATE SCHEMA "a.b"; CREATE TABLE "a.b"."/x.csv" AS SELECT 5 AS age')
        given = data_set(duckdb="memory.db", table="/x.csv", schema="a.b")
        with source.connect(given, tmp_path) as one, source.connect(given, tmp_path) as other:
            for table in (one, other):
                assert table.tally(f"SELECT * FROM {table.relation}") == [(5,)]


def connections(world, tmp_path):
    """Every connection to DuckDB that the library makes, by what it is for."""
    for given in ({"csv": "rows.csv"}, {"parquet": "rows.parquet"}, {"duckdb": "rows.db", "table": "people"}):
        engine, _ = source.reach(data_set(**given), world.desk)
        yield next(iter(given)), engine.con
        engine.disconnect()
    import pyarrow as pa

    framed = source.connect(data_set(), world.desk, frame=pa.table({"age": [1, 2]}))
    yield "frame", framed._run.args[0]
    framed.close()
    data = data_set(csv="rows.csv")
    snapshot.make(data, world.desk, tmp_path / "s.duckdb")
    with snapshot.open(tmp_path / "s.duckdb", data) as table:
        yield "snapshot", table._run.args[0]
    with rehearsal(data) as session:
        yield "rehearsal", session._rows._connection


REACHES = [
    "SELECT * FROM '{x}'", "SELECT * FROM read_csv('{x}')", "SELECT * FROM read_text('{x}')",
    "SELECT * FROM glob('{x}')", "SELECT * FROM variable", "COPY (SELECT 1) TO '{x}.out'",
    "ATTACH '{x}' AS other",
    "INSTALL httpfs", "LOAD httpfs", "SET enable_external_access = true", "SET allowed_paths = ['{x}']",
    "SET lock_configuration = false", "EXPORT DATABASE '{x}.d'", "CREATE PERSISTENT SECRET s (TYPE http)",
]  # fmt: skip


def test_no_connection_reaches_further(world, tmp_path):
    """For the day on which somebody finds a way to bring in a statement of their own."""
    import pandas as pd

    variable = pd.DataFrame({"a": [1]})  # what a replacement scan would find
    kinds = []
    for kind, connection in connections(world, tmp_path):
        kinds.append(kind)
        with Watch(world.elsewhere) as watch:
            for statement in REACHES:
                with pytest.raises(duckdb.Error):
                    connection.execute(statement.format(x=world.elsewhere / "x.csv")).fetchall()
            assert watch.opened() == set(), kind
    assert kinds == ["csv", "parquet", "duckdb", "frame", "snapshot", "rehearsal"]
    assert len(variable) == 1
    assert sorted(one.name for one in world.elsewhere.iterdir()) == ["x.csv", "x.db", "x.parquet"]


def test_planted_a_connection_that_is_not_shut(world, tmp_path, monkeypatch):
    monkeypatch.setattr(sealed, "_SHUT", {})
    for _, connection in connections(world, tmp_path):
        found = connection.execute(f"SELECT * FROM '{world.elsewhere / 'x.csv'}'").fetchall()
        assert found == [(hostile.CANARY,)] * 2


def taken_for_rows(world, count):
    """What hostile names of files came to: our own that were taken, refusals in several lines."""
    found = []
    for name in hostile.files(world, count):
        try:
            path = row_files.located("source.csv", name, world.desk)
        except ParameterError as refusal:
            if "\n" in str(refusal) or not str(refusal).startswith("source.csv must be a file"):
                found.append(f"{name!r} was refused with {refusal}")
            continue
        if path.stat()[1:3] in world.protected:
            found.append(f"{name!r} was taken")
    return found


class TestFiles:
    @pytest.mark.parametrize("count", [pytest.param(2000, id="quick"), COUNTS[1]])
    def test_none_of_our_own_is_ever_a_source(self, world, count):
        assert taken_for_rows(world, count) == []

    @pytest.mark.parametrize(
        ("part", "instead"),
        [
            ("_is_ours_by_name", lambda path, base: False),
            ("_is_ours_by_content", lambda begins: False),
            ("_is_a_link", lambda told, path, base: False),
        ],
    )
    def test_planted_each_look_is_needed(self, world, monkeypatch, part, instead):
        monkeypatch.setattr(row_files, part, instead)
        assert any("was taken" in one for one in taken_for_rows(world, 2000))

    def test_planted_a_path_that_is_not_resolved(self, world, monkeypatch):
        def unresolved(path, real=row_files._real):
            return real(path) and Path("/" + os.path.normpath(path).lstrip("/"))

        monkeypatch.setattr(row_files, "_real", unresolved)
        monkeypatch.setattr(row_files, "_is_a_link", lambda told, path, base: False)
        assert any("'soft" in one and "was taken" in one for one in taken_for_rows(world, 2000))

    def test_planted_capitals_that_are_forgotten(self, world, monkeypatch):
        monkeypatch.setattr(
            row_files, "_is_our_name", lambda name: name.startswith(".") or name.endswith(".yml")
        )
        assert any("old.YML' was taken" in one for one in taken_for_rows(world, 2000))

    @pytest.mark.parametrize("form", ["csv", "parquet", "duckdb"])
    def test_every_kind_of_source_looks(self, world, form):
        table = {"table": "people"} if form == "duckdb" else {}
        for name in ("census.yaml", ".service/ledger.key", "census.reticent/snapshot-1.duckdb", "hard0.csv"):
            with pytest.raises(
                ParameterError, match=rf"^source\.{form} must be a file with rows: no declaration"
            ):
                source.connect(data_set(**{form: name}, **table), world.desk)

    def test_no_template_is_made_of_one(self, world):
        for name in ("soft0.csv", "copied-key.csv", "keystore.csv"):
            with pytest.raises(ParameterError, match=r"^source\.csv must be a file with rows") as refusal:
                dataset_file.template(world.desk / name)
            assert "cdcd" not in str(refusal.value)

    def test_a_hidden_folder_around_everything_is_no_sign(self, tmp_path):
        place = tmp_path / ".work" / "desk"
        place.mkdir(parents=True)
        for path in (place / "rows.csv", place.parent / "rows.csv"):
            path.write_text("age\n1\n")
            assert row_files.located("source.csv", os.path.relpath(path, place), place) == path
        with pytest.raises(ParameterError, match="nothing hidden"):
            row_files.located("source.csv", str(place / "rows.csv"), tmp_path)

    @pytest.mark.parametrize("form", ["csv", "parquet", "db"])
    @pytest.mark.parametrize("is_inside", [True, pytest.param(False, id="planted")])
    def test_what_must_lie_inside_is_not_opened_elsewhere(self, world, form, is_inside):
        """Planted: a look at the file before the look at where it lies."""
        path = world.elsewhere / f"x.{form}"
        (world.desk / f"led-{form}-{is_inside}.csv").symlink_to(path)
        with Watch(world.elsewhere) as watch:
            for name in (str(path), os.path.relpath(path, world.desk), f"led-{form}-{is_inside}.csv"):
                with contextlib.suppress(ParameterError):
                    row_files.located("source.csv", name, world.desk, is_inside=is_inside)
            assert watch.opened() == (set() if is_inside else {path.name})

    def test_a_database_whose_checksum_begins_like_a_file_of_ours(self, tmp_path):
        """One in 256 begins with a brace, and was refused."""
        made, path = tmp_path / "made.duckdb", tmp_path / "rows.duckdb"
        with duckdb.connect(str(made)) as database:
            database.execute("CREATE TABLE people AS SELECT 5 AS age")
        for first in (b"{", b"\n{", b"-----BEGIN"[:8]):
            path.write_bytes(first + made.read_bytes()[len(first) :])
            assert row_files.located("source.duckdb", path.name, tmp_path) == path
        path.write_bytes(b'{"a":   DUCK"}  ' + b" " * 100)
        with pytest.raises(ParameterError, match="must be a file with rows"):
            row_files.located("source.duckdb", path.name, tmp_path)

    def test_a_pipe_is_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "rows.csv")
        with pytest.raises(ParameterError, match="must be a file, there is none"):
            row_files.located("source.csv", "rows.csv", tmp_path)


class TestServer:
    @pytest.mark.parametrize(
        "url", ["sqlite://{}/x.db", "duckdb://{}/x.db", "{}/x.csv", "csv://{}/x.csv", "x.db", ""]
    )
    def test_no_other_engine_is_reached_by_an_address(self, world, url):
        with Watch(world.elsewhere) as watch:
            with pytest.raises(ParameterError, match=r"^source\.url must begin with postgresql://, got '"):
                codes(world, url=url.format(world.elsewhere), table="people")
            assert watch.opened() == set()

    def test_the_table_is_one_of_the_catalogue(self, server):
        import psycopg

        with psycopg.connect(server, autocommit=True) as own:
            own.execute("DROP SCHEMA IF EXISTS sealed CASCADE; CREATE SCHEMA sealed")
            own.execute("CREATE TABLE sealed.people AS SELECT 5 AS age")
            own.execute("CREATE VIEW sealed.seen AS SELECT * FROM sealed.people")
            own.execute("CREATE MATERIALIZED VIEW sealed.kept AS SELECT * FROM sealed.people")
            for name in ("people", "seen", "kept"):
                given = data_set(url=server, table=name, schema="sealed")
                with source.connect(given, None) as table:
                    assert table.tally(f"SELECT * FROM {table.relation}") == [(5,)]
            for name, schema in [("people", "pg_catalog"), ("pg_class", "pg_catalog"), ("pg_class", None),
                                 ("tables", "information_schema"), ("x' OR '1'='1", "sealed"),
                                 ("PEOPLE", "sealed"),
                                 ("sealed.people", None), ("pg_read_file('/etc/passwd')", None)]:  # fmt: skip
                given = {"url": server, "table": name} | ({} if schema is None else {"schema": schema})
                with pytest.raises(
                    ParameterError, match=r"^source\.table must be a table or view of that database"
                ):
                    source.connect(data_set(**given), None)

    def test_functions_are_those_of_the_server(self, server):
        """A role whose search path begins with somebody's schema would call their functions."""
        import psycopg

        with psycopg.connect(server, autocommit=True) as own:
            own.execute("DROP SCHEMA IF EXISTS evil CASCADE; CREATE SCHEMA evil")
            own.execute("CREATE TABLE evil.people AS SELECT '5'::text AS age")
            own.execute(
                "CREATE FUNCTION evil.round(numeric) RETURNS numeric LANGUAGE sql AS 'SELECT 99::numeric'"
            )
            place = f"{server}{'&' if '?' in server else '?'}options=-csearch_path%3Devil%2Cpg_catalog"
            with source.connect(data_set(url=place, table="people", schema="evil"), None) as table:
                (path,) = table._run.args[0].raw_sql("SHOW search_path").fetchone()
                assert path == "pg_catalog, pg_temp"
                assert table.tally(f"SELECT * FROM {table.relation}") == [(5,)]
