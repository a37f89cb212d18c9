"""The survey file that an operator writes. `reticent survey sign` makes a signed survey from it.

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
wave: 0.1                # of reporters who report first, where an attribute learns from the `first wave`
regret: 0.5              # what a wrong guess may cost: half of the least variance in the worst case
attributes:
  speed: {low: 0, high: 130, tailor: first wave}     # or last period; or a guess: uniform, [1, 4, 2, 1]
  kind: {values: [car, bus, bicycle], fallback: car, mechanism: KRR}
"""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any

from reticent.arguments import whole
from reticent.collect.design import designed
from reticent.collect.survey import Survey
from reticent.collect.waves import FIRST_WAVE, REGRET, SHARE, SOURCES, Waves
from reticent.errors import ParameterError
from reticent.fleet import yaml_file
from reticent.fleet.yaml_file import number as number_of
from reticent.fleet.yaml_file import text as text_of
from reticent.mechanisms.attributes import Attribute

_FIELDS = ("name", "version", "purpose", "epsilon", "start", "period", "periods", "attributes")
_OPTIONAL = ("sample", "assigned", "groups", "wave", "regret")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_LENGTH = re.compile(r"([0-9]{1,9}) *(second|minute|hour|day|week)s?", re.ASCII)

PLACEHOLDER = "Why you ask, in words for the person behind a device."
TEMPLATE = """\
# A survey: what devices are asked, and under which privacy. `reticent survey check` explains it.
name: {name}
version: 1
purpose: {purpose}
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


def template(today: str, purpose: str | None = None, name: str = "my-survey") -> str:
    """Return a survey file to be filled in.

    Args:
        today: First day, such as 2026-11-16.
        purpose: Reason for the survey, in words for the person behind a device; devices show it.
        name: Name of the survey; characters that no name may hold become a dash.
    """
    named = re.sub("[^A-Za-z0-9._-]+", "-", name).strip("._-")[:80] or "my-survey"
    shown = PLACEHOLDER if purpose is None else json.dumps(purpose, ensure_ascii=False)
    return TEMPLATE.format(today=today, purpose=shown, name=named)


def check_purpose(survey: Survey) -> None:
    """Refuse to sign the purpose of the template: what is signed cannot be changed."""
    if survey.purpose == PLACEHOLDER:
        raise ParameterError(f"purpose must be your own words, got those of the template: {PLACEHOLDER!r}")


def read(path: Path) -> Survey:
    """Return the survey that a file describes, with the best mechanisms and a fresh key.

    Raises:
        ParameterError: in one line, with the file, the field, the rule and the value.
    """
    return yaml_file.read("survey", path, parse)


def parse(text: str) -> Survey:
    """Return the survey that a text describes."""
    given = yaml_file.fields("the file", yaml_file.loaded("survey", text, "collect"), _FIELDS, _OPTIONAL)
    attributes, mechanisms, tailor = _attributes(given["attributes"])
    guesses = {name: guess for name, guess in tailor.items() if guess not in SOURCES}
    regret = number_of("regret", given.get("regret", REGRET))
    sample = given.get("sample")
    return designed(
        text_of("name", given["name"]),
        attributes,
        epsilon=number_of("epsilon", given["epsilon"]),
        purpose=text_of("purpose", given["purpose"]),
        start=moment(given["start"]),
        period_s=_period(given["period"]),
        periods=whole("periods", given["periods"]),
        version=text_of("version", given["version"]),
        sample_size=None if sample is None else whole("sample", sample, low=1),
        assigned=given.get("assigned", False),
        groups=whole("groups", given.get("groups", 1)),
        mechanisms=mechanisms,
        guesses=guesses,
        regret=regret if guesses else None,
        waves=_waves({name: one for name, one in tailor.items() if one in SOURCES}, given, regret),
    )


def _waves(learns: dict[str, str], given: dict[str, Any], regret: float) -> Waves | None:
    """Return the waves of the survey, if one of its attributes learns."""
    if not learns:
        if "wave" in given:
            raise ParameterError(
                "wave must go with an attribute that has `tailor: first wave` or `last period`"
            )
        return None
    source, *others = dict.fromkeys(learns.values())
    if others:
        raise ParameterError(f"tailor must be the same for all that learn, got {source} and {others[0]}")
    share = given.get("wave", SHARE if source == FIRST_WAVE else 0.0)
    return Waves(tuple(learns), source, number_of("wave", share), regret)


def _attributes(given: Any) -> tuple[list[Attribute], dict[str, str], dict[str, Any]]:
    if not isinstance(given, dict):
        raise ParameterError("attributes must be names with fields")
    found: list[Attribute] = []
    mechanisms: dict[str, str] = {}
    tailor: dict[str, Any] = {}
    for name, fields in given.items():
        where = f"attributes.{name!s:.60}"
        found.append(yaml_file.attribute(where, str(name), fields, ("mechanism", "tailor")))
        if fields.get("mechanism") is not None:
            mechanisms[str(name)] = text_of(f"{where}.mechanism", fields["mechanism"])
        if fields.get("tailor") is not None:
            tailor[str(name)] = _tailor(f"{where}.tailor", fields)
    return found, mechanisms, tailor


def _tailor(where: str, fields: dict[str, Any]) -> Any:
    """Return what shapes the mechanism of a number: a source, or a guess."""
    given = fields["tailor"]
    if "values" in fields or fields.get("mechanism") is not None:
        raise ParameterError(f"{where} must be of a number, without another mechanism")
    if isinstance(given, list):
        return [number_of(where, one) for one in given]
    return text_of(where, given)


def _period(given: Any) -> int:
    found = _LENGTH.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        raise ParameterError(f"period must read like '1 day' or '15 minutes', got {given!r:.60}")
    return int(found[1]) * _SECONDS[found[2]]


def moment(given: Any, field: str = "start") -> int:
    """Return the seconds since 1970 of a day or a time in UTC, as YAML reads it."""
    if isinstance(given, str):
        try:
            given = datetime.datetime.fromisoformat(given)
        except ValueError as error:
            raise ParameterError(f"{field} must be a day or a time in UTC, got {given!r:.60}") from error
    if isinstance(given, datetime.datetime):
        is_plain = given.tzinfo is None
        return int((given.replace(tzinfo=datetime.UTC) if is_plain else given).timestamp())
    if isinstance(given, datetime.date):
        return int(datetime.datetime(given.year, given.month, given.day, tzinfo=datetime.UTC).timestamp())
    raise ParameterError(f"{field} must be a day or a time in UTC, got {given!r:.60}")
