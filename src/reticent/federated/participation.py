"""The participations of one client in the rounds of a task: paid for, recorded, then the same ever after.

One key of the ledger for each participation, under which the round and what was sent are recorded; so the
number of participations needs no counter of its own, and a crash between paying and recording costs nothing
but the draw. Which round is where is learnt once, and then as rounds are paid for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from reticent.errors import ParameterError
from reticent.federated.any_task import AnyTask
from reticent.fleet.reporter import Reporter
from reticent.ledger.base import Amount, Unit
from reticent.ledger.device.ledger import DeviceLedger
from reticent.privacy import Neighbours

AskedTask = TypeVar("AskedTask", bound=AnyTask)


class ParticipationsSpent(ParameterError):
    """The client has reported in as many rounds of the task as it allows: nothing was spent or sent."""


class Participations:
    """The participations of one client in one task, for one thread at a time.

    Args:
        ledger: the client's.
        account: Account in the ledger.
        unit: Unit of the account.
        head: names client and task, the beginning of the keys.
        most: Number of rounds that the task allows one client.
    """

    def __init__(self, ledger: DeviceLedger, account: str, unit: Unit, head: str, most: int) -> None:
        self._ledger, self._account, self._unit = ledger, account, unit
        self._head, self._most = head, most
        self._places: dict[int, int] = {}  # of rounds
        self._count = 0

    def _recorded(self, place: int) -> tuple[int, ...] | None:
        return self._ledger.recorded(self._account, f"{self._head}/{place}")

    def _look(self) -> int:
        """Return the number of participations.

        Only what was recorded since the last look is looked at.
        """
        while self._count < self._most and (content := self._recorded(self._count)) is not None:
            self._places.setdefault(content[0], self._count)
            self._count += 1
        return self._count

    def remembered(self, number: int) -> tuple[int, ...] | None:
        """Return the values sent in a round; None if nothing was sent."""
        self._look()
        content = self._recorded(self._places[number]) if number in self._places else None
        return None if content is None else content[1:]

    def settle(self, number: int, pay: Callable[[str, list[int]], None]) -> bool:
        """Record a round as sent without its report, unless recorded; return whether no report is held.

        Args:
            number: Number of the round.
            pay: pays under a key, and records values there.
        """
        if number in self._places or self._look() == self._most or number in self._places:
            return not self.remembered(number)
        pay(f"{self._head}/{self._count}", [number])
        return True

    def next_key(self, number: int) -> str:
        """The key of the next participation, whichever round it is in.

        Raises:
            ParticipationsSpent: the task allows no further round.
        """
        place = self._look()
        if place == self._most:
            raise ParticipationsSpent(f"the task allows {self._most} rounds of one client")
        return f"{self._head}/{place}"

    def paid(self, number: int, units: int, draw: Callable[[], Sequence[int]]) -> tuple[int, ...]:
        """Pay for a round, draw, record; return what was drawn.

        Raises:
            ParticipationsSpent: the task allows no further round.
            BudgetExceeded: the account does not hold it.
        """
        information = Amount(units, self._unit, Neighbours.ANY_TWO_VALUES)
        grant = self._ledger.request(self._account, self.next_key(number), information)
        values = tuple(draw())
        self._ledger.fulfil(grant.pending[0].number, [number, *values])
        return values


class Trainer(Reporter[AskedTask]):
    """A reporter that takes part in the rounds of training tasks, see `Reporter`.

    A task allows each client some of its rounds; reports are kept by participation, see `Participations`.
    """

    me = "client"

    def _number(self, task: AskedTask, number: int) -> int:
        return task.checked_round(number)

    def _kept(self, task: AskedTask, head: str) -> Participations:
        return Participations(self.ledger, self.account, self._unit, head, task.participations)
