"""T4 on Spark: no neighbour moves a vector further than declared, and every vector is that of DuckDB.

Many small raw tables lie in one file, told apart by their number, so that Spark prepares all of them at once,
into a snapshot, and sums all of them by one statement for each question.
"""

import dataclasses
import itertools
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent.query import By, Column, DataSet, Kind
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.measure import plan
from reticent.query.rows import bins, snapshot, source

from ..unit.query.tables import BUDGET, RELATIONS, Coded, Pairs
from ..unit.query.test_measure import A_FEW, QUERIES, distance2, plans
from .running import MASTER

pytestmark = [
    pytest.mark.usefixtures("spark"),
    pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning"),  # ibis 12 and DuckDB 2
]

FORMS = list(zip(RELATIONS, itertools.cycle(("text", "typed")), strict=False))


class CodedBySpark(Coded):
    """All prepared tables, in a snapshot that Spark wrote."""

    engine = bins.SPARK

    def __init__(self, table):
        super().__init__(None, table.relation, table.names)
        self._table = table

    def _run(self, sql):
        return self._table.tally(sql)


def coded_by_spark(pairs, data, folder):
    pq.write_table(pairs.raw, folder / "pairs.parquet")
    rows = None if data.rows is None else pairs.raw.num_rows  # of all tables together
    declared = dataclasses.replace(data, rows=rows, source={"spark": MASTER, "parquet": "pairs.parquet"})
    snapshot.make(declared, folder, folder / "snapshot.parquet")
    return snapshot.open(folder / "snapshot.parquet", declared)


def furthest(vectors):
    return max(distance2(*both) for both in zip(vectors[::2], vectors[1::2], strict=True))


def check(relation, form, folder, names, size, seed):
    """Hold each vector against DuckDB's and each step against what is declared."""
    data, pairs = RELATIONS[relation].data(), Pairs(RELATIONS[relation], size, seed, form)
    by_duckdb, measured = pairs.coded(data), plans(data)
    with coded_by_spark(pairs, data, folder) as table:
        by_spark = CodedBySpark(table)
        for name in names:
            found = by_spark.vectors(measured[name], 2 * size)
            assert found == by_duckdb.vectors(measured[name], 2 * size), name
            assert furthest(found) <= measured[name].sensitivity ** 2, name


@pytest.mark.parametrize(("relation", "form"), [FORMS[0], FORMS[3]])
def test_no_neighbour_moves_further_than_declared(relation, form, tmp_path):
    check(relation, form, tmp_path, A_FEW, 100, 1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("pairs", [10_000])
@pytest.mark.parametrize(("relation", "form"), FORMS)
def test_no_neighbour_of_ten_thousand_moves_further_than_declared(relation, form, pairs, tmp_path):
    """A quarter of them for each relation; all kinds of questions about each."""
    check(relation, form, tmp_path, QUERIES, pairs // len(FORMS), 2)


# Planted


def planted(folder, query, relation="add or remove a person", prepared_as=None):
    """Whether some pair moves further than declared."""
    data, pairs = RELATIONS[relation].data(), Pairs(RELATIONS[relation], 200, 3)
    right = plan(resolve(query, data))
    with coded_by_spark(pairs, prepared_as or data, folder) as table:
        return furthest(CodedBySpark(table).vectors(right, 400)) > right.sensitivity**2


def test_a_planted_missing_bound_on_a_persons_rows_is_caught(tmp_path):
    unbounded = RELATIONS["add or remove a person"].data(contribution=100)
    assert planted(tmp_path, tree.histogram("group"), prepared_as=unbounded)


def test_planted_sums_in_64_bits_are_caught(tmp_path, monkeypatch):
    """Three squares of 2^31 are more than 2^63: the sum would begin again below zero."""
    asked = tree.variance("wide")
    assert not planted(tmp_path, asked, "add or remove a row")
    (tmp_path / "snapshot.parquet").rename(tmp_path / "old")
    monkeypatch.setattr(bins, "summed", lambda number, largest, engine: f"SUM({number})")
    assert planted(tmp_path, asked, "add or remove a row")


# Groups with many cuts, on the snapshot's small integers


def test_many_cuts_are_bisected_alike(tmp_path):
    """Cuts on no line, more than are compared one after the other: 300, of a column and of a small one."""
    rng = random.Random(7)
    cuts = sorted(rng.sample(range(-9_999, 10_000), 300))
    column = Column("x", Kind.INTEGER, -10_000, 10_000)
    some = [*range(-10_000, 10_001, 7), *cuts, *(cut - 1 for cut in cuts)]
    cells = rng.choices(some, k=5_000)
    pq.write_table(pa.table({"x": cells}), tmp_path / "rows.parquet")
    data = DataSet("d", "1", (column,), BUDGET, rows=5_000)
    asked = plan(resolve(tree.count(by=By("x", edges=tuple(cuts))), data))
    found = []
    for given in ({"parquet": "rows.parquet"}, {"spark": MASTER, "parquet": "rows.parquet"}):
        with source.connect(dataclasses.replace(data, source=given), tmp_path) as table:
            assert "cuts0" in bins.numbered(asked.question.by, data, table)[0]
            found.append(asked.vector(table))
    assert found[0] == found[1]
    assert sum(found[0]) == 5_000 << asked.shift
