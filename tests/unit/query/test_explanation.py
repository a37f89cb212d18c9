"""The sentences: nothing that an owner must know is left out."""

import dataclasses
import math
from statistics import NormalDist

import pytest

from reticent.privacy import Budget, Neighbours
from reticent.query.declarations.datasets import DataSet, Policy
from reticent.query.declarations.explanation import explain
from reticent.query.rows.columns import Column, Kind

COLUMNS = (
    Column("income", Kind.NUMBER, -10_000, 1_000_000, 0.5, missing=0),
    Column("age", Kind.INTEGER, 0, 120),
    Column("race", Kind.CATEGORY, values=tuple("abcdefg"), missing="c"),
    Column("citizen", Kind.BOOLEAN),
)
ROWS = DataSet("census", "1", COLUMNS, Budget(8, 1e-3), rows=5000)
PERSONS = DataSet(
    "trips", "2", COLUMNS, Budget(1, 1e-6), Neighbours.ADD_REMOVE_ONE, person="who", contribution=3
)


@pytest.mark.parametrize(
    "sentence",
    [
        "Protected: each single row. The answers look almost the same with one row exchanged for any other.",
        "Against: anybody who sees every answer and knows all the other rows.",
        "Public: this declaration, the number of rows (5,000), and every answer that you publish.",
        "Budget: epsilon 8 at delta 0.001, for ever, over all questions, askers and versions.",
        "gets the best answer there is, free.",
        "income: -10,000 to 1,000,000 in steps of 0.5; a value outside is moved to the nearer end, "
        "and what is missing or no number counts as 0.",
        "age: 0 to 120 in whole numbers; a value outside is moved to the nearer end, "
        "and what is missing or no number counts as 60, the middle: what it counts as (missing) is not "
        "declared.",
        "race: one of 7 categories (a, b, c, d, e, ...); anything else counts as c.",
        "citizen: true or false; anything else counts as false.",
        "Weaker than it sounds: a person with several rows is not protected as a person",
        "chosen after looking at the rows",
        "the same people in another data set",
        "epsilon 8 is much",
        "delta 0.001 is more than one in 5,000 rows",
    ],
)
def test_rows(sentence):
    assert sum(sentence in line for line in explain(ROWS)) == 1


def test_persons():
    text = "\n".join(explain(PERSONS))
    assert "each person, told apart by who, with at most 3 rows" in text
    assert "with one person taken out or added" in text
    assert "Rows do not count where that says nobody" in text
    assert "the number of rows" not in text
    assert "several rows is not protected" not in text
    assert "is much" not in text


def test_policies():
    assert "a price tier, no protection" in "\n".join(
        explain(dataclasses.replace(ROWS, policy=Policy.DEGRADE))
    )


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1, 1e-6), (8, 1e-4)])
def test_how_often_the_best_guess_is_right(epsilon, delta):
    """The best test of two neighbours after the whole budget: Phi(mu / 2), rounded up."""
    data = dataclasses.replace(ROWS, budget=Budget(epsilon, delta))
    (line,) = [one for one in explain(data) if one.startswith("Budget")]
    said = float(line.split("is right at most ")[1].split(" %")[0])
    exact = 100 * NormalDist().cdf(math.sqrt(data.budget.mu2_cap / 1e12) / 2)
    assert exact <= said < exact + 0.1
