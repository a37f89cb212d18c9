"""What runs where the data are: a gradient, clipped, sampled, made private, paid for; then sent, always.

A client is a total function of its data (MATH.md 7.1): odd and endless gradients are reported like any other.
It refuses only for what everybody may know: a task that is not signed, does not keep its guarantee or asks
for more than the owner allows; a round too many; a spent ledger.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Any

import numpy as np

from reticent.arguments import real
from reticent.errors import GuaranteeError, ParameterError, ReportForgotten
from reticent.federated import payload
from reticent.federated.models import Model
from reticent.federated.participation import Participations
from reticent.federated.participation import ParticipationsSpent as ParticipationsSpent
from reticent.federated.tasks import Task, verified
from reticent.fleet.counted import FORGOTTEN, Counted
from reticent.fleet.enrolment import Enrolment
from reticent.ledger.base import Amount, Terms, Unit
from reticent.ledger.device.ledger import Budgeted
from reticent.ledger.device.marks import Marks
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.base import as_floats
from reticent.mechanisms.numeric.one_bit import OneBit
from reticent.privacy import Neighbours
from reticent.privacy.budget import cap_units
from reticent.randomness import Stream, secure_or

ACCOUNT = "training"


class Client(Budgeted):
    """One enrolled client and its lifetime budget.

    Args:
        path: the client's ledger, one file; made if there is none.
        enrolment: what the operator gave it.
        signer: the public key (32 bytes) whose tasks it trains.
        lifetime: the epsilon that its reports may spend in all, over all tasks; fixed with the ledger.
        most: the epsilon that it allows a single report.
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
        most: float = 4.0,
        rng: Stream | None = None,
        marks: Marks | None = None,
    ) -> None:
        self._enrolment, self._signer = enrolment, signer
        self._most = real("most", most, low=0.0, open_low=True)
        self._stream = secure_or(rng)
        cap = cap_units(real("lifetime", lifetime, low=0.0, open_low=True))
        self._guard = threading.Lock()
        self._taken: dict[bytes, Task] = {}
        self._known: dict[bytes, Participations] = {}  # by task
        super().__init__(
            path,
            Terms(ACCOUNT, Unit.EPSILON, Neighbours.ANY_TWO_VALUES, "the person behind this client", cap),
            enrolment.key,
            marks,
        )

    def take(self, file: bytes) -> Task:
        """Take part in a signed task, if it keeps what it says and asks no more than is allowed.

        Raises:
            GuaranteeError, ParameterError: it does not; nothing was sent or spent.
        """
        task = verified(file, self._signer)
        if task.epsilon > self._most:
            raise GuaranteeError(
                f"the task asks for epsilon {task.epsilon:g} a round, this client allows {self._most:g}"
            )
        try:
            self._symbols(task, 0, np.zeros(task.dimensions), secure_or(None))  # what cannot draw is not paid
        except Exception as error:
            raise GuaranteeError("the mechanism of the task cannot draw") from error
        self._taken[task.id] = task
        return task

    def train(self, task: Task, number: int, theta: Floats, features: Any, targets: Any) -> bytes:
        """The report of a round on the client's own records: the mean of their gradients. See `report`.

        Args:
            task: one that was taken, with a model.
            number: of the round.
            theta: the parameters of the round, which are public.
            features: of the records, one row each, whatever they are.
            targets: of the records.
        """
        held = self._held(task)
        if held.model is None:
            raise ParameterError("task must have a model; give the gradient of your own to `report`")
        gradient = _mean_gradient(held.model, held.checked_theta(theta), features, targets)
        return self.report(held, number, gradient)

    def report(self, task: Task, number: int, gradient: Any) -> bytes:
        """The report of a round: paid for, drawn, remembered, then given out. The same one, ever after.

        Args:
            task: one that was taken.
            number: of the round.
            gradient: of the client's loss, d numbers, whatever they are.

        Raises:
            BudgetExceeded: the lifetime budget does not hold another report.
            ParticipationsSpent: the task allows no further round of this client.
            ReportForgotten: one has left, as the server says, and is not remembered.
            ParameterError: there is no such task or round.
        """
        held = self._held(task)
        number = held.checked_round(number)
        with self._guard:
            remembered = self._rounds(held).remembered(number)
            if self._is_forgotten(self._head(held), number, remembered):
                raise ReportForgotten(f"round {number} of {held.name}: {FORGOTTEN}")
            symbols = self._paid(held, number, gradient) if remembered is None else bytes(remembered)
        return payload.written(held, self._enrolment, number, symbols)

    def _held(self, task: Task) -> Task:
        held = self._taken.get(task.id)
        if held is None:
            raise ParameterError(f"task must be one that this client took, got {task.name}")
        return held

    def _head(self, task: Task) -> str:
        return f"{task.id.hex()}/{self._enrolment.id.hex()}"

    def _rounds(self, task: Task) -> Participations:
        if task.id not in self._known:
            head = self._head(task)
            self._known[task.id] = Participations(
                self.ledger, ACCOUNT, Unit.EPSILON, head, task.participations
            )
        return self._known[task.id]

    def _paid(self, task: Task, number: int, gradient: Any) -> bytes:
        def draw() -> bytes:
            return self._symbols(task, number, gradient, self._stream)

        return bytes(self._rounds(task).paid(number, task.units, draw))

    def _symbols(self, task: Task, number: int, gradient: Any, stream: Stream) -> bytes:
        """The sampled coordinates of a gradient, private and packed."""
        me = payload.client_number(self._enrolment)
        asked = task.asked(me, number)
        units = task.clipped(_vector(gradient, task.dimensions))[asked[0]]
        if isinstance(task.mechanism, OneBit):
            drawn = task.mechanism.sample(units, stream, dither=task.dither(me, number, asked)[0])
        else:
            drawn = task.mechanism.sample(units, stream)
        return task.mechanism.pack(drawn)

    def heed(self, task: Task, word: Counted) -> list[int]:
        """Take the server's word on the rounds that it has counted: what is not remembered is never drawn.

        It is paid for all the same, since it has left, and is a participation. A liar can only silence.

        Returns:
            The rounds that were counted and that this client does not remember.
        """
        held = self._held(task)
        word.check(f"training:{held.id.hex()}", self._enrolment)
        numbers = [held.checked_round(one) for one in word.periods]
        amount = Amount(held.units, Unit.EPSILON, Neighbours.ANY_TWO_VALUES)
        with self._guard:
            rounds = self._rounds(held)
            lost = [one for one in numbers if rounds.settle(one, partial(self._settle, amount))]
            self._close(self._head(held), word.closed)
        return lost

    @property
    def spent(self) -> float:
        """The epsilon that this client's reports have spent in all."""
        return self.ledger.balance(ACCOUNT).spent / 1e12


def _vector(gradient: Any, dimensions: int) -> Floats:
    """A gradient as d doubles, whatever it is: silence would tell something about the data."""
    try:
        vector = as_floats(gradient).reshape(-1)
    except Exception:  # a total function of its data
        return np.zeros(dimensions)
    return vector if vector.size == dimensions else np.zeros(dimensions)


def _mean_gradient(model: Model, theta: Floats, features: Any, targets: Any) -> Any:
    """Of whatever the records are; None of nothing."""
    try:
        x, y = as_floats(features).reshape(-1, model.inputs), as_floats(targets).reshape(-1)
        with np.errstate(all="ignore"):
            return model.mean_gradient(theta, x, y) if x.size else None
    except Exception:  # a total function of its data
        return None
