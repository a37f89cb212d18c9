"""The fields of a form, turned into a question, its accuracy, or a declaration.

Nothing is evaluated: fields become the closed tree of `query.tree`, SQL is read by the engine, and a
declaration is text that `dataset_file` reads as if the owner had typed it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from reticent.errors import ParameterError
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query import DataSet, workload_text
from reticent.query.accuracy import SPAN, Accuracy
from reticent.query.declarations import dataset_file
from reticent.query.declarations.datasets import FORMATS
from reticent.query.kinds.listed import FORMS
from reticent.query.language import tree
from reticent.query.proposals import MOST_WISHES
from reticent.query.rows.columns import Column, Kind
from reticent.service.limits import DEEPEST_BODY, is_deeper

OPERATORS = (*tree.OPERATORS, "one of")
STEPS = 100  # of the slider: from a ten-thousandth of the cap to all of it
_DECADES = 4
_BINS = 10  # of a number that is grouped by and nothing said
_MOST_CONDITIONS = 20

Fields = Mapping[str, Sequence[str]]


def one(fields: Fields, name: str) -> str:
    """Return the first value of a field, stripped; empty if the field is not there."""
    return fields[name][0].strip() if fields.get(name) else ""


def asked(data: DataSet, fields: Fields) -> str | tree.Query:
    """Return the question: SQL as it is, or the question of the builder."""
    if one(fields, "mode") == "sql":
        sql = one(fields, "sql")
        if not sql:
            raise ParameterError("sql must be given: write a question, or use the builder")
        return sql
    if one(fields, "mode") == "json":  # of a table that was proposed
        return read(one(fields, "query"))
    return _built(data, fields)


def read(text: str) -> tree.Query:
    """Read a question that a page holds as JSON; the text may be anybody's."""
    if is_deeper(text.encode()):
        raise ParameterError(f"query must be nested at most {DEEPEST_BODY} deep")
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ParameterError("query must be JSON") from error
    return tree.from_json(given)


def workload(data: DataSet, fields: Fields) -> list[tuple[str, Accuracy]]:
    """Return many questions in SQL, each with the accuracy that its answer shall have."""
    error = one(fields, "error")
    wanted = accuracy(data, fields) if error else None
    found = workload_text.questions(one(fields, "sql"), wanted)
    if len(found) > MOST_WISHES:
        raise ParameterError(f"workload must be 1 to {MOST_WISHES} questions, got {len(found)}")
    return found


def accuracy(data: DataSet, fields: Fields) -> Accuracy:
    """Return the accuracy: by an error if one is given, else by the information or the slider."""
    error = number("error", text) if (text := one(fields, "error")) else None
    rows = whole("rows", text) if (text := one(fields, "rows")) else None
    reuse = one(fields, "reuse") or SPAN
    if error is not None:
        return Accuracy(error=error, rows=rows, reuse=reuse)
    if text := one(fields, "information"):
        return Accuracy(information=number("information", text), rows=rows, reuse=reuse)
    part = share(one(fields, "exactness") or "50")
    return Accuracy(information=part * data.terms.cap / UNITS_PER_ONE, rows=rows, reuse=reuse)


def share(step: str) -> float:
    """Return the part of the cap that a step of the slider stands for."""
    at = min(float(STEPS), max(0.0, number("exactness", step)))
    return float(10 ** (-_DECADES * (1 - at / STEPS)))


def number(field: str, text: str) -> float:
    """Return a finite number; commas may separate thousands."""
    try:
        found = float(text.replace(",", ""))
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ParameterError(f"{field} must be a number, got {text!r:.40}")
    return found


def whole(field: str, text: str) -> int:
    """Return a whole number."""
    found = number(field, text)
    if found != int(found) or abs(found) > 1 << 53:
        raise ParameterError(f"{field} must be a whole number, got {text!r:.40}")
    return int(found)


# The builder


def _built(data: DataSet, fields: Fields) -> tree.Query:
    name, column = one(fields, "kind"), one(fields, "column")
    if name not in FORMS:
        raise ParameterError(f"kind must be one of {', '.join(FORMS)}, got {name!r:.40}")
    kind, form = FORMS[name]
    given = {"column": column, "of": _conditions(data, fields, "of"), "by": _groupings(data, fields)}
    asked: dict[str, Any] = {field: held for field, held in given.items() if field in form.fields}
    for field, rule in form.missing.items():
        if not asked[field]:
            raise ParameterError(rule)
    if kind.needs_levels:
        levels = one(fields, "levels") if "levels" in form.fields else ""
        asked["levels"] = [number("levels", part) for part in _parts(levels or form.levels)]
    return tree.from_json({"kind": kind.name, "where": _conditions(data, fields, "where"), **asked})


