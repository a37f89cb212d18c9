"""The closed tree: JSON there and back, limits, and refusals that name the field, the rule and the value."""

from __future__ import annotations

import json
import math
import random
import re

import numpy as np
import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.language.tree import (
    And,
    By,
    Comparison,
    In,
    Not,
    Or,
    Query,
    as_predicate,
    from_json,
    to_json,
)

from .mutants import broken_trees
from .random_queries import query, random_schema

FIELD = re.compile(r"(query|kind|column|sql|levels|(where|of|by)(\.[a-z]+)?)\b")
AGE = {"column": "age", "op": ">=", "value": 40}


def test_queries_read_as_they_are_written():
    asked = tree.mean("income", where=AGE, by=["sex", {"column": "age", "edges": [20, 40]}])
    assert asked == Query(
        "mean", "income", Comparison("age", ">=", 40), by=(By("sex"), By("age", edges=(20.0, 40.0)))
    )
    assert tree.count() == Query("count")
    assert tree.total("income") == Query("sum", "income")
    assert tree.variance("income", by="sex") == Query("variance", "income", by=(By("sex"),))
    assert tree.histogram(By("age", bins=4)) == Query("histogram", by=(By("age", bins=4),))
    assert tree.proportion({"not": AGE}).of == Not(Comparison("age", ">=", 40))
    assert tree.median("age") == tree.quantile("age", [0.5], bins=256)
    assert tree.quantile("age", 0.5, bins=[20, 40]).by == (By("age", edges=(20.0, 40.0)),)


def test_a_condition_may_be_text():
    assert tree.count(where="age >= 40 AND sex IN ('f', 'm')").where == And(
        (Comparison("age", ">=", 40), In("sex", ("f", "m")))
    )


def test_json_there_and_back():
    rng = random.Random(1)
    for _ in range(500):
        asked = query(rng, random_schema(rng))
        assert from_json(json.loads(json.dumps(to_json(asked)))) == asked


def test_a_quantile_in_json_may_leave_out_its_bins():
    assert from_json({"kind": "quantile", "column": "age", "levels": [0.5]}) == tree.median("age")


def test_what_is_absent_may_be_null():
    given = {"kind": "count", "column": None, "where": None, "of": None, "by": None, "levels": None}
    assert from_json(given) == tree.count()


def test_whole_numbers_stay_exact():
    where = as_predicate({"column": "a", "op": "=", "value": 2**70 + 1})
    assert where == Comparison("a", "=", 2**70 + 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "query must be an object, got a list"),
        ({"kind": "max"}, "kind must be one of count, sum, .*, got 'max'"),
        ({"kind": ["count"]}, "kind must be a text of 1 to 200 characters, got a list"),
        ({"kind": "count", "noise": 0}, "query must have only kind, .*, got 'noise'"),
        ({"kind": "count", "column": "a"}, "column is not for a count, got 'a'"),
        ({"kind": "sum"}, "column must be given for a sum"),
        ({"kind": "sum", "column": ""}, "column must be a text of 1 to 200 characters, got ''"),
        ({"kind": "count", "of": AGE}, "of must be given for a proportion, and only for one"),
        ({"kind": "proportion"}, "of must be given for a proportion, and only for one"),
        ({"kind": "histogram"}, "by must name at least one column for a histogram"),
        ({"kind": "count", "levels": [0.5]}, "levels must be given for a quantile, and only for one"),
        ({"kind": "quantile", "column": "a"}, "levels must be given for a quantile, and only for one"),
        ({"kind": "quantile", "column": "a", "levels": [1]}, "levels must be > 0 and < 1, got 1"),
        ({"kind": "quantile", "column": "a", "levels": 1}, "levels must be a list, got 1"),
        ({"kind": "quantile", "column": "a", "levels": [0.5] * 101}, "levels must be at most 100, got 101"),
        (
            {"kind": "quantile", "column": "a", "levels": [0.5], "by": [{"column": "b", "bins": 4}]},
            "by must be the bins of the column for a quantile",
        ),
        ({"kind": "count", "where": 3}, "where must be made of objects, got 3"),
        ({"kind": "count", "where": {"and": AGE}}, "where.and must be a list, got a dict"),
        ({"kind": "count", "where": {"or": [None]}}, "where must be made of objects, got None"),
        ({"kind": "count", "where": {"not": AGE, "or": []}}, "where must have only or, got 'not'"),
        ({"kind": "count", "where": {"column": 3, "op": "=", "value": 1}}, "where.column must be .*, got 3"),
        ({"kind": "count", "where": {**AGE, "op": "~"}}, "where.op must be one of = .*, got '~'"),
        ({"kind": "count", "where": {**AGE, "op": []}}, "where.op must be one of = .*, got a list"),
        ({"kind": "count", "where": {**AGE, "value": None}}, "where.value must be a number, got None"),
        ({"kind": "count", "where": {**AGE, "value": math.nan}}, "where.value must be finite, got nan"),
        ({"kind": "count", "where": {**AGE, "value": 10**400}}, "where.value must be finite, got a huge"),
        (
            {"kind": "count", "where": {**AGE, "value": "x" * 201}},
            "where.value must be at most 200 .*, got 201",
        ),
        ({"kind": "count", "where": {"column": "a", "in": "abc"}}, "where.in must be a list, got 'abc'"),
        ({"kind": "count", "where": {"column": "a", "in": [[]]}}, "where.in must be a number, got a list"),
        ({"kind": "proportion", "of": {**AGE, "op": "~"}}, "of.op must be one of"),
        ({"kind": "count", "by": 3}, "by must be a list, got 3"),
        ({"kind": "count", "by": [3]}, "by must be made of names or objects, got 3"),
        ({"kind": "count", "by": ["a"] * 9}, "by must name at most 8 columns, got 9"),
        ({"kind": "count", "by": {"column": "a", "width": 3}}, "by must have only column, .*, got 'width'"),
        ({"kind": "count", "by": {"column": "a", "bins": 1}}, "by.bins must be .* 2 to 65536, got 1"),
        ({"kind": "count", "by": {"column": "a", "bins": True}}, "by.bins must be .*, got True"),
        (
            {"kind": "count", "by": {"column": "a", "bins": 2, "edges": [1]}},
            "by.bins must not be given beside",
        ),
        ({"kind": "count", "by": {"column": "a", "edges": []}}, "by.edges must be 1 to 65535 numbers, got 0"),
        ({"kind": "count", "by": {"column": "a", "edges": [1, 1]}}, "by.edges must rise, got 1.0 before 1.0"),
        ({"kind": "count", "by": {"column": "a", "edges": [math.inf]}}, "by.edges must be finite, got inf"),
    ],
)
def test_refusals_name_the_field_the_rule_and_the_value(given, message):
    with pytest.raises((ParameterError, ParameterTypeError), match=f"^{message}"):
        from_json(given)


