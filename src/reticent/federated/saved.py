"""A trained model as a file: safetensors, with its promises to the people whose data it saw.

Personalised models are one file, of all hypotheses. Where what a report costs depends on the hypotheses of a
round, the file says what the worst that the task allows would cost.

The metadata hold the task's text, how the model came about, and in words what follows from both. `load`
derives the words again and refuses a file in which they differ, so that a file cannot promise more than its
task keeps. It cannot know that the model was trained as the file says: the writer of a file could lie.

There is no pickle here: loading a file runs nothing that is in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from reticent.arguments import whole
from reticent.errors import GuaranteeError, MissingExtra, ParameterError
from reticent.federated.personalised.noise import Sanitiser
from reticent.federated.personalised.tasks import PersonalTask
from reticent.federated.tasks import Task
from reticent.files import appearing
from reticent.ledger.base import Unit
from reticent.mechanisms.base import Floats
from reticent.privacy import Neighbours
from reticent.privacy.budget import UNITS_PER_ONE

FORMATS: dict[str, type[Task | PersonalTask]] = {
    "reticent-model/1": Task,
    "reticent-personal-models/1": PersonalTask,
}
_KEPT = {
    Unit.EPSILON: "local differential privacy (epsilon-LDP)",
    Unit.MU2: "local Gaussian differential privacy (mu-GDP)",
}
_GIVEN = ("format", "task", "rounds", "how", "inputs")
_NOT_PROTECTED = (
    "that a client took part, when and in which rounds; what the model tells about people in general, "
    "whether they took part or not; whoever also reports elsewhere: epsilons add up"
)


class How(Enum):
    """The origin of the noise."""

    CLIENTS = "clients, each with its own ledger and secure randomness"
    SIMULATION = "a simulation in one process, with secure randomness"
    SEEDED = "a simulation in one process, from a seed"


_ADVERSARY = {
    How.CLIENTS: "whoever collects the reports, and everybody else",
    How.SIMULATION: "everybody but who ran the simulation",
    How.SEEDED: "nobody who knows the seed",
}
_MORE = {  # that is not protected
    How.CLIENTS: "",
    How.SIMULATION: "; the records from who ran the simulation, and curves that were drawn from the records",
    How.SEEDED: "; anything from whoever knows the seed",
}
_AXES = "; the rows that its axes were fitted on, which must be public"
_ROW = "; where nobody was named who holds a row, each row is a client"


@dataclass(frozen=True)
class Statement:
    """The promises of a model.

    Args:
        task: Task that was learnt.
        rounds: Number of rounds that were stepped.
        how: Origin of the noise.
        inputs: Description of the features and the target, in public words or numbers, for users of the
            model.
    """

    task: Task | PersonalTask
    rounds: int
    how: How
    inputs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", whole("rounds", self.rounds, low=0, high=self.task.rounds))

    @property
    def participations(self) -> int:
        """The number of rounds in which one client may have reported."""
        return min(self.rounds, self.task.participations)

    def words(self) -> dict[str, str]:
        """The promise, and its edges."""
        charged = Sanitiser(self.task) if isinstance(self.task, PersonalTask) else self.task
        unit = charged.unit if isinstance(charged, Sanitiser) else Unit.EPSILON
        return {
            "task_id": self.task.id.hex(),
            "guarantee": "none" if self.how is How.SEEDED else _KEPT[unit],
            f"{unit.value}_per_report": _decimal(charged.units),
            "participations": str(self.participations),
            f"{unit.value}_in_all": _decimal(charged.units * self.participations),
            "unit": "all data of one client" + ("" if self.how is How.CLIENTS else _ROW),
            "neighbours": Neighbours.ANY_TWO_VALUES.value,  # as participations are charged
            "adversary": _ADVERSARY[self.how],
            "not_protected": _NOT_PROTECTED + self._of_axes + _MORE[self.how],
        }

    @property
    def _of_axes(self) -> str:
        return "" if self.task.model is None or self.task.model.axes is None else _AXES

    def metadata(self) -> dict[str, str]:
        """All of it, as safetensors keep it."""
        given = {
            "format": next(name for name, kind in FORMATS.items() if isinstance(self.task, kind)),
            "task": self.task.text.decode("ascii"),
            "rounds": str(self.rounds),
            "how": self.how.value,
            "inputs": json.dumps(dict(self.inputs), sort_keys=True, allow_nan=False),
        }
        return given | self.words()


@dataclass(frozen=True)
class Saved:
    """A model from a file: its parameters, or the hypotheses of personalised models, a row each."""

    theta: Floats
    statement: Statement


def save(path: str | os.PathLike[str], theta: Floats, statement: Statement) -> None:
    """Write a model, whole or not at all."""
    found = np.ascontiguousarray(theta, dtype=np.float64)
    name, shape = _tensor(statement.task)
    if found.shape != shape:
        raise ParameterError(f"{name} must have shape {shape}, got {found.shape}")
    content = _safetensors().save({name: found}, statement.metadata())
    with appearing(Path(path)) as file:
        file.write(content)


def load(path: str | os.PathLike[str]) -> Saved:
    """A model and what it promises.

    Raises:
        ParameterError: it is no such file.
        GuaranteeError: it promises something else than its task keeps.
    """
    _safetensors()
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise ParameterError(f"there is no model at {path}")
    try:
        with safe_open(path, framework="np") as file:
            told = file.metadata() or {}
            statement = _statement(told)
            slices = {name: file.get_slice(name) for name in list(file.keys())}
            found = {name: (one.get_dtype(), one.get_shape()) for name, one in slices.items()}
            name, shape = _tensor(statement.task)
            if found != {name: ("F64", list(shape))}:
                size = " x ".join(str(length) for length in shape)
                raise ParameterError(f"a model must hold {name} alone, {size} doubles")
            theta = file.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise ParameterError(f"{path.name} must be a file in the form of safetensors") from error
    return Saved(theta, statement)


def _tensor(task: Task | PersonalTask) -> tuple[str, tuple[int, ...]]:
    """The name and the shape of what is learnt."""
    if isinstance(task, PersonalTask):
        return "hypotheses", (task.hypotheses, task.dimensions)
    return "theta", (task.dimensions,)


def _statement(told: Mapping[str, str]) -> Statement:
    kind = FORMATS.get(told.get("format", ""))
    if kind is None:
        rule = " or ".join(FORMATS)
        raise ParameterError(f"format of a model must be {rule}, got {told.get('format')!r:.60}")
    for name in _GIVEN:
        if name not in told:
            raise ParameterError(f"the statement of a model: field {name} is missing")
    if told["how"] not in {how.value for how in How}:
        raise ParameterError(f"how must be one that is known, got {told['how']!r:.60}")
    if not told["rounds"].isascii() or not told["rounds"].isdigit() or len(told["rounds"]) > 9:
        raise ParameterError(f"rounds must be a whole number, got {told['rounds']!r:.60}")
    try:
        inputs = json.loads(told["inputs"])
    except (ValueError, RecursionError):
        inputs = None
    if not isinstance(inputs, dict):
        raise ParameterError("inputs of a model must be an object in JSON")
    task = kind.parse(told["task"].encode("utf-8"))
    statement = Statement(task, int(told["rounds"]), How(told["how"]), inputs)
    for name, words in statement.metadata().items():
        if told.get(name) != words:
            raise GuaranteeError(f"the model's statement says something else than its task keeps: {name}")
    return statement


def _decimal(units: int) -> str:
    """Units of the ledger as an epsilon or mu^2, exactly."""
    return f"{(Decimal(units) / UNITS_PER_ONE).normalize():f}"


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise MissingExtra("a model in a file", "federated") from error
    return safetensors.numpy
