"""T4 in format 2: one row that changes moves no measurement beyond its sensitivity, on each engine.

Pairs of tables differ in one row. Every cell of it is drawn among days, words, numbers and nothing, so that a
row may change what it is read as: the days of numbers, the group `other`, and which cells cannot be read.
"""

from __future__ import annotations

import contextlib
import random

import duckdb
import pandas as pd
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent.privacy import Budget, Neighbours
from reticent.query.declarations.datasets import DataSet
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.measure import plan
from reticent.query.readability import unreadable_share
from reticent.query.rows import source
from reticent.query.rows.columns import Column, Kind

from .stored_cells import TEXTS

COLUMNS = (
    Column("age", Kind.INTEGER, -100, 25_000, missing=3),
    Column("sum", Kind.NUMBER, -500, 30_000, 0.5, missing=-500),
    Column("word", Kind.CATEGORY, values=("word", "7", "2026-01-02"), missing="7"),
    Column("sick", Kind.BOOLEAN),
)
QUERIES = (
    tree.count(by="word"),
    tree.total("age"),
    tree.mean("sum", by="word"),
    tree.count(where="word = 'other' and age > 100"),
    tree.variance("age", where="not sick"),
    unreadable_share(COLUMNS[0]),
    unreadable_share(COLUMNS[3]),
)
TABLES, ROWS = 100, 4  # each table but the first is a neighbour of the one before it: 99 pairs


def chain_of_tables(seed: int, relation: Neighbours) -> list[list[tuple]]:
    """Return tables of which each is a neighbour of the one before it."""
    rng = random.Random(seed)

    def row():
        return tuple(rng.choice([*TEXTS, None]) for _ in COLUMNS)

    tables = [[row() for _ in range(ROWS)]]
    for _ in range(TABLES - 1):
        table = list(tables[-1])
        if relation is Neighbours.REPLACE_ONE:
            table[rng.randrange(len(table))] = row()
        elif len(table) > 1 and rng.random() < 0.5:
            del table[rng.randrange(len(table))]
        else:
            table.insert(rng.randrange(len(table) + 1), row())
        tables.append(table)
    return tables


def data_set(relation, *, stored=None, **options) -> DataSet:
    columns = [Column(one.name, one.kind, one.low, one.high, one.step, one.values,
                      one.missing if one.says_missing else None,
                      stored=None if one.kind is Kind.CATEGORY else stored) for one in COLUMNS]  # fmt: skip
    columns[3] = Column("sick", Kind.BOOLEAN, stored=stored)
    columns.append(Column("number", Kind.INTEGER, 0, TABLES, stored=stored))
    rows = ROWS if relation is Neighbours.REPLACE_ONE else None
    return DataSet("d", "1", tuple(columns), Budget(1, 1e-6), relation, rows=rows, format=2, **options)


@contextlib.contextmanager
def opened(engine, rows, relation, folder, request):
    """Open rows of many tables, told apart by their number, on an engine."""
    names = [column.name for column in data_set(relation).columns]
    frame = pd.DataFrame(rows, columns=names, dtype=object)
    if engine == "frame":
        data, given = data_set(relation), frame
    elif engine == "csv":
        frame.to_csv(folder / "rows.csv", index=False)
        data, given = data_set(relation, source={"csv": "rows.csv"}), None
    elif engine == "parquet":
        columns = [pa.array(frame[name].tolist(), pa.string()) for name in names]
        pq.write_table(pa.table(columns, names=names), folder / "rows.parquet")
        data, given = data_set(relation, stored="text", source={"parquet": "rows.parquet"}), None
    else:
        server = request.getfixturevalue("server")
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS neighbours_2")
            connection.execute(
                "CREATE TABLE neighbours_2 (age text, sum text, word text, sick text, number text)"
            )
            with connection.cursor() as cursor:
                cursor.executemany("INSERT INTO neighbours_2 VALUES (%s, %s, %s, %s, %s)", rows)
        data = data_set(relation, stored="text", source={"url": server, "table": "neighbours_2"})
        given = None
    with source.connect(data, folder, None, given) as table:
        yield table


class OneTable:
    """The codes of one of the tables, in memory: what engines differ in was done before."""

    engine = "duckdb"

    def __init__(self, connection, names, number):
        self.names, self._connection = names, connection
        self.relation = f"(SELECT * FROM codes WHERE {names['number']} = {number}) AS one_table"

    def tally(self, sql):
        return [tuple(int(part or 0) for part in row) for row in self._connection.execute(sql).fetchall()]


def largest_excess(engine, relation, folder, request) -> float:
    """Return the greatest distance of two neighbours in sensitivities, over all questions."""
    plans = [plan(resolve(query, data_set(relation))) for query in QUERIES]
    rows = [(*row, str(number)) for number, table in enumerate(chain_of_tables(0, relation)) for row in table]
    columns = list(data_set(relation).coded)
    with opened(engine, rows, relation, folder, request) as table:
        names = dict(table.names)
        codes = table.tally(f"SELECT {', '.join(columns)} FROM {table.relation}")
    found, before = 0.0, None
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE codes ({', '.join(f'{name} BIGINT' for name in columns)})")
        connection.executemany(f"INSERT INTO codes VALUES ({', '.join('?' * len(columns))})", codes)
        for number in range(TABLES):
            vectors = [one.vector(OneTable(connection, names, number)) for one in plans]
            if before is not None:
                for one, left, right in zip(plans, before, vectors, strict=True):
                    distance2 = sum((a - b) ** 2 for a, b in zip(left, right, strict=True))
                    found = max(found, distance2**0.5 / one.sensitivity)
            before = vectors
    return found


ENGINES = ("frame", "csv", "parquet", "postgresql")


@pytest.mark.parametrize("relation", [Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE_ONE])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_moves_nothing_beyond_its_sensitivity(engine, relation, tmp_path, request):
    assert 0.1 < largest_excess(engine, relation, tmp_path, request) <= 1.0


def test_planted_a_code_outside_of_its_range_is_caught(tmp_path, request, monkeypatch):
    """The number of a day that is not clamped would move a sum by more than is declared."""
    from reticent.query.rows import prepare

    clamped = prepare._number_code
    monkeypatch.setattr(prepare, "_number_code", lambda *given: clamped(*given) * 3)
    assert largest_excess("frame", Neighbours.REPLACE_ONE, tmp_path, request) > 1.0
