"""The HTTP API, version 1. What each call does is in `desk`; who may make it is said beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from fractions import Fraction
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.openapi.models import HTTPBearer
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase
from starlette.concurrency import run_in_threadpool

from reticent.apps.chain import shown as chain_views
from reticent.apps.query.desk import LONGEST_REPEAT, Desk
from reticent.apps.query.jobs import Jobs, in_bytes
from reticent.apps.query.schemas import Declaration, Known, NewKey, Priced, Problem, Quota, Rehearsed
from reticent.errors import LedgerError, ParameterError
from reticent.ledger import Balance, SqlLedger
from reticent.ledger.checkpoint import parse as parse_checkpoint
from reticent.privacy import spent_epsilon
from reticent.query import DataSet
from reticent.query.declarations.explanation import explain
from reticent.query.language import tree
from reticent.query.language.tree import to_json
from reticent.service.keys import Person, Role
from reticent.service.refusals import Refused, not_allowed, not_found, not_signed_in, too_many
from reticent.service.replies import Reply, written

MOST_ENTRIES = 1000
_NEWEST = 50  # events of a contract
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Problem, "description": "Refused; nothing was done."},
    "5XX": {"model": Problem, "description": "Not possible now."},
}
_PROBLEM = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
PROBLEMS_IN_JSON: dict[int | str, dict[str, Any]] = {  # where a reply is something else
    status: {"description": told["description"], "content": _PROBLEM} for status, told in PROBLEMS.items()
}
router = APIRouter(prefix="/api/v1", responses=PROBLEMS)
_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class _Weighed(APIRoute):
    """A route for questions: who sends a long one, and whether they may now, is asked before it is read."""

    def get_route_handler(self) -> _Handler:
        handler = super().get_route_handler()

        async def weighed(request: Request) -> Response:
            text = await request.body()
            if len(text) <= LONGEST_REPEAT:
                return await handler(request)
            person = known_caller(request)
            if person is None:
                await stranger(request)
                raise not_signed_in()
            with jobs_of(request).reading(person, text):
                return await handler(request)

        return weighed


questions = APIRouter(prefix="/api/v1", responses=PROBLEMS, route_class=_Weighed)
operations = APIRouter(responses=PROBLEMS)  # for whoever runs the service

Name = Annotated[str, Path(max_length=80, description="Of the data set.")]
Json = dict[str, Any]
Idempotency = Annotated[
    str | None,
    Header(max_length=200, description="A retry with the same text and body is charged once."),
]


def desk_of(request: Request) -> Desk:
    """The desk of this process."""
    desk: Desk = request.app.state.desk
    return desk


async def _the_desk(request: Request) -> Desk:  # awaited, since a plain function would be given a thread
    return desk_of(request)


def jobs_of(request: Request) -> Jobs:
    """The threads of this process that answer."""
    jobs: Jobs = request.app.state.jobs
    return jobs


async def _the_jobs(request: Request) -> Jobs:
    return jobs_of(request)


async def stranger(request: Request) -> None:
    """Somebody without a valid key, within the rate of their host."""
    host = request.client.host if request.client else ""
    pause = request.app.state.rate.wait_s(f"host {host}")
    if pause:
        raise too_many(pause)


def known_caller(request: Request) -> Person | None:
    """Whose key is in the header, if anybody's."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return desk_of(request).state.person(secret) if scheme.lower() == "bearer" and secret else None


class Caller(SecurityBase):
    """Who calls, by the key in the header: within the rate, and in one of these roles if any are given."""

    model = HTTPBearer(description="An API key: rk_...")
    scheme_name = "HTTPBearer"

    def __init__(self, *roles: Role) -> None:
        self._roles = roles or tuple(Role)

    async def __call__(self, request: Request) -> Person:
        """The person, or a refusal."""
        person = known_caller(request)
        if person is None:
            await stranger(request)
            raise not_signed_in()
        pause = request.app.state.rate.wait_s(str(person.number))
        if pause:
            raise too_many(pause)
        if person.role not in self._roles:
            raise not_allowed(person.role)
        return person


