"""The format of replies: JSON in ASCII, so that no text of a caller can break them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from starlette.responses import JSONResponse

from reticent.errors import ReticentError
from reticent.service.refusals import Refused, explained, headers

_TOGETHER = 256  # items of a list


class Reply(JSONResponse):
    """JSON whose texts may hold anything, lone surrogates too; bytes are what was written before."""

    def render(self, content: Any) -> bytes:
        """The bytes."""
        return content if isinstance(content, bytes) else written(content)


def written(content: Any) -> bytes:
    """JSON as replies hold it. Long lists are written in parts: no other thread runs while one is."""
    return "".join(_parts(content)).encode()


def _parts(content: Any) -> Iterator[str]:
    if isinstance(content, dict) and any(isinstance(one, (dict, list)) for one in content.values()):
        for place, (name, value) in enumerate(content.items()):
            yield f"{',' if place else '{'}{json.dumps(name)}:"
            yield from _parts(value)
        yield "}"
    elif isinstance(content, list) and len(content) > _TOGETHER:
        for first in range(0, len(content), _TOGETHER):
            yield f"{',' if first else '['}{_dumped(content[first : first + _TOGETHER])[1:-1]}"
        yield "]"
    else:
        yield _dumped(content)


def _dumped(content: Any) -> str:
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


def refusal(error: ReticentError) -> Reply:
    """A refusal in its one shape."""
    return Reply(refusal_text(error), explained(error)[0], headers(error))


def refusal_text(error: ReticentError) -> bytes:
    """The body of a refusal, which may hold an answer of many cells."""
    if isinstance(error, Refused) and error.reply is not None:
        return error.reply
    return written(explained(error)[1])
