"""`reticent demo market`: devices sell to three buyers, and two federations deal, one with a free rider.

Everything is as in earnest: each device has an enrolment, a ledger in a file and a price that stays with it;
bills are signed, money is held before a report is drawn, and every cent is in the ledger. Only the homes are
invented, so that the truth can be shown beside the estimates.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from reticent.apps.market.federation_pages import FOLDER
from reticent.apps.market.trading import Trading
from reticent.apps.query.demo import demo_keys, demo_listener
from reticent.arguments import whole
from reticent.cli import terminal
from reticent.collect.device import Device
from reticent.collect.estimates import Estimate
from reticent.files import secluded
from reticent.fleet import signing
from reticent.fleet.enrolment import enrolled
from reticent.fleet.operator import LEDGER
from reticent.ledger.device.marks import Marks
from reticent.ledger.sql.ledger import SqlLedger
from reticent.market.federations import Valuation, acts, folder, words
from reticent.market.federations.federation import Federation
from reticent.market.federations.purchases import Arrived, Delivery, awarded
from reticent.market.federations.purchases import Wanted as Purchase
from reticent.market.goods import goods
from reticent.market.menus import Menu
from reticent.market.offering import Wanted
from reticent.market.offers import Linear, Log, Offer
from reticent.market.seller import Sale, Seller
from reticent.market.store import HeldBill
from reticent.mechanisms.attributes import Attribute
from reticent.mechanisms.record import Category, Number
from reticent.privacy import UNITS_PER_ONE
from reticent.randomness import SECURE
from reticent.service.settings import Settings

LIFETIME, KEPT = 1.5, 0.3  # epsilon of each device, and what she does not sell
_REPORTS = 2  # of a member, of epsilon 1/2 at most
HEATING = ("gas", "oil", "pump", "other")


@dataclass(frozen=True)
class _Buyer:
    name: str
    purpose: str
    attribute: Attribute
    offer: Offer  # prices and pay in units of 100 cents
    deposit: int  # in cents


BUYERS = (
    _Buyer("power", "To plan the grid.", Number("kwh", (0.0, 40.0)), Log(1.0), 50_000),
    _Buyer("heating", "To plan the heat network.", Category("heating", HEATING), Linear(0.8), 30_000),
    _Buyer("noise", "To see where streets are loud.", Number("decibels", (30.0, 90.0)), Log(1.6), 15_000),
)


def run(*, devices: int, port: int | None, once: bool) -> None:
    """Serve, let devices sell and federations deal, and show who got what; then stay.

    Args:
        devices: how many sell.
        port: where the service listens; by default 8000, or any if that is taken.
        once: end after the script.
    """
    from reticent.apps.collect.collecting import Collecting
    from reticent.apps.service.serving import serving
    from reticent.service.serve import address

    whole("devices", devices, low=10, high=100_000)
    screen = terminal.console()
    with contextlib.ExitStack() as held:
        place = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="reticent-")))
        listener = held.enter_context(demo_listener(port))
        keys, settings = demo_keys(place), Settings(place)
        ledger = held.enter_context(SqlLedger(place / ".service" / LEDGER))
        collecting = Collecting(settings, lambda: ledger)
        held.callback(collecting.close)
        trading = Trading(settings, collecting)
        held.callback(trading.close)
        bills = [_offered(trading, buyer) for buyer in BUYERS]
        url = address(*listener.getsockname())
        held.enter_context(serving(settings, listener))
        screen.print(f"{len(bills)} buyers offer, {devices:,} devices sell. Watch them at")
        screen.print(f"  {url}/market\n  key  {keys['owner']}", soft_wrap=True)
        screen.print("Ctrl-C ends it.\n")
        try:
            homes = _Homes(devices)
            homes.sell(trading, bills, place)
            screen.print(_books(trading, bills))
            screen.print(_learnt(trading, bills, homes))
            _federations(screen, place)
            if not once:
                screen.print(f"The page stays at {url}/market until Ctrl-C.")
                while True:
                    time.sleep(0.5)
        except KeyboardInterrupt:
            screen.print("Ended.")


# Buyers


def _offered(trading: Trading, buyer: _Buyer) -> HeldBill:
    """A bill, published and with its deposit."""
    market = trading.market
    menu = Menu.of(buyer.offer, levels=8)
    wanted = Wanted(
        buyer.name, buyer.purpose, (buyer.attribute,), menu, buyer.deposit, int(market.now()) + 86_400
    )
    bill, surveys = wanted.drawn_up(market.now())
    held = market.publish(bill, surveys, buyer=buyer.name, deposit=buyer.deposit)
    market.fund(held)
    return held


def _books(trading: Trading, bills: Sequence[HeldBill]) -> Table:
    table = Table(title="Money, in cents", title_justify="left")
    for heading in ("buyer", "deposit", "paid", "goes back", "reports", "epsilon of a report"):
        table.add_column(heading, justify="left" if heading == "buyer" else "right")
    for held in bills:
        found = trading.market.account(held)
        sold = sum(found.counts)
        units = sum(count * level.units for count, level in zip(found.counts, held.bill.levels, strict=True))
        mean = f"{units / sold / UNITS_PER_ONE:.3f}" if sold else ""
        cells = (found.deposit, found.paid, found.deposit - found.paid, sold)
        table.add_row(held.bill.name, *(f"{one:,}" for one in cells), mean)
    return table


def _learnt(trading: Trading, bills: Sequence[HeldBill], homes: _Homes) -> Table:
    table = Table(title="What buyers learnt", title_justify="left")
    for heading in ("buyer", "asked", "estimate, 95 %", "truth"):
        table.add_column(heading, overflow="fold")
    for held in bills:
        (one,) = goods(trading.market, held).together
        table.add_row(held.bill.name, one.name, _told(one), homes.truth(one.name))
    return table


def _told(one: Estimate) -> str:
    if one.mean is not None:
        return f"{one.mean.shown:.1f} ({one.mean.lower:.1f} to {one.mean.upper:.1f})"
    if one.frequencies is None:
        return "nobody sold"
    shares = zip(HEATING, one.frequencies.lower, one.frequencies.upper, strict=True)
    return ", ".join(f"{name} {100 * low:.0f} to {100 * high:.0f} %" for name, low, high in shares)


# Sellers


class _Homes:
    """Homes, each with a price for its privacy and something to tell. Prices and values are independent."""

    def __init__(self, count: int) -> None:
        self.prices = [int(one) for one in 5 + 115 * _uniform(count)]  # cents for an epsilon of 1
        self.values: dict[str, Any] = {
            "kwh": np.clip(4.0 + 20.0 * _uniform(count) * _uniform(count), 0.0, 40.0),
            "heating": np.array(HEATING)[np.searchsorted((0.5, 0.7, 0.95, 1.0), _uniform(count))],
            "decibels": np.clip(45.0 + 25.0 * _uniform(count), 30.0, 90.0),
        }

    def sell(self, trading: Trading, bills: Sequence[HeldBill], place: Path) -> list[Sale]:
        """Let every home sell what is best for it."""
        files = [trading.market.store.files(held) for held in bills]
        marks, ledgers = Marks(place / "marks"), place / "devices"  # which end with the demonstration
        secluded(ledgers)
        sales: list[Sale] = []
        master, signer = trading.collecting.master, trading.collecting.signer
        with Progress(transient=True) as shown:
            for number, price in enumerate(shown.track(self.prices, description="selling")):
                path = ledgers / str(number)
                with Device(path, enrolled(master), signer, lifetime=LIFETIME, marks=marks) as device:
                    seller = Seller(device, price=price, kept=KEPT)
                    taken = [seller.take(*one) for one in files]
                    values = {name: held[number] for name, held in self.values.items()}
                    sales += seller.sell(taken, values, trading.market)
        return sales

    def truth(self, name: str) -> str:
        """What no buyer ever sees."""
        held = self.values[name]
        if name != "heating":
            return f"{held.mean():.1f}"
        return ", ".join(f"{one} {100 * np.mean(held == one):.0f} %" for one in HEATING)


def _uniform(count: int) -> Any:
    return SECURE.units(count) - 1.0


# Federations


def _federations(screen: Console, place: Path) -> None:
    """Two federations deal with one buyer: one earns and shares, in the other somebody rides free."""
    buyer = Ed25519PrivateKey.generate()
    north, south = _Together("north", place, 12), _Together("south", place, 12)
    wanted = Purchase("ages", "1", "To count ages.", 6_000, 4, Valuation(0.1, 0.0005))
    asked = signing.signed(wanted, buyer)
    for one in (north, south):
        one.do(0, one.federation.act_of(asked))
    bids = {one.federation.id: one.federation.deal.made for one in (north, south) if one.federation.deal}
    award = signing.signed(awarded(wanted, bids), buyer)
    for one, lazy in ((north, None), (south, 11)):
        one.do(0, one.federation.act_of(award))
        one.collect(lazy)
        one.do(0, one.federation.act_of(one.delivery(buyer)))
        screen.print(f"\nFederation {one.federation.charter.name}:")
        for line in words.status(one.federation)[1:]:
            screen.print(f"  {line}", soft_wrap=True)
        for member in {one.members[0], one.members[lazy or 0]}:
            for line in words.account(one.federation, member)[1:]:
                screen.print(f"  {line}", soft_wrap=True)


class _Together:
    """A federation, its chain of signed acts in a folder, and the keys of its people."""

    def __init__(self, name: str, place: Path, people: int) -> None:
        self._keys = [Ed25519PrivateKey.generate() for _ in range(people)]
        self.members = [key.public_key().public_bytes_raw().hex() for key in self._keys]
        act = acts.Found(name, "To sell together.", 2, 1, 6 * UNITS_PER_ONE // 10)
        self._folder = place / FOLDER / name
        self.federation: Federation = folder.founded(self._folder, act, self._keys[0])
        for number, member in enumerate(self.members):
            self.do(number, acts.Join(_REPORTS, UNITS_PER_ONE // 2))
            self.do(0, acts.Admit(member, {}))

    def do(self, number: int, act: acts.Act) -> None:
        """Sign an act, and let the chain take it."""
        folder.done(self._folder, self.federation, act, self._keys[number])

    def collect(self, lazy: int | None) -> None:
        """Rounds in which everybody gives what is asked, but one who gives next to nothing."""
        for _ in range(self.federation.charter.rounds):
            ask = self.federation.next_round()
            self.do(0, ask)
            deal = self.federation.deal
            assert deal is not None
            for number, member in enumerate(self.members):
                if deal.points_left(member):
                    units = UNITS_PER_ONE // (50 if number == lazy else 2)
                    self.do(number, acts.Give(deal.round, 1, units))

    def delivery(self, buyer: Ed25519PrivateKey) -> bytes:
        """What arrived, as the buyer says."""
        deal = self.federation.deal
        assert deal is not None
        assert deal.award is not None
        arrived = tuple(
            Arrived(member, turn, one.points, one.units)
            for member, given in sorted(deal.given.items())
            for turn, one in sorted(given.items())
        )
        told = Delivery("ages", "1", "What arrived.", deal.award.id.hex(), self.federation.id, arrived)
        return signing.signed(told, buyer)
