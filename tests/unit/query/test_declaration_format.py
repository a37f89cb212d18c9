"""Formats of declarations: what was declared before keeps its meaning, and two meanings never meet."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from reticent.errors import ParameterError
from reticent.ledger import MemoryLedger
from reticent.query import Session
from reticent.query.declarations import dataset_file
from reticent.query.language import questions, tree
from reticent.query.language.questions import parse, resolve
from reticent.query.opening import snapshot_path
from reticent.query.rows import snapshot, source
from reticent.randomness import SimulationStream

ROWS = """\
name: census
version: 1
source: census.csv
unit: row
relation: replace one
rows: 5000
budget: {epsilon: 8, delta: 1e-4}
columns:
  income: {type: number, low: -10000, high: 1000000, step: 1, missing: 0}
  age: {type: integer, low: 0, high: 120}
  race: {type: category, values: [white, black, asian]}
  citizen: {type: boolean}
"""
PERSONS = ROWS.replace("unit: row", "unit: {person: id, rows: 3}").replace("rows: 5000\n", "")
QUERIES = {
    "count": tree.count(where="age >= 18"),
    "mean": tree.mean("income"),
    "table": tree.count(by="race"),
    "share": tree.proportion("citizen"),
    "median": tree.median("age"),
}
# Pinned before there was a second format: ledgers of earlier releases hold purchases under these keys.
KEYS = {
    ROWS: {
        "count": "count/8c6cab28e61a7a62f5648fc3b0c1485cd97234f5a53e1601f9008e99c07b2000",
        "mean": "sum/60f9e7e486735d5d30abcdbcabe7ab56b44a1f0882cc21e7c2e2baca18318001",
        "table": "count/0a81bce7d454584a20c3e171fd9215598b5440f6dfe43c0ddd426bda157d9134",
        "share": "count/149df22e3df01f409ff340c61cd3339279051dcf8072bc33dc52200428b284e9",
        "median": "count/274cc5dfa6d1f186e6ae0ca47db948fa8162e4851e9affca54cc1bac3c9ceac8",
    },
    PERSONS: {
        "count": "count/b43c7989eb7c9c14c7f1bef3abb60e40eb711fc27bcb1073f01e7629ff7ac879",
        "mean": "mean/827dff5f2889f23bca808123a9dcbe932f0daf4e4b7d5acb8a0fdf42e95bf6e1",
        "table": "count/cca4c0eecc989b78990ad55dc2dfd6c4517caeb497d36c0c5ab18864d48256b1",
        "share": "share/2348445890daa80192497c97aae8d8122681e92b7f48406ebce0fe42a5a6bfec",
        "median": "count/caaf90dcce249f6653c67d40703e57371ba502fedc948fae154a403f522606f2",
    },
}
SNAPSHOTS = {
    ROWS: "d5314a0ecf9e0c96cbb353338f8d4fbf3d224ac236360e56ced23fcdd15d5c69",
    PERSONS: "62fc4d61fe4b34d196a9538348c78af7d5fd5b80787b937e5701901fd3f470c8",
}
WRITTEN = {
    ROWS: "9ff5867177c2040a5b061a671ee0f3cfb38add464622da4335217ff1c3bdd9b0",
    PERSONS: "e4ee148705e444e4e53b915f7728a2ae88bbb8e178c66cb1bdd9edd48b5d27ba",
}
BOTH = pytest.mark.parametrize("text", [ROWS, PERSONS], ids=["rows", "persons"])


def in_format(text: str, number: object) -> str:
    return text.replace("version: 1\n", f"version: 1\nformat: {number}\n")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# The first format, to the letter


@BOTH
@pytest.mark.parametrize("says", [False, True], ids=["left out", "said"])
def test_the_first_format_keeps_its_keys_and_stored_bytes(text, says):
    data = dataset_file.parse(in_format(text, 1) if says else text)
    assert data.format == 1
    assert {name: resolve(query, data).key for name, query in QUERIES.items()} == KEYS[text]
    assert digest(json.dumps(snapshot.declaration(data), sort_keys=True)) == SNAPSHOTS[text]
    assert digest(dataset_file.write(data)) == WRITTEN[text]
    assert snapshot_path(Path("census.yaml"), data).name == "snapshot-1.duckdb"


# The second


@BOTH
def test_no_key_of_the_second_format_is_one_of_the_first(text):
    data = dataset_file.parse(in_format(text, 2))
    assert data.format == 2
    assert data.terms == dataset_file.parse(text).terms, "the account and its cap stay"
    for name, query in QUERIES.items():
        question = resolve(query, data)
        assert question.key != KEYS[text][name]
        assert json.loads(question.text)["format"] == 2
        assert parse(question.text, data) == question
    assert dataset_file.parse(dataset_file.write(data)) == data
    assert "format: 2\n" in dataset_file.write(data)


@BOTH
def test_a_text_of_one_format_is_no_question_of_the_other(text):
    first, second = dataset_file.parse(text), dataset_file.parse(in_format(text, 2))
    for query in QUERIES.values():
        with pytest.raises(ParameterError, match="question must be an object with"):
            parse(resolve(query, first).text, second)
        with pytest.raises(ParameterError, match="question must be an object with"):
            parse(resolve(query, second).text, first)


@pytest.mark.parametrize("number", ["0", "3", "2.0", "two", "-1", "[2]", "99999999999999999999"])
def test_other_formats_are_refused_with_field_rule_and_value(number):
    with pytest.raises((ParameterError, TypeError), match=r"^format must be "):
        dataset_file.parse(in_format(ROWS, number))


def test_a_format_in_python_is_a_whole_number_that_is_known():
    data = dataset_file.parse(ROWS)
    for number in (0, 3, 2.0, "2", True, None):
        with pytest.raises(ParameterError, match="format must be 1 or 2, got"):
            dataclasses.replace(data, format=number)


# Two formats, one account

SMALL = """\
name: small
version: 1
source: small.csv
unit: row
relation: replace one
rows: 60
budget: {epsilon: 8, delta: 1e-4}
columns:
  age: {type: integer, low: 0, high: 120}
  sex: {type: boolean}
