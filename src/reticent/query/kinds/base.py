"""What a kind of question is, and what is summed for it. A kind that leaves a part out cannot be made.

A `Kind` is what people ask for; a `Measure` is the vector of a cell that is measured for it, under a name
that stands in the ledger's keys: measures are never removed and never get another meaning. The file of a kind
makes its `Kind` and whatever `Measure` is its own; `listed` holds one line for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from reticent.query.kinds.intervals import Cell, Estimate, half_width_factor, linear

if TYPE_CHECKING:
    from reticent.query.language.questions import Question
    from reticent.query.language.tree import Predicate, Query
    from reticent.query.measure import Plan, Rows


Covariance: TypeAlias = Sequence[Sequence[float]]
"""Of the coordinates of a cell, in squared grid units."""


class Sums(NamedTuple):
    """Exact sums over the rows of one cell; x is the code of the column, or 0 and 1 for a share."""

    rows: int
    x: int
    squares: int


class Move(NamedTuple):
    """How far one row can move the coordinates of a cell, squared, in units of codes.

    Attributes:
        stay: a row that changes and stays in its cell.
        come: a row that comes or goes, without its weighted count.
        weight: what the weight of a counted row is, squared; 0 where no count is among the coordinates.
    """

    stay: int
    come: int
    weight: int


@dataclass(frozen=True, eq=False)
class Measure:
    """What is summed over the rows of a cell.

    Attributes:
        name: in keys of the ledger, for ever.
        values: coordinates of a cell.
        has_column: whether a column is summed.
        summand: x as SQL; None where only rows are counted.
        squared: whether x^2 is summed too.
        needs_rows: whether the number of rows that pass a filter is needed.
        coordinates: the exact coordinates of a cell, on the plan's grid.
        move: (h = high - low, low, high, neighbours replace, cells) to how far one row can move them.
        comes_without_filter: whether a replaced row counts as one that comes or goes even where no filter is.
        estimate: one cell of a vector to what it says; None where each coordinate is one number by itself.
        jointly: the same, where the coordinates' noises have a covariance, as what is combined from several
            purchases has (`span`); None as for `estimate`, or where a question keeps to its own purchases.
            The last argument chooses the interval of earlier releases (`intervals`).
        error: half the width of an interval (see `predicted_error`); None as for `estimate`.
    """

    name: str
    values: int
    has_column: bool
    summand: Callable[[Question, Rows], str] | None
    squared: bool
    needs_rows: bool
    coordinates: Callable[[Plan, Sums], list[int]]
    move: Callable[[int, int, int, bool, bool], Move]
    comes_without_filter: bool
    estimate: Callable[[Plan, list[float], float, float], Estimate] | None
    jointly: Callable[[Plan, Sequence[float], Covariance, float, bool], Estimate] | None
    error: Callable[[Plan, float, float, float], float] | None

    @property
    def value(self) -> str:
        """The name."""
        return self.name

    def __repr__(self) -> str:
        return f"<measure {self.name}>"


@dataclass(frozen=True)
class Asked:
    """An aggregate of SQL."""

    kind: str
    column: str | None = None
    of: Predicate | None = None
    where: Predicate | None = None
    levels: tuple[float, ...] = ()


class SqlReader(Protocol):
    """What an aggregate may look at: nodes of a parsed SELECT about one data set."""

    def kind(self, node: Any) -> str:
        """The class of a node."""

    def part(self, node: Any, name: str) -> Any:
        """A part of a node, or None."""

    def listed(self, node: Any, name: str) -> list[Any]:
        """The parts of a node under one name."""

    def only(self, node: Any, *known: str) -> None:
        """Refuse a node that says more than is known of it."""

    def of(self, node: Any) -> Any:
        """What a node that says nothing else is about."""

    def column(self, node: Any) -> str:
        """The name of a column."""

    def condition(self, node: Any) -> Predicate:
        """A condition."""

    def indicator(self, node: Any) -> Predicate | None:
        """The condition of `CASE WHEN condition THEN 1 ELSE 0 END` or `(condition)::int`; None of others."""

    def constant(self, node: Any) -> Any:
        """A constant."""

    def refused(self, node: Any) -> Exception:
        """The refusal of a node that is no aggregate."""


@dataclass(frozen=True)
class Form:
    """How a kind is asked for on a page.

    Attributes:
        name: the word that is chosen.
        fields: which of column, of, levels and by are asked for; conditions always are.
        missing: what is said where a field is empty that must not be, by field.
        levels: as text, where they are not asked for or left empty.
    """

    name: str
    fields: tuple[str, ...]
    missing: Mapping[str, str]
    levels: str = ""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of question.

    Attributes:
        name: in queries.
        measures: those of its own, in the order in which they came.
        measured: whether all of a public number of rows are asked about, in one cell, to what is measured.
        needs_column, needs_of, needs_levels, needs_by: which fields of a query it must have.
        bins_column: its groups are the bins of its column.
        is_rank: errors are of the rank, from 0 to 1, and cells are levels.
        is_table: always shown as a table, however few cells it has.
        is_public: the declaration answers it, where all of a public number of rows are asked about.
        per_row: linear values are divided by the public number of rows.
        range: between which numbers an answer must lie, from public facts; for linear values.
        title, line: (column, levels) to its first words, long and short.
        forms: on pages.
        aggregates: of SQL, by the class of sqlglot's node.
        sql: their names, for people.
        select: (column, condition, levels), the first two as SQL, to the aggregate in SQL.
        estimates: replaces the estimate of each cell by itself.
        error: replaces the predicted error of a cell by itself.
    """

    name: str
    measures: tuple[Measure, ...]
    measured: Callable[[bool], Measure]
    needs_column: bool
    needs_of: bool
    needs_levels: bool
    needs_by: bool
    bins_column: bool
    is_rank: bool
    is_table: bool
    is_public: bool
    per_row: bool
    range: Callable[[Plan], tuple[float, float]]
    title: Callable[[str | None, Sequence[float]], str]
    line: Callable[[str | None, Sequence[float]], str]
    forms: tuple[Form, ...]
    aggregates: Mapping[str, Callable[[SqlReader, Any], Asked]]
    sql: tuple[str, ...]
    select: Callable[[str, str, Sequence[float]], str]
    estimates: Callable[[Query, Plan, list[float], float, float], list[Cell]] | None
    error: Callable[[Plan, float, float], float] | None


