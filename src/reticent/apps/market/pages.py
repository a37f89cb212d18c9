"""The pages of the market: what is offered, what one's own privacy is worth, what a buyer has.

Whose device sold what is on no page: sellers have no key here, and look at their own device's ledger. What a
seller's privacy is worth to her is worked out in her browser, and not sent.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from reticent.apps.market import federation_pages
from reticent.apps.market.api import BillId
from reticent.apps.market.trading import TheTrading, Trading
from reticent.collect.estimates import Estimate
from reticent.market.goods import goods
from reticent.market.offering import LAST_MOMENT
from reticent.market.store import HeldBill
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.service import showing
from reticent.service.keys import Role
from reticent.service.state import Visit
from reticent.service.visits import AnySeen, OwnerSent, page

router = APIRouter(include_in_schema=False)


@router.get("/market")
def market(request: Request, trading: TheTrading, visit: AnySeen) -> HTMLResponse:
    """Every bill that is open, and those that somebody may see besides: her own, or all."""
    bills = list(trading.market.store.bills().values())[::-1] if trading.is_used else []
    offered = [_offer(held) for held in bills if trading.market.is_open(held)]
    own = [_standing(trading, held) for held in bills if _is_seen(visit, held)]
    together = [] if visit.person.role is Role.BUYER else federation_pages.names(trading)
    return page(request, "market.html", visit, here="market", offered=offered, own=own, federations=together)


@router.get("/market/{bill}")
def bill(request: Request, trading: TheTrading, visit: AnySeen, bill: BillId) -> HTMLResponse:
    """How one bill stands, and what its reports come to."""
    held = trading.bill_of(visit.person, bill)
    return page(
        request, "bill.html", visit, here="market", one=_standing(trading, held), **_bought(trading, held)
    )


@router.post("/market/{bill}/fund")
def fund(trading: TheTrading, visit: OwnerSent, bill: BillId) -> RedirectResponse:
    """Whoever runs the service has the deposit."""
    trading.market.fund(trading.bill(bill))
    return RedirectResponse(f"/market/{bill}", status_code=303)


def _bought(trading: Trading, held: HeldBill) -> dict[str, Any]:
    """What the reports of all levels come to; it is entered into the ledger first."""
    found = goods(trading.market, held)
    return {"estimates": [_estimate(one) for one in found.together], "apart": found.apart}


def _estimate(one: Estimate) -> dict[str, Any]:
    told: dict[str, Any] = {"name": one.name, "reports": one.reports, "value": None, "shares": []}
    if one.mean is not None:
        low, high = showing.interval(one.mean.lower, one.mean.upper)
        error = (one.mean.upper - one.mean.lower) / 2
        told |= {"value": showing.rounded(one.mean.shown, error), "low": low, "high": high}
    elif one.frequencies is not None:
        found = one.frequencies
        told["shares"] = [
            tuple(showing.percent(float(part[at])) for part in (found.shown, found.lower, found.upper))
            for at in range(len(found.shown))
        ]
    told["liars"] = {share: f"{shift.by_outputs:.3g}" for share, shift in one.shifts.items()}
    return told


def _is_seen(visit: Visit, held: HeldBill) -> bool:
    """As `Trading.bill_of`, and none for analysts, who have nothing to do with money."""
    role = visit.person.role
    return role in (Role.OWNER, Role.AUDITOR) or (role is Role.BUYER and held.buyer == visit.person.name)


def _offer(held: HeldBill) -> dict[str, Any]:
    """What sellers read."""
    bill = held.bill
    return {
        "id": bill.id.hex(),
        "name": bill.name,
        "purpose": bill.purpose,
        "closes": datetime.fromtimestamp(min(bill.closes, LAST_MOMENT), UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "asks": [one.name for one in held.surveys[0].attributes],
        "labels": [list(getattr(one, "values", ())) for one in held.surveys[0].attributes],
        "levels": [{"epsilon": level.units / UNITS_PER_ONE, "cents": level.cents} for level in bill.levels],
    }


def _standing(trading: Trading, held: HeldBill) -> dict[str, Any]:
    """The same, with its money and what was sold of each level."""
    found = trading.market.account(held)
    offer = _offer(held)
    sold = [level | {"sold": count} for level, count in zip(offer["levels"], found.counts, strict=True)]
    cells = [
        {
            "labels": [f"{level['epsilon']:.3g}"],
            "value": level["sold"],
            "low": None,
            "high": None,
            "shown": {"value": f"{level['sold']:,}", "low": "exact", "high": "exact"},
        }
        for level in sold
    ]
    return offer | {
        "buyer": held.buyer,
        "account": found,
        "left": found.left,
        "sold": sold,
        "cells": cells,
        "reports": sum(found.counts),
    }
