"""What the server does: collect the reports of a round, average them, step.

The server sees symbols that are private already; nothing here needs to be trusted, and nothing here is paid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reticent.errors import ParameterError
from reticent.federated import payload
from reticent.federated.payload import Outcome
from reticent.federated.tasks import Task
from reticent.mechanisms.base import Floats, Symbols


class Round:
    """The reports of one round of a task.

    Args:
        task: what is learnt.
        number: of the round.
        master: the operator's enrolment key.
    """

    def __init__(self, task: Task, number: int, master: bytes) -> None:
        self.task, self.number, self._master = task, task.checked_round(number), master
        self.sums = np.zeros(task.dimensions)
        self.outcomes: Counter[Outcome] = Counter()
        self._clients: set[int] = set()

    @property
    def clients(self) -> int:
        """How many are counted."""
        return len(self._clients)

    def add(self, payloads: Sequence[bytes]) -> list[Outcome]:
        """Count payloads; each client once, and nothing that is not whole. None raises."""
        outcomes, read = payload.read(self.task, self.number, payloads, self._master)
        counted = [place for place, outcome in enumerate(outcomes) if outcome is Outcome.COUNTED]
        new = np.zeros(len(counted), dtype=np.bool_)
        for row, (place, client) in enumerate(zip(counted, read.clients.tolist(), strict=True)):
            new[row] = client not in self._clients
            self._clients.add(client)
            if not new[row]:
                outcomes[place] = Outcome.SECOND
        self.sums += summed(self.task, read.asked[new], read.symbols[new])
        self.outcomes.update(outcomes)
        return outcomes

    def gradient(self) -> Floats:
        """The average clipped gradient of the group, without bias: d/k times the sum over n.

        Zero before anybody reported.
        """
        return averaged(self.task, self.sums, self.clients)


def summed(task: Task, asked: Symbols, symbols: Symbols) -> Floats:
    """The sums of the reports, in units of the bounds, by coordinate."""
    outputs = task.mechanism.alphabet[symbols]
    sums = np.bincount(asked.reshape(-1), weights=outputs.reshape(-1), minlength=task.dimensions)
    return sums.astype(np.float64)


def averaged(task: Task, sums: Floats, clients: int) -> Floats:
    """An unbiased average of clipped gradients, of the sums of `clients` reports.

    Reference: Zhao et al. 2020, Algorithm 6 (d/k) and Algorithm 1 (the average of a group).
    """
    return np.asarray(sums * task.scale * (task.dimensions / task.sample_size / max(1, clients)))


@dataclass
class Training:
    """The state of a server between rounds.

    Attributes:
        theta: the parameters.
        velocity: of the momentum.
        number: of the next round.
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
