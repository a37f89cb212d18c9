"""For whoever runs the service: whether it can do its work, and what it replied."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse
from starlette.concurrency import run_in_threadpool

from reticent.service.callers import TheState, Watcher, stranger
from reticent.service.refusals import Refused
from reticent.service.schemas import PROBLEMS, PROBLEMS_IN_JSON, Json

router = APIRouter(responses=PROBLEMS)


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
    text: str = request.app.state.metrics.text(state.job_counts())
    return text
