"""The file in which an owner declares a data set. `explanation` states its meaning in plain sentences.

    name: census
    version: 1
    format: 2                  # of these rules; left out: 1, the first
    source: census.csv         # or {duckdb: census.db, table: persons}, {url: "postgresql://..", table: p}
    unit: row                  # or {person: person_id, rows: 3}
    relation: replace one      # or: add or remove one
    rows: 5000                 # public; left out when their number is private
    budget: {epsilon: 8, delta: 1e-4}
    policy: share              # or degrade
    columns:
      income: {type: number, low: -10000, high: 1000000, step: 1, missing: 0}
      age: {type: integer, low: 0, high: 120}
      race: {type: category, values: [white, black, other], missing: other}
      citizen: {type: boolean}

Every scalar is read as the text that was typed, and becomes a number where the field wants one: so `1e-4` is
a number, `version: 1.10` stays 1.10, and `values: [yes, no]` are two words. An empty field is one left out,
but an empty `missing` is a blank that was not filled in. A template leaves empty what only the owner can
know; nothing is ever inferred from the rows. Rows on Spark are `{spark: "local[4]", parquet: folder}` or
`{spark: "spark://..", table: persons}`. `people` says with whom the budget is shared (`populations`).

All errors in a declaration are reported at once (`faults`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reticent.arguments import meant
from reticent.errors import ParameterError, ParameterTypeError, ReticentError, SeveralErrors
from reticent.privacy import Budget, Neighbours
from reticent.query.declarations.datasets import (
    FORMATS,
    DataSet,
    Policy,
    check_format,
    check_rows,
    checked_label,
)
from reticent.query.declarations.faults import Faults
from reticent.query.declarations.populations import checked_name
from reticent.query.rows.columns import Column, Kind
from reticent.query.rows.source import FORMS, check_address
from reticent.query.rows.spark import check_master
from reticent.tables.row_files import located

LARGEST_FILE = 1 << 20
_DEEPEST = 8  # levels of mappings and lists
_MOST_REPEATED = 50_000  # names and values in a file with aliases, as often as they are repeated
_FIELDS = (
    *("name", "version", "format", "source", "unit", "relation"),
    *("rows", "budget", "people", "policy", "columns"),
)
_COLUMN_FIELDS = ("type", "low", "high", "step", "values", "missing", "stored")
_NUMBER = re.compile(r"[+-]?([0-9]{1,100}\.?[0-9]{0,100}|\.[0-9]{1,100})([eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"[0-9]{1,18}")
_WORDS = {"true": True, "yes": True, "false": False, "no": False}
_DATA = (".csv", ".tsv", ".gz", ".parquet", ".pq", ".db", ".duckdb", ".xlsx", ".arrow", ".feather")
SUFFIXES = {".csv": "csv", ".csv.gz": "csv", ".parquet": "parquet", ".pq": "parquet"}  # of files with rows


def read(path: Path) -> DataSet:
    """Read the data set that a file declares.

    Raises:
        ParameterError: The declaration is invalid; the message names file, field, rule and value in one line.
    """
    if path.suffix.lower() in _DATA:
        raise ParameterError(
            f"dataset {path.name} is not a declaration: `reticent dataset new {path.name}` writes one for it"
        )
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        return parse(content.decode())
    except UnicodeDecodeError as error:
        raise ParameterError(f"dataset {path.name}: must be text in UTF-8") from error
    except SeveralErrors as error:
        raise SeveralErrors([f"dataset {path.name}: {one}" for one in error.each]) from error
    except (ParameterError, ParameterTypeError) as error:
        raise type(error)(f"dataset {path.name}: {error}") from error


def parse(text: str) -> DataSet:
    """Parse the data set that a text declares.

    Raises:
        SeveralErrors: More than one field is wrong, with what is wrong with each.
        ParameterError: One is.
    """
    return of_fields(load(text))


def of_fields(tree: Any) -> DataSet:
    """Build the data set that a tree of mappings, lists and texts declares; errors as in `parse`."""
    faults = Faults()
    given = mapping("the file", tree, _FIELDS, faults)
    label = {part: faults.of("?", _label, part, given.get(part)) for part in ("name", "version")}
    format_number = faults.of(FORMATS[0], _format, given["format"]) if "format" in given else FORMATS[0]
    person, contribution = faults.of((None, 1), _unit, given.get("unit"), faults)
    relation = faults.of(Neighbours.REPLACE_ONE, relation_of, given.get("relation"))
    rows = faults.of(None, whole_number, "rows", given["rows"]) if "rows" in given else None
    if not faults.about("unit", "relation", "rows"):
        faults.of(None, check_rows, relation, person, contribution, rows)
    budget = faults.of(None, budget_of, given.get("budget"))
    policy: Policy = faults.of(
        Policy.SHARE, _choice, "policy", given.get("policy", Policy.SHARE.value), tuple(Policy)
    )
    source = faults.of(None, source_of, given.get("source"))
    people = faults.of("", _people, given["people"]) if "people" in given else ""
    columns = faults.of((), _columns, given.get("columns"), format_number, faults)
    faults.check()
    assert budget is not None
    assert source is not None
    return DataSet(
        **label,
        columns=columns,
        budget=budget,
        relation=relation,
        rows=rows,
        person=person,
        contribution=contribution,
        policy=policy,
        source=source,
        people=people,
        format=format_number,
    )


def _format(given: Any) -> int:
    """Return the format of a declaration, from the text that was typed."""
    format_number = whole_number("format", given)
    check_format(format_number)
    return format_number


def _label(part: str, given: Any) -> str:
    return checked_label(part, _text(part, given))


def _people(given: Any) -> str:
    return checked_name(_text("people", given))


def write(data: DataSet) -> str:
    """Return the text that declares a data set; `parse` undoes it."""
    import yaml

    unit: Any = "row" if data.person is None else {"person": data.person, "rows": data.contribution}
    fields: dict[str, Any] = {"name": data.name, "version": data.version}
    fields |= {"format": None if data.format == FORMATS[0] else data.format}
    fields |= {"source": dict(data.source) or None}
    fields |= {"unit": unit, "relation": data.relation.value, "rows": data.rows}
    fields |= {"budget": {"epsilon": _plain(data.budget.epsilon), "delta": _plain(data.budget.delta)}}
    fields |= {"people": data.people or None, "policy": data.policy.value}
    fields |= {"columns": {column.name: _column_fields(column) for column in data.columns}}
    kept = {name: value for name, value in fields.items() if value is not None}
    text: str = yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
    return text


def template(path: Path, source: str | None = None) -> str:
    """Return a declaration of a CSV or Parquet file, with blanks where the owner's knowledge belongs.

    Only the names of the columns are read and, from Parquet, their types.

    Args:
        path: Path of the file with the rows.
        source: Name of the file in the declaration, if not its own name.
    """
    import yaml

    def shown(given: str) -> str:
        return str(yaml.safe_dump(given, allow_unicode=True, width=10_000)).removesuffix("...\n").strip()

    lines = [_HEAD.format(name=shown(name_of(path)), source=shown(source or path.name), format=FORMATS[-1])]
    for column, kind in header(path).items():
        lines += [f"  {shown(column)}:", *_blanks(kind)]
    return "\n".join(lines) + "\n"


def form_of(name: str) -> str | None:
    """Return the format in which a file of this name holds rows; None if the suffix is not known."""
    return next((form for suffix, form in SUFFIXES.items() if name.lower().endswith(suffix)), None)


def stem_of(name: str) -> str:
    """Return the name of a file of rows without the suffix that states the format."""
    return next((name[: -len(suffix)] for suffix in SUFFIXES if name.lower().endswith(suffix)), name)


def name_of(path: Path) -> str:
    """Return a valid name for the data set in a file."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem_of(path.name)).strip("-._")[:80] or "data"


