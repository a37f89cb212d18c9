"""Audits of whole trainings in one run each: anybody's training function, and simulated LDP-FedSGD.

The statistics are in `one_run`. Canaries are records made for the audit: nobody's data is asked for, and what
comes out of such a training is for the audit alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from reticent.arguments import whole
from reticent.audit.black_box import FALSE_ALARM
from reticent.audit.one_run import LEAST_CANARIES, judged
from reticent.audit.reporting import Report
from reticent.errors import ParameterError
from reticent.federated.models import Model
from reticent.federated.simulation import Step, simulate
from reticent.federated.steps import Steps
from reticent.federated.tasks import MOST_ROUNDS, Task
from reticent.mechanisms.base import Floats
from reticent.randomness import Stream, secure_or

CANARIES = 1000
_RATE = 2.0**-20  # so that all gradients of an audited training are taken about where it starts


def audit_run(
    train: Callable[[Any], Any],
    canaries: int | Sequence[Any] = CANARIES,
    *,
    epsilon: float,
    delta: float = 0.0,
    score: Callable[[Any, Any], float] | None = None,
    others: Sequence[Any] | None = None,
    guesses: Sequence[int] | None = None,
    false_alarm: float = FALSE_ALARM,
    name: str | None = None,
    rng: Stream | None = None,
) -> Report:
    """Audit a training function by running it once, with each canary in it by the toss of a coin.

    Args:
        train: called once. With a number of canaries it gets an array that says of each whether it is in, and
            returns the scores. With a sequence of canaries it gets the list of those that are in, and returns
            whatever the claim says may be seen: a model, all updates, all messages.
        canaries: Number of canaries, or the records themselves: rare, and as telling as the claim allows.
        epsilon: Epsilon of the claim, between a training with a canary and without it (or with its other, see
            below).
        delta: Delta of the claim.
        score: (what `train` returned, canary) to a number, the higher the likelier the canary was in. Needed
            with a sequence unless `train` returns scores itself.
        others: Records that stand in for each canary that is not in, for claims about records that are
            replaced or, with local privacy, about any two values. The list that `train` gets is then as long
            as `canaries`, and in the same order.
        guesses: see `one_run.judged`.
        false_alarm: chance to accuse a training that keeps its claim.
        name: Name for the report.
        rng: Random stream for the coins: None, secure; a SimulationStream where an audit must be repeatable.
    """
    start = time.process_time()
    listed = None if isinstance(canaries, int) else list(canaries)
    count = whole("canaries", canaries if listed is None else len(listed), low=LEAST_CANARIES)
    included = (secure_or(rng).words(count) & np.uint64(1)).astype(np.bool_)
    shown = train(_records(included, listed, others))
    scores = shown
    if score is not None:
        scores = [score(shown, one) for one in (range(count) if listed is None else listed)]
    found = judged(included, scores, epsilon=epsilon, delta=delta, guesses=guesses, false_alarm=false_alarm)
    notion = "epsilon" if delta == 0.0 else f"epsilon at delta {delta:g}"
    title = name or str(getattr(train, "__name__", type(train).__name__))
    return Report(title, epsilon, notion, None, None, found, (), time.process_time() - start)


def _records(included: Any, listed: list[Any] | None, others: Sequence[Any] | None) -> Any:
    if listed is None:
        if others is not None:
            raise ParameterError("others must come with a sequence of canaries")
        return included.copy()  # whatever becomes of it: the truth stays here
    if others is None:
        return [one for one, is_in in zip(listed, included, strict=True) if is_in]
    if len(others) != len(listed):
        raise ParameterError(f"others must be as many as the canaries, {len(listed)}, got {len(others)}")
    return [one if is_in else other for one, other, is_in in zip(listed, others, included, strict=True)]


def audit_training(
    task: Task,
    canaries: int = CANARIES,
    *,
    false_alarm: float = FALSE_ALARM,
    rng: Stream | None = None,
) -> Report:
    """Audit LDP-FedSGD as `simulation.simulate` runs it: a canary is a client who holds one of two records.

    What decides about privacy is the task's: model, bounds, mechanism, coordinates, epsilon. Rounds and group
    are not: each client is a round of its own, since in local privacy the server sees every report. The two
    records of a client have gradients far apart; the guess is which of them the step of its round is like.

    Args:
        task: Task with a model.
        canaries: clients.
        false_alarm: chance to accuse a training that keeps its claim.
        rng: None for secure randomness; a SimulationStream, for coins and training, to repeat an audit.
    """
    if task.model is None:
        raise ParameterError("task must have a model; audit a training of your own by `audit_run`")
    count = whole("canaries", canaries, low=LEAST_CANARIES, high=MOST_ROUNDS)
    alone = replace(task, rounds=count, group=1, participations=1, steps=Steps(_RATE, "constant"))
    alone = replace(alone, model=task.model.plain)  # its clients are prepared as far apart as can be
    features, targets = _canary_clients(task.model.plain, task.scale, count)

    def train(signs: list[float]) -> list[float]:
        thetas = [alone.model.start()] if alone.model is not None else []

        def keep(step: Step, theta: Floats) -> None:
            thetas.append(theta)

        simulate(alone, features, targets * np.asarray(signs), order=np.arange(count), rng=rng, on_round=keep)
        return _looks_like(alone, features, targets, np.stack(thetas))

    return audit_run(
        train,
        [1.0] * count,
        others=[-1.0] * count,
        epsilon=task.epsilon,
        false_alarm=false_alarm,
        name=f"training {task.name}",
        rng=rng,
    )


def _canary_clients(model: Model, bounds: Floats, count: int) -> tuple[Floats, Floats]:
    """Features and targets of records whose gradients are beyond the bounds, in directions of their own.

    Directions are the binary digits of the client's number, so that no step helps or hides the next ones.
    """
    digits = np.arange(count)[:, None] * 2654435761 >> (np.arange(model.inputs) % 31)[None, :]
    far = 4.0 * bounds[: model.inputs]
    return np.where(digits & 1, far, -far), np.ones(count)


def _looks_like(task: Task, features: Floats, targets: Floats, thetas: Floats) -> list[float]:
    """Return the step of each round times the difference of its client's two clipped gradients."""
    assert task.model is not None
    scores = []
    for number, (before, after) in enumerate(pairwise(thetas)):
        x = features[number : number + 1]
        one, other = (
            task.clipped(task.model.gradients(before, x, sign * targets[number : number + 1])[0])
            for sign in (1.0, -1.0)
        )
        scores.append(float(((before - after) / task.scale) @ (one - other)))
    return scores
