"""What is said of Spark without one: declarations, accounts, what comes over the network, sums in parts."""

import json
import random
import re

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

import reticent
from reticent.apps.query import sources
from reticent.errors import MissingExtra, ParameterError, SourceError
from reticent.privacy import Budget
from reticent.query.declarations import claims, dataset_file
from reticent.query.declarations import home as homes
from reticent.query.declarations.datasets import DataSet
from reticent.query.opening import snapshot_path
from reticent.query.rows import bins, source, spark
from reticent.query.rows.columns import Column, Kind

TEXT = """
name: {name}
version: 1
source: {source}
unit: row
relation: replace one
rows: 3
budget: {{epsilon: 1, delta: 1e-6}}
columns:
  age: {{type: integer, low: 0, high: 120}}
"""
AGE = Column("age", Kind.INTEGER, low=0, high=120)


def declared(given, name="d"):
    return TEXT.format(name=name, source=json.dumps(given))


@pytest.mark.parametrize(
    "given",
    [
        {"spark": "local", "table": "people"},
        {"spark": "local[4]", "table": "people", "schema": "town"},
        {"spark": "local[*]", "parquet": "rows"},
        {"spark": "spark://10.0.0.5:7077", "parquet": "rows.parquet"},
    ],
)
def test_what_is_declared_is_read_and_written(given, tmp_path):
    data = dataset_file.parse(declared(given))
    assert dict(data.source) == given
    assert dataset_file.parse(dataset_file.write(data)).source == data.source
    assert snapshot_path(tmp_path / "d.yaml", data).name == "snapshot-1.parquet"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"spark": "local[2]"}, "source.table must be filled in for spark"),
        ({"spark": "local[2]", "table": "t", "parquet": "x"}, "source must be either a table or parquet"),
        ({"spark": "local[2]", "table": "t", "csv": "x.csv"}, "source.csv must be left out for spark"),
        ({"spark": "yarn", "table": "t"}, r"source.spark must be local, local\[N\] or spark://.*got 'yarn'"),
        ({"spark": "k8s://https://me:SECRET@x", "table": "t"}, "source.spark must be local.*got 'k8s'"),
        ({"spark": "sc://x:15002", "table": "t"}, "source.spark must be local.*got 'sc'"),
        ({"spark": "local-cluster[2,1,1024]", "table": "t"}, "source.spark must be local"),
        ({"spark": "local[2] --conf x=y", "table": "t"}, "source.spark must be local"),
        ({"spark": "spark://me:SECRET@x:1", "table": "t"}, "source.spark must be local.*got 'spark'"),
    ],
)
def test_other_ways_are_refused_by_name(given, line):
    with pytest.raises(ParameterError, match=line) as raised:
        dataset_file.parse(declared(given))
    assert "SECRET" not in str(raised.value)


def test_the_extra_and_java_are_asked_for(monkeypatch):
    data = DataSet("d", "1", (AGE,), Budget(1, 1e-6), rows=3, source={"spark": "local[2]", "table": "t"})
    monkeypatch.setattr(spark, "find_spec", lambda name: None)
    with pytest.raises(
        MissingExtra,
        match=re.escape("a table on Spark needs an optional part: pip install 'reticent[spark]'"),
    ):
        source.connect(data, None)
    monkeypatch.setattr(spark.shutil, "which", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(SourceError, match="Spark needs Java 17 or later, and there is none on this machine"):
        spark.check_java()


def test_nobody_names_a_spark_over_the_network():
    """Whoever did would have it read, and be told to send elsewhere, what the service may read."""
    for given in (
        {"spark": "spark://10.6.6.6:7077", "parquet": "rows.parquet"},
        {"spark": "local", "table": "t"},
    ):
        data = DataSet("d", "1", (AGE,), Budget(1, 1e-6), rows=3, source=given)
        with pytest.raises(
            ParameterError, match=r"^source must be a csv, parquet or duckdb file that the operator"
        ):
            sources.registrable(None, None, None, data)


# One account for the same people


def home_of(folder, name, given):
    (folder / f"{name}.yaml").write_text(declared(given, name))
    path = folder / f"{name}.yaml"
    with homes.settled(path, dataset_file.read(path)) as home:
        return home.same or str(home.folder.name)


def written(folder):
    (folder / "rows").mkdir()
    for name in ("a.parquet", "b.parquet"):
        pa.parquet.write_table(pa.table({"age": [1, 2, 3]}), folder / "rows" / name)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"spark": "local", "table": "people"}, {"spark": "local[4]", "table": "PEOPLE"}),
        ({"spark": "local[2]", "parquet": "rows"}, {"spark": "spark://10.0.0.5:7077", "parquet": "./rows"}),
        ({"spark": "local[2]", "parquet": "rows/a.parquet"}, {"parquet": "rows/a.parquet"}),
        ({"parquet": "rows/a.parquet"}, {"spark": "local[2]", "parquet": "rows/a.parquet"}),
        ({"spark": "local[2]", "parquet": "rows"}, {"parquet": "rows/a.parquet"}),
        ({"parquet": "rows/a.parquet"}, {"spark": "local[2]", "parquet": "rows"}),
    ],
)  # fmt: skip
def test_the_same_rows_have_one_account(first, second, tmp_path):
    written(tmp_path)
    one, other = home_of(tmp_path, "one", first), home_of(tmp_path, "other", second)
    assert one == "one.reticent"
    assert "one.reticent" in other


