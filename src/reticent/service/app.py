"""The application: routes, one error shape, limits, headers, logs. `reticent serve` runs it under uvicorn."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Protocol

import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

import reticent
from reticent.errors import ReticentError
from reticent.service import health, key_api, key_pages, layout, numbers, sign_in, visits
from reticent.service.guard import Guard
from reticent.service.limits import Rate
from reticent.service.metrics import Metrics
from reticent.service.refusals import headers, shape
from reticent.service.replies import Reply, refusal
from reticent.service.served import Served
from reticent.service.settings import Settings
from reticent.service.state import State
from reticent.service.traces import Traces

log = logging.getLogger("reticent.service")
_OWN = (key_api.router, health.router, sign_in.router, numbers.router, key_pages.router)
_WARM_S = 30.0  # that an ending process waits for a source


class Desk(Protocol):
    """The interface of the desk for the application: its state and settings, a check, start and end."""

    @property
    def settings(self) -> Settings:
        """The settings of the service."""

    @property
    def state(self) -> State:
        """The state of the service: keys and visits."""

    def check(self) -> str | None:
        """Return the reason why something cannot be read, if anything."""

    def warm(self) -> object:
        """Load what the first request needs."""

    def close(self) -> None:
        """Close everything."""


def create_app(
    settings: Settings,
    capabilities: Sequence[Served],
    *,
    desk: Callable[[], Desk],
    warmed: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Build the application of one process.

    Args:
        settings: Settings of the service.
        capabilities: Capabilities whose routes and pages are added.
        desk: Function that makes the desk, once the process runs.
        warmed: Function that is called once everything is loaded.
    """

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = settings.threads
        held = app.state.desk = desk()
        parts = ExitStack()
        parts.enter_context(health.draining(app, settings.drain_s))
        for one in capabilities:
            if one.running is not None:
                parts.enter_context(one.running(app))
        warming = threading.Thread(target=_warm, args=(held, warmed), name="warm", daemon=True)
        warming.start()
        try:
            yield
        finally:
            parts.close()
            held.close()
            if app.state.traces is not None:
                app.state.traces.close()
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
    app.state.is_draining = False
    app.add_exception_handler(ReticentError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(visits.SignIn, _sign_in)
    for one in capabilities:
        if one.prepare is not None:
            one.prepare(app, settings)
    for router in (*(router for one in capabilities for router in one.routers), *_OWN):
        app.include_router(router)
    folders = [one.folder for one in capabilities]
    tabs = [key_pages.TAB, *(tab for one in capabilities for tab in one.tabs)]
    app.state.templates = layout.templates(folders, tabs)
    app.mount("/static", layout.Static(folders))

    app.state.traces = Traces(settings.traces) if settings.traces is not None else None
    app.state.metrics = Metrics()
    app.add_middleware(Guard, settings=settings, metrics=app.state.metrics, traces=app.state.traces)
    return app


def _warm(desk: Desk, warmed: Callable[[], None]) -> None:
    """Make the first answer as quick as the others. Sources that cannot be reached are named in the log."""
    try:
        desk.warm()
        warmed()
    except Exception as error:  # it is tried again when somebody asks
        log.error(json.dumps({"event": "fault", "type": type(error).__name__}))


def _is_page(request: Request) -> bool:
    return not request.url.path.startswith(("/api/", "/metrics", "/health"))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ReticentError)
    if not _is_page(request):
        return refusal(error)
    reply = await run_in_threadpool(visits.problem, request, error)
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
    if _is_page(request):
        return await run_in_threadpool(visits.told, request, 422, message)
    return Reply(shape("invalid", message), 422)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if _is_page(request):
        reply = await run_in_threadpool(visits.told, request, error.status_code, str(error.detail)[:200])
        reply.headers.update(error.headers or {})
        return reply
    names = {400: "bad_request", 404: "not_found", 405: "method_not_allowed"}
    kind = names.get(error.status_code, "refused")
    return Reply(shape(kind, str(error.detail)[:200]), error.status_code, error.headers)
