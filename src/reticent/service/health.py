"""Health checks for the operator: whether the service lives, whether to give it work, and its replies.

A server that shall end (`draining`) is not ready, so that a balancer sends no more to it; it ends once what
it was given is answered.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import PlainTextResponse
from starlette.concurrency import run_in_threadpool

from reticent.service.callers import TheState, Watcher, stranger
from reticent.service.refusals import Refused
from reticent.service.schemas import PROBLEMS, PROBLEMS_IN_JSON, Json

log = logging.getLogger("reticent.service")
router = APIRouter(responses=PROBLEMS)
PATHS = ("/health", "/health/live", "/health/ready")


@router.head("/health/live", include_in_schema=False, dependencies=[Depends(stranger)])
@router.get("/health/live", dependencies=[Depends(stranger)])
async def live() -> Json:
    """Whether the process answers at all: it need not be started anew while it does."""
    return {"status": "ok"}


@router.head("/health/ready", include_in_schema=False, dependencies=[Depends(stranger)])
@router.get("/health/ready", dependencies=[Depends(stranger)])
async def ready(request: Request) -> Json:
    """Whether requests shall be sent here: ledger and state can be read, and the server does not end."""
    if request.app.state.is_draining:
        raise Refused(503, "draining", "the server ends: ask another one", retry_s=1.0)
    return await health(request)


@router.head("/health", include_in_schema=False, dependencies=[Depends(stranger)])
@router.get("/health", dependencies=[Depends(stranger)])
async def health(request: Request) -> Json:
    """Whether ledger and state can be read."""
    missing = await run_in_threadpool(request.app.state.desk.check)
    if missing is not None:
        raise Refused(503, "unhealthy", f"the {missing} cannot be read")
    return {"status": "ok"}


@router.get("/metrics", response_class=PlainTextResponse, responses=PROBLEMS_IN_JSON)
def metrics(request: Request, person: Watcher, state: TheState) -> str:
    """Replies by route and status, for Prometheus: no data, no names, no times."""
    lost = 0 if state.database is None else state.database.reconnected
    is_ready = not request.app.state.is_draining
    text: str = request.app.state.metrics.text(state.job_counts(), lost=lost, is_ready=is_ready)
    return text


@contextmanager
def draining(app: FastAPI, drain_s: float) -> Iterator[None]:
    """After the first SIGTERM, take requests for so long still, without being ready; a second ends at once.

    The server of this process (uvicorn) had set a handler before, which ends it in order: that is called
    later. Signals come to the main thread alone: elsewhere, as in tests, nothing is changed.
    """
    app.state.is_draining = False
    if not drain_s or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, earlier = asyncio.get_running_loop(), signal.getsignal(signal.SIGTERM)

    def end(sign: int, frame: FrameType | None = None) -> Any:
        return earlier(sign, frame) if callable(earlier) else signal.raise_signal(signal.SIGINT)

    def told(sign: int, frame: FrameType | None) -> None:
        if app.state.is_draining:
            end(sign, frame)
            return
        app.state.is_draining = True
        loop.call_soon_threadsafe(lambda: loop.call_later(drain_s, end, sign))
        log.info(json.dumps({"event": "draining", "seconds": drain_s}))

    signal.signal(signal.SIGTERM, told)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)
