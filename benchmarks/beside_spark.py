"""A fresh mean on Spark beside the same sum written by hand on the same Spark, and beside DuckDB's.

Run by the environment that `make .venv/.spark` makes: `make bench-spark ARGS="--rows 1000000000 --folder F"`.
Rows are written once, by DuckDB, into a folder of Parquet files, and kept if it is named. Both sides take
turns; CPU is of Spark's process and this one, the clock is the wall's. The last line is the ratio of CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shutil
import statistics
import time
from pathlib import Path

import duckdb

from benchmarks.query import place
from reticent.ledger import SqlLedger
from reticent.privacy import Budget
from reticent.query import Column, DataSet, Kind, Session
from reticent.query.language import tree
from reticent.query.notebook import Notebook
from reticent.query.rows import source, spark

PART = 62_500_000  # rows of a file
COLUMNS = (
    Column("age", Kind.INTEGER, low=0, high=120),
    Column("income", Kind.NUMBER, low=0, high=10_000, step=0.01, missing=0),
)
# What somebody who knows Spark would write by hand: clamp, round, replace what is missing.
BY_HAND = {
    "age": "CASE WHEN age IS NULL THEN 60 ELSE greatest(least(age, 120), 0) END",
    "income": "CASE WHEN income IS NULL OR isnan(income) THEN 0 "
    "ELSE CAST(rint(greatest(least(income, 10000D), 0D) / 0.01D) AS BIGINT) END",
}
IN_DUCKDB = {
    "age": BY_HAND["age"],
    "income": "CASE WHEN income IS NULL OR isnan(income) THEN 0 "
    "ELSE CAST(greatest(least(income, 1e4::DOUBLE), 0::DOUBLE) / 0.01::DOUBLE AS BIGINT) END",
}
TICKS = os.sysconf("SC_CLK_TCK")


def written(folder: Path, rows: int) -> None:
    """Files of at most 62.5 million rows; those that are there are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(duckdb.connect(config={"memory_limit": "1GB"})) as connection:
        for number, first in enumerate(range(0, rows, PART)):
            file, last = folder / f"part-{number:02}.parquet", min(first + PART, rows)
            if file.exists():
                continue
            connection.execute(
                "COPY (SELECT CAST((range * 2654435761 % 4294967296) % 121 AS INTEGER) AS age, "
                "CAST(((range * 40503 + 12345) % 1000003) / 100.0 AS DOUBLE) AS income "
                f"FROM range({first}, {last})) TO '{folder}/.draft' (FORMAT parquet, ROW_GROUP_SIZE 1000000)"
            )
            (folder / ".draft").rename(file)


def cpu_s(process: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_mb(process: int) -> float:
    """The most memory that a process had."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


class Timed:
    """How long something takes, each time: on the wall, and of CPU with that of Spark's process."""

    def __init__(self, call, java):
        self._call, self._java = call, java
        self.wall, self.cpu = [], []

    def __call__(self) -> None:
        wall, cpu = time.monotonic(), cpu_s(self._java) + time.process_time()
        self._call()
        self.wall.append(time.monotonic() - wall)
        self.cpu.append(cpu_s(self._java) + time.process_time() - cpu)


def measured(folder: Path, rows: int, column: str, master: str, repetitions: int, beside: Path) -> float:
    """Print how long both sides and DuckDB take, and give the ratio of CPU."""
    from pyspark import SparkContext

    data = DataSet(
        "bench", "1", COLUMNS, Budget(40.0, 1e-5), rows=rows, source={"spark": master, "parquet": str(folder)}
    )
    session = Session(
        data, source.connect(data, folder), SqlLedger(beside / "l.db"), Notebook(beside / "n.db")
    )
    levels = itertools.count(1)
    engine = spark.connected(master)
    by_hand = spark.Jobs(engine)
    engine._session.read.parquet(f"file:{folder}").createOrReplaceTempView("rows")
    java = SparkContext._gateway.proc.pid
    ours = Timed(lambda: session.ask(tree.mean(column), information=next(levels) * 1e-3), java)
    theirs = Timed(lambda: by_hand.fetched(f"SELECT count(*), sum({BY_HAND[column]}) FROM rows"), java)
    for _ in range(repetitions + 1):  # the first one warms compilers and caches
        theirs(), ours()
    ratio = statistics.median(a / b for a, b in zip(ours.cpu[1:], theirs.cpu[1:], strict=True))
    wall = statistics.median(a / b for a, b in zip(ours.wall[1:], theirs.wall[1:], strict=True))
    memory = peak_mb(java)
    by_hand.close(), session.close()
    with contextlib.closing(duckdb.connect(config={"threads": 2})) as connection:
        statement = f"SELECT count(*), sum({IN_DUCKDB[column]}) FROM read_parquet('{folder}/*.parquet')"
        start = time.monotonic()
        connection.execute(statement).fetchall()
        beside_duckdb = time.monotonic() - start
    print(
        f"mean of {column}, {rows:,} rows, {master}: ours {statistics.median(ours.wall[1:]):.1f} s, by hand "
        f"{statistics.median(theirs.wall[1:]):.1f} s, DuckDB by hand {beside_duckdb:.1f} s; "
        f"ours / by hand {wall:.2f} of the wall's clock, {ratio:.2f} of CPU; Spark's memory {memory:,.0f} MB"
    )
    return ratio


def main() -> None:
    """Print the ratio of CPU of the slower column last."""
    asked = argparse.ArgumentParser()
    asked.add_argument("--rows", type=int, default=20_000_000)
    asked.add_argument("--folder", type=Path)
    asked.add_argument("--master", default="local[2]")
    asked.add_argument("--repetitions", type=int, default=5)
    given = asked.parse_args()
    with place() as beside:
        folder = (given.folder or beside / "rows").absolute()
        written(folder, given.rows)
        found = []
        for column in BY_HAND:
            (beside / column).mkdir()
            found.append(
                measured(folder, given.rows, column, given.master, given.repetitions, beside / column)
            )
        if given.folder is None:
            shutil.rmtree(folder)
    print(f"{max(found):g}")


if __name__ == "__main__":
    main()
