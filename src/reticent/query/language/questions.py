"""Questions: a query about one data set, in the form under which its noise is kept and found again.

`resolve` checks a query against the declared columns and says what must be measured to answer it. Several
queries may need the same measurement: a mean over a public number of rows and a sum, a histogram and a
quantile. Equal text means that the measured vector is the same function of the data, so the key, a hash of
the text, is what the ledger buys information about. In doubt, the texts differ. `parse` reads
a text that a stranger wrote, and takes only what `resolve` writes.

Not here: sensitivities and sums (`measure`), and what an answer says (`estimates`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

from reticent.errors import ParameterError
from reticent.query.declarations.datasets import FORMATS, DataSet
from reticent.query.kinds.base import Measure
from reticent.query.kinds.listed import KIND
from reticent.query.kinds.proportion import SHARE
from reticent.query.language import strict_json
from reticent.query.language.conditions import (
    Condition,
    both,
    columns_of,
    condition_from_json,
    condition_json,
    resolve_condition,
)
from reticent.query.language.tree import KINDS, MOST_GROUPINGS, By, Query, shown
from reticent.query.rows.columns import Column, Kind

MOST_VALUES = 1 << 16  # of one measurement
LONGEST_TEXT = 1 << 20  # that `parse` reads
_DEEPEST = 100  # levels of its JSON; the deepest condition needs 68
_FORM = 1  # of the text; a new one whenever the same text would mean another vector
_PERSONS = 2  # of the rule which rows are whose; 1: whole numbers that share a double were one person
_FIELDS = frozenset(
    ("by", "column", "columns", "data", "form", "measured", "of", "relation", "unit", "version", "where")
)


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

    measured: Measure
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
    by = _in_order(_grouping(one, data) for one in query.by)
    of: Condition = True
    if query.of is not None:
        of = both(resolve_condition(query.of, data, "of"), where, data)
    measured = _measured(query.kind, whole=_is_whole(where, by, data))
    if query.of is not None and measured.summand is None:  # the share of a public number of rows is a count
        of, where = True, of
    column = None
    if measured.has_column:
        assert query.column is not None  # a query sees to it
        column = _summed(query.kind, data.column(query.column)).name
    return _checked_size(Question(measured, column, of, where, by, data), query.kind)


def parse(text: str, data: DataSet) -> Question:
    """The question that a text states: the inverse of `Question.text`. The text may be anybody's.

    Whoever measures for strangers reads what they wrote with this and nothing else. A text is taken only if
    it is, letter for letter, that of a question which some query about this data set resolves to; so the
    sensitivity of its plan is one that was thought about, and no two texts lead to the same question.

    Raises:
        ParameterError: it is anything else: of another data set, version or declaration, not in normal form,
            or longer than 2^20 characters.
    """
    said = _said(text, data)
    where = condition_from_json(said["where"], data)
    by = _in_order(_stated_grouping(one, data) for one in _short_list(said["by"]))
    kinds = {_measured(kind, whole=_is_whole(where, by, data)) for kind in KINDS}
    measured = next((one for one in kinds if one.value == said["measured"]), None)
    if measured is None:
        known = ", ".join(sorted(one.value for one in kinds))
        raise ParameterError(f"measured must be one of {known} here, got {shown(said['measured'])}")
    of = condition_from_json(said["of"], data, "of")
    if of != (both(of, where, data) if measured is SHARE else True):
        raise ParameterError("of must be rows of where for a share, and true else")
    column = said["column"]
    if (column is None) == measured.has_column:
        raise ParameterError(f"column must be given for all but counts and shares, got {shown(column)}")
    if column is not None:
        column = _summed(measured.value, data.column(_name("column", column))).name
    question = _checked_size(Question(measured, column, of, where, by, data), measured.value)
    if question.text != text:
        differ = [name for name, right in json.loads(question.text).items() if right != said[name]]
        raise ParameterError(f"{differ[0]} must be as the data set has it, in normal form" if differ else
                             "question must be canonical JSON")  # fmt: skip
    return question


def _is_whole(where: Condition, by: tuple[Grouping, ...], data: DataSet) -> bool:
    """Whether all rows count, in one cell, and their number is public."""
    return data.rows is not None and where is True and not by


def _checked_size(question: Question, kind: str) -> Question:
    values = question.measured.values
    if question.cells * values > MOST_VALUES:
        raise ParameterError(f"by must make at most {MOST_VALUES // values} cells for a {kind}, "
                             f"got {question.cells}")  # fmt: skip
    return question


def _measured(kind: str, *, whole: bool) -> Measure:
    return KIND[kind].measured(whole)


def _summed(kind: str, column: Column) -> Column:
    if not column.is_number:
        raise ParameterError(f"column must be a number or boolean for a {kind}, got {column.name!r}, "
                             f"which is {column.kind.value}")  # fmt: skip
    return column


# Groupings


def _in_order(given: Iterable[Grouping]) -> tuple[Grouping, ...]:
    by = tuple(sorted(given, key=lambda one: one.column))
    for one, other in pairwise(by):
        if one.column == other.column:
            raise ParameterError(f"by must name each column once, got {one.column!r} twice")
    return by


def _grouping(by: By, data: DataSet) -> Grouping:
    column = _grouped(by.column, data)
    is_cut = by.edges is not None or by.bins is not None
    if column.kind in (Kind.CATEGORY, Kind.BOOLEAN):
        if is_cut:
            raise ParameterError(f"by.{'edges' if by.bins is None else 'bins'} must not be given for "
                                 f"{column.name}, which is {column.kind.value}")  # fmt: skip
        return Grouping(column.name, None, column.last - column.first + 1)
    if not is_cut:
        raise ParameterError(f"by.edges or by.bins must be given for {column.name}, "
                             f"which is {column.kind.value}")  # fmt: skip
    cuts = even_cuts(column, by.bins) if by.bins is not None else _cuts(column, by.edges or ())
    return Grouping(column.name, cuts, len(cuts) + 1)


def _grouped(name: str, data: DataSet) -> Column:
    try:
        return data.column(name)
    except ParameterError as err:
        raise ParameterError(f"by.{err}") from err


def even_cuts(column: Column, bins: int) -> tuple[int, ...]:
    """Cuts between so many bins, as equal as codes allow; fewer if there are fewer codes."""
    codes = column.last - column.first + 1
    bins = min(bins, codes)
    return tuple(column.first - (-j * codes // bins) for j in range(1, bins))


def _cuts(column: Column, edges: tuple[float, ...]) -> tuple[int, ...]:
    """The first code at or above each edge."""
    cuts = tuple(math.ceil(Fraction(repr(float(edge))) / column.unit) for edge in edges)
    if (
        len(cuts) > 1 and cuts[0] == column.first
    ):  # the low bound itself: nothing lies below, so it cuts nothing
        edges, cuts = edges[1:], cuts[1:]
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


# Reading a text


def _said(text: str, data: DataSet) -> dict[str, Any]:
    """Return the fields of a text about a data set, whatever they hold."""
    fields = _FIELDS | _format_field(data).keys()
    said = strict_json.read("question", text, longest=LONGEST_TEXT, deepest=_DEEPEST)
    if not isinstance(said, dict) or said.keys() != fields:
        raise ParameterError(f"question must be an object with {', '.join(sorted(fields))}")
    return said


def _short_list(given: Any) -> list[Any]:
    if not isinstance(given, list) or len(given) > MOST_GROUPINGS:
        raise ParameterError(f"by must be a list of at most {MOST_GROUPINGS}, got {shown(given)}")
    return given


def _name(field: str, given: Any) -> str:
    if not isinstance(given, str):
        raise ParameterError(f"{field} must be a name, got {shown(given)}")
    return given


def _stated_grouping(given: Any, data: DataSet) -> Grouping:
    if not isinstance(given, dict) or given.keys() != {"column", "cuts"}:
        raise ParameterError(f"by must be made of objects with column and cuts, got {shown(given)}")
    column, cuts = _grouped(_name("by.column", given["column"]), data), given["cuts"]
    if column.kind in (Kind.CATEGORY, Kind.BOOLEAN):
        if cuts is not None:
            raise ParameterError(f"by.cuts must be null for {column.name}, which is {column.kind.value}")
        return Grouping(column.name, None, column.last - column.first + 1)
    if not isinstance(cuts, list) or not 0 < len(cuts) < MOST_VALUES or {type(one) for one in cuts} != {int}:
        raise ParameterError(f"by.cuts must be 1 to {MOST_VALUES - 1} codes for {column.name}, "
                             f"which is {column.kind.value}")  # fmt: skip
    if any(a >= b for a, b in pairwise([column.first, *cuts, column.last + 1])):
        raise ParameterError(f"by.cuts must rise, > {column.first} and <= {column.last}, the codes of "
                             f"{column.name}")  # fmt: skip
    return Grouping(column.name, tuple(cuts), len(cuts) + 1)


# The text


def _content(question: Question) -> dict[str, Any]:
    """Everything that decides the measured vector.

    The number of rows is not in it: sums are measured, and only their estimates divide by it. Where persons
    are protected, which of a person's rows are kept is decided by the codes of every column, in their order
    (format 1) or hashed with a key that the rows keep for ever, so all declarations are in it, in order.
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
        "columns": [data.column(name).declaration() for name in sorted(columns_read(question))],
        "relation": data.relation.value,
        "unit": unit,
        "data": data.name,
        "version": data.version,
    } | _format_field(data)


def _format_field(data: DataSet) -> dict[str, int]:
    """Return the field that names the declaration's format; none for the first, whose texts had none."""
    return {} if data.format == FORMATS[0] else {"format": data.format}


def columns_read(question: Question) -> set[str]:
    """Return the names of the columns that the measured vector is computed from."""
    read = {one.column for one in question.by} | columns_of(question.of) | columns_of(question.where)
    return read if question.column is None else read | {question.column}


@lru_cache(maxsize=64)
def _digest(columns: tuple[Column, ...]) -> str:
    kept: list[Any] = [_PERSONS, *(column.declaration() for column in columns)]
    return hashlib.sha256(_json(kept).encode()).hexdigest()


def _json(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))
