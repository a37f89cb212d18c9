"""Refusal of requests for more work than the rate of their sender allows, for as little work as can be.

A sender who comes again before the announced time may do so as often as the rate of requests allows, and each
time everybody else waits for the refusal. So the refusal is made before the request is routed, checked and
given a thread: from the key, and from the length of a long request or the cells of a short one. A request
that is not refused here goes its usual way, where all of it is looked at again.
"""

from __future__ import annotations

import re
import time
from types import SimpleNamespace

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reticent.apps.query.dependencies import desk_of, jobs_of
from reticent.service.callers import ASKERS, caller_of
from reticent.service.keys import Person
from reticent.service.limits import until_deadline
from reticent.service.refusals import Refused, too_many
from reticent.service.replies import refusal

_ASK, _REHEARSE = "ask", "rehearse"
_QUESTION = re.compile(rf"(/api/v1/datasets/)([^/]{{1,80}})/({_ASK}|price|known|{_REHEARSE}|jobs)")


class Sparing:
    """An ASGI middleware that refuses hopeless requests, behind the guard that reads whole bodies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a hopeless request, and pass on every other."""
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        found = _QUESTION.fullmatch(scope["path"]) if is_post else None
        if found is None:
            await self._app(scope, receive, send)
            return
        start, request, body = time.monotonic(), Request(scope), await receive()
        base, name, verb = found.groups()
        refused = _refused(request, await caller_of(request), name, verb, body)
        if refused is None:
            await self._app(scope, _again(body, receive), send)
            return
        scope["route"] = SimpleNamespace(path=f"{base}{{name}}/{verb}")  # as it is counted and logged
        if verb == _ASK:
            settings, rows = desk_of(request).settings, desk_of(request).open_data(name).rows
            await until_deadline(start, settings.deadline_s(rows), settings.grid_s)
        await refusal(refused)(scope, receive, send)


def _refused(request: Request, person: Person | None, name: str, verb: str, body: Message) -> Refused | None:
    """Return why this person may not ask this now, if that can be told at once."""
    if person is None or person.role not in ASKERS:
        return None
    hopeless = jobs_of(request).hopeless(person, name, body.get("body", b""), may_reuse=verb != _REHEARSE)
    if hopeless is None:
        return None
    pause_s = request.app.state.rate.wait_s(str(person.number))
    return too_many(pause_s) if pause_s else hopeless


def _again(body: Message, receive: Receive) -> Receive:
    """Return a `receive` that gives the body first, as if nobody had received it."""
    is_given = False

    async def replayed() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return body

    return replayed
