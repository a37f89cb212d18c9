"""The offer of a buyer, and the bill with a survey for each level that is drawn up from the offer.

Levels are rounded down: the survey of a level takes no more epsilon than the level says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reticent.arguments import real, whole
from reticent.collect.design import designed
from reticent.collect.survey import Survey
from reticent.errors import ParameterError
from reticent.market.bills import LATEST, Bill, billed
from reticent.market.menus import Level, Menu
from reticent.market.trading import HOLD_S, MOST_HOLD_S
from reticent.mechanisms.attributes import Attribute
from reticent.privacy.budget import UNITS_PER_ONE, cost_units

LAST_MOMENT = 253_402_300_799  # of the year 9999: later ones are no dates that a page could show
LONGEST_NAME = 76  # what a survey is called is the name of the bill, and its place


@dataclass(frozen=True)
class Wanted:
    """An offer that a buyer publishes.

    Args:
        name: Name of the bill; letters, digits, dots, dashes.
        purpose: Purpose of the reports, in words that sellers read.
        attributes: Attributes that a report covers.
        menu: Menu of epsilons and their pay.
        deposit: Deposit in cents, from which sellers are paid.
        closes: Time at which the bill ends, in seconds since 1970.
        hold_s: Seconds for which money is held for a device that said it would sell.
        version: Version of the bill's text, for people.
    """

    name: str
    purpose: str
    attributes: tuple[Attribute, ...]
    menu: Menu
    deposit: int
    closes: int
    hold_s: int = HOLD_S
    version: str = "1"

    def drawn_up(self, now: float) -> tuple[Bill, list[Survey]]:
        """Return the bill, and the survey of each of its levels, from now on.

        Raises:
            ParameterError: a field breaks its rule.
        """
        if not isinstance(self.name, str) or len(self.name) > LONGEST_NAME:
            raise ParameterError(f"name must be a text of at most {LONGEST_NAME} characters")
        start = whole("now", int(now), low=0, high=LATEST)
        closes = whole("closes", self.closes, low=start + 1, high=LAST_MOMENT)
        hold_s = whole("hold_s", self.hold_s, low=1, high=MOST_HOLD_S)
        surveys = [
            designed(
                f"{self.name}-{place}",
                self.attributes,
                epsilon=epsilon_within(level.units),
                purpose=self.purpose,
                start=start,
                period_s=closes - start + hold_s,
                periods=1,
                version=self.version,
                assigned=len(self.attributes) > 1,
            )
            for place, level in enumerate(self.menu.levels)
        ]
        cents = [level.cents for level in self.menu.levels]
        bill = billed(
            surveys, cents, name=self.name, version=self.version, purpose=self.purpose, closes=closes
        )
        return bill, surveys


def epsilon_within(units: int) -> float:
    """Return the largest epsilon that costs no more than so many units."""
    found = units / UNITS_PER_ONE
    while cost_units(found) > units:
        found = math.nextafter(found, 0.0)
    return found


def menu_of(levels: Sequence[tuple[float, int]]) -> Menu:
    """Return the menu of epsilons and cents, rounded down to units.

    Raises:
        ParameterError: a number is none, or the pay does not rise with epsilon.
    """
    made = []
    for place, (epsilon, cents) in enumerate(levels):
        value = real(f"levels[{place}].epsilon", epsilon, low=0.0, high=1e6, open_low=True)
        made.append(Level(math.floor(value * UNITS_PER_ONE), whole(f"levels[{place}].cents", cents, low=1)))
    return Menu(tuple(made))
