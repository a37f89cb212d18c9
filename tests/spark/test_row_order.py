"""T4 on Spark for the rows of a person that count: by that person's rows alone, and the same as on DuckDB."""

import collections

import numpy as np
import pytest

from reticent.privacy import Neighbours
from reticent.query.rows import source

from ..unit.query import test_row_order as shared
from .running import MASTER

pytestmark = [
    pytest.mark.usefixtures("spark"),
    pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning"),  # ibis 12 and DuckDB 2
]


def kept_rows(rows, engine, folder, server=None, *, key=shared.KEY, **declaration):
    """The rows that count, as a multiset of codes."""
    given = {"spark": MASTER, **shared.write_parquet(shared.columns_of(rows), folder)}
    with source.connect(shared.declared(given, **declaration), folder, order_key=key) as table:
        listed = ", ".join(table.names.values())
        return collections.Counter(table.tally(f"SELECT {listed} FROM {table.relation}"))


@pytest.mark.parametrize("relation", list(Neighbours)[:2])
def test_no_person_moves_the_rows_of_others(relation, tmp_path, monkeypatch):
    monkeypatch.setattr(shared, "kept_rows", kept_rows)
    shared.check_neighbours("spark", tmp_path, relation=relation)


def test_spark_keeps_the_rows_that_duckdb_keeps(tmp_path):
    rng = np.random.default_rng(3)
    rows = [row for person in range(60) for row in shared.random_rows(rng, person)]
    by_duckdb = shared.kept_rows(rows, "frame", tmp_path)
    assert kept_rows(rows, "spark", tmp_path) == by_duckdb
    assert kept_rows(rows, "spark", tmp_path, key="00" * 32) != by_duckdb  # planted: another key
