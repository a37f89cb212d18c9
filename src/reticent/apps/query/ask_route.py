"""The route that asks a question, whose parts are read by hand as FastAPI would read them.

Most requests are of this kind.

FastAPI takes several times as long for it, and a question that was asked before in the same words is not even
parsed.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from reticent.apps.query.api import Idempotency, Name, accepted
from reticent.apps.query.dependencies import desk_of, jobs_of
from reticent.apps.query.desk import LONGEST_REPEAT
from reticent.apps.query.jobs import in_bytes
from reticent.apps.query.schemas import Priced
from reticent.apps.query.sparing import Sparing
from reticent.errors import ReticentError
from reticent.service.callers import Asker, asker
from reticent.service.limits import until_deadline
from reticent.service.refusals import Refused
from reticent.service.replies import Reply
from reticent.service.schemas import PROBLEMS, Json
from reticent.service.settings import Settings
from reticent.service.state import Job


async def ask(
    request: Request,
    person: Asker,
    name: Name,
    body: Priced,
    idempotency_key: Idempotency = None,
) -> Reply:
    """Ask, and pay what is not bought yet. A retry with the same Idempotency-Key and body is charged once.

    Whatever the reply is, it leaves on a time grid that is made of public numbers.
    """
    start = time.monotonic()
    desk, jobs = desk_of(request), jobs_of(request)
    rows: int | None = None
    try:
        data = desk.open_data(name) if desk.is_open(name) else await run_in_threadpool(desk.open_data, name)
        rows = data.rows
        text = await request.body()
        if (
            idempotency_key is None and len(text) <= LONGEST_REPEAT
        ):  # most were asked before: no thread for them
            found = desk.reused(person, name, body.query, body.accuracy(), text)
            if found is not None:
                return Reply(found)
        answer = await jobs.ask(person, name, body, idempotency_key, start, in_bytes)
        return accepted(jobs.told(answer)) if isinstance(answer, Job) else Reply(answer)
    finally:
        await until_deadline(start, desk.settings.deadline_s(rows), desk.settings.grid_s)


async def _by_hand(request: Request) -> Reply:
    """Call `ask`, or return at once what `ask` would reply."""
    start = time.monotonic()
    person = await asker(request)
    desk, name, text = desk_of(request), request.path_params["name"], await request.body()
    idempotency = request.headers.get("idempotency-key")
    is_json = _is_json(request.headers.get("content-type", ""))
    found = None
    if is_json and idempotency is None:
        with contextlib.suppress(ReticentError):  # `ask` reports faults of ledger or state in its time
            found = desk.repeated(person, name, text)
    if found is None:
        is_long = len(text) > LONGEST_REPEAT
        with jobs_of(request).reading(person, text) if is_long else contextlib.nullcontext():
            return await ask(request, person, name, _read(text, is_json=is_json), idempotency)
    await until_deadline(start, desk.settings.deadline_s(desk.open_data(name).rows), desk.settings.grid_s)
    return Reply(found)


def _is_json(kind: str) -> bool:
    given = kind.partition(";")[0].strip().lower()
    return given.startswith("application/") and given.endswith(("/json", "+json"))


def _read(text: bytes, *, is_json: bool) -> Priced:
    try:
        given: Any = json.loads(text) if is_json else text
    except json.JSONDecodeError as error:
        raise _invalid("JSON decode error", error.pos) from error
    except ValueError as error:
        raise Refused(400, "bad_request", "the body cannot be read") from error
    try:
        return Priced.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise _invalid(first["msg"], *first["loc"]) from error


def _invalid(rule: str, *place: str | int) -> RequestValidationError:
    return RequestValidationError([{"loc": ("body", *place), "msg": rule}])


class _ByHand(APIRoute):
    """A route that FastAPI describes by the function `ask`, and whose requests `_by_hand` reads."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return _by_hand


def add_to(app: FastAPI) -> None:
    """Add the route that asks to an application: first of all, and not in a router.

    FastAPI looks through a router twice.
    """
    app.router.add_api_route(
        "/api/v1/datasets/{name}/ask",
        ask,
        methods=["POST"],
        route_class_override=_ByHand,
        response_model=Json,
        responses=PROBLEMS | {202: {"description": "It takes long and goes on as a job."}},
    )


def prepare(app: FastAPI, settings: Settings) -> None:
    """Add the route that asks before all others, and the middleware that refuses hopeless requests."""
    add_to(app)
    app.add_middleware(Sparing)
