"""Rows for the tests of the query room: sums given in advance, and pairs of neighbours by the thousand.

`Pairs` holds many small raw tables in one DuckDB table, told apart by their number, so that the real
preparation runs once over all of them and the real statement of a question sums all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import ibis
import numpy as np
import pyarrow as pa

from reticent.privacy import Budget, Neighbours
from reticent.query import Column, DataSet, Kind
from reticent.query.rows.prepare import prepared
from reticent.query.rows.source import numbered

REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE_ONE
BUDGET = Budget(epsilon=8.0, delta=1e-4)
MOST_TABLES = 1 << 20


class Tallied:
    """Rows whose sums are given: (cell, rows, sum of x, sum of x^2). Keeps every statement that it sees."""

    relation, engine = "rows", "duckdb"

    def __init__(self, data, sums=()):
        self.names, self.sums, self.statements = numbered(data), list(sums), []

    def tally(self, sql):
        self.statements.append(sql)
        return self.sums

    def close(self):
        pass


# Neighbours


@dataclass(frozen=True)
class Relation:
    """Which raw tables are neighbours, and the declaration that says so."""

    neighbours: Neighbours
    bound: int | None  # rows of one person that count; None protects rows

    @property
    def most_rows(self):
        return 1 if self.bound is None else self.bound + 3

    def data(self, **changes):
        given = {
            "relation": self.neighbours,
            "rows": 5 if self.neighbours is REPLACE and self.bound is None else None,
            "person": None if self.bound is None else "person",
            "contribution": self.bound or 1,
        }
        return DataSet("pairs", "1", COLUMNS, BUDGET, **{**given, **changes})


RELATIONS = {
    "replace a row": Relation(REPLACE, None),
    "add or remove a row": Relation(ADD, None),
    "replace a person": Relation(REPLACE, 3),
    "add or remove a person": Relation(ADD, 2),
}
SUMMED = ("near", "far", "wide", "amount")
COLUMNS = (
    Column("near", Kind.INTEGER, low=-3, high=10),
    Column("far", Kind.INTEGER, low=5, high=20, missing=20),
    Column("wide", Kind.INTEGER, low=-(2**31), high=2**31),
    Column("amount", Kind.NUMBER, low=-10_000, high=1_000_000, step=0.01, missing=0.0),
    Column("flag", Kind.BOOLEAN),
    Column("group", Kind.CATEGORY, values=("a", "b", "c")),
    Column("band", Kind.INTEGER, low=0, high=9),
    Column("table", Kind.INTEGER, low=0, high=MOST_TABLES),  # which of the many tables; nobody asks about it
)
_STRANGE = ["", "nan", "-NaN", "inf", "-Infinity", "1e400", "-1e400", "1e-400", "abc", "0x10", "1,5", "--3",
            "9223372036854775807", "-9223372036854775808", "18446744073709551616", "9007199254740993",
            "1" * 300, " 7 ", "4.5", "5.5", "٣", None]  # fmt: skip
_TEXTS = {
    "near": ["-3", "10"] * 10 + _STRANGE,
    "far": ["5", "20"] * 10 + _STRANGE,
    "wide": ["-2147483648", "2147483648"] * 10 + _STRANGE,
    "amount": ["-10000", "1000000", "-1e9", "1e9"] * 5 + ["0.005", "0.015", *_STRANGE],
    "flag": ["true", "false", "1", "0", "yes", "NO", "T", "f"] * 3 + ["2", "maybe", "", None],
    "group": ["a", "b", "c"] * 6 + ["A", "a ", "z", "", None],
    "band": [str(band) for band in range(10)] * 2 + _STRANGE,
}
_ODD = [np.nan, np.inf, -np.inf, 2.0**53 + 2, -(2.0**63), 1e308, -1e308, 5e-324, 4.5, None]
_LARGE = [2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1, 0, None]
_TYPED = {
    "near": ([-3, 10] * 5 + _LARGE, pa.int64()),
    "far": ([5.0, 20.0] * 8 + _ODD, pa.float64()),
    "wide": ([-(2**31), 2**31] * 5 + _LARGE, pa.int64()),
    "amount": ([-10_000.0, 1_000_000.0] * 8 + _ODD, pa.float64()),
    "flag": ([True, False, True, False, None], pa.bool_()),
    "group": (_TEXTS["group"], pa.string()),
    "band": ([*range(10), *range(10), *_LARGE], pa.int64()),
}
POOLS = {
    "text": {name: (values, pa.string()) for name, values in _TEXTS.items()},
    "typed": _TYPED,
}


class Pairs:
    """Pairs of neighbouring raw tables; tables 2i and 2i + 1 are the pair i.

    The person who changes has, most of the time, the same row over and over, and the other side's row often
    differs from it in one column only: random rows alone would seldom come near the bound.

    Attributes:
        raw: the table as Arrow, rows of all tables mixed.
    """

    def __init__(self, relation, size, seed, form="text"):
        self.relation, self.size = relation, size
        self._rng, self._pools = np.random.default_rng(seed), POOLS[form]
        tables, persons, picked = self._rows()
        order = self._rng.permutation(tables.size)
        columns = {
            name: pa.array(np.array(values, dtype=object), kind).take(pa.array(picked[name][order]))
            for name, (values, kind) in self._pools.items()
        }
        columns["person"] = pa.array([f"{t}/{p}" for t, p in zip(tables[order], persons[order], strict=True)])
        columns["table"] = pa.array(tables[order])
        self.raw = pa.table(columns)
        self._connection = duckdb.connect()
        self._connection.register("raw", self.raw)

    def _draw(self, count):
        return {
            name: self._rng.integers(len(values), size=count) for name, (values, _) in self._pools.items()
        }

    def _rows(self):
        rng, size, most = self._rng, self.size, self.relation.most_rows
        parts = []  # (table, person, which value of the pool)
        for person in range(1, 5):  # those who stay
            pairs = np.flatnonzero(rng.random(size) < 0.6)
            pairs = np.repeat(pairs, rng.integers(1, most + 1, size=pairs.size))
            drawn = self._draw(pairs.size)
            parts += [(2 * pairs + side, person, drawn) for side in (0, 1)]
        first, second = self._draw(size), self._draw(size)
        alone = rng.random(size) < 0.6  # one column changes, or two
        changes = [rng.integers(len(self._pools), size=size) for _ in range(2)]
        for number, name in enumerate(self._pools):
            same = alone & (changes[0] != number) & (changes[1] != number)
            second[name] = np.where(same, first[name], second[name])
        sides = [first] if self.relation.neighbours is ADD else [first, second]
        for side, chosen in enumerate(sides):
            least = 1 if self.relation.bound is None else 0  # somebody may have no rows at all
            counts = np.where(rng.random(size) < 0.5, most, rng.integers(least, most + 1, size=size))
            pairs = np.repeat(np.arange(size), counts)
            drawn, steady = self._draw(pairs.size), rng.random(size)[pairs] < 0.7
            drawn = {name: np.where(steady, chosen[name][pairs], drawn[name]) for name in drawn}
            parts.append((2 * pairs + side, 10 + side, drawn))
        tables = np.concatenate([part[0] for part in parts])
        persons = np.concatenate([np.full(part[0].size, part[1]) for part in parts])
        return tables, persons, {name: np.concatenate([part[2][name] for part in parts]) for name in first}

    def coded(self, data, name="codes", keep="TRUE"):
        """Run the real preparation over every table at once; `keep` is planted: rows that are not read."""
        engine = ibis.duckdb.from_connection(self._connection)
        self._connection.execute(f"CREATE OR REPLACE VIEW source AS SELECT * FROM raw WHERE {keep}")
        sql = engine.compile(prepared(engine, engine.table("source"), data))
        self._connection.execute(f"CREATE OR REPLACE TABLE {name} AS {sql}")
        return Coded(self._connection, name, numbered(data))

    def table(self, number):
        """One raw table, as a list of records in the order in which its rows lie."""
        return self.raw.filter(pa.compute.equal(self.raw["table"], number)).to_pylist()


class Coded:
    """All prepared tables of `Pairs`."""

    engine = "duckdb"

    def __init__(self, connection, relation, names):
        self._connection, self.relation, self.names = connection, relation, names

    def vectors(self, plan, size):
        """The vectors of tables 0 .. size - 1, each by `Plan.vector` from its own part of one statement."""
        found = _Split(self, plan)
        return [plan.vector(found.of(number)) for number in range(size)]

    def tally_all(self, sql):
        """The statement of one table, made to run over all of them: one more column to group by."""
        key = self.names["table"]
        if sql.startswith("SELECT cell, "):
            sql = sql.replace("SELECT cell, ", "SELECT of_table, cell, ", 1)
            sql = sql.replace("(SELECT CASE", f"(SELECT {key} AS of_table, CASE", 1)
            sql = sql.replace("GROUP BY cell", "GROUP BY of_table, cell")
        else:
            sql = sql.replace("SELECT 0, ", f"SELECT {key}, 0, ", 1) + f" GROUP BY {key}"
        return self._run(sql)

    def _run(self, sql):
        return self._connection.execute(sql).fetchall()


class _Split:
    """One statement's rows, handed out table by table."""

    def __init__(self, coded, plan):
        self.names, self.relation, self.engine = coded.names, coded.relation, coded.engine
        self._coded, self._sums, self._number = coded, None, 0

    def of(self, number):
        self._number = number
        return self

    def tally(self, sql):
        if self._sums is None:
            self._sums = {}
            for number, *sums in self._coded.tally_all(sql):
                self._sums.setdefault(number, []).append(tuple(int(one or 0) for one in sums))
        return self._sums.get(self._number, [])