def _conditions(data: DataSet, fields: Fields, name: str) -> dict[str, Any] | None:
    rows = list(
        zip(
            *(fields.get(f"{name}_{part}", ())[:_MOST_CONDITIONS] for part in ("column", "op", "value")),
            strict=False,
        )
    )
    found = [_condition(data, name, *row) for row in rows if row[0]]
    if not found:
        return None
    return found[0] if len(found) == 1 else {"or" if one(fields, f"{name}_join") == "any" else "and": found}


def _condition(data: DataSet, name: str, column: str, op: str, text: str) -> dict[str, Any]:
    held = data.column(column)
    if not text.strip():
        raise ParameterError(f"{name}: say what {column!r:.60} is compared with")
    if op == "one of":
        return {"column": column, "in": [_constant(held, part) for part in _parts(text)]}
    return {"column": column, "op": op, "value": _constant(held, text.strip())}


def _constant(column: Column, text: str) -> str | int | float | bool:
    if column.kind is Kind.CATEGORY:
        return text
    if column.kind is Kind.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise ParameterError(f"{column.name} must be compared with true or false, got {text!r:.40}")
        return text.lower() == "true"
    found = number(column.name, text)
    return int(found) if found.is_integer() else found


def _groupings(data: DataSet, fields: Fields) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    bins = list(fields.get("bins", ()))
    for place, column in enumerate(fields.get("by", ())):
        if not column:
            continue
        by: dict[str, Any] = {"column": column}
        if data.column(column).kind in (Kind.NUMBER, Kind.INTEGER):
            text = bins[place].strip() if place < len(bins) else ""
            if "," in text:
                by["edges"] = [number("bins", part) for part in _parts(text)]
            else:
                by["bins"] = whole("bins", text) if text else _BINS
        found.append(by)
    return found


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


# Declarations

_SETTINGS = ("name", "version", "unit", "relation", "rows", "policy")
_COLUMN = ("type", "low", "high", "step", "values", "missing")


def blanks(template: str) -> list[dict[str, str]]:
    """Return the columns that a template of `dataset_file` names, with the type that it knows of each."""
    columns = dataset_file.mapping("columns", dataset_file.load(template).get("columns"), None)
    return [{"name": name, "type": (given or {}).get("type") or ""} for name, given in columns.items()]


def declaration(source: str, fields: Fields) -> str:
    """Return the text of a declaration, from the form in which an owner filled in the blanks."""
    import yaml

    given = {name: one(fields, name) for name in _SETTINGS}
    written: dict[str, Any] = {name: given[name] for name in ("name", "version")}
    written |= {"format": str(FORMATS[-1]), "source": source}
    written["unit"] = given["unit"]  # nothing is no unit: rows are protected only if somebody says so
    if given["unit"] == "person":
        written["unit"] = {"person": one(fields, "person"), "rows": one(fields, "contribution")}
    written |= {name: given[name] for name in ("relation", "rows") if given[name]}
    written["budget"] = {name: one(fields, name) for name in ("epsilon", "delta")}
    written["policy"] = given["policy"]
    columns = {}
    for name, *parts in zip(*(fields.get(f"column_{part}", ()) for part in ("name", *_COLUMN)), strict=False):
        typed = {part: text.strip() for part, text in zip(_COLUMN, parts, strict=True)}
        if typed["type"]:
            columns[name] = _column(typed)
    written["columns"] = columns
    text: str = yaml.dump(
        written, Dumper=_dumper(yaml), sort_keys=False, allow_unicode=True, default_flow_style=None, width=110
    )
    return text


def _dumper(yaml: Any) -> Any:
    """Return a dumper that puts no quotes around `1` or `yes`: every scalar is read as text."""

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    return Dumper


def _column(typed: dict[str, str]) -> dict[str, Any]:
    """Return the fields that fit the type of a column; others were left over from another choice."""
    kept: dict[str, tuple[str, ...]] = {"category": ("values", "missing"), "boolean": ("missing",)}
    found: dict[str, Any] = {"type": typed["type"]}
    for part in kept.get(typed["type"], ("low", "high", "step", "missing")):
        is_number = typed["type"] not in kept  # its blank is refused: no cell becomes the middle unawares
        if typed[part] or (part == "missing" and is_number):
            found[part] = _parts(typed[part]) if part == "values" else typed[part]
    return found
