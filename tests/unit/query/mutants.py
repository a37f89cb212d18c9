"""Trees and texts that went wrong somewhere: what a fuzzer sends."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from typing import Any

from reticent.query.declarations.datasets import DataSet
from reticent.query.language.tree import And, Comparison, Not, to_json

from .matching import query_sql
from .random_queries import query, random_schema

ODD: list[Any] = [
    None, True, False, 0, -1, 1 << 70, 10**400, 0.5, -0.0, 1e308, math.nan, math.inf, "", "a", "age", "'",
    "\x00", "é", "\ud800", "x" * 300, "count", "and", [], {}, [[]], [None], {"": 0}, {"not": {}}, {"and": []},
    {1: 2}, b"a", (), {"column": "a"}, {"column": "a", "in": []}, {"column": "a", "op": "=", "value": 1},
    "a = 1", "a = (", Comparison("a", "=", 1), Not(None), And(None), object(),
]  # fmt: skip


def places(given: Any) -> list[tuple[Any, Any]]:
    """The (container, key) of what is in a JSON value."""
    found, left = [], [given]
    while left and len(found) < 1000:
        one = left.pop()
        items = (
            list(one.items())
            if isinstance(one, dict)
            else list(enumerate(one))
            if isinstance(one, list)
            else []
        )
        for key, inner in items:
            found.append((one, key))
            left.append(inner)
    return found


def broken(rng: random.Random, given: dict) -> Any:
    """A JSON value with a few things changed."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        spots = places(given)
        if not spots:
            return given
        holder, key = rng.choice(spots)
        match rng.randrange(6):
            case 0:
                del holder[key]
            case 1:
                other, at = rng.choice(spots)
                holder[key] = copy.deepcopy(
                    other.get(at) if isinstance(other, dict) else (other[at : at + 1] or [0])[0]
                )
            case 2 if isinstance(holder, dict):
                holder[rng.choice(["and", "or", "not", "in", "op", "value", "bins", "by", "x", 3])] = (
                    holder.pop(key)
                )
            case 3 if isinstance(holder[key], float):
                holder[key] = holder[key] * rng.choice((-1, 1e300, 0, 1e-300))
            case 4:
                holder[key] = [holder[key]] * rng.choice((1, 2, 2, 3, 3, 1001))
            case _:
                holder[key] = copy.deepcopy(rng.choice(ODD))
    if rng.random() < 0.02:
        for _ in range(rng.choice((31, 40, 3000))):
            given = {**given, "where": {"not": given.get("where")}}
    return given


def broken_trees(rng: random.Random, count: int) -> Iterator[tuple[DataSet, Any]]:
    """Trees, most of them broken, each with the data set that is asked."""
    for at in range(count):
        if at % 50 == 0:
            declared = random_schema(rng)
            data = declared.data()
        given = to_json(query(rng, declared))
        yield data, broken(rng, given) if rng.random() < 0.98 else rng.choice(ODD)


_WORDS = """
SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT OFFSET JOIN LEFT ON USING UNION ALL DISTINCT AS AND OR NOT
IN IS NULL BETWEEN LIKE CASE WHEN THEN ELSE END TRUE FALSE FILTER OVER WITH EXISTS ANY CAST INTERVAL DATE
INT DESC
SYMMETRIC WITHIN PIVOT VALUES LATERAL ROLLUP ( ) [ ] { } , ; . * + - / % = == <> != < <= > >= :=
:: -> => || | & ^ ~
? $1 @ # ' " -- /* */ $$ ` \\ count(*) sum( avg( median( max( f(
a b year census 0 1 -1 .5 1. 1e3 1e999 0x1F 1_0 'a' "a" é
"""
WORDS = [*_WORDS.split(), "\u2028", "\x00", "\ud800"]


def broken_text(rng: random.Random, text: str) -> str:
    """A text with a few words or letters changed."""
    for _ in range(rng.choice((1, 1, 2, 4, 12))):
        words = text.split(" ")
        at = rng.randrange(len(words))
        match rng.randrange(7):
            case 0:
                del words[at]
            case 1:
                words.insert(at, rng.choice(WORDS))
            case 2:
                words[at] = rng.choice(WORDS)
            case 3:
                words.insert(at, rng.choice(words))
            case 4:
                words[at : at + 1] = [words[at]] * rng.choice((2, 50))
            case 5:
                words[at] = (
                    rng.choice(("(", "NOT ", "- ", "CASE WHEN ", "f(", "[")) * rng.choice((3, 500))
                    + words[at]
                )
            case _:
                cut = rng.randrange(len(words[at]) + 1)
                words[at] = (
                    words[at][:cut]
                    + chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x300))))
                    + words[at][cut:]
                )
        text = " ".join(words)[:30_000] or " "
    return text


def broken_texts(rng: random.Random, count: int) -> Iterator[str]:
    """Statements and conditions, most of them broken."""
    while count:
        text = query_sql(rng, query(rng, random_schema(rng)))
        if text is None:
            continue
        if rng.random() < 0.4 and " WHERE " in text:
            text = text.partition(" WHERE ")[2]
        is_changed = rng.random() < 0.97
        yield broken_text(rng, text) if is_changed else " ".join(rng.choices(WORDS, k=rng.randint(1, 40)))
        count -= 1
