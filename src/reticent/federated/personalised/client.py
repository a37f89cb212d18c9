"""What runs where the data are: choose a hypothesis, improve it, clip, pay, add noise; then send, always.

A client is a total function of its data (MATH.md 7.1). It refuses only for what everybody may know: a task
that is not signed or costs more than the owner allows, hypotheses beyond the task's reach, a round too many,
a spent ledger.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Any

import numpy as np

from reticent.arguments import real
from reticent.errors import GuaranteeError, ParameterError, ReportForgotten
from reticent.federated.participation import Participations
from reticent.federated.personalised import wire
from reticent.federated.personalised.learners import Records, chosen
from reticent.federated.personalised.noise import Sanitiser
from reticent.federated.personalised.tasks import MOST_NUMBERS, PersonalTask, verified
from reticent.fleet.counted import FORGOTTEN, Counted
from reticent.fleet.enrolment import Enrolment
from reticent.ledger.base import Amount, Terms, Unit
from reticent.ledger.device.ledger import Budgeted
from reticent.ledger.device.marks import Marks
from reticent.mechanisms.base import Floats
from reticent.privacy import UNITS_PER_ONE, Neighbours
from reticent.privacy.budget import cap_units
from reticent.randomness import Stream, secure_or

ACCOUNT = "personalised-training"


class PersonalClient(Budgeted):
    """One enrolled client and its lifetime budget.

    Args:
        path: the client's ledger, one file; made if there is none.
        enrolment: what the operator gave it.
        signer: the public key (32 bytes) whose tasks it trains.
        lifetime: what its reports may spend in all, over all tasks; fixed with the ledger.
        most: what it allows a single report.
        unit: of both: mu^2 for tasks with Gaussian noise, epsilon for Laplace; others are refused.
        rng: None for secure randomness; a SimulationStream in tests and simulations.
        marks: where it is remembered what has left, apart from the ledger; None for the usual place.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        enrolment: Enrolment,
        signer: bytes,
        *,
        lifetime: float,
        most: float,
        unit: Unit = Unit.MU2,
        rng: Stream | None = None,
        marks: Marks | None = None,
    ) -> None:
        if unit not in (Unit.MU2, Unit.EPSILON):
            raise ParameterError("unit must be mu2 or epsilon")
        self._enrolment, self._signer, self._unit = enrolment, signer, unit
        self._most = real("most", most, low=0.0, open_low=True)
        self._stream = secure_or(rng)
        cap = cap_units(real("lifetime", lifetime, low=0.0, open_low=True))
        self._guard = threading.Lock()
        self._taken: dict[bytes, PersonalTask] = {}
        self._known: dict[bytes, Participations] = {}  # by task
        super().__init__(
            path,
            Terms(ACCOUNT, unit, Neighbours.ANY_TWO_VALUES, "the person behind this client", cap),
            enrolment.key,
            marks,
        )

    def take(self, file: bytes) -> PersonalTask:
        """Take part in a signed task, if it may cost no more than is allowed.

        Raises:
            GuaranteeError, ParameterError: not so; nothing was sent or spent.
        """
        task = verified(file, self._signer)
        if task.numbers > MOST_NUMBERS:
            raise ParameterError(f"a report must hold at most {MOST_NUMBERS} numbers, got {task.numbers}")
        trial = Sanitiser(task, np.zeros((task.hypotheses, task.dimensions)))
        if trial.unit is not self._unit:
            raise GuaranteeError(
                f"the task is charged in {trial.unit.value}, this client in {self._unit.value}"
            )
        self._check_price(trial)
        try:
            trial.sample(np.zeros((1, task.numbers)))  # what cannot draw is not paid
        except Exception as error:
            raise GuaranteeError("the noise of the task cannot be drawn") from error
        self._taken[task.id] = task
        return task

    def _check_price(self, sanitiser: Sanitiser) -> None:
        price = sanitiser.units / UNITS_PER_ONE
        if price > self._most:
            raise GuaranteeError(
                f"a report costs {price:g} in {self._unit.value}, this client allows {self._most:g}"
            )

    def train(self, task: PersonalTask, number: int, hypotheses: Any, features: Any, targets: Any) -> bytes:
        """The report of a round on the client's own records. See `report`."""
        held = self._held(task)
        if held.model is None:
            raise ParameterError("task must have a model; give choice and update of your own to `report`")
        given = held.checked_hypotheses(hypotheses)
        try:
            with np.errstate(all="ignore"):
                x = np.asarray(features, dtype=np.float64).reshape(1, -1, held.model.inputs)
                mine = Records(held.model, x, np.asarray(targets, dtype=np.float64).reshape(1, -1))
                me = np.zeros(1, dtype=np.int64)
                choice = int(chosen(mine.losses(given, me))[0])
                updated = mine.updated(given[[choice]], me, rate=held.rate, epochs=held.epochs)[0]
        except Exception:  # a total function of its data
            choice, updated = 0, given[0]
        return self.report(held, number, given, choice, updated)

    def report(self, task: PersonalTask, number: int, hypotheses: Any, choice: Any, updated: Any) -> bytes:
        """The report of a round: paid for, drawn, remembered, then given out. The same one, ever after.

        Args:
            task: one that was taken.
            number: of the round.
            hypotheses: of the round, shape (k, n), as the server sent them.
            choice: which of them fits the client's data best.
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

        with self._guard:
            rounds = self._rounds(held)
            values = rounds.remembered(number)
            if self._is_forgotten(self._head(held), number, values):
                raise ReportForgotten(f"round {number} of {held.name}: {FORGOTTEN}")
            if values is None:
                self._check_price(sanitiser)
                values = rounds.paid(number, sanitiser.units, draw)
        return wire.written(sanitiser, self._enrolment, number, values)

    def _held(self, task: PersonalTask) -> PersonalTask:
        held = self._taken.get(task.id)
        if held is None:
            raise ParameterError(f"task must be one that this client took, got {task.name}")
        return held

    def _head(self, task: PersonalTask) -> str:
        return f"{task.id.hex()}/{self._enrolment.id.hex()}"

    def _rounds(self, task: PersonalTask) -> Participations:
        if task.id not in self._known:
            head = self._head(task)
            self._known[task.id] = Participations(self.ledger, ACCOUNT, self._unit, head, task.participations)
        return self._known[task.id]

    def heed(self, task: PersonalTask, word: Counted) -> list[int]:
        """Take the server's word on the rounds that it has counted: what is not remembered is never drawn.

        It is paid for all the same, since it has left, and is a participation. A liar can only silence.

        Returns:
            The rounds that were counted and that this client does not remember.
        """
        held = self._held(task)
        word.check(f"training:{held.id.hex()}", self._enrolment)
        numbers = [held.checked_round(one) for one in word.periods]
        usual = Sanitiser(held, np.zeros((held.hypotheses, held.dimensions)))
        amount = Amount(usual.units, self._unit, Neighbours.ANY_TWO_VALUES)
        with self._guard:
            rounds = self._rounds(held)
            lost = [one for one in numbers if rounds.settle(one, partial(self._settle, amount))]
            self._close(self._head(held), word.closed)
        return lost

    @property
    def spent(self) -> float:
        """What this client's reports have spent in all."""
        return self.ledger.balance(ACCOUNT).spent / UNITS_PER_ONE


def _total(task: PersonalTask, choice: Any, updated: Any, sanitiser: Sanitiser) -> tuple[int, Floats]:
    """A choice and parameters, whatever is given: silence would tell something about the data."""
    assert sanitiser.hypotheses is not None
    try:
        place = min(max(int(choice), 0), task.hypotheses - 1)
    except Exception:  # a total function of its data
        place = 0
    try:
        with np.errstate(all="ignore"):
            vector = np.asarray(updated, dtype=np.float64).reshape(-1)
    except Exception:  # the same
        return place, sanitiser.hypotheses[place]
    return place, vector if vector.size == task.dimensions else sanitiser.hypotheses[place]
