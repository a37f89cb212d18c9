"""Which rows count: a predicate put into codes, in a form that does not depend on how it was written.

A predicate about declared columns is a set of code combinations. `resolve_condition` pushes every negation
down to the columns, turns each comparison into ranges of codes, and joins what is said about one column in
one place; so `not age < 40`, `age >= 40` and `age > 39` become the same condition. There is no third truth
value: what is missing has a code before anything is asked.

The form is the same for predicates that differ by order, nesting, repetition, double negation, De Morgan's
laws, or the way ranges of one column are written; what follows by absorption (`a and (a or b)`) is left out
where it is seen. It does not multiply out: `a and (b or c)` and `a and b or a and c` stay two conditions. Two
equal conditions always hold for the same rows, which is what sound reuse needs; two different ones may, which
costs a second measurement and nothing else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, pairwise
from typing import TYPE_CHECKING, TypeAlias, cast
from typing import Any as Anything

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import meant
from reticent.errors import ParameterError
from reticent.query.language.tree import (
    DEEPEST,
    MOST_PARTS,
    And,
    Comparison,
    In,
    Not,
    Or,
    Predicate,
    Scalar,
    check_predicate,
    shown,
)
from reticent.query.rows.columns import Column, Kind

if TYPE_CHECKING:
    from reticent.query.declarations.datasets import DataSet

Ranges: TypeAlias = tuple[tuple[int, int], ...]

# What two predicates, each as large and as deep as one may be, become at most when both must hold: their
# nodes, two ranges for each, and one node above them.
_MOST_PARTS = 6 * MOST_PARTS + 1
_DEEPEST = DEEPEST + 1


@dataclass(frozen=True)
class Among:
    """The code of a column lies in one of the ranges.

    Invariant: the ranges are inclusive, sorted, neither touch nor overlap, lie within the column's codes,
        and are neither none nor all of them (that is False or True).

    Attributes:
        text: the canonical JSON, to sort and compare by.
    """

    column: str
    ranges: Ranges
    text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        listed = ",".join(f"[{low},{high}]" for low, high in self.ranges)
        object.__setattr__(self, "text", f'{{"column":{json.dumps(self.column)},"in":[{listed}]}}')


@dataclass(frozen=True)
class All:
    """Every part holds.

    Invariant: at least two parts, sorted by their text, different from each other, none of them a bool or
        an All, at most one Among of a column, and none that follows from the others by absorption.
    """

    parts: tuple[Among | Any, ...]
    text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", f'{{"all":[{",".join(part.text for part in self.parts)}]}}')


@dataclass(frozen=True)
class Any:
    """At least one part holds. The invariant is that of `All`, the other way round."""

    parts: tuple[Among | All, ...]
    text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", f'{{"any":[{",".join(part.text for part in self.parts)}]}}')


Condition: TypeAlias = bool | Among | All | Any


def resolve_condition(predicate: Predicate | None, data: DataSet, name: str = "where") -> Condition:
    """The condition that a predicate states about the rows of a data set.

    Args:
        predicate: None means every row.
        data: whose columns are meant.
        name: what the predicate is called in errors.

    Raises:
        ParameterError: it names an unknown column, or compares one with what it cannot hold.
    """
    if predicate is None:
        return True
    check_predicate(predicate, name)
    return _resolved(predicate, data, name, wanted=True)


def both(one: Condition, other: Condition, data: DataSet) -> Condition:
    """The rows for which two conditions about a data set hold."""
    return _join(All, (one, other), data)


def columns_of(condition: Condition) -> frozenset[str]:
    """The columns that a condition reads."""
    if isinstance(condition, bool):
        return frozenset()
    if isinstance(condition, Among):
        return frozenset((condition.column,))
    return frozenset(chain.from_iterable(columns_of(part) for part in condition.parts))


# Forms


def condition_json(condition: Condition) -> Anything:
    """A condition as a JSON value: a bool, or an object with `column` and `in`, `all`, or `any`."""
    if isinstance(condition, bool):
        return condition
    if isinstance(condition, Among):
        return {"column": condition.column, "in": [list(one) for one in condition.ranges]}
    word = "all" if isinstance(condition, All) else "any"
    return {word: [condition_json(part) for part in condition.parts]}


def condition_from_json(given: Anything, data: DataSet, name: str = "where") -> Condition:
    """The condition that a JSON value states: the inverse of `condition_json`. The value may be anybody's.

    Args:
        given: as parsed.
        data: whose columns are meant.
        name: what the value is called in errors.

    Raises:
        ParameterError: it names an unknown column or codes that the column does not have, is too large or too
            deep, or is not in the one form that `resolve_condition` gives to what it says.
    """
    condition, _ = _from_json(given, data, name, _DEEPEST, _MOST_PARTS)
    # 1 == True == 1.0 cannot mislead here: every code in it is known to be an int, and no bool stands below.
    if condition_json(condition) != given:
        raise ParameterError(f"{name} must be in normal form")
    return condition


def _from_json(given: Anything, data: DataSet, name: str, depth: int, room: int) -> tuple[Condition, int]:
    """What a JSON value states, in normal form, and how many nodes and ranges may still follow."""
    if depth == 0:
        raise ParameterError(f"{name} must be nested at most {_DEEPEST} deep")
    room -= 1
    match given:
        case bool():
            return given, room
        case {"column": str(named), "in": list(listed), **others} if not others:
            room -= len(listed)
            if room < 0:
                raise _too_large(name)
            column = _column(named, data, name)
            return _among(column, _union([_checked_ranges(column, listed, name)])), room
        case {"all": list(parts), **others} | {"any": list(parts), **others} if not others:
            found = []
            for part in parts:
                if room <= 0:
                    raise _too_large(name)
                one, room = _from_json(part, data, name, depth - 1, room)
                found.append(one)
            return _join(All if "all" in given else Any, found, data), room
    raise ParameterError(
        f"{name} must be made of objects with column and in, all, or any, got {shown(given)}"
    )


def _checked_ranges(column: Column, given: list[Anything], name: str) -> Ranges:
    for one in given:
        match one:
            case [low, high] if type(low) is int and type(high) is int:
                if column.first <= low <= high <= column.last:
                    continue
        raise ParameterError(f"{name}.in must be ranges of codes of {column.name}, from {column.first} to "
                             f"{column.last}")  # fmt: skip
    return tuple((low, high) for low, high in given)


def _too_large(name: str) -> ParameterError:
    return ParameterError(f"{name} must have at most {_MOST_PARTS} parts and ranges")


def condition_sql(condition: Condition, names: Mapping[str, str]) -> str:
    """A condition as SQL over integer columns.

    Args:
        condition: what must hold.
        names: the SQL name of every column's codes, safe to put into a statement as it is.
    """
    if isinstance(condition, bool):
        return "TRUE" if condition else "FALSE"
    if isinstance(condition, Among):
        return _among_sql(names[condition.column], condition.ranges)
    word = " AND " if isinstance(condition, All) else " OR "
    return "(" + word.join(condition_sql(part, names) for part in condition.parts) + ")"


def _among_sql(name: str, ranges: Ranges) -> str:
    single = [low for low, high in ranges if low == high]
    parts = [f"{name} BETWEEN {low} AND {high}" for low, high in ranges if low < high]
    if len(single) == 1:
        parts.append(f"{name} = {single[0]}")
    elif single:
        parts.append(f"{name} IN ({', '.join(map(str, single))})")
    return parts[0] if len(parts) == 1 else "(" + " OR ".join(parts) + ")"


def holds(condition: Condition, codes: Mapping[str, NDArray[Anything]]) -> NDArray[np.bool_]:
    """For which rows a condition holds.

    Args:
        condition: what must hold.
        codes: at least one array of codes, all of one shape, by column.
    """
    if isinstance(condition, bool):
        return np.full(next(iter(codes.values())).shape, condition)
    if isinstance(condition, Among):
        given = np.asarray(codes[condition.column])
        starts, ends = np.array(condition.ranges, dtype=np.int64).T
        at = np.searchsorted(starts, given, side="right") - 1  # the last range that starts at or below
        return np.asarray((at >= 0) & (given <= ends[at]))
    join = np.logical_and if isinstance(condition, All) else np.logical_or
    found = holds(condition.parts[0], codes)
    for part in condition.parts[1:]:
        found = join(found, holds(part, codes))
    return found


# Resolving


def _resolved(predicate: Predicate, data: DataSet, name: str, *, wanted: bool) -> Condition:
    """The condition that the predicate is as wanted: true, or false below a negation."""
    match predicate:
        case Not(part):
            return _resolved(part, data, name, wanted=not wanted)
        case And(parts) | Or(parts):
            resolved = [_resolved(part, data, name, wanted=wanted) for part in parts]
            return _join(All if isinstance(predicate, And) == wanted else Any, resolved, data)
        case Comparison(column_name, op, constant):
            column = _column(column_name, data, name)
            ranges = _compared(column, op, constant, name)
        case In(column_name, constants):
            column = _column(column_name, data, name)
            ranges = _union(_equal(column, constant, f"{name}.in") for constant in constants)
    return _among(column, ranges if wanted else _complement(ranges, column))


def _column(column: str, data: DataSet, name: str) -> Column:
    try:
        return data.column(column)
    except ParameterError as err:
        raise ParameterError(f"{name}.{err}") from err


def _compared(column: Column, op: str, constant: Scalar, name: str) -> Ranges:
    """The codes that stand in a relation to a constant, exactly."""
    if op in ("=", "!="):
        equal = _equal(column, constant, f"{name}.value")
        return equal if op == "=" else _complement(equal, column)
    if column.kind in (Kind.CATEGORY, Kind.BOOLEAN):
        raise ParameterError(f"{name}.op must be = or != for {column.name}, which is "
                             f"{column.kind.value}, got {op!r}")  # fmt: skip
    steps = _steps(column, constant, f"{name}.value")
    low, high = column.first, column.last
    match op:
        case ">=":
            low = max(low, math.ceil(steps))
        case ">":
            low = max(low, math.floor(steps) + 1)
        case "<=":
            high = min(high, math.floor(steps))
        case "<":
            high = min(high, math.ceil(steps) - 1)
    return ((low, high),) if low <= high else ()


def _equal(column: Column, constant: Scalar, name: str) -> Ranges:
    """The code that a constant stands for; none if it lies between codes or outside the bounds."""
    if column.kind is Kind.CATEGORY:
        if constant not in column.values:
            known = ", ".join(column.values[:20]) + (", ..." if len(column.values) > 20 else "")
            near = meant(constant, column.values)
            raise ParameterError(
                f"{name} must be one of {known} for {column.name}, got {shown(constant)}{near}"
            )
        code = column.values.index(str(constant))
        return ((code, code),)
    if column.kind is Kind.BOOLEAN:
        if isinstance(constant, str) or constant not in (0, 1):
            raise ParameterError(f"{name} must be true or false for {column.name}, got {shown(constant)}")
        return ((int(constant), int(constant)),)
    steps = _steps(column, constant, name)
    if steps.denominator != 1 or not column.first <= steps <= column.last:
        return ()
    return ((int(steps), int(steps)),)


def _steps(column: Column, constant: Scalar, name: str) -> Fraction:
    """A constant in steps of the column, exactly: 0.1 is a tenth, not the nearest double."""
    if isinstance(constant, (bool, str)):
        raise ParameterError(f"{name} must be a number for {column.name}, which is {column.kind.value}, "
                             f"got {shown(constant)}")  # fmt: skip
    exact = Fraction(constant) if isinstance(constant, int) else Fraction(repr(constant))
    return exact / column.unit


# Ranges of codes


def _among(column: Column, ranges: Ranges) -> Condition:
    if not ranges:
        return False
    return True if ranges == ((column.first, column.last),) else Among(column.name, ranges)


def _union(given: Iterable[Ranges]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for low, high in sorted(chain.from_iterable(given)):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def _intersection(one: Ranges, other: Ranges) -> Ranges:
    common = []
    i = j = 0
    while i < len(one) and j < len(other):
        low, high = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if low <= high:
            common.append((low, high))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(common)


def _complement(ranges: Ranges, column: Column) -> Ranges:
    edges = [(column.first - 1, column.first - 1), *ranges, (column.last + 1, column.last + 1)]
    gaps = ((before[1] + 1, after[0] - 1) for before, after in pairwise(edges))
    return tuple((low, high) for low, high in gaps if low <= high)


# Joining conditions that are in normal form

_Join: TypeAlias = type[All] | type[Any]
_Leaves: TypeAlias = dict[str, Ranges]
_Sides: TypeAlias = tuple[_Leaves, dict[str, All | Any]]  # the parts of one condition


def _join(kind: _Join, given: Iterable[Condition], data: DataSet) -> Condition:
    """All or any of some conditions. Depends on their set only, not on order, nesting or repetition."""
    said: dict[str, list[Ranges]] = {}
    rest: dict[str, All | Any] = {}
    for part in _flat(kind, given):
        if isinstance(part, bool):
            if part is (kind is Any):  # never, among all; always, among any
                return part
        elif isinstance(part, Among):
            said.setdefault(part.column, []).append(part.ranges)
        else:
            rest[part.text] = part
    leaves = {name: _merged(kind, ranges, data.column(name)) for name, ranges in said.items()}
    parts: list[Anything] = [_among(data.column(name), ranges) for name, ranges in leaves.items()]
    for part in parts:
        if isinstance(part, bool):
            return part
    parts += _unabsorbed(kind, leaves, rest)
    if not parts:
        return kind is All
    if len(parts) == 1:
        return cast(Condition, parts[0])
    return kind(tuple(sorted(parts, key=lambda part: str(part.text))))


def _merged(kind: _Join, given: list[Ranges], column: Column) -> Ranges:
    """The codes in all of the ranges, or in any."""
    if kind is Any:
        return _union(given)
    return _complement(_union(_complement(ranges, column) for ranges in given), column)


def _flat(kind: _Join, given: Iterable[Condition]) -> Iterator[Condition]:
    for part in given:
        if isinstance(part, kind):
            yield from part.parts
        else:
            yield part


def _unabsorbed(kind: _Join, leaves: _Leaves, rest: Mapping[str, All | Any]) -> list[All | Any]:
    """The parts that do not follow from what stands beside them.

    In an All, the part `a or b` follows from a, and `a or b or c` from `a or b`; in an Any, the part
    `a and b` from a, and so on. Each is left out only if it follows from those that stay.
    """
    kept = {text: _sides(rest[text]) for text in sorted(rest, key=lambda text: (-len(text), text))}
    for text in list(kept):
        sides = kept.pop(text)
        if not _is_said(rest[text], kind, leaves, kept.values()):
            kept[text] = sides
    return [rest[text] for text in kept]


def _is_said(one: Among | All | Any, kind: _Join, leaves: _Leaves, beside: Collection[_Sides]) -> bool:
    """Whether a part is decided by the ranges and the parts that stand beside it."""
    if isinstance(one, Among):
        return one.column in leaves and _decides(kind, leaves[one.column], one.ranges)
    if isinstance(one, kind):
        return all(_is_said(part, kind, leaves, beside) for part in one.parts)
    if any(_is_said(part, kind, leaves, beside) for part in one.parts):
        return True
    sides = _sides(one)
    return any(_covers(kind, other, sides) for other in beside)


def _sides(part: All | Any) -> _Sides:
    leaves = {one.column: one.ranges for one in part.parts if isinstance(one, Among)}
    return leaves, {one.text: one for one in part.parts if not isinstance(one, Among)}


def _covers(kind: _Join, one: _Sides, other: _Sides) -> bool:
    """Whether each part of one decides some part of the other."""
    leaves, rest = other

    def decides(column: str, ranges: Ranges) -> bool:
        return column in leaves and _decides(kind, ranges, leaves[column])

    return all(decides(column, ranges) for column, ranges in one[0].items()) and all(
        text in rest
        or any(isinstance(leaf, Among) and decides(leaf.column, leaf.ranges) for leaf in part.parts)
        for text, part in one[1].items()
    )


def _decides(kind: _Join, held: Ranges, ranges: Ranges) -> bool:
    """Whether the ranges hold with those held (among all), or only with them (among any)."""
    narrow, wide = (held, ranges) if kind is All else (ranges, held)
    return _intersection(narrow, wide) == narrow
