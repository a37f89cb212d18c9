"""Bodies of requests about the market."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from reticent.errors import ParameterError
from reticent.market.menus import MOST_CENTS
from reticent.market.offering import LONGEST_NAME, Wanted, menu_of
from reticent.market.offers import MOST_POINTS
from reticent.market.trading import HOLD_S, MOST_HOLD_S
from reticent.mechanisms.attributes import Attribute, Category, Number
from reticent.service.schemas import Body, Finite

MOST_ATTRIBUTES = 16
MOST_VALUES = 256

Cents = Annotated[int, Field(strict=True, ge=1, le=MOST_CENTS)]


class AskedAttribute(Body):
    """A number with bounds, or a category with values."""

    name: Annotated[str, Field(min_length=1, max_length=80)]
    low: Finite | None = None
    high: Finite | None = None
    values: Annotated[list[str], Field(min_length=2, max_length=MOST_VALUES)] | None = None
    fallback: str | None = None

    def attribute(self) -> Attribute:
        """What it declares."""
        if self.values is not None and self.low is None and self.high is None:
            return Category(self.name, self.values, self.fallback)
        if self.low is None or self.high is None or self.values is not None or self.fallback is not None:
            raise ParameterError(f"attribute {self.name!r:.60} must have low and high, or values")
        return Number(self.name, (self.low, self.high))


class OfferedLevel(Body):
    """One line of a menu."""

    epsilon: Annotated[Finite, Field(gt=0, le=20)]
    cents: Cents = Field(description="That are paid for a report at this epsilon.")


class OfferedBill(Body):
    """What a buyer offers."""

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
    version: Annotated[str, Field(min_length=1, max_length=80)] = "1"
    purpose: Annotated[str, Field(min_length=1, max_length=1000)] = Field(
        description="What the reports are for, in words that sellers read."
    )
    attributes: Annotated[list[AskedAttribute], Field(min_length=1, max_length=MOST_ATTRIBUTES)]
    levels: Annotated[list[OfferedLevel], Field(min_length=1, max_length=MOST_POINTS)]
    deposit: Cents = Field(description="In cents, of which sellers are paid.")
    closes: Annotated[int, Field(strict=True, ge=0, le=1 << 40)] = Field(description="Seconds since 1970.")
    hold_s: Annotated[int, Field(strict=True, ge=1, le=MOST_HOLD_S)] = HOLD_S

    def wanted(self) -> Wanted:
        """What it asks for."""
        return Wanted(
            self.name,
            self.purpose,
            tuple(one.attribute() for one in self.attributes),
            menu_of([(one.epsilon, one.cents) for one in self.levels]),
            self.deposit,
            self.closes,
            self.hold_s,
            self.version,
        )
