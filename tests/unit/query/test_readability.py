"""The share of cells that cannot be read: bought like every answer, and what answers say until it was."""

from __future__ import annotations

import dataclasses

import pytest

import reticent
from reticent.apps.query import dataset_work
from reticent.errors import ParameterError
from reticent.ledger import MemoryLedger
from reticent.privacy import Budget, Neighbours
from reticent.query import Session, readability, telling
from reticent.query.declarations import dataset_file
from reticent.query.declarations.datasets import DataSet
from reticent.query.language import tree
from reticent.query.language.questions import parse, resolve
from reticent.query.measure import plan
from reticent.query.readability import checked_columns, unreadable_share
from reticent.query.rows import source
from reticent.query.rows.columns import Column, Kind
from reticent.randomness import SimulationStream

DECLARED = """\
name: visits
version: 1
format: 2
source: visits.csv
unit: row
relation: replace one
rows: 1000
budget: {epsilon: 8, delta: 1e-4}
columns:
  age: {type: integer, low: 0, high: 120, missing: 0}
  seen: {type: integer, low: 0, high: 30000, missing: 0}
  sick: {type: boolean, missing: false}
  ward: {type: category, values: [a, b]}
"""
ROWS = ["30,2026-01-02,yes,a", "word,2026-01-03,no,b", ",n/a,perhaps,c", "41,20000,1,a"] * 250
UNREADABLE = {"age": 0.25, "seen": 0.25, "sick": 0.25}
UNKNOWN = "cannot be read is not known"


@pytest.fixture
def declaration(tmp_path):
    path = tmp_path / "visits.yaml"
    path.write_text(DECLARED, encoding="utf-8")
    (tmp_path / "visits.csv").write_text("\n".join(["age,seen,sick,ward", *ROWS, ""]), encoding="utf-8")
    return path


def session_of(declaration, ledger=None):
    data = dataset_file.read(declaration)
    rows = source.connect(data, declaration.parent)
    return Session(data, rows, ledger or MemoryLedger(), rng=SimulationStream(3))


def test_answers_carry_a_note_until_the_share_is_bought(declaration):
    with session_of(declaration) as session:
        for query in (tree.mean("age"), tree.count(where="seen > 5 and sick"), tree.mean("age", by="ward")):
            (note,) = session.ask(query, information=1e-3).notes
            assert UNKNOWN in note
        assert session.ask(tree.count(by="ward"), information=1e-3).notes == ()
        for column in checked_columns(session.data):
            answer = session.ask(unreadable_share(column), information=0.05, reuse="key")
            assert answer.cost > 0
            off = abs(answer.value - UNREADABLE[column.name])
            assert off < 6.2 * answer.standard_error, "seeded; else at most 1e-9 of the time"
            again = session.ask(unreadable_share(column), information=0.05, reuse="key")
            assert (again.cost, again.value) == (0, answer.value)
        notes = session.ask(tree.count(where="seen > 5 and sick"), information=1e-3).notes
        assert len(notes) == 2
        assert not any(UNKNOWN in note for note in notes)
        assert all(" of the cells of " in note for note in notes), "what was found to be unreadable is said"


def note_of_one_column(share):
    data = DataSet("d", "1", (Column("age", Kind.INTEGER, 0, 120),), Budget(1, 1e-6), rows=5, format=2)
    return readability.readability_notes(resolve(tree.mean("age"), data), lambda column: share)


def test_a_share_that_is_hardly_known_keeps_its_note():
    """A purchase of little worth, whose interval begins at 0, shows nothing about the cells."""
    for share in ((0.0, 0.0, 1.0), (0.25, 0.0, 0.6), (0.0, 0.0, 0.02)):
        (note,) = note_of_one_column(share)
        assert note.startswith(f"up to {100 * share[2]:.3g} % of the cells of age cannot be read")
    (note,) = note_of_one_column((0.25, 0.2, 0.3))
    assert note.startswith("about 25 % (20 to 30 %) of the cells of age cannot be read")
    assert note_of_one_column((0.001, 0.0, 0.009)) == ()


def test_planted_silence_about_a_share_that_is_hardly_known_is_caught(monkeypatch):
    """Planted: the rule that an interval which begins at 0 needs no note."""
    monkeypatch.setattr(readability, "_is_negligible", lambda share: share[1] <= 0)
    with pytest.raises(ValueError, match="not enough values to unpack"):
        test_a_share_that_is_hardly_known_keeps_its_note()


def test_what_is_not_known_is_said_beside_many_shares():
    columns = tuple(Column(f"n{number}", Kind.INTEGER, 0, 9) for number in range(8))
    data = DataSet("d", "1", columns, Budget(1, 1e-6), rows=5, format=2)
    question = resolve(tree.count(where=" and ".join(f"{column.name} > 1" for column in columns)), data)
    share = (0.25, 0.2, 0.3)
    notes = readability.readability_notes(question, lambda column: None if column.name == "n7" else share)
    assert "cells of n7 cannot be read is not known" in notes[0]


