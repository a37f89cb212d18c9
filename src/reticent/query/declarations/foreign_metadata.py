"""Declarations written for other tools: SmartNoise SQL, Lomas, and CSV on the Web with its CSVW-EO terms.

None states a budget, and SmartNoise does not list categories. The caller adds, by name, the facts that a file
lacks; nothing is guessed and no row is read. Reticent protects the same people as the file, or refuses the
file: an attribute that is not known where it stands may say that, so none is passed over,
and "each row is somebody else" is said by the file or by the caller, never by default. Attributes that switch
off clamping or the bound on a person's rows are read over: Reticent always does both.

The words are those of the SmartNoise SQL manual ("Metadata"), of the models of dscc-admin-ch/lomas, and those
in `csvw_terms`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reticent.errors import ParameterError, ParameterTypeError
from reticent.privacy import Budget, Neighbours
from reticent.query.declarations.csvw_terms import Names, normal
from reticent.query.declarations.dataset_file import LARGEST_FILE, load
from reticent.query.declarations.datasets import FORMATS, DataSet, Policy
from reticent.query.rows.columns import Column, Kind

_SWITCHES = ("sample_max_ids", "censor_dims", "clamp_counts", "clamp_columns", "use_dpsu")
_SMARTNOISE_TABLE = ("max_ids", "row_privacy", "rows", *_SWITCHES)
_SMARTNOISE_COLUMN = (
    *("type", "private_id", "lower", "upper", "missing_value"),
    *("name", "nullable", "cardinality", "sensitivity"),
)
_LOMAS_TABLE = ("max_ids", "row_privacy", "rows", "censor_dims", "columns")
_LOMAS_COLUMN = (
    *("type", "private_id", "lower", "upper", "categories"),
    *("nullable", "nullable_proportion", "cardinality", "precision", "int_with_nulls"),
    *("max_partition_length", "max_influenced_partitions", "max_partition_contributions"),
)
_TREE_KINDS = {
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
_SAY_ROW = "; if each row is somebody else, say so with --unit row"


@dataclass(frozen=True)
class Additions:
    """The facts that a foreign file lacks.

    Args:
        budget: Budget of the data set.
        relation: REPLACE_ONE takes the file's number of rows as public; ADD_REMOVE_ONE keeps it private.
        source: Place of the rows, as in a declaration.
        categories: Categories of the columns whose categories the file does not list.
        leave_out: Columns that nobody may ask about.
        table: Name of the table, if the file has several.
        unit: "row" if each row is somebody else, where the file does not say whom it protects.
    """

    budget: Budget
    relation: Neighbours = Neighbours.ADD_REMOVE_ONE
    source: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    categories: Mapping[str, Sequence[str]] = field(default_factory=lambda: MappingProxyType({}))
    leave_out: Sequence[str] = ()
    table: str | None = None
    unit: str | None = None
    version: str = "1"
    policy: Policy = Policy.SHARE


@dataclass(frozen=True)
class _Found:
    """A column as the foreign file describes it."""

    name: str
    type: str
    kind: Kind | None
    low: float | None = None
    high: float | None = None
    values: tuple[str, ...] = ()
    missing: float | str | bool | None = None


def read_yaml(path: Path, additions: Additions) -> DataSet:
    """Read a data set from a metadata file of SmartNoise SQL or of Lomas.

    Raises:
        ParameterError: Something is missing, not known or contradicts itself, in one line.
    """
    return _named(path, lambda: _tree(load(_text(path)), path.stem, additions))


def read_csvw(path: Path, additions: Additions) -> DataSet:
    """Read a data set from a CSV on the Web metadata file, with CSVW-EO's terms where it has them.

    Raises:
        ParameterError: Something is missing, not known or contradicts itself, in one line.
    """
    return _named(path, lambda: _csvw(_json(_text(path)), additions))


# SmartNoise and Lomas


def _tree(given: Any, stem: str, additions: Additions) -> DataSet:
    if isinstance(given, Mapping) and _is_table(given.get("columns")):
        return _lomas(given, stem, additions)
    if isinstance(given, Mapping) and isinstance(given.get("datasets"), list):
        raise ParameterError("datasets must not be listed: this is the collection of a Lomas service, "
                             "take the metadata of one of its data sets")  # fmt: skip
    found = list(_tables(given, "", 3))
    tables = {_bare(place.rpartition(".")[2]): table for place, table in found}
    if len(tables) != len(found):
        raise ParameterError(f"tables must have different names, got {', '.join(one for one, _ in found)}")
    name, table = _chosen(tables, additions.table)
    fields = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    columns = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    return _described(name, fields, columns, _SMARTNOISE_TABLE, _SMARTNOISE_COLUMN, additions)


def _lomas(given: Mapping[str, Any], stem: str, additions: Additions) -> DataSet:
    """Build a data set from the metadata of Lomas: one table, without a name."""
    name, table = _chosen({stem: given}, additions.table)
    return _described(name, table, table["columns"], _LOMAS_TABLE, _LOMAS_COLUMN, additions)


def _tables(given: Any, place: str, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the tables below database and schema, by the names above them. Nothing else may stand there."""
    if _is_table(given):
        yield place, given
        return
    if not isinstance(given, Mapping) or not given or not depth:
        raise ParameterError(f"{place or 'the file'} must describe a table with typed columns")
    for key, inner in given.items():
        inside = f"{place}.{key}" if place else key
        if isinstance(inner, Mapping):
            yield from _tables(inner, inside, depth - 1)
        elif place or key != "engine":
            raise ParameterError(f"{inside} {_misplaced(key, (), {'table': _SMARTNOISE_TABLE})}")


