"""The page of a training in a service: its rounds, what each cost a client, and what is added up where."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi import Path as InPath
from fastapi.responses import HTMLResponse

from reticent.apps.federated.trainings import ACCOUNT, Published, Training, published, rounds, training_of
from reticent.apps.query.dependencies import TheDesk
from reticent.errors import UnknownAccount
from reticent.federated.models import Linear
from reticent.fleet.people import of_study, why_not
from reticent.ledger.base import Ledger
from reticent.service import showing
from reticent.service.refusals import not_found
from reticent.service.visits import Seen, page

router = APIRouter(include_in_schema=False)

_SHOWN = 60  # rounds in the table, the newest
Identifier = Annotated[str, InPath(pattern="^[0-9a-f]{16,64}$")]


@router.get("/trainings/{identifier}")
def training(request: Request, desk: TheDesk, visit: Seen, identifier: Identifier) -> HTMLResponse:
    """What a training asked of its clients, and how far it is."""
    try:
        balance = desk.book.balance(f"{ACCOUNT}{identifier}")
    except UnknownAccount:
        raise not_found("training") from None  # nothing more is known of it
    found = training_of(balance)
    if found is None:
        raise not_found("training")
    entered = rounds(desk.book, found)
    given = published(desk.settings.folder, found)
    cap = balance.terms.cap
    return page(
        request,
        "trained.html",
        visit,
        here="overview",
        training=found,
        unit=balance.terms.unit.value,
        each=showing.capped(entered[0].units, balance.terms.unit.value) if entered else "",
        share=balance.spent / cap,
        rounds=[(one, one.units / cap) for one in entered[-_SHOWN:][::-1]],
        entered=len(entered),
        reports=sum(one.reports or 0 for one in entered),
        spent=_spent(found, [one.units for one in entered]),
        published=given,
        purpose=given.saved.statement.task.purpose if given else "",
        charts=_charts(given) if given else [],
        promise=given.saved.statement.words() if given else {},
        added=_added(desk.book, found),
    )


def _spent(found: Training, units: list[int]) -> list[list[float]]:
    """The share of the account that is spent after each round, as the chart takes it."""
    total, drawn = 0, [[0, 0.0]]
    for number, one in enumerate(units, 1):
        total += one
        drawn.append([number, 100 * total / found.balance.terms.cap])
    return drawn


def _charts(given: Published) -> list[dict[str, Any]]:
    """Accuracy or error, and loss, if they were published."""
    task = given.saved.statement.task
    error = ("Mean squared error", given.curves["error"])
    if not isinstance(task.model, Linear):
        error = ("Right answers, %", [(at, 100 * (1 - value)) for at, value in given.curves["error"]])
    return [
        {"title": title, "points": points, "last": f"{points[-1][1]:.4g}", "at": points[-1][0]}
        for title, points in (error, ("Loss", given.curves["loss"]))
        if points
    ]


def _added(ledger: Ledger, found: Training) -> str:
    """Whether the account of some people pays for it too, in words."""
    terms = found.balance.terms
    whose = of_study(ledger, terms.name)
    if whose is not None:
        return f"Each round is paid for by {whose.account} as well, the account of the people who take part."
    why = why_not(terms) or "nobody said whose people its clients are"
    return (
        f"It is added to no account of people: {why}. What data sets, surveys and campaigns tell of the same "
        "people comes on top, and is added up by nobody but their own devices."
    )
