"""Around every request: bounds on bodies and numbers, security headers, counts, one log line."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from functools import lru_cache

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reticent.errors import ReticentError, StorageUnavailable
from reticent.files import FULL, is_out_of_space
from reticent.service.health import PATHS
from reticent.service.limits import DEEPEST_BODY, is_deeper
from reticent.service.metrics import Metrics
from reticent.service.refusals import Refused, busy
from reticent.service.replies import refusal
from reticent.service.settings import Settings
from reticent.service.traces import Traces

log = logging.getLogger("reticent.service")

_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
_NO_JSON = (b"application/x-www-form-urlencoded", b"multipart/form-data", b"application/octet-stream")
_CLOSE = (b"connection", b"close")
_MOST_DIGITS = 20  # of a length; int() refuses thousands of them


class _Gone(Exception):
    """The client left before it had sent its request."""


class Guard:
    """ASGI middleware. A body is read whole before anything else happens, within a time and a size.

    Slow senders take no place from others: when too many bodies are under way, the slowest is cut.
    """

    def __init__(
        self, app: ASGIApp, settings: Settings, metrics: Metrics, traces: Traces | None = None
    ) -> None:
        self._app, self._settings, self._metrics, self._traces = app, settings, metrics, traces
        self._arriving: dict[asyncio.Timeout, None] = {}  # the oldest first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.monotonic(), 0
        is_cut, is_counted = True, False  # cut: the body was not read to its end

        async def marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((name, value) for name, value in _HEADERS if name not in present),
                    *((_CLOSE,) if is_cut else ()),
                ]
            await send(message)

        try:
            replayed = await self._taken(scope, receive)
            is_cut = False
            if self._metrics.at_once >= self._settings.most_at_once and scope["path"] not in PATHS:
                raise busy()
            self._metrics.at_once += 1
            is_counted = True
            await self._app(scope, replayed, marked)
        except ReticentError as refused:
            await refusal(refused)(scope, receive, marked)
        except _Gone:
            pass
        except Exception as error:  # a fault of ours, or a full disk: its text could hold data
            if is_out_of_space(error) and not status:
                log.error(json.dumps({"event": "full disk"}))
                await refusal(StorageUnavailable(f"the service cannot write: {FULL}"))(scope, receive, marked)
                return
            log.error(json.dumps({"event": "fault", "type": type(error).__name__}))
            if not status:
                await refusal(Refused(500, "fault", "internal fault"))(scope, receive, marked)
        finally:
            self._metrics.at_once -= is_counted
            self._noted(scope, status, time.monotonic() - start)

    async def _taken(self, scope: Scope, receive: Receive) -> Receive:
        """The whole body, to be received again."""
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        largest = self._settings.largest_body
        if not declared.isdigit() or len(declared) > _MOST_DIGITS or int(declared) > largest:
            raise _too_large(largest)
        if declared == b"0" and b"transfer-encoding" not in headers:
            return receive
        try:
            async with asyncio.timeout(self._settings.body_s) as patience:
                self._make_room()
                self._arriving[patience] = None
                try:
                    body = await _whole(receive, largest)
                finally:
                    self._arriving.pop(patience, None)
        except TimeoutError as error:
            raise Refused(
                408, "too_slow", f"the body must come within {self._settings.body_s:g} s"
            ) from error
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if kind not in _NO_JSON and not json.detect_encoding(body).startswith("utf-8"):  # brackets could hide
            raise Refused(400, "bad_request", "the body must be in UTF-8")
        if kind not in _NO_JSON and is_deeper(body):
            raise Refused(400, "bad_request", f"the body must be nested at most {DEEPEST_BODY} deep")
        is_given = False

        async def replayed() -> Message:
            nonlocal is_given
            if is_given:
                return await receive()
            is_given = True
            return {"type": "http.request", "body": body, "more_body": False}

        return replayed

    def _make_room(self) -> None:
        """Lose patience with the oldest body that is on its way, if there are too many."""
        if len(self._arriving) >= self._settings.most_at_once:
            oldest = next(iter(self._arriving))
            del self._arriving[oldest]
            if not oldest.expired():
                oldest.reschedule(0.0)

    def _noted(self, scope: Scope, status: int, passed_s: float) -> None:
        route = getattr(scope.get("route"), "path", None)
        self._metrics.count(scope["method"], route, status)
        if self._traces is not None:
            self._traces.note(scope, route, status, passed_s)
        log.info('%s, "ms": %d}', _line(scope["method"][:20], route, status), round(passed_s * 1000))


@lru_cache(maxsize=1000)
def _line(method: str, route: str | None, status: int) -> str:
    """The beginning of a log line: JSON without its end."""
    return json.dumps({"event": "request", "method": method, "route": route, "status": status})[:-1]


async def _whole(receive: Receive, largest: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        body += message.get("body", b"")
        if len(body) > largest:
            raise _too_large(largest)
        if not message.get("more_body", False):
            return bytes(body)


def _too_large(largest: int) -> Refused:
    return Refused(413, "too_large", f"the body must be at most {largest} bytes")