def test_python_values_are_held_to_the_same_rules():
    for wrong in (
        Comparison("a", "~", 1),
        Comparison("a", "=", math.inf),
        Comparison("a", "=", np.int64(1)),
        Comparison(None, "=", 1),
        In("a", [1]),
        In("a", (None,)),
        And([Comparison("a", "=", 1)]),
        Or((None,)),
        Not("a = 1"),
    ):
        with pytest.raises((ParameterError, ParameterTypeError), match=r"^where"):
            tree.count(where=wrong)
        with pytest.raises((ParameterError, ParameterTypeError), match=r"^of"):
            tree.proportion(wrong)
    with pytest.raises(ParameterError, match=r"^by\.bins"):
        By("a", bins=0)
    with pytest.raises(ParameterTypeError, match=r"^by must be"):
        Query("count", by=(3,))
    with pytest.raises(ParameterError, match=r"^levels"):
        Query("quantile", "a", by=(By("a", bins=3),), levels=(2.0,))


# Size


def nested(depth, inner, wrap):
    for _ in range(depth):
        inner = wrap(inner)
    return inner


@pytest.mark.parametrize("wrap", [lambda one: {"not": one}, lambda one: {"and": [one, AGE]}])
def test_depth_of_json_is_limited(wrap):
    assert from_json({"kind": "count", "where": nested(tree.DEEPEST - 1, AGE, wrap)})
    for depth in (tree.DEEPEST, 100_000):
        with pytest.raises(ParameterError, match=r"^where must be nested at most 32 deep"):
            from_json({"kind": "count", "where": nested(depth, AGE, wrap)})


@pytest.mark.parametrize("wrap", [Not, lambda one: And((one, Comparison("b", "=", 1)))])
def test_depth_of_values_is_limited(wrap):
    leaf = Comparison("a", "=", 1)
    assert tree.count(where=nested(tree.DEEPEST - 1, leaf, wrap))
    for depth in (tree.DEEPEST, 100_000):
        with pytest.raises(ParameterError, match=r"^where must be nested at most 32 deep"):
            tree.count(where=nested(depth, leaf, wrap))


def test_number_of_parts_is_limited():
    most = tree.MOST_PARTS
    assert from_json({"kind": "count", "where": {"or": [AGE] * (most - 1)}})
    assert from_json({"kind": "count", "where": {"column": "a", "in": [1] * (most - 1)}})
    for where in (
        {"or": [AGE] * most},
        {"column": "a", "in": [1] * most},
        {"or": [{"column": "a", "in": [1] * 400}] * 3},
        {"and": [And((Comparison("a", "=", 1),) * 600)] * 2},
        nested(31, Comparison("a", "=", 1), lambda one: And((one, one))),  # 2^31 parts, if they were visited
    ):
        with pytest.raises(ParameterError, match=r"^where must have at most 1000 parts"):
            tree.count(where=where)


def test_what_is_shown_is_short_and_never_fails():
    assert tree.shown("x" * 100) == repr("x" * 57 + "...")
    assert tree.shown(10**5000) == "a huge number"
    assert tree.shown("two\nlines") == r"'two\nlines'"
    assert tree.shown(nested(100_000, Comparison("a", "=", 1), Not)) == "a Not"


def test_broken_trees_are_refused_in_one_line():
    check_broken(2000)


@pytest.mark.slow
def test_20000_broken_trees_are_refused_in_one_line():
    check_broken(20_000)


def refusal(data, given):
    try:
        resolve(from_json(given), data)
    except (ParameterError, ParameterTypeError) as err:
        return str(err)
    return None


def check_broken(count):
    found = [refusal(data, given) for data, given in broken_trees(random.Random(7), count)]
    answered = found.count(None)
    assert count / 20 < answered < count * 3 / 4  # neither all nonsense nor all fine
    for message in filter(None, found):
        assert FIELD.match(message), message
        assert "\n" not in message
        assert len(message) < 400
