"""Which cell a row is in, as SQL: by arithmetic, by bisecting a sorted list, or by a few comparisons.

A grouping says that the cell of a code is the number of its cuts at or below it. Said to an engine cut by
cut, 65,536 cells took 12 s and 1.3 GB whatever the rows. Here the statement is short, or holds the cuts as
one constant, and a row costs at most 16 looks at it:

- cuts on a line, as those of equal bins and of edges that are as far apart as each other are: the cell is
  floor((m c + k) / d), held between the first and the last;
- a few other cuts are compared one after the other;
- many others are one sorted list that is bisected: by PostgreSQL's `width_bucket`, and on the others by
  adding powers of two to the cell, from the largest down, wherever the cut there is not above the code.

All of it is exact arithmetic on whole numbers, so every form agrees with the definition for every code,
declared or not. The cell of a row is a function of its code and of public numbers, never of other rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from reticent.query.declarations.datasets import DataSet
from reticent.query.language.questions import Grouping, even_cuts
from reticent.query.rows.columns import Column

_MOST_COMPARED = 64  # cuts that are no line and are compared one after the other
DUCKDB, POSTGRES, SPARK = "duckdb", "postgres", "pyspark"  # the engines, as ibis calls them
_PART = 21  # bits; 2^42 numbers of so many sum to less than 2^63


class Relation(Protocol):
    """Integer columns of an engine."""

    @property
    def relation(self) -> str:
        """What stands after FROM."""

    @property
    def names(self) -> Mapping[str, str]:
        """The integer column of each declared one."""

    @property
    def engine(self) -> str:
        """Whose SQL it takes: duckdb, postgres or pyspark."""


@dataclass(frozen=True)
class Line:
    """The cell of a code c is floor((factor c + offset) / divisor), held between 0 and the number of cuts."""

    factor: int
    offset: int
    divisor: int


def line(column: Column, cuts: tuple[int, ...]) -> Line | None:
    """The line that these cuts of a column lie on, if they do.

    Of B equal bins of N codes from `first` on, cut j is the first code at or above first + j N / B. So it is
    at or below c if, and only if, j <= (c - first) B / N: whole numbers leave nothing to round.
    """
    cells, first = len(cuts) + 1, cuts[0]
    if cuts == even_cuts(column, cells):
        return Line(cells, -column.first * cells, column.last - column.first + 1)
    step = cuts[1] - first if len(cuts) > 1 else 1
    if cuts == tuple(range(first, first + step * len(cuts), step)):
        return Line(1, step - first, step)
    return None


def numbered(by: Sequence[Grouping], data: DataSet, rows: Relation) -> tuple[str, str]:
    """What to put after FROM, and the number of a row's cell: groupings as digits, the last one fastest."""
    relation, number = rows.relation, ""
    for place, grouping in enumerate(by):
        name = f"CAST({rows.names[grouping.column]} AS BIGINT)"
        digit = name
        if grouping.cuts is not None:
            found = line(data.column(grouping.column), grouping.cuts)
            if found is not None:
                digit = _on_line(name, found, len(grouping.cuts))
            elif len(grouping.cuts) <= _MOST_COMPARED:
                digit = _compared(name, grouping.cuts)
            elif rows.engine == DUCKDB:
                relation, digit = _bisected(relation, name, grouping.cuts, place)
            elif rows.engine == SPARK:
                relation, digit = _bisected_in_spark(relation, name, grouping.cuts, place)
            else:
                digit = f"WIDTH_BUCKET({name}, CAST('{{{_listed(grouping.cuts)}}}' AS BIGINT[]))"
        number = f"({number}) * {grouping.cells} + {digit}" if number else digit
    return relation, number


def _on_line(name: str, found: Line, last: int) -> str:
    """The floor of a quotient: what is divided is a multiple, so that `/` is exact on every engine.

    PostgreSQL divides whole numbers, DuckDB and Spark make doubles of them: these are below 2^49 (2^32 codes
    and 2^16 cells), and a quotient that is whole is not rounded.
    """
    above = f"GREATEST({found.factor} * {name} + {found.offset}, 0)"
    return f"LEAST(CAST(({above} - {above} % {found.divisor}) / {found.divisor} AS BIGINT), {last})"


