"""Tables and files on Spark: what is found, what is refused, what is said, how statements end."""

import signal
import subprocess
import sys
import threading
import traceback
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reticent
from reticent.errors import ParameterError, SourceError
from reticent.privacy import Budget
from reticent.query.declarations.datasets import DataSet
from reticent.query.language import tree
from reticent.query.rows import snapshot, source
from reticent.query.rows import spark as ours
from reticent.query.rows.columns import Column, Kind

from .running import MASTER

pytestmark = pytest.mark.usefixtures("spark")

AGE = Column("age", Kind.INTEGER, low=0, high=120)
YAML = """
name: d
version: 1
source: {{spark: "local[2]", {where}}}
unit: row
relation: replace one
rows: 3
budget: {{epsilon: 8, delta: 1e-6}}
columns:
  age: {{type: integer, low: 0, high: 120}}
"""


def data_set(columns=(AGE,), rows=3, **given):
    return DataSet("d", "1", columns, Budget(8, 1e-6), rows=rows, source={"spark": MASTER, **given})


def codes(data, folder=Path()):
    with source.connect(data, folder) as table:
        return sorted(table.tally(f"SELECT * FROM {table.relation}"))


@pytest.fixture
def folder(tmp_path):
    """A folder with files of Parquet in it."""
    (tmp_path / "rows").mkdir()
    for number in range(3):
        pq.write_table(pa.table({"age": [number]}), tmp_path / "rows" / f"part {number}'%20.parquet")
    (tmp_path / "rows" / "_SUCCESS").write_text("")
    (tmp_path / "rows" / ".hidden").write_text("no rows")
    return tmp_path


def silent(error, line):
    """Nothing of Spark's words is in the error, not even where a traceback would show it."""
    assert str(error) == line
    assert (error.__cause__, error.__context__) == (None, None)
    assert "SECRET" not in "".join(traceback.format_exception(error))


def added(rows, columns):
    pq.write_table(pa.table(columns), rows / "x.parquet")


