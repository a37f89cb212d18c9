"""The HTTP API of data sets and questions, version 1.

The work of a call is in `desk`; the role that may make it is beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from fractions import Fraction
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from reticent.apps.query.dependencies import TheDesk, TheJobs, jobs_of
from reticent.apps.query.desk import LONGEST_REPEAT, Desk
from reticent.apps.query.jobs import in_bytes
from reticent.apps.query.schemas import Declaration, Known, Planned, Priced, Quota, Rehearsed
from reticent.ledger import Balance
from reticent.privacy import spent_epsilon
from reticent.query import DataSet
from reticent.query.declarations.explanation import explain
from reticent.query.language import tree
from reticent.query.language.tree import to_json
from reticent.service.callers import Anyone, Asker, Owner, caller_of, stranger
from reticent.service.keys import Person, Role
from reticent.service.refusals import not_found, not_signed_in
from reticent.service.replies import Reply, written
from reticent.service.schemas import PROBLEMS, Json

MOST_ENTRIES = 1000
router = APIRouter(prefix="/api/v1", responses=PROBLEMS)
_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class _Weighed(APIRoute):
    """A route for questions that checks the sender and the rate of a long question before it is read."""

    def get_route_handler(self) -> _Handler:
        handler = super().get_route_handler()

        async def weighed(request: Request) -> Response:
            text = await request.body()
            if len(text) <= LONGEST_REPEAT:
                return await handler(request)
            person = await caller_of(request)
            if person is None:
                await stranger(request)
                raise not_signed_in()
            with jobs_of(request).reading(person, text):
                return await handler(request)

        return weighed


questions = APIRouter(prefix="/api/v1", responses=PROBLEMS, route_class=_Weighed)

Name = Annotated[str, Path(max_length=80, description="Of the data set.")]
Idempotency = Annotated[
    str | None,
    Header(max_length=200, description="A retry with the same text and body is charged once."),
]


# Data sets


@router.get("/datasets")
def datasets(person: Anyone, desk: TheDesk) -> Json:
    """Every data set with its budget."""
    balances = desk.balances()
    return {
        "datasets": [
            summary(data, balances.get(data.account) or Balance(data.terms, 0)) for data in desk.datasets()
        ]
    }


@router.post("/datasets", status_code=201)
def register(person: Owner, desk: TheDesk, body: Declaration) -> Json:
    """Register a data set whose rows are a file that the operator assigned to whoever calls."""
    data = desk.register(person, body.declaration)
    return summary(data, desk.balance(data.name))


@router.get("/sources")
def sources(person: Owner, desk: TheDesk) -> Json:
    """The files that the operator assigned to whoever calls: what may be registered."""
    return {"sources": desk.files_of(person)}


@router.get("/datasets/{name}")
def dataset(person: Anyone, desk: TheDesk, name: Name) -> Json:
    """What a data set is: its columns, what is protected, its budget."""
    data = desk.data(name)
    return summary(data, desk.balance(name)) | {"explanation": explain(data), "columns": columns(data)}


@router.get("/datasets/{name}/budget")
def budget(person: Anyone, desk: TheDesk, name: Name) -> Json:
    """The cap of a data set, what is spent and what is left; for an analyst the quota too."""
    data = desk.data(name)
    limit, used = desk.state.quota(name, person)
    told = {"quota": None if limit is None else str(limit), "used": str(used)}
    return budget_json(desk.balance(name), data) | told


@router.get("/datasets/{name}/answers", response_model=Json)
async def answers(
    person: Asker,
    desk: TheDesk,
    jobs: TheJobs,
    name: Name,
    first: Annotated[int, Query(ge=0, le=1 << 53)] = 0,
    count: Annotated[int, Query(ge=1, le=MOST_ENTRIES)] = 100,
) -> Reply:
    """Questions that were bought, by anybody, with the best answer that is free now (none under degrade)."""
    listed = await run_in_threadpool(lambda: sorted(desk.session(name).questions().items()))
    wanted = listed[first : first + count]
    queries = [query for _, query in wanted]
    weight = await run_in_threadpool(jobs.charge_list, person, name, queries)
    told = await jobs.free_of(weight, name, partial(_listed, name, wanted))
    return Reply(b'{"size":%d,"first":%d,"answers":%s}' % (len(listed), first, told))


def _listed(name: str, wanted: list[tuple[str, tree.Query]], desk: Desk) -> bytes:
    return written(
        [
            {"key": key, "query": to_json(query), "answer": None if known is None else known.to_json()}
            for key, query in wanted
            for known in (desk.known(name, query),)
        ]
    )


@questions.post("/datasets/{name}/known", response_model=Json)
async def known(person: Asker, jobs: TheJobs, name: Name, body: Known) -> Reply:
    """The best answer that is free now, if there is one."""
    return Reply(await jobs.free(person, name, body.query, partial(_known, name, body)))


def _known(name: str, body: Known, desk: Desk) -> bytes:
    answer = desk.known(name, body.query, confidence=body.confidence, reuse=body.reuse)
    return written({"answer": None if answer is None else answer.to_json()})


@questions.post("/datasets/{name}/price", response_model=Json)
async def price(person: Asker, jobs: TheJobs, name: Name, body: Priced) -> Reply:
    """What an answer would cost now: nothing is charged, and no data is touched."""
    return Reply(await jobs.free(person, name, body.query, partial(_price, name, body)))


def _price(name: str, body: Priced, desk: Desk) -> bytes:
    return written(desk.price(name, body.query, body.accuracy()).to_json())


@questions.post("/datasets/{name}/plan", response_model=Json)
async def plan(person: Asker, jobs: TheJobs, name: Name, body: Planned) -> Reply:
    """What to buy first for many questions, and what all of them cost then: nothing is charged."""
    queries = [one.query for one in body.questions]
    weight = await run_in_threadpool(jobs.charge_plan, person, name, queries)
    return Reply(await jobs.free_of(weight, name, partial(_plan, name, body)))


def _plan(name: str, body: Planned, desk: Desk) -> bytes:
    return written(desk.plan(name, [(one.query, one.accuracy()) for one in body.questions]).to_json())


@questions.post("/datasets/{name}/rehearse", response_model=Json)
async def rehearse(person: Asker, jobs: TheJobs, name: Name, body: Rehearsed) -> Reply:
    """The same question to made-up rows: free, and means nothing."""
    return Reply(await jobs.rehearse(person, name, body.query, partial(_rehearsed, name, body)))


def _rehearsed(name: str, body: Rehearsed, desk: Desk) -> bytes:
    return in_bytes(desk.rehearse(name, body.query, body.accuracy(), seed=body.seed))


# Jobs


@questions.post("/datasets/{name}/jobs", status_code=202)
async def queue_job(
    person: Asker,
    jobs: TheJobs,
    name: Name,
    body: Priced,
    idempotency_key: Idempotency = None,
) -> Response:
    """Ask without waiting for the answer. The same Idempotency-Key and body is the same job."""

    def queued() -> Json:
        return jobs.told(jobs.queue(person, name, body, idempotency_key))

    await jobs.free(person, name, body.query, partial(_price, name, body))  # refuses impossible questions
    return accepted(await run_in_threadpool(queued))


@router.get("/jobs/{job}", response_model=Json)
def job(person: Asker, desk: TheDesk, jobs: TheJobs, job: Annotated[str, Path(max_length=80)]) -> Reply:
    """How far a job of one's own is, and its answer or refusal once it has one."""
    found = desk.state.job(job, person)
    if found is None:
        raise not_found("job")
    return Reply(jobs.told(found))