def _is_table(given: Any) -> bool:
    """Return whether a value holds a column, which has a type."""
    return isinstance(given, Mapping) and any(
        isinstance(inner, Mapping) and isinstance(inner.get("type"), str) for inner in given.values()
    )


def _described(
    name: str,
    fields: Mapping[str, Any],
    listed: Mapping[str, Any],
    table_words: Collection[str],
    column_words: Collection[str],
    additions: Additions,
) -> DataSet:
    """Build a data set from the fields of a table and its columns, each of which must be known."""
    for key in fields:
        if key not in table_words:
            raise ParameterError(f"{name}.{key} {_misplaced(key, table_words, {'column': column_words})}")
    columns = dict[str, Mapping[str, Any]]()
    for key, its in listed.items():
        if not isinstance(its, Mapping) or not isinstance(its.get("type"), str):
            raise ParameterError(f"{name}.{key}.type must be given: every column has one")
        if _bare(key) in columns:
            raise ParameterError(f"{name}.{key} must be described once")
        columns[_bare(key)] = its
        for word in its:
            if word not in column_words:
                raise ParameterError(f"{key}.{word} {_misplaced(word, column_words, {'table': table_words})}")
    ids = [column for column, its in columns.items() if _flag(f"{column}.private_id", its.get("private_id"))]
    person = _tree_person(ids, _flag("row_privacy", fields.get("row_privacy")), additions)
    most = _whole("max_ids", fields.get("max_ids", 1))
    if person is None:
        _check_bounds("max_ids", most)
        for column, its in columns.items():
            for word in ("max_influenced_partitions", "max_partition_contributions"):
                _check_bounds(f"{column}.{word}", its.get(word))
    found = [_tree_column(column, its) for column, its in columns.items() if column not in ids]
    rows = fields.get("rows")
    return _data_set(name, found, person, most, None if rows is None else _whole("rows", rows), additions)


def _tree_person(ids: list[str], by_row: bool | None, additions: Additions) -> str | None:
    """Return the column that says whose row it is; None where the file, or else the caller, protects rows."""
    if by_row and ids:
        raise ParameterError(f"private_id must not be true with row_privacy, got {', '.join(ids[:5])}")
    if by_row:
        return None
    if len(ids) > 1:
        raise ParameterError(f"private_id must be true for one column, got {', '.join(ids[:5])}")
    if not ids and (by_row is False or additions.unit is None):
        raise ParameterError("private_id must be true for one column, or row_privacy be true"
                             + (_SAY_ROW if by_row is None else ""))  # fmt: skip
    return _checked_person(ids[0] if ids else None, additions)


