"""JSON that strangers wrote: short, shallow, whole numbers only, and every field named once, or refused."""

from __future__ import annotations

import json
from typing import Any

from reticent.errors import ParameterError
from reticent.peers import is_deeper


def read(name: str, text: Any, *, longest: int, deepest: int) -> Any:
    """The value of a JSON text.

    Args:
        name: what the text is called in errors.
        text: ASCII, as `json.dumps` writes it.
        longest: the most characters.
        deepest: the most lists and objects within each other.

    Raises:
        ParameterError: it is not such a text. The error does not quote it.
    """
    if not isinstance(text, str) or not text.isascii() or len(text) > longest:
        raise ParameterError(f"{name} must be a text of at most {longest} ASCII characters")
    if is_deeper(text, deepest):
        raise ParameterError(f"{name} must be JSON of at most {deepest} levels")
    try:
        return json.loads(text, object_pairs_hook=_fields, parse_float=_no_number, parse_constant=_no_number)
    except _RefusedError as refusal:
        raise ParameterError(f"{name} must {refusal}") from refusal
    except ValueError as error:  # no JSON, or a number of too many digits
        raise ParameterError(f"{name} must be JSON") from error


class _RefusedError(Exception):
    pass


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RefusedError("name each field once")
    return found


def _no_number(_: str) -> None:
    raise _RefusedError("hold no numbers but whole ones")
