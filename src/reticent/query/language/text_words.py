"""The canonical text of a question (`questions`) in words, for people: what was measured, of which rows.

Texts may be anybody's: one that cannot be read is shown by its beginning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

_LONGEST = 300


def question_line(text: str) -> str:
    """A text in a line."""
    try:
        said = json.loads(text)
        columns = {one["name"]: one for one in said["columns"]}
        words = [str(said["measured"])]
        if said["column"] is not None:
            words.append(f"of {said['column']}")
        if said["of"] is not True:
            words.append(f"of {_condition(said['of'], columns)}")
        if said["by"]:
            words.append("by " + ", ".join(_grouping(one) for one in said["by"]))
        if said["where"] is not True:
            words.append(f"where {_condition(said['where'], columns)}")
        line = " ".join(words)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
        line = text
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def _grouping(by: Mapping[str, Any]) -> str:
    return str(by["column"]) if by["cuts"] is None else f"{by['column']} in {len(by['cuts']) + 1} bins"


def _condition(given: Any, columns: Mapping[str, Mapping[str, Any]]) -> str:
    if isinstance(given, bool):
        return str(given).lower()
    if "column" in given:
        column = columns[given["column"]]
        return f"{column['name']} {' or '.join(_range(column, *ends) for ends in given['in'])}"
    word, parts = next(iter(given.items()))
    joined = f" {'and' if word == 'all' else 'or'} ".join(_condition(part, columns) for part in parts)
    return f"({joined})"


def _range(column: Mapping[str, Any], low: int, high: int) -> str:
    """A range of codes: a value, several, or between two."""
    if column["type"] == "category":
        names = [f"'{one}'" for one in column["values"][low : high + 1]]
        return f"= {names[0]}" if len(names) == 1 else f"in ({', '.join(names)})"
    if column["type"] == "boolean":
        return f"= {str(bool(low)).lower()}" if low == high else "is known"
    first, last = (f"{float(code * Fraction(column['step'])):.12g}" for code in (low, high))
    if low == high:
        return f"= {first}"
    if low <= column["first"]:
        return f"≤ {last}"
    return f"≥ {first}" if high >= column["last"] else f"from {first} to {last}"
