"""Which tables to buy before a workload is asked: candidates, what each is worth to each question, a choice.

A table over the columns of a question, cut where its conditions cut, has that question in its span, and those
of many others. What one unit of a table is worth to a question is found from the joint estimate of the table
alone; it grows in proportion. So for tables T with i_T units the workload costs at most

    sum of i_T  +  sum over questions of max(0, t_q - max over T of r_Tq i_T),

t_q the units that question q needs. In one i_T this is piecewise linear, with its least value at 0 or where a
question is just paid for. The choice goes greedily from table to table; what the whole then costs is found
by going through it (`proposals`), where purchases help each other and nothing is a bound.

Privacy: declarations and questions only. Nothing here looks at what was recorded.
Reference: docs/mathematics.md 7.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from reticent.ledger import Reading
from reticent.query.declarations.datasets import DataSet
from reticent.query.language.conditions import columns_of
from reticent.query.language.questions import Question
from reticent.query.language.tree import MOST_GROUPINGS, By, Query
from reticent.query.measure import Plan
from reticent.query.rows.columns import Column, Kind
from reticent.query.span.corners import TooLarge, cells, polynomial
from reticent.query.span.forms import MOST_VALUES
from reticent.query.span.joint import Joint

MOST_CANDIDATES = 48
_UNITS = 10**15  # of a table whose worth is found
_WORTH = 0.01  # of the whole, that another table must save


def read_columns(question: Question) -> frozenset[str]:
    """The columns that conditions and groupings of a question look at."""
    grouped = frozenset(one.column for one in question.by)
    return grouped | columns_of(question.where) | columns_of(question.of)


def candidates(asked: Sequence[tuple[Query, Plan]], data: DataSet) -> list[Query]:
    """Tables that have questions in their span: over the columns of one question, or of two.

    Args:
        asked: questions that are answered from the span.
        data: the declaration.
    """
    listed = [(query, plan, read_columns(plan.question)) for query, plan in asked]
    distinct = list(dict.fromkeys(columns for _, _, columns in listed if columns))
    unions = dict.fromkeys(one | other for one, other in combinations(distinct, 2))
    found: dict[Query, int] = {}
    for columns in dict.fromkeys((*distinct, *unions)):
        within = [(query, plan) for query, plan, needed in listed if needed <= columns]
        by = _groupings(columns, [plan.question for _, plan in within], data)
        if by is None:
            continue
        for kind, column in dict.fromkeys(_table_of(query) for query, _ in within):
            found[Query(kind, column, by=by)] = len(within)
    most = sorted(found, key=lambda query: -found[query])  # those that serve most come first
    return most[:MOST_CANDIDATES]


def _table_of(query: Query) -> tuple[str, str | None]:
    """What a table that serves a question shows: counts for counts and shares, else the same as it."""
    return ("count", None) if query.column is None else (query.kind, query.column)


def _groupings(
    columns: frozenset[str], questions: Sequence[Question], data: DataSet
) -> tuple[By, ...] | None:
    """Every column cut wherever one of the questions cuts it; None where that makes too many cells."""
    if len(columns) > MOST_GROUPINGS:
        return None
    cuts: dict[str, set[int]] = {name: set() for name in columns}
    try:
        for question in questions:
            for name, code in _steps(question, data):
                cuts[name].add(code)
    except TooLarge:  # a question with so many corners keeps to its own key
        return None
    made, size = [], 1
    for name in sorted(columns):
        by, count = _by(data.column(name), sorted(cuts[name]))
        made.append(by)
        size *= count
    return tuple(made) if size <= MOST_VALUES else None


def _steps(question: Question, data: DataSet) -> Iterable[tuple[str, int]]:
    """The columns and codes at which a question tells rows apart."""
    said = [polynomial(question.where, data), polynomial(question.of, data)]
    for one in question.by:
        said += cells((one,), data)
    return (step for terms in said for corner in terms for step in corner)


def _by(column: Column, codes: Sequence[int]) -> tuple[By, int]:
    if column.kind in (Kind.CATEGORY, Kind.BOOLEAN):
        return By(column.name), column.last - column.first + 1
    return By(column.name, tuple(float(column.meaning(code)) for code in codes)), len(codes) + 1


def rates(tables: Sequence[Plan], questions: Sequence[Plan], data: DataSet) -> NDArray[np.float64]:
    """What one unit of each table is worth to each question, in units of the question: 0 if nothing."""
    found = np.zeros((len(tables), len(questions)))
    for place, table in enumerate(tables):
        joint, columns = Joint(data), read_columns(table.question)
        joint.record(table, supposed(table, _UNITS))
        for number, plan in enumerate(questions):
            if read_columns(plan.question) <= columns and (made := joint.estimates(plan)) is not None:
                found[place, number] = min(one.information for one in made) / _UNITS
    return found


def supposed(plan: Plan, units: int) -> Reading:
    """What would be recorded if so many units were: of what it says nothing but how exact it is."""
    return Reading(plan.question.data.account, plan.question.key, units, (0,) * plan.values, 0)


def chosen(wanted: NDArray[np.float64], worth: NDArray[np.float64]) -> NDArray[np.float64]:
    """The units of each table at which the bound above is small: greedily, then each again.

    Args:
        wanted: t_q, the units that each question needs.
        worth: r_Tq, as `rates` gives them.
    """
    units = np.zeros(len(worth))
    least = float(wanted.sum())
    while True:
        moves = [_best(place, units, wanted, worth) for place in range(len(worth))]
        if not moves:
            return units
        total, level, place = min((total, level, place) for place, (total, level) in enumerate(moves))
        if total > (1 - _WORTH) * least:
            return units
        units[place], least = level, total


def _best(
    place: int, units: NDArray[np.float64], wanted: NDArray[np.float64], worth: NDArray[np.float64]
) -> tuple[float, float]:
    """The least total that one table's units can make, and those units."""
    others = np.delete(units, place)
    known = (np.delete(worth, place, axis=0) * others[:, None]).max(axis=0, initial=0.0)
    serves = worth[place] > 0
    levels = np.concatenate(([0.0], wanted[serves] / worth[place][serves]))
    left = np.maximum(0.0, wanted - np.maximum(known, levels[:, None] * worth[place])).sum(axis=1)
    totals = others.sum() + levels + left
    best = int(totals.argmin())
    return float(totals[best]), float(levels[best])