_HEAD = """\
# Fill in from public knowledge, never from the rows: what you read off them here is not protected.
# If the names of the columns below are a first row of data, give the file a line of names and begin again.
name: {name}
version: 1
format: {format}
source: {source}
unit:                   # row, or {{person: COLUMN, rows: MOST ROWS OF ONE PERSON}}
relation:               # replace one (the number of rows is public), or: add or remove one
rows:                   # their public number; leave empty for a person, or when one is added or removed
budget: {{epsilon: , delta: }}   # for ever, over all questions and versions
policy: share           # or degrade
columns:                # delete those that nobody may ask about"""


def _blanks(kind: Kind | None) -> list[str]:
    """Return the lines of one column in a template."""
    bounds = ["    low:                # smaller values are raised to it", "    high:"]
    values = ["    values:             # all that may occur, as [a, b, c]"]
    if kind is None:
        lines = ["    type:               # number, integer, category or boolean", *bounds, *values]
    else:
        lines = [f"    type: {kind.value}"]
        lines += {Kind.CATEGORY: values, Kind.BOOLEAN: []}.get(kind, bounds)
    return [*lines, "    missing:            # what an empty or unreadable cell counts as"]


def header(path: Path) -> dict[str, Kind | None]:
    """Return the column names of a CSV or Parquet file, with their kinds if the file's schema states them."""
    from reticent.query.rows.source import header as first_line
    from reticent.query.rows.source import quietly

    form = form_of(path.name)
    if form is None:
        raise ParameterError(f"source must end in {', '.join(SUFFIXES)}, got {path.name!r}")
    path = located(f"source.{form}", path.name, path.parent)
    if form == "csv":
        return dict.fromkeys(first_line(path, ","))
    import pyarrow.parquet
    import pyarrow.types as types

    schema = quietly(lambda: pyarrow.parquet.read_schema(path))
    kinds: dict[str, Kind | None] = {}
    for field in schema:
        held = field.type.value_type if types.is_dictionary(field.type) else field.type
        kinds[field.name] = None
        for kind, tests in {
            Kind.BOOLEAN: (types.is_boolean,),
            Kind.INTEGER: (types.is_integer,),
            Kind.NUMBER: (types.is_floating, types.is_decimal),
            Kind.CATEGORY: (types.is_string, types.is_large_string),
        }.items():
            if any(test(held) for test in tests):
                kinds[field.name] = kind
    return kinds


