"""Conditions: exact codes for every comparison, one form for every writing, and SQL that says the same."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise, product

import duckdb
import numpy as np
import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.privacy import Budget
from reticent.query.declarations.datasets import DataSet
from reticent.query.language.conditions import (
    All,
    Among,
    Any,
    both,
    columns_of,
    condition_from_json,
    condition_json,
    condition_sql,
    holds,
    resolve_condition,
)
from reticent.query.language.tree import OPERATORS, And, Comparison, In, Not, Or
from reticent.query.rows.columns import Column, Kind

from .random_queries import predicate, random_schema

DATA = DataSet(
    "census",
    "1",
    (
        Column("age", Kind.INTEGER, 0, 120),
        Column("income", Kind.NUMBER, -1.0, 1.0, 0.1),
        Column("sex", Kind.CATEGORY, values=("f", "m", "x")),
        Column("citizen", Kind.BOOLEAN),
    ),
    Budget(1.0, 1e-6),
    rows=100,
)


def resolved(given):
    return resolve_condition(given, DATA)


def compare(column, op, constant):
    return resolved(Comparison(column, op, constant))


AGE = Comparison("age", ">=", 40)
SEX = Comparison("sex", "=", "f")
CITIZEN = Comparison("citizen", "=", True)


# Comparisons


@pytest.mark.parametrize("name", ["age", "income"])
def test_every_comparison_with_a_number_is_exact(name):
    column = DATA.column(name)
    relation = {"=": Fraction.__eq__, "<": Fraction.__lt__, "<=": Fraction.__le__, ">": Fraction.__gt__,
                ">=": Fraction.__ge__, "!=": lambda a, b: a != b}  # fmt: skip
    codes = np.arange(column.first, column.last + 1)
    inside = [float(code * column.unit) for code in codes[:: codes.size // 20]]
    for op, base, shift in product(OPERATORS, [*inside, -5, 200, 1e300, -1e-300], (0.0, 0.05, -1e-9)):
        constant = base + shift
        exact = Fraction(repr(constant))
        wanted = [relation[op](code * column.unit, exact) for code in map(int, codes)]
        assert holds(compare(name, op, constant), {name: codes}).tolist() == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (AGE, Among("age", ((40, 120),))),
        (Comparison("age", ">", 39.5), Among("age", ((40, 120),))),
        (Comparison("age", "=", 39.5), False),
        (Comparison("age", "!=", 39.5), True),
        (Comparison("age", ">=", -5), True),
        (Comparison("age", ">", 120), False),
        (Comparison("age", "<=", 10**30), True),
        (Comparison("age", "!=", 3), Among("age", ((0, 2), (4, 120)))),
        (In("age", (3, 1, 2, 9, 9, 500)), Among("age", ((1, 3), (9, 9)))),
        (In("age", ()), False),
        (Comparison("income", "<", 0.3), Among("income", ((-10, 2),))),
        (Comparison("income", "<=", 0.3), Among("income", ((-10, 3),))),
        (Comparison("income", "=", 0.30000000000000004), False),
        (SEX, Among("sex", ((0, 0),))),
        (Comparison("sex", "!=", "m"), Among("sex", ((0, 0), (2, 2)))),
        (In("sex", ("f", "m", "x")), True),
        (CITIZEN, Among("citizen", ((1, 1),))),
        (Comparison("citizen", "!=", 1), Among("citizen", ((0, 0),))),
        (In("citizen", (False, 1.0)), True),
        (And(()), True),
        (Or(()), False),
        (Not(Or(())), True),
        (None, True),
    ],
)
def test_what_a_predicate_becomes(given, wanted):
    assert resolved(given) == wanted


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Comparison("size", "=", 1), r"where.column must be one of age, income, sex, citizen, got 'size'"),
        (Comparison("age", "=", "40"), r"where.value must be a number for age, which is integer, got '40'"),
        (Comparison("age", ">", True), r"where.value must be a number for age, which is integer, got True"),
        (In("income", ("a",)), r"where.in must be a number for income, which is number, got 'a'"),
        (Comparison("sex", "=", "w"), r"where.value must be one of f, m, x for sex, got 'w'"),
        (Comparison("sex", "=", 0), r"where.value must be one of f, m, x for sex, got 0"),
        (In("sex", ("f", True)), r"where.in must be one of f, m, x for sex, got True"),
        (Comparison("sex", "<", "m"), r"where.op must be = or != for sex, which is category, got '<'"),
        (Comparison("citizen", ">=", 0), r"where.op must be = or != for citizen, which is boolean, got '>='"),
        (Comparison("citizen", "=", 2), r"where.value must be true or false for citizen, got 2"),
        (Comparison("citizen", "=", "true"), r"where.value must be true or false for citizen, got 'true'"),
    ],
)
def test_refusals(given, message):
    with pytest.raises(ParameterError, match=f"^{message}$"):
        resolved(Or((AGE, Not(given))))
    with pytest.raises(ParameterError, match=f"^of{message[5:]}$"):
        resolve_condition(given, DATA, "of")


def test_what_is_no_predicate_is_refused():
    with pytest.raises(ParameterTypeError, match=r"^where must be made of predicates, got 3"):
        resolve_condition(3, DATA)


def test_refusals_list_twenty_categories_at_most():
    names = tuple(f"v{i}" for i in range(50))
    data = DataSet("d", "1", (Column("c", Kind.CATEGORY, values=names),), Budget(1.0, 1e-6), rows=1)
    with pytest.raises(ParameterError, match=r"v18, v19, \.\.\. for c, got 'w'"):
        resolve_condition(Comparison("c", "=", "w"), data)


# One form


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (And((AGE, SEX)), And((SEX, AGE, SEX, And(())))),
        (And((AGE, And((SEX, CITIZEN)))), And((CITIZEN, And((AGE, SEX))))),
        (Not(And((AGE, SEX))), Or((Not(SEX), Comparison("age", "<", 40)))),
        (Not(Not(AGE)), AGE),
        (And((AGE, Comparison("age", "<", 60))), Not(Or((Comparison("age", ">=", 60), Not(AGE))))),
        (And((AGE, Comparison("age", "<", 20))), Or(())),
        (Or((AGE, Comparison("age", "<", 50))), And(())),
        (Or((In("sex", ("f",)), In("sex", ("x",)))), Comparison("sex", "!=", "m")),
        (And((AGE, Or((SEX, Or(()))))), And((AGE, SEX))),
        # Absorption
        (And((AGE, Or((AGE, SEX)))), AGE),
        (Or((AGE, And((AGE, SEX)))), AGE),
        (And((AGE, Or((Comparison("age", ">", 20), SEX)))), AGE),
        (Or((AGE, And((Comparison("age", ">", 60), SEX)))), AGE),
        (And((Or((AGE, SEX)), Or((AGE, SEX, CITIZEN)))), Or((AGE, SEX))),
        (And((AGE, SEX, Or((CITIZEN, And((AGE, SEX)))))), And((AGE, SEX))),
        (Or((And((AGE, SEX)), And((AGE, SEX, CITIZEN)))), And((AGE, SEX))),
    ],
)
def test_two_writings_have_one_form(one, other):
    assert resolved(one) == resolved(other)
    assert resolved(Not(one)) == resolved(Not(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (And((AGE, SEX)), Or((AGE, SEX))),
        (And((AGE, Or((Comparison("age", ">", 50), SEX)))), AGE),
        (Or((AGE, And((Comparison("age", ">", 20), SEX)))), AGE),
        (And((Or((AGE, SEX)), Or((AGE, CITIZEN)))), Or((AGE, SEX))),
        (And((AGE, Or((And((AGE, SEX)), CITIZEN)))), AGE),
    ],
)
def test_what_differs_stays_different(one, other):
    assert resolved(one) != resolved(other)


def test_the_form_keeps_its_invariants():
    rng = random.Random(1)
    for _ in range(50):
        declared = random_schema(rng)
        data = declared.data()
        for _ in range(40):
            check(resolve_condition(predicate(rng, declared, 4), data), data, top=True)


def check(condition, data, *, top=False):
    if top and isinstance(condition, bool):
        return
    if isinstance(condition, Among):
        column = data.column(condition.column)
        assert condition.ranges
        assert condition.ranges != ((column.first, column.last),)
        assert column.first <= condition.ranges[0][0]
        assert condition.ranges[-1][1] <= column.last
        assert all(low <= high for low, high in condition.ranges)
        assert all(before[1] + 1 < after[0] for before, after in pairwise(condition.ranges))
        return
    assert isinstance(condition, (All, Any))
    assert len(condition.parts) >= 2
    texts = [part.text for part in condition.parts]
    assert texts == sorted(set(texts))
    columns = [part.column for part in condition.parts if isinstance(part, Among)]
    assert len(columns) == len(set(columns))
    for part in condition.parts:
        assert type(part) is not type(condition)
        check(part, data)


def test_both_is_and():
    one, other = Or((AGE, SEX)), Or((AGE, CITIZEN))
    assert both(resolved(one), resolved(other), DATA) == resolved(And((one, other)))
    assert both(True, resolved(one), DATA) == resolved(one)
    assert both(False, resolved(one), DATA) is False


# Other forms


def test_json_and_text():
    condition = resolved(And((Or((AGE, SEX)), Comparison("citizen", "=", 0))))
    assert condition_json(condition) == {
        "all": [
            {"any": [{"column": "age", "in": [[40, 120]]}, {"column": "sex", "in": [[0, 0]]}]},
            {"column": "citizen", "in": [[0, 0]]},
        ]
    }
    assert condition_json(True) is True
    assert columns_of(condition) == {"age", "sex", "citizen"}
    assert columns_of(True) == frozenset()


def test_json_is_read_as_it_is_written():
    rng = random.Random(3)
    for _ in range(20):
        declared = random_schema(rng)
        data = declared.data()
        for _ in range(40):
            condition = resolve_condition(predicate(rng, declared, 4), data)
            assert condition_from_json(condition_json(condition), data) == condition
    turned = {"all": [{"column": "sex", "in": [[0, 0]]}, {"column": "age", "in": [[40, 120]]}]}
    with pytest.raises(ParameterError, match=r"^of must be in normal form$"):
        condition_from_json(turned, DATA, "of")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (And(()), "TRUE"),
        (Or(()), "FALSE"),
        (AGE, "c0 BETWEEN 40 AND 120"),
        (Comparison("age", "=", 7), "c0 = 7"),
        (In("age", (7, 9, 40, 41)), "(c0 BETWEEN 40 AND 41 OR c0 IN (7, 9))"),
        (And((AGE, SEX)), "(c0 BETWEEN 40 AND 120 AND c2 = 0)"),
        (Or((AGE, And((SEX, CITIZEN)))), "((c3 = 1 AND c2 = 0) OR c0 BETWEEN 40 AND 120)"),
    ],
)
def test_sql(given, wanted):
    names = {column.name: f"c{i}" for i, column in enumerate(DATA.columns)}
    assert condition_sql(resolved(given), names) == wanted


def test_sql_selects_the_rows_that_hold():
    rng = random.Random(2)
    draw = np.random.default_rng(2)
    with duckdb.connect() as connection:
        for _ in range(20):
            declared = random_schema(rng)
            data = declared.data()
            names = {column.name: f"c{i}" for i, column in enumerate(data.columns)}
            codes = {
                column.name: draw.integers(column.first, column.last, 200, endpoint=True)
                for column in data.columns
            }
            listed = [list(range(200)), *(values.tolist() for values in codes.values())]
            columns = ", ".join(f"{name} BIGINT" for name in names.values())
            connection.execute(f"CREATE OR REPLACE TABLE rows (id BIGINT, {columns})")
            connection.execute(f"INSERT INTO rows SELECT unnest(?){', unnest(?)' * len(names)}", listed)
            for _ in range(20):
                condition = resolve_condition(predicate(rng, declared, 4), data)
                found = connection.execute(f"SELECT id FROM rows WHERE {condition_sql(condition, names)}")
                assert (
                    sorted(row for (row,) in found.fetchall())
                    == np.flatnonzero(holds(condition, codes)).tolist()
                )
