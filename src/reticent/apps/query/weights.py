"""How much work a question is, from what is public: its cells, times the steps of rows that are declared.

Rates count this beside requests, for answers, prices and rehearsals alike: a question of 65,536 cells is as
much as 65,536 questions of one. Nothing here looks at rows, or at how many there really are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from reticent.errors import ParameterError
from reticent.query import DataSet
from reticent.query.language.questions import MOST_VALUES
from reticent.query.language.tree import By, Query

MANY = 1024  # cells that take long enough to need a thread of their own
PLANNED = 300  # cells that a question of a workload counts as: it is gone through several times
_LETTERS_PER_CELL = 16  # reading so much of a question takes about as long as a cell does


def cells_asked(query: Query | Mapping[str, Any], data: DataSet) -> int:
    """How many cells a query asks for, at most 65,536; what is no query counts as one, and is refused later.

    It is counted before the query is checked, since checking many edges is part of the work.
    """
    by = query.by if isinstance(query, Query) else query.get("by")
    listed = by if isinstance(by, (list, tuple)) else [by]
    return min(MOST_VALUES, math.prod(_cells(one, data) for one in listed[:16]))


def letters_asked(query: str | bytes | Mapping[str, Any] | Query) -> int:
    """The length of a query that is SQL, or has conditions in it, in cells. JSON is bounded by its parts."""
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
