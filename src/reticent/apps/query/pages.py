"""The pages: the same desk as the API, for people. Rendered here, moved by htmx, drawn by ECharts.

Who may see what is in `visits`, what owners do in `owner_pages`, from a form to a question in `builder`, how
numbers are shown in `showing`.
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

from reticent.apps.chain import shown as chain_views
from reticent.apps.query import builder, owner_pages
from reticent.apps.query.api import budget_json
from reticent.apps.query.dependencies import TheDesk, jobs_of
from reticent.apps.query.desk import Desk
from reticent.apps.query.schemas import Priced
from reticent.errors import QuestionRefused, ReticentError
from reticent.fleet.people import not_added
from reticent.privacy import spent_epsilon
from reticent.query import Answer, DataSet, Price
from reticent.query.accuracy import Accuracy
from reticent.query.answers import Case
from reticent.query.declarations.datasets import Policy
from reticent.query.declarations.explanation import explain
from reticent.query.kinds.listed import FORMS, KIND
from reticent.query.language import tree, words
from reticent.query.language.questions import resolve
from reticent.service import showing
from reticent.service.keys import Person, Role
from reticent.service.limits import until_deadline
from reticent.service.refusals import Refused, not_found
from reticent.service.state import Asked, Job, Visit
from reticent.service.visits import (
    AskerSeen,
    AskerSent,
    Given,
    Seen,
    page,
    part,
)

router = APIRouter(include_in_schema=False)
router.include_router(owner_pages.router)

_PER_PAGE = 50
_MOST_HISTORY = 1000
_MOST_DRAWN = 200  # points of a chart, lines of a table
_CASES = {
    Case.FRESH: "fresh: nothing was bought under this question before",
    Case.EQUAL: "reused: exactly this was bought before",
    Case.REFINED: "refined: only the missing part was bought, and combined with the earlier answers",
    Case.COARSER: "reused: a more exact answer was bought before",
    Case.PUBLIC: "public: the declaration answers it",
}


# Looking


@router.get("/")
def overview(request: Request, desk: TheDesk, visit: Seen) -> HTMLResponse:
    """Every data set with what is left."""
    return page(request, "overview.html", visit, here="overview", **_cards(desk))


@router.get("/overview")
def overview_part(
    request: Request, desk: TheDesk, visit: Seen, seen: Annotated[str, Query(max_length=64)] = ""
) -> Response:
    """The cards alone, which the overview fetches again and again; nothing if they are as they were seen."""
    found = _cards(desk)
    if found["stamp"] == seen:
        return Response(status_code=204)
    return part(request, "cards.html", found | {"person": visit.person})


def _cards(desk: Desk) -> dict[str, Any]:
    found = []
    for name in desk.names():
        try:
            found.append(_card(desk, name))
        except ReticentError as error:  # one that cannot be opened does not hide the others
            found.append({"name": name, "problem": str(error)})
    stamp = hashlib.sha256(json.dumps(found, default=str).encode()).hexdigest()[:16]
    return {"datasets": found, "stamp": stamp}


def _card(desk: Desk, name: str) -> dict[str, Any]:
    data, balance = desk.data(name), desk.balance(name)
    history = desk.state.history(name, _MOST_DRAWN)
    cap = balance.terms.cap
    left = [100 * (1 - one.spent / cap) for one in history]
    return {
        "name": name,
        "subject": data.subject,
        "rows": data.rows,
        "budget": budget_json(balance, data),
        "share": balance.spent / cap,
        "burn": [100.0, *left] if len(left) < _MOST_DRAWN else left,
        "questions": f"{len(left)}" if len(left) < _MOST_DRAWN else f"{_MOST_DRAWN} or more",
        "last": history[-1].person if history else None,
    }


@router.get("/datasets/{name}")
def dataset(request: Request, desk: TheDesk, visit: Seen, name: str) -> HTMLResponse:
    """What a data set is, and all that was asked."""
    data = desk.data(name)
    keys = _Keys(data)
    owns = desk.owns(visit.person, name)
    return page(
        request,
        "dataset.html",
        visit,
        data=data,
        card=_card(desk, name),
        explanation=explain(data) + (not_added(list(desk.balances().values())) if data.people else []),
        history=[
            {
                "text": words.line(json.loads(one.query)),
                "person": one.person,
                "cost": one.cost / data.terms.cap,
                "alone": one.without_reuse / data.terms.cap,
                "key": keys.of(one.query),
            }
            for one in reversed(desk.state.history(name, _PER_PAGE))
        ],
        openable=data.policy is Policy.SHARE and visit.person.role is not Role.AUDITOR,
        owns=owns,
        quotas=owner_pages.quotas(desk, name) if owns else [],
        own_quota=_own_quota(desk, visit.person, name),
    )


def _own_quota(desk: Desk, person: Person, name: str) -> dict[str, float] | None:
    """What a person may be charged and was, as shares of the cap; None without a limit."""
    limit, used = desk.state.quota(name, person)
    if limit is None:
        return None
    cap = desk.balance(name).terms.cap
    return {"share": limit / cap, "used": used / cap, "left": max(0, limit - used) / cap}


class _Keys:
    """The keys of questions about a data set: what was bought under one, others reuse."""

    def __init__(self, data: DataSet) -> None:
        self._data, self._known = data, dict[str, str | None]()

    def of(self, query: str) -> str | None:
        """The key of a question as the history keeps it; None if the data set does not allow it any more."""
        if query not in self._known:
            try:
                self._known[query] = resolve(tree.from_json(json.loads(query)), self._data).key
            except ReticentError:
                self._known[query] = None
        return self._known[query]


@router.get("/datasets/{name}/reuse")
def reuse(request: Request, desk: TheDesk, visit: Seen, name: str) -> HTMLResponse:
    """What the questions cost, and what they would have cost without reuse."""
    data = desk.data(name)
    cap, delta = data.terms.cap, data.budget.delta
    history = desk.state.history(name, _MOST_HISTORY)
    paid = list(itertools.accumulate(one.cost for one in history))
    alone = list(itertools.accumulate(one.without_reuse for one in history))
    last, without = (paid[-1], alone[-1]) if history else (0, 0)
    return page(
        request,
        "reuse.html",
        visit,
        data=data,
        paid=spent_epsilon(last, delta) if last else 0.0,
        alone=spent_epsilon(without, delta) if without else 0.0,
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
                "values": list(column.values[:_MOST_DRAWN]),
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
        "words": _CASES[found.case],
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
    reply = part(request, "asked_part.html", _asked_part(desk, person, data, answer))
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
    shown = jobs_of(request).told(found)
    if shown["result"] is None:
        return _waiting_part(request, desk, data, found)
    if "error" in shown["result"]:
        return part(request, "problem_part.html", {"message": shown["result"]["error"]["message"]})
    return _answered(request, desk, visit.person, data, Answer.from_json(shown["result"]))


def _waiting_part(request: Request, desk: Desk, data: DataSet, job: Job) -> HTMLResponse:
    content = {"data": data, "job": job.id, "is_on_chain": desk.chain is not None}
    return part(request, "waiting_part.html", content)


def _asked_part(desk: Desk, person: Person, data: DataSet, answer: Answer | None) -> dict[str, Any]:
    """An answer and, beside it, what is left."""
    shown = {} if answer is None else _answer(desk, answer, data)
    return shown | {"card": _card(desk, data.name), "own_quota": _own_quota(desk, person, data.name)}


def _refused(
    request: Request, desk: Desk, person: Person, data: DataSet, refusal: ReticentError, best: Answer | None
) -> HTMLResponse:
    """A refusal, with the best answer that is free."""
    content = _asked_part(desk, person, data, best)
    content |= {"refusal": refusal, "has_best": best is not None, "by_quota": isinstance(refusal, Refused)}
    if isinstance(refusal, QuestionRefused):
        reachable = refusal.reachable_error
        content |= {
            "asked_share": refusal.asked / data.terms.cap,
            "left_share": refusal.left / data.terms.cap,
            "reachable": None if reachable is None else showing.error_shown(reachable),
        }
    return part(request, "refused_part.html", content)


@router.get("/datasets/{name}/answers")
async def answers(
    request: Request,
    desk: TheDesk,
    visit: AskerSeen,
    name: str,
    key: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    """What was bought so far; with a key, the best answer under it. All of it is free."""
    session = await run_in_threadpool(desk.session, name)
    bought = await run_in_threadpool(session.questions)
    known = None
    if key in bought:
        known = await jobs_of(request).free(
            visit.person, name, bought[key], lambda _: session.known(bought[key]), is_here=True
        )
    if key and known is None:
        raise not_found("answer")
    return await run_in_threadpool(_answers, request, desk, visit, session.data, bought, key, known)


def _answers(
    request: Request,
    desk: Desk,
    visit: Visit,
    data: DataSet,
    bought: dict[str, tree.Query],
    key: str,
    known: Answer | None,
) -> HTMLResponse:
    lines = [
        {"key": each, "text": words.line(tree.to_json(query)), "here": each == key}
        for each, query in bought.items()
    ]
    return page(
        request,
        "answers.html",
        visit,
        data=data,
        lines=list(reversed(lines))[:_MOST_HISTORY],
        openable=data.policy is Policy.SHARE,
        shown=None if known is None else _answer(desk, known, data),
    )


def _answer(desk: Desk, answer: Answer, data: DataSet) -> dict[str, Any]:
    """What the template of an answer shows."""
    cap = data.terms.cap
    one = (
        answer.cells[0].estimate if len(answer.cells) == 1 and not KIND[answer.query.kind].is_table else None
    )
    names = ["level"] if KIND[answer.query.kind].is_rank else [by.column for by in answer.query.by]
    cells = [
        {
            "labels": [str(label) for label in cell.labels],
            "value": cell.estimate.value,
            "low": cell.estimate.low,
            "high": cell.estimate.high,
            "shown": _shown(cell.estimate),
        }
        for cell in answer.cells[:_MOST_DRAWN]
    ]
    alone = spent_epsilon(answer.without_reuse, answer.delta) if answer.without_reuse else 0.0
    purchases = _purchases(desk, data, answer)
    return {
        "answer": answer,
        "one": _shown(one) if one else None,
        "names": names,
        "cells": cells,
        "hidden": len(answer.cells) - len(cells),
        "bar": _bar(one.value, one.low, one.high) if one else None,
        "words": _CASES[answer.case],
        "is_public": answer.case is Case.PUBLIC,
        "alone": alone,
        "paid_share": answer.cost / cap,
        "alone_share": answer.without_reuse / cap,
        "reused_share": answer.reused / cap,
        "worth_share": answer.information / cap,
        "purchases": purchases,
        "transactions": _transactions(desk, data, answer),
        "data": data,
        "asked": words.line(tree.to_json(answer.query)),
    }


def _transactions(desk: Desk, data: DataSet, answer: Answer) -> list[dict[str, Any]]:
    """What is on the chain behind an answer, if its ledger is there."""
    if desk.chain is None:
        return []
    return chain_views.behind(desk.chain, data.name, answer.receipt.key, _PER_PAGE)


def _purchases(desk: Desk, data: DataSet, answer: Answer) -> list[dict[str, Any]]:
    """What was paid under the answer's question before it, the last first."""
    keys = _Keys(data)
    found = [
        one
        for one in reversed(desk.state.history(data.name, _MOST_HISTORY))
        if one.cost and keys.of(one.query) == answer.receipt.key
    ]
    if answer.cost:
        found = found[1:]  # the first is this answer
    return [_purchase(one, data) for one in found[:_PER_PAGE]]


def _purchase(one: Asked, data: DataSet) -> dict[str, Any]:
    return {
        "text": words.line(json.loads(one.query)),
        "person": one.person,
        "share": one.cost / data.terms.cap,
    }


def _shown(estimate: Any) -> dict[str, str]:
    low, high = showing.interval(estimate.low, estimate.high)
    error = (estimate.high - estimate.low) / 2
    return {
        "value": showing.rounded(estimate.value, error),
        "low": low,
        "high": high,
        "error": showing.error_shown(error),
    }


def _bar(value: float, low: float, high: float) -> dict[str, float]:
    """Where the interval lies on a line of 100 units, with a third of its width on both sides."""
    width = (high - low) or 1.0
    start, span = low - width / 3, width * 5 / 3
    places = (("low", low), ("value", value), ("high", high))
    return {name: min(100.0, max(0.0, round(100 * (at - start) / span, 2))) for name, at in places}
