"""Questions: what is measured for which query, in which cells, and under which key."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from fractions import Fraction

import pytest

from reticent.errors import ParameterError
from reticent.privacy import Budget, Neighbours
from reticent.query.declarations.datasets import DataSet
from reticent.query.kinds.listed import Measured
from reticent.query.language import tree
from reticent.query.language.conditions import Among, resolve_condition
from reticent.query.language.questions import MOST_VALUES, Grouping, resolve
from reticent.query.language.tree import By, Comparison, Query
from reticent.query.rows.columns import Column, Kind

COLUMNS = (
    Column("age", Kind.INTEGER, 0, 120),
    Column("income", Kind.NUMBER, -1.0, 1.0, 0.1),
    Column("sex", Kind.CATEGORY, values=("f", "m", "x")),
    Column("citizen", Kind.BOOLEAN),
    Column("code", Kind.CATEGORY, values=tuple(f"v{i}" for i in range(10_000))),
)
ROWS = DataSet("census", "1", COLUMNS, Budget(1.0, 1e-6), rows=100)
OPEN = DataSet("census", "1", COLUMNS, Budget(1.0, 1e-6), Neighbours.ADD_REMOVE_ONE)
PERSONS = DataSet("census", "1", COLUMNS, Budget(1.0, 1e-6), person="id", contribution=3)
AGE = Comparison("age", ">=", 40)
SEX = Comparison("sex", "=", "f")


# What is measured


@pytest.mark.parametrize(
    ("asked", "counted", "uncounted"),
    [
        (tree.count(), "count", "count"),
        (tree.count(where=AGE), "count", "count"),
        (tree.histogram("sex"), "count", "count"),
        (tree.median("age"), "count", "count"),
        (tree.total("income"), "sum", "sum"),
        (tree.total("income", where=AGE), "sum", "sum"),
        (tree.mean("income"), "sum", "mean"),
        (tree.mean("income", where="age >= 0"), "sum", "mean"),  # which is all rows
        (tree.mean("income", where=AGE), "mean", "mean"),
        (tree.mean("income", by="sex"), "mean", "mean"),
        (tree.proportion(AGE), "count", "share"),
        (tree.proportion(AGE, where=SEX), "share", "share"),
        (tree.proportion(AGE, by="sex"), "share", "share"),
        (tree.variance("citizen"), "squares", "variance"),
        (tree.variance("citizen", where=AGE), "variance", "variance"),
        (tree.variance("citizen", by="sex"), "variance", "variance"),
    ],
)
def test_what_is_measured(asked, counted, uncounted):
    assert resolve(asked, ROWS).measured is Measured(counted)
    assert resolve(asked, OPEN).measured is Measured(uncounted)
    assert resolve(asked, PERSONS).measured is Measured(uncounted)


def test_counts_have_no_column_and_only_shares_an_of():
    age = resolve_condition(AGE, ROWS)
    question = resolve(tree.proportion(AGE), ROWS)
    assert (question.column, question.of, question.where) == (None, True, age)
    question = resolve(tree.proportion(AGE, where=SEX), ROWS)
    assert question.column is None
    assert question.of == resolve_condition(tree.And((AGE, SEX)), ROWS)
    assert question.where == Among("sex", ((0, 0),))
    question = resolve(tree.median("age"), ROWS)
    assert (question.column, question.of, question.where) == (None, True, True)
    question = resolve(tree.mean("income", where=AGE), ROWS)
    assert (question.column, question.of, question.where) == ("income", True, age)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (tree.mean("income"), tree.total("income")),
        (tree.proportion(AGE), tree.count(where=AGE)),
        (tree.median("age", bins=10), tree.histogram(By("age", bins=10))),
        (tree.quantile("age", [0.1, 0.9], bins=[20, 40]), tree.count(by=By("age", edges=(20.0, 39.5)))),
        (tree.histogram(["sex", "citizen"]), tree.count(by=["citizen", "sex"])),
        (tree.median("age", bins=121), tree.median("age", bins=65536)),
        (tree.proportion(AGE, where=SEX), tree.proportion(tree.And((SEX, AGE)), where="sex = 'f' and true")),
    ],
)
def test_queries_that_share_a_measurement(one, other):
    assert resolve(one, ROWS).key == resolve(other, ROWS).key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (tree.mean("income", where=AGE), tree.total("income", where=AGE)),
        (tree.proportion(AGE, where=SEX), tree.proportion(SEX, where=AGE)),
        (tree.proportion(AGE, where=SEX), tree.count(where=tree.And((AGE, SEX)))),
        (tree.median("age", bins=10), tree.median("age", bins=11)),
        (tree.histogram("sex"), tree.histogram("citizen")),
        (tree.total("income"), tree.total("age")),
        (tree.count(), tree.count(where=AGE)),
        (tree.variance("age"), tree.total("age")),
    ],
)
def test_queries_that_do_not(one, other):
    assert resolve(one, ROWS).key != resolve(other, ROWS).key


# The text


def test_the_text_says_everything_and_the_key_is_its_hash():
    question = resolve(tree.mean("income", where=AGE, by=["sex"]), PERSONS)
    said = json.loads(question.text)
    digest = said["unit"].pop("columns")
    assert len(digest) == 64
    assert said == {
        "form": 1,
        "measured": "mean",
        "column": "income",
        "of": True,
        "where": {"column": "age", "in": [[40, 120]]},
        "by": [{"column": "sex", "cuts": None}],
        "columns": [PERSONS.column(name).declaration() for name in ("age", "income", "sex")],
        "relation": "replace one",
        "unit": {"person": "id", "rows": 3},
        "data": "census",
        "version": "1",
    }
    assert question.text == json.dumps(json.loads(question.text), sort_keys=True, separators=(",", ":"))
    assert question.key == f"mean/{hashlib.sha256(question.text.encode()).hexdigest()}"
    assert json.loads(resolve(tree.count(), ROWS).text)["unit"] == "row"


def changed(data, at, **changes):
    columns = list(data.columns)
    columns[at] = dataclasses.replace(columns[at], **changes)
    return dataclasses.replace(data, columns=tuple(columns))


def test_every_declaration_that_decides_the_answer_changes_the_key():
    asked = tree.total("income", where=AGE, by="sex")
    for data in (ROWS, PERSONS):
        others = [
            data,
            dataclasses.replace(data, name="other"),
            dataclasses.replace(data, version="2"),
            changed(data, 0, high=121),
            changed(data, 0, missing=3),
            changed(data, 1, low=-2.0),
            changed(data, 1, step=0.2),
            changed(data, 1, missing=0.5),
            changed(data, 2, values=("m", "f", "x")),
            changed(data, 2, missing="f"),
        ]
        assert len({resolve(asked, one).key for one in others}) == len(others)
    others = [ROWS, OPEN, PERSONS, dataclasses.replace(PERSONS, contribution=2),
              dataclasses.replace(PERSONS, person="who")]  # fmt: skip
    assert len({resolve(asked, one).key for one in others}) == len(others)


def test_columns_that_are_not_read_matter_only_where_they_choose_the_rows_of_a_person():
    asked = tree.total("income")
    assert resolve(asked, ROWS).key == resolve(asked, changed(ROWS, 0, high=121)).key
    assert resolve(asked, PERSONS).key != resolve(asked, changed(PERSONS, 0, high=121)).key
    turned = dataclasses.replace(PERSONS, columns=PERSONS.columns[::-1])
    assert resolve(asked, PERSONS).key != resolve(asked, turned).key


def test_the_public_number_of_rows_the_budget_and_the_source_do_not():
    asked = tree.mean("income")
    same = dataclasses.replace(ROWS, rows=101, budget=Budget(2.0, 1e-6), source={"csv": "x"})
    assert resolve(asked, ROWS).key == resolve(asked, same).key


# Cells


@pytest.mark.parametrize("name", ["age", "income"])
@pytest.mark.parametrize("bins", [2, 3, 7, 20, 21, 22, 120, 121, 122, 60_000])
def test_bins_are_as_equal_as_codes_allow(name, bins):
    column = ROWS.column(name)
    codes = range(column.first, column.last + 1)
    (grouping,) = resolve(tree.histogram(By(name, bins=bins)), ROWS).by
    assert grouping.cells == min(bins, len(codes)) == len(grouping.cuts) + 1
    sizes = [0] * grouping.cells
    for code in codes:
        cell = sum(cut <= code for cut in grouping.cuts)
        assert cell == (code - column.first) * grouping.cells // len(codes)
        sizes[cell] += 1
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) > 0


def test_edges_are_the_first_codes_at_or_above_them():
    edges = (-0.95, -0.9, 0.3, 0.31, 1.0)
    (grouping,) = resolve(tree.histogram(By("income", edges=edges[1:])), ROWS).by
    assert grouping == Grouping("income", (-9, 3, 4, 10), 5)
    for edge, cut in zip(edges[1:], grouping.cuts, strict=True):
        assert cut - 1 < Fraction(repr(edge)) * 10 <= cut


def test_categories_are_cells():
    question = resolve(tree.count(by=["sex", "citizen", By("age", bins=4)]), ROWS)
    assert question.by == (
        Grouping("age", (31, 61, 91), 4),
        Grouping("citizen", None, 2),
        Grouping("sex", None, 3),
    )
    assert question.cells == 24
    assert resolve(tree.count(), ROWS).cells == 1


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (tree.mean("size"), r"column must be one of age, .*, got 'size'"),
        (tree.mean("sex"), r"column must be a number or boolean for a mean, got 'sex', which is category"),
        (tree.count(by="size"), r"by.column must be one of age, .*, got 'size'"),
        (tree.count(by=["sex", "sex"]), r"by must name each column once, got 'sex' twice"),
        (tree.count(by="age"), r"by.edges or by.bins must be given for age, which is integer"),
        (tree.count(by=By("sex", bins=2)), r"by.bins must not be given for sex, which is category"),
        (
            tree.count(by=By("citizen", edges=(1.0,))),
            r"by.edges must not be given for citizen, which is boolean",
        ),
        (tree.median("citizen"), r"by.bins must not be given for citizen, which is boolean"),
        (tree.count(by=By("age", edges=(0.0,))), r"by.edges must be > 0.0 and <= 120.0, .* of age, got 0.0"),
        (tree.count(by=By("age", edges=(120.5,))), r"by.edges must be > 0.0 and <= 120.0, .* age, got 120.5"),
        (tree.count(by=By("income", edges=(1e300,))), r"by.edges must be > -1.0 and <= 1.0, .*, got 1e\+300"),
        (
            tree.count(by=By("age", edges=(3.2, 3.4))),
            r"by.edges must be at least a step of age apart, 1.0, got",
        ),
        (
            tree.count(by=["code", By("age", bins=7)]),
            r"by must make at most 65536 cells for a count, got 70000",
        ),
        (
            tree.variance("age", by=["code", "sex"]),
            r"by must make at most 21845 cells for a variance, got 30000",
        ),
        (tree.proportion("size = 1"), r"of.column must be one of age, .*, got 'size'"),
    ],
)
def test_refusals(asked, message):
    with pytest.raises(ParameterError, match=f"^{message}"):
        resolve(asked, ROWS)


def test_as_many_values_as_are_allowed():
    bits = tuple(Column(f"b{i}", Kind.BOOLEAN) for i in range(8))
    data = DataSet("d", "1", (*bits, Column("x", Kind.INTEGER, 0, 1000)), Budget(1.0, 1e-6), rows=1)
    asked = tree.count(by=[*(f"b{i}" for i in range(7)), By("x", bins=512)])
    assert resolve(asked, data).cells == MOST_VALUES
    with pytest.raises(ParameterError, match=r"at most 32768 cells for a mean, got 65536"):
        resolve(dataclasses.replace(asked, kind="mean", column="x"), data)


def test_values_of_a_cell():
    assert [one.values for one in Measured] == [1, 1, 2, 2, 2, 3]


def test_a_query_is_a_value():
    assert resolve(Query("count"), ROWS) == resolve(tree.count(), ROWS)


def test_a_cut_at_the_low_bound_cuts_nothing():
    """As WIDTH_BUCKET(age, 0, 40, 2) writes it: nothing is below the bound, so it is the question without."""
    given = resolve(tree.count(by=By("age", edges=(0.0, 20.0, 40.0))), ROWS)
    assert given == resolve(tree.count(by=By("age", edges=(20.0, 40.0))), ROWS)
    with pytest.raises(ParameterError, match=r"by.edges must be > 0.0"):
        resolve(tree.count(by=By("age", edges=(-1.0, 20.0))), ROWS)
