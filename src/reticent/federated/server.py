"""The server: collects the reports of a round, enters the round into the ledger, averages, and steps.

The server sees symbols that are private already, and clients have paid for them; nothing here needs to be
trusted. What a round tells is entered into the operator's ledger before anybody is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reticent.errors import ParameterError
from reticent.federated import payload
from reticent.federated.payload import Outcome
from reticent.federated.tasks import Task
from reticent.fleet.intake import Form, RoundIntake
from reticent.fleet.record import Study
from reticent.ledger.base import Unit
from reticent.mechanisms.base import Floats, Symbols
from reticent.mechanisms.vector.codebook import REPORT
from reticent.privacy import Neighbours

if TYPE_CHECKING:  # who trains needs none of it
    from reticent.federated.personalised.tasks import PersonalTask
    from reticent.fleet.operator import Operator


def study(task: Task) -> Study:
    """A task as the operator's ledger knows it."""
    return training_study(task, Unit.EPSILON, task.units)


def training_study(task: Task | PersonalTask, unit: Unit, units: int) -> Study:
    """A training of any kind, round by round."""
    times = f"every round, of which it may be in {task.participations}"
    subject = f"one client of training {task.name} that reports in {times}"
    return Study("training", task.id, subject, unit, Neighbours.ANY_TWO_VALUES, units, task.rounds)


class Round(RoundIntake[Outcome]):
    """The reports of one round of a task.

    Args:
        task: Task to learn.
        number: Number of the round.
        operator: Operator who knows the clients, and in whose ledger the round is entered.
    """

    def __init__(self, task: Task, number: int, operator: Operator) -> None:
        super().__init__(operator)
        self.task, self.number = task, task.checked_round(number)
        self.sums = np.zeros(task.dimensions)
        self._clients: set[int] = set()

    @property
    def clients(self) -> int:
        """The number of clients that are counted."""
        return len(self._clients)

    @property
    def form(self) -> Form[Outcome]:
        """The form of the payloads of this round."""
        return payload.form(self.task, self.number, payload.size(self.task))

    def _counted(self, reports: Sequence[bytes]) -> list[Outcome]:
        legal, read = payload.parsed(self.task, self.number, reports)
        outcomes = [Outcome.COUNTED if one else Outcome.SYMBOL for one in legal]
        new = np.zeros(len(read.clients), dtype=np.bool_)
        for row, (place, client) in enumerate(zip(np.flatnonzero(legal), read.clients.tolist(), strict=True)):
            new[row] = client not in self._clients
            self._clients.add(client)
            if not new[row]:
                outcomes[place] = Outcome.SECOND
        self.sums += summed(self.task, read.asked[new], read.symbols[new])
        return outcomes

    def gradient(self) -> Floats:
        """The average clipped gradient of the group, without bias: d/k times the sum over n.

        Zero before anybody reported. The round is in the operator's ledger then, with the number of reports
        at the first look.

        Raises:
            LedgerError: it could not be entered, and nothing is told.
        """
        if self.clients:
            self._operator.record.learn(study(self.task), {self.number: self.clients})
        return averaged(self.task, self.sums, self.clients)


def summed(task: Task, asked: NDArray[Any], symbols: Symbols) -> Floats:
    """The sums of the reports, in units of the bounds, by coordinate."""
    if task.codebook is not None:
        reports = np.empty(len(symbols), dtype=REPORT)
        reports["seed"], reports["value"] = asked[:, 0], symbols[:, 0]
        return task.codebook.total(reports)
    outputs = task.channel.alphabet[symbols]
    sums = np.bincount(asked.reshape(-1), weights=outputs.reshape(-1), minlength=task.dimensions)
    return sums.astype(np.float64)


def averaged(task: Task, sums: Floats, clients: int) -> Floats:
    """An unbiased average of clipped gradients, of the sums of `clients` reports.

    Reference: Zhao et al. 2020, Algorithm 6 (d/k) and Algorithm 1 (the average of a group).
    """
    share = 1.0 if task.codebook is not None else task.dimensions / task.sample_size
    return np.asarray(sums * task.scale * (share / max(1, clients)))


@dataclass
class Training:
    """The state of a server between rounds.

    Attributes:
        theta: the parameters.
        velocity: Velocity of the momentum.
        number: Number of the next round.
    """

    task: Task
    theta: Floats
    velocity: Floats
    number: int = 0

    @classmethod
    def begun(cls, task: Task, theta: Floats | None = None) -> Training:
        """Training from the model's start, or from given parameters, which must be public."""
        start = np.zeros(task.dimensions)
        return cls(task, start if theta is None else task.checked_theta(theta), np.zeros(task.dimensions))

    @property
    def is_over(self) -> bool:
        """Whether every round was stepped."""
        return self.number >= self.task.rounds

    def step(self, gradient: Floats) -> None:
        """End a round with its averaged gradient."""
        if np.shape(gradient) != (self.task.dimensions,):
            raise ParameterError(
                f"gradient must have shape ({self.task.dimensions},), got {np.shape(gradient)}"
            )
        number = self.task.checked_round(self.number)
        self.theta, self.velocity = self.task.steps.step(self.theta, self.velocity, gradient, number)
        self.number += 1
