"""Reports of places over HTTP: the open round of a campaign, what devices answer, and the end of a round.

Campaigns lie in the folder `places` of the service, each in one of its own; `reticent location privic new`
begins one there, with the keys of the service. As for surveys, the tag of a report says who made it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from reticent.apps.collect.api import BYTES, MOST_REPORTS, REJECTS, asking, body_of
from reticent.apps.location.places import Places, ThePlaces
from reticent.apps.location.schemas import EndedRound
from reticent.collect.wire import split
from reticent.errors import ParameterError
from reticent.location.campaign import Campaign
from reticent.location.payload import Outcome
from reticent.service.callers import Owner, stranger
from reticent.service.refusals import Refused, too_many
from reticent.service.replies import Reply
from reticent.service.schemas import PROBLEMS, Json

router = APIRouter(prefix="/api/v1", responses=PROBLEMS)

Name = Annotated[str, Path(max_length=80, description="Of the campaign.")]


@router.get("/places", dependencies=[Depends(stranger)])
def places(held: ThePlaces) -> Json:
    """What is asked, for devices and for whoever wants to know. A device trusts a signer it knew before."""
    return {
        "signer": held.collecting.signer.hex(),
        "places": [summary(name, campaign) for name, campaign in held.all()],
    }


@router.get("/places/{name}/round", dependencies=[Depends(stranger)])
def open_round(held: ThePlaces, name: Name) -> Response:
    """The signed file of the open round: what a device checks, and answers once."""
    return Response(held.named(name).file(), media_type="application/json")


@router.post("/places/{name}/reports", openapi_extra=BYTES)
async def report(request: Request, held: ThePlaces, name: Name) -> Reply:
    """Count reports of the open round, each behind its length in two bytes; a retry counts once.

    What became of each is told in their order.
    """
    body = await body_of(request)
    try:
        reports = split(body, most=MOST_REPORTS)
        campaign = await run_in_threadpool(held.named, name)
    except (ParameterError, Refused):
        await stranger(request)
        raise
    outcomes = [one.value for one in await _received(request, held, campaign, reports)]
    return Reply(
        {"counts": {one: outcomes.count(one) for one in sorted(set(outcomes))}, "outcomes": outcomes}
    )


@router.post("/places/{name}/counted", openapi_extra=BYTES)
async def counted(request: Request, held: ThePlaces, name: Name) -> Json:
    """In which rounds the device that asks was counted, if it has forgotten. It sends its id and a tag."""
    body = await body_of(request)
    try:
        campaign = await run_in_threadpool(held.named, name)
    except Refused:
        await stranger(request)
        raise
    study = f"campaign:{campaign.current.name}"
    who = await asking(request, held.collecting, study, body)
    return (await run_in_threadpool(campaign.store.counted, who)).fields()


async def _received(
    request: Request, held: Places, campaign: Campaign, reports: list[bytes]
) -> list[Outcome]:
    """What became of reports, within the rate of whoever brings them."""
    host = request.client.host if request.client else ""
    reporter = await run_in_threadpool(_reporter, campaign, reports)

    async def charge() -> None:
        if not reporter:
            await stranger(request)
        elif pause := held.collecting.rate.wait_s(f"{host} {reporter.hex()}"):
            raise too_many(pause)

    await charge()
    try:
        outcomes = await run_in_threadpool(campaign.add, reports)
    except sqlite3.Error as error:
        raise Refused(503, "not_counted", "the reports could not be written", retry_s=1.0) from error
    refused = sum(one not in (Outcome.COUNTED, Outcome.DUPLICATE) for one in outcomes)
    with contextlib.suppress(Refused):
        for _ in range(refused // REJECTS):
            await charge()
    return outcomes


def _reporter(campaign: Campaign, reports: list[bytes]) -> bytes | None:
    """Who made the first report, if it is genuine."""
    return campaign.store.reporter(reports[0]) if reports else None


@router.post("/places/{name}/end")
def end(person: Owner, held: ThePlaces, name: Name, body: EndedRound) -> Json:
    """End a round: learn from it, and publish the next. Asked again, nothing changes.

    What the next round is made of is entered into the ledger first.
    """
    campaign = held.named(name)
    following = campaign.end_round(body.number)
    return summary(name, campaign) | {"ended": body.number, "is_last": following is None}


def summary(name: str, campaign: Campaign) -> Json:
    """What a campaign asks, and how far it is."""
    asked = campaign.current
    return {
        "name": name,
        "version": asked.version,
        "purpose": asked.purpose,
        "level_per_km": asked.channel.level,
        "cells": asked.grid.size,
        "round": asked.number,
        "rounds": asked.rounds,
        "id": asked.id.hex(),
    }