# Reading


def load(text: str) -> Any:
    """Load the tree of mappings, lists and texts in a YAML text."""
    import yaml

    if len(text) > LARGEST_FILE:
        raise ParameterError(f"the file must be at most {LARGEST_FILE:,} bytes")

    class Loader(yaml.BaseLoader):  # type: ignore[misc]  # knows no types: every scalar stays text, every tag is ignored
        depth = nodes = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.depth += 1
            if self.depth > _DEEPEST:  # more takes its time, and the interpreter's limit may have been lifted
                raise RecursionError
            is_alias, before = self.check_event(yaml.AliasEvent), self.nodes
            found = super().compose_node(parent, index)
            self.depth -= 1
            self.nodes += getattr(found, "nodes", 1) if is_alias else 1
            found.nodes = self.nodes - before
            if is_alias and self.nodes > _MOST_REPEATED:  # a few lines could stand for millions
                problem = f"aliases must not repeat more than {_MOST_REPEATED:,} names and values"
                raise yaml.composer.ComposerError(None, None, problem, found.start_mark)
            return found

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            names = [self.construct_object(key, deep=True) for key, _ in node.value]
            seen = set[str]()
            for number, name in enumerate(names):
                if not isinstance(name, str) or name in seen:
                    problem = (
                        f"{_shown(name)} is given twice" if isinstance(name, str) else "a name must be a text"
                    )
                    raise yaml.constructor.ConstructorError(
                        None, None, problem, node.value[number][0].start_mark
                    )
                seen.add(name)
            found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            return found

    try:
        return yaml.load(text, Loader=Loader)  # noqa: S506 - a loader that makes texts only
    except yaml.MarkedYAMLError as error:  # it quotes the file, which may hold a password
        mark = error.problem_mark
        place = "" if mark is None else f"line {mark.line + 1}: "
        raise ParameterError(f"{place}{error.problem}") from None
    except yaml.YAMLError as error:
        raise ParameterError("the file must be YAML in printable characters") from error
    except RecursionError as error:
        raise ParameterError("the file must not be nested so deeply") from error


def mapping(
    field: str, given: Any, known: Sequence[str] | None, faults: Faults | None = None
) -> dict[str, Any]:
    """Return the fields of a mapping; empty fields are left out.

    Args:
        field: Name of the field that holds the mapping, for errors.
        given: Value that was read.
        known: Names that are allowed; None for any.
        faults: Collector of errors, so that the other names are looked at too.
    """
    if not isinstance(given, dict):
        if field == "the file":  # it may be the data itself: nothing of it is shown
            raise ParameterTypeError(f"{field} must be a declaration: named fields such as name and columns")
        raise ParameterTypeError(f"{field} must be made of named fields, got {_shown(given)}")
    for name in given:
        if known is not None and name not in known:
            inside = "" if field == "the file" else f"{field}."
            error = ParameterError(
                f"{inside}{_shown(name)} must be one of {', '.join(known)}{meant(name, known)}"
            )
            if faults is None:
                raise error
            faults.add(error)
    return {name: value for name, value in given.items() if known is None or value not in ("", None)}


