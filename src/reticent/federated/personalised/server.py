"""The server of personalised training: collects the reports of a round, clusters them, averages.

It sees noisy vectors only, which clients have paid for; nothing here needs to be trusted. What a round tells
is entered into the operator's ledger first. What a server may not do is look at losses of clients: `best`
takes data that are public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from reticent.errors import ParameterError
from reticent.federated import payload
from reticent.federated.payload import Outcome
from reticent.federated.personalised import wire
from reticent.federated.personalised.clustering import from_slots, k_means, within
from reticent.federated.personalised.learners import Population
from reticent.federated.personalised.noise import Sanitiser
from reticent.federated.personalised.tasks import PersonalTask
from reticent.federated.server import training_study
from reticent.fleet.intake import Form, RoundIntake
from reticent.fleet.record import Study
from reticent.mechanisms.base import Floats, Symbols

if TYPE_CHECKING:  # who trains needs none of it
    from reticent.fleet.operator import Operator


def study(task: PersonalTask) -> Study:
    """A task as the operator's ledger knows it: at the price of the worst hypotheses that it allows."""
    worst = Sanitiser(task)
    return training_study(task, worst.unit, worst.units)


class PersonalRound(RoundIntake[Outcome]):
    """The reports of one round.

    Args:
        task: Task to learn.
        number: Number of the round.
        hypotheses: Hypotheses that the clients were given.
        operator: Operator who knows the clients, and in whose ledger the round is entered.
    """

    def __init__(self, task: PersonalTask, number: int, hypotheses: Floats, operator: Operator) -> None:
        super().__init__(operator)
        self.task, self.number = task, task.checked_round(number)
        self.sanitiser = Sanitiser(task, hypotheses)
        self._reports: dict[bytes, Symbols] = {}

    @property
    def clients(self) -> int:
        """The number of clients that are counted."""
        return len(self._reports)

    @property
    def form(self) -> Form[Outcome]:
        """The form of the reports of this round."""
        return payload.form(self.task, self.number, wire.size(self.sanitiser))

    def _counted(self, reports: Sequence[bytes]) -> list[Outcome]:
        outcomes = []
        for one in reports:
            client, report = one[self.form.reporter], wire.numbers(self.sanitiser, one)
            if report is None:
                outcomes.append(Outcome.SYMBOL)
            elif client in self._reports:
                outcomes.append(Outcome.SECOND)
            else:
                self._reports[client] = report
                outcomes.append(Outcome.COUNTED)
        return outcomes

    def reports(self) -> Floats:
        """The noisy vectors of all who are counted: shape (clients, numbers).

        The round is in the operator's ledger then, with the number of reports at the first look.

        Raises:
            LedgerError: it could not be entered, and nothing is told.
        """
        if self.clients:
            paid = self.sanitiser.units
            self._operator.record.learn(study(self.task), {self.number: self.clients}, paid)
        found = np.array(list(self._reports.values()), dtype=np.int64).reshape(-1, self.task.numbers)
        return self.sanitiser.decoded(found)


def stepped(sanitiser: Sanitiser, reports: Floats) -> Floats:
    """The hypotheses after a round; those that nobody chose stay as they were."""
    assert sanitiser.hypotheses is not None
    if len(reports) == 0:
        return sanitiser.hypotheses
    if sanitiser.task.about == "slots":
        moved = from_slots(sanitiser, reports.sum(axis=0), len(reports))
    else:
        moved = k_means(reports, sanitiser.hypotheses)
    return within(moved, sanitiser.task.reach)


@dataclass
class PersonalTraining:
    """The state of a server between rounds.

    Attributes:
        hypotheses: of the next round.
        number: of the next round.
        history: the hypotheses of all rounds so far.
    """

    task: PersonalTask
    hypotheses: Floats
    number: int = 0
    history: list[Floats] = field(default_factory=list)

    @classmethod
    def begun(cls, task: PersonalTask, hypotheses: Floats) -> PersonalTraining:
        """Training from given hypotheses, which must be public."""
        return cls(task, task.checked_hypotheses(hypotheses))

    @property
    def is_over(self) -> bool:
        """Whether every round was stepped."""
        return self.number >= self.task.rounds

    def step(self, reports: Floats) -> None:
        """End a round with its reports."""
        self.task.checked_round(self.number)
        self.history.append(self.hypotheses)
        self.hypotheses = stepped(Sanitiser(self.task, self.hypotheses), reports)
        self.number += 1

    def settled(self, rounds: int) -> Floats:
        """The mean of the hypotheses after the last rounds: less noise, at no price."""
        if not 0 < rounds <= self.number:
            raise ParameterError(f"rounds must be in 1 to {self.number}, got {rounds}")
        last = [*self.history[len(self.history) - rounds + 1 :], self.hypotheses]
        return np.asarray(np.mean(last, axis=0))


def best(candidates: Sequence[Floats], public: Population) -> int:
    """Return the index of the training that fits best, on data that are public.

    Each was paid by the clients that took part in it; with other clients in each, nobody pays twice.
    """
    everyone = np.arange(len(public))
    fits = [float(public.losses(one, everyone).min(axis=1).mean()) for one in candidates]
    return int(np.argmin(np.nan_to_num(fits, nan=np.inf)))
