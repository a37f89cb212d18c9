"""The pages of campaigns: maps of what was reported and of what that comes to, and how one cell hides."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from reticent.apps.location import streets
from reticent.apps.location.api import Name
from reticent.apps.location.places import Places, ThePlaces
from reticent.errors import ParameterError
from reticent.location.campaign import Campaign
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location import blahut_arimoto, exponential, planar_laplace
from reticent.mechanisms.location.tables import MOST_PLACES, TableChannel
from reticent.service.refusals import not_found
from reticent.service.replies import Reply
from reticent.service.visits import Seen, page, part
from reticent.spaces import Grid

router = APIRouter(include_in_schema=False)

SIMULATED = "simulated.json"  # the truth, which only a demonstration has
_MOST_CELLS = 2500  # that are drawn
_MOST_ROUNDS = 50
_SCALES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)  # of beta, in the curve


@router.get("/places")
def places(request: Request, held: ThePlaces, visit: Seen) -> HTMLResponse:
    """Every campaign."""
    found = [{"name": name, **_news(campaign)} for name, campaign in held.all()]
    return page(request, "places.html", visit, here="places", places=found)


@router.get("/places/{name}")
def place(request: Request, held: ThePlaces, visit: Seen, name: Name) -> HTMLResponse:
    """One campaign."""
    campaign = held.named(name)
    return page(
        request,
        "place.html",
        visit,
        here="places",
        campaign=name,
        is_drawn=campaign.settings.grid.size <= _MOST_CELLS,
        has_streets=(campaign.folder / streets.FILE).is_file(),
        is_simulated=(campaign.folder / SIMULATED).exists(),
        account=campaign.study.terms.name,
        **_news(campaign),
    )


@router.get("/places/{name}/live")
def place_part(
    request: Request,
    held: ThePlaces,
    visit: Seen,
    name: Name,
    seen: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """The numbers alone, which the page fetches again and again; nothing if they are as they were seen."""
    content = _news(held.named(name))
    if content["stamp"] == seen:
        return Response(status_code=204)
    return part(request, "place_part.html", content | {"campaign": name, "person": visit.person})


@router.get("/places/{name}/maps")
def maps(held: ThePlaces, visit: Seen, name: Name) -> Reply:
    """What is drawn: after each round the estimate, and what was reported in it."""
    campaign = held.named(name)
    if campaign.settings.grid.size > _MOST_CELLS:
        raise not_found("map")
    return Reply(_drawn(held, name, campaign))


@router.get("/places/{name}/streets")
def streets_under(held: ThePlaces, visit: Seen, name: Name) -> Response:
    """What is drawn under the maps: a public map that the owner put there."""
    found = streets.drawn(held.named(name).folder)
    if found is None:
        raise not_found("map")
    return Response(found, media_type="application/json")


@router.get("/places/{name}/law")
def law(
    held: ThePlaces,
    visit: Seen,
    name: Name,
    number: Annotated[int, Query(ge=0, le=1 << 16)],
    cell: Annotated[int, Query(ge=0, le=1 << 20)],
) -> Reply:
    """How often somebody in one cell reports each cell: by a round's channel, and by planar Laplace noise."""
    rounds = held.named(name).store.rounds()
    if number >= len(rounds) or cell >= rounds[number].grid.size or not rounds[number].grid.open[cell]:
        raise not_found("cell")
    asked = rounds[number]
    noise = _laplace(asked.grid, 2.0 * asked.beta)
    away = asked.grid.distances(cell)
    found = {"channel": asked.channel.probabilities(cell)}
    if noise is not None:
        found["laplace"] = noise.probabilities(cell)
    return Reply(
        {
            "cell": cell,
            "laws": {
                one: {"shares": _short(shares), "stays": float(shares[cell]), "km": float(shares @ away)}
                for one, shares in found.items()
            },
        }
    )


@lru_cache(maxsize=16)
def _laplace(grid: Grid, level: float) -> TableChannel | None:
    """None where it has no table: on large grids, and where cells are closed."""
    if grid.closed or grid.size > MOST_PLACES:
        return None
    try:
        return planar_laplace(grid, level)
    except ParameterError:
        return None


def _news(campaign: Campaign) -> dict[str, Any]:
    """The numbers that say whether there is anything new, and their mark: cheap, for a page asks often."""
    asked = campaign.current
    counts = [campaign.store.reports(number) for number in range(asked.number + 1)]
    return {
        "round": asked,
        "level": asked.channel.level,
        "counts": counts,
        "refused": sorted(campaign.store.refusals().items()),
        "stamp": f"{len(counts)}-{sum(counts)}",
    }


def _drawn(held: Places, name: str, campaign: Campaign) -> dict[str, Any]:
    """The maps, worked out once for each state of a campaign."""
    stamp = _news(campaign)["stamp"]
    with held.drawing:
        before = held.drawn.get(name)
        if before is None or before[0] != stamp:
            before = held.drawn[name] = stamp, _maps(campaign)
        return before[1]


def _maps(campaign: Campaign) -> dict[str, Any]:
    """All that is drawn. It is in the ledger before."""
    one, rounds = campaign.settings, []
    for asked, counts, privic in campaign.steps():
        rounds.append(
            {
                "number": asked.number,
                "reports": int(counts.sum()),
                "estimate": _short(privic.estimate),
                "reported": _short(counts / max(1, counts.sum())),
            }
        )
    return {
        "corners": _corners(one.grid),
        "rows": one.rows,
        "columns": one.columns,
        "closed": list(one.closed),
        "rounds": rounds[-_MOST_ROUNDS:],
        "alarms": privic.alarms,
        "truth": _truth(campaign),
        "curve": _curve(one.grid, privic.estimate, one.beta),
    }


def _corners(grid: Grid) -> list[list[list[float]]]:
    """Latitude and longitude of where cells meet, row by row from the south-west; to a centimetre."""
    found = grid.degrees(np.arange(grid.rows + 1)[:, None], np.arange(grid.columns + 1)[None, :])
    return [[[round(north, 7), round(east, 7)] for north, east in row] for row in found.tolist()]


def _curve(grid: Grid, estimate: Floats, beta: float) -> list[dict[str, float]]:
    """The mean distance from a place to its report, by level, if people are as estimated."""
    found = []
    for level in (2.0 * beta * scale for scale in _SCALES):
        made = blahut_arimoto(grid, estimate, level / 2.0, turns=20)
        point = {"level": level, "privic": made.distortion(estimate)}
        point["exponential"] = exponential(grid, level).distortion(estimate)
        noise = _laplace(grid, level)
        if noise is not None:
            point["laplace"] = float(estimate @ noise.displacement)
        found.append({name: float(f"{value:.4g}") for name, value in point.items()})
    return found


def _truth(campaign: Campaign) -> list[float] | None:
    path = campaign.folder / SIMULATED
    return _short(np.array(json.loads(path.read_text()), dtype=np.float64)) if path.exists() else None


def _short(shares: Floats) -> list[float]:
    return [float(f"{share:.4g}") for share in shares.tolist()]
