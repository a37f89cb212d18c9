"""The pages of federations that keep their acts beside a service, in `federations/NAME` of its folder.

Every look goes through the chain from its founding and redoes all sums; a chain that does not add up is shown
as that. Acts are public among those who deal: keys, points, epsilons and pay, and no report.
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse

from reticent.apps.market.trading import TheTrading, Trading
from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.market.federations import folder, words
from reticent.market.federations.federation import Federation
from reticent.service.refusals import not_found
from reticent.service.visits import Seen, page

router = APIRouter(include_in_schema=False)

FOLDER = "federations"
_MOST_SHOWN = 50  # members of a deal
Name = Annotated[str, Path(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]


@router.get("/market/federations/{name}")
def federation(request: Request, trading: TheTrading, visit: Seen, name: Name) -> HTMLResponse:
    """A federation today, its deals, and who earned what, and why."""
    place = _places(trading).get(name)
    if place is None:
        raise not_found("federation")
    try:
        content = _told(folder.opened(place))
    except (ParameterError, ParameterTypeError, GuaranteeError) as error:
        content = {"said": [f"This chain does not add up: {error}"], "deals": []}
    return page(request, "federation.html", visit, here="market", called=name, **content)


def names(trading: Trading) -> list[str]:
    """Of all federations beside the service."""
    return sorted(_places(trading))


def _places(trading: Trading) -> dict[str, FilePath]:
    beside = trading.folder / FOLDER
    if not beside.is_dir():
        return {}
    return {one.name: one for one in beside.iterdir() if one.is_dir() and not one.name.startswith(".")}


def _told(found: Federation) -> dict[str, Any]:
    return {
        "said": words.status(found),
        "deals": [
            {
                "number": number,
                "outcome": words.outcome(settlement),
                "members": [
                    words.account(found, member, number)[1:] for member in list(deal.members)[:_MOST_SHOWN]
                ],
            }
            for number, (deal, settlement) in reversed(list(enumerate(found.settled)))
        ],
    }
