"""Texts are compared by their bytes, whatever the collation of a column says.

To a case-insensitive column "a" is "A". Compared so, cells that the declaration tells apart become one
category or one person, and which one depends on how the table was made.
"""

import contextlib
from pathlib import Path

import duckdb
import psycopg
import pytest

from reticent.errors import ParameterError
from reticent.privacy import Budget, Neighbours
from reticent.query.declarations.datasets import DataSet
from reticent.query.rows import source
from reticent.query.rows.columns import Column, Kind

CELLS = ["a", "A", "\u00e0", "b", "B", "nobody"]
FEW = ("a", "A", "b")
MANY = (*FEW, *(f"v{number}" for number in range(100)))  # joined, not branched
NUMBERS = ("1", "2", *(f"n{number}" for number in range(100)))


def data_set(where, values=FEW, person=None, **options):
    return DataSet(
        "rows",
        "1",
        (Column("cell", Kind.CATEGORY, values=(*values, "other"), missing="other"),),
        Budget(1.0, 1e-6),
        Neighbours.ADD_REMOVE_ONE,
        person=person,
        source=where,
        **options,
    )


@pytest.fixture(scope="module")
def insensitive(icu_server):
    """A table in PostgreSQL whose texts have a nondeterministic collation: letters alone count."""
    with psycopg.connect(icu_server, autocommit=True) as connection:
        connection.execute(
            "CREATE COLLATION letters (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
        )
        connection.execute(
            'CREATE TABLE collated (cell text COLLATE letters, "per""son" text COLLATE letters)'
        )
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO collated VALUES (%s, %s)", [(one, one) for one in CELLS])
        connection.execute("CREATE VIEW collated_view AS SELECT * FROM collated")
        found = connection.execute("SELECT count(*) FROM collated WHERE cell = 'a'").fetchone()
        assert found == (3,), "the collation does what is feared"
    return icu_server


@pytest.fixture
def nocase(tmp_path):
    """The same in DuckDB."""
    path = tmp_path / "rows.duckdb"
    with contextlib.closing(duckdb.connect(str(path))) as connection:
        kind = "VARCHAR COLLATE NOCASE.NOACCENT"
        connection.execute(f'CREATE TABLE collated (cell {kind}, "per""son" {kind})')
        connection.executemany("INSERT INTO collated VALUES (?, ?)", [(one, one) for one in CELLS])
        connection.execute("CREATE VIEW collated_view AS SELECT * FROM collated")
    return path


@pytest.fixture(params=["postgresql", "duckdb"])
def where(request):
    """Where the rows are, by the name of the table."""
    if request.param == "postgresql":
        server = request.getfixturevalue("insensitive")
        return lambda table: {"url": server, "table": table}
    path = request.getfixturevalue("nocase")
    return lambda table: {"duckdb": str(path), "table": table}


def counts(data):
    with source.connect(data, Path(data.source.get("duckdb", ".")).parent) as table:
        code = table.names["cell"]
        found = table.tally(f"SELECT {code}, count(*) FROM {table.relation} GROUP BY {code} ORDER BY {code}")
    names = data.columns[0].values
    return {names[code]: count for code, count in found}


EXPECTED = {"a": 1, "A": 1, "b": 1, "other": 3}


@pytest.mark.parametrize("table", ["collated", "collated_view"])
@pytest.mark.parametrize("values", [FEW, MANY], ids=["branched", "joined"])
def test_categories_are_compared_by_their_bytes(where, table, values):
    assert counts(data_set(where(table), values)) == EXPECTED


def test_people_are_told_apart_by_their_bytes(where):
    assert counts(data_set(where("collated"), FEW, person='per"son')) == EXPECTED


def test_a_collated_column_may_say_numbers(where):
    """Regular expressions fail on a nondeterministic collation: such a column could not be asked at all."""
    assert counts(data_set(where("collated"), NUMBERS)) == {"other": len(CELLS)}


@pytest.mark.parametrize("values", [FEW, MANY], ids=["branched", "joined"])
def test_planted_collations_of_the_column_make_others_equal(where, values, monkeypatch):
    monkeypatch.setattr(source, "_by_bytes", lambda engine, table, place, texts: table)
    assert counts(data_set(where("collated"), values)) != EXPECTED


def test_planted_collations_make_one_person_of_three(where, monkeypatch):
    monkeypatch.setattr(source, "_by_bytes", lambda engine, table, place, texts: table)
    try:
        found = counts(data_set(where("collated"), FEW, person='per"son'))
    except source.SourceError:
        return  # a regular expression failed
    assert sum(found.values()) == 3


def persons_in_latin(server):
    """How many people are told apart in a database that cannot hold all letters."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    address = server.replace("/postgres?", "/latin?")
    try:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("CREATE TABLE collated (cell text, person text)")
            connection.execute("INSERT INTO collated VALUES ('a', 'a'), ('b', 'b')")
        return counts(data_set({"url": address, "table": "collated"}, FEW, person="person"))
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("DROP DATABASE latin WITH (FORCE)")


def test_a_database_in_another_encoding_is_refused_by_name(server):
    """It failed at each question about people, after the charge: our letters are none of its own."""
    with pytest.raises(ParameterError, match=r"must lead to a database in UTF8, got 'LATIN1'"):
        persons_in_latin(server)


def test_planted_a_database_that_nobody_looks_at_cannot_be_read(server, monkeypatch):
    monkeypatch.setattr(source, "_check_server", lambda engine: None)
    with pytest.raises(source.SourceError, match="the data cannot be read"):
        persons_in_latin(server)
