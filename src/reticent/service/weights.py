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
from reticent.query.questions import MOST_VALUES
from reticent.query.tree import By, Query, to_json

MANY = 1024  # cells that take long enough to need a thread of their own
# What takes about as long as to answer a cell, 0.02 ms (measured on the service's census):
_LETTERS = 2  # of SQL, to read
_RAW = 16  # bytes of a request that nobody has read yet
_TOLD = 1024  # letters of an answer that is kept, to send again as it is
_PARTS = 8  # cells for each part of a condition: what is made of it is long, and every row is compared


def cells_asked(query: Query | Mapping[str, Any], data: DataSet) -> int:
    """How many cells a query asks for, at most 65,536; what is no query counts as one, and is refused later.

    It is counted before the query is checked, since checking many edges is part of the work.
    """
    by = query.by if isinstance(query, Query) else query.get("by")
    listed = by if isinstance(by, (list, tuple)) else [by]
    return min(MOST_VALUES, math.prod(_cells(one, data) for one in listed[:16]))


def letters_asked(query: str | bytes | Mapping[str, Any] | Query) -> int:
    """How long a query takes to read and to compare, in cells: letters of SQL, parts of conditions in JSON.

    Bytes are a request that nobody has read yet.
    """
    if isinstance(query, bytes):
        return max(1, len(query) // _RAW)
    if isinstance(query, str):
        return len(query) // _LETTERS
    given = to_json(query) if isinstance(query, Query) else query
    return _parts(given.get("where"), given.get("of"))


def letters_told(answer: str | None) -> int:
    """How long an answer that is kept takes to send again, in cells."""
    return len(answer or "") // _TOLD


def _parts(*conditions: Any) -> int:
    """Of conditions, however they are nested; what is none is refused later, and takes time until then."""
    found, left = 0, [one for one in conditions if one is not None]
    while left and found < MOST_VALUES:
        one = left.pop()
        if isinstance(one, str):
            found += len(one) // _LETTERS
        else:
            found += _PARTS
            left.extend(one.values() if isinstance(one, Mapping) else one if isinstance(one, list) else ())
    return min(found, MOST_VALUES)


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