def test_a_folder_between_two_files_joins_all(tmp_path):
    written(tmp_path)
    home_of(tmp_path, "one", {"parquet": "rows/a.parquet"})
    assert "one.reticent" in home_of(tmp_path, "whole", {"spark": "local", "parquet": "rows"})
    assert "one.reticent" in home_of(tmp_path, "other", {"parquet": "rows/b.parquet"})


def test_other_rows_have_another_account(tmp_path):
    written(tmp_path)
    given = [{"spark": "local", "table": "people"}, {"spark": "local", "table": "others"},
             {"spark": "local", "table": "people", "schema": "town"}, {"parquet": "rows/a.parquet"},
             {"parquet": "rows/b.parquet"}]  # fmt: skip
    found = [home_of(tmp_path, f"n{number}", one) for number, one in enumerate(given)]
    assert found == [f"n{number}.reticent" for number in range(len(given))]


def test_planted_notes_that_know_no_folders_give_two_budgets(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "_around", lambda file: [])
    written(tmp_path)
    home_of(tmp_path, "one", {"spark": "local", "parquet": "rows"})
    assert "one.reticent" not in home_of(tmp_path, "other", {"parquet": "rows/a.parquet"})


def opened_folder(folder):
    """Open a folder as far as it goes without a Spark."""
    spark.opened({"spark": "local", "parquet": "rows"}, folder, list, lambda schema, names: None)


def linked(folder):
    """Rows that are declared and noted by themselves, and a folder that leads to them."""
    pa.parquet.write_table(pa.table({"age": [1, 2, 3]}), folder / "census.parquet")
    (folder / "rows").mkdir()
    (folder / "rows" / "a.parquet").symlink_to(folder / "census.parquet")


def test_a_folder_of_links_is_no_second_account(tmp_path, monkeypatch):
    monkeypatch.setattr(spark, "find_spec", lambda name: None)
    linked(tmp_path)
    with pytest.raises(ParameterError, match=r"must be a folder without symbolic links, got 'a\.parquet'"):
        opened_folder(tmp_path)


def test_planted_links_that_are_followed_give_two_budgets(tmp_path, monkeypatch):
    monkeypatch.setattr(spark, "find_spec", lambda name: None)
    monkeypatch.setattr(spark, "_parts", lambda folder: iter(folder.iterdir()))
    linked(tmp_path)
    home_of(tmp_path, "one", {"parquet": "census.parquet"})
    assert "one.reticent" not in home_of(tmp_path, "other", {"spark": "local", "parquet": "rows"})
    with pytest.raises(MissingExtra):
        opened_folder(tmp_path)


@pytest.mark.parametrize("name", ["_k=1.parquet", "_k=1/a.parquet", "_metadata", "_common_metadata"])
def test_files_that_only_look_hidden_are_looked_at(name, tmp_path, monkeypatch):
    """Spark reads these, or takes its columns from them: it would fail after the charge."""
    monkeypatch.setattr(spark, "find_spec", lambda name: None)
    written(tmp_path)
    (tmp_path / "rows" / name).parent.mkdir(exist_ok=True)
    pa.parquet.write_table(pa.table({"age": ["old"]}), tmp_path / "rows" / name)
    with pytest.raises(ParameterError, match="must be files of one schema"):
        opened_folder(tmp_path)
    monkeypatch.setattr(spark, "_is_hidden", lambda name: name.startswith((".", "_")))  # planted
    with pytest.raises(MissingExtra):
        opened_folder(tmp_path)


def test_what_spark_passes_over_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(spark, "find_spec", lambda name: None)
    written(tmp_path)
    for name in ("_SUCCESS", ".a.parquet.crc"):
        (tmp_path / "rows" / name).write_text("no rows")
    with pytest.raises(MissingExtra):
        opened_folder(tmp_path)


# Sums in parts, by an engine that has the same functions under other names


def test_sums_in_parts_are_exact():
    rng = random.Random(5)
    with duckdb.connect() as connection:
        connection.execute("CREATE MACRO SHIFTRIGHT(x, n) AS x >> n")
        for bits in (1, 20, 21, 22, 31, 32, 42, 43, 62):
            largest = 1 << bits
            held = [rng.choice((largest, -largest, rng.randint(-largest, largest))) for _ in range(50)]
            connection.execute("CREATE OR REPLACE TABLE t AS SELECT unnest($1::BIGINT[]) AS x", [held])
            sql = bins.summed("x", largest, bins.SPARK)
            assert ("SHIFTRIGHT" in sql) is (bits >= bins._PART)
            assert connection.execute(f"SELECT {sql} FROM t").fetchone() == (sum(held),)
            assert bins.summed("x", largest, bins.DUCKDB) == "SUM(x)"


def test_no_part_of_a_sum_can_overflow():
    """2^42 times the largest part is below 2^63, whichever number it is a part of."""
    for bits in range(1, 63):
        largest = (1 << bits) - 1
        last = (largest.bit_length() - 1) // bins._PART
        parts = [(1 << bins._PART) - 1, largest >> bins._PART * last, -((-largest) >> bins._PART * last)]
        assert max(parts) << 42 <= 1 << 63


def test_the_command_line_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(spark, "find_spec", lambda name: None)
    (tmp_path / "d.yaml").write_text(declared({"spark": "local[2]", "table": "people"}))
    with reticent.open(tmp_path / "d.yaml") as session:
        with pytest.raises(MissingExtra, match="reticent\\[spark\\]"):
            session.ask(reticent.query.mean("age"), error=10)
        assert session.balance().spent == 0