def _tree_column(name: str, given: Mapping[str, Any]) -> _Found:
    held, values = given["type"], given.get("categories") or []
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise ParameterTypeError(f"{name}.categories must be a list, got {values!r:.60}")
    kind = Kind.CATEGORY if values else _TREE_KINDS.get(held)
    numbers = kind in (Kind.NUMBER, Kind.INTEGER)
    low, high = (
        _number(f"{name}.{part}", given.get(part)) if numbers else None for part in ("lower", "upper")
    )
    missing = given.get("missing_value")
    return _Found(
        name,
        held,
        kind,
        low,
        high,
        tuple(values),
        None if missing is None else _missing(f"{name}.missing_value", missing, kind),
    )


def _misplaced(word: str, known: Collection[str], elsewhere: Mapping[str, Collection[str]]) -> str:
    """Return the reason why a term is refused in its place."""
    home = next((place for place, words in elsewhere.items() if word in words), None)
    if home is not None:
        return f"must stand in a {home}: what it says would be lost here"
    near = get_close_matches(word, known, 1)
    return "must be known to Reticent, it is not" + (f"; {near[0]} is" if near else "")


# CSV on the Web


def _csvw(given: Any, additions: Additions) -> DataSet:
    if not isinstance(given, Mapping):
        raise ParameterTypeError(f"the file must hold an object, got {type(given).__name__}")
    names = Names(given.get("@context"))
    rest = {name: value for name, value in given.items() if name != "@context"}
    group: dict[str, Any] = {}
    if any(names.plain(name) == "tables" for name in rest):
        group = normal("table group", rest, names)
        listed = group["tables"]
    else:
        listed = [normal("table", rest, names)]
    tables = {str(one.get("url") or one.get("name") or f"table-{i}"): one for i, one in enumerate(listed)}
    if len(tables) != len(listed):
        raise ParameterError("tables must have different urls")
    name, table = _chosen(tables, additions.table)
    schema = table.get("tableSchema", group.get("tableSchema"))
    columns = schema.get("columns") if isinstance(schema, Mapping) else None
    if not columns:
        raise ParameterError("tableSchema.columns must be a list of columns")
    inherited = next((one["datatype"] for one in (schema, table, group) if "datatype" in one), "string")
    titled = dict[str, Mapping[str, Any]]()
    for number, one in enumerate(columns):
        title = _title(one, number)
        if title in titled:
            raise ParameterError(f"tableSchema.columns[{number}] must have a name of its own")
        titled[title] = {"datatype": inherited} | one
    person = _csvw_person(table, titled, additions)
    most = table.get("maxContributions")
    if person is not None and most is None:
        raise ParameterError("maxContributions must be given for a privacyUnit")
    if person is None:
        _check_contributions("", {**table, "tableSchema": schema})
    rows = table.get("publicLength")
    if not additions.source and table.get("url") is not None:
        additions = replace(additions, source=MappingProxyType({"csv": str(table["url"])}))
    found = [
        _csvw_column(column, its)
        for column, its in titled.items()
        if column != person and not _flag(f"{column}.virtual", its.get("virtual"))
    ]
    return _data_set(
        Path(name).stem,
        found,
        person,
        1 if most is None else _whole("maxContributions", most),
        None if rows is None else _whole("publicLength", rows),
        additions,
    )


def _csvw_person(
    table: Mapping[str, Any], titled: Mapping[str, Mapping[str, Any]], additions: Additions
) -> str | None:
    """Return the title of the column that says whose row it is; None where the caller protects rows."""
    ids = [column for column, its in titled.items() if _flag(f"{column}.privacyId", its.get("privacyId"))]
    unit = table.get("privacyUnit")
    person = ids[0] if ids else None
    if unit is not None:
        called = [title for title, its in titled.items() if unit in (title, its.get("name"))]
        if len(called) != 1:
            raise ParameterError(f"privacyUnit must name one column, got {unit!r:.60}")
        person = called[0]
    if len(ids) > 1 or (ids and ids[0] != person):
        raise ParameterError("privacyId must be true for the column of privacyUnit alone")
    if person is not None and _flag(f"{person}.virtual", titled[person].get("virtual")):
        raise ParameterError(f"{person}.virtual must not be true for the column of privacyUnit")
    if person is None and additions.unit is None:
        raise ParameterError(f"privacyUnit must name a column, or privacyId be true for one{_SAY_ROW}")
    return _checked_person(person, additions)


