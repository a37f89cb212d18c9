"""Questions: a query about one data set, in the form under which its noise is kept and found again.

`resolve` checks a query against the declared columns and says what must be measured to answer it. Several
queries may need the same measurement: a mean over a public number of rows and a sum, a histogram and a
quantile. Equal text means that the measured vector is the same function of the data, so the key, a hash of
the text, is what the ledger buys information about (THREATS.md 10). In doubt, the texts differ.

Not here: sensitivities and sums (`measure`), and what an answer says (`estimates`).
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

from reticent.errors import ParameterError
from reticent.query.columns import Column, Kind
from reticent.query.conditions import Condition, both, columns_of, condition_json, resolve_condition
from reticent.query.datasets import DataSet
from reticent.query.tree import By, Query

MOST_VALUES = 1 << 16  # of one measurement
_FORM = 1  # of the text; a new one whenever the same text would mean another vector


class Measured(Enum):
    """What is summed over the rows of a cell."""

    COUNT = "count"
    SUM = "sum"
    MEAN = "mean"  # sum and count
    SHARE = "share"  # two counts
    SQUARES = "squares"  # sum and sum of squares
    VARIANCE = "variance"  # these and the count

    @property
    def values(self) -> int:
        """How many values one cell has."""
        return _VALUES[self]


_VALUES = {
    Measured.COUNT: 1,
    Measured.SUM: 1,
    Measured.MEAN: 2,
    Measured.SHARE: 2,
    Measured.SQUARES: 2,
    Measured.VARIANCE: 3,
}


@dataclass(frozen=True)
class Grouping:
    """The cells of one column.

    Args:
        column: whose codes are grouped.
        cuts: the cell of a code is the number of cuts at or below it; None makes every code a cell, counted
            from the first.
        cells: how many there are.
    """

    column: str
    cuts: tuple[int, ...] | None
    cells: int


@dataclass(frozen=True)
class Question:
    """What must be measured, and its names.

    Args:
        measured: what is summed.
        column: of what, for all but counts and shares.
        of: for shares, the rows that are counted among `where`; they are among them by construction. Else
            True.
        where: the rows that count.
        by: groupings, by the names of their columns.
        data: the data set.
        text: canonical JSON of all this and of every declaration that decides the codes.
        key: names the question in the ledger.
    """

    measured: Measured
    column: str | None
    of: Condition
    where: Condition
    by: tuple[Grouping, ...]
    data: DataSet
    text: str = field(init=False)
    key: str = field(init=False)

    def __post_init__(self) -> None:
        text = _json(_content(self))
        digest = hashlib.sha256(text.encode()).hexdigest()
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "key", f"{self.measured.value}/{digest}")

    @property
    def cells(self) -> int:
        """How many cells all groupings make together."""
        return math.prod(one.cells for one in self.by)


def resolve(query: Query, data: DataSet) -> Question:
    """What must be measured to answer a query.

    Raises:
        ParameterError: the query names an unknown column, compares or groups one in a way it does not
            allow, or asks for more than 65,536 values.
    """
    where = resolve_condition(query.where, data)
    by = tuple(sorted((_grouping(one, data) for one in query.by), key=lambda one: one.column))
    for one, other in pairwise(by):
        if one.column == other.column:
            raise ParameterError(f"by must name each column once, got {one.column!r} twice")
    of: Condition = True
    if query.kind == "proportion":
        of = both(resolve_condition(query.of, data, "of"), where, data)
    whole = data.rows is not None and where is True and not by  # so that n is public, and is all rows
    measured = _measured(query.kind, whole=whole)
    if query.kind == "proportion" and measured is Measured.COUNT:
        of, where = True, of
    column = None
    if measured not in (Measured.COUNT, Measured.SHARE):
        assert query.column is not None  # a query sees to it
        column = _summed(query.kind, data.column(query.column)).name
    question = Question(measured, column, of, where, by, data)
    if question.cells * measured.values > MOST_VALUES:
        raise ParameterError(f"by must make at most {MOST_VALUES // measured.values} cells for a "
                             f"{query.kind}, got {question.cells}")  # fmt: skip
    return question


def _measured(kind: str, *, whole: bool) -> Measured:
    match kind:
        case "sum":
            return Measured.SUM
        case "mean":
            return Measured.SUM if whole else Measured.MEAN
        case "proportion":
            return Measured.COUNT if whole else Measured.SHARE
        case "variance":
            return Measured.SQUARES if whole else Measured.VARIANCE
        case _:  # count, histogram, quantile
            return Measured.COUNT


def _summed(kind: str, column: Column) -> Column:
    if not column.is_number:
        raise ParameterError(f"column must be a number or boolean for a {kind}, got {column.name!r}, "
                             f"which is {column.kind.value}")  # fmt: skip
    return column


# Groupings


def _grouping(by: By, data: DataSet) -> Grouping:
    try:
        column = data.column(by.column)
    except ParameterError as err:
        raise ParameterError(f"by.{err}") from None
    is_cut = by.edges is not None or by.bins is not None
    if column.kind in (Kind.CATEGORY, Kind.BOOLEAN):
        if is_cut:
            raise ParameterError(f"by.{'edges' if by.bins is None else 'bins'} must not be given for "
                                 f"{column.name}, which is {column.kind.value}")  # fmt: skip
        return Grouping(column.name, None, column.last - column.first + 1)
    if not is_cut:
        raise ParameterError(f"by.edges or by.bins must be given for {column.name}, "
                             f"which is {column.kind.value}")  # fmt: skip
    cuts = _even_cuts(column, by.bins) if by.bins is not None else _cuts(column, by.edges or ())
    return Grouping(column.name, cuts, len(cuts) + 1)


def _even_cuts(column: Column, bins: int) -> tuple[int, ...]:
    """Cuts between so many bins, as equal as codes allow; fewer if there are fewer codes."""
    codes = column.last - column.first + 1
    bins = min(bins, codes)
    return tuple(column.first - (-j * codes // bins) for j in range(1, bins))


def _cuts(column: Column, edges: tuple[float, ...]) -> tuple[int, ...]:
    """The first code at or above each edge."""
    cuts = tuple(math.ceil(Fraction(repr(float(edge))) / column.unit) for edge in edges)
    for edge, cut in zip(edges, cuts, strict=True):
        if not column.first < cut <= column.last:
            low, high = column.meaning(column.first), column.meaning(column.last)
            raise ParameterError(f"by.edges must be > {low!r} and <= {high!r}, the bounds of "
                                 f"{column.name}, got {edge!r}")  # fmt: skip
    for (edge, cut), (_, after) in pairwise(zip(edges, cuts, strict=True)):
        if cut == after:
            raise ParameterError(f"by.edges must be at least a step of {column.name} apart, {column.step!r}, "
                                 f"got one too close to {edge!r}")  # fmt: skip
    return cuts


# The text


def _content(question: Question) -> dict[str, Any]:
    """Everything that decides the measured vector.

    The number of rows is not in it: sums are measured, and only their estimates divide by it. Where persons
    are protected, which of a person's rows are kept is decided by sorting them by every column, so all
    declarations are in it, in their order.
    """
    data = question.data
    unit: Any = "row"
    if data.person is not None:
        unit = {"person": data.person, "rows": data.contribution, "columns": _digest(data.columns)}
    return {
        "form": _FORM,
        "measured": question.measured.value,
        "column": question.column,
        "of": condition_json(question.of),
        "where": condition_json(question.where),
        "by": [{"column": one.column, "cuts": one.cuts} for one in question.by],
        "columns": [data.column(name).declaration() for name in sorted(_read(question))],
        "relation": data.relation.value,
        "unit": unit,
        "data": data.name,
        "version": data.version,
    }


def _read(question: Question) -> set[str]:
    """The columns that the vector is computed from."""
    read = {one.column for one in question.by} | columns_of(question.of) | columns_of(question.where)
    return read if question.column is None else read | {question.column}


@lru_cache(maxsize=64)
def _digest(columns: tuple[Column, ...]) -> str:
    return hashlib.sha256(_json([column.declaration() for column in columns]).encode()).hexdigest()


def _json(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))
