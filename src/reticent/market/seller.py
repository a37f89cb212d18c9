"""A seller: a device that picks, of what buyers offer, what is best for the person behind it.

Her price never leaves the device, and her data have no part in the choice: who knows a choice learns an
interval of the price, and that the budget held it. Before anything is drawn the market promises in writing
to pay (`holds`). A sale is `Device.report`; what was sold once is not sold again, and is given out the same
after any crash.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from reticent.arguments import real
from reticent.collect.device import Device
from reticent.collect.survey import Survey
from reticent.errors import GuaranteeError, ParameterError
from reticent.fleet.signing import verified
from reticent.market.bills import Bill, check_surveys
from reticent.market.holds import Hold, ask
from reticent.market.menus import Menu, best_levels
from reticent.market.outcomes import HoldOutcome, SaleOutcome
from reticent.privacy.budget import cost_units

MOST_PRICE = 10**12
MOST_ROUNDS = 1000  # of asking: each but the last finds a bill with less money than it asked for


class Desk(Protocol):
    """The market that a seller sells to: a `Market`, or one behind a service (`remote`)."""

    def hold(self, asks: Sequence[bytes]) -> list[tuple[HoldOutcome, bytes | None]]:
        """Set money aside."""

    def receive(self, reports: Sequence[bytes]) -> list[SaleOutcome]:
        """Take reports in, and pay."""


@dataclass(frozen=True)
class Sale:
    """A report that was sold, and the market's reply.

    Attributes:
        bill: Bill of the buyer.
        place: Index of the level.
        report: Bytes that are sent.
        outcome: Reply of the market to the report.
    """

    bill: Bill
    place: int
    report: bytes
    outcome: SaleOutcome

    @property
    def cents(self) -> int:
        """The cents that were paid for the sale."""
        return self.bill.levels[self.place].cents if self.outcome.is_paid else 0


class Seller:
    """One device, what an epsilon is worth to its owner, what she sells, and what she keeps back.

    Args:
        device: Device whose ledger pays, and whose signer signs the bills and their surveys.
        price: Price of an epsilon of 1, in cents; a whole number or a fraction.
        kept: Epsilon of the lifetime budget that is not for sale.
        sells: Names of the attributes that may be asked about; None for all.
    """

    def __init__(
        self,
        device: Device,
        *,
        price: Fraction | int,
        kept: float = 0.0,
        sells: frozenset[str] | None = None,
    ) -> None:
        if isinstance(price, bool) or not isinstance(price, (int, Fraction)) or not 0 <= price <= MOST_PRICE:
            raise ParameterError(
                f"price must be a whole number or a fraction of cents, 0 to {MOST_PRICE}, got {price!r:.60}"
            )
        self._device, self._price = device, Fraction(price)
        self._kept = cost_units(real("kept", kept, low=0.0))
        self._sells = sells
        self._guard = threading.Lock()
        self._taken: dict[bytes, tuple[Survey, ...]] = {}

    def take(self, file: bytes, surveys: Sequence[bytes]) -> Bill:
        """Consider a signed bill and the signed surveys of its levels.

        Raises:
            GuaranteeError, ParameterError: it does not keep what it says, or asks about what is not for
                sale; nothing was sent or spent.
        """
        bill = verified(Bill, file, self._device.signer)
        if len(surveys) > len(bill.levels):
            raise ParameterError(f"surveys must be {len(bill.levels)}, got {len(surveys)}")
        taken = tuple(self._device.take(one) for one in surveys)
        check_surveys(bill, taken)
        for attribute in taken[0].attributes:
            if self._sells is not None and attribute.name not in self._sells:
                raise GuaranteeError(f"bill {bill.name} asks about {attribute.name}, which is not for sale")
        self._taken[bill.id] = taken
        return bill

    def sold(self, bill: Bill) -> int | None:
        """Return the level of a bill that was sold; None if none was."""
        surveys = self._surveys(bill)
        reported = (place for place, one in enumerate(surveys) if self._device.has_reported(one, period=0))
        return next(reported, None)

    def quote(self, bills: Sequence[Bill], *, now: float | None = None) -> list[int | None]:
        """Return the levels that `sell` would ask for, None for none; nothing is sent."""
        with self._guard:
            places, menus = self._begun(bills, time.time() if now is None else now)
            return [
                places.get(bill.id, place) for bill, place in zip(bills, self._choice(menus), strict=True)
            ]

    def sell(
        self, bills: Sequence[Bill], values: Mapping[str, Any], market: Desk, *, now: float | None = None
    ) -> list[Sale]:
        """Sell the best levels of open bills, and send again what was already sold of them.

        Money is held for every level before the first is drawn. Where it is not, the best of the rest is
        taken.

        Args:
            bills: Bills that were taken. All that compete for the budget belong in one call.
            values: Record to report, see `Device.report`.
            market: Market that pays.
            now: Time in seconds since 1970; by default the clock's.

        Returns:
            A sale for each bill of which something was, or had been, drawn.

        Raises:
            BudgetExceeded: another program spent the budget meanwhile. Sales before it stand.
            GuaranteeError: a hold is not what was asked for; nothing was drawn for it.
            ParameterError: one bill twice, or one that was not taken.
        """
        if len({bill.id for bill in bills}) != len(bills):
            raise ParameterError("bills must be different ones")
        clock = time.time() if now is None else now
        with self._guard:
            places = self._held(bills, market, clock)
            drawn = [
                (bill, places[bill.id], self._report(bill, places[bill.id], values))
                for bill in bills
                if bill.id in places
            ]
        outcomes = market.receive([report for _, _, report in drawn]) if drawn else []
        return [Sale(*one, outcome) for one, outcome in zip(drawn, outcomes, strict=True)]

    def _begun(self, bills: Sequence[Bill], clock: float) -> tuple[dict[bytes, int], list[Menu | None]]:
        """Return the levels that were sold before, and what is open of each bill."""
        sold = {bill.id: place for bill in bills if (place := self.sold(bill)) is not None}
        return sold, [bill.menu if bill.id not in sold and clock < bill.closes else None for bill in bills]

    def _held(self, bills: Sequence[Bill], market: Desk, clock: float) -> dict[bytes, int]:
        """Return the levels that may be drawn: money is held for them, or they were drawn before."""
        places, menus = self._begun(bills, clock)
        if places:  # the market may have given their money back since: what is drawn is sent all the same
            self._asked([(bill, places[bill.id]) for bill in bills if bill.id in places], market, clock)
        held: dict[bytes, int] = {}
        for step in range(MOST_ROUNDS):
            picked = self._choice(menus)
            wanted = [
                (at, bill, place)
                for at, (bill, place) in enumerate(zip(bills, picked, strict=True))
                if place is not None and held.get(bill.id) != place
            ]
            told = self._asked([(bill, place) for _, bill, place in wanted], market, clock + step / 1000)
            for (at, bill, place), outcome in zip(wanted, told, strict=True):
                menu = menus[at]
                if outcome is HoldOutcome.COUNTED:
                    held[bill.id] = place
                elif outcome is HoldOutcome.MONEY and menu is not None:
                    menus[at] = menu.within(bill.levels[place].cents - 1)
                else:
                    menus[at] = None
            if all(outcome is HoldOutcome.COUNTED for outcome in told):
                chosen = zip(bills, picked, strict=True)
                return places | {bill.id: place for bill, place in chosen if place is not None}
        return places

    def _asked(self, wanted: Sequence[tuple[Bill, int]], market: Desk, clock: float) -> list[HoldOutcome]:
        """Ask for holds, and check those that come."""
        if not wanted:
            return []
        enrolment = self._device.enrolment
        told = market.hold([ask(enrolment, bill, place, clock) for bill, place in wanted])
        for (bill, place), (outcome, file) in zip(wanted, told, strict=True):
            if outcome is HoldOutcome.COUNTED:
                hold = Hold.verified(file or b"", self._device.signer)
                hold.check(bill, place, enrolment.id, clock)
        return [outcome for outcome, _ in told]

    def _choice(self, menus: Sequence[Menu | None]) -> list[int | None]:
        """The best level of each menu, by its place in the whole bill; menus are cut from above only."""
        offered = [menu for menu in menus if menu is not None]
        places = iter(best_levels(offered, self._price, self.for_sale).places)
        return [None if menu is None else next(places) for menu in menus]

    @property
    def for_sale(self) -> int:
        """The units of epsilon that may still be sold."""
        return max(0, self._device.left - self._kept)

    def _report(self, bill: Bill, place: int, values: Mapping[str, Any]) -> bytes:
        return self._device.report(self._surveys(bill)[place], values, period=0)

    def _surveys(self, bill: Bill) -> tuple[Survey, ...]:
        held = self._taken.get(bill.id)
        if held is None:
            raise ParameterError(f"bill must be one that this seller took, got {bill.title}")
        return held
