"""The file in which a buyer writes an offer. `reticent market offer` sends it, `market plan` fills it in.

name: speeds
purpose: To plan roads, we buy how fast vehicles drive.
attributes:              # bounds and values come from public knowledge, never from data
  speed: {low: 0, high: 130}
deposit: 100000          # cents, of which sellers are paid
closes: 2026-12-24       # a day or a time in UTC
levels:                  # of rising epsilon and rising pay, in cents
  - {epsilon: 0.25, cents: 30}
  - {epsilon: 0.5, cents: 50}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reticent.arguments import whole
from reticent.collect.survey_file import moment
from reticent.errors import ParameterError
from reticent.fleet import yaml_file
from reticent.fleet.yaml_file import number as number_of
from reticent.fleet.yaml_file import text as text_of
from reticent.market.menus import MOST_CENTS, Level, Menu
from reticent.market.offering import Wanted, menu_of
from reticent.market.offers import MOST_POINTS
from reticent.market.trading import HOLD_S, MOST_HOLD_S
from reticent.mechanisms.attributes import Attribute, Category
from reticent.privacy import UNITS_PER_ONE

_FIELDS = ("name", "purpose", "attributes", "deposit", "closes")
_OPTIONAL = ("version", "levels", "hold")
_UNPLANNED = Menu((Level(UNITS_PER_ONE, 1),))


def read(path: Path, *, menu: Menu | None = None) -> Wanted:
    """Read the offer that a file describes.

    Args:
        path: Path of the file.
        menu: Menu instead of the levels in the file, which may be left out then.

    Raises:
        ParameterError: The file breaks a rule; one line with the file, the field, the rule and the value.
    """
    return yaml_file.read("offer", path, lambda text: parse(text, menu=menu))


def parse(text: str, *, menu: Menu | None = None) -> Wanted:
    """Return the offer that a text describes."""
    given = yaml_file.fields("the file", yaml_file.loaded("offer", text, "collect"), _FIELDS, _OPTIONAL)
    return Wanted(
        text_of("name", given["name"]),
        text_of("purpose", given["purpose"]),
        _attributes(given["attributes"]),
        _levels(given.get("levels")) if menu is None else menu,
        whole("deposit", given["deposit"], low=1, high=MOST_CENTS),
        moment(given["closes"], "closes"),
        whole("hold", given.get("hold", HOLD_S), low=1, high=MOST_HOLD_S),
        text_of("version", given.get("version", "1")),
    )


def deposit(path: Path) -> int:
    """Return the deposit that a file names, in cents."""
    return read(path, menu=_UNPLANNED).deposit


def _attributes(given: Any) -> tuple[Attribute, ...]:
    if not isinstance(given, dict) or not given:
        raise ParameterError("attributes must be names with fields")
    return tuple(
        yaml_file.attribute(f"attributes.{name!s:.60}", str(name), fields) for name, fields in given.items()
    )


def _levels(given: Any) -> Menu:
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_POINTS:
        raise ParameterError(f"levels must be a list of 1 to {MOST_POINTS}")
    pairs = []
    for place, one in enumerate(given):
        fields = yaml_file.fields(f"levels[{place}]", one, ("epsilon", "cents"), ())
        pairs.append((number_of(f"levels[{place}].epsilon", fields["epsilon"]), fields["cents"]))
    return menu_of(pairs)


def body(wanted: Wanted) -> dict[str, Any]:
    """Return an offer as the body of a request."""
    return {
        "name": wanted.name,
        "version": wanted.version,
        "purpose": wanted.purpose,
        "attributes": [_attribute(one) for one in wanted.attributes],
        "levels": [
            {"epsilon": level.units / UNITS_PER_ONE, "cents": level.cents} for level in wanted.menu.levels
        ],
        "deposit": wanted.deposit,
        "closes": wanted.closes,
        "hold_s": wanted.hold_s,
    }


def _attribute(one: Attribute) -> dict[str, Any]:
    if not isinstance(one, Category):
        return {"name": one.name, "low": one.bounds[0], "high": one.bounds[1]}
    values = range(one.values) if isinstance(one.values, int) else one.values
    fields: dict[str, Any] = {"name": one.name, "values": [str(value) for value in values]}
    return fields if one.fallback is None else fields | {"fallback": str(one.fallback)}
