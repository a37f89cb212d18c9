"""What a piece of SQL is called in a message: as people write it, never as the parser calls its own nodes."""

from __future__ import annotations

from typing import Any

from reticent.arguments import meant
from reticent.query.language.tree import shown

_WRITTEN = {
    "Add": "+",
    "Array": "[...]",
    "BitwiseLeftShift": "<<",
    "BitwiseRightShift": ">>",
    "BitwiseXor": "^",
    "Boolean": "TRUE or FALSE",
    "Bracket": "[...]",
    "Column": "a column",
    "Div": "/",
    "Explode": "UNNEST",
    "GroupConcat": "STRING_AGG",
    "Literal": "a constant",
    "Mod": "%",
    "Mul": "*",
    "Neg": "a minus sign",
    "Paren": "(...)",
    "PercentileDisc": "QUANTILE_DISC",
    "Star": "*",
    "StddevPop": "STDDEV_POP",
    "StddevSamp": "STDDEV_SAMP",
    "Sub": "-",
    "Subquery": "SELECT within SELECT",
    "Table": "FROM",
    "Tuple": "(..., ...)",
    "WidthBucket": "WIDTH_BUCKET",
    **dict.fromkeys(("EQ", "GT", "GTE", "LT", "LTE", "NEQ"), "a comparison"),
}
_PARTS = {
    "alias": "another name",
    "db": "a schema",
    "field": "a column",
    "joins": "a second table",
    "order": "ORDER BY",
    "query": "SELECT",
    "symmetric": "SYMMETRIC",
    "this": "a value",
}


def word(node: Any) -> str:
    """What to call a node."""
    from sqlglot import exp
    from sqlglot.tokens import Tokenizer

    kind = type(node).__name__
    if node is None:
        return "nothing"
    if kind == "Anonymous":  # a function that sqlglot does not know
        return str(node.args.get("this"))
    if kind in _WRITTEN:
        return _WRITTEN[kind]
    name = node.sql_name() if isinstance(node, exp.Func) else kind.upper()
    return str(name) if isinstance(node, exp.Func) or name in Tokenizer.KEYWORDS else "this expression"


def part(name: str) -> str:
    """What to call a part of a node."""
    from sqlglot.tokens import Tokenizer

    said = name.strip("_")
    return _PARTS.get(said) or (said.upper() if said.upper() in Tokenizer.KEYWORDS else "more than that")


def place(err: Any) -> str:
    """Where sqlglot stopped reading, and what it missed if that is one sign."""
    found = (getattr(err, "errors", None) or [{}])[0]
    near, what = found.get("highlight"), str(found.get("description") or "").split()
    missing = f": {what[1][:20]} is missing" if len(what) == 2 and what[0] == "Expecting" else ""
    return (f" near {shown(near)}" if near else "") + missing


def near(name: str, known: list[str]) -> str:
    """What function somebody may have meant."""
    return meant(name.upper(), [one.partition("(")[0] for one in known])
