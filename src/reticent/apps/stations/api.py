"""A provider of stations over HTTP: its signed texts, free connectors, and sealed points in batches.

Providers lie in the folder `stations` of the service, each in one of its own; `reticent location stations
provider` makes one there. Points come from an edge, so nothing here says who asks, and nothing is asked for
that could: no key, no name. Only the holder of a point's key can read its reply.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from reticent.apps.collect.api import BYTES, body_of
from reticent.apps.stations.providers import TheProviders
from reticent.apps.stations.schemas import FreeConnectors
from reticent.errors import ParameterError
from reticent.location.stations.provider import Provider
from reticent.location.stations.sealing import POINT_BYTES
from reticent.location.stations.wire import pieces
from reticent.service.callers import Owner, stranger
from reticent.service.refusals import not_found
from reticent.service.schemas import PROBLEMS, Json

MOST_POINTS = 2560  # of a batch
_KIND = "application/octet-stream"
router = APIRouter(prefix="/api/v1", responses=PROBLEMS)

Name = Annotated[str, Path(max_length=80, description="Of the provider.")]


@router.get("/stations", dependencies=[Depends(stranger)])
def providers(held: TheProviders) -> Json:
    """List the providers of stations. A vehicle trusts a signer that it knew before."""
    return {"stations": [_summary(name, one) for name, one in held.all()]}


@router.get("/stations/{name}/service", dependencies=[Depends(stranger)])
def service(request: Request, held: TheProviders, name: Name) -> Response:
    """Return the signed text: map, channel, and the key that points are sealed to."""
    return tagged(request, held.named(name).file, "application/json")


@router.get("/stations/{name}/map", dependencies=[Depends(stranger)])
def map_(request: Request, held: TheProviders, name: Name) -> Response:
    """Return the file of the map that the text names by its digest."""
    return tagged(request, held.named(name).map_file, _KIND)


@router.get("/stations/{name}/list", dependencies=[Depends(stranger)])
def listed(request: Request, held: TheProviders, name: Name) -> Response:
    """Return the signed list of all stations."""
    return tagged(request, held.named(name).list_file, "application/json")


@router.get("/stations/{name}/library", dependencies=[Depends(stranger)])
def library(request: Request, held: TheProviders, name: Name) -> Response:
    """Return the signed library of public journeys that companions are made of."""
    found = held.named(name).library_file
    if found is None:
        raise not_found("library")
    return tagged(request, found, "application/json")


@router.get("/stations/{name}/free", dependencies=[Depends(stranger)])
def free(request: Request, held: TheProviders, name: Name) -> Response:
    """Return one bit for each station of the list, whether a connector is free: signed bytes."""
    return tagged(request, held.named(name).bits(), _KIND)


@router.put("/stations/{name}/free")
def put_free(person: Owner, held: TheProviders, name: Name, body: FreeConnectors) -> Json:
    """Say how many connectors of stations are free. All of it counts, or nothing."""
    held.named(name).put(body.free)
    return {"stations": len(body.free)}


@router.post("/stations/{name}/points", openapi_extra=BYTES)
async def points(request: Request, held: TheProviders, name: Name) -> Response:
    """Return the reply to each of some sealed points, in their order. All are of one size."""
    await stranger(request)
    body = await body_of(request)
    count, rest = divmod(len(body), POINT_BYTES)
    if rest or not 1 <= count <= MOST_POINTS:
        raise ParameterError(f"a batch must be 1 to {MOST_POINTS} points of {POINT_BYTES} bytes")
    provider = await run_in_threadpool(held.named, name)
    replies = await run_in_threadpool(provider.answers, pieces(body, POINT_BYTES))
    return Response(b"".join(replies), media_type=_KIND)


def tagged(request: Request, content: bytes, kind: str) -> Response:
    """Return a response with an ETag, or status 304 if the client has this content."""
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers={"ETag": tag})
    return Response(content, media_type=kind, headers={"ETag": tag, "Cache-Control": "no-cache"})


def _summary(name: str, provider: Provider) -> Json:
    text = provider.service
    return {
        "name": name,
        "version": text.version,
        "purpose": text.purpose,
        "signer": provider.signer.hex(),
        "level_per_km": text.level,
        "horizon_km": text.horizon_km,
        "k": text.k,
        "m": text.m,
        "period_s": text.period_s,
        "stations": len(provider.stations),
        "id": text.id.hex(),
    }