class TestFiles:
    def test_a_folder_and_a_file(self, folder):
        assert codes(data_set(parquet="rows"), folder) == [(0,), (1,), (2,)]
        assert codes(data_set(parquet="rows/part 1'%20.parquet"), folder) == [(1,)]

    def test_names_of_folders_are_texts(self, folder):
        """Types guessed from all of them would follow from the rows: 07 and x are read alike."""
        for name in ("grade=07", "grade=x", "grade=__HIVE_DEFAULT_PARTITION__"):
            (folder / "parts" / name).mkdir(parents=True)
            pq.write_table(pa.table({"age": [1]}), folder / "parts" / name / "one.parquet")
        grade = Column("grade", Kind.CATEGORY, values=("7", "x", "none"))
        assert codes(data_set((grade,), parquet="parts"), folder) == [(0,), (1,), (2,)]

    @pytest.mark.parametrize(
        ("make", "line"),
        [
            (lambda rows: added(rows, {"age": [1.5]}), "must be files of one schema"),
            (lambda rows: added(rows, {"age": [1], "b": [1]}), "must be files of one schema"),
            (lambda rows: [one.unlink() for one in rows.iterdir()], "must be a file or a folder of"),
            (lambda rows: (rows / "x.parquet").write_text("ab" * 32), "must be a file with rows"),
            (lambda rows: rows.rename(rows.with_name("rows*")), "must be a file, there is none"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_rows_is_refused_before_a_charge(self, folder, make, line):
        make(folder / "rows")
        with pytest.raises(ParameterError, match=rf"^source\.parquet {line}"):
            codes(data_set(parquet="rows"), folder)

    def test_what_is_ours_is_no_source(self, folder):
        (folder / "rows").rename(folder / "d.reticent")
        with pytest.raises(ParameterError, match=r"^source\.parquet must be a folder with rows, not hidden"):
            codes(data_set(parquet="d.reticent"), folder)

    def test_a_file_that_is_no_parquet_is_said_without_its_content(self, folder):
        (folder / "rows" / "x.parquet").write_text("SECRET")
        with pytest.raises(SourceError) as raised:
            codes(data_set(parquet="rows"), folder)
        silent(raised.value, "the source cannot be reached")

    def test_a_column_that_is_not_there(self, folder):
        with pytest.raises(
            ParameterError, match=r"^columns.income: the source has no such column, it has age$"
        ):
            codes(data_set((Column("income", Kind.INTEGER, 0, 9),), parquet="rows"), folder)


class TestTables:
    def test_a_table_and_a_view(self, spark):
        spark.sql("CREATE SCHEMA IF NOT EXISTS town")
        spark.sql("DROP TABLE IF EXISTS town.people")
        spark.sql("CREATE TABLE town.people USING parquet AS SELECT id AS age FROM range(3)")
        spark.sql("CREATE OR REPLACE VIEW default.old AS SELECT * FROM town.people WHERE age > 0")
        assert codes(data_set(table="people", schema="town")) == [(0,), (1,), (2,)]
        assert codes(data_set(table="old")) == [(1,), (2,)]

    @pytest.mark.parametrize(
        ("table", "schema"),
        [
            ("nobody", "default"),
            ("/etc/passwd", "text"),
            ("{rows}", "parquet"),
            ("parquet.`{rows}`", None),
            ("x` UNION SELECT 1 --", "default"),
            ("range(3)", None),
            ("", None),
        ],
    )
    def test_what_the_catalogue_does_not_hold_is_no_table(self, table, schema, folder):
        """Spark would take `parquet.path` for the files there."""
        given = {"table": table.format(rows=folder / "rows")} | ({} if schema is None else {"schema": schema})
        with pytest.raises(
            (ParameterError, SourceError), match=r"^source.table must be a table|cannot be reached"
        ):
            codes(data_set(**given))

    def test_planted_files_as_tables_would_be_read(self, folder, monkeypatch):
        monkeypatch.setitem(ours._SETTINGS, "spark.sql.runSQLOnFiles", "true")
        engine = ours.connected(MASTER)
        try:
            assert engine._session.sql(f"SELECT count(*) FROM parquet.`{folder}/rows`").collect() == [(3,)]
        finally:
            engine.disconnect()
        monkeypatch.undo()
        engine = ours.connected(MASTER)
        try:
            with pytest.raises(Exception, match=r"TABLE_OR_VIEW_NOT_FOUND|UNSUPPORTED"):
                engine._session.sql(f"SELECT count(*) FROM parquet.`{folder}/rows`").collect()
        finally:
            engine.disconnect()

    @pytest.mark.parametrize("provider", ["csv", "json", "text", "orc"])
    def test_other_formats_are_refused_by_name(self, spark, provider):
        spark.sql(f"DROP TABLE IF EXISTS of_{provider}")
        spark.sql(f"CREATE TABLE of_{provider} (age STRING) USING {provider}")
        with pytest.raises(
            ParameterError,
            match=f"^source.table must be a table of parquet or a view, got one of '{provider}'",
        ):
            codes(data_set(table=f"of_{provider}"))

    @pytest.mark.parametrize("provider", ["delta", "iceberg"])
    def test_formats_that_need_other_parts_are_not_there(self, spark, provider):
        with pytest.raises(Exception, match=r"DATA_SOURCE_NOT_FOUND|Failed to find"):
            spark.sql(f"CREATE TABLE of_{provider} (age INT) USING {provider}")


class TestSpark:
    def test_a_process_speaks_to_one(self):
        with pytest.raises(ParameterError, match=r"^source.spark must be local\[2\] in this process"):
            ours.connected("local[1]")

    def test_two_data_sets_share_it_and_their_sessions_differ(self, folder):
        one = source.connect(data_set(parquet="rows"), folder)
        with source.connect(data_set(parquet="rows/part 0'%20.parquet"), folder) as other:
            assert other.tally(f"SELECT count(*) FROM {other.relation}") == [(1,)]
        assert one.tally(f"SELECT count(*) FROM {one.relation}") == [(3,)]
        one.close()

    def test_what_it_was_set_up_for_decides_nothing(self, spark, tmp_path):
        """Another session of the same Spark has other settings; a ${...} in a category is a text."""
        spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
        word = Column("x", Kind.CATEGORY, values=("${spark.app.name}", "a\\'b", "none"))
        pq.write_table(pa.table({"x": ["${spark.app.name}", "reticent", "a\\'b"]}), tmp_path / "t.parquet")
        assert codes(data_set((word,), parquet="t.parquet"), tmp_path) == [(0,), (1,), (2,)]

    def test_ctrl_c_stays_whose_it_was(self):
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


DIED = """
from reticent.query.rows import spark
one = spark.connected("local[1]")
from pyspark import SparkContext
process = SparkContext._gateway.proc
process.kill()
process.wait()
other = spark.connected("local[1]")
print(other._session.sql("SELECT 1").collect()[0][0])
other.disconnect()
"""


@pytest.mark.slow
def test_a_spark_that_died_is_started_anew():
    """In a process of its own: there is one Spark in each."""
    done = subprocess.run([sys.executable, "-c", DIED], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr


def slow_statement(table):
    """Takes minutes, on two tasks."""
    return (f"SELECT count(*) FROM range(0, 4000000000, 1, 2) AS a, (SELECT * FROM {table.relation}) AS b "
            "WHERE sqrt(a.id) + b.c0 = -1")  # fmt: skip


class TestJobs:
    @pytest.fixture
    def jobs(self, folder):
        engine = ours.connected(MASTER)
        made = ours.Jobs(engine)
        yield made
        made.close()

    def test_progress_is_seen_and_the_end_is_not_waited_for(self, jobs):
        """Interrupted while it waits: Spark ends what runs, and goes on with what comes."""
        seen = []

        def look(done, known):
            seen.append((done, known))
            if known:
                raise KeyboardInterrupt

        long = "SELECT count(*) FROM range(0, 400000000000, 1, 2) WHERE sqrt(id) = -1"
        with pytest.raises(KeyboardInterrupt):
            jobs.run(lambda: jobs._session.sql(long).collect(), look)
        assert seen[-1][0] <= seen[-1][1]
        assert jobs.fetched("SELECT 1") == [(1,)]
        assert not jobs._session.sparkContext.statusTracker().getActiveJobsIds()

    def test_whoever_closes_ends_what_runs(self, folder):
        table = source.connect(data_set(parquet="rows"), folder)
        found = []

        def ask():
            try:
                table.tally(slow_statement(table))
            except SourceError as error:
                found.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        tracker = table._end.__self__._session.sparkContext.statusTracker()
        while not tracker.getActiveJobsIds():
            thread.join(0.05)
        table.close()
        thread.join()
        silent(found[0], "the data cannot be read")

    @pytest.mark.parametrize(
        "sql", ["SELECT nothing", "SELECT raise_error('SECRET')", "no SQL", "SELECT 0.5D"]
    )
    def test_a_failure_is_one_line_without_data(self, folder, sql, capfd):
        with source.connect(data_set(parquet="rows"), folder) as table:
            with pytest.raises(SourceError) as raised:
                table.tally(sql)
            silent(raised.value, "the data cannot be read")
        assert "SECRET" not in "".join(capfd.readouterr())

    def test_a_file_that_is_gone(self, folder):
        with source.connect(data_set(parquet="rows"), folder) as table:
            (folder / "rows" / "part 0'%20.parquet").rename(folder / "SECRET")
            with pytest.raises(SourceError) as raised:
                table.tally(f"SELECT sum(c0) FROM {table.relation}")
            silent(raised.value, "the data cannot be read")


class TestSnapshot:
    def test_it_is_what_the_source_was(self, folder):
        data, path, seen = data_set(parquet="rows"), folder / "snapshot-1.parquet", []
        snapshot.make(data, folder, path, lambda done, known: seen.append((done, known)))
        assert seen
        (folder / "rows").rename(folder / "gone")
        with source.connect(data, folder, path) as table:
            assert sorted(table.tally("SELECT c0 FROM codes")) == [(0,), (1,), (2,)]
        assert path.stat().st_mode & 0o777 == 0o700
        assert pq.read_schema(next(path.glob("*.parquet"))).field("c0").type == pa.int8()
        assert sorted(one.name for one in folder.iterdir()) == ["gone", "snapshot-1.parquet"]

    def test_another_declaration_and_other_rows_are_refused(self, folder):
        data, path = data_set(parquet="rows"), folder / "snapshot-1.parquet"
        with pytest.raises(
            ParameterError, match=r"^rows must be the public number of rows in the source, 3, got 4$"
        ):
            snapshot.make(data_set(rows=4, parquet="rows"), folder, path)
        assert not path.exists()
        snapshot.make(data, folder, path)
        other = data_set((Column("age", Kind.INTEGER, low=0, high=99),), parquet="rows")
        with pytest.raises(
            ParameterError, match=r"^snapshot must be made under this declaration, .* has another columns"
        ):
            snapshot.open(path, other)
        with pytest.raises(ParameterError, match=r"^snapshot must be a folder"):
            snapshot.open(folder / "nothing.parquet", data)


def test_from_a_declaration_to_an_answer(folder):
    (folder / "d.yaml").write_text(YAML.format(where="parquet: rows"))
    with reticent.open(folder / "d.yaml") as session:
        answer = session.ask(tree.total("age"), error=300)
        assert session.ask(tree.total("age"), error=300).value == answer.value
        assert session.balance().spent > 0
    work = import_module("reticent.apps.query.dataset_work")
    work.check(folder / "d.yaml")
    work.snapshot(folder / "d.yaml")
    assert (folder / "d.reticent" / "snapshot-1.parquet" / "_about.json").is_file()
    with reticent.open(folder / "d.yaml") as session:
        assert session.ask(tree.total("age"), error=300).value == answer.value
        session.ask(tree.mean("age", where=tree.Comparison("age", ">=", 1)), error=500)
