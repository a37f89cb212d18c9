"""Explanations of a task in sentences, for the operator and the clients who decide on it."""

from __future__ import annotations

import math

import numpy as np

from reticent.collect.explanation import sure, told
from reticent.federated import payload
from reticent.federated.tasks import Task

_MUCH = 2.0  # epsilon in all, from which on a warning is due
_NAMES = {"linear": "a linear model", "logistic": "a logistic model", "svm": "a support vector machine"}


def explain(task: Task) -> list[str]:
    """One sentence for each thing that a person should know."""
    d, k = task.dimensions, task.sample_size
    model = "a model of the clients' own" if task.model is None else _NAMES[task.model.kind]
    if task.model is not None and task.model.axes is not None:
        model += f" of {_counted(task.model.inputs, 'feature')} along {task.model.axes.count:,} public axes"
    which = "all coordinates" if k == d else f"{k:,} of {d:,} coordinates (the task draws which)"
    said = f"{which} of a gradient, clipped to public bounds, by {type(task.mechanism).__name__}"
    if task.codebook is not None:
        said = (
            f"a direction near that of a gradient, of {task.codebook.size:,} that the task draws (Codebook)"
        )
    return [
        f"{task.name}, version {task.version}: {task.purpose}",
        f"{_counted(d, 'number')} of {model} in {_counted(task.rounds, 'round')}. In each of them "
        f"{_counted(task.group, 'client')} say how their own records would change the numbers (a gradient).",
        f"One report holds {said}, in {_counted(task.mechanism.bits, 'bit')}. {told(task.epsilon)}",
        _in_all(task),
        *_axes(task),
        "The collector sees reports, never records or gradients. Whether a client reports does not depend "
        "on its records.",
        f"One report takes {payload.size(task)} bytes, of which the answers take "
        f"{payload.symbol_bytes(task)}; a gradient of 32-bit numbers takes {4 * d:,}.",
        f"At least {clients_needed(task):,} clients are needed. Noise and sampling give each coordinate of a "
        f"round's gradient a standard deviation of at most {100 * noise_share(task):.3g} % of "
        f"{_bound(task)}.",
    ]


def _axes(task: Task) -> list[str]:
    if task.model is None or task.model.axes is None:
        return []
    return [
        "The axes stand in the task as they are, so the rows that they were fitted on must be public: "
        "nothing here protects those."
    ]


def clients_needed(task: Task) -> int:
    """The fewest clients that fill all rounds."""
    return max(task.group, math.ceil(task.rounds * task.group / task.participations))


def noise_share(task: Task) -> float:
    """The standard deviation of a coordinate of a round's average, as a share of its bound; worst case."""
    bound = task.reach if task.codebook is not None else task.scale
    return float(np.sqrt(np.max(task.noise(task.group) / np.square(bound))))


def _bound(task: Task) -> str:
    if task.codebook is None:
        return "its bound"
    return "what it is in a gradient of the longest length whose coordinates are all alike"


def _in_all(task: Task) -> str:
    total = task.epsilon * task.participations
    if task.participations == 1:
        return f"A client reports in one round only, and spends epsilon {total:g} in all."
    text = (
        f"A client that reports in {task.participations} rounds, the most it may, spends epsilon {total:g} "
        f"in all: {sure(total)} instead of {sure(task.epsilon)}."
    )
    if total > _MUCH:
        text += " Ask for fewer participations or a smaller epsilon, if that is too much."
    return text


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
