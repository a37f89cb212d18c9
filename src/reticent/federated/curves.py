"""The course of a training, round by round, for screens, a page and files.

Loss and error come from a public hold-out. Where there is none, a simulation may take its own records, and
then they carry the mark "simulation only, not for release": no server of real clients could draw them
(mathematics 4.12), and a record can be worked out from a few of them. Files of such curves lie apart from the
model, for their owner alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from reticent.errors import ParameterError
from reticent.federated.models import Linear
from reticent.federated.simulation import Step
from reticent.federated.tasks import Task
from reticent.files import NOT_FOR_RELEASE
from reticent.mechanisms.base import Floats


class Origin(Enum):
    """The records that loss and error are computed on."""

    HOLD_OUT = "public hold-out"
    SIMULATION = NOT_FOR_RELEASE


@dataclass(frozen=True)
class Point:
    """One round.

    Attributes:
        number: Number of the round, from 1.
        clients: Number of clients who reported.
        noise: predicted: the root mean square over the coordinates of the averaged gradient's standard
            deviation.
        bytes_each: Bytes that one client sent.
        spent: the epsilon that the busiest client has spent by now.
        loss: the mean over the records that it is computed on, without the penalty.
        error: the share that is classified wrongly, or the mean squared error.
    """

    number: int
    clients: int
    noise: float
    bytes_each: int
    spent: float
    loss: float
    error: float

    def described(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass
class Curves:
    """All rounds so far of one training.

    Args:
        task: Task to learn.
        features: Features of the records that loss and error are computed on.
        targets: Targets of the same records.
        origin: Origin of these records.
    """

    task: Task
    features: Floats
    targets: Floats
    origin: Origin
    points: list[Point] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.task.model is None:
            raise ParameterError("task must have a model")

    @property
    def is_classifier(self) -> bool:
        """True if `Point.error` is a share of wrong answers; else it is a mean squared error."""
        return not isinstance(self.task.model, Linear)

    def add(self, step: Step, theta: Floats) -> Point:
        """Keep a round: what `simulation.simulate` calls after each."""
        model = self.task.model
        assert model is not None
        with np.errstate(all="ignore"):  # a training may run away
            loss = float(model.losses(theta, self.features, self.targets).mean())
            error = model.error(theta, self.features, self.targets)
        point = Point(step.number + 1, step.clients, step.noise, step.bytes_each, step.spent, loss, error)
        self.points.append(point)
        return point
