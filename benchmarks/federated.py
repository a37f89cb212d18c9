"""Federated rounds of a million clients in the simulator, and the bytes of a client.

What a round is compared with: the time that the secure stream alone takes to make the random words that the
round uses. With k = d every client reports 100 numbers, one word each: the round computes the gradients of a
logistic regression, clips, perturbs and sums them. `Duchi` has 0.03 % more variance there than `OneBit`, the
default, which has to look up a dither level for each bit. With the task's own k a client reports two numbers,
and what bounds the round is reading its features: it is compared with numpy's product of these and the
parameters.
"""

from __future__ import annotations

import numpy as np

from benchmarks.measure import Figure, cpu_ratio
from reticent.federated import Logistic, payload
from reticent.federated.simulation import Records, report_sums
from reticent.federated.tasks import Task, designed
from reticent.randomness import SECURE

CLIENTS, DIMENSIONS = 1_000_000, 100
REPETITIONS = 5
FLOAT_BYTES = 4


def _task(epsilon: float, sample_size: int | None = None, mechanism: str | None = None) -> Task:
    return designed(
        "bench",
        Logistic(DIMENSIONS - 1),
        epsilon=epsilon,
        purpose="x",
        rounds=1,
        group=CLIENTS,
        rate=1.0,
        sample_size=sample_size,
        mechanism=mechanism,
    )


def _records(task: Task) -> Records:
    generator = np.random.default_rng(0)
    features = generator.uniform(-1.0, 1.0, (CLIENTS, DIMENSIONS - 1))
    return Records(task.model, features, np.where(features[:, 0] > 0.0, 1.0, -1.0))


def _stream(words: int):
    def run() -> None:
        for _ in SECURE.word_blocks(words):
            pass

    return run


def whole_round(mechanism: str) -> float:
    """A round with k = d a second / its random words made a second."""
    task = _task(4.0, DIMENSIONS, mechanism)
    records, theta, clients = _records(task), np.full(DIMENSIONS, 0.1), np.arange(CLIENTS)
    return cpu_ratio(
        _stream(CLIENTS * DIMENSIONS),
        lambda: report_sums(task, theta, records, clients, SECURE),
        repetitions=REPETITIONS,
    )


def sampled_round() -> float:
    """A round with the task's k a second / the products of features and parameters a second."""
    task = _task(4.0)
    records, theta, clients = _records(task), np.full(DIMENSIONS, 0.1), np.arange(CLIENTS)
    return cpu_ratio(
        lambda: records.features @ theta[:-1],
        lambda: report_sums(task, theta, records, clients, SECURE),
        repetitions=REPETITIONS,
    )


def bytes_each() -> float:
    """Bytes of a payload with the task's k / bytes of a gradient of 32-bit numbers."""
    return payload.size(_task(4.0)) / (FLOAT_BYTES * DIMENSIONS)


FIGURES = [
    Figure("federated round, k = d, Duchi", "secure stream", 0.3, lambda: whole_round("Duchi")),
    Figure("federated round, k = d, OneBit", "secure stream", 0.3, lambda: whole_round("OneBit")),
    Figure("federated round, the task's k", "features @ parameters", 0.2, sampled_round),
    Figure("federated bytes a client", "32-bit gradients", 0.15, bytes_each, at_most=True),
]