"""
ASKED = (tree.count(by="sex"), tree.count(where="sex"), tree.mean("age"), tree.count(where="age > 30"))


def charges_across_formats(folder) -> list[int]:
    """Ask the same in both formats on one account; return what the second format was charged for each."""
    (folder / "small.csv").write_text("age,sex\n" + "30,true\n40,false\n" * 30, encoding="utf-8")
    ledger, charges = MemoryLedger(), []
    for number in (1, 2):
        data = dataset_file.parse(in_format(SMALL, number))
        session = Session(data, source.connect(data, folder), ledger, rng=SimulationStream(7))
        charges = [session.ask(query, information=1e-3).cost for query in ASKED]
        session.close(ledger=False)
    assert len(ledger.accounts()) == 1
    return charges


def test_nothing_is_reused_across_formats(tmp_path):
    charges = charges_across_formats(tmp_path)
    first = dataset_file.parse(SMALL)
    table = source.connect(first, tmp_path)
    alone = Session(first, table, MemoryLedger(), rng=SimulationStream(7))
    expected = [alone.ask(query, information=1e-3).cost for query in ASKED]
    alone.close()
    assert expected[0] > 0
    assert charges == expected, "as if the other format had bought nothing"


def test_planted_keys_without_the_format_are_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(questions, "_format_field", lambda data: {})
    assert set(charges_across_formats(tmp_path)) == {0}, "everything was reused"


def test_a_snapshot_of_one_format_is_none_of_the_other(tmp_path):
    (tmp_path / "small.csv").write_text("age,sex\n" + "30,true\n40,false\n" * 30, encoding="utf-8")
    declared = [dataset_file.parse(in_format(SMALL, number)) for number in (1, 2)]
    paths = [snapshot_path(tmp_path / "small.yaml", data) for data in declared]
    assert len(set(paths)) == 2
    paths[0].parent.mkdir()
    for data, path, other in zip(declared, paths, reversed(declared), strict=True):
        snapshot.make(data, tmp_path, path)
        snapshot.open(path, data).close()
        with pytest.raises(ParameterError, match="has another cells: make it anew"):
            snapshot.open(path, other)


# Fields of columns are read by the rules of their format


def declare_races(race: str) -> str:
    declared = "race: {type: category, values: [white, black, asian]}"
    assert declared in ROWS
    return in_format(ROWS.replace(declared, race), 2)


def test_an_empty_cell_may_be_declared_as_other_without_declaring_other():
    text = declare_races("race: {type: category, values: [white, black], missing: other}")
    race = dataset_file.parse(text).column("race")
    assert (race.values, race.missing) == (("white", "black", "other"), "other")


def test_a_declaration_with_most_categories_is_read_again_as_it_was_written():
    values = ", ".join(f"v{number}" for number in range(10_000))
    data = dataset_file.parse(declare_races(f"race: {{type: category, values: [{values}]}}"))
    assert dataset_file.parse(dataset_file.write(data)) == data


def test_the_first_format_has_no_other():
    text = ROWS.replace("values: [white, black, asian]", "values: [white, black], missing: other")
    with pytest.raises(ParameterError, match="missing must be one of its values, got 'other'"):
        dataset_file.parse(text)


def test_control_columns_read_by_the_rules_of_the_first_format_refuse_other(monkeypatch):
    """Planted: columns that are made in format 1, and brought to the declaration's format afterwards."""
    read_column = dataset_file.column_of
    monkeypatch.setattr(dataset_file, "column_of", lambda name, fields, number: read_column(name, fields, 1))
    with pytest.raises(ParameterError, match="missing must be one of its values, got 'other'"):
        test_an_empty_cell_may_be_declared_as_other_without_declaring_other()
