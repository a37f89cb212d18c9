"""The application: routes, one error shape, limits, headers, logs. `reticent serve` runs it under uvicorn."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

import reticent
from reticent.apps.collect import collecting
from reticent.apps.collect import pages as survey_pages
from reticent.apps.collect.collecting import Collecting
from reticent.apps.location import pages as place_pages
from reticent.apps.location import places
from reticent.apps.location.places import Places
from reticent.apps.query import api, asking, pages
from reticent.apps.query.apart import Apart
from reticent.apps.query.desk import Desk
from reticent.apps.query.jobs import Jobs
from reticent.apps.query.lanes import SWITCH_S
from reticent.errors import ReticentError
from reticent.service.guard import Guard
from reticent.service.limits import Rate
from reticent.service.metrics import Metrics
from reticent.service.refusals import headers, shape
from reticent.service.replies import Reply, refusal
from reticent.service.settings import Settings

log = logging.getLogger("reticent.service")
_WARM_S = 30.0  # that an ending process waits for a source


def create_app(
    settings: Settings,
    *,
    desk: Callable[[], Desk] | None = None,
    apart: bool = False,
    warmed: Callable[[], None] = lambda: None,
) -> FastAPI:
    """The application of one process.

    Args:
        settings: of the service.
        desk: how to make the desk, once the process runs; from the settings by default.
        apart: whether answers of many cells are made in a process of their own (`apart`).
        warmed: is called once everything is loaded.
    """

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = settings.threads
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))
        held = app.state.desk = desk() if desk is not None else Desk(settings)
        other = Apart(settings) if apart and not held.ledger.measured_by_oracle else None
        app.state.jobs = Jobs(held, other)
        if other is not None:
            other.start()
        warming = threading.Thread(target=_warm, args=(held, warmed), name="warm", daemon=True)
        warming.start()
        try:
            yield
        finally:
            app.state.jobs.close()
            app.state.places.close()
            app.state.collecting.close()
            held.close()
            warming.join(_WARM_S)

    app = FastAPI(
        title="Reticent",
        version=reticent.__version__,
        summary="Learn from personal data while every release is paid for out of one privacy ledger",
        lifespan=running,
        docs_url=None,
        redoc_url=None,
        default_response_class=Reply,
    )
    app.state.rate = Rate(settings.rate, settings.burst)
    app.state.collecting = Collecting(settings, lambda: app.state.desk.book)
    app.state.places = Places(settings, app.state.collecting)
    app.add_exception_handler(ReticentError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(pages.SignIn, _sign_in)
    asking.add_to(app)
    app.include_router(api.questions)
    app.include_router(api.router)
    app.include_router(api.operations)
    app.include_router(collecting.router)
    app.include_router(places.router)
    app.include_router(pages.router)
    app.include_router(survey_pages.router)
    app.include_router(place_pages.router)
    app.mount("/static", _Static(directory=Path(__file__).parent / "static"))

    app.state.metrics = Metrics()
    app.add_middleware(Guard, settings=settings, metrics=app.state.metrics)
    return app


def _warm(desk: Desk, warmed: Callable[[], None]) -> None:
    """Make the first answer as quick as the others. Sources that cannot be reached are named in the log."""
    try:
        desk.warm()
        warmed()
    except Exception as error:  # it is tried again when somebody asks
        log.error(json.dumps({"event": "fault", "type": type(error).__name__}))


class _Static(StaticFiles):
    """Files that a browser may keep, and asks whether they changed."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        reply = super().file_response(*args, **kwargs)
        reply.headers["cache-control"] = "no-cache"
        return reply


def _is_page(request: Request) -> bool:
    return not request.url.path.startswith(("/api/", "/metrics", "/health"))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ReticentError)
    if not _is_page(request):
        return refusal(error)
    reply = pages.problem(request, error)
    reply.headers.update(headers(error))
    return reply


async def _sign_in(request: Request, error: Exception) -> Response:
    if request.headers.get("hx-request"):
        return Response(status_code=401, headers={"HX-Redirect": "/signin"})
    return RedirectResponse("/signin", 303)


async def _invalid(request: Request, error: Exception) -> Response:
    """The first broken rule, by field. The given value stays out: it may be long, or a secret."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first.get("loc", ()))
    message = f"{where[:200]}: {str(first.get('msg', 'is not valid'))[:200]}"
    return pages.told(request, 422, message) if _is_page(request) else Reply(shape("invalid", message), 422)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if _is_page(request):
        reply = pages.told(request, error.status_code, str(error.detail)[:200])
        reply.headers.update(error.headers or {})
        return reply
    names = {400: "bad_request", 404: "not_found", 405: "method_not_allowed"}
    kind = names.get(error.status_code, "refused")
    return Reply(shape(kind, str(error.detail)[:200]), error.status_code, error.headers)
