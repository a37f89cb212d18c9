"""A sound split: one noisy vector for each record, drawn once, paid for; the edge learns from these alone.

A record becomes one vector: its features, of length at most 1, in the block of its class, zeros in all other
blocks. Two records are at most 2 apart, whatever their labels, so one Gaussian draw protects features and
label together. The draw is remembered: all epochs, rounds and servers after it are post-processing.

What is learnt is the mean of each class, by steps of a quadratic loss whose slopes the edge tells: sums of
noisy vectors are all that it takes. A picture is of the class whose mean is nearest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.federated.on_device import ACCOUNT, PROTECTED, Home
from reticent.federated.record_conversion import convert_classes, convert_records
from reticent.federated.robust.grid import Grid, Update
from reticent.federated.softmax import Labels
from reticent.mechanisms.base import Floats
from reticent.mechanisms.gaussian import DiscreteGaussian
from reticent.privacy import GaussianDP, Neighbours
from reticent.privacy.budget import cost_units
from reticent.randomness import Stream
from reticent.store import Cid, tensors

MOST_RECORDS = 1 << 14  # of a home; more are left out
MOST_DIMENSIONS = 1 << 13
FINE = 1 << 16  # steps of a vector's grid in 1.0
_LIMIT = (1 << 31) - 1

Vectors = NDArray[np.int32]


@dataclass(frozen=True)
class NoisedTask:
    """The task of homes, and its cost for each of their records.

    Attributes:
        id: Id of the task, public.
        inputs: numbers of a record's features, after the public front.
        classes: Number of classes.
        grid: Grid of the updates.
        rate: Rate of the one step of a round; 1 goes all the way to the home's own means.
        mu: Value of mu for the vectors, once and for all.

    Privacy: whatever the edge, miners and everybody after them see keeps mu-GDP for one record of the home,
        features and label, replaced by any other, against all of them together and everybody who knows all
        other records. How many records a home has is not protected, nor is what is common to many homes.
    """

    id: str
    inputs: int
    classes: int
    grid: Grid
    rate: float
    mu: float

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not (
            self.id.isalnum() and self.id.isascii() and len(self.id) <= 64
        ):
            raise ParameterError("id must be 1 to 64 letters and digits")
        whole("classes", self.classes, low=2, high=1024)
        whole("inputs", self.inputs, low=1, high=MOST_DIMENSIONS // self.classes)
        if self.grid.dimensions != self.dimensions:
            raise ParameterError(
                f"grid must have the {self.dimensions} dimensions of the model, got {self.grid.dimensions}"
            )
        real("rate", self.rate, low=0.0, high=1.0, open_low=True)
        real("mu", self.mu, low=1e-3, high=100.0)

    @property
    def dimensions(self) -> int:
        """Numbers of a vector, and of the model: a block for each class."""
        return self.classes * self.inputs

    @cached_property
    def mechanism(self) -> DiscreteGaussian:
        """The noise of a vector.

        Of the same class two vectors are at most 2 apart, of two classes sqrt(2). Rounding moves each of at
        most `inputs` numbers by one step of the grid in a difference, or 2 `inputs` by half a step.
        """
        apart = math.ceil(2 * FINE * (1 + 2.0**-40) + math.sqrt(self.inputs)) + 1
        return DiscreteGaussian(
            apart, Fraction(self.mu) ** 2, unit=PROTECTED, neighbours=Neighbours.REPLACE_ONE
        )

    @property
    def units(self) -> int:
        """The cost of the vectors for each record, in mu^2, rounded up. Rounds cost nothing more."""
        return cost_units(self.mechanism.information)

    @property
    def guarantee(self) -> GaussianDP:
        """The guarantee of everything together."""
        return self.mechanism.guarantee

    def looks(self, records: int) -> tensors.Looks:
        """Return the types and shapes in the file of vectors."""
        return {"vectors": ("I32", (records, self.dimensions))}

    def placed(self, features: Any, labels: Any) -> NDArray[np.int64]:
        """Return each record as one vector of whole numbers, whatever the record holds."""
        rows, classes = self._records(features, labels)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        clipped = np.rint(rows / np.maximum(lengths, 1.0) * FINE).astype(np.int64)
        vectors = np.zeros((len(rows), self.classes, self.inputs), dtype=np.int64)
        vectors[np.arange(len(rows)), classes] = clipped
        return vectors.reshape(len(rows), self.dimensions)

    def noised(self, features: Any, labels: Any, rng: Stream | None) -> Vectors:
        """Noisy vectors. They are what is paid for: call `NoisedHome.vectors`."""
        quiet = self.placed(features, labels)
        if not quiet.size:
            return np.zeros((0, self.dimensions), dtype=np.int32)
        return np.clip(self.mechanism.perturb(quiet, rng), -_LIMIT, _LIMIT).astype(np.int32)

    def slopes(self, theta: Floats, vectors: Vectors) -> Floats:
        """The slopes of sum_c |theta_c - m_c|^2 / 2, m being the means that the vectors tell. The edge's.

        Classes are taken to be equally frequent: how many records of a class there are is nobody's business.
        """
        total = vectors.sum(axis=0, dtype=np.int64).astype(np.float64)
        return np.asarray(theta - total * (self.classes / FINE / max(len(vectors), 1)))

    def update(self, slopes: Floats) -> Update:
        """The update of a round, by the slopes at its model."""
        return self.grid.placed(-self.rate * np.asarray(slopes, dtype=np.float64))

    def predicted(self, theta: Floats, features: Floats) -> Labels:
        """The class whose mean is nearest."""
        return nearest(theta, features, self.classes)

    def _records(self, features: Any, labels: Any) -> tuple[Floats, Labels]:
        """Return the records as rows and classes, each by what it holds itself."""
        rows, numbers = convert_records(features, labels, self.inputs, max_records=MOST_RECORDS)
        return rows, convert_classes(numbers, self.classes)


def nearest(theta: Floats, features: Floats, classes: int) -> Labels:
    """The class whose mean is nearest to each row of features."""
    means = np.asarray(theta, dtype=np.float64).reshape(classes, -1)
    return np.asarray((features @ means.T - 0.5 * np.square(means).sum(axis=1)).argmax(axis=1))


class NoisedHome(Home):
    """A home that gives noisy vectors to an edge: drawn once for a task, and the same ever after.

    It pays from the account of `on_device.Home`, so both ways of training share one lifetime.
    """

    def vectors(self, task: NoisedTask, features: Any, labels: Any) -> Vectors:
        """Return the noisy vectors of the home's records: paid for, drawn, recorded; the same ever after.

        Args:
            task: Task that is asked.
            features: Features of the records, after the public front, a row each, whatever they are.
            labels: their classes.

        Raises:
            BudgetExceeded: the ledger does not hold it; nothing was drawn.
            ContentMissing: the folder was lost. They are not drawn again: two draws must not both be seen.
        """
        key = f"{task.id}/vectors"
        held = list(self.ledger.recorded(ACCOUNT, key) or ())
        if not held:

            def drawn() -> list[int]:
                found = task.noised(features, labels, self._rng)
                cid = tensors.put(self.store, {"vectors": found})
                return [*len(found).to_bytes(4, "big"), *bytes(cid)]

            held = self._paid(key, task.units, drawn)
        given = bytes(held)
        looks = task.looks(int.from_bytes(given[:4], "big"))
        return np.asarray(tensors.get(self.store, Cid.of_bytes(given[4:]), looks)["vectors"])
