"""Common parts of signed texts: names, descriptions, JSON with sorted fields and no others."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from reticent.errors import ParameterError

LONGEST_TEXT = 1 << 20
_HEX = re.compile(r"([0-9a-f]{2})*", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", re.ASCII)


def check_words(name: Any, version: Any, purpose: Any) -> None:
    """Refuse a name that no file could have, and a version or purpose that cannot be printed."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ParameterError(f"name must be 1 to 80 letters, digits, dots, dashes, got {name!r:.60}")
    for field, text, most in (("version", version, 80), ("purpose", purpose, 1000)):
        if not isinstance(text, str) or not 0 < len(text) <= most or not text.isprintable():
            raise ParameterError(f"{field} must be a printable text of 1 to {most} characters")


def written(fields: Mapping[str, Any]) -> bytes:
    """Encode fields as the canonical text."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def read(
    text: Any,
    fields: Sequence[str],
    *,
    optional: Sequence[str] = (),
    what: str = "task",
    most: int = LONGEST_TEXT,
) -> dict[str, Any]:
    """Decode the fields of a text, exactly these; only the optional ones may be missing."""
    if not isinstance(text, bytes) or len(text) > most:
        raise ParameterError(f"the {what} must be at most {most} bytes")
    try:
        given = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise ParameterError(f"the {what} must be JSON in ASCII") from error
    return checked_fields(f"the {what}", given, fields, optional)


def checked_fields(
    where: str, given: Any, names: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, Any]:
    """Return an object that has these fields and no others, or raise."""
    if not isinstance(given, dict):
        raise ParameterError(f"{where} must be an object")
    for name in given:
        if name not in names:
            raise ParameterError(f"{where}: field {name!r:.60} is not known")
    for name in names:
        if name not in given and name not in optional:
            raise ParameterError(f"{where}: field {name} is missing")
    return given


def hexadecimal(field: str, given: Any) -> bytes:
    """Decode the bytes of a hexadecimal text."""
    if not isinstance(given, str) or not _HEX.fullmatch(given):
        raise ParameterError(f"{field} must be hexadecimal")
    return bytes.fromhex(given)