asker = Caller(Role.ANALYST, Role.OWNER)
Anyone = Annotated[Person, Depends(Caller())]
Asker = Annotated[Person, Depends(asker)]
Owner = Annotated[Person, Depends(Caller(Role.OWNER))]
Watcher = Annotated[Person, Depends(Caller(Role.OWNER, Role.AUDITOR))]
TheDesk = Annotated[Desk, Depends(_the_desk)]
TheJobs = Annotated[Jobs, Depends(_the_jobs)]


@router.get("/me")
def me(person: Anyone) -> Json:
    """Whose key this is."""
    return {"name": person.name, "role": person.role.value}


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
    cells = await run_in_threadpool(lambda: sum(desk.cells(name, query) for _, query in wanted))
    jobs.charge(person, name, cells)

    told = await jobs.free_of(cells, name, partial(_listed, name, wanted))
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
    answer = desk.known(name, body.query, confidence=body.confidence)
    return written({"answer": None if answer is None else answer.to_json()})


@questions.post("/datasets/{name}/price", response_model=Json)
async def price(person: Asker, jobs: TheJobs, name: Name, body: Priced) -> Reply:
    """What an answer would cost now: nothing is charged, and no data is touched."""
    return Reply(await jobs.free(person, name, body.query, partial(_price, name, body)))


def _price(name: str, body: Priced, desk: Desk) -> bytes:
    return written(desk.price(name, body.query, **body.accuracy()).to_json())


@questions.post("/datasets/{name}/rehearse", response_model=Json)
async def rehearse(person: Asker, jobs: TheJobs, name: Name, body: Rehearsed) -> Reply:
    """The same question to made-up rows: free, and means nothing."""
    return Reply(await jobs.rehearse(person, name, body.query, partial(_rehearsed, name, body)))


def _rehearsed(name: str, body: Rehearsed, desk: Desk) -> bytes:
    return in_bytes(desk.rehearse(name, body.query, seed=body.seed, **body.accuracy()))


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

    await jobs.free(person, name, body.query, partial(_price, name, body))  # what cannot be asked is refused
    return accepted(await run_in_threadpool(queued))


@router.get("/jobs/{job}", response_model=Json)
def job(person: Asker, desk: TheDesk, jobs: TheJobs, job: Annotated[str, Path(max_length=80)]) -> Reply:
    """How far a job of one's own is, and its answer or refusal once it has one."""
    found = desk.state.job(job, person)
    if found is None:
        raise not_found("job")
    return Reply(jobs.told(found))


def accepted(told: Json) -> Reply:
    """The reply for a question that goes on as a job."""
    return Reply(told, 202, {"Location": f"/api/v1/jobs/{told['job']}"})


# The ledger


@router.get("/ledger")
def ledger(person: Anyone, desk: TheDesk) -> Json:
    """The signed head of the log, and every account; on a chain the contract, with its newest events."""
    if desk.chain is not None:
        found = chain_views.overview(desk.chain, _NEWEST)
        return found | {"accounts": [_account(one) for one in found["accounts"]]}
    log = _log(desk)
    return {
        "origin": log.origin,
        "checkpoint": log.checkpoint(),
        "accounts": [_account(one) for one in log.accounts()],
    }


def _account(one: Balance) -> Json:
    return {
        "name": one.terms.name,
        "unit": one.terms.unit.value,
        "neighbours": one.terms.neighbours.value,
        "subject": one.terms.subject,
        "cap": str(one.terms.cap),
        "spent": str(one.spent),
        "remaining": str(one.remaining),
    }


@router.get("/ledger/entries")
def entries(
    person: Anyone,
    desk: TheDesk,
    first: Annotated[int, Query(ge=0, le=1 << 53)] = 0,
    count: Annotated[int, Query(ge=1, le=MOST_ENTRIES)] = 100,
) -> Json:
    """Entries of the log, as they are hashed: commitments and amounts, no data."""
    log = _log(desk)
    size = log.head().size
    last = max(first, min(size, first + count))
    return {"size": size, "first": first, "entries": log.leaves(first, last)}


