"""Declarations written for other tools: SmartNoise SQL's metadata, and CSV on the Web with its CSVW-EO terms.

Neither says what may be spent, and SmartNoise does not list categories. What a file does not say is asked of
the caller, by name; nothing is guessed and no row is read. An attribute that is not known here is refused,
since it may weaken the promise. Those that switch off clamping or the bound on a person's rows are read over:
Reticent always does both.

The words are those of the SmartNoise SQL manual ("Metadata"), of W3C's "Metadata Vocabulary for Tabular Data"
and of the repository dscc-admin-ch/csvw-eo, which is young: its terms may still change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reticent.errors import ParameterError, ParameterTypeError
from reticent.privacy import Budget, Neighbours
from reticent.query.columns import Column, Kind
from reticent.query.dataset_file import LARGEST_FILE, load
from reticent.query.datasets import DataSet, Policy

_TABLE_FLAGS = ("sample_max_ids", "censor_dims", "clamp_counts", "clamp_columns", "use_dpsu")
_COLUMN_FLAGS = ("name", "nullable", "cardinality", "sensitivity")
_SMARTNOISE_KINDS = {
    "int": Kind.INTEGER,
    "float": Kind.NUMBER,
    "string": Kind.CATEGORY,
    "boolean": Kind.BOOLEAN,
}
_CSVW_KINDS = {
    **dict.fromkeys(("number", "decimal", "double", "float"), Kind.NUMBER),
    **dict.fromkeys(("integer", "int", "long", "short", "byte"), Kind.INTEGER),
    **dict.fromkeys(("nonNegativeInteger", "positiveInteger"), Kind.INTEGER),
    **dict.fromkeys(("nonPositiveInteger", "negativeInteger"), Kind.INTEGER),
    **dict.fromkeys(("unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte"), Kind.INTEGER),
    **dict.fromkeys(("string", "normalizedString", "token", "any"), Kind.CATEGORY),
    "boolean": Kind.BOOLEAN,
}
_LOWER = ("minimum", "minInclusive", "minExclusive")
_UPPER = ("maximum", "maxInclusive", "maxExclusive")


@dataclass(frozen=True)
class Additions:
    """What the foreign file does not say.

    Args:
        budget: what may be spent.
        relation: REPLACE_ONE takes the file's number of rows as public; ADD_REMOVE_ONE keeps it private.
        source: where the rows are, as in a declaration.
        categories: of the columns whose categories the file does not list.
        leave_out: columns that nobody may ask about.
        table: which of several tables.
    """

    budget: Budget
    relation: Neighbours = Neighbours.ADD_REMOVE_ONE
    source: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    categories: Mapping[str, Sequence[str]] = field(default_factory=lambda: MappingProxyType({}))
    leave_out: Sequence[str] = ()
    table: str | None = None
    version: str = "1"
    policy: Policy = Policy.SHARE


@dataclass(frozen=True)
class _Found:
    """One column as the foreign file has it."""

    name: str
    type: str
    kind: Kind | None
    low: float | None = None
    high: float | None = None
    values: tuple[str, ...] = ()
    missing: float | str | bool | None = None


def read_smartnoise(path: Path, additions: Additions) -> DataSet:
    """A data set from a metadata file of SmartNoise SQL.

    Raises:
        ParameterError: something is missing, not known or contradicts itself, in one line.
    """
    return _named(path, lambda: _smartnoise(load(_text(path)), additions))


def read_csvw(path: Path, additions: Additions) -> DataSet:
    """A data set from a CSV on the Web metadata file, with CSVW-EO's terms where it has them.

    Raises:
        ParameterError: something is missing, not known or contradicts itself, in one line.
    """
    return _named(path, lambda: _csvw(_json(_text(path)), additions))


# SmartNoise


def _smartnoise(given: Any, additions: Additions) -> DataSet:
    name, table = _chosen(dict(_tables(given, "", 3)), additions.table)
    fields = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    for key in fields:
        if key not in ("max_ids", "row_privacy", "rows", *_TABLE_FLAGS):
            raise ParameterError(f"{name}.{key} must be known to Reticent, it is not")
    columns = {_bare(key): value for key, value in table.items() if isinstance(value, Mapping)}
    ids = [column for column, its in columns.items() if _flag(f"{column}.private_id", its.get("private_id"))]
    by_row = _flag("row_privacy", fields.get("row_privacy"))
    most = _whole("max_ids", fields.get("max_ids", 1))
    if by_row and most != 1:
        raise ParameterError(f"max_ids must be 1 with row_privacy, got {most}")
    if not by_row and len(ids) != 1:
        raise ParameterError(
            f"private_id must be true for one column, or row_privacy be true, got {len(ids)}"
        )
    found = [_smartnoise_column(column, its) for column, its in columns.items() if column not in ids]
    rows = fields.get("rows")
    return _data_set(
        name,
        found,
        None if by_row else ids[0],
        most,
        None if rows is None else _whole("rows", rows),
        additions,
    )


def _tables(given: Any, name: str, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables below database and schema: mappings that hold a column, which has a type."""
    if not isinstance(given, Mapping):
        return
    if any(isinstance(inner, Mapping) and isinstance(inner.get("type"), str) for inner in given.values()):
        yield _bare(name), given
    elif depth:
        for key, inner in given.items():
            yield from _tables(inner, key, depth - 1)


