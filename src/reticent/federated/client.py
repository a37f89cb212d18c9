"""The client, which runs where the data are: clips, samples, privatises and pays for a gradient.

A client is a total function of its data (mathematics 4.1): odd and endless gradients are reported like any
other. It refuses only for what everybody may know: a task that is not signed, does not keep its guarantee or
asks for more than the owner allows; a round too many; a spent ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.errors import GuaranteeError, ParameterError
from reticent.federated import payload
from reticent.federated.models import Model
from reticent.federated.participation import ParticipationsSpent as ParticipationsSpent
from reticent.federated.participation import Trainer
from reticent.federated.record_conversion import convert_records
from reticent.federated.tasks import Task
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.base import as_floats
from reticent.mechanisms.numeric.one_bit import OneBit
from reticent.randomness import Stream, secure_or

if TYPE_CHECKING:  # few are told
    from reticent.fleet.counted import Counted

ACCOUNT = "training"


class Client(Trainer[Task]):
    """One enrolled client of trainings, see `Reporter`; what it may spend is epsilon."""

    kind = Task
    account = ACCOUNT

    def _check(self, task: Task) -> None:
        if task.epsilon > self._most:
            raise GuaranteeError(
                f"the task asks for epsilon {task.epsilon:g} a round, this client allows {self._most:g}"
            )
        try:
            self._symbols(task, 0, np.zeros(task.dimensions), secure_or(None))  # what cannot draw is not paid
        except Exception as error:
            raise GuaranteeError("the mechanism of the task cannot draw") from error

    def _price(self, task: Task) -> int:
        return task.units

    def train(self, task: Task, number: int, theta: Floats, features: Any, targets: Any) -> bytes:
        """Return the report of a round on the client's own records, of their mean gradient. See `report`.

        Args:
            task: one that was taken, with a model.
            number: Number of the round.
            theta: the parameters of the round, which are public.
            features: Features of the records, one row each, whatever they are.
            targets: Targets of the records.
        """
        held = self._held(task)
        if held.model is None:
            raise ParameterError("task must have a model; give the gradient of your own to `report`")
        gradient = _mean_gradient(held.model, held.checked_theta(theta), features, targets)
        return self.report(held, number, gradient)

    def report(self, task: Task, number: int, gradient: Any) -> bytes:
        """Return the report of a round: paid for, drawn, remembered, then given out; the same one ever after.

        Args:
            task: one that was taken.
            number: Number of the round.
            gradient: Gradient of the client's loss, d numbers, whatever they are.

        Raises:
            BudgetExceeded: the lifetime budget does not hold another report.
            ParticipationsSpent: the task allows no further round of this client.
            ReportForgotten: one has left, as the server says, and is not remembered.
            ParameterError: there is no such task or round.
        """
        held = self._held(task)
        number = held.checked_round(number)
        said = self._once(held, number, lambda: self._symbols(held, number, gradient, self._stream))
        return payload.written(held, self._enrolment, number, bytes(said))

    def _symbols(self, task: Task, number: int, gradient: Any, stream: Stream) -> bytes:
        """Return the part of a gradient that the task asks for, private and packed."""
        me = payload.client_number(self._enrolment)
        asked = task.asked(me, number)
        if task.codebook is not None:
            ball = task.clipped(_vector(gradient, task.dimensions))[None]
            return task.codebook.pack(task.codebook.sample(ball, stream, seeds=asked[:, 0]))
        units = task.clipped(_vector(gradient, task.dimensions))[asked[0]]
        if isinstance(task.mechanism, OneBit):
            drawn = task.mechanism.sample(units, stream, dither=task.dither(me, number, asked)[0])
        else:
            drawn = task.channel.sample(units, stream)
        return task.channel.pack(drawn)

    def heed(self, task: Task, word: Counted) -> list[int]:
        """Take the server's word on the rounds that it has counted: what is not remembered is never drawn.

        It is paid for all the same, since it has left, and is a participation. A liar can only silence.

        Returns:
            The rounds that were counted and that this client does not remember.
        """
        return self._heed(task, word)


def _vector(gradient: Any, dimensions: int) -> Floats:
    """A gradient as d doubles, whatever it is: silence would tell something about the data."""
    try:
        vector = as_floats(gradient).reshape(-1)
    except Exception:  # a total function of its data
        return np.zeros(dimensions)
    return vector if vector.size == dimensions else np.zeros(dimensions)


def _mean_gradient(model: Model, theta: Floats, features: Any, targets: Any) -> Any:
    """Return the mean gradient of the records, whatever they hold; None if there are none."""
    rows, numbers = convert_records(features, targets, model.inputs)
    with np.errstate(all="ignore"):
        return model.mean_gradient(theta, rows, numbers) if len(rows) else None
