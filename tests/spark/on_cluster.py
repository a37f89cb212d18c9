"""A process that asks a table on a cluster: run by `test_cluster`, one line of JSON for each vector.

Its arguments are the master, and the table's name; with `--make` it makes the table first, as an operator
does. It waits for a line before it asks again, and ends when there is none.
"""

import json
import sys
from pathlib import Path

from reticent.privacy import Budget, Neighbours
from reticent.query import By, Column, DataSet, Kind
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.measure import plan
from reticent.query.rows import source, spark

COLUMNS = (
    Column("age", Kind.INTEGER, low=0, high=120),
    Column("far", Kind.INTEGER, low=-(2**31), high=2**31),
    Column("word", Kind.CATEGORY, values=("a", "1", "none")),
)
ROWS = (
    "SELECT CAST(id % 1000 AS STRING) AS who, CAST(id * 7919 % 151 AS DOUBLE) AS age, "
    "id * 2147483647 AS far, CASE id % 3 WHEN 0 THEN 'a' WHEN 1 THEN '1.0' ELSE '1e400' END AS word "
    "FROM range({rows})"
)


def data_set(**given):
    whose = {"relation": Neighbours.ADD_REMOVE_ONE, "person": "who", "contribution": 7}
    return DataSet("visits", "1", COLUMNS, Budget(8, 1e-6), source=given, **whose)


def asked(data):
    queries = [
        tree.count(),
        tree.mean("age", by="word"),
        tree.variance("far"),
        tree.histogram(By("age", bins=9)),
    ]
    return [plan(resolve(query, data)) for query in queries]


def main():
    master, table = sys.argv[1:3]
    engine = spark.connected(master)
    if "--make" in sys.argv:
        engine._session.sql(f"CREATE TABLE {table} USING parquet AS {ROWS.format(rows=50_000)}")
    data = data_set(spark=master, table=table)
    with source.connect(data, Path()) as rows:
        context = engine._session.sparkContext
        while len(context._jsc.sc().statusTracker().getExecutorInfos()) < 3:  # the driver, and two workers
            rows.tally(f"SELECT count(*) FROM {rows.relation}")
        for _ in sys.stdin:
            print(json.dumps([one.vector(rows) for one in asked(data)]), flush=True)
    engine.disconnect()


if __name__ == "__main__":
    main()
