"""The page of the ledger: its signed head, its newest entries, and proofs that the page checks."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from reticent.apps.chain import shown as chain_views
from reticent.apps.ledger import names, words
from reticent.apps.ledger.studies import studies
from reticent.apps.query.dependencies import TheDesk
from reticent.apps.query.desk import Desk
from reticent.errors import ReticentError
from reticent.fleet.people import not_added
from reticent.ledger import Balance, SqlLedger
from reticent.ledger.checkpoint import parse as parse_checkpoint
from reticent.ledger.entries import decode
from reticent.service.keys import Role
from reticent.service.refusals import not_found
from reticent.service.visits import AnySeen, page

router = APIRouter(include_in_schema=False)

_PER_PAGE = 50


@router.get("/ledger")
def ledger(
    request: Request,
    desk: TheDesk,
    visit: AnySeen,
    last: Annotated[int | None, Query(ge=0, le=1 << 53)] = None,
) -> HTMLResponse:
    """The signed head and the newest entries; the page itself checks proofs."""
    if desk.chain is not None:
        found = chain_views.overview(desk.chain, _PER_PAGE)
        titles = {} if visit.person.role is Role.BUYER else _titles(request, desk, found["accounts"])
        return page(request, "chain.html", visit, here="ledger", titles=titles, **found)
    log = _log(desk)
    checkpoint = log.checkpoint()
    head, _ = parse_checkpoint(checkpoint)
    end = head.size if last is None else min(head.size, last)
    start = max(0, end - _PER_PAGE)
    accounts, is_told = log.accounts(), visit.person.role is not Role.BUYER
    titles = _titles(request, desk, accounts) if is_told else {}
    leaves = log.leaves(start, end)
    numbered = names.accounts(log, titles)
    measured = names.measurements(desk, log, _measurements(leaves), is_told=is_told)
    entries = [
        {"number": number, "leaf": leaf, "words": words.entry(leaf, numbered, measured)}
        for number, leaf in enumerate(leaves, start)
    ]
    return page(
        request,
        "ledger.html",
        visit,
        here="ledger",
        checkpoint=checkpoint,
        size=head.size,
        entries=entries[::-1],
        first=start,
        last=end,
        newer=min(head.size, end + _PER_PAGE) if end < head.size else None,
        older=start,
        accounts=accounts,
        titles=titles,
        not_added=not_added(accounts),
    )


def _titles(request: Request, desk: Desk, accounts: list[Balance]) -> dict[str, names.Title]:
    return names.titles(desk, studies(request.app, {one.terms.name: one for one in accounts}))


def _measurements(leaves: list[str]) -> list[int]:
    """Return the numbers of the measurements that entries are about."""
    found = []
    for leaf in leaves:
        with contextlib.suppress(ReticentError):
            found += [int(number) for name, number in decode(leaf).items() if name == "measurement"]
    return found


@router.get("/ledger/proofs")
def proofs(
    desk: TheDesk,
    visit: AnySeen,
    first: Annotated[int, Query(ge=0, le=1 << 53)],
    last: Annotated[int, Query(ge=0, le=1 << 53)],
    size: Annotated[int, Query(ge=0, le=1 << 53)],
) -> dict[str, Any]:
    """What the page needs to check that its entries are in the log of `size` entries."""
    log = _log(desk)
    if not first <= last <= size <= log.head().size or last - first > _PER_PAGE:
        raise not_found("entry")
    return {
        "proofs": {
            number: [node.hex() for node in log.inclusion_proof(number, size)]
            for number in range(first, last)
        }
    }


@router.get("/ledger/consistency")
def consistency(
    desk: TheDesk,
    visit: AnySeen,
    old: Annotated[int, Query(ge=0, le=1 << 53)],
    new: Annotated[int, Query(ge=0, le=1 << 53)],
) -> dict[str, Any]:
    """What the page needs to check that the log only grew since the head that the browser kept."""
    log = _log(desk)
    if not old <= new <= log.head().size:
        raise not_found("entry")
    return {"proof": [node.hex() for node in log.consistency_proof(old, new)]}


def _log(desk: Desk) -> SqlLedger:
    if not isinstance(desk.ledger, SqlLedger):
        raise not_found("entry")
    return desk.ledger