# What several kinds share


def bounds(question: Question) -> tuple[int, int]:
    """The codes between which x lies: those of the column, or 0 and 1 for a share."""
    if question.column is None:
        return 0, 1
    column = question.data.column(question.column)
    return column.first, column.last


def step_of(question: Question) -> float:
    """What one step of x means; 1 for counts and shares."""
    return 1.0 if question.column is None else float(question.data.column(question.column).unit)


def possible(question: Question) -> tuple[float, float]:
    """Between which numbers x lies: those of the column, or 0 and 1 for a share."""
    return (0.0, 1.0) if question.column is None else question.data.column(question.column).possible


def column_summand(question: Question, rows: Rows) -> str:
    """A column as it is."""
    assert question.column is not None
    return rows.names[question.column]


def wide_summand(question: Question, rows: Rows) -> str:
    """A column whose squares fit."""
    return f"CAST({column_summand(question, rows)} AS BIGINT)"


def centred(plan: Plan, sums: Sums) -> tuple[int, int]:
    """The sum of z = 2x - (low + high), and h = high - low."""
    low, high = bounds(plan.question)
    return 2 * sums.x - (low + high) * sums.rows, high - low


def root_down(exact: Fraction) -> int:
    """The square root, rounded down."""
    return math.isqrt(math.floor(exact))


def linear_estimates(
    kind: Kind,
    plan: Plan,
    vector: Sequence[float],
    sigma: float,
    confidence: float,
    *,
    cut_only: bool = False,
) -> list[Estimate]:
    """Counts and sums, or shares and means over a public number of rows: there may be 65,536 of them."""
    question, scale = plan.question, math.ldexp(1.0, -plan.shift)
    unit, factor = step_of(question), half_width_factor(confidence)
    centre = float(plan.offset * (question.data.rows or 0))
    if kind.per_row:
        assert question.data.rows is not None
        scale, centre = scale / question.data.rows, float(plan.offset)
    ends = kind.range(plan)
    spread = sigma * scale * unit
    return [
        linear((centre + float(value) * scale) * unit, spread, factor, *ends, cut_only=cut_only)
        for value in vector
    ]


def linear_error(kind: Kind, plan: Plan, sigma: float) -> float:
    """Half the width of their intervals, for noise whose half width on the grid is sigma."""
    rows = plan.question.data.rows if kind.per_row else 1
    assert rows is not None
    return sigma * math.ldexp(1.0, -plan.shift) * step_of(plan.question) / rows


def anything(plan: Plan) -> tuple[float, float]:
    """No public fact bounds the answer."""
    return -math.inf, math.inf


def number_of_rows(plan: Plan) -> tuple[float, float]:
    """Of a count."""
    rows = plan.question.data.rows
    return 0.0, math.inf if rows is None else float(rows)


def column_aggregate(kind: str) -> Callable[[SqlReader, Any], Asked]:
    """An aggregate that says nothing but its column."""
    return lambda read, node: Asked(kind, read.column(read.of(node)))
