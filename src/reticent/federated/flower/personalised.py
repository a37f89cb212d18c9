"""Personalised training in Flower: a mod and a strategy, as for LDP-FedSGD.

The app gets all hypotheses at once: arrays with one more axis in front, of k. It returns the one that it
chose and improved, without that axis, and a ConfigRecord with "choice", its number. The parameters travel as
doubles: clients work out from them what a report costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, RecordDict

from reticent.errors import ParameterError
from reticent.federated.flower import records
from reticent.federated.flower.clients import personal_of_node
from reticent.federated.flower.mod import ReportMod
from reticent.federated.flower.strategy import ReportStrategy
from reticent.federated.personalised import tasks, wire
from reticent.federated.personalised.client import PersonalClient
from reticent.federated.personalised.noise import Sanitiser
from reticent.federated.personalised.server import PersonalRound, PersonalTraining
from reticent.federated.personalised.tasks import PersonalTask
from reticent.fleet.operator import Operator
from reticent.mechanisms.base import Floats
from reticent.privacy import UNITS_PER_ONE

CHOICE = "choice"


def stacked(arrays: ArrayRecord, hypotheses: int) -> Floats:
    """The hypotheses of a record, one row each."""
    rows = [array.numpy().astype(np.float64) for array in arrays.values()]
    if not rows or any(row.ndim == 0 or len(row) != hypotheses for row in rows):
        raise ParameterError(f"arrays must have a first axis of {hypotheses}")
    return np.concatenate([row.reshape(hypotheses, -1) for row in rows], axis=1)


def unstacked(hypotheses: Floats, like: ArrayRecord) -> ArrayRecord:
    """Hypotheses in the names and shapes of a record, as doubles."""
    found, place = {}, 0
    for name, array in like.items():
        size = math.prod(array.shape[1:])
        part = hypotheses[:, place : place + size].reshape(array.shape)
        found[name] = Array(np.ascontiguousarray(part))
        place += size
    return ArrayRecord(found)


class PersonalMod(ReportMod):
    """Personalised training. `personal_mod` is the one for SuperNodes.

    Args:
        client: the node's client; opened for each message and closed again.
        public_holdout: True if the app evaluates on public data only, so that its answers may leave.
    """

    def __init__(
        self, client: Callable[[Context], PersonalClient] = personal_of_node, *, public_holdout: bool = False
    ) -> None:
        super().__init__(client, public_holdout=public_holdout)

    def _asked(self, client: PersonalClient, content: RecordDict) -> _Asked:
        file, number, received = records.asked(content)
        task = client.take(file)
        hypotheses = task.checked_hypotheses(stacked(received, task.hypotheses))
        return _Asked(task, task.checked_round(number), received, hypotheses)

    def _found(self, answer: RecordDict, asked: _Asked) -> tuple[Any, Floats]:
        wanted = {name: shape[1:] for name, shape in records.shapes(asked.received).items()}
        returned = records.flat(records.alike(answer, wanted), asked.task.dimensions, wanted)
        (told,) = answer.config_records.values()
        return told[CHOICE], returned

    def _nothing(self, asked: _Asked) -> tuple[int, Floats]:
        return 0, asked.hypotheses[0]

    def _report(self, client: PersonalClient, asked: _Asked, found: tuple[Any, Floats]) -> bytes:
        return client.report(asked.task, asked.number, asked.hypotheses, *found)


@dataclass(frozen=True)
class _Asked:
    """A round of a task, and the hypotheses as they came and as rows."""

    task: PersonalTask
    number: int
    received: ArrayRecord
    hypotheses: Floats


class PersonalStrategy(ReportStrategy):
    """Personalised training: the server of a signed task. Options as of `ReportStrategy`.

    `start` must be given the first hypotheses, which are public, in arrays with a first axis of k.
    """

    training: PersonalTraining

    def __init__(self, file: bytes, operator: Operator, **options: Any) -> None:
        task = tasks.task_of(file)
        self.training = PersonalTraining.begun(task, np.zeros((task.hypotheses, task.dimensions)))
        super().__init__(task, file, operator, **options)

    def _begin(self, arrays: ArrayRecord) -> None:
        hypotheses = self.task.checked_hypotheses(stacked(arrays, self.task.hypotheses))
        if not self._is_resumed:
            self.training = PersonalTraining.begun(self.task, hypotheses)
        self._like = arrays

    def _arrays(self) -> ArrayRecord:
        assert self._like is not None
        return unstacked(self.training.hypotheses, self._like)

    def _round(self) -> PersonalRound:
        return PersonalRound(self.task, self.training.number, self.training.hypotheses, self._operator)

    def _step(self, found: PersonalRound | None) -> None:
        reports = np.zeros((0, self.task.numbers)) if found is None else found.reports()
        self.training.step(reports)

    def _facts(self, found: PersonalRound) -> dict[str, Any]:
        noise: Sanitiser = found.sanitiser
        return {
            "noise": math.sqrt(noise.variance / found.clients) if found.clients else math.inf,
            "bytes_each": wire.size(noise),
            "price": noise.units / UNITS_PER_ONE,
            "unit": noise.unit.value,
        }

    def _kept(self) -> dict[str, Any]:
        held = self.training
        history = np.array(held.history).reshape(-1, *held.hypotheses.shape)
        return {"hypotheses": held.hypotheses, "history": history, "number": np.int64(held.number)}

    def _restored(self, kept: Mapping[str, Any]) -> PersonalTraining:
        hypotheses = self.task.checked_hypotheses(kept["hypotheses"])
        return PersonalTraining(self.task, hypotheses, int(kept["number"]), list(kept["history"]))


personal_mod = PersonalMod()
