"""The query room against plain DuckDB on the same rows, and what an answer that is bought already costs.

Ten million rows are made once per process, in the working directory's folder `out` (set RETICENT_BENCH_DIR
for another one). Every fresh answer is a refinement: the whole table is read, noise is drawn, and a ledger on
disk is charged.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import duckdb
import pyarrow

from benchmarks.measure import Figure, cpu_ratio
from reticent.ledger import SqlLedger
from reticent.privacy import Budget
from reticent.query import By, Column, DataSet, Kind, Session
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.language.tree import Comparison
from reticent.query.measure import plan
from reticent.query.notebook import Notebook
from reticent.query.rows import snapshot, source
from reticent.query.rows.rehearsal import MadeUpRows
from reticent.randomness import SimulationStream

ROWS = 10_000_000
CSV_ROWS = 1_000_000
ASKS = 100_000
COLUMNS = (
    Column("income", Kind.NUMBER, low=-10_000, high=1_000_000, step=1, missing=0),
    Column("age", Kind.INTEGER, low=0, high=120),
    Column("sex", Kind.CATEGORY, values=("f", "m")),
)
# What somebody who knows DuckDB would write by hand: clamp, round, replace what is missing.
CLAMPED = (
    "CASE WHEN income IS NULL OR isnan(income) THEN 0 "
    "ELSE CAST(greatest(least(income, 1e6::DOUBLE), -1e4::DOUBLE) / 1::DOUBLE AS BIGINT) END"
)


@contextlib.contextmanager
def place():
    base = Path(os.environ.get("RETICENT_BENCH_DIR", "out"))
    base.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=base))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def declared(where: dict[str, str], rows: int = ROWS) -> DataSet:
    return DataSet("bench", "1", COLUMNS, Budget(40.0, 1e-5), rows=rows, source=where)


def written(folder: Path) -> None:
    """Ten million rows as a DuckDB table and as a Parquet file."""
    with contextlib.closing(duckdb.connect(str(folder / "rows.duckdb"))) as connection:
        connection.execute(
            "CREATE TABLE people AS SELECT exp(10 + 1.2 * random()) - 5000 AS income, "
            "CAST(random() * 100 AS INTEGER) AS age, CASE WHEN random() < 0.5 THEN 'f' ELSE 'm' END AS sex "
            f"FROM range({ROWS})"
        )
        connection.execute(f"COPY people TO '{folder / 'rows.parquet'}'")


def asker(data: DataSet, rows, folder: Path, query):
    """A call that buys a little more of one answer each time."""
    session = Session(data, rows, SqlLedger(folder / "ledger.db"), Notebook(folder / "notebook.db"))
    levels = itertools.count(1)
    return lambda: session.ask(query, information=next(levels) * 1e-3)


def snapshot_mean() -> float:
    """CPU of a fresh mean on a snapshot / of `avg` of the column in DuckDB."""
    with place() as folder:
        written(folder)
        data = declared({"duckdb": "rows.duckdb", "table": "people"})
        snapshot.make(data, folder, folder / "snapshot.duckdb")
        plain = duckdb.connect(str(folder / "rows.duckdb"), read_only=True)
        ask = asker(data, snapshot.open(folder / "snapshot.duckdb", data), folder, tree.mean("income"))
        return 1 / cpu_ratio(lambda: plain.execute("SELECT avg(income) FROM people").fetchall(), ask)


def foreign(form: str, relation: str, query, sql: str) -> float:
    """CPU of a fresh answer on somebody's own table / of the clamped sum written by hand."""
    with place() as folder:
        written(folder)
        where = {"duckdb": "rows.duckdb", "table": "people"} if form == "duckdb" else {form: f"rows.{form}"}
        data = declared(where)
        plain = duckdb.connect(str(folder / "rows.duckdb"), read_only=True)
        ask = asker(data, source.connect(data, folder), folder, query)
        statement = f"SELECT count(*), sum({sql}) FROM {relation.format(folder=folder)}"
        return 1 / cpu_ratio(lambda: plain.execute(statement).fetchall(), ask)


def whole(form: str, relation: str) -> float:
    return foreign(form, relation, tree.mean("income"), CLAMPED)


def csv() -> float:
    """CPU of a fresh mean of a CSV file / of the clamped sum by hand, read by DuckDB under given types."""
    with place() as folder:
        file = folder / "rows.csv"
        plain = duckdb.connect()
        plain.execute(
            "COPY (SELECT round(exp(10 + 1.2 * random()) - 5000, 2) AS income, "
            "CAST(random() * 100 AS INTEGER) AS age, CASE WHEN random() < 0.5 THEN 'f' ELSE 'm' END AS sex "
            f"FROM range({CSV_ROWS})) TO '{file}'"
        )
        data = declared({"csv": "rows.csv"}, rows=CSV_ROWS)
        ask = asker(data, source.connect(data, folder), folder, tree.mean("income"))
        types = "{'income': 'DOUBLE', 'age': 'INTEGER', 'sex': 'VARCHAR'}"
        statement = (
            f"SELECT count(*), sum({CLAMPED}) FROM read_csv('{file}', header = true, columns = {types})"
        )
        return 1 / cpu_ratio(lambda: plain.execute(statement).fetchall(), ask)