@router.get("/ledger/entries/{number}/proof")
def inclusion(person: Anyone, desk: TheDesk, number: Annotated[int, Path(ge=0, le=1 << 53)]) -> Json:
    """The proof that an entry is in the log, for the signed head that comes with it."""
    log = _log(desk)
    checkpoint = log.checkpoint()
    head = parse_checkpoint(checkpoint)[0]  # the log may have grown since
    if number >= head.size:
        raise not_found("entry")
    return {
        "entry": number,
        "leaf": log.leaf(number),
        "size": head.size,
        "root": head.root.hex(),
        "proof": [node.hex() for node in log.inclusion_proof(number, head.size)],
        "checkpoint": checkpoint,
    }


@router.get("/ledger/consistency")
def consistency(
    person: Anyone,
    desk: TheDesk,
    old: Annotated[int, Query(ge=0, le=1 << 53)],
    new: Annotated[int, Query(ge=0, le=1 << 53)],
) -> Json:
    """The proof that the log of `old` entries is the beginning of that of `new`."""
    log = _log(desk)
    if not old <= new <= log.head().size:
        raise ParameterError(f"old and new must be <= the {log.head().size} entries, in order")
    return {
        "old": old,
        "new": new,
        "old_root": log.root(old).hex(),
        "new_root": log.root(new).hex(),
        "proof": [node.hex() for node in log.consistency_proof(old, new)],
    }


def _log(desk: Desk) -> SqlLedger:
    if not isinstance(desk.ledger, SqlLedger):
        raise LedgerError("this ledger is on a chain: look at the contract")
    return desk.ledger


# Keys and quotas


@router.get("/keys")
def keys(person: Owner, desk: TheDesk) -> Json:
    """Every key that was ever made, without its secret."""
    return {
        "keys": [
            {"name": one.person.name, "role": one.person.role.value, "revoked": one.revoked is not None}
            for one in desk.state.all_keys()
        ]
    }


@router.post("/keys", status_code=201)
def make_key(person: Owner, desk: TheDesk, body: NewKey) -> Json:
    """Make a key. Its secret is in this reply and nowhere else."""
    made, secret = desk.state.make_key(body.name, body.role)
    return {"name": made.name, "role": made.role.value, "key": secret}


@router.delete("/keys/{name}", status_code=204)
def revoke_key(person: Owner, desk: TheDesk, name: Annotated[str, Path(max_length=64)]) -> Response:
    """Take a key back: one's own, an analyst's or an auditor's; those of other owners are the operator's."""
    if not desk.revoke(person, name):
        raise not_found("key")
    return Response(status_code=204)


@router.post("/keys/{name}/replace")
def replace_key(person: Owner, desk: TheDesk, name: Annotated[str, Path(max_length=64)]) -> Json:
    """Replace a lost key: its quotas, and what was used of them, stay. The old one stops at once."""
    secret = desk.replace_key(person, name)
    if secret is None:
        raise not_found("key")
    return {"name": name, "key": secret}


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


# For whoever runs the service


@operations.get("/health", dependencies=[Depends(stranger)])
async def health(desk: TheDesk) -> Json:
    """Whether ledger and state can be read."""
    missing = await run_in_threadpool(desk.check)
    if missing is not None:
        raise Refused(503, "unhealthy", f"the {missing} cannot be read")
    return {"status": "ok"}


@operations.get("/metrics", response_class=PlainTextResponse, responses=PROBLEMS_IN_JSON)
def metrics(request: Request, person: Watcher, desk: TheDesk) -> str:
    """Replies by route and status, for Prometheus: no data, no names, no times."""
    text: str = request.app.state.metrics.text(desk.state.job_counts())
    return text


# What replies are made of


def summary(data: DataSet, balance: Balance) -> Json:
    """A data set in a list."""
    return {
        "name": data.name,
        "version": data.version,
        "protects": data.subject,
        "neighbours": data.relation.value,
        "rows": data.rows,
        "policy": data.policy.value,
        "budget": budget_json(balance, data),
    }


def budget_json(balance: Balance, data: DataSet) -> Json:
    """An account, with the epsilon of what is spent."""
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
    """The columns as they were declared."""
    return [{"name": column.name, **column.declaration()} for column in data.columns]
