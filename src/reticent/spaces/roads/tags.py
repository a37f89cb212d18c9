"""The meaning of OpenStreetMap's tags for cars: access, direction and speed.

Reference: the project's own pages on the keys highway, access, oneway, junction and maxspeed.
Departure: times of day, kinds of cars and turns that are forbidden are not looked at. What is open to
customers is open; what is private is closed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from reticent.spaces.roads.maps import DEFAULT_KMH

KMH_BY_CLASS = {
    "motorway": 110.0,
    "trunk": 90.0,
    "primary": 60.0,
    "secondary": 50.0,
    "tertiary": 50.0,
    "unclassified": 40.0,
    "residential": 30.0,
    "living_street": 10.0,
    "service": 20.0,
    "road": 40.0,
}
_LINK = "_link"
_CLOSED = {"no", "private", "agricultural", "forestry", "military", "emergency", "psv", "bus"}
_ACCESS = ("motorcar", "motor_vehicle", "vehicle", "access")  # the first that is there counts
_ROUND = {"roundabout", "circular"}
_BOTH = {"no", "false", "0", "reversible", "alternating"}
_FORWARD = {"yes", "true", "1"}
_BACKWARD = {"-1", "reverse"}
_SPEED = re.compile(r"(\d{1,3}(?:\.\d+)?) ?(mph|km/h|kmh|kph|knots)?")
_PER_UNIT = {"mph": 1.609344, "knots": 1.852}


def is_for_cars(tags: Mapping[str, str]) -> bool:
    """Whether cars may use a way; one without any class is taken to be a street."""
    classes = [_class(one) for one in _several(tags.get("highway", "road"))]
    if not any(one in KMH_BY_CLASS for one in classes) or tags.get("area") == "yes":
        return False
    for key in _ACCESS:
        if key in tags:
            return not any(one in _CLOSED for one in _several(tags[key]))
    return True


def directions(tags: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether cars may drive forward, and backward."""
    said = set(_several(tags.get("oneway", "")))
    if said & _BOTH:
        return True, True
    if said & _BACKWARD:
        return False, True
    if said & _FORWARD:
        return True, False
    around = any(one in _ROUND for one in _several(tags.get("junction", "")))
    fast = any(_class(one) == "motorway" for one in _several(tags.get("highway", "")))
    return True, not (around or fast)


def kmh(tags: Mapping[str, str]) -> float:
    """Return the speed of cars: as signed, the slowest of several, else the usual one of the class."""
    for key in ("speed_kph", "maxspeed"):
        found = [_speed(one) for one in _several(tags.get(key, ""))]
        if signed := [one for one in found if one is not None]:
            return min(signed)
    usual = [KMH_BY_CLASS.get(_class(one)) for one in _several(tags.get("highway", ""))]
    return min((one for one in usual if one is not None), default=DEFAULT_KMH)


def _class(text: str) -> str:
    return text.removesuffix(_LINK)


def _several(text: str) -> list[str]:
    """Return the values of a tag: by semicolons, or as Python writes a list (so OSMnx does)."""
    return [one.strip(" '\"[]{}()").lower() for one in re.split(r"[;,]", text) if one.strip(" '\"[]{}()")]


def _speed(text: str) -> float | None:
    found = _SPEED.fullmatch(text)
    return float(found[1]) * _PER_UNIT.get(found[2] or "", 1.0) if found else None
