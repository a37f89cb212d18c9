"""The closed tree of a question: what may be asked, as JSON and as Python values.

    {"kind": "mean", "column": "income",
     "where": {"and": [{"column": "age", "op": ">=", "value": 40},
                       {"not": {"column": "race", "op": "=", "value": "white"}}]},
     "by": [{"column": "sex"}, {"column": "age", "edges": [20, 40, 60]}]}

A tree says nothing yet about a data set: names and values are checked by `questions.resolve`. Nothing here
evaluates text: SQL is read into this tree by `sql`, or refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from reticent.errors import ParameterError, ParameterTypeError
from reticent.query.kinds.listed import KIND

KINDS = tuple(KIND)
_OF = " or ".join(name for name, kind in KIND.items() if kind.needs_of)
_LEVELS = " or ".join(name for name, kind in KIND.items() if kind.needs_levels)
OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
DEEPEST = 32
MOST_PARTS = 1000  # nodes of one predicate, the values in its lists included
MOST_BINS = 1 << 16
MOST_GROUPINGS = 8
BINS = 256  # of a quantile

Scalar = str | int | float | bool


@dataclass(frozen=True)
class Comparison:
    """A column against a constant."""

    column: str
    op: str
    value: Scalar


@dataclass(frozen=True)
class In:
    """A column against a list of constants."""

    column: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class And:
    """All of the parts; none of them means always."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Or:
    """At least one of the parts; none of them means never."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Not:
    """The opposite."""

    part: Predicate


Predicate = Comparison | In | And | Or | Not


@dataclass(frozen=True)
class By:
    """A grouping: by the categories of a column, or by the bins between a number's edges.

    `edges` are inner cuts: [20, 40] makes the bins below 20, from 20 to below 40, and from 40.
    `bins` asks for that many bins of equal width instead.
    """

    column: str
    edges: tuple[float, ...] | None = None
    bins: int | None = None

    def __post_init__(self) -> None:
        _text("by.column", self.column)
        if self.edges is not None:
            object.__setattr__(self, "edges", _edges(self.edges))
        if self.bins is None:
            return
        if self.edges is not None:
            raise ParameterError("by.bins must not be given beside edges")
        if isinstance(self.bins, bool) or not isinstance(self.bins, int) or not 2 <= self.bins <= MOST_BINS:
            raise ParameterError(
                f"by.bins must be a whole number from 2 to {MOST_BINS}, got {shown(self.bins)}"
            )


@dataclass(frozen=True)
class Query:
    """One question. Use the functions below to make one.

    Args:
        kind: one of KINDS.
        column: what is summed, averaged or binned.
        where: which rows count; all by default.
        of: for a proportion, the rows whose share among `where` is asked.
        by: groupings, answered in this order.
        levels: for quantiles, each between 0 and 1.
    """

    kind: str
    column: str | None = None
    where: Predicate | None = None
    of: Predicate | None = None
    by: tuple[By, ...] = ()
    levels: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in KINDS:
            raise ParameterError(f"kind must be one of {', '.join(KINDS)}, got {shown(self.kind)}")
        kind = KIND[self.kind]
        if kind.needs_column and self.column is None:
            raise ParameterError(f"column must be given for a {self.kind}")
        if not kind.needs_column and self.column is not None:
            raise ParameterError(f"column is not for a {self.kind}, got {shown(self.column)}")
        if self.column is not None:
            _text("column", self.column)
        if (self.of is not None) != kind.needs_of:
            raise ParameterError(f"of must be given for a {_OF}, and only for one")
        for name in ("where", "of"):
            if getattr(self, name) is not None:
                check_predicate(getattr(self, name), name)
        object.__setattr__(self, "by", as_groupings(self.by))
        object.__setattr__(self, "levels", _levels(self.levels))
        if bool(self.levels) != kind.needs_levels:
            raise ParameterError(f"levels must be given for a {_LEVELS}, and only for one")
        if kind.needs_by and not self.by:
            raise ParameterError(f"by must name at least one column for a {self.kind}")
        if kind.bins_column and [one.column for one in self.by] != [self.column]:
            raise ParameterError(f"by must be the bins of the column for a {self.kind}")


# Making queries


def count(*, where: Any = None, by: Any = ()) -> Query:
    """How many rows."""
    return Query("count", where=as_predicate(where), by=as_groupings(by))


def total(column: str, *, where: Any = None, by: Any = ()) -> Query:
    """The sum of a column."""
    return Query("sum", column, as_predicate(where), by=as_groupings(by))


def mean(column: str, *, where: Any = None, by: Any = ()) -> Query:
    """The mean of a column."""
    return Query("mean", column, as_predicate(where), by=as_groupings(by))


def variance(column: str, *, where: Any = None, by: Any = ()) -> Query:
    """The variance of a column (divided by the number of rows)."""
    return Query("variance", column, as_predicate(where), by=as_groupings(by))


def proportion(of: Any, *, where: Any = None, by: Any = ()) -> Query:
    """The share of the rows `of` among the rows `where`."""
    return Query("proportion", None, as_predicate(where), as_predicate(of, "of"), as_groupings(by))


def histogram(by: Any, *, where: Any = None) -> Query:
    """How many rows in each category or bin."""
    return Query("histogram", where=as_predicate(where), by=as_groupings(by))


def quantile(column: str, levels: float | Sequence[float], *, where: Any = None, bins: Any = BINS) -> Query:
    """Quantiles, read off a histogram of the column. `bins`: how many, or the inner edges."""
    chosen = (levels,) if isinstance(levels, (int, float)) else levels
    by = By(column, bins=bins) if isinstance(bins, int) else By(column, edges=_edges(bins))
    return Query("quantile", column, as_predicate(where), by=(by,), levels=_levels(chosen))


def median(column: str, *, where: Any = None, bins: Any = BINS) -> Query:
    """The median, read off a histogram of the column."""
    return quantile(column, 0.5, where=where, bins=bins)


# Reading


def as_predicate(given: Any, name: str = "where") -> Predicate | None:
    """A predicate from JSON, from SQL text ("age >= 40 and sex = 'f'"), or as it is.

    Args:
        given: None stays None.
        name: what it is called in errors.
    """
    if given is None or isinstance(given, Predicate):
        return given
    if isinstance(given, str):
        from reticent.query.language.sql import read_condition  # sqlglot takes a while to import

        return read_condition(given)
    predicate, _ = _predicate(given, name, DEEPEST, MOST_PARTS)
    return predicate


def as_groupings(given: Any) -> tuple[By, ...]:
    """Groupings from names, JSON, `By`, or a list of these."""
    if isinstance(given, (str, By, Mapping)):
        given = (given,)
    listed = _list("by", () if given is None else given)
    if len(listed) > MOST_GROUPINGS:
        raise ParameterError(f"by must name at most {MOST_GROUPINGS} columns, got {len(listed)}")
    return tuple(_grouping(one) for one in listed)


def check_predicate(given: Any, name: str = "where") -> None:
    """Refuse a predicate that is too deep or too large, or holds what JSON could not.

    Every `Query` is checked so; whoever walks a predicate afterwards may recurse.
    """
    left: list[tuple[Any, int]] = [(given, DEEPEST)]
    room = MOST_PARTS
    while left:
        one, depth = left.pop()
        if depth == 0:
            raise _too_deep(name)
        room -= 1
        match one:
            case Comparison(column, op, constant):
                _text(f"{name}.column", column)
                _op(name, op)
                _scalar(f"{name}.value", constant)
            case In(column, constants) if isinstance(constants, tuple):
                _text(f"{name}.column", column)
                room -= len(constants)
                for constant in constants[:MOST_PARTS]:
                    _scalar(f"{name}.in", constant)
            case And(parts) | Or(parts) if isinstance(parts, tuple):
                left.extend((part, depth - 1) for part in parts[: MOST_PARTS + 1])
            case Not(part):
                left.append((part, depth - 1))
            case _:
                raise ParameterTypeError(f"{name} must be made of predicates, got {shown(one)}")
        if room < 0:
            raise _too_large(name)


def from_json(given: Any) -> Query:
    """A query from parsed JSON; unknown fields are refused. A quantile without `by` has 256 bins."""
    if not isinstance(given, Mapping):
        raise ParameterTypeError(f"query must be an object, got {shown(given)}")
    _only("query", given, ("kind", "column", "where", "of", "by", "levels"))
    column = given.get("column")
    by = as_groupings(given.get("by"))
    kind = KIND.get(str(given.get("kind")))
    if kind is not None and kind.bins_column and column is not None and not by:
        by = (By(_text("column", column), bins=BINS),)
    return Query(
        _text("kind", given.get("kind")),
        None if column is None else _text("column", column),
        as_predicate(given.get("where")),
        as_predicate(given.get("of"), "of"),
        by,
        _levels(given.get("levels")),
    )


def to_json(query: Query) -> dict[str, Any]:
    """The JSON of a query; `from_json` undoes it."""
    found: dict[str, Any] = {"kind": query.kind}
    if query.column is not None:
        found["column"] = query.column
    for name, predicate in (("where", query.where), ("of", query.of)):
        if predicate is not None:
            found[name] = predicate_json(predicate)
    if query.by:
        found["by"] = [_by_json(one) for one in query.by]
    if query.levels:
        found["levels"] = list(query.levels)
    return found


def predicate_json(predicate: Predicate) -> dict[str, Any]:
    """The JSON of a predicate."""
    match predicate:
        case Comparison(column, op, constant):
            return {"column": column, "op": op, "value": constant}
        case In(column, constants):
            return {"column": column, "in": list(constants)}
        case And(parts):
            return {"and": [predicate_json(part) for part in parts]}
        case Or(parts):
            return {"or": [predicate_json(part) for part in parts]}
        case Not(part):
            return {"not": predicate_json(part)}


def _predicate(given: Any, name: str, depth: int, room: int) -> tuple[Predicate, int]:
    """A predicate, and how many nodes may still follow."""
    if isinstance(given, Predicate):
        return given, room - 1  # checked with the query
    if depth == 0:
        raise _too_deep(name)
    if room <= 0:
        raise _too_large(name)
    if not isinstance(given, Mapping):
        raise ParameterTypeError(f"{name} must be made of objects, got {shown(given)}")
    for word in ("and", "or"):
        if word in given:
            _only(name, given, (word,))
            parts, room = _parts(given[word], name, word, depth, room)
            return (And(parts) if word == "and" else Or(parts)), room
    if "not" in given:
        _only(name, given, ("not",))
        part, room = _predicate(given["not"], name, depth - 1, room - 1)
        return Not(part), room
    column = _text(f"{name}.column", given.get("column"))
    if "in" in given:
        _only(name, given, ("column", "in"))
        listed = _list(f"{name}.in", given["in"])
        if len(listed) >= room:
            raise _too_large(name)
        return In(column, tuple(_scalar(f"{name}.in", one) for one in listed)), room - 1 - len(listed)
    _only(name, given, ("column", "op", "value"))
    op = _op(name, given.get("op"))
    return Comparison(column, op, _scalar(f"{name}.value", given.get("value"))), room - 1


def _parts(given: Any, name: str, word: str, depth: int, room: int) -> tuple[tuple[Predicate, ...], int]:
    parts = []
    room -= 1
    for one in _list(f"{name}.{word}", given):
        part, room = _predicate(one, name, depth - 1, room)
        parts.append(part)
    return tuple(parts), room


def _too_deep(name: str) -> ParameterError:
    return ParameterError(f"{name} must be nested at most {DEEPEST} deep")


def _too_large(name: str) -> ParameterError:
    return ParameterError(f"{name} must have at most {MOST_PARTS} parts")


def _grouping(given: Any) -> By:
    if isinstance(given, By):
        return given
    if isinstance(given, str):
        return By(given)
    if not isinstance(given, Mapping):
        raise ParameterTypeError(f"by must be made of names or objects, got {shown(given)}")
    _only("by", given, ("column", "edges", "bins"))
    column = _text("by.column", given.get("column"))
    return By(column, given.get("edges"), given.get("bins"))


def _by_json(by: By) -> dict[str, Any]:
    found: dict[str, Any] = {"column": by.column}
    if by.edges is not None:
        found["edges"] = list(by.edges)
    if by.bins is not None:
        found["bins"] = by.bins
    return found


def _edges(given: Any) -> tuple[float, ...]:
    listed = _list("by.edges", given)
    if not 1 <= len(listed) < MOST_BINS:
        raise ParameterError(f"by.edges must be 1 to {MOST_BINS - 1} numbers, got {len(listed)}")
    edges = tuple(_number("by.edges", one) for one in listed)
    for a, b in pairwise(edges):
        if b <= a:
            raise ParameterError(f"by.edges must rise, got {a!r} before {b!r}")
    return edges


def _levels(given: Any) -> tuple[float, ...]:
    listed = _list("levels", () if given is None else given)
    if len(listed) > 100:
        raise ParameterError(f"levels must be at most 100, got {len(listed)}")
    levels = tuple(_number("levels", one) for one in listed)
    for one in levels:
        if not 0 < one < 1:
            raise ParameterError(f"levels must be > 0 and < 1, got {one:g}")
    return levels


def _list(name: str, given: Any) -> Sequence[Any]:
    if callable(getattr(given, "tolist", None)):  # of numpy, pandas and Arrow
        given = given.tolist()
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise ParameterTypeError(f"{name} must be a list, got {shown(given)}")
    return given


def _op(name: str, given: Any) -> str:
    if not isinstance(given, str) or given not in OPERATORS:
        raise ParameterError(f"{name}.op must be one of {' '.join(OPERATORS)}, got {shown(given)}")
    return given


def _number(name: str, given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise ParameterTypeError(f"{name} must be a number, got {shown(given)}")
    try:
        number = float(given)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ParameterError(f"{name} must be finite, got {shown(given)}")
    return number


def _scalar(name: str, given: Any) -> Scalar:
    if isinstance(given, str):
        if len(given) > 200:
            raise ParameterError(f"{name} must be at most 200 characters, got {len(given)}")
        return given
    if isinstance(given, bool):
        return given
    number = _number(name, given)
    return given if isinstance(given, int) else number  # whole numbers stay exact


def _text(name: str, given: Any) -> str:
    if not isinstance(given, str) or not 0 < len(given) <= 200:
        raise ParameterError(f"{name} must be a text of 1 to 200 characters, got {shown(given)}")
    return given


def _only(name: str, given: Mapping[Any, Any], known: Sequence[str]) -> None:
    for one in given:
        if one not in known:
            raise ParameterError(f"{name} must have only {', '.join(known)}, got {shown(one)}")


def shown(given: Any) -> str:
    """A parameter in a message: its beginning, or of what type it is. Never fails, however odd it is."""
    if isinstance(given, str):
        return repr(given[:57] + "..." if len(given) > 60 else given)
    if isinstance(given, int) and abs(given) >= 10**50:
        return "a huge number"
    if given is None or isinstance(given, (bool, int, float)):
        return repr(given)
    return f"a {type(given).__name__}"
