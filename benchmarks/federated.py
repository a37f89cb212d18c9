"""Federated rounds in the simulator: against the secure stream, against reading the data, and bytes.

What a round is compared with: the time that the secure stream alone takes to make the random words which the
round uses. With k = d every client reports 100 numbers, one word each; the round computes 100 gradients of a logistic
regression, clips, perturbs and sums them. With the k of the task a client reports one or two numbers, and
the round is bound by reading its 100 features: it is compared with numpy's product of features and
parameters, and its reports alone, from sampled coordinates to sums, with the stream.
"""

from __future__ import annotations

import numpy as np

from benchmarks.measure import Figure, cpu_ratio
from reticent.federated import Logistic, payload
from reticent.federated.simulation import Records, report_sums
from reticent.federated.tasks import Task, designed
from reticent.mechanisms.sampling import sampled_attributes
from reticent.randomness import SECURE

CLIENTS, DIMENSIONS = 1_000_000, 100
REPETITIONS = 5
FLOAT_BYTES = 4


def _task(epsilon: float, sample_size: int | None = None) -> Task:
    return designed(
        "bench",
        Logistic(DIMENSIONS - 1),
        epsilon=epsilon,
        purpose="x",
        rounds=1,
        group=CLIENTS,
        rate=1.0,
        sample_size=sample_size,
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


def whole_round() -> float:
    """A round with k = d a second / its random words made a second."""
    task = _task(4.0, DIMENSIONS)
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


def sampled_reports() -> float:
    """Reports with the task's k, coordinates to sums, a second / their random words made a second."""
    task = _task(4.0)
    k = task.sample_size
    units = np.random.default_rng(0).uniform(-0.2, 0.2, (CLIENTS, k))
    out = np.empty_like(units)

    def ours() -> None:
        asked = sampled_attributes(CLIENTS, DIMENSIONS, k, SECURE)
        reports = task.mechanism.perturb(units, out=out)
        np.bincount(asked.reshape(-1), weights=reports.reshape(-1), minlength=DIMENSIONS)

    words = CLIENTS * k * 2  # a coordinate and a report; those that are drawn again not counted
    return cpu_ratio(_stream(words), ours, repetitions=REPETITIONS)


def bytes_each() -> float:
    """Bytes of a payload with the task's k / bytes of a gradient of 32-bit numbers."""
    return payload.size(_task(4.0)) / (FLOAT_BYTES * DIMENSIONS)


FIGURES = [
    Figure("federated round, k = d", "secure stream", 0.3, whole_round),
    Figure("federated round, the task's k", "features @ parameters", 0.3, sampled_round),
    Figure("federated reports, the task's k", "secure stream", 0.3, sampled_reports),
    Figure("federated bytes a client", "32-bit gradients", 0.15, bytes_each, at_most=True),
]
