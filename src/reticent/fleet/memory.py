"""Storage of the reports of a series: paid for first, recorded, and repeated unchanged ever after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from reticent.ledger.base import Amount, Terms
from reticent.ledger.device.ledger import DeviceLedger


class Memory(Protocol):
    """Storage of the reports of a series in the ledger, for one thread at a time."""

    def remembered(self, number: int) -> tuple[int, ...] | None:
        """Return the values reported in a part; () if they were lost, None if nothing was reported."""

    def settle(self, number: int, pay: Callable[[str, list[int]], None]) -> bool:
        """Mark a part as reported unless it was; return whether its report is not stored.

        Args:
            number: Number of the part.
            pay: Function that pays under a key and records values there.
        """

    def next_key(self, number: int) -> str:
        """Return the ledger key that `paid` would charge."""

    def paid(self, number: int, units: int, draw: Callable[[], Sequence[int]]) -> tuple[int, ...]:
        """Pay for a part, draw its values, record and return them."""


class ByNumber:
    """Storage of reports with one ledger key for each part.

    Args:
        ledger: Ledger of the reporter.
        terms: Terms of the account in the ledger.
        head: Beginning of the keys, which names the reporter and the series.
        earlier_head: Beginning of the keys of an earlier release, if it had another: what was paid for under
            such a key is the report of its part, ever after.
    """

    def __init__(self, ledger: DeviceLedger, terms: Terms, head: str, earlier_head: str = "") -> None:
        self._ledger, self._terms, self._head, self._earlier_head = ledger, terms, head, earlier_head

    def _key(self, number: int) -> str:
        """Return the key of a part: that of an earlier release, if something was paid for under it."""
        if self._earlier_head:
            earlier = f"{self._earlier_head}/{number}"
            reading = self._ledger.reading(self._terms.name, earlier)
            if reading.information + reading.pending:
                return earlier
        return f"{self._head}/{number}"

    def is_paid(self, number: int) -> bool:
        """Return whether a part was paid for, recorded or not."""
        reading = self._ledger.reading(self._terms.name, self._key(number))
        return reading.information + reading.pending > 0

    def remembered(self, number: int) -> tuple[int, ...] | None:
        """Return the values reported in a part; () if they were lost, None if nothing was reported."""
        return self._ledger.recorded(self._terms.name, self._key(number))

    def settle(self, number: int, pay: Callable[[str, list[int]], None]) -> bool:
        """Mark a part as reported unless it was; see `Memory`."""
        held = self.remembered(number)
        if held is None:
            pay(self._key(number), [])
        return not held

    def next_key(self, number: int) -> str:
        """Return the ledger key of a part."""
        return self._key(number)

    def paid(self, number: int, units: int, draw: Callable[[], Sequence[int]]) -> tuple[int, ...]:
        """Pay for a part, draw its values, record and return them.

        Raises:
            BudgetExceeded: the account does not hold it.
        """
        terms = self._terms
        information = Amount(units, terms.unit, terms.neighbours)
        grant = self._ledger.request(terms.name, self._key(number), information)
        values = tuple(draw())
        self._ledger.fulfil(grant.pending[0].number, list(values))
        return values