def accepted(told: Json) -> Reply:
    """Return the reply for a question that goes on as a job."""
    return Reply(told, 202, {"Location": f"/api/v1/jobs/{told['job']}"})


# Quotas


@router.get("/datasets/{name}/quotas")
def quotas(person: Owner, desk: TheDesk, name: Name) -> Json:
    """What each analyst may be charged, and was."""
    _own(desk, person, name)
    return {
        "quotas": [
            {"analyst": analyst, "quota": None if limit is None else str(limit), "used": str(used)}
            for analyst, limit, used in desk.state.quotas(name)
        ]
    }


@router.put("/datasets/{name}/quotas/{analyst}")
def set_quota(
    person: Owner, desk: TheDesk, name: Name, analyst: Annotated[str, Path(max_length=64)], body: Quota
) -> Json:
    """Limit an analyst to a share of the cap. Fairness, not privacy: the cap is the guarantee."""
    _own(desk, person, name)
    whom = desk.state.named(analyst)
    if whom is None or whom.role is not Role.ANALYST:
        raise not_found("analyst")
    cap = desk.balance(name).terms.cap
    units = None if body.share is None else math.floor(cap * Fraction(body.share))
    desk.state.set_quota(name, whom, units)
    return {"analyst": analyst, "quota": None if units is None else str(units)}


def _own(desk: Desk, person: Person, name: str) -> None:
    desk.data(name)
    if not desk.owns(person, name):
        raise not_found("data set")


# Parts of replies


def summary(data: DataSet, balance: Balance) -> Json:
    """Return the summary of a data set for a list."""
    return {
        "name": data.name,
        "version": data.version,
        "format": data.format,
        "protects": data.subject,
        "neighbours": data.relation.value,
        "rows": data.rows,
        "policy": data.policy.value,
        "budget": budget_json(balance, data),
    }


def budget_json(balance: Balance, data: DataSet) -> Json:
    """Return the account of a data set, with the epsilon of what is spent."""
    return {
        "cap": str(balance.terms.cap),
        "spent": str(balance.spent),
        "remaining": str(balance.remaining),
        "minimum": str(balance.terms.minimum),
        "epsilon": data.budget.epsilon,
        "delta": data.budget.delta,
        "spent_epsilon": spent_epsilon(balance.spent, data.budget.delta) if balance.spent else 0.0,
    }


def columns(data: DataSet) -> list[Json]:
    """Return the columns as they were declared."""
    return [{"name": column.name, **column.declaration()} for column in data.columns]
