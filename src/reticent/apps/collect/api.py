"""Reports of devices over HTTP, and what they come to. `collect` does the work.

Devices need no API key: the tag of a report says who made it. So the rate is that of the device whose report
comes first, at this host, if it is genuine, and else that of the host: a fleet behind one address is not held
up by strangers there, nor a device by whoever sends what it once sent from elsewhere.
"""

from __future__ import annotations

import contextlib
import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from reticent.apps.collect.collecting import Collecting, TheCollecting
from reticent.apps.collect.schemas import SignedSurvey
from reticent.collect.collector import Collector
from reticent.collect.estimates import Estimate, estimates
from reticent.collect.survey import MOST_PERIODS, Survey
from reticent.collect.wire import Outcome, split
from reticent.errors import LedgerError, ParameterError
from reticent.fleet.counted import asker
from reticent.fleet.enrolment import ID_BYTES
from reticent.mechanisms.record import Category
from reticent.service.callers import Anyone, Owner, stranger
from reticent.service.refusals import Refused, too_many
from reticent.service.replies import Reply
from reticent.service.schemas import PROBLEMS, Json

MOST_REPORTS = 10_000  # in a batch
REJECTS = 100  # that cost a caller as much as a request
_KIND = "application/octet-stream"
BYTES: Json = {
    "requestBody": {
        "required": True,
        "content": {_KIND: {"schema": {"type": "string", "format": "binary"}}},
    }
}
router = APIRouter(prefix="/api/v1", responses=PROBLEMS)

Name = Annotated[str, Path(max_length=80, description="Of the survey, or its id.")]
EnrolmentId = Annotated[
    str, Path(pattern=f"^[0-9a-f]{{{2 * ID_BYTES}}}$", description="Of the enrolment, in hexadecimal digits.")
]
Period = Annotated[int, Query(ge=0, le=MOST_PERIODS)]


# What devices send


@router.post("/reports", openapi_extra=BYTES)
async def report(request: Request) -> Json:
    """Count one report. A retry of the same report is acknowledged, and counted once."""
    (outcome,) = await _received(request, [await body_of(request)])
    if not outcome.is_acknowledged:
        raise Refused(422, "report_refused", f"the report is refused: {outcome.value}", outcome=outcome.value)
    return {"outcome": outcome.value}


@router.post("/reports/batch", openapi_extra=BYTES)
async def batch(request: Request) -> Reply:
    """Count many reports, each behind its length in two bytes. What became of each is told in their order."""
    body = await body_of(request)
    try:
        reports = split(body, most=MOST_REPORTS)
    except ParameterError:
        await stranger(request)
        (await request.app.state.collecting.opened()).reject([Outcome.LENGTH])
        raise
    outcomes = [one._value_ for one in await _received(request, reports)]  # quicker than `value`
    return Reply(
        {"counts": {one: outcomes.count(one) for one in sorted(set(outcomes))}, "outcomes": outcomes}
    )


