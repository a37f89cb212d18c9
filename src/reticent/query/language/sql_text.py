"""A question as SQL text, the other way round than `sql`: to be copied, and asked elsewhere."""

from __future__ import annotations

import re

from reticent.errors import ParameterError
from reticent.query.kinds.listed import KIND
from reticent.query.language import sql
from reticent.query.language.tree import And, By, Comparison, In, Not, Or, Predicate, Query, Scalar, to_json

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)


def written(query: Query, name: str) -> str | None:
    """A SELECT that states the query; None if SQL cannot say it (cuts at given numbers, other bins).

    Args:
        query: which.
        name: of the data set.

    Invariant: what `sql.read` makes of the text asks for the same. It is read here before it is given.
    """
    text = _select(query, name)
    if text is None:
        return None
    try:
        return text if _same(sql.read(text, name), query) else None
    except ParameterError:
        return None


def _same(one: Query, other: Query) -> bool:
    """Whether two queries have the same answer: a histogram is the count of each group."""
    first, second = (to_json(query) | {"kind": KIND[query.kind].select("", "", ())} for query in (one, other))
    return first == second


def _select(query: Query, name: str) -> str | None:
    kind = KIND[query.kind]
    column = "" if query.column is None else _identifier(query.column)
    of = "" if query.of is None else _condition(query.of)
    groups: list[str] = []
    if not kind.bins_column:
        for by in query.by:
            if (group := _grouping(by)) is None:
                return None
            groups.append(group)
    text = f"SELECT {', '.join([*groups, kind.select(column, of, query.levels)])} FROM {_identifier(name)}"  # noqa: S608 - never run
    if query.where is not None:
        text += f" WHERE {_condition(query.where)}"
    return text + (f" GROUP BY {', '.join(groups)}" if groups else "")


def _grouping(by: By) -> str | None:
    if by.edges is not None:
        return None
    column = _identifier(by.column)
    return column if by.bins is None else f"BIN({column}, {by.bins})"


def _identifier(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _condition(predicate: Predicate, *, inside: bool = False) -> str:
    match predicate:
        case Comparison(column, op, constant):
            return f"{_identifier(column)} {op} {_constant(constant)}"
        case In(column, constants):
            return f"{_identifier(column)} IN ({', '.join(map(_constant, constants))})"
        case And(parts) | Or(parts):
            word = " AND " if isinstance(predicate, And) else " OR "
            joined = word.join(_condition(part, inside=True) for part in parts)
            return f"({joined})" if inside else joined
        case Not(part):
            return f"NOT ({_condition(part)})"


def _constant(constant: Scalar) -> str:
    if isinstance(constant, bool):
        return str(constant).lower()
    return "'" + constant.replace("'", "''") + "'" if isinstance(constant, str) else repr(constant)
