"""The pages for people, on the same desk as the API: rendered here, moved by htmx, drawn by ECharts.

Permissions are in `visits`, the pages of owners in `owners`, the way from a form to a question in `builder`,
and the format of numbers in `showing`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse, Response
from starlette.concurrency import run_in_threadpool

from reticent.apps.ledger.studies import studies
from reticent.apps.query import builder
from reticent.apps.query.api import budget_json
from reticent.apps.query.dependencies import TheDesk, jobs_of
from reticent.apps.query.desk import Desk
from reticent.apps.query.pages import answers, owners, shown
from reticent.apps.query.schemas import Priced
from reticent.errors import QuestionRefused, ReticentError
from reticent.fleet.people import not_added
from reticent.query import Answer, DataSet, Price
from reticent.query.accuracy import Accuracy
from reticent.query.declarations.datasets import Policy
from reticent.query.declarations.explanation import columns, explain
from reticent.query.kinds.listed import FORMS, KIND
from reticent.query.language import tree
from reticent.query.proposals import Proposal
from reticent.service import showing
from reticent.service.keys import Person, Role
from reticent.service.limits import until_deadline
from reticent.service.refusals import Refused, not_found
from reticent.service.state import Job
from reticent.service.visits import (
    AskerSeen,
    AskerSent,
    Given,
    Seen,
    page,
    part,
    visit_of,
)

router = APIRouter(include_in_schema=False)
router.include_router(owners.router)
router.include_router(answers.router)


# Looking


@router.get("/")
def overview(request: Request, desk: TheDesk, visit: Seen) -> HTMLResponse:
    """Every data set with what is left."""
    return page(request, "overview.html", visit, here="overview", **_cards(request, desk))


@router.get("/overview")
def overview_part(
    request: Request, desk: TheDesk, visit: Seen, seen: Annotated[str, Query(max_length=64)] = ""
) -> Response:
    """The cards alone, which the overview fetches again and again; nothing if they are as they were seen."""
    found = _cards(request, desk)
    if found["stamp"] == seen:
        return Response(status_code=204)
    return part(request, "cards.html", found | {"person": visit.person})


def _cards(request: Request, desk: Desk) -> dict[str, Any]:
    found = []
    for name in desk.names():
        try:
            found.append(_card(desk, name))
        except ReticentError as error:  # one that cannot be opened does not hide the others
            found.append({"name": name, "problem": str(error)})
    told = studies(request.app, desk.balances())
    stamp = hashlib.sha256(json.dumps([found, told], default=str).encode()).hexdigest()[:16]
    return {"datasets": found, "studies": told, "stamp": stamp}


def _card(desk: Desk, name: str) -> dict[str, Any]:
    data, balance = desk.data(name), desk.balance(name)
    history = desk.state.history(name, shown.MOST_DRAWN)
    cap = balance.terms.cap
    spent = itertools.accumulate((one.spent for one in history), max)  # others may write at the same time
    left = [100 * (1 - units / cap) for units in spent]
    return {
        "name": name,
        "subject": data.subject,
        "rows": data.rows,
        "budget": budget_json(balance, data),
        "share": balance.spent / cap,
        "burn": [100.0, *left] if len(left) < shown.MOST_DRAWN else left,
        "questions": f"{len(left)}" if len(left) < shown.MOST_DRAWN else f"{shown.MOST_DRAWN} or more",
        "last": history[-1].person if history else None,
    }


@router.get("/datasets/{name}")
def dataset(request: Request, desk: TheDesk, visit: Seen, name: str) -> HTMLResponse:
    """What a data set is, and all that was asked."""
    data = desk.data(name)
    openable = data.policy is Policy.SHARE and visit.person.role is not Role.AUDITOR
    owns = desk.owns(visit.person, name)
    return page(
        request,
        "dataset.html",
        visit,
        data=data,
        card=_card(desk, name),
        explanation=explain(data, with_columns=False)
        + (not_added(list(desk.balances().values())) if data.people else []),
        history=shown.history(desk, data, visit.person.name, openable=openable),
        openable=openable,
        columns=columns(data),
        owns=owns,
        quotas=owners.quotas(desk, name) if owns else [],
        own_quota=_own_quota(desk, visit.person, name),
    )


def _own_quota(desk: Desk, person: Person, name: str) -> dict[str, float] | None:
    """Return the quota of a person, its used part and its rest, as shares of the cap; None if unlimited."""
    limit, used = desk.state.quota(name, person)
    if limit is None:
        return None
    cap = desk.balance(name).terms.cap
    return {"share": limit / cap, "used": used / cap, "left": max(0, limit - used) / cap}


@router.get("/datasets/{name}/reuse")
def reuse(request: Request, desk: TheDesk, visit: Seen, name: str) -> HTMLResponse:
    """What the questions cost, and what they would have cost without reuse."""
    data = desk.data(name)
    cap = data.terms.cap
    history = desk.state.history(name, shown.MOST_HISTORY)
    paid = list(itertools.accumulate(one.cost for one in history))
    alone = list(itertools.accumulate(one.without_reuse for one in history))
    last, without = (paid[-1], alone[-1]) if history else (0, 0)
    return page(
        request,
        "reuse.html",
        visit,
        data=data,
        paid_share=last / cap,
        alone_share=without / cap,
        saved=1 - last / without if without else 0.0,
        count=len(history),
        free=sum(not one.cost for one in history),
        lines=[[100 * one / cap, 100 * other / cap] for one, other in zip(paid, alone, strict=True)],
    )


# Asking


@router.get("/datasets/{name}/ask")
def ask_page(request: Request, desk: TheDesk, visit: AskerSeen, name: str) -> HTMLResponse:
    """The builder."""
    data = desk.data(name)
    return page(
        request,
        "ask.html",
        visit,
        data=data,
        forms=[form for _, form in FORMS.values()],
        operators=builder.OPERATORS,
        numbers=[column.name for column in data.columns if column.is_number],
        columns=[
            {
                "name": column.name,
                "is_binned": column.kind.value in ("number", "integer"),
                "values": list(column.values[: shown.MOST_DRAWN]),
            }
            for column in data.columns
        ],
        card=_card(desk, name),
        own_quota=_own_quota(desk, visit.person, name),
        is_on_chain=desk.chain is not None,
    )


@router.post("/datasets/{name}/price")
async def price_part(
    request: Request, desk: TheDesk, visit: AskerSent, name: str, fields: Given
) -> HTMLResponse:
    """What the question would cost, as the slider stands."""
    data = await run_in_threadpool(desk.data, name)
    query, accuracy = builder.asked(data, fields), builder.accuracy(data, fields)
    found = await jobs_of(request).free(visit.person, name, query, partial(_price, name, query, accuracy))
    return await run_in_threadpool(_priced, request, desk, visit.person, data, found)


def _price(name: str, query: tree.Query | str, accuracy: Accuracy, desk: Desk) -> Price:
    return desk.price(name, query, accuracy)


def _priced(request: Request, desk: Desk, person: Person, data: DataSet, found: Price) -> HTMLResponse:
    cap = data.terms.cap
    content = {
        "price": found,
        "words": shown.CASES[found.case],
        "share": found.cost / cap,
        "left": found.remaining / cap,
        "error": None if found.error is None else showing.error_shown(found.error),
        "free": None if found.free_error is None else showing.error_shown(found.free_error),
        "fewer": []
        if found.assumed is None
        else [(f"{rows:,.0f}", showing.error_shown(error)) for rows, error in found.assumed.otherwise],
        "is_rank": KIND[found.query.kind].is_rank,
        "own_quota": _own_quota(desk, person, data.name),
    }
    return part(request, "price_part.html", content)


@router.get("/datasets/{name}/plan")
def plan_page(request: Request, desk: TheDesk, visit: AskerSeen, name: str) -> HTMLResponse:
    """Many questions before any of them is bought."""
    data = desk.data(name)
    numbers = [column.name for column in data.columns if column.is_number]
    own_quota = _own_quota(desk, visit.person, name)
    card = _card(desk, name)
    return page(request, "plan.html", visit, data=data, numbers=numbers, card=card, own_quota=own_quota)


@router.post("/datasets/{name}/plan")
async def plan_part(
    request: Request, desk: TheDesk, visit: AskerSent, name: str, fields: Given
) -> HTMLResponse:
    """What to buy first, and what all of it costs then."""
    data = await run_in_threadpool(desk.data, name)
    wanted = builder.workload(data, fields)
    jobs, queries = jobs_of(request), [query for query, _ in wanted]
    weight = await run_in_threadpool(jobs.charge_plan, visit.person, name, queries)
    found = await jobs.free_of(weight, name, partial(_plan, name, wanted))
    return part(request, "plan_part.html", shown.proposal(found, data) | {"csrf": visit.csrf})


def _plan(name: str, wanted: list[tuple[str, Accuracy]], desk: Desk) -> Proposal:
    return desk.plan(name, wanted)


@router.post("/datasets/{name}/ask")
async def ask_part(
    request: Request, desk: TheDesk, visit: AskerSent, name: str, fields: Given
) -> HTMLResponse:
    """The answer, on the same time grid as over the API."""
    start, rows = time.monotonic(), None
    try:
        data = desk.data(name)
        rows = data.rows
        query, accuracy = builder.asked(data, fields), builder.accuracy(data, fields)
        asked = query if isinstance(query, str) else tree.to_json(query)
        body = Priced.model_construct(query=asked, **accuracy.words())
        try:
            answer = await jobs_of(request).ask(visit.person, name, body, None, start, lambda found: found)
        except QuestionRefused as refusal:
            best = refusal.best if isinstance(refusal.best, Answer) else None
            return await run_in_threadpool(_refused, request, desk, visit.person, data, refusal, best)
        except Refused as refusal:
            if refusal.kind != "quota_exceeded":
                raise
            best = await run_in_threadpool(desk.known, name, query)
            return await run_in_threadpool(_refused, request, desk, visit.person, data, refusal, best)
        if isinstance(answer, Job):
            return _waiting_part(request, desk, data, answer)
        return await run_in_threadpool(_answered, request, desk, visit.person, data, answer)
    finally:
        await until_deadline(start, desk.settings.deadline_s(rows), desk.settings.grid_s)


def _answered(request: Request, desk: Desk, person: Person, data: DataSet, answer: Answer) -> HTMLResponse:
    content = _asked_part(request, desk, person, data, answer)
    reply = part(request, "asked_part.html", content)
    reply.headers["HX-Trigger-After-Settle"] = "asked"  # the price is another one now
    return reply


@router.get("/datasets/{name}/jobs/{job}")
def job_part(
    request: Request, desk: TheDesk, visit: AskerSeen, name: str, job: Annotated[str, Path(max_length=80)]
) -> Response:
    """A question that takes long: its answer once it is there."""
    data, found = desk.data(name), desk.state.job(job, visit.person)
    if found is None or found.dataset != name:
        raise not_found("job")
    told = jobs_of(request).told(found)
    if told["result"] is None:
        return _waiting_part(request, desk, data, found)
    if "error" in told["result"]:
        return part(request, "problem_part.html", {"message": told["result"]["error"]["message"]})
    return _answered(request, desk, visit.person, data, Answer.from_json(told["result"]))


def _waiting_part(request: Request, desk: Desk, data: DataSet, job: Job) -> HTMLResponse:
    content = {"data": data, "job": job.id, "is_on_chain": desk.chain is not None}
    return part(request, "waiting_part.html", content)


def _asked_part(
    request: Request, desk: Desk, person: Person, data: DataSet, answer: Answer | None
) -> dict[str, Any]:
    """Return the content for an answer and, beside it, what is left."""
    found = {} if answer is None else shown.answer(desk, answer, data, str(request.base_url))
    visit = visit_of(request)
    return found | {
        "card": _card(desk, data.name),
        "own_quota": _own_quota(desk, person, data.name),
        "csrf": visit.csrf if visit else "",
    }


def _refused(
    request: Request, desk: Desk, person: Person, data: DataSet, refusal: ReticentError, best: Answer | None
) -> HTMLResponse:
    """Return the page part of a refusal, with the best answer that is free."""
    content = _asked_part(request, desk, person, data, best)
    content |= {"refusal": refusal, "has_best": best is not None, "by_quota": isinstance(refusal, Refused)}
    if isinstance(refusal, QuestionRefused):
        reachable = refusal.reachable_error
        content |= {
            "asked_share": refusal.asked / data.terms.cap,
            "left_share": refusal.left / data.terms.cap,
            "reachable": None if reachable is None else showing.error_shown(reachable) + refusal.if_rows,
        }
    return part(request, "refused_part.html", content)
