"""What training tasks of all kinds have in common: a model, and rounds of which one client may be in some."""

from __future__ import annotations

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.federated.models import Model
from reticent.fleet.published import Published


class AnyTask(Published):
    """A task of any kind."""

    what = "task"
    study = "training"

    model: Model | None
    dimensions: int
    rounds: int
    participations: int

    def _check_dimensions(self) -> None:
        if self.model is not None and self.model.dimensions != self.dimensions:
            raise ParameterError(
                f"dimensions must be {self.model.dimensions} as of the model, got {self.dimensions}"
            )

    def checked_round(self, number: int) -> int:
        """The number of a round of this task, or an error."""
        return whole("round", number, low=0, high=self.rounds - 1)
