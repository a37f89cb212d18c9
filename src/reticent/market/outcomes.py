"""The replies of a market to devices: outcomes of asks, and outcomes of reports."""

from __future__ import annotations

from enum import Enum


class HoldOutcome(Enum):
    """The outcome of an ask. Money is set aside after the first outcome only."""

    COUNTED = "held"
    SOLD = "sold"  # this enrolment has sold a level of the bill
    OTHER = "other"  # another level is held for it, by a later ask
    MONEY = "money"  # the deposit does not hold it, or not now
    LEVEL = "level"  # the bill has none such
    CLOSED = "closed"  # the bill takes no more
    CLOCK = "clock"  # asked too long ago, or in the future
    VERSION = "version"  # not one that this market reads
    LENGTH = "length"
    BILL = "bill"  # none of this market
    TAG = "tag"  # not made with the key of its reporter
    REVOKED = "revoked"  # the enrolment was taken back


class SaleOutcome(Enum):
    """The outcome of a report that was sold. The report is paid for after the first two outcomes."""

    COUNTED = "paid"
    DUPLICATE = "duplicate"  # the very report that was paid for before
    HOLD = "hold"  # no money is held for it, or not any more
    LEVEL = "level"  # money is held for another level
    MONEY = "money"  # the ledger does not pay it; it is not counted either
    VERSION = "version"
    LENGTH = "length"
    SURVEY = "survey"  # no level of a bill of this market
    TAG = "tag"
    REVOKED = "revoked"
    PERIOD = "period"
    ATTRIBUTES = "attributes"
    SYMBOL = "symbol"
    SECOND = "second"  # another report of this sale was stored before

    def __init__(self, value: str) -> None:
        self.is_paid = value in ("paid", "duplicate")
