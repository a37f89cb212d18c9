"""The file in which an operator writes a survey. `reticent survey sign` makes of it what devices get.

name: traffic
version: 1
purpose: To plan roads, we ask how fast vehicles drive and what they are.
epsilon: 1               # of one report
start: 2026-11-16        # of the first period, a day or a time in UTC
period: 1 day            # minutes, hours, days, weeks
periods: 30
sample: 1                # attributes in one report; the best number if left out
assigned: true           # the survey draws which attributes a device reports
groups: 16               # of reporters, for estimates that a few liars hardly move
attributes:
  speed: {low: 0, high: 130}
  kind: {values: [car, bus, bicycle], fallback: car, mechanism: KRR}
"""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any

from reticent.arguments import whole
from reticent.collect.design import designed
from reticent.collect.survey import Survey
from reticent.errors import MissingExtra, ParameterError, ParameterTypeError
from reticent.mechanisms.record import Attribute, Category, Number

_LARGEST_FILE = 1 << 20
_FIELDS = ("name", "version", "purpose", "epsilon", "start", "period", "periods", "attributes")
_OPTIONAL = ("sample", "assigned", "groups")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_LENGTH = re.compile(r"([0-9]{1,9}) *(second|minute|hour|day|week)s?", re.ASCII)

TEMPLATE = """\
# A survey: what devices are asked, and under which privacy. `reticent survey check` explains it.
name: my-survey
version: 1
purpose: Why you ask, in words for the person behind a device.
epsilon: 1               # of one report; a device that always answers spends it in every period
start: {today}        # of the first period, a day or a time in UTC
period: 1 day            # minutes, hours, days, weeks
periods: 30
# sample: 1              # attributes in one report; the best number if left out
assigned: true           # the survey draws which attributes a device reports, not the device
groups: 16               # of reporters, for estimates that a few liars hardly move
attributes:              # bounds and values come from public knowledge, never from data
  speed: {{low: 0, high: 130}}
  kind: {{values: [car, bus, bicycle, other], fallback: other}}
"""


def read(path: Path) -> Survey:
    """The survey that a file describes, with the best mechanisms and a fresh key.

    Raises:
        ParameterError: in one line, with the file, the field, the rule and the value.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise ParameterError(f"must be at most {_LARGEST_FILE} bytes")
        return parse(content.decode())
    except UnicodeDecodeError:
        raise ParameterError(f"survey {path.name}: must be text in UTF-8") from None
    except (ParameterError, ParameterTypeError) as error:
        raise type(error)(f"survey {path.name}: {error}") from None


def parse(text: str) -> Survey:
    """The survey that a text describes."""
    given = _fields("the file", _loaded(text), _FIELDS, _OPTIONAL)
    attributes, mechanisms = _attributes(given["attributes"])
    sample = given.get("sample")
    return designed(
        _text("name", given["name"]),
        attributes,
        epsilon=_number("epsilon", given["epsilon"]),
        purpose=_text("purpose", given["purpose"]),
        start=_start(given["start"]),
        period_s=_period(given["period"]),
        periods=whole("periods", given["periods"]),
        version=_text("version", given["version"]),
        sample_size=None if sample is None else whole("sample", sample, low=1),
        assigned=given.get("assigned", False),
        groups=whole("groups", given.get("groups", 1)),
        mechanisms=mechanisms,
    )


def _loaded(text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingExtra("reading a survey", "collect") from None
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ParameterError("must be YAML") from None


def _fields(where: str, given: Any, names: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ParameterError(f"{where} must have fields, got {type(given).__name__}")
    for name in given:
        if name not in names + optional:
            raise ParameterError(f"{where}: field {name!r:.60} is not known")
    for name in names:
        if given.get(name) is None:
            raise ParameterError(f"{where}: field {name} is missing")
    return given


def _attributes(given: Any) -> tuple[list[Attribute], dict[str, str]]:
    if not isinstance(given, dict):
        raise ParameterError("attributes must be names with fields")
    found: list[Attribute] = []
    mechanisms: dict[str, str] = {}
    for name, fields in given.items():
        where = f"attributes.{name!s:.60}"
        if not isinstance(fields, dict):
            raise ParameterError(f"{where} must have fields: low and high, or values")
        if "values" in fields:
            _fields(where, fields, ("values",), ("fallback", "mechanism"))
            found.append(Category(str(name), fields["values"], fields.get("fallback")))
        else:
            _fields(where, fields, ("low", "high"), ("mechanism",))
            low, high = _number(f"{where}.low", fields["low"]), _number(f"{where}.high", fields["high"])
            found.append(Number(str(name), (low, high)))
        if fields.get("mechanism") is not None:
            mechanisms[str(name)] = _text(f"{where}.mechanism", fields["mechanism"])
    return found, mechanisms


def _text(field: str, given: Any) -> str:
    if isinstance(given, bool) or not isinstance(given, (str, int, float)):
        raise ParameterTypeError(f"{field} must be a text, got {type(given).__name__}")
    return str(given)


def _number(field: str, given: Any) -> float:
    """A number; YAML reads 1e-4 as a text."""
    if isinstance(given, bool) or not isinstance(given, (str, int, float)):
        raise ParameterTypeError(f"{field} must be a number, got {given!r:.60}")
    try:
        return float(given)
    except (ValueError, OverflowError):
        raise ParameterError(f"{field} must be a number, got {given!r:.60}") from None


def _period(given: Any) -> int:
    found = _LENGTH.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        raise ParameterError(f"period must read like '1 day' or '15 minutes', got {given!r:.60}")
    return int(found[1]) * _SECONDS[found[2]]


def _start(given: Any) -> int:
    if isinstance(given, str):
        try:
            given = datetime.datetime.fromisoformat(given)
        except ValueError:
            raise ParameterError(f"start must be a day or a time in UTC, got {given!r:.60}") from None
    if isinstance(given, datetime.datetime):
        is_plain = given.tzinfo is None
        return int((given.replace(tzinfo=datetime.UTC) if is_plain else given).timestamp())
    if isinstance(given, datetime.date):
        return int(datetime.datetime(given.year, given.month, given.day, tzinfo=datetime.UTC).timestamp())
    raise ParameterError(f"start must be a day or a time in UTC, got {given!r:.60}")
