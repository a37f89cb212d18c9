"""The client, which runs where the data are: chooses and improves a hypothesis, clips, pays, adds noise.

A client is a total function of its data (mathematics 4.1). It refuses only for what everybody may know: a
task that is not signed or costs more than the owner allows, hypotheses beyond the task's reach, a round too
many, a spent ledger.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from reticent.errors import GuaranteeError, ParameterError
from reticent.federated.participation import Trainer
from reticent.federated.personalised import wire
from reticent.federated.personalised.learners import Records, chosen
from reticent.federated.personalised.noise import Sanitiser
from reticent.federated.personalised.tasks import MOST_NUMBERS, PersonalTask
from reticent.federated.record_conversion import convert_records
from reticent.fleet.enrolment import Enrolment
from reticent.fleet.reporter import Held
from reticent.ledger.base import Unit
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.base import as_floats
from reticent.privacy import UNITS_PER_ONE

if TYPE_CHECKING:  # few are told
    from reticent.fleet.counted import Counted

ACCOUNT = "personalised-training"


class PersonalClient(Trainer[PersonalTask]):
    """One enrolled client of personalised trainings, see `Reporter`.

    Args:
        path: and what is not listed here, see `Reporter`.
        most: Largest cost that it allows a single report.
        unit: Unit of both: mu^2 for tasks with Gaussian noise, epsilon for Laplace; others are refused.
    """

    kind = PersonalTask
    account = ACCOUNT

    def __init__(
        self,
        path: str | os.PathLike[str],
        enrolment: Enrolment,
        signer: bytes,
        *,
        most: float,
        unit: Unit = Unit.MU2,
        **held: Unpack[Held],
    ) -> None:
        if unit not in (Unit.MU2, Unit.EPSILON):
            raise ParameterError("unit must be mu2 or epsilon")
        self._unit = unit
        super().__init__(path, enrolment, signer, most=most, **held)

    def _check(self, task: PersonalTask) -> None:
        if task.numbers > MOST_NUMBERS:
            raise ParameterError(f"a report must hold at most {MOST_NUMBERS} numbers, got {task.numbers}")
        trial = Sanitiser(task, np.zeros((task.hypotheses, task.dimensions)))
        if trial.unit is not self._unit:
            raise GuaranteeError(
                f"the task is charged in {trial.unit.value}, this client in {self._unit.value}"
            )
        self._checked_price(trial)
        try:
            trial.sample(np.zeros((1, task.numbers)))  # what cannot draw is not paid
        except Exception as error:
            raise GuaranteeError("the noise of the task cannot be drawn") from error

    def _price(self, task: PersonalTask) -> int:
        """Return the price of a round with unknown hypotheses: the farthest apart, at most the cap."""
        try:
            return min(Sanitiser(task).units, self._terms.cap)
        except ParameterError:  # more than any ledger holds
            return self._terms.cap

    def _checked_price(self, sanitiser: Sanitiser) -> int:
        price = sanitiser.units / UNITS_PER_ONE
        if price > self._most:
            raise GuaranteeError(
                f"a report costs {price:g} in {self._unit.value}, this client allows {self._most:g}"
            )
        return sanitiser.units

    def train(self, task: PersonalTask, number: int, hypotheses: Any, features: Any, targets: Any) -> bytes:
        """The report of a round on the client's own records. See `report`."""
        held = self._held(task)
        if held.model is None:
            raise ParameterError("task must have a model; give choice and update of your own to `report`")
        given = held.checked_hypotheses(hypotheses)
        rows, numbers = convert_records(features, targets, held.model.inputs)
        if not len(rows):
            return self.report(held, number, given, 0, given[0])
        own_records = Records(held.model, rows[None], numbers[None])
        own_index = np.zeros(1, dtype=np.int64)
        with np.errstate(all="ignore"):
            choice = int(chosen(own_records.losses(given, own_index))[0])
            updated = own_records.updated(given[[choice]], own_index, rate=held.rate, epochs=held.epochs)[0]
        return self.report(held, number, given, choice, updated)

    def report(self, task: PersonalTask, number: int, hypotheses: Any, choice: Any, updated: Any) -> bytes:
        """Return the report of a round: paid for, drawn, remembered, given out; the same one ever after.

        Args:
            task: one that was taken.
            number: Number of the round.
            hypotheses: Hypotheses of the round, shape (k, n), as the server sent them.
            choice: Index of the hypothesis that fits the client's data best.
            updated: its parameters after the local update, n numbers, whatever they are.

        Raises:
            BudgetExceeded: the lifetime budget does not hold the charge.
            ParticipationsSpent: the task allows no further round of this client.
            ReportForgotten: one has left, as the server says, and is not remembered.
            GuaranteeError: the charge is more than this client allows a report.
            ParameterError: there is no such task or round, or the hypotheses are not of the task.
        """
        held = self._held(task)
        number = held.checked_round(number)
        sanitiser = Sanitiser(held, hypotheses)

        def draw() -> list[int]:
            place, vector = _total(held, choice, updated, sanitiser)
            clipped = sanitiser.vectors(np.array([place]), vector[None, :])
            return [int(value) for value in sanitiser.sample(clipped, self._stream)[0]]

        values = self._once(held, number, draw, price=partial(self._checked_price, sanitiser))
        return wire.written(sanitiser, self._enrolment, number, values)

    def heed(self, task: PersonalTask, word: Counted) -> list[int]:
        """Take the server's word on the rounds that it has counted, see `Client.heed`.

        What left in a round that is not remembered may have been as dear as the task's reach allows: the
        server's word on the hypotheses would be no ground to pay less.
        """
        return self._heed(task, word)


def _total(task: PersonalTask, choice: Any, updated: Any, sanitiser: Sanitiser) -> tuple[int, Floats]:
    """A choice and parameters, whatever is given: silence would tell something about the data."""
    assert sanitiser.hypotheses is not None
    try:
        place = min(max(int(choice), 0), task.hypotheses - 1)
    except Exception:  # a total function of its data
        place = 0
    try:
        with np.errstate(all="ignore"):
            vector = as_floats(updated).reshape(-1)
    except Exception:  # the same
        return place, sanitiser.hypotheses[place]
    return place, vector if vector.size == task.dimensions else sanitiser.hypotheses[place]
