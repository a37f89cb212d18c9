"""The market over HTTP: offers for everybody, holds and sales for devices, what was bought for its buyer.

Devices need no API key: the tag of an ask or a report says who made it, and the rate is that of the device
whose bytes come first, as for surveys. A bill of another buyer looks like none.
"""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Path, Request, Response
from starlette.concurrency import run_in_threadpool

from reticent.apps.collect.api import BYTES, MOST_REPORTS, REJECTS, asking, body_of, estimate_fields
from reticent.apps.market.schemas import OfferedBill
from reticent.apps.market.trading import TheTrading, Trading
from reticent.collect.estimates import Estimate
from reticent.collect.wire import split
from reticent.errors import LedgerError, ParameterError
from reticent.market.goods import goods, write_reports
from reticent.market.offers import MOST_POINTS
from reticent.market.outcomes import HoldOutcome
from reticent.market.store import PAID, HeldBill
from reticent.market.trading import BillAccount
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.service.callers import Owner, Trader, TraderOrWatcher, stranger
from reticent.service.refusals import Refused, too_many
from reticent.service.replies import Reply
from reticent.service.schemas import PROBLEMS, PROBLEMS_IN_JSON, Json

router = APIRouter(prefix="/api/v1/market", responses=PROBLEMS)

BillId = Annotated[str, Path(pattern="^[0-9a-f]{16}$", description="Of the bill, in hexadecimal digits.")]
Place = Annotated[int, Path(ge=0, lt=MOST_POINTS, description="Of the level, from 0.")]
PARQUET = "application/vnd.apache.parquet"
Told = TypeVar("Told")


# For everybody


@router.get("/bills", dependencies=[Depends(stranger)])
def bills(trading: TheTrading) -> Json:
    """The bills that are open, with their signed texts. Who buys is not told."""
    market = trading.market
    return {
        "signer": trading.collecting.signer.hex(),
        "bills": [
            summary(held) | _files(trading, held)
            for held in list(market.store.bills().values())
            if market.is_open(held)
        ],
    }


@router.get("/bills/{bill}", dependencies=[Depends(stranger)])
def one_bill(trading: TheTrading, bill: BillId) -> Json:
    """A bill, open or not, with its signed texts."""
    held = trading.bill(bill)
    return summary(held) | _files(trading, held)


def summary(held: HeldBill) -> Json:
    """What a bill offers."""
    return {
        "id": held.bill.id.hex(),
        "name": held.bill.name,
        "version": held.bill.version,
        "purpose": held.bill.purpose,
        "closes": held.bill.closes,
        "hold_s": held.hold_s,
        "attributes": [one.name for one in held.surveys[0].attributes],
        "levels": [
            {"epsilon": level.units / UNITS_PER_ONE, "units": str(level.units), "cents": level.cents}
            for level in held.bill.levels
        ],
    }


def _files(trading: Trading, held: HeldBill) -> Json:
    file, surveys = trading.market.store.files(held)
    return {"file": file.decode("ascii"), "surveys": [one.decode("ascii") for one in surveys]}


# For devices


@router.post("/holds", openapi_extra=BYTES)
async def hold(request: Request, trading: TheTrading) -> Reply:
    """Set money aside for devices that ask, each ask behind its length in two bytes, in their order."""
    market = await trading.opened()
    told = await _received(
        request, trading, market.knows_ask, trading.holds.receive, lambda one: one[0] is HoldOutcome.COUNTED
    )
    return Reply(
        {
            "holds": [
                {"outcome": outcome.value, "hold": None if file is None else file.decode("ascii")}
                for outcome, file in told
            ]
        }
    )


@router.post("/sales", openapi_extra=BYTES)
async def sell(request: Request, trading: TheTrading) -> Reply:
    """Take reports in for which money is held, each behind its length, and pay; a retry pays once."""
    market = await trading.opened()
    told = await _received(
        request, trading, market.knows_report, trading.sales.receive, lambda one: one.is_paid
    )
    outcomes = [one._value_ for one in told]
    return Reply(
        {"counts": {one: outcomes.count(one) for one in sorted(set(outcomes))}, "outcomes": outcomes}
    )


