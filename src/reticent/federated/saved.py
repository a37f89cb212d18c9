"""A trained model as a file: safetensors, with what it promises to the people whose data it saw.

The metadata hold the task's text, how the model came about, and in words what follows from both. `load`
derives the words again and refuses a file in which they differ, so that a file cannot promise more than its
task keeps. That the model was trained as it says, it cannot know: whoever writes a file could lie.

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
from reticent.federated.tasks import Task
from reticent.files import appearing
from reticent.mechanisms.base import Floats
from reticent.privacy.budget import UNITS_PER_ONE

FORMAT = "reticent-model/1"
_NAME = "theta"
_GIVEN = ("format", "task", "rounds", "how", "inputs")
_NOT_PROTECTED = (
    "that a client took part, when and in which rounds; what the model tells about people in general, "
    "whether they took part or not; whoever also reports elsewhere: epsilons add up"
)


class How(Enum):
    """Who drew the noise."""

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
_ROW = "; where nobody was named who holds a row, each row is a client"


@dataclass(frozen=True)
class Statement:
    """What a model promises.

    Args:
        task: what was learnt.
        rounds: how many were stepped.
        how: who drew the noise.
        inputs: what the features and the target are, in public words or numbers; for whoever uses the model.
    """

    task: Task
    rounds: int
    how: How
    inputs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", whole("rounds", self.rounds, low=0, high=self.task.rounds))

    @property
    def participations(self) -> int:
        """In how many rounds one client may have reported."""
        return min(self.rounds, self.task.participations)

    def words(self) -> dict[str, str]:
        """The promise, and its edges."""
        return {
            "task_id": self.task.id.hex(),
            "guarantee": "none" if self.how is How.SEEDED else "local differential privacy (epsilon-LDP)",
            "epsilon_per_report": _decimal(self.task.units),
            "participations": str(self.participations),
            "epsilon_in_all": _decimal(self.task.units * self.participations),
            "unit": "all data of one client" + ("" if self.how is How.CLIENTS else _ROW),
            "neighbours": self.task.guarantee.neighbours.value,
            "adversary": _ADVERSARY[self.how],
            "not_protected": _NOT_PROTECTED + _MORE[self.how],
        }

    def metadata(self) -> dict[str, str]:
        """All of it, as safetensors keep it."""
        given = {
            "format": FORMAT,
            "task": self.task.text.decode("ascii"),
            "rounds": str(self.rounds),
            "how": self.how.value,
            "inputs": json.dumps(dict(self.inputs), sort_keys=True, allow_nan=False),
        }
        return given | self.words()


@dataclass(frozen=True)
class Saved:
    """A model from a file."""

    theta: Floats
    statement: Statement


def save(path: str | os.PathLike[str], theta: Floats, statement: Statement) -> None:
    """Write a model, whole or not at all."""
    found = np.ascontiguousarray(theta, dtype=np.float64)
    if found.shape != (statement.task.dimensions,):
        raise ParameterError(f"theta must have shape ({statement.task.dimensions},), got {found.shape}")
    content = _safetensors().save({_NAME: found}, statement.metadata())
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
            if found != {_NAME: ("F64", [statement.task.dimensions])}:
                raise ParameterError(f"a model must hold {_NAME} alone, {statement.task.dimensions} doubles")
            theta = file.get_tensor(_NAME)
    except (SafetensorError, OSError):
        raise ParameterError(f"{path.name} must be a file in the form of safetensors") from None
    return Saved(theta, statement)


def _statement(told: Mapping[str, str]) -> Statement:
    if told.get("format") != FORMAT:
        raise ParameterError(f"format of a model must be {FORMAT}, got {told.get('format')!r:.60}")
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
    task = Task.parse(told["task"].encode("utf-8"))
    statement = Statement(task, int(told["rounds"]), How(told["how"]), inputs)
    for name, words in statement.metadata().items():
        if told.get(name) != words:
            raise GuaranteeError(f"the model's statement says something else than its task keeps: {name}")
    return statement


def _decimal(units: int) -> str:
    """Units of the ledger as an epsilon, exactly."""
    return f"{(Decimal(units) / UNITS_PER_ONE).normalize():f}"


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise MissingExtra("a model in a file", "federated") from None
    return safetensors.numpy
