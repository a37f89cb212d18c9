"""The meaning of a table's cell, whatever type its column happens to be stored as.

One odd row makes a writer store a whole column otherwise: a missing value makes doubles of whole numbers (1
becomes 1.0), one word makes text of truth values, one time of day adds a time to every date. So a cell is
read by what it says, and never by the type of its column:

- a number is the nearest double: 1, 1.0, `Decimal("1.00")`, "1", " 01 " and "1e0" are the same. true, t and
  yes are 1, false, f and no are 0, in capitals or not. Whole numbers beyond 2^53 that share a double are the
  same;
- of a moment its day counts (in UTC, where it says how far it is from it), of a time of day its minute, of a
  span of time its days;
- where a number is wanted (from format 2 of declarations on), a day of the calendar from year 1 to 9999 is
  the number of days since 1970-01-01, and a moment that of its day in UTC (`day_number`);
- NULL, NaN, NaT and the empty text say nothing, nor do lists and other objects;
- every other text says itself.

The grammars are read alike by Python, DuckDB (RE2) and PostgreSQL; `query.prepare` says them to engines.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np

LONGEST_NUMBER = 200  # characters; a longer text is not a number
_SPACE = "[ \t\n\v\f\r]*"
_DIGITS = r"[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
_INFINITE = r"[+-]?[iI][nN][fF](?:[iI][nN][iI][tT][yY])?"
NUMBER = rf"^{_SPACE}(?:{_DIGITS}|{_INFINITE}){_SPACE}$"
ABOVE, BELOW = rf"^{_SPACE}[+]?[iI]", rf"^{_SPACE}-[iI]"  # among the numbers: the infinite ones
COMPLEX = rf"^[(]({_DIGITS})[+-]0j[)]$"  # how pandas writes a number beside a complex one
NAN = rf"^{_SPACE}[+-]?[nN][aA][nN]{_SPACE}$"
NO_CHARACTER = "\ufffd"  # stands for whatever is no Unicode
TRUE_WORDS = ("true", "t", "yes")
FALSE_WORDS = ("false", "f", "no", "0j")  # the last: how pandas writes zero beside a complex number
_TIME = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.][0-9]+)?)?"
_OFFSET = r" ?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)"
DAY = rf"^([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:[ T]{_TIME}(?:{_OFFSET})?)?$"
CLOCK = r"^([0-9]{2}:[0-9]{2})(?::[0-9]{2}(?:[.][0-9]+)?)?$"
SPAN = rf"^(-?[0-9]+ days)(?: [+]?{_TIME})?$"
MOMENTS = (DAY, CLOCK, SPAN)
# Days of the calendar from year 1 on, alone or with a time of day that there is and its distance from UTC.
_YEAR = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP_DAY = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29"
_MONTH_AND_DAY = (
    r"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8])"
)
_HOURS, _MINUTES = r"(?:[01][0-9]|2[0-3])", r"[0-5][0-9]"
CALENDAR_DAY = (
    rf"^(?:{_YEAR}-(?:{_MONTH_AND_DAY})|{_LEAP_DAY})"
    rf"(?:[ T]{_HOURS}:{_MINUTES}(?::[0-9]{{2}}(?:[.][0-9]+)?)?(?: ?(?:Z|[+-]{_HOURS}(?::?{_MINUTES})?))?)?$"
)
UTC_OFFSET = r"([+-][0-9]{2})(?::?([0-9]{2}))?$"  # at the end of such a day that has a time
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, as days since 1970-01-01
_NUMBER, _COMPLEX, _NAN = (re.compile(one) for one in (NUMBER, COMPLEX, NAN))
_MOMENTS = tuple(re.compile(one) for one in MOMENTS)
_CALENDAR_DAY, _UTC_OFFSET = re.compile(CALENDAR_DAY), re.compile(UTC_OFFSET)


def number(text: str) -> float | None:
    """Return the number that a text means; None if it means no number, or NaN."""
    word = text.lower()
    if word in TRUE_WORDS or word in FALSE_WORDS:
        return float(word in TRUE_WORDS)
    if len(text) > LONGEST_NUMBER:
        return None
    found = _match(_COMPLEX, text)
    if found is not None:
        return float(found[1]) + 0.0
    return None if _match(_NUMBER, text) is None else float(text) + 0.0  # no zero has a sign


def moment(text: str) -> str | None:
    """Return the day, minute or number of days that a text means; None if it means none of them."""
    for pattern in _MOMENTS:
        found = _match(pattern, text)
        if found is not None:
            return found[1]
    return None


def day_number(text: str) -> int | None:
    """Return the days from 1970-01-01 to the day that a text says, in UTC; None if it says no such day."""
    if _match(_CALENDAR_DAY, text) is None:
        return None
    days = dt.date.fromisoformat(text[:10]).toordinal() + FIRST_DAY - 1
    if len(text) > 10:
        clock = 60 * int(text[11:13]) + int(text[14:16])
        days += (clock - _offset_in_minutes(text)) // (24 * 60)
    return days if FIRST_DAY <= days <= LAST_DAY else None


def _offset_in_minutes(moment_text: str) -> int:
    """Return how far a moment's clock is ahead of UTC; 0 where the text does not say."""
    found = _UTC_OFFSET.search(moment_text)
    if found is None:
        return 0
    hours, minutes = found[1], found[2] or "00"
    return 60 * int(hours) + int(hours[0] + minutes)