def _check_contributions(at: str, given: Any) -> None:
    """Refuse a bound that says that somebody has several rows, at any level."""
    if isinstance(given, list):
        for number, one in enumerate(given):
            _check_contributions(f"{at}[{number}]", one)
    elif isinstance(given, Mapping):
        for word, value in given.items():
            place = f"{at}.{word}" if at else word
            if word in ("maxContributions", "maxGroupsPerUnit"):
                _check_bounds(place, value)
            elif word not in ("datatype", "predicate", "keyValues", "titles"):
                _check_contributions(place, value)


def _csvw_column(name: str, given: Mapping[str, Any]) -> _Found:
    datatype = given["datatype"]
    inner = datatype if isinstance(datatype, Mapping) else {}
    held = str(inner.get("base", "string") if inner else datatype)
    held = re.sub(r"^(xsd:|https?://www\.w3\.org/2001/XMLSchema#)", "", held)
    low, high = (
        next((one for key in keys for one in (inner.get(key), given.get(key)) if one is not None), None)
        for keys in (_LOWER, _UPPER)
    )
    values = given.get("keyValues")
    if values is None:
        values = [(one.get("predicate") or {}).get("partitionValue") for one in given.get("partitions", [])]
    if not isinstance(values, list):
        raise ParameterTypeError(f"{name}.keyValues must be a list, got {values!r:.60}")
    values = [one for one in values if one is not None]
    kind = _CSVW_KINDS.get(held)
    if values and (low is None or high is None) and kind is not Kind.BOOLEAN:
        kind = Kind.CATEGORY
    if kind not in (Kind.NUMBER, Kind.INTEGER):
        low = high = None
    low, high = _number(f"{name}.minimum", low), _number(f"{name}.maximum", high)
    return _Found(name, held, kind, low, high, tuple(_word(one) for one in values))


def _title(column: Mapping[str, Any], number: int) -> str:
    """Return the name of a column in the CSV file: its title, else its name."""
    titles = column.get("titles")
    if isinstance(titles, Mapping):
        titles = next(iter(titles.values()), None)
    if isinstance(titles, list):
        titles = titles[0] if titles else None
    called = titles if titles is not None else column.get("name")
    if not isinstance(called, str):
        raise ParameterError(f"tableSchema.columns[{number}].name must be a text")
    return called


# Both


def _checked_person(person: str | None, additions: Additions) -> str | None:
    if additions.unit not in (None, "row"):
        raise ParameterError(f"unit must be row, or left out, got {additions.unit!r:.60}")
    if person is not None and additions.unit is not None:
        raise ParameterError(f"unit must be left out: the file protects persons, told apart by {person}")
    return person


def _check_bounds(place: str, given: Any) -> None:
    """Refuse a contribution bound other than 1: where rows are protected, nobody has several."""
    if given is not None and _whole(place, given) != 1:
        raise ParameterError(f"{place} must be 1 where each row is somebody else, got {given}")


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
        format=FORMATS[-1],
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
        raise type(error)(f"metadata {path.name}: {error}") from error


def _text(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ParameterError(f"the file must be at most {LARGEST_FILE:,} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ParameterError("the file must be text in UTF-8") from error


def _json(text: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ParameterError("the file must name every field once")
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise ParameterError(f"line {error.lineno}: {error.msg}") from error
    except (RecursionError, ValueError) as error:
        if isinstance(error, ParameterError):
            raise
        raise ParameterError("the file must be JSON that is not nested so deeply") from error


def _flag(name: str, given: Any) -> bool | None:
    """Return a truth value; None if the value is None."""
    if given is None:
        return None
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
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterTypeError(f"{name} must be a number, got {given!r:.60}") from error


def _missing(name: str, given: Any, kind: Kind | None) -> float | str | bool | None:
    if kind is Kind.BOOLEAN:
        return _flag(name, given)
    return _number(name, given) if kind in (Kind.NUMBER, Kind.INTEGER) else str(given)


def _word(given: Any) -> str:
    """Return a category as a CSV file writes it."""
    return str(given).lower() if isinstance(given, bool) else str(given)


def _bare(name: str) -> str:
    """Return a name without the quotes of its engine."""
    quoted = len(name) > 1 and (name[0] + name[-1]) in ('""', "``", "[]")
    return name[1:-1] if quoted else name
