"""Web pages of providers for their owners: stations, and an example journey that is asked for privately.

What a vehicle asked is not here, only what all reports came to, if a forecast was made. The journey is an
example (`example`), so it can be shown beside what was reported of it.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from reticent.apps.location import streets
from reticent.apps.stations import forecast_work
from reticent.apps.stations.api import Name
from reticent.apps.stations.example import MOST_K, MOST_LEVEL, MOST_M, Example
from reticent.apps.stations.providers import TheProviders
from reticent.location.stations.provider import Provider
from reticent.service.refusals import not_found
from reticent.service.replies import Reply, written
from reticent.service.visits import OwnerSeen, page

router = APIRouter(include_in_schema=False)

_MOST_PLACES = 60_000  # of a map that is drawn


@router.get("/stations")
def providers(request: Request, held: TheProviders, visit: OwnerSeen) -> HTMLResponse:
    """Return every provider."""
    found = [{"name": name, **_news(one)} for name, one in held.all()]
    return page(request, "station_providers.html", visit, here="stations", providers=found)


@router.get("/stations/{name}")
def provider(request: Request, held: TheProviders, visit: OwnerSeen, name: Name) -> HTMLResponse:
    """Return one provider."""
    one = held.named(name)
    most = {"level": MOST_LEVEL, "k": min(MOST_K, len(one.stations)), "m": MOST_M if one.library_file else 1}
    return page(
        request,
        "station_provider.html",
        visit,
        here="stations",
        provider=name,
        has_forecast=(one.folder / forecast_work.FILE).is_file(),
        is_drawn=one.area.roads.size <= _MOST_PLACES,
        most=most,
        start={
            "level": min(one.service.level, MOST_LEVEL),
            "k": min(one.service.k, most["k"]),
            "m": min(one.service.m, most["m"]),
        },
        **_news(one),
    )


@router.get("/stations/{name}/map")
def drawn(held: TheProviders, visit: OwnerSeen, name: Name) -> Response:
    """Return the drawing of the streets of a map."""
    one = _drawable(held, name)
    found = streets.drawn(one.folder) or written(streets.between_places(one.area.roads))
    return Response(found, media_type="application/json")


@router.get("/stations/{name}/sites")
def sites(held: TheProviders, visit: OwnerSeen, name: Name) -> Reply:
    """Return the stations, with how many connectors are free now."""
    one = held.named(name)
    rows = zip(one.stations, one.free(), strict=True)
    return Reply(
        {
            "stations": [
                {
                    "name": station.name,
                    "at": [station.latitude, station.longitude],
                    "connectors": station.connectors,
                    "free": free,
                }
                for station, free in rows
            ]
        }
    )


@router.get("/stations/{name}/forecast")
def forecast(held: TheProviders, visit: OwnerSeen, name: Name) -> Response:
    """Return the last result of `reticent location stations forecast`."""
    path = held.named(name).folder / forecast_work.FILE
    if not path.is_file():
        raise not_found("forecast")
    return Response(path.read_bytes(), media_type="application/json")


@router.get("/stations/{name}/example")
def asked(
    held: TheProviders,
    visit: OwnerSeen,
    name: Name,
    level: Annotated[float, Query(gt=0.0, le=MOST_LEVEL, allow_inf_nan=False)],
    k: Annotated[int, Query(ge=1, le=MOST_K)],
    m: Annotated[int, Query(ge=1, le=MOST_M)],
) -> Reply:
    """Return the example journey with fresh noise. Nothing of it is about anybody."""
    one = _drawable(held, name)
    return Reply(_example(held, name, one).drawn(level, k, m))


def _drawable(held: TheProviders, name: str) -> Provider:
    one = held.named(name)
    if one.area.roads.size > _MOST_PLACES:
        raise not_found("map")
    return one


def _example(held: Any, name: str, one: Provider) -> Example:
    """Return the example journey of a provider, built once."""
    with held.drawing:
        if name not in held.examples:
            companions = None
            if one.library_file is not None:
                companions = one.area.companions(one.library_file, one.signer)
            north, east = (
                [getattr(each, axis) for each in one.stations] for axis in ("latitude", "longitude")
            )
            held.examples[name] = Example(one.area.roads, north, east, companions)
        found: Example = held.examples[name]
        return found


def _news(one: Provider) -> dict[str, Any]:
    free = one.free()
    return {
        "service": one.service,
        "stations": len(one.stations),
        "with_free": sum(count > 0 for count in free),
        "connectors": sum(each.connectors for each in one.stations),
        "places": one.area.roads.size,
    }