def _smartnoise_column(name: str, given: Mapping[str, Any]) -> _Found:
    known = ("type", "private_id", "lower", "upper", "missing_value", *_COLUMN_FLAGS)
    for key in given:
        if key not in known:
            raise ParameterError(f"{name}.{key} must be one of {', '.join(known)}")
    held = str(given.get("type"))
    kind = _SMARTNOISE_KINDS.get(held)
    missing = given.get("missing_value")
    return _Found(
        name,
        held,
        kind,
        _number(f"{name}.lower", given.get("lower")),
        _number(f"{name}.upper", given.get("upper")),
        missing=None if missing is None else _missing(f"{name}.missing_value", missing, kind),
    )


# CSV on the Web


def _csvw(given: Any, additions: Additions) -> DataSet:
    if not isinstance(given, Mapping):
        raise ParameterTypeError(f"the file must hold an object, got {type(given).__name__}")
    listed = given.get("tables", [given])
    if not isinstance(listed, list) or not all(isinstance(one, Mapping) for one in listed):
        raise ParameterTypeError("tables must be a list of objects")
    tables = {
        str(_term(one, "url") or _term(one, "name") or f"table-{i}"): one for i, one in enumerate(listed)
    }
    name, table = _chosen(tables, additions.table)
    schema = table.get("tableSchema")
    columns = schema.get("columns") if isinstance(schema, Mapping) else None
    if not isinstance(columns, list) or not all(isinstance(one, Mapping) for one in columns):
        raise ParameterError("tableSchema.columns must be a list of columns")
    titled = {_title(one, number): one for number, one in enumerate(columns) if not one.get("virtual")}
    ids = [column for column, its in titled.items() if _flag(f"{column}.privacyId", _term(its, "privacyId"))]
    person = _term(table, "privacyUnit") or (ids[0] if ids else None)
    if len(ids) > 1 or (ids and ids[0] != person):
        raise ParameterError("privacyId must be true for the column of privacyUnit alone")
    most = _term(table, "maxContributions")
    if person is not None and most is None:
        raise ParameterError("maxContributions must be given for a privacyUnit")
    if person is None and most not in (None, 1):
        raise ParameterError(f"maxContributions must be 1 without a privacyUnit, got {most!r:.60}")
    rows = _term(table, "publicLength")
    if not additions.source and table.get("url") is not None:
        additions = replace(additions, source=MappingProxyType({"csv": str(table["url"])}))
    found = [_csvw_column(column, its) for column, its in titled.items() if column != person]
    return _data_set(
        Path(name).stem,
        found,
        None if person is None else str(person),
        1 if most is None else _whole("maxContributions", most),
        None if rows is None else _whole("publicLength", rows),
        additions,
    )


def _csvw_column(name: str, given: Mapping[str, Any]) -> _Found:
    datatype = given.get("datatype", "string")
    inner = datatype if isinstance(datatype, Mapping) else {}
    held = str(inner.get("base", "string") if inner else datatype).removeprefix("xsd:")
    low, high = (
        next((one for key in keys for one in (inner.get(key), given.get(key)) if one is not None), None)
        for keys in (_LOWER, _UPPER)
    )
    values = _term(given, "keyValues")
    if values is None:
        partitions = _term(given, "partitions") or []
        values = [_partition_value(one) for one in partitions]
    values = [one for one in values if one is not None]
    kind = _CSVW_KINDS.get(held)
    if values and (low is None or high is None) and kind is not Kind.BOOLEAN:
        kind = Kind.CATEGORY
    if kind not in (Kind.NUMBER, Kind.INTEGER):
        low = high = None
    low, high = _number(f"{name}.minimum", low), _number(f"{name}.maximum", high)
    return _Found(name, held, kind, low, high, tuple(_word(one) for one in values))


def _partition_value(given: Any) -> Any:
    """The value of a partition by value; a partition by bounds has none."""
    predicate = _term(given, "predicate") if isinstance(given, Mapping) else None
    return _term(predicate, "partitionValue") if isinstance(predicate, Mapping) else None


def _title(column: Mapping[str, Any], number: int) -> str:
    """What the column is called in the CSV file: its title, else its name."""
    titles = column.get("titles")
    if isinstance(titles, Mapping):
        titles = next(iter(titles.values()), None)
    if isinstance(titles, list):
        titles = titles[0] if titles else None
    called = titles if titles is not None else column.get("name")
    if not isinstance(called, str):
        raise ParameterError(f"tableSchema.columns[{number}].name must be a text")
    return called