def _compared(name: str, cuts: Sequence[int]) -> str:
    steps = " ".join(f"WHEN {name} < {cut} THEN {cell}" for cell, cut in enumerate(cuts))
    return f"CASE {steps} ELSE {len(cuts)} END"


def _bisected(relation: str, name: str, cuts: Sequence[int], place: int) -> tuple[str, str]:
    """DuckDB's relation with the list of cuts beside every row, as one constant, and the cell found in it.

    A place beyond the end of the list holds NULL, which no code reaches. Each step is a query of its own,
    since a step that repeated the one before it twice would make the last one 2^16 times as long.
    """
    held, at = f"cuts{place}", f"cell{place}"
    listed = f"(SELECT CAST('[{_listed(cuts)}]' AS BIGINT[]) AS {held}) AS {held}_list"
    relation = f"(SELECT *, CAST(0 AS BIGINT) AS {at}_0 FROM {relation}, {listed}) AS rows"  # noqa: S608 - ours
    powers = [1 << bit for bit in reversed(range(len(cuts).bit_length()))]
    for step, power in enumerate(powers):
        before = f"{at}_{step}"
        more = f"CASE WHEN {held}[{before} + {power}] <= {name} THEN {power} ELSE 0 END"
        relation = f"(SELECT *, {before} + {more} AS {at}_{step + 1} FROM {relation}) AS rows"  # noqa: S608 - ours
    return relation, f"{at}_{len(powers)}"


def _bisected_in_spark(relation: str, name: str, cuts: Sequence[int], place: int) -> tuple[str, str]:
    """The same on Spark, whose list is named once: every look at it is at one constant, by its plan.

    Beside each row, as on DuckDB, it would be copied for each row. `get` counts from 0, and gives NULL
    beyond the end.
    """
    held, at = f"cuts{place}", f"cell{place}"
    listed = f"SELECT from_json('[{_listed(cuts)}]', 'ARRAY<BIGINT>') AS {held}"
    relation = f"(SELECT *, CAST(0 AS BIGINT) AS {at}_0 FROM {relation}) AS rows"  # noqa: S608 - ours
    powers = [1 << bit for bit in reversed(range(len(cuts).bit_length()))]
    for step, power in enumerate(powers):
        before = f"{at}_{step}"
        cut = f"get((SELECT {held} FROM {held}_list), CAST({before} + {power - 1} AS INT))"  # noqa: S608 - ours
        more = f"CASE WHEN {cut} <= {name} THEN {power} ELSE 0 END"
        relation = f"(SELECT *, {before} + {more} AS {at}_{step + 1} FROM {relation}) AS rows"  # noqa: S608 - ours
    relation = f"(WITH {held}_list AS ({listed}) SELECT * FROM {relation}) AS rows"  # noqa: S608 - ours
    return relation, f"{at}_{len(powers)}"


def summed(number: str, largest: int, engine: str) -> str:
    """The exact sum of whole numbers between -largest and largest, as SQL.

    DuckDB sums in 128 bits and PostgreSQL in decimals; Spark in 64 bits, of which a larger sum keeps the last
    ones without a word. There a number is summed in parts of 21 bits, the first of them with the sign, which
    overflow for no 2^42 rows (the most that may be declared are 2^36), and the sums are put together once, as
    decimals: below 2^105, so that their 38 digits hold.
    """
    bits = largest.bit_length()
    if engine != SPARK or bits <= _PART:
        return f"SUM({number})"
    wide, mask, last = f"CAST({number} AS BIGINT)", (1 << _PART) - 1, (bits - 1) // _PART
    parts = [f"SUM(SHIFTRIGHT({wide}, {_PART * last}))"]
    parts += [f"SUM(SHIFTRIGHT({wide}, {_PART * part}) & {mask})" for part in reversed(range(last))]
    whole = "CAST(0 AS DECIMAL(38, 0))"
    for part in parts:
        whole = f"({whole} * {1 << _PART} + {part})"
    return whole


def _listed(cuts: Sequence[int]) -> str:
    return ",".join(map(str, cuts))
