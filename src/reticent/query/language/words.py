"""A question in words, for people: as a title, and in a line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reticent.query.kinds.listed import KIND
from reticent.query.language.tree import And, By, Comparison, In, Not, Or, Predicate, Query, Scalar

_LONGEST_TITLE = 300
_SIGNS = {"!=": "≠", "<=": "≤", ">=": "≥"}


def in_words(query: Query) -> str:
    """The question as it was understood, as a title."""
    kind = KIND[query.kind]
    words = [kind.title(query.column, query.levels)]
    if query.of is not None:
        words.append(_long_condition(query.of))
    if query.by and not kind.bins_column:
        words.append("by " + " and ".join(_long_grouping(by) for by in query.by))
    if query.where is not None:
        words.append(f"where {_long_condition(query.where)}")
    text = " ".join(words)
    return text if len(text) <= _LONGEST_TITLE else text[: _LONGEST_TITLE - 3] + "..."


def _long_grouping(by: By) -> str:
    if by.edges is not None:
        return f"{by.column} (cut at {', '.join(f'{edge:.12g}' for edge in by.edges)})"
    return by.column if by.bins is None else f"{by.column} (in {by.bins} bins)"


def _long_condition(predicate: Predicate) -> str:
    match predicate:
        case Comparison(column, op, constant):
            return f"{column} {op} {_long_constant(constant)}"
        case In(column, constants):
            return f"{column} in ({', '.join(map(_long_constant, constants))})"
        case And(parts) | Or(parts):
            word = " and " if isinstance(predicate, And) else " or "
            return f"({word.join(map(_long_condition, parts))})"
        case Not(part):
            return f"not {_long_condition(part)}"


def _long_constant(constant: Scalar) -> str:
    return f"'{constant}'" if isinstance(constant, str) else str(constant).lower()


def line(query: dict[str, Any]) -> str:
    """The JSON of a question in a line."""
    kind = KIND[str(query.get("kind"))]
    text = kind.line(query.get("column"), query.get("levels", ()))
    if kind.needs_of:
        text += f" {condition(query.get('of'))}"
    if query.get("where"):
        text += f" {'among' if kind.needs_of else 'where'} {condition(query['where'])}"
    if query.get("by") and not kind.bins_column:
        text += " by " + ", ".join(_grouping(one) for one in query["by"])
    return text


def _grouping(by: dict[str, Any]) -> str:
    if by.get("bins"):
        return f"{by['column']} in {by['bins']} bins"
    if by.get("edges"):
        return f"{by['column']} cut at {', '.join(f'{edge:g}' for edge in by['edges'])}"
    return str(by["column"])


def condition(given: Any, *, inside: bool = False) -> str:
    """A predicate in a line."""
    if not isinstance(given, dict):
        return str(given)
    for word in ("and", "or"):
        if word in given:
            joined = f" {word} ".join(condition(part, inside=True) for part in given[word])
            return f"({joined})" if inside else joined
    if "not" in given:
        return f"not {condition(given['not'], inside=True)}"
    if "in" in given:
        return f"{given.get('column')} in ({_listed(given['in'])})"
    sign = _SIGNS.get(str(given.get("op")), given.get("op"))
    return f"{given.get('column')} {sign} {_listed([given.get('value')])}"


def _listed(constants: Iterable[Any]) -> str:
    return ", ".join(f"'{one}'" if isinstance(one, str) else _constant(one) for one in constants)


def _constant(one: Any) -> str:
    return str(one).lower() if isinstance(one, bool) else f"{one:g}" if isinstance(one, float) else str(one)
