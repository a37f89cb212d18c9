"""Whoever spends a budget of its own pays by one account in one device's ledger, below its lifetime."""

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
    """Whoever spends a lifetime budget of its own: one account in a ledger, or two, given up together.

    Args:
        path: of the ledger; made if there is none.
        terms: of the account; those of an existing one must be the same.
        key: of its enrolment, which pays by one ledger only.
        marks: where it is remembered what has left; None for the usual place.
        beside: of a second account, for what one number does not say: the delta beside an epsilon.
        total: one lifetime above all accounts of the ledger, fixed with it; None takes the one that it has.
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
        """Whether the report of a period has left, or may have, and is not held: then none is drawn."""
        return content == () or (content is None and number < int(self.ledger.kept(f"closed/{head}") or 0))

    def _close(self, head: str, first: int) -> None:
        """Draw nothing for periods before the first one that still counts, if it is not held."""
        if first > int(self.ledger.kept(f"closed/{head}") or 0):
            self.ledger.keep(f"closed/{head}", str(first))

    def _settle(self, information: Amount, key: str, values: Sequence[int] = ()) -> None:
        """Pay for what has left, and is not held here, so that nothing is ever drawn under its key.

        If the account does not hold that much, all that is left is paid; if nothing is, nothing can be drawn.
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
        """Pay what a report costs the lifetime of the ledger, if there is one and the account holds it, too.

        The account is paid next, under the same key. If either does not hold its price, neither is paid;
        after a crash between the two the same call pays nothing again.

        Raises:
            BudgetExceeded: one of them does not.
        """
        if self._total is None:
            return
        self._check_holds(self._account, units, key)
        due = lifetime.cost(self._total, self._unit_of_account, units, reach)
        lifetime.charge(self.ledger, self._total, lifetime.key_of(self._account, key), due)

    def _settle_above(self, units: int, key: str, reach: Reach | None) -> None:
        """The same for what has left, as far as the lifetime holds it."""
        if self._total is not None:
            due = lifetime.cost(self._total, self._unit_of_account, units, reach)
            above = lifetime.key_of(self._account, key)
            lifetime.pay_what_is_left(self.ledger, self._total, above, due)

    def _pay_beside(self, units: int, beside: Amount, key: str) -> None:
        """Pay what a report costs the second account, where the first holds its own price, too.

        The first is paid next, under the same key. If either does not hold its price, neither is paid; after
        a crash between the two the same call pays nothing again.

        Raises:
            BudgetExceeded: one of them does not.
        """
        assert self._beside is not None
        self._check_holds(self._account, units, key)
        for measurement in self.ledger.request(self._beside.name, key, beside).pending:
            self.ledger.fulfil(measurement.number, [])

    def close(self) -> None:
        """Give the ledger up."""
        self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
