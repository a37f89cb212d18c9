"""What a service holds for its market."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from starlette.concurrency import run_in_threadpool

from reticent.apps.collect.collecting import Batching, Collecting
from reticent.errors import LedgerError
from reticent.market.outcomes import HoldOutcome, SaleOutcome
from reticent.market.store import HeldBill, SaleStore
from reticent.market.trading import Market
from reticent.service.keys import Person, Role
from reticent.service.refusals import not_found
from reticent.service.settings import Settings
from reticent.service.state import own_folder

FILE = "market.sqlite"
_TEND_S = 60.0  # how often bills that have ended are looked for


class Trading:
    """The market of a service, opened when it is first needed.

    Args:
        settings: of the service.
        collecting: whose two secrets sign bills and know devices, and whose ledger holds the money.
    """

    def __init__(self, settings: Settings, collecting: Collecting) -> None:
        self.folder, self._path = settings.folder, own_folder(settings.folder) / FILE
        self.collecting = collecting
        self._guard = threading.Lock()
        self._market: Market | None = None
        self._tend_at = 0.0
        self.holds: Batching[bytes, tuple[HoldOutcome, bytes | None]] = Batching(
            lambda asks: self.market.hold(asks)
        )
        self.sales: Batching[bytes, SaleOutcome] = Batching(lambda reports: self.market.receive(reports))

    @property
    def market(self) -> Market:
        """That of this process; what a crash left is settled first."""
        with self._guard:
            if self._market is None:
                store = SaleStore(self._path)
                self._market = Market(store, self.collecting.operator, self.collecting.signing_key)
            if not 0.0 < self._tend_at - time.monotonic() <= _TEND_S:
                self._tend_at = time.monotonic() + _TEND_S
                with contextlib.suppress(LedgerError):  # it is tried again
                    self._market.tend()
            return self._market

    async def opened(self) -> Market:
        """The same, from where nobody may wait."""
        held = self._market
        return await run_in_threadpool(lambda: self.market) if held is None else held

    @property
    def is_used(self) -> bool:
        """Whether anything was ever traded here."""
        return self._path.exists()

    def bill(self, name: str) -> HeldBill:
        """The bill of an id."""
        for held in self.market.store.bills().values():
            if held.bill.id.hex() == name:
                return held
        raise not_found("bill")

    def bill_of(self, person: Person, name: str) -> HeldBill:
        """The same, if somebody may see how it stands: its buyer, who runs the service, who watches it."""
        held = self.bill(name)
        is_buyer = person.role is Role.BUYER and held.buyer == person.name
        if not is_buyer and person.role not in (Role.OWNER, Role.AUDITOR):
            raise not_found("bill")
        return held

    def close(self) -> None:
        """Close the file."""
        with self._guard:
            market, self._market = self._market, None
        if market is not None:
            market.store.close()


async def _the_trading(request: Request) -> Trading:
    found: Trading = request.app.state.trading
    return found


TheTrading = Annotated[Trading, Depends(_the_trading)]


def prepare(app: FastAPI, settings: Settings) -> None:
    """Put the market where the routes find it; it is opened when it is first needed."""
    app.state.trading = Trading(settings, app.state.collecting)


@contextlib.contextmanager
def running(app: FastAPI) -> Iterator[None]:
    """Go on where the last process was stopped; close with the application."""
    trading: Trading = app.state.trading
    try:
        if trading.is_used:
            with contextlib.suppress(LedgerError):  # told to whoever trades
                trading.market  # noqa: B018 (opening settles)
        yield
    finally:
        trading.close()
