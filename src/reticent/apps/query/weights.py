"""The work of a question, from public numbers: its cells, times the steps of rows that are declared.

Rates count this beside requests, for answers, prices and rehearsals alike: a question of 65,536 cells is as
much as 65,536 questions of one. Nothing here looks at rows, or at how many there really are.

A question may also be estimated from what is recorded, by anybody. That takes as long as there are recorded
values, up to a bound, and is counted for the person who asks. The ledger shows those values: they are public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from reticent.errors import ParameterError
from reticent.query import DataSet
from reticent.query.language.questions import MOST_VALUES
from reticent.query.language.tree import By, Query

MANY = 1024  # cells that take long enough to need a thread of their own
PLANNED = 300  # cells that a question of a workload counts as: it is gone through several times
_LETTERS_PER_CELL = 16  # reading so much of a question takes about as long as a cell does
_MOST_COMBINED = 256  # cells of a question that is estimated from others
_FEW_VALUES = 256  # recorded values that are combined in no time
_MOST_COUNTED = 2048  # recorded values beyond those, after which an estimate takes no longer
_CELLS_PER_VALUE = 2  # that a recorded value counts as for a table
_VALUES_PER_CELL = 16  # that count as one cell for a single number


class WorkWeight(NamedTuple):
    """The work of a question, in cells.

    Attributes:
        cells: Cells that are asked for, each as many times as there are steps of rows.
        reuse: Cells that estimating the question from recorded values counts as, whatever the rows.
    """

    cells: int
    reuse: int

    @property
    def is_long_estimate(self) -> bool:
        """True if few cells are asked for, and estimating them takes long."""
        return self.cells <= MANY < self.reuse


def cells_asked(query: Query | Mapping[str, Any], data: DataSet) -> int:
    """Return the number of cells that a query asks for, at most 65,536.

    An object that is no query counts as one, and is refused later.

    Cells are counted before the query is checked, since checking many edges is part of the work.
    """
    by = query.by if isinstance(query, Query) else query.get("by")
    listed = by if isinstance(by, (list, tuple)) else [by]
    return min(MOST_VALUES, math.prod(_cells(one, data) for one in listed[:16]))


def reuse_cells(cells: int, recorded_values: int) -> int:
    """Return the number of cells that estimating a question from recorded values counts as.

    Args:
        cells: Cells that the question asks for.
        recorded_values: Values that are recorded about the data set and may be combined.
    """
    if cells > _MOST_COMBINED:  # it keeps to its own purchases
        return 0
    counted = min(max(0, recorded_values - _FEW_VALUES), _MOST_COUNTED)
    return _CELLS_PER_VALUE * counted if cells > 1 else counted // _VALUES_PER_CELL


def letters_asked(query: str | bytes | Mapping[str, Any] | Query) -> int:
    """Return the length, in cells, of a query that is SQL or has conditions in it.

    JSON is bounded by its parts.
    """
    if isinstance(query, Query):
        return 1
    texts = [query] if isinstance(query, (str, bytes)) else query.values()
    return max(1, sum(len(one) for one in texts if isinstance(one, (str, bytes))) // _LETTERS_PER_CELL)


def _cells(one: Any, data: DataSet) -> int:
    given = {"column": one.column, "edges": one.edges, "bins": one.bins} if isinstance(one, By) else one
    if isinstance(given, str):
        given = {"column": given}
    if not isinstance(given, Mapping):
        return 1
    edges, bins, name = given.get("edges"), given.get("bins"), given.get("column")
    if isinstance(edges, (list, tuple)):
        return min(MOST_VALUES, len(edges) + 1)
    if isinstance(bins, int):
        return min(MOST_VALUES, max(1, bins))
    try:
        return len(data.column(name).values) or 1 if isinstance(name, str) else 1
    except ParameterError:
        return 1