def test_planted_answers_without_the_note_are_caught(declaration, monkeypatch):
    monkeypatch.setattr(telling, "readability_notes", lambda question, bought_share: ())
    with pytest.raises(ValueError, match="not enough values to unpack"):
        test_answers_carry_a_note_until_the_share_is_bought(declaration)


@pytest.mark.parametrize("relation", [Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE_ONE])
@pytest.mark.parametrize("bound", [None, 1, 7])
def test_the_sensitivity_is_that_of_a_count_or_share_of_rows(relation, bound):
    """As for a declared boolean: the bound on the rows of a person is in it."""
    columns = (Column("age", Kind.INTEGER, 0, 120), Column("flag", Kind.BOOLEAN))
    whole = relation is Neighbours.REPLACE_ONE and bound is None
    data = DataSet("d", "1", columns, Budget(1, 1e-6), relation, rows=50 if whole else None, format=2,
                   person=None if bound is None else "who", contribution=bound or 1)  # fmt: skip
    asked, flagged = (resolve(one, data) for one in (unreadable_share(columns[0]), tree.proportion("flag")))
    assert plan(asked).sensitivity == plan(flagged).sensitivity
    assert asked.key != flagged.key
    assert parse(asked.text, data) == asked


def test_a_declared_column_cannot_take_the_name():
    column, other = Column("age", Kind.INTEGER, 0, 120), Column("unreadable age", Kind.BOOLEAN)
    DataSet("d", "1", (column, other), Budget(1, 1e-6), rows=5)
    with pytest.raises(ParameterError, match=r"columns.unreadable age must have another name"):
        DataSet("d", "1", (column, other), Budget(1, 1e-6), rows=5, format=2)


# The command


def test_check_buys_once_and_tells_nothing_for_free(declaration, capsys):
    dataset_work.check(declaration)
    assert "% of the cells" not in capsys.readouterr().out
    dataset_work.check(declaration, spend="0.6%")
    told = " ".join(capsys.readouterr().out.split())
    assert all(f"- {name}: " in told for name in UNREADABLE)
    assert told.count("% of the cells cannot be read (") == len(UNREADABLE)
    with reticent.open(declaration) as session:
        spent = session.balance().spent
    cap = dataset_file.read(declaration).terms.cap
    assert 0 < spent <= 0.006 * cap
    dataset_work.check(declaration, spend="0.6 %")
    assert "for 0 % of the budget" in " ".join(capsys.readouterr().out.split())
    with reticent.open(declaration) as session:
        assert session.balance().spent == spent


@pytest.mark.parametrize("spend", ["0", "0%", "-1%", "101%", "x", "1e-3", "%", "nan", "0.1%%"])
def test_spend_is_a_percentage(declaration, spend):
    with pytest.raises(ParameterError, match="spend must be more than 0% and at most 100%"):
        dataset_work.check(declaration, spend=spend)


def test_spend_below_the_minimal_cost_of_its_questions_is_refused(declaration):
    """It was charged the minimal cost for each column: 0.0003 % where 0.0002 % was said."""
    with pytest.raises(
        ParameterError, match=r"spend must be at least 0\.000[0-9]+%, got 0\.0002%: each of 3"
    ):
        dataset_work.check(declaration, spend="0.0002%")
    dataset_work.check(declaration, spend="0.0004%")
    with reticent.open(declaration) as session:
        assert 0 < session.balance().spent <= 0.000004 * session.data.terms.cap


def test_planted_spend_without_the_minimal_cost_is_caught(declaration, monkeypatch):
    """Planted: terms without a minimal cost, as far as the command looks at them."""
    buy = dataset_work._buy_readability

    def buy_unchecked(path, data, part):
        terms = dataclasses.replace(data.terms, minimum=1)
        vars(data)["terms"] = terms  # cached
        buy(path, data, part)

    monkeypatch.setattr(dataset_work, "_buy_readability", buy_unchecked)
    dataset_work.check(declaration, spend="0.0002%")
    with reticent.open(declaration) as session:
        assert session.balance().spent > 0.000002 * session.data.terms.cap


def test_format_1_is_told_what_would_change(declaration, capsys):
    declaration.write_text(DECLARED.replace("format: 2\n", ""), encoding="utf-8")
    dataset_work.check(declaration)
    assert "`format: 2` in the file adopts it" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(ParameterError, match="spend must be left out for format 1"):
        dataset_work.check(declaration, spend="0.1%")


def test_a_typed_source_needs_no_check(declaration):
    data = dataset_file.read(declaration)
    typed = dataclasses.replace(data, source={"parquet": "visits.parquet"})
    assert checked_columns(typed) == ()
    assert [column.name for column in checked_columns(data)] == list(UNREADABLE)
