"""Training at home: full-batch steps, each record's gradient clipped, Gaussian noise; paid for, then drawn.

A home learns on all of its records in every step and adds noise to every step's sum, so whatever it uploads
is private, for each record, over all rounds together. Noise is drawn once a round: what was drawn is kept in
a folder of the home's own, its CID is recorded in the home's ledger beside the payment, and the same file is
given out ever after. Only what `update` returned may leave the folder.

A home is a total function of its records: odd ones are learnt like any other. It refuses for what everybody
may know: a round that there is not, a model of another shape, a spent ledger.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.federated.record_conversion import convert_classes, convert_records
from reticent.federated.robust.grid import Grid, Update
from reticent.federated.softmax import Labels, Softmax
from reticent.ledger.base import Amount, Terms, Unit
from reticent.ledger.device.budgeted import Budgeted
from reticent.ledger.device.marks import Marks
from reticent.mechanisms.base import Floats
from reticent.mechanisms.gaussian import DiscreteGaussian
from reticent.privacy import GaussianDP, Neighbours
from reticent.privacy.budget import cap_units, cost_units
from reticent.privacy.rounding import sqrt_up
from reticent.randomness import Stream
from reticent.store import Cid, Directory, tensors

ACCOUNT = "home-training"
PROTECTED = "one record of a home"
MOST_RECORDS = 1 << 16  # of a home; more are left out
MOST_NOISE = 1 << 24  # numbers that are drawn for a round: some minutes
_FINE = 1 << 20  # steps of the sum's grid in the clip


@dataclass(frozen=True)
class HomeTask:
    """The task that a home is asked to learn, and its cost for each of the home's records.

    Attributes:
        id: Id of the task, public.
        model: Model to learn.
        grid: Grid of the updates.
        clip: the longest gradient of one record that counts.
        records: Number by which the sum is divided: public, about what a home has.
        rate: Rate of a step.
        steps: Steps of a round, each over all records.
        rounds: Rounds of the task.
        mu: Value of mu for all rounds together.

    Privacy: all updates together keep mu-GDP for one record of the home, replaced by any other, against
        everybody who sees them and knows all other records. How many records a home has is not protected.
    """

    id: str
    model: Softmax
    grid: Grid
    clip: float
    records: int
    rate: float
    steps: int
    rounds: int
    mu: float

    def __post_init__(self) -> None:
        if (
            not isinstance(self.id, str)
            or not self.id.isalnum()
            or not self.id.isascii()
            or len(self.id) > 64
        ):
            raise ParameterError("id must be 1 to 64 letters and digits")
        if self.model.dimensions != self.grid.dimensions:
            raise ParameterError(
                f"grid must have the {self.model.dimensions} dimensions of the model, "
                f"got {self.grid.dimensions}"
            )
        real("clip", self.clip, low=1e-6, high=1e6)
        whole("records", self.records, low=1, high=MOST_RECORDS)
        real("rate", self.rate, low=0.0, high=1e6, open_low=True)
        whole("steps", self.steps, low=1, high=10_000)
        if self.steps * self.model.dimensions > MOST_NOISE:
            raise ParameterError(
                f"steps times the {self.model.dimensions} dimensions of the model must be at most "
                f"{MOST_NOISE}, got {self.steps * self.model.dimensions}"
            )
        whole("rounds", self.rounds, low=1, high=10_000)
        real("mu", self.mu, low=1e-3, high=100.0)

    @cached_property
    def mechanism(self) -> DiscreteGaussian:
        """The noise of one step.

        Two sums of clipped gradients are 2 clip apart. Doubles add at most 2 n^2 2^-53 clip, less than one
        step of the grid for n <= 2^16, and rounding to the grid a half in each number of either sum.
        """
        apart = math.ceil(2 * _FINE * (1 + 2.0**-40) + math.sqrt(self.model.dimensions)) + 2
        share = Fraction(self.mu) ** 2 / (self.steps * self.rounds)
        return DiscreteGaussian(apart, share, unit=PROTECTED, neighbours=Neighbours.REPLACE_ONE)

    @property
    def units(self) -> int:
        """The cost of a round, in mu^2: all of its steps, rounded up."""
        return cost_units(self.mechanism.information * self.steps)

    @property
    def guarantee(self) -> GaussianDP:
        """The guarantee of all rounds together."""
        mu = sqrt_up(self.mechanism.information * self.steps * self.rounds)
        return GaussianDP(mu, unit=PROTECTED, neighbours=Neighbours.REPLACE_ONE)

    @property
    def looks(self) -> tensors.Looks:
        """The types and shapes in the file of an update."""
        return {"update": ("I32", (self.grid.dimensions,))}

    def trained(self, theta: Floats, features: Any, labels: Any, rng: Stream | None) -> Update:
        """The update of a round. It is what is paid for: call `Home.update`."""
        images, digits = self._records(features, labels)
        at = theta.copy()
        for _ in range(self.steps):
            total = self.model.clipped_sum(at, images, digits, self.clip)
            drawn = self.mechanism.perturb(np.rint(total * (_FINE / self.clip)).astype(np.int64), rng)
            slope = drawn * (self.clip / _FINE / self.records)
            at = at - self.rate * (slope + self.model.l2 * at)
        return self.grid.placed(at - theta)

    def _records(self, features: Any, labels: Any) -> tuple[Floats, Labels]:
        """Return the records as rows and classes, each by what it holds itself."""
        rows, numbers = convert_records(features, labels, self.model.inputs, max_records=MOST_RECORDS)
        return rows, convert_classes(numbers, self.model.classes)


class Home(Budgeted):
    """A home that takes part: its ledger, and the folder of what it drew.

    Args:
        path: its ledger, one file; made if there is none.
        folder: Folder of its updates; its own, which nobody else reads.
        key: its secret, 32 bytes, which pays by one ledger only.
        lifetime: mu^2 that its trainings may spend in all, over all tasks; fixed with the ledger.
        rng: None for secure randomness; a SimulationStream in tests and simulations.
        marks: Place where it is remembered what has left; None for the usual place.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        folder: str | os.PathLike[str],
        key: bytes,
        *,
        lifetime: float,
        rng: Stream | None = None,
        marks: Marks | None = None,
    ) -> None:
        cap = cap_units(real("lifetime", lifetime, low=0.0, open_low=True))
        self.store, self._rng = Directory(folder), rng
        terms = Terms(ACCOUNT, Unit.MU2, Neighbours.REPLACE_ONE, PROTECTED, cap)
        super().__init__(path, terms, key, marks)

    def update(self, task: HomeTask, number: int, theta: Any, features: Any, labels: Any) -> Cid:
        """Return the update of a round: paid for, drawn, recorded; the same one ever after, kept in `store`.

        Args:
            task: Task that is asked.
            number: Number of the round.
            theta: the model of the round in grid steps, public.
            features: Features of the home's records, a row each, whatever they are.
            labels: their classes.

        Raises:
            BudgetExceeded: the ledger does not hold it; nothing was drawn.
            ParameterError: there is no such round or model.
        """
        whole("round", number, low=0, high=task.rounds - 1)
        key = f"{task.id}/{number}"
        held = self.ledger.recorded(ACCOUNT, key)
        if held:
            return Cid.of_bytes(bytes(held))
        start = self._start(task, theta)

        def drawn() -> list[int]:
            update = task.trained(start, features, labels, self._rng)
            return list(bytes(tensors.put(self.store, {"update": update})))

        return Cid.of_bytes(bytes(self._paid(key, task.units, drawn)))

    def check_price(self, identifier: str, what: int | str, units: int) -> None:
        """Refuse what the ledger cannot pay: a round of a task, or its "vectors". What is paid costs nothing.

        Raises:
            BudgetExceeded: it cannot.
        """
        self._check_holds(ACCOUNT, units, f"{identifier}/{what}")

    def _paid(self, key: str, units: int, drawn: Callable[[], list[int]]) -> list[int]:
        """Pay, draw, record; what was drawn and not recorded, by a crash, has not left and is drawn anew."""
        grant = self.ledger.request(ACCOUNT, key, Amount(units, Unit.MU2, Neighbours.REPLACE_ONE))
        values = drawn()
        self.ledger.fulfil(grant.pending[0].number, values)
        return values

    def file(self, task: HomeTask, cid: Cid) -> Update:
        """An update that was drawn.

        Raises:
            ContentMissing: the folder was lost. It is not drawn again: two draws must not both be seen.
        """
        return np.asarray(tensors.get(self.store, cid, task.looks)["update"])

    def _start(self, task: HomeTask, theta: Any) -> Floats:
        given = np.asarray(theta)
        if given.dtype.kind != "i" or given.shape != (task.grid.dimensions,):
            raise ParameterError(f"theta must be {task.grid.dimensions} whole numbers of grid steps")
        return task.grid.values(given)