def filtered() -> float:
    condition = "CASE WHEN age IS NULL THEN 60 ELSE greatest(least(age, 120), 0) END >= 40"
    query = tree.total("income", where=Comparison("age", ">=", 40))
    return foreign("duckdb", "people", query, f"CASE WHEN {condition} THEN {CLAMPED} ELSE 0 END")


def bins(query) -> float:
    """CPU of the sums of a histogram of 65,536 bins of a million rows / of one of 16."""
    draw = SimulationStream(1).units(1_000_000)
    frame = pyarrow.table({"income": draw * 1e6 - 1e6, "age": draw * 50, "sex": ["f"] * len(draw)})
    data = declared({}, rows=len(draw))
    with source.connect(data, Path(), frame=frame) as rows:
        few, many = (plan(resolve(one, data)) for one in (tree.histogram(By("income", bins=16)), query))
        return 1 / cpu_ratio(lambda: few.vector(rows), lambda: many.vector(rows), repetitions=5)


EVEN = tree.histogram(By("income", bins=1 << 16))
# No two as far apart as two others beside them: nothing but a lookup finds their bins.
UNEVEN = tree.histogram(By("income", edges=tuple(float(i * 14 + i % 7) for i in range(1, 1 << 16))))
QUERIES = (
    (tree.mean("income"), 500.0),
    (tree.count(where=Comparison("age", ">=", 40)), 30.0),
    (tree.mean("income", where=Comparison("age", ">=", 40), by="sex"), 20_000.0),
)


def asked_before(folder: Path) -> Session:
    """A session on small made-up rows in which every query is bought."""
    data = declared({}, rows=20_000)
    rows = MadeUpRows(data, 20_000, SimulationStream(1))
    session = Session(data, rows, SqlLedger(folder / "ledger.db"), Notebook(folder / "notebook.db"))
    for query, error in QUERIES:
        while session.ask(query, error=error).cost:
            pass
    return session


def reused_ms() -> float:
    """CPU milliseconds of an answer that is bought already, for the slowest of three queries."""
    slowest = 0.0
    with place() as folder, asked_before(folder) as session:
        for query, error in QUERIES:
            session.ask(query, error=error)
            start = time.process_time()
            for _ in range(1000):
                session.ask(query, error=error)
            slowest = max(slowest, time.process_time() - start)
    return slowest


def memory() -> float:
    """Peak memory after 100,000 asks, of bought answers and of prices of ever new questions / after 5,000."""
    with place() as folder, asked_before(folder) as session:
        for number in range(ASKS):
            query, error = QUERIES[number % 3]
            session.ask(query, error=error)
            if number % 10 == 0:
                session.price(tree.count(where=Comparison("income", ">", number)), error=30.0)
            if number == ASKS // 20:
                early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / early


def on_spark() -> float:
    """CPU of a fresh mean of 20 million rows on Spark / of the clamped sum by hand on the same Spark."""
    python = Path(sys.prefix) / "spark/bin/python"
    command = [str(python), "-m", "benchmarks.beside_spark"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(run.stdout.split()[-1])


warnings.filterwarnings("ignore", "fetch_arrow_table", DeprecationWarning)  # ibis 12 on DuckDB 2
FIGURES = [
    Figure("query: mean, snapshot", "DuckDB avg of the column", 1.5, snapshot_mean, at_most=True),
    Figure(
        "query: mean, DuckDB table",
        "the clamped sum by hand",
        1.2,
        lambda: whole("duckdb", "people"),
        at_most=True,
    ),
    Figure(
        "query: mean, Parquet",
        "the clamped sum by hand",
        1.2,
        lambda: whole("parquet", "read_parquet('{folder}/rows.parquet')"),
        at_most=True,
    ),
    Figure("query: mean, CSV", "the clamped sum by hand", 2.0, csv, at_most=True),
    Figure("query: filtered sum, DuckDB table", "the clamped sum by hand", 1.2, filtered, at_most=True),
    Figure("query: 65,536 equal bins", "16 bins", 10.0, lambda: bins(EVEN), at_most=True),
    Figure("query: 65,536 other bins", "16 bins", 20.0, lambda: bins(UNEVEN), at_most=True),
    Figure("query: reused answer", "1 ms of CPU", 1.0, reused_ms, at_most=True),
    Figure("query: memory, 100,000 asks", "after 5,000 asks", 1.05, memory, at_most=True),
]
if shutil.which("java"):
    FIGURES.append(Figure("query: mean, Spark", "the clamped sum by hand", 1.3, on_spark, at_most=True))
