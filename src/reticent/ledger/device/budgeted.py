"""The base of device programs that pay from an account of their own, within the ledger's lifetime."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Self

from reticent.errors import BudgetExceeded
from reticent.ledger.base import Amount, Terms
from reticent.ledger.device import lifetime
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.lifetime import Lifetime, Reach
from reticent.ledger.device.marks import Marks, owner_of


class Budgeted:
    """A device program that spends a lifetime budget of its own from an account in a ledger.

    It may have a second account beside the first. Both are closed together.

    Args:
        path: Path of the ledger. A new ledger is created if there is none.
        terms: Terms of the account. If the account exists, its terms must be equal to these.
        key: Key of the enrolment, which pays by one ledger only.
        marks: Store of the marks that record how far the ledger was when something last left; None for the
            default store.
        beside: Terms of a second account, for a cost that one number does not express: the delta beside an
            epsilon.
        total: Lifetime above all accounts of the ledger, fixed with the ledger; None takes the lifetime that
            the ledger has.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        terms: Terms,
        key: bytes,
        marks: Marks | None = None,
        beside: Terms | None = None,
        total: Lifetime | None = None,
    ) -> None:
        self._account, self._unit_of_account, self._beside = terms.name, terms.unit, beside
        self.ledger = DeviceLedger(path, marks=marks or Marks(), owner=owner_of(key, terms.name))
        try:
            self._total = lifetime.opened(self.ledger, total, terms)
            self.ledger.open(terms)
            if beside is not None:
                self.ledger.open(beside)
        except BaseException:
            self.ledger.close()
            raise

    def _is_forgotten(self, head: str, number: int, content: tuple[int, ...] | None) -> bool:
        """Return whether a period's report has left, or may have, and is not stored here.

        No report is drawn for such a period.
        """
        return content == () or (content is None and number < int(self.ledger.kept(f"closed/{head}") or 0))

    def _close(self, head: str, first: int) -> None:
        """Refuse new draws for periods before the first one that still counts.

        Reports that are stored already stay as they are.
        """
        if first > int(self.ledger.kept(f"closed/{head}") or 0):
            self.ledger.keep(f"closed/{head}", str(first))

    def _settle(self, information: Amount, key: str, values: Sequence[int] = ()) -> None:
        """Pay for a report that has left and is not stored here, so that none is drawn under its key again.

        If the account does not hold that much, the whole remainder is paid. If nothing remains, nothing can
        be drawn.
        """
        self._settle_in(self._account, information, key, values)

    def _settle_in(self, account: str, information: Amount, key: str, values: Sequence[int] = ()) -> None:
        held = self.ledger.reading(account, key)
        left = self.ledger.balance(account).remaining
        units = min(information.units, held.information + held.pending + left)
        with contextlib.suppress(BudgetExceeded):
            amount = Amount(max(units, 1), information.unit, information.neighbours)
            for measurement in self.ledger.request(account, key, amount).pending:
                self.ledger.fulfil(measurement.number, list(values))

    def _check_holds(self, account: str, units: int, key: str) -> None:
        held = self.ledger.reading(account, key)
        left = self.ledger.balance(account).remaining
        if units - held.information - held.pending > left:
            raise BudgetExceeded(account, units, left)

    def _pay_above(self, units: int, key: str, reach: Reach | None) -> None:
        """Pay the ledger's lifetime, if any, for a report, provided that the account holds its price, too.

        The account is paid next, under the same key. If either does not hold its price, neither is paid;
        after a crash between the two payments, the same call pays nothing twice.

        Raises:
            BudgetExceeded: The account or the lifetime does not hold its price.
        """
        if self._total is None:
            return
        self._check_holds(self._account, units, key)
        due = lifetime.cost(self._total, self._unit_of_account, units, reach)
        lifetime.charge(self.ledger, self._total, lifetime.key_of(self._account, key), due)

    def _settle_above(self, units: int, key: str, reach: Reach | None) -> None:
        """Pay the ledger's lifetime for a report that has left, as far as the lifetime holds the price."""
        if self._total is not None:
            due = lifetime.cost(self._total, self._unit_of_account, units, reach)
            above = lifetime.key_of(self._account, key)
            lifetime.pay_what_is_left(self.ledger, self._total, above, due)

    def _pay_beside(self, units: int, beside: Amount, key: str) -> None:
        """Pay the second account for a report, if the first account holds its own price, too.

        The first account is paid next, under the same key. If either does not hold its price, neither is
        paid; after a crash between the two payments, the same call pays nothing twice.

        Raises:
            BudgetExceeded: One of the two accounts does not hold its price.
        """
        assert self._beside is not None
        self._check_holds(self._account, units, key)
        for measurement in self.ledger.request(self._beside.name, key, beside).pending:
            self.ledger.fulfil(measurement.number, [])

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