def _term(given: Mapping[str, Any], term: str) -> Any:
    """The value of a term, with CSVW-EO's prefix or without."""
    for name in (term, f"csvw-eo:{term}", f"csvw-safe:{term}"):
        if given.get(name) is not None:
            return given[name]
    return None


# Both


def _data_set(
    name: str, found: list[_Found], person: str | None, most: int, rows: int | None, additions: Additions
) -> DataSet:
    names = [one.name for one in found]
    for given in (*additions.leave_out, *additions.categories):
        if given not in names:
            raise ParameterError(f"column must be one of {', '.join(names[:20])}, got {given!r:.60}")
    public = additions.relation is Neighbours.REPLACE_ONE and person is None
    if public and rows is None:
        raise ParameterError(
            "rows must be in the file when one row is replaced, or choose 'add or remove one'"
        )
    kept = [one for one in found if one.name not in additions.leave_out]
    return DataSet(
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:80] or "data",
        version=additions.version,
        columns=tuple(_column(one, additions.categories.get(one.name)) for one in kept),
        budget=additions.budget,
        relation=additions.relation,
        rows=rows if public else None,
        person=person,
        contribution=most,
        policy=additions.policy,
        source=additions.source,
    )


def _column(found: _Found, categories: Sequence[str] | None) -> Column:
    at = f"columns.{found.name}"
    if categories is not None:
        return Column(found.name, Kind.CATEGORY, values=tuple(categories))
    if found.kind is None:
        raise ParameterError(f"{at} must be left out: type {found.type} has no place in a declaration")
    if found.kind is Kind.CATEGORY and not found.values:
        raise ParameterError(f"{at}.values must be given: the file lists no categories of it")
    if found.kind in (Kind.NUMBER, Kind.INTEGER):
        for part, bound in (("low", found.low), ("high", found.high)):
            if bound is None:
                raise ParameterError(f"{at}.{part} must be in the file, or {found.name} be left out")
        return Column(found.name, found.kind, found.low, found.high, missing=found.missing)
    values = found.values if found.kind is Kind.CATEGORY else ()
    return Column(found.name, found.kind, values=values, missing=found.missing)


def _chosen(tables: Mapping[str, Mapping[str, Any]], wanted: str | None) -> tuple[str, Mapping[str, Any]]:
    if not tables:
        raise ParameterError("the file must describe a table with typed columns")
    if wanted is None and len(tables) == 1:
        return next(iter(tables.items()))
    if wanted is None or wanted not in tables:
        raise ParameterError(f"table must be one of {', '.join(list(tables)[:20])}, got {wanted!r:.60}")
    return wanted, tables[wanted]


def _named(path: Path, call: Any) -> DataSet:
    try:
        found: DataSet = call()
        return found
    except (ParameterError, ParameterTypeError) as error:
        raise type(error)(f"metadata {path.name}: {error}") from None


def _text(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ParameterError(f"the file must be at most {LARGEST_FILE:,} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ParameterError("the file must be text in UTF-8") from None


def _json(text: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ParameterError("the file must name every field once")
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise ParameterError(f"line {error.lineno}: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, ParameterError):
            raise
        raise ParameterError("the file must be JSON that is not nested so deeply") from None


def _flag(name: str, given: Any) -> bool:
    if given in (None, ""):
        return False
    if str(given).lower() not in ("true", "false"):
        raise ParameterError(f"{name} must be true or false, got {given!r:.60}")
    return str(given).lower() == "true"


def _whole(name: str, given: Any) -> int:
    if isinstance(given, bool) or not re.fullmatch("[0-9]{1,18}", str(given)):
        raise ParameterTypeError(f"{name} must be a whole number, got {given!r:.60}")
    return int(given)


def _number(name: str, given: Any) -> float | None:
    if given in (None, ""):
        return None
    try:
        return float(given)
    except (TypeError, ValueError, OverflowError):
        raise ParameterTypeError(f"{name} must be a number, got {given!r:.60}") from None


def _missing(name: str, given: Any, kind: Kind | None) -> float | str | bool | None:
    if kind is Kind.BOOLEAN:
        return _flag(name, given)
    return _number(name, given) if kind in (Kind.NUMBER, Kind.INTEGER) else str(given)


def _word(given: Any) -> str:
    """A category as a CSV file writes it."""
    return str(given).lower() if isinstance(given, bool) else str(given)


def _bare(name: str) -> str:
    """A name without the quotes of its engine."""
    quoted = len(name) > 1 and (name[0] + name[-1]) in ('""', "``", "[]")
    return name[1:-1] if quoted else name
