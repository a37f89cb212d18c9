"""Days as numbers: texts that say a day of the calendar, as the days since 1970-01-01, on every engine.

`cells.day_number` says what it means; here it is said to the engine, of texts that say no number. It is SQL
that is written here, not made by ibis, whose text would be ten times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reticent.query.declarations.datasets import DataSet
from reticent.query.rows.bins import DUCKDB, POSTGRES, SPARK
from reticent.tables import cells

_DAY_LENGTH, _MINUTES_OF_A_DAY = len("2026-01-02"), 24 * 60


@dataclass(frozen=True)
class _Dialect:
    """What an engine calls the few functions that are needed; total on what a calendar day may be.

    Args:
        matches: Whether `{text}` matches `{pattern}`.
        group: Group `{number}` of the match of `{pattern}` in `{text}`; empty or NULL if there is none.
        whole: `{text}` as a whole number; NULL if it is empty.
        day: The days from 1970-01-01 to `{text}`, which is like 2026-01-02.
    """

    matches: str
    group: str
    whole: str
    day: str


_DIALECTS = {
    DUCKDB: _Dialect(
        "regexp_matches({text}, '{pattern}')",
        "regexp_extract({text}, '{pattern}', {number})",
        "TRY_CAST({text} AS BIGINT)",
        "date_diff('day', CAST('1970-01-01' AS DATE), TRY_CAST({text} AS DATE))",
    ),
    POSTGRES: _Dialect(
        "{text} ~ '{pattern}'",
        "(regexp_match({text}, '{pattern}'))[{number}]",
        "CAST(NULLIF({text}, '') AS BIGINT)",
        "(CAST({text} AS DATE) - CAST('1970-01-01' AS DATE))",
    ),
    SPARK: _Dialect(
        "{text} RLIKE '{pattern}'",
        "regexp_extract({text}, '{pattern}', {number})",
        "TRY_CAST({text} AS BIGINT)",
        "datediff(TRY_CAST({text} AS DATE), CAST('1970-01-01' AS DATE))",
    ),
}


def add_day_numbers(engine: Any, table: Any, data: DataSet) -> Any:
    """Return the table whose texts that say days are numbers, too, in formats that know them as such."""
    numbers = [
        number
        for number, column in enumerate(data.columns)
        if column.format > 1 and column.step is not None and f"t{number}" in table.columns
    ]
    if not numbers:
        return table
    fence = " OFFSET 0" if engine.name == POSTGRES else ""  # or it would repeat what is read at every use
    texts = ", ".join(f"{_day_text(number, engine.name)} AS d{number}" for number in numbers)
    days = ", ".join(f"{_day_number(f'd{number}', engine.name)} AS n{number}" for number in numbers)
    sql = f"SELECT *, {texts} FROM ({engine.compile(table)}) AS said{fence}"  # noqa: S608 - made by us
    sql = f"SELECT *, {days} FROM ({sql}) AS days{fence}"  # noqa: S608 - made by us
    columns = ", ".join(_with_day(name, numbers) for name in table.columns)
    sql = f"SELECT {columns} FROM ({sql}) AS numbers{fence}"  # noqa: S608 - made by us
    return engine.sql(sql, schema=table.schema())


def _day_text(number: int, engine: str) -> str:
    """Return SQL for a text that says a calendar day and no number, NULL for every other."""
    text, pattern = f"t{number}", engine_pattern(cells.CALENDAR_DAY, engine)
    is_day = _DIALECTS[engine].matches.format(text=text, pattern=pattern)
    is_shaped = f"x{number} IS NULL AND {text} LIKE '____-__-__%'"  # which takes no time to tell
    return f"CASE WHEN {is_shaped} THEN CASE WHEN {is_day} THEN {text} END END"


def _day_number(day: str, engine: str) -> str:
    """Return SQL for the days since 1970-01-01, as `cells.day_number`, of a calendar day or NULL."""
    dialect = _DIALECTS[engine]

    def whole(text: str) -> str:
        return f"COALESCE({dialect.whole.format(text=text)}, 0)"

    pattern = engine_pattern(cells.UTC_OFFSET, engine)
    hours, minutes = (dialect.group.format(text=day, pattern=pattern, number=group) for group in (1, 2))
    signed = f"CASE WHEN {minutes} <> '' THEN concat(substr({hours}, 1, 1), {minutes}) END"
    clock = f"60 * {whole(f'substr({day}, 12, 2)')} + {whole(f'substr({day}, 15, 2)')}"
    moved = f"{clock} - 60 * {whole(hours)} - {whole(signed)}"
    shift = f"CAST(FLOOR(({moved}) / {_MINUTES_OF_A_DAY}.0) AS BIGINT)"
    written = dialect.day.format(text=f"substr({day}, 1, {_DAY_LENGTH})")
    return f"{written} + CASE WHEN length({day}) > {_DAY_LENGTH} THEN {shift} ELSE 0 END"


def _with_day(name: str, numbers: Sequence[int]) -> str:
    """Return SQL for a column of the table: a number is also what a day of the years 1 to 9999 says."""
    if name not in {f"x{number}" for number in numbers}:
        return name
    day = f"n{name[1:]}"
    is_day = f"{day} BETWEEN {cells.FIRST_DAY} AND {cells.LAST_DAY}"  # the day in UTC may be none
    return f"COALESCE({name}, CASE WHEN {is_day} THEN CAST({day} AS DOUBLE PRECISION) END) AS {name}"


def engine_pattern(grammar: str, engine: str) -> str:
    """Return a grammar as the engine must be told it: to Java `$` is before a last end of a line, too."""
    if engine != SPARK:
        return grammar
    return f"(?s){grammar.removesuffix('$')}(?!.)"
