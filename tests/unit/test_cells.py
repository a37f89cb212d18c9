"""What a cell says is the same under every storage, and no object makes reading fail."""

import datetime as dt
import math
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.tables import cells

PARIS = dt.timezone(dt.timedelta(hours=1))
MANY = settings(deadline=None)
ONES = [1, 1.0, True, Decimal("1.00"), Fraction(1), 1 + 0j, np.int8(1), np.float32(1), np.True_, b"1"]
DAYS = [
    dt.date(2026, 1, 2),
    dt.datetime(2026, 1, 2),
    dt.datetime(2026, 1, 2, 23, 59),
    dt.datetime(2026, 1, 3, 0, 30, tzinfo=PARIS),
    pd.Timestamp("2026-01-02 05:00:00.000000001"),
    pd.Timestamp("2026-01-03 00:30", tz="Europe/Paris"),
    np.datetime64("2026-01-02T05"),
]
NOTHING = [
    None,
    math.nan,
    pd.NA,
    pd.NaT,
    np.datetime64("NaT"),
    np.timedelta64("NaT"),
    Decimal("sNaN"),
    1j,
    [1],
]
SAME = {
    "one": (
        1.0,
        [*ONES, "1", "01", " 1 ", "1.", "1e0", "+1", "\t1\n", "true", "T", "Yes", "(1+0j)", "(1.0-0j)"],
    ),
    "zero": (0.0, [0, -0.0, False, "-0", "no", "F", "false", "1e-400", "(-0-0j)", "0j", Decimal("-0")]),
    "beyond 2^53": (2.0**53, [2**53, 2**53 + 1, float(2**53), str(2**53 + 1), Decimal(2**53 + 1)]),
    "infinite": (math.inf, [math.inf, 10**400, 10**5000, "inf", "Infinity", "1e400", Decimal("1e400")]),
    "half": (0.5, [0.5, ".5", "0.50", Decimal("0.500"), Fraction(1, 2)]),
    "day": ("2026-01-02", [*DAYS, "2026-01-02", "2026-01-02 00:00:00.000", "2026-01-02T10:00Z"]),
    "minute": ("12:30", [dt.time(12, 30), dt.time(12, 30, 1), "12:30", "12:30:00", "12:30:00.500"]),
    "span": ("1 days", [dt.timedelta(1), pd.Timedelta("30h"), np.timedelta64(25, "h"), "1 days 00:00:00"]),
    "word": ("white", ["white", np.str_("white"), b"white", bytearray(b"white")]),
    "uuid": (str(UUID(int=5)), [UUID(int=5), str(UUID(int=5))]),
    "nothing": (None, [*NOTHING, "", "nan", " -NaN", b"\xff", {"a": 1}, object(), np.array(3), slice(1)]),
}


@pytest.mark.parametrize("name", SAME)
def test_spellings_of_the_same(name):
    meaning, spellings = SAME[name]
    for one in spellings:
        text = cells.spelled(one)
        assert (None if text is None else cells.meaning(text)) == meaning, one


def test_what_is_not_the_same():
    numbers = ["1", "2", "\u0661", "1_0", "0x10", "1,5", "1" * 201, "-"]
    moments = ["12:30 14:00", "12:30-14:00", "2026-1-2", "2026-01-02x", "1 day"]
    texts = [*numbers, *moments, "White", "white ", "NA", "None", "y"]
    assert len({cells.meaning(one) for one in texts}) == len(texts)
    assert cells.meaning("2026-01-02\n") == "2026-01-02\n"


def test_only_what_counts_may_be_declared_of_a_moment():
    for exact in ("2026-01-02", "2026-01-02 00:00:00.000", "2026-01-02T00:00Z", "12:30:00", "-1 days"):
        assert cells.is_exact(exact)
    for finer in ("2026-01-02 05:00", "2026-01-02 00:00+01:00", "12:30:01", "1 days 01:00:00", "white", "1"):
        assert not cells.is_exact(finer)


@MANY
@given(st.integers() | st.floats(allow_nan=False) | st.booleans() | st.decimals(allow_nan=False))
def test_a_number_is_the_nearest_double_however_it_is_stored(number):
    try:
        double = float(number)
    except OverflowError:
        double = math.copysign(math.inf, number)
    assert cells.number(cells.spelled(number)) == double
    assert math.copysign(1, cells.number(cells.spelled(number)) or 1.0) == math.copysign(1, double or 1.0)
    if len(str(number)) <= cells.LONGEST_NUMBER and abs(Decimal(number).adjusted()) < 999:
        assert cells.meaning(str(number)) == double


class Hostile:
    """An object that fails however it is looked at."""

    def __getattribute__(self, name):
        raise RuntimeError(name)

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = None


class Liar(float):
    def __float__(self):
        raise MemoryError


@MANY
@given(st.from_type(object) | st.text(st.characters()) | st.binary())
def test_no_object_makes_it_fail(given):
    text = cells.spelled(given)
    assert text is None or text.encode().decode() == text
    cells.meaning(text or "")


def test_no_hostile_object_makes_it_fail():
    hostile = [Hostile(), Liar(1), type, "\ud800", [Hostile()]]
    assert cells.all_spelled(hostile) == [None, None, None, "\ufffd" * 3, None]