@router.post("/earned", openapi_extra=BYTES)
async def earned(request: Request, trading: TheTrading) -> Json:
    """What the device that asks has sold here, and what it was paid. It sends its id and a tag."""
    who = await asking(request, trading.collecting, "market", await body_of(request))
    market = await trading.opened()
    found = await run_in_threadpool(market.earned, who)
    return {
        "sales": [
            {
                "bill": held.bill.id.hex(),
                "name": held.bill.name,
                "sale": one.id.hex(),
                "place": one.place,
                "cents": one.cents,
                "is_paid": one.state == PAID,
            }
            for held, one in found
        ]
    }


async def _received(
    request: Request,
    trading: Trading,
    reporter: Callable[[bytes], bytes | None],
    receive: Callable[[list[bytes]], Awaitable[list[Told]]],
    is_good: Callable[[Told], bool],
) -> list[Told]:
    """What became of a batch, within the rate of whoever brings it."""
    body = await body_of(request)
    try:
        parts = split(body, most=MOST_REPORTS)
    except ParameterError:
        await stranger(request)
        raise
    who = reporter(parts[0]) if parts else None
    host = request.client.host if request.client else ""

    async def charge() -> None:
        if who is None:
            await stranger(request)
        elif pause := trading.collecting.rate.wait_s(f"{host} {who.hex()}"):
            raise too_many(pause)

    await charge()
    try:
        told = await receive(parts)
    except LedgerError as error:
        raise Refused(503, "not_paid", str(error), retry_s=1.0) from error
    with contextlib.suppress(Refused):
        for _ in range(sum(not is_good(one) for one in told) // REJECTS):
            await charge()
    return told


# For buyers, and for who runs the service


@router.post("/bills", status_code=201)
def offer(person: Trader, trading: TheTrading, body: OfferedBill) -> Json:
    """Draw up and sign a bill. Devices may sell once whoever runs the service has the deposit."""
    wanted, market = body.wanted(), trading.market
    bill, surveys = wanted.drawn_up(market.now())
    held = market.publish(bill, surveys, buyer=person.name, deposit=wanted.deposit, hold_s=wanted.hold_s)
    return summary(held) | account_fields(market.account(held))


@router.get("/bills/{bill}/account")
def account(person: TraderOrWatcher, trading: TheTrading, bill: BillId) -> Json:
    """How a bill stands: its deposit, what is held and paid, what goes back."""
    held = trading.bill_of(person, bill)
    return summary(held) | account_fields(trading.market.account(held))


@router.post("/bills/{bill}/fund")
def fund(person: Owner, trading: TheTrading, bill: BillId) -> Json:
    """Say that the deposit of a bill is here: its account is opened in the ledger. Again changes nothing."""
    held = trading.bill(bill)
    return summary(held) | account_fields(trading.market.fund(held))


@router.post("/bills/{bill}/close")
def close(person: Trader, trading: TheTrading, bill: BillId) -> Json:
    """End a bill: no more holds, and what is left goes back once the last one has ended."""
    held = trading.bill_of(person, bill)
    return summary(held) | account_fields(trading.market.close(held))


@router.get("/bills/{bill}/results")
def results(person: Trader, trading: TheTrading, bill: BillId) -> Json:
    """What the reports that were bought come to, together and by level. Entered in the ledger first."""
    held, market = trading.bill_of(person, bill), trading.market
    found = goods(market, held)
    return (
        summary(held)
        | account_fields(market.account(held))
        | {
            "estimates": _estimates(held, 0, found.together),
            "apart": list(found.apart),
            "of_levels": [
                None if one is None else _estimates(held, place, one)
                for place, one in enumerate(found.levels)
            ],
        }
    )


def _estimates(held: HeldBill, place: int, found: list[Estimate]) -> list[Json]:
    return [estimate_fields(held.surveys[place], at, one) for at, one in enumerate(found)]


@router.get("/bills/{bill}/reports/{level}", response_class=Response, responses=PROBLEMS_IN_JSON)
def reports(person: Trader, trading: TheTrading, bill: BillId, level: Place) -> Response:
    """The reports of a level as Parquet, with their guarantee and without names. Entered in the ledger."""
    held = trading.bill_of(person, bill)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "reports.parquet"
        write_reports(trading.market, held, level, file)
        return Response(file.read_bytes(), media_type=PARQUET)


def account_fields(found: BillAccount) -> Json:
    """How a bill stands, for JSON."""
    return {
        "state": found.state,
        "deposit": found.deposit,
        "held": found.held,
        "paid": found.paid,
        "refund": found.refund,
        "left": found.left,
        "sold": list(found.counts),
    }
