"""What one client did in the rounds of a task: paid for first, recorded, then the same ever after.

One key of the ledger for each participation, under which the round and what was sent are recorded; so the
number of participations needs no counter of its own, and a crash between paying and recording costs nothing
but the draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reticent.errors import ParameterError
from reticent.ledger.base import Amount, Unit
from reticent.ledger.device import DeviceLedger
from reticent.privacy import Neighbours


class ParticipationsSpent(ParameterError):
    """The client has reported in as many rounds of the task as it allows: nothing was spent or sent."""


class Participations:
    """The participations of one client in one task.

    Args:
        ledger: the client's.
        account: in it.
        unit: of the account.
        head: names client and task, the beginning of the keys.
        most: how many rounds the task allows one client.
    """

    def __init__(self, ledger: DeviceLedger, account: str, unit: Unit, head: str, most: int) -> None:
        self._ledger, self._account, self._unit = ledger, account, unit
        self._head, self._most = head, most

    def _records(self) -> list[tuple[int, ...]]:
        found = []
        for place in range(self._most):
            content = self._ledger.recorded(self._account, f"{self._head}/{place}")
            if content is None:
                break
            found.append(content)
        return found

    def remembered(self, number: int) -> tuple[int, ...] | None:
        """What was sent in a round; None if nothing was."""
        for round_number, *values in self._records():
            if round_number == number:
                return tuple(values)
        return None

    def paid(self, number: int, units: int, draw: Callable[[], Sequence[int]]) -> tuple[int, ...]:
        """Pay for a round, draw, record; return what was drawn.

        Raises:
            ParticipationsSpent: the task allows no further round.
            BudgetExceeded: the account does not hold it.
        """
        place = len(self._records())
        if place == self._most:
            raise ParticipationsSpent(f"the task allows {self._most} rounds of one client")
        information = Amount(units, self._unit, Neighbours.ANY_TWO_VALUES)
        grant = self._ledger.request(self._account, f"{self._head}/{place}", information)
        values = tuple(draw())
        self._ledger.fulfil(grant.pending[0].number, [number, *values])
        return values
