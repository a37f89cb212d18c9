"""A column: what it refuses, and the codes that its values become."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.errors import ParameterError, ParameterTypeError
from reticent.query.rows.columns import LARGEST_CODE, Column, Kind

AGE = Column("age", Kind.INTEGER, 0, 120)
CENTS = Column("cents", Kind.NUMBER, -1, 1, 0.01)
RACE = Column("race", Kind.CATEGORY, values=("white", "black", "other"))
CITIZEN = Column("citizen", Kind.BOOLEAN)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"low": 0}, "columns.x.high must be a number, got nothing: state it from public knowledge"),
        ({"high": 0}, "columns.x.low must be a number, got nothing"),
        ({"low": 0, "high": -3}, r"columns.x.high must be > low = 0, got -3$"),
        ({"low": 0, "high": 0}, "columns.x.high must be > low = 0"),
        ({"low": math.nan, "high": 1}, "columns.x.low must be finite, got nan"),
        ({"low": 0, "high": math.inf}, "columns.x.high must be finite, got inf"),
        ({"low": 0, "high": 1, "step": 0}, "columns.x.step must be > 0"),
        ({"low": 0, "high": 1, "step": 1e-12}, r"columns.x.step must leave at most 2\^31 steps"),
        ({"low": 0, "high": 1, "step": 5}, "columns.x.step must leave two values between low and high"),
        ({"low": 0, "high": 1, "missing": 2}, "columns.x.missing must be >= 0 and <= 1, got 2"),
        ({"low": 0, "high": 1, "values": ("a",)}, "columns.x.values is for categories"),
    ],
)
def test_a_bad_number_is_one_line(options, line):
    with pytest.raises(ParameterError, match=f"^{line}") as raised:
        Column("x", Kind.NUMBER, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "options", "line"),
    [
        (Kind.INTEGER, {"low": 0, "high": 9, "step": 2}, "columns.x.step must be 1 for integers"),
        (Kind.CATEGORY, {}, "columns.x.values must be 2 to 10000 categories, got 0"),
        (Kind.CATEGORY, {"values": ("a",)}, "columns.x.values must be 2 to 10000 categories, got 1"),
        (Kind.CATEGORY, {"values": ("a", "a")}, "columns.x.values must be different"),
        (Kind.CATEGORY, {"values": ("a", "")}, "columns.x.values must be printable texts, got ''"),
        (Kind.CATEGORY, {"values": ("a", "b\n")}, "columns.x.values must be printable texts"),
        (
            Kind.CATEGORY,
            {"values": ("a", "b"), "missing": "c"},
            "columns.x.missing must be one of its values",
        ),
        (Kind.CATEGORY, {"values": ("a", "b"), "low": 0}, "columns.x.low is for numbers, x is category"),
        (Kind.BOOLEAN, {"values": ("a", "b")}, "columns.x.values is for categories, x is boolean"),
        *(
            (
                Kind.CATEGORY,
                {"values": ("a", one, other)},
                f"columns.x.values must be different from .*, as numbers too, got '{one}' and '{other}'$",
            )
            for one, other in (
                ("1", "01"),
                ("true", "1.0"),
                ("F", "no"),
                ("1e5", "100000"),
                ("inf", "1e999"),
                ("9007199254740993", "9007199254740992"),
                ("2026-01-02", "2026-01-02T00:00:00Z"),
            )
        ),
        (Kind.CATEGORY, {"values": ("a", "NaN")}, "columns.x.values must not be NaN"),
        (
            Kind.CATEGORY,
            {"values": ("a", "2026-01-02 05:00")},
            "columns.x.values must be days, minutes or numbers",
        ),
        (
            Kind.CATEGORY,
            {"values": ("a", "12:30:01")},
            "columns.x.values must be days, minutes or numbers of days",
        ),
    ],
)
def test_a_bad_declaration_is_one_line(kind, options, line):
    with pytest.raises(ParameterError, match=f"^{line}"):
        Column("x", kind, **options)


def test_wrong_types_are_refused():
    with pytest.raises(ParameterTypeError, match=r"^columns\.x\.missing must be true or false, got 1"):
        Column("x", Kind.BOOLEAN, missing=1)
    with pytest.raises(ParameterTypeError, match=r"^columns\.x\.type must be a Kind, got 'number'"):
        Column("x", "number", 0, 1)
    for name in ("", "a" * 101, "two\nlines"):
        with pytest.raises(ParameterError, match=r"^columns: a name must be"):
            Column(name, Kind.BOOLEAN)


def test_codes_count_steps():
    assert (AGE.first, AGE.last, AGE.unit, AGE.missing_code) == (0, 120, 1, 60)
    assert (CENTS.first, CENTS.last, CENTS.unit, CENTS.missing_code) == (-100, 100, Fraction(1, 100), 0)
    assert (RACE.first, RACE.last, RACE.unit, RACE.missing_code) == (0, 2, 1, 2)
    assert (CITIZEN.first, CITIZEN.last, CITIZEN.missing_code) == (0, 1, 0)


def test_integers_between_the_bounds_only():
    column = Column("x", Kind.INTEGER, 0.5, 9.5)
    assert (column.first, column.last) == (1, 9)
    assert [column.code(one) for one in (0.5, 9.5, 0, 4.4)] == [1, 9, 1, 4]


def test_a_step_of_its_own_is_a_power_of_two():
    column = Column("x", Kind.NUMBER, 0, 1000)
    assert math.frexp(column.step)[0] == 0.5
    assert 1 << 20 <= column.last <= 1 << 21


@pytest.mark.parametrize(("low", "high"), [(-1.7e308, 1.7e308), (0, 1), (0, 1e-300), (-3, 1e9)])
def test_any_range_has_a_step(low, high):
    column = Column("x", Kind.NUMBER, low, high)
    assert 1 << 20 <= column.last - column.first <= 1 << 21
    assert [column.code(one) for one in (low, high)] == [column.first, column.last]


def test_a_narrow_range_far_from_zero_has_coarser_steps():
    column = Column("x", Kind.NUMBER, 1_000_000, 1_000_100)
    assert column.step == 2.0**-11
    assert column.last <= LARGEST_CODE


def test_a_range_too_narrow_for_doubles_is_refused():
    with pytest.raises(ParameterError, match=r"^columns\.x\.step must leave two values between low and high"):
        Column("x", Kind.NUMBER, 0, 5e-324)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (0.005, 0),
        (0.015, 2),
        (0.57, 57),
        (-0.29, -29),
        (7, 100),
        (-7, -100),
        (math.inf, 100),
        (-math.inf, -100),
    ],
)
def test_a_number_is_clamped_and_rounded_half_to_even(number, code):
    assert CENTS.code(number) == code


def test_what_is_no_number_is_missing():
    assert Column("x", Kind.NUMBER, 0, 10, 1, missing=3).code(math.nan) == 3
    assert Column("x", Kind.BOOLEAN, missing=True).missing_code == 1
    assert Column("x", Kind.CATEGORY, values=("a", "b"), missing="a").missing_code == 0


UNHURRIED = settings(deadline=None)
COLUMNS = st.builds(
    lambda low, width, parts: Column("x", Kind.NUMBER, low, low + width, width / parts),
    st.integers(-1000, 1000).map(float),
    st.floats(1, 1e6),
    st.integers(2, 10**5),
)


@UNHURRIED
@given(COLUMNS, st.floats())
def test_every_number_has_a_code_within_the_range(column, number):
    assert column.first <= column.code(number) <= column.last


@UNHURRIED
@given(COLUMNS, st.floats(-1e6, 1e6))
def test_the_code_is_the_nearest_step_but_for_rounding(column, number):
    """Doubles are off by 2^-53 of up to 2^31 steps, so only a value that near to the middle may go astray."""
    exact = Fraction(min(max(number, column.low), column.high)) / column.unit
    nearest = abs(column.code(number) - exact)
    at_an_end = column.code(number) in (column.first, column.last)
    assert nearest <= Fraction(1, 2) + Fraction(1, 1 << 20) or (at_an_end and nearest <= 1)


@UNHURRIED
@given(COLUMNS, st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_codes_keep_the_order(column, one, other):
    assert (column.code(one) <= column.code(other)) or one > other


@UNHURRIED
@given(COLUMNS, st.data())
def test_a_code_means_a_number_of_that_code(column, data):
    """But for an end: where a bound is in the middle between two codes, a double may go to either."""
    code = data.draw(st.integers(column.first, column.last))
    assert abs(column.code(column.meaning(code)) - code) <= (code in (column.first, column.last))


def test_meanings():
    assert RACE.meaning(1) == "black"
    assert CITIZEN.meaning(1) is True
    assert CENTS.meaning(57) == 0.57


def test_the_largest_codes_are_allowed():
    column = Column("x", Kind.INTEGER, -LARGEST_CODE, LARGEST_CODE)
    assert (column.first, column.last) == (-LARGEST_CODE, LARGEST_CODE)


def test_the_declaration_says_all_that_decides_the_codes():
    assert CENTS.declaration() == {
        "name": "cents",
        "type": "number",
        "first": -100,
        "last": 100,
        "step": "1/100",
        "values": [],
        "missing": 0,
    }
    one = Column("race", Kind.CATEGORY, values=("black", "white", "other"))
    assert one.declaration() != RACE.declaration(), "the order of the categories decides"
