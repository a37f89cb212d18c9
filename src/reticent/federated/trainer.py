"""What clients of all kinds of trainings have in common: a task allows each of them some of its rounds."""

from __future__ import annotations

from typing import TypeVar

from reticent.federated.any_task import AnyTask
from reticent.federated.participation import Participations
from reticent.fleet.reporter import Reporter

AskedTask = TypeVar("AskedTask", bound=AnyTask)


class Trainer(Reporter[AskedTask]):
    """A client of trainings, see `Reporter`. Its reports are kept by participation, see `Participations`."""

    me = "client"

    def _number(self, task: AskedTask, number: int) -> int:
        return task.checked_round(number)

    def _kept(self, task: AskedTask, head: str) -> Participations:
        return Participations(self.ledger, self.account, self._unit, head, task.participations)
