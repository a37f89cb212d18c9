"""JSON that strangers wrote: short, shallow, whole numbers only, and every field named once, or refused."""

from __future__ import annotations

import json
import re
from typing import Any

from reticent.errors import ParameterError

_SIGNS = re.compile(r'[][{}"\\]')


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
    if _is_deeper(text, deepest):
        raise ParameterError(f"{name} must be JSON of at most {deepest} levels")
    try:
        return json.loads(text, object_pairs_hook=_fields, parse_float=_no_number, parse_constant=_no_number)
    except _RefusedError as refusal:
        raise ParameterError(f"{name} must {refusal}") from None
    except ValueError:  # no JSON, or a number of too many digits
        raise ParameterError(f"{name} must be JSON") from None


class _RefusedError(Exception):
    pass


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RefusedError("name each field once")
    return found


def _no_number(_: str) -> None:
    raise _RefusedError("hold no numbers but whole ones")


def _is_deeper(text: str, levels: int) -> bool:
    """Whether brackets stand within each other more than so many times, up to the first error at least.

    `json` leaves depth to the interpreter's limit on recursion, which anybody may have lifted (py_ecc, which
    web3 brings, makes it 100,000): then a text of brackets is no RecursionError but the end of the process.
    """
    depth, quoted, escaped = 0, False, -1
    for found in _SIGNS.finditer(text):
        at, sign = found.start(), found[0]
        if at == escaped:
            continue
        if sign == "\\":
            escaped = at + 1
        elif sign == '"':
            quoted = not quoted
        elif not quoted:
            depth += 1 if sign in "[{" else -1
            if depth > levels:
                return True
    return False
