"""A data set: what it refuses, and the account that pays for it."""

import dataclasses

import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.privacy import Budget, Neighbours
from reticent.query.declarations.datasets import DataSet, Policy
from reticent.query.rows.columns import Column, Kind

AGE = Column("age", Kind.INTEGER, 0, 120)
ROWS = DataSet("census", "1", (AGE,), Budget(8, 1e-4), rows=5000)
PERSONS = DataSet(
    "trips", "2", (AGE,), Budget(1, 1e-6), Neighbours.ADD_REMOVE_ONE, person="who", contribution=3
)


@pytest.mark.parametrize(
    ("given", "change", "line"),
    [
        (ROWS, {"name": "a b"}, "name must be 1 to 80 letters, digits or ._-, got 'a b'"),
        (ROWS, {"name": ""}, "name must be"),
        (ROWS, {"version": "../1"}, "version must be"),
        (ROWS, {"columns": ()}, "columns must be 1 to 1000, got 0"),
        (ROWS, {"columns": (AGE, AGE)}, "columns must have different names"),
        (ROWS, {"rows": None}, "rows must be given when one row is replaced"),
        (ROWS, {"rows": 0}, "rows must be >= 1, got 0"),
        (ROWS, {"relation": Neighbours.ADD_REMOVE_ONE}, "rows must be left out for 'add or remove one'"),
        (ROWS, {"relation": Neighbours.METRIC}, "relation must be 'replace one' or 'add or remove one'"),
        (ROWS, {"contribution": 2}, "unit.rows must be <= 1, got 2"),
        (PERSONS, {"contribution": 0}, "unit.rows must be >= 1, got 0"),
        (PERSONS, {"contribution": 1001}, "unit.rows must be <= 1000"),
        (PERSONS, {"rows": 5}, "rows must be left out for 'add or remove one' of a person"),
        (
            PERSONS,
            {"rows": 5, "relation": Neighbours.REPLACE_ONE},
            "rows must be left out for 'replace one' of",
        ),
    ],
)
def test_a_bad_data_set_is_one_line(given, change, line):
    with pytest.raises(ParameterError, match=f"^{line}") as raised:
        dataclasses.replace(given, **change)
    assert "\n" not in str(raised.value)


def test_wrong_types_are_refused():
    with pytest.raises(ParameterTypeError, match=r"^budget must be a Budget, got float"):
        dataclasses.replace(ROWS, budget=1.0)
    with pytest.raises(ParameterTypeError, match=r"^policy must be a Policy, got 'share'"):
        dataclasses.replace(ROWS, policy="share")


def test_what_is_protected():
    assert (ROWS.unit, ROWS.subject) == ("row", "one row of census")
    assert (PERSONS.unit, PERSONS.subject) == ("person", "one person of trips with at most 3 rows")


def test_the_account_is_the_same_for_every_version():
    later = dataclasses.replace(ROWS, version="2", policy=Policy.DEGRADE)
    assert later.terms == ROWS.terms
    assert ROWS.terms.cap == Budget(8, 1e-4).mu2_cap
    assert ROWS.terms.minimum == ROWS.terms.cap // 10**6
    assert dataclasses.replace(PERSONS, contribution=2).terms != PERSONS.terms


def test_columns_by_name():
    assert ROWS.column("age") is AGE
    with pytest.raises(ParameterError, match=r"^column must be one of age, got 'income'"):
        ROWS.column("income")