def _columns(given: Any, format_number: int, faults: Faults) -> tuple[Column, ...]:
    if given is None:
        raise ParameterError("columns must be filled in")
    fields = mapping("columns", given, None)
    columns = [faults.of(None, column_of, name, said, format_number) for name, said in fields.items()]
    return tuple(column for column in columns if column is not None)


def column_of(name: str, given: Any, format_number: int) -> Column:
    """Return a column, from its fields as they were typed.

    Args:
        name: Name of the column.
        given: Fields of the column, as texts.
        format_number: Format of the declaration, which decides whether `other` is one of the categories.

    Raises:
        SeveralErrors: More than one field is wrong, with what is wrong with each.
        ParameterError: One is.
    """
    at, faults = f"columns.{name}", Faults()
    fields = mapping(at, given, _COLUMN_FIELDS, faults)
    kind: Kind | None = faults.of(None, _choice, f"{at}.type", fields.get("type"), tuple(Kind))
    numbers: dict[str, Any] = {
        part: faults.of(None, _number, f"{at}.{part}", fields[part])
        for part in ("low", "high", "step")
        if part in fields
    }
    values = fields.get("values", [])
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        faults.add(ParameterTypeError(f"{at}.values must be a list like [a, b, c], got {_shown(values)}"))
    if kind in (Kind.NUMBER, Kind.INTEGER):
        for part in ("low", "high"):
            if part not in fields:
                faults.add(_unknown(f"{at}.{part}"))
    missing = None
    if "missing" in fields and kind is not None:
        missing = faults.of(None, _missing, f"{at}.missing", fields["missing"], kind)
    elif given.get("missing") == "":  # a template's blank: nobody's number becomes the middle unawares
        faults.add(
            ParameterError(f"{at}.missing must be filled in: what an empty or unreadable cell counts as")
        )
    column = None
    if not faults.about(*(f"{at}.{part}" for part in ("type", "low", "high", "step", "values"))):
        assert kind is not None
        said: dict[str, Any] = {**numbers, "values": tuple(values), "missing": missing}
        said |= {"format": format_number, "stored": fields.get("stored")}
        column = faults.of(None, partial(Column, name, kind, **said))
    faults.check()
    assert column is not None
    return column


def _unknown(field: str) -> ParameterError:
    return ParameterError(
        f"{field} must be a number, got nothing: state it from public knowledge, not from the data"
    )


def _missing(field: str, given: Any, kind: Kind) -> float | str | bool:
    if kind is Kind.CATEGORY:
        return _text(field, given)
    if kind is not Kind.BOOLEAN:
        return _number(field, given)
    if not isinstance(given, str) or given.lower() not in _WORDS:
        raise ParameterError(f"{field} must be true or false, got {_shown(given)}")
    return _WORDS[given.lower()]


def relation_of(given: Any) -> Neighbours:
    """Return the neighbouring relation: the difference between two data sets that must look alike."""
    found: Neighbours = _choice("relation", given, (Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE_ONE))
    return found


def budget_of(given: Any) -> Budget:
    """Return the budget that fields such as `{epsilon: 1, delta: 1e-6}` declare."""
    if given is None:
        raise ParameterError("budget must be filled in, as {epsilon: 1, delta: 1e-6}")
    told = Faults()
    fields = mapping("budget", given, ("epsilon", "delta"), told)
    numbers = {
        part: told.of(0.0, _number, f"budget.{part}", fields.get(part)) for part in ("epsilon", "delta")
    }
    told.check()
    try:
        return Budget(**numbers)
    except ReticentError as error:
        raise ParameterError(f"budget.{error}") from error


def _unit(given: Any, faults: Faults) -> tuple[str | None, int]:
    if given is None:
        raise ParameterError("unit must be filled in: row, or {person: COLUMN, rows: NUMBER}")
    if isinstance(given, str):
        if given != "row":
            raise ParameterError(f"unit must be row or {{person: COLUMN, rows: NUMBER}}, got {_shown(given)}")
        return None, 1
    fields = mapping("unit", given, ("person", "rows"), faults)
    person = faults.of("?", _text, "unit.person", fields.get("person"))
    return person, faults.of(1, whole_number, "unit.rows", fields.get("rows"))


