"""The HTTP API of the ledger: its signed head, its entries, and proofs about them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from reticent.apps.chain import shown as chain_views
from reticent.apps.query.dependencies import TheDesk
from reticent.apps.query.desk import Desk
from reticent.errors import LedgerError, ParameterError
from reticent.ledger import Balance, SqlLedger
from reticent.ledger.checkpoint import parse as parse_checkpoint
from reticent.service.callers import AnyKey
from reticent.service.refusals import not_found
from reticent.service.schemas import PROBLEMS, Json

MOST_ENTRIES = 1000
_NEWEST = 50  # events of a contract

router = APIRouter(prefix="/api/v1", responses=PROBLEMS)


@router.get("/ledger")
def ledger(person: AnyKey, desk: TheDesk) -> Json:
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
    person: AnyKey,
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
def inclusion(person: AnyKey, desk: TheDesk, number: Annotated[int, Path(ge=0, le=1 << 53)]) -> Json:
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
    person: AnyKey,
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
