"""Cells of every stored type, 20 of each and seeded, and what format 2 makes of them: in Python alone."""

from __future__ import annotations

import datetime as dt
import math
import random
import re
from decimal import Decimal
from uuid import UUID

from reticent.query.rows.columns import Column, Kind

CELLS = 20
EPOCH = dt.date(1970, 1, 1)
PARIS = dt.timezone(dt.timedelta(hours=1))
TEXTS = (
    *("5", "-3.5", "1e3", "", "nan", "true", "NO", "word", "n/a", "other", "7", " 7 ", "12:30"),
    *("2026-01-02", "2026-01-02 23:30:00-05:00", "2026-01-02T00:30:00+01", "2024-02-29", "2023-02-29"),
    *("1969-12-31", "0000-01-01", "0001-01-01 00:00+02", "9999-12-31 23:59:59Z", "2026-13-01"),
    *("2026-01-02 25:00", "2026-01-02 00:15-00:30", "2026-01-02 23:45 -0030"),
    *("2026-01-02 10:00:00.5", "20260102", "02.01.2026", "2026-01-02 ", "inf", "-5 days"),
)  # fmt: skip
MANY_DAYS = tuple((dt.date(2026, 1, 1) + dt.timedelta(number)).isoformat() for number in range(90))

# What is declared: the arguments of a `Column`.
DECLARED = {
    "integer": (Kind.INTEGER, {"low": -800_000, "high": 3_000_000, "missing": -11}),
    "number": (Kind.NUMBER, {"low": -800_000, "high": 3_000_000, "step": 0.5, "missing": -11}),
    "boolean": (Kind.BOOLEAN, {"missing": True}),
    "category": (Kind.CATEGORY, {"values": ("word", "7", "2026-01-02", "12:30", "false"), "missing": "word"}),
    "many days": (Kind.CATEGORY, {"values": MANY_DAYS, "missing": MANY_DAYS[3]}),
}


def declared(kind: str, name: str, **options) -> Column:
    of_kind, arguments = DECLARED[kind]
    return Column(name, of_kind, **arguments, **options)


def cells_of(stored: str, seed: int = 0) -> list:
    """Return 20 cells of a stored type, NULL among them."""
    rng = random.Random(f"{stored} {seed}")
    draw = {
        "text": lambda: rng.choice(TEXTS),
        "whole": lambda: rng.choice([0, 1, 2, 7, -3, 20_455, 10**12, rng.randint(-9, 9)]),
        "double": lambda: rng.choice([0.0, 1.0, 7.0, -0.25, 0.25, 1e300, math.inf, math.nan, 2.5]),
        "decimal": lambda: rng.choice([Decimal("0.00"), Decimal("1.00"), Decimal("7.00"), Decimal("-2.25")]),
        "truth": lambda: rng.random() < 0.5,
        "day": lambda: (
            rng.choice([dt.date(2026, 1, 2), EPOCH, dt.date(1, 1, 1), dt.date(9999, 12, 31)])
            if rng.random() < 0.5
            else EPOCH + dt.timedelta(rng.randint(-40_000, 40_000))
        ),
        "moment": lambda: dt.datetime(2026, 1, rng.randint(1, 3), rng.randint(0, 23), 30, 15),
        "zoned": lambda: dt.datetime(2026, 1, rng.randint(1, 3), rng.choice([0, 12, 23]), 30, tzinfo=PARIS),
        "clock": lambda: dt.time(rng.choice([0, 12]), 30),
        "span": lambda: dt.timedelta(days=rng.randint(-3, 3)),
        "uuid": lambda: UUID(int=rng.randint(1, 5)),
        "list": lambda: [rng.randint(0, 3)],
    }[stored]
    cells = [draw() for _ in range(CELLS - 2)] + [None, None]
    rng.shuffle(cells)
    return cells


# What a cell says

_DIGITS = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*")
_DAY = re.compile(r"(\d{4}-\d\d-\d\d)([ T]\d\d:\d\d(:\d\d(\.\d+)?)?( ?(Z|[+-]\d\d(:?\d\d)?))?)?")
_WORDS = {"true": 1.0, "yes": 1.0, "t": 1.0, "false": 0.0, "no": 0.0, "f": 0.0}


def said_number(cell) -> float | None:
    """Return the number that a cell says, a day among them; None if it says none."""
    if isinstance(cell, (bool, int, float, Decimal)):
        return None if cell != cell else float(cell)
    if isinstance(cell, dt.datetime):
        return float(((cell.astimezone(dt.UTC) if cell.tzinfo else cell).date() - EPOCH).days)
    if isinstance(cell, dt.date):
        return float((cell - EPOCH).days)
    if not isinstance(cell, str):
        return None
    if cell.lower() in _WORDS:
        return _WORDS[cell.lower()]
    if _DIGITS.fullmatch(cell) or cell.strip().lower() in ("inf", "-inf"):
        return float(cell)
    return _said_day(cell)


def _said_day(text: str) -> float | None:
    found = _DAY.fullmatch(text)
    if found is None:
        return None
    try:
        offset = found[6]
        spelled = text[:10] + "T" + (text[11:16] if found[2] else "00:00")
        moment = dt.datetime.fromisoformat(spelled).replace(tzinfo=dt.UTC)
        if offset and offset != "Z":
            digits = offset[1:].replace(":", "").ljust(4, "0")
            ahead = dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
            moment = moment - ahead if offset[0] == "+" else moment + ahead
    except (ValueError, OverflowError):
        return None
    return float((moment.date() - EPOCH).days)


def says_nothing(cell) -> bool:
    return cell is None or cell != cell or isinstance(cell, list) or cell in ("", "nan")


def expected_code(column: Column, cell) -> int:
    """Return the code of a cell in a column of format 2."""
    if column.kind is Kind.CATEGORY:
        return _category(column, cell)
    number = said_number(cell)
    if column.kind is Kind.BOOLEAN:
        return int(number) if number in (0.0, 1.0) and not _is_day(cell) else column.missing_code
    return column.missing_code if number is None else column.code(number)


def _category(column: Column, cell) -> int:
    if says_nothing(cell):
        return column.missing_code
    said = {_key(value): code for code, value in enumerate(column.values)}
    return said.get(_key(cell), column.values.index("other"))


def _key(cell):
    """What two cells have in common that are one category."""
    if isinstance(cell, str):
        found = _DAY.fullmatch(cell)
        if found is not None:
            return found[1]
        clock = re.fullmatch(r"(\d\d:\d\d)(:\d\d)?", cell)
        if clock is not None:
            return clock[1]
        span = re.fullmatch(r"(-?\d+ days)(.*)", cell)
        if span is not None:
            return span[1]
        number = said_number(cell)
        return cell if number is None else number
    if isinstance(cell, dt.datetime):
        return (cell.astimezone(dt.UTC) if cell.tzinfo else cell).date().isoformat()
    if isinstance(cell, dt.date):
        return cell.isoformat()
    if isinstance(cell, dt.time):
        return f"{cell:%H:%M}"
    if isinstance(cell, dt.timedelta):
        return f"{cell.days} days"
    if isinstance(cell, UUID):
        return str(cell)
    return float(cell)


def expected_unreadable(column: Column, cell) -> int:
    """Return whether a cell says something that a column of numbers or booleans does not hold."""
    if says_nothing(cell):
        return 0
    number = said_number(cell)
    if column.kind is not Kind.BOOLEAN:
        return int(number is None)
    return int(number not in (0.0, 1.0) or _is_day(cell))


def _is_day(cell) -> bool:
    return isinstance(cell, dt.date) or (isinstance(cell, str) and _said_day(cell) is not None)