async def body_of(request: Request) -> bytes:
    """The bytes that were sent as such."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != _KIND:
        raise Refused(415, "unsupported_media_type", f"content-type must be {_KIND}")
    return await request.body()


async def _received(request: Request, reports: list[bytes]) -> list[Outcome]:
    """What became of reports, within the rate of whoever brings them."""
    collecting: Collecting = request.app.state.collecting
    collector = await collecting.opened()
    is_known = bool(reports) and collector.knows(reports[0])
    host = request.client.host if request.client else ""

    async def charge() -> None:
        if not is_known:
            await stranger(request)
        elif pause := collecting.rate.wait_s(f"{host} {reports[0][13:21].hex()}"):
            raise too_many(pause)

    await charge()
    try:
        outcomes = await collecting.intake.receive(reports)
    except LedgerError as error:
        raise Refused(503, "not_counted", str(error), retry_s=1.0) from error
    with contextlib.suppress(Refused):
        for _ in range(sum(not one.is_acknowledged for one in outcomes) // REJECTS):
            await charge()
    return outcomes


@router.post("/surveys/{name}/counted", openapi_extra=BYTES)
async def counted(request: Request, collecting: TheCollecting, name: Name) -> Json:
    """Which periods of the device that asks were counted, if it has forgotten. It sends its id and a tag."""
    body = await body_of(request)
    try:
        survey = await run_in_threadpool(collecting.survey, name)
    except Refused:
        await stranger(request)
        raise
    who = await asking(request, collecting, f"survey:{survey.id.hex()}", body)
    try:
        word = await run_in_threadpool(collecting.collector.counted, survey, who)
    except LedgerError as error:
        raise Refused(503, "not_known", str(error), retry_s=1.0) from error
    return word.fields()


async def asking(request: Request, collecting: Collecting, study: str, body: bytes) -> bytes:
    """The id of the enrolled device that asks what was counted, within its rate."""
    who = await run_in_threadpool(lambda: asker(collecting.master, study, body))
    if who is None:
        await stranger(request)
        raise Refused(403, "not_enrolled", "the question must be made with the key of an enrolment")
    host = request.client.host if request.client else ""
    if pause := collecting.rate.wait_s(f"{host} {who.hex()}"):
        raise too_many(pause)
    return who


# Enrolments


@router.get("/enrolments/revoked")
def revoked(person: Owner, collecting: TheCollecting) -> Json:
    """The ids of all enrolments that were taken back, the oldest first."""
    return {"revoked": [one.hex() for one in collecting.revocations.listed()]}


@router.put("/enrolments/revoked/{enrolment}", status_code=204)
def revoke(person: Owner, collecting: TheCollecting, enrolment: EnrolmentId) -> Response:
    """Take an enrolment back, for ever: no survey, campaign or training counts it from now on."""
    collecting.revocations.revoke(bytes.fromhex(enrolment))
    return Response(status_code=204)


# Surveys


@router.get("/surveys", dependencies=[Depends(stranger)])
def surveys(collecting: TheCollecting) -> Json:
    """What is asked, for devices and for whoever wants to know. A device trusts a signer it knew before."""
    collector = collecting.collector
    return {
        "signer": collecting.signer.hex(),
        "surveys": [
            {**_summary(one), "file": collector.file(one).decode("ascii"), **_follow_ups(collector, one)}
            for one in collector.surveys()
        ],
    }


@router.post("/surveys", status_code=201)
def collect(person: Owner, collecting: TheCollecting, body: SignedSurvey) -> Json:
    """Collect the reports of a survey that the operator signed."""
    file = json.dumps(body.model_dump(), sort_keys=True, separators=(",", ":")).encode()
    return _summary(collecting.collector.collect(file, collecting.signer))


@router.get("/surveys/{name}/estimates")
def estimated(
    person: Anyone,
    collecting: TheCollecting,
    name: Name,
    first: Period = 0,
    last: Period = MOST_PERIODS,
) -> Json:
    """What the reports of some periods come to, with intervals, and what liars could have moved."""
    survey, collector = collecting.survey(name), collecting.collector
    periods = {at: n for at, n in collector.periods(survey).items() if first <= at <= last}
    account = collecting.learn(survey, periods)
    found = estimates(*collector.tallies(survey, list(periods)))
    return {
        **_summary(survey),
        "account": account,
        "reports": {str(at): n for at, n in sorted(periods.items())},
        "rejected": collector.rejected(),
        "estimates": [estimate_fields(survey, place, one) for place, one in enumerate(found)],
    }


def _follow_ups(collector: Collector, survey: Survey) -> Json:
    """What devices of the second wave answer, by period, where the survey learns; of open periods."""
    if survey.waves is None:
        return {}
    texts = sorted(collector.follow_ups(survey).items())
    files = {
        str(at): collector.file(one).decode("ascii")
        for at, one in texts
        if not collector.is_closed(survey, at)
    }
    return {"follow_ups": files}


def _summary(survey: Survey) -> Json:
    return {
        "name": survey.name,
        "version": survey.version,
        "id": survey.id.hex(),
        "purpose": survey.purpose,
        "epsilon": survey.epsilon,
        "start": survey.start,
        "period_s": survey.period_s,
        "periods": survey.periods,
    }


def estimate_fields(survey: Survey, place: int, found: Estimate) -> Json:
    """What is known of an attribute, for JSON: `value` is unbiased, `shown` the nearest in the interval."""
    told: dict[str, Any] = {"name": found.name, "reports": found.reports, "mean": None, "frequencies": None}
    attribute = survey.attributes[place]
    if found.mean is not None:
        told["mean"] = {
            "value": found.mean.value,
            "shown": found.mean.shown,
            "lower": found.mean.lower,
            "upper": found.mean.upper,
            "robust": found.robust,
        }
    if found.frequencies is not None and isinstance(attribute, Category):
        labels = range(attribute.values) if isinstance(attribute.values, int) else attribute.values
        rows = zip(
            labels,
            found.frequencies.frequencies,
            found.frequencies.shown,
            found.frequencies.lower,
            found.frequencies.upper,
            strict=True,
        )
        told["frequencies"] = [
            {
                "category": label,
                "value": float(value),
                "shown": float(shown),
                "lower": float(lower),
                "upper": float(upper),
                "robust": None if found.robust is None else float(found.robust[at]),  # type: ignore[index]
            }
            for at, (label, value, shown, lower, upper) in enumerate(rows)
        ]
    told["shifts"] = {
        f"{share:g}": {"by_outputs": shift.by_outputs, "by_inputs": shift.by_inputs}
        for share, shift in found.shifts.items()
    }
    return told
