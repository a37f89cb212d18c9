"""The common part of training tasks of all kinds: a model, and rounds of which a client may be in some."""

from __future__ import annotations

from dataclasses import dataclass

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.federated.models import Model
from reticent.fleet.published import Published


class InRounds(Published):
    """A text with rounds; each kind has them among its own fields."""

    rounds: int
    participations: int


@dataclass(frozen=True)
class AnyTask(InRounds):
    """A task of any kind.

    Args:
        name: and `version` and `purpose`, see `Published`.
        model: Model to learn; None if clients bring a model of their own.
        dimensions: Number of dimensions of the model.
    """

    what = "task"
    study = "training"

    model: Model | None
    dimensions: int

    def _check_dimensions(self) -> None:
        if self.model is not None and self.model.dimensions != self.dimensions:
            raise ParameterError(
                f"dimensions must be {self.model.dimensions} as of the model, got {self.dimensions}"
            )

    def checked_round(self, number: int) -> int:
        """Return the number of a round of this task, or raise an error."""
        return whole("round", number, low=0, high=self.rounds - 1)
