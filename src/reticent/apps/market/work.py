"""`reticent market`: what the commands do."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from reticent.apps.query.ask_work import api_key
from reticent.collect.device import Device
from reticent.errors import GuaranteeError, LedgerDamaged, ParameterError, ParameterTypeError
from reticent.files import appearing, made
from reticent.fleet.enrolment import Enrolment
from reticent.fleet.signing import verified
from reticent.fleet.texts import hexadecimal
from reticent.fleet.transport import Http
from reticent.market import offer_file
from reticent.market.bills import Bill
from reticent.market.menus import best_levels
from reticent.market.plans import Guess, MarketPlan, menu_for, planned
from reticent.market.remote import BillStatus, RemoteMarket
from reticent.market.seller import MOST_PRICE, Seller
from reticent.privacy.budget import UNITS_PER_ONE, cap_units

_PRICE = re.compile(r"\d{1,30}([./]\d{1,30})?", re.ASCII)
_BILL = re.compile(r"[0-9a-f]{16}", re.ASCII)
_LARGEST = 1 << 20


def _screen() -> Console:
    return Console(highlight=False, markup=False, soft_wrap=True)


def money(cents: float) -> str:
    """Cents as money, rounded down."""
    whole, part = divmod(int(cents), 100)
    return f"{whole:,}.{part:02d}"


def _market(url: str, key: str | None = None, *, needs_key: bool = True) -> RemoteMarket:
    if needs_key and key is None:
        raise ParameterError("--key must be the API key of a buyer or an owner")
    return RemoteMarket(Http(url, key=None if key is None else api_key(key)))


def _checked_bill(bill: str) -> str:
    if not _BILL.fullmatch(bill):
        raise ParameterError(f"bill must be 16 hexadecimal digits, got {bill!r:.60}")
    return bill


def _price(given: str) -> Fraction:
    """A price that a person typed."""
    try:
        found = Fraction(given) if _PRICE.fullmatch(given) else None
    except ZeroDivisionError:
        found = None
    if found is None or not 0 <= found <= MOST_PRICE:
        raise ParameterError(f"price must be a number of cents, 0 to {MOST_PRICE}, got {given!r:.60}")
    return found


# Buyers


def plan(file: Path, *, sellers: int, median: float, spread: float, levels: int, most: float) -> None:
    """Say what an offer would buy."""
    guess = Guess(sellers, median, spread)
    try:
        wanted = offer_file.read(file)
    except ParameterError as error:
        if "levels must be" not in str(error):
            raise
        menu = menu_for(guess, offer_file.deposit(file), most=most, levels=levels)
        wanted = offer_file.read(file, menu=menu)
    _show_plan(planned(wanted, guess, now=time.time()), wanted.deposit)


def _show_plan(found: MarketPlan, deposit: int) -> None:
    screen = _screen()
    table = Table(title="what sellers as you guess would pick", title_justify="left")
    for name in ("epsilon", "cents", "sellers"):
        table.add_column(name, justify="right")
    for level, count in zip(found.menu.levels, found.sellers, strict=True):
        table.add_row(f"{level.units / UNITS_PER_ONE:.4g}", str(level.cents), f"{count:,.0f}")
    screen.print(table)
    screen.print(
        f"{found.count:,.0f} sellers at epsilon {found.epsilon:.3g} on average, for {money(found.cents)} of "
        f"{money(deposit)}."
    )
    for one in found.expected:
        screen.print(
            f"{one.name}: within {one.half_width:.3g} of the truth, at {100 * found.confidence:g} %."
        )
    screen.print("levels:")
    for level in found.menu.levels:
        screen.print(f"  - {{epsilon: {level.units / UNITS_PER_ONE!r}, cents: {level.cents}}}")


def offer(url: str, file: Path, *, key: str | None) -> None:
    """Publish an offer."""
    status = _market(url, key).offer(offer_file.body(offer_file.read(file)))
    _screen().print(
        f"{status.name} is bill {status.id}: it waits for its deposit of {money(status.deposit)}. "
        f"When the deposit has arrived, the operator runs: reticent market fund {url} {status.id}"
    )


def fund(url: str, bill: str, *, key: str | None) -> None:
    """Say that a deposit is there."""
    _print_status(_market(url, key).fund(_checked_bill(bill)))


def close(url: str, bill: str, *, key: str | None) -> None:
    """End a bill."""
    _print_status(_market(url, key).close(_checked_bill(bill)))


def _print_status(status: BillStatus) -> None:
    _screen().print(
        f"{status.name} is {status.state}: of {money(status.deposit)}, {money(status.paid)} are paid for "
        f"{sum(status.sold):,} reports, {money(status.held)} are held, {money(status.refund)} went back, "
        f"{money(status.left)} are left."
    )


def results(url: str, bill: str, *, key: str | None, out: Path | None) -> None:
    """Show, and write, what was bought."""
    market, screen = _market(url, key), _screen()
    if out is not None and out.exists():
        raise ParameterError(f"out must not exist, got {out}")
    bought = market.results(_checked_bill(bill))
    table = Table(title=f"{bought.status.name}, {sum(bought.status.sold):,} reports", title_justify="left")
    for name in ("attribute", "value", "reports", "estimate", "from", "to"):
        table.add_column(name, justify="left" if name in ("attribute", "value") else "right")
    for row in bought.rows:
        numbers = (f"{number:.5g}" for number in (row.shown, row.lower, row.upper))
        table.add_row(row.attribute, row.category, f"{row.reports:,}", *numbers)
    screen.print(table)
    for name in bought.apart:
        screen.print(
            f"{name}: sellers of different levels differ: price and data belong together, and this is no "
            "mean of all of them."
        )
    _print_status(bought.status)
    if out is not None:
        made(out)
        for level in range(bought.level_count):
            with appearing(out / f"level-{level}.parquet") as target:
                target.write(market.reports(bill, level))
        screen.print(f"Reports: {out}")


# Sellers


def quote(url: str, *, price: str, budget: float) -> None:
    """Say what a price would get, without a device."""
    worth, room = _price(price), cap_units(budget)
    signer, listed = _market(url, needs_key=False).bills()
    bills = [verified(Bill, one.file, signer) for one in listed]
    choice = best_levels([bill.menu for bill in bills], worth, room)
    table = Table(title=f"{len(bills)} open bills", title_justify="left")
    for name in ("bill", "purpose", "epsilon", "cents"):
        table.add_column(name, justify="right" if name in ("epsilon", "cents") else "left", overflow="fold")
    for bill, place in zip(bills, choice.places, strict=True):
        level = None if place is None else bill.levels[place]
        table.add_row(
            bill.name,
            bill.purpose,
            "none" if level is None else f"{level.units / UNITS_PER_ONE:.4g}",
            "" if level is None else str(level.cents),
        )
    screen = _screen()
    screen.print(table)
    screen.print(
        f"{money(choice.cents)} for epsilon {choice.units / UNITS_PER_ONE:.4g} of {budget:g}: "
        f"{money(float(choice.gain))} more than it is worth to you."
    )


def sell(
    url: str,
    record: Path,
    *,
    enrolment: Path,
    ledger: Path,
    signer: str,
    price: str,
    lifetime: float,
    kept: float,
    only: list[str] | None,
) -> None:
    """Sell the best of what is offered."""
    worth, values = _price(price), _record(record)
    public = hexadecimal("signer", signer)
    market, screen = _market(url, needs_key=False), _screen()
    sells = None if only is None else frozenset(only)
    with contextlib.closing(Device(ledger, _enrolment(enrolment), public, lifetime=lifetime)) as device:
        seller = Seller(device, price=worth, kept=kept, sells=sells)
        bills = []
        for one in market.bills()[1]:
            try:
                bills.append(seller.take(one.file, one.surveys))
            except (GuaranteeError, ParameterError, ParameterTypeError) as error:
                screen.print(f"refused: {error}")
        for sale in seller.sell(bills, values, market):
            level = sale.bill.levels[sale.place]
            screen.print(
                f"{sale.bill.name}: epsilon {level.units / UNITS_PER_ONE:.4g}, {sale.outcome.value}, "
                f"{money(sale.cents)}"
            )
        screen.print(f"epsilon {seller.for_sale / UNITS_PER_ONE:.4g} is left for sale")


def sales(url: str, *, enrolment: Path) -> None:
    """List what a device has sold."""
    sold = _market(url, needs_key=False).earned(_enrolment(enrolment))
    screen = _screen()
    for sale in sold:
        state = "paid" if sale.is_paid else "not paid yet"
        screen.print(f"{sale.name}: level {sale.place}, {money(sale.cents)}, {state}, sale {sale.sale}")
    screen.print(f"{money(sum(sale.cents for sale in sold if sale.is_paid))} in all")


def _record(path: Path) -> dict[str, Any]:
    """What a device knows. What is wrong with it is not told: it would tell of it."""
    try:
        given = json.loads(_text("record", path))
    except (ValueError, RecursionError):  # it quotes the record
        raise ParameterError(f"record must be JSON, got {path.name!r:.60}") from None
    if not isinstance(given, dict):
        raise ParameterError("record must be an object with a field for each attribute")
    return given


def _enrolment(path: Path) -> Enrolment:
    return Enrolment.from_json(_text("enrolment", path))


def _text(what: str, path: Path) -> str:
    if not path.is_file() or path.stat().st_size > _LARGEST:
        raise ParameterError(f"{what} must be a file of at most {_LARGEST} bytes, got {path.name!r:.60}")
    return path.read_text(encoding="utf-8", errors="replace")


# Auditors


def verify(folder: Path) -> None:
    """Do the books again, and exit with 1 if something is wrong."""
    from reticent.apps.collect.collecting import Collecting
    from reticent.apps.market.trading import FILE
    from reticent.apps.query.data_sets import DataSets
    from reticent.ledger import SqlLedger, verify_ledger
    from reticent.market.checking import checked
    from reticent.market.store import SaleStore
    from reticent.service.settings import Settings
    from reticent.service.state import own_folder

    path = own_folder(folder) / FILE
    if not path.is_file():
        raise ParameterError(f"folder must be that of a service with a market, got {folder}")
    with contextlib.ExitStack() as held:
        data_sets = held.enter_context(contextlib.closing(DataSets(Settings(folder))))
        collecting = held.enter_context(
            contextlib.closing(Collecting(Settings(folder), lambda: data_sets.book))
        )
        store = held.enter_context(contextlib.closing(SaleStore(path)))
        entries = 0
        try:
            book = data_sets.book
            if isinstance(book, SqlLedger):
                entries = verify_ledger(book).size
            found = checked(store, collecting.operator, collecting.signer)
            faults = list(found.faults)
        except LedgerDamaged as error:
            found, faults = None, [str(error)]
    if faults or found is None:
        for fault in faults:
            print(f"error: {' '.join(fault.split())}", file=sys.stderr)
        raise typer.Exit(1)
    _screen().print(
        f"verified: {found.bills:,} bills, {found.sales:,} sales for {money(found.cents)}, "
        f"{money(found.refunds)} back to buyers, {found.waiting:,} waiting, in a log of {entries:,} entries"
    )
