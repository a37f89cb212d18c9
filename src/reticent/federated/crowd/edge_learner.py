"""Updates of a home by way of an edge: mode noised, where what leaves the phone is private already."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reticent.errors import ParameterError
from reticent.federated.crowd.customer import DeviceLearner
from reticent.federated.crowd.modes import NoisedSplit
from reticent.federated.crowd.task_text import CrowdTask
from reticent.federated.robust.averages import Integers
from reticent.federated.robust.grid import Update
from reticent.federated.softmax import Labels
from reticent.federated.split.front import Front
from reticent.federated.split.line import Line, noised_update
from reticent.federated.split.noised import NoisedHome
from reticent.mechanisms.base import Floats
from reticent.store import Cid, Store


class EdgeLearner(DeviceLearner):
    """Updates of a home, in mode noised by an edge, in mode device by itself.

    Args:
        home: Ledger and folder of the home.
        records: Function that reads the home's features by rows and classes, for so many numbers each.
        store: Store that has the front of a task.
        edge: Address of the edge, http(s)://HOST:PORT; None without.

    Privacy: see `split.noised.NoisedTask` and `on_device.HomeTask`. Mode documented, which protects no
        record, is refused.
    """

    def __init__(
        self,
        home: NoisedHome,
        records: Callable[[int], tuple[Floats, Labels]],
        store: Store,
        edge: str | None,
    ) -> None:
        super().__init__(home, records)
        self._noised_home, self._fronts, self._edge = home, store, edge

    def check(self, identifier: str, task: CrowdTask) -> None:
        """Refuse a task that cannot be trained or paid; see `DeviceLearner`."""
        training = task.training
        if not isinstance(training, NoisedSplit):
            super().check(identifier, task)
            return
        self._check_edge()
        self._records(training.side**2)
        units = training.noised_task(identifier, task.grid).units
        self._noised_home.check_price(identifier, "vectors", units)

    def _check_edge(self) -> str:
        if self._edge is None:
            raise ParameterError("edge must be given for a task of mode noised")
        return self._edge

    def update(self, identifier: str, task: CrowdTask, number: int, model: Integers) -> Update:
        """Return the update of a round. Raises BudgetExceeded, and then nothing was drawn."""
        training = task.training
        if not isinstance(training, NoisedSplit):
            return super().update(identifier, task, number, model)
        edge = self._check_edge()
        front = Front.get(self._fronts, Cid.parse(training.front), training.side, training.inputs)
        pictures, labels = self._records(training.side**2)
        asked = training.noised_task(identifier, task.grid)
        vectors = self._noised_home.vectors(asked, front.features(pictures), labels)
        with Line(edge, str(task.cid)) as line:
            found = noised_update(asked, line, vectors, np.asarray(task.grid.values(model)))
            line.end()
        return found