def is_exact(text: str) -> bool:
    """Return whether a text is a moment without digits finer than the part of it that counts."""
    said = moment(text)
    return said is not None and not set(text[len(said) :]) & set("123456789")


def says_nothing(text: str) -> bool:
    """Return whether a text is empty or NaN."""
    return not text or _match(_NAN, text) is not None


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Search for a pattern as engines do: Python's $ also matches before a last line feed."""
    found = pattern.search(text)
    return found if found is not None and found.end() == len(text) else None


def meaning(text: str) -> float | str | None:
    """Return a value that two texts share if, and only if, they mean the same; None for no meaning."""
    if says_nothing(text):
        return None
    said = number(text)
    if said is not None:
        return said
    return moment(text) or text


def spelled(cell: Any) -> str | None:
    """Return a text that means the same as an object; None if it means nothing. No object makes this fail."""
    try:
        return _spelled(cell)
    except Exception:  # whatever an object does when it is looked at
        return None


def all_spelled(cells: Iterable[Any]) -> list[str | None]:
    """Return the text that `spelled` gives for each cell."""
    return [spelled(cell) for cell in cells]


def _spelled(cell: Any) -> str | None:
    match cell:
        case str():
            return cell.encode(errors="surrogatepass").decode(errors="replace")
        case None:
            return None
        case bool() | np.bool_():
            return "true" if cell else "false"
        case np.timedelta64():  # which numpy calls a whole number
            return None if np.isnat(cell) else f"{cell // np.timedelta64(1, 'D')} days"
        case int() | float() | np.integer() | np.floating() | Decimal() | Fraction():
            return _double(cell)
        case complex() | np.complexfloating():
            return _double(cell.real) if cell.imag == 0 else None
        case bytes() | bytearray() | memoryview():
            return bytes(cell).decode()
        case dt.datetime():  # of pandas too, NaT among them
            return (
                None
                if cell != cell
                else (cell if cell.tzinfo is None else cell.astimezone(dt.UTC)).date().isoformat()
            )
        case dt.date():
            return cell.isoformat()
        case dt.time():
            return f"{cell.hour:02}:{cell.minute:02}"
        case dt.timedelta():
            return f"{cell.days} days"
        case np.datetime64():
            return None if np.isnat(cell) else str(cell.astype("datetime64[D]"))
        case UUID():
            return str(cell)
    return None


def _double(given: Any) -> str | None:
    try:
        double = float(given)
    except OverflowError:
        double = float("inf") if given > 0 else -float("inf")
    return None if double != double else repr(double)