def source_of(given: Any) -> Mapping[str, Any]:
    """Return the place of the rows, in the long form with named fields."""
    if given is None:
        return MappingProxyType({})
    if isinstance(given, str):
        form = form_of(given)
        if form is None:
            others = "{duckdb: FILE, table: NAME}, {url: ADDRESS, table: NAME}, {spark: MASTER, table: NAME}"
            raise ParameterError(
                f"source must end in {', '.join(SUFFIXES)} or be {others}, got {_hidden(given)}"
            )
        return MappingProxyType({form: given})
    fields = mapping("source", given, (*FORMS, "table", "schema", "delimiter"))
    forms = [form for form in FORMS if form in fields]
    if "spark" in forms:
        _check_spark(fields)
        forms = ["spark"]
    if len(forms) != 1:
        raise ParameterError(
            f"source must be exactly one of {', '.join(FORMS)}, got {', '.join(forms) or 'none'}"
        )
    allowed = {
        "csv": ("delimiter",),
        "parquet": (),
        "duckdb": ("table", "schema"),
        "url": ("table", "schema"),
        "spark": ("table", "schema", "parquet"),
    }
    for name, value in fields.items():
        if name not in (forms[0], *allowed[forms[0]]):
            raise ParameterError(f"source.{name} must be left out for {forms[0]}")
        if not isinstance(value, str):
            raise ParameterTypeError(f"source.{name} must be a text")
    if "table" in allowed[forms[0]] and not {"table", "parquet"} & set(fields):
        raise ParameterError(f"source.table must be filled in for {forms[0]}")
    if "url" in fields:
        check_address(fields["url"])
    delimiter = fields.get("delimiter", ",")
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\n\r':
        raise ParameterError(
            f"source.delimiter must be one ASCII character, got {_shown(fields['delimiter'])}"
        )
    return MappingProxyType(fields)


def _check_spark(fields: Mapping[str, Any]) -> None:
    """Refuse an untested Spark master, and rows whose place is not given or given twice."""
    if isinstance(fields["spark"], str):
        check_master(fields["spark"])
    if "parquet" in fields and {"table", "schema"} & set(fields):
        raise ParameterError("source must be either a table or parquet for spark, got both")


def _choice(field: str, given: Any, choices: Sequence[Any]) -> Any:
    names = ", ".join(repr(choice.value) if " " in choice.value else choice.value for choice in choices)
    if given is None:
        raise ParameterError(f"{field} must be filled in: one of {names}")
    for choice in choices:
        if given == choice.value:
            return choice
    raise ParameterError(f"{field} must be one of {names}, got {_shown(given)}")


def _text(field: str, given: Any) -> str:
    if given is None:
        raise ParameterError(f"{field} must be filled in")
    if not isinstance(given, str):
        raise ParameterTypeError(f"{field} must be a text, got {_shown(given)}")
    return given


def _number(field: str, given: Any) -> float:
    if given is None:
        raise ParameterError(f"{field} must be filled in")
    if not isinstance(given, str) or not _NUMBER.fullmatch(given):
        raise ParameterTypeError(f"{field} must be a number, got {_shown(given)}")
    return float(given)


def whole_number(field: str, given: Any) -> int:
    """Return the whole number in a typed text."""
    if given is None:
        raise ParameterError(f"{field} must be filled in")
    if not isinstance(given, str) or not _WHOLE.fullmatch(given):
        raise ParameterTypeError(f"{field} must be a whole number, got {_shown(given)}")
    return int(given)


def _shown(given: Any) -> str:
    text = " ".join(repr(given).split())
    return text if len(text) <= 60 else text[:57] + "..."


def _hidden(given: str) -> str:
    """Return a value for an error message; an address, which may hold a password, is not shown."""
    return "an address" if "://" in given else _shown(given)


def _column_fields(column: Column) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": column.kind.value}
    for part in ("low", "high", "step"):
        number = getattr(column, part)
        if number is not None and (part != "step" or column.kind is Kind.NUMBER):
            fields[part] = _plain(number)
    if column.kind is Kind.CATEGORY:
        fields["values"] = list(column.values)
    if column.stored is not None:
        fields["stored"] = column.stored
    missing = column.missing
    if not column.says_missing:  # nobody did
        return fields
    return fields | {"missing": _plain(missing) if isinstance(missing, float) else missing}


def _plain(number: float) -> float:
    return int(number) if number.is_integer() and abs(number) < 1 << 53 else number
