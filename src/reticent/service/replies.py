"""How replies are written: JSON in ASCII, so that no text of a caller can break them."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse

from reticent.errors import ReticentError
from reticent.service.refusals import explained, headers


class Reply(JSONResponse):
    """JSON whose texts may hold anything, lone surrogates too; bytes are what was written before."""

    def render(self, content: Any) -> bytes:
        """The bytes."""
        return content if isinstance(content, bytes) else written(content)


def written(content: Any) -> bytes:
    """JSON as replies hold it."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def refusal(error: ReticentError) -> Reply:
    """A refusal in its one shape."""
    status, body = explained(error)
    return Reply(body, status, headers(error))
