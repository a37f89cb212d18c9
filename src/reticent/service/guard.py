"""Around every request: bounds on bodies and numbers, security headers, counts, one log line."""

from __future__ import annotations

import asyncio
import json
import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reticent.service.limits import DEEPEST_BODY, is_deeper
from reticent.service.metrics import Metrics
from reticent.service.refusals import Refused, busy
from reticent.service.replies import refusal
from reticent.service.settings import Settings

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
_FORMS = (b"application/x-www-form-urlencoded", b"multipart/form-data")
_CLOSE = (b"connection", b"close")


class _Gone(Exception):
    """The client left before it had sent its request."""


class Guard:
    """ASGI middleware. A body is read whole before anything else happens, within a time and a size."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.monotonic(), 0
        is_cut = False  # the body was not read to its end

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

        self._metrics.at_once += 1
        try:
            if self._metrics.at_once > self._settings.most_at_once and scope["path"] != "/health":
                is_cut = True
                raise busy()
            is_cut = True
            replayed = await self._taken(scope, receive)
            is_cut = False
            await self._app(scope, replayed, marked)
        except Refused as refused:
            await refusal(refused)(scope, receive, marked)
        except _Gone:
            pass
        except Exception as error:  # a fault of ours: its text could hold data
            log.error(json.dumps({"event": "fault", "type": type(error).__name__}))
            if not status:
                await refusal(Refused(500, "fault", "internal fault"))(scope, receive, marked)
        finally:
            self._metrics.at_once -= 1
            self._noted(scope, status, time.monotonic() - start)

    async def _taken(self, scope: Scope, receive: Receive) -> Receive:
        """The whole body, to be received again."""
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        largest = self._settings.largest_body
        if not declared.isdigit() or int(declared) > largest:
            raise _too_large(largest)
        if declared == b"0" and b"transfer-encoding" not in headers:
            return receive
        try:
            async with asyncio.timeout(self._settings.body_s):
                body = await _whole(receive, largest)
        except TimeoutError:
            raise Refused(408, "too_slow", f"the body must come within {self._settings.body_s:g} s") from None
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if kind not in _FORMS and is_deeper(body):
            raise Refused(400, "bad_request", f"the body must be nested at most {DEEPEST_BODY} deep")
        is_given = False

        async def replayed() -> Message:
            nonlocal is_given
            if is_given:
                return await receive()
            is_given = True
            return {"type": "http.request", "body": body, "more_body": False}

        return replayed

    def _noted(self, scope: Scope, status: int, passed_s: float) -> None:
        route = getattr(scope.get("route"), "path", None)
        self._metrics.count(scope["method"], route, status)
        told = {"event": "request", "method": scope["method"][:20], "route": route, "status": status}
        log.info(json.dumps(told | {"ms": round(passed_s * 1000)}))


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
