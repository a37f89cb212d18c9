"""The best attacker among candidates: whose record is behind a private report?

If the record is one of N, nothing beats Bayes' rule. For LDP-FedSGD the law of every report is known, so the
posterior is exact, from the bytes that were sent; so is how often the best attacker is right, over all
reports. For Gaussian noise the posterior is exact too, and its success is simulated.

A bound stands beside: see `audit.leakage.bounds`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from reticent.arguments import real
from reticent.errors import ParameterError
from reticent.federated import payload
from reticent.federated.tasks import Task
from reticent.fleet.intake import Intake
from reticent.fleet.revocation import Revocations
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.one_bit import OneBit

MOST_CELLS = 1 << 25  # of the law of all reports under all candidates


def posterior_of_reports(
    task: Task,
    number: int,
    payloads: Sequence[bytes],
    master: bytes,
    gradients: Any,
    prior: Any = None,
) -> Floats:
    """Return the chance of each candidate given the bytes of a client's report: shape (payloads, N).

    Args:
        task: Task of the reports.
        number: Number of the round.
        payloads: Payloads as they came.
        master: Operator's key: the server is the attacker.
        gradients: Gradient of each candidate, shape (N, d).
        prior: Prior chance of each candidate; None for equal chances.

    Raises:
        ParameterError: a payload is not one of this round, or gradients are not of this task.
    """
    known, weights = _candidates(task, gradients, prior)
    with contextlib.closing(Revocations(":memory:")) as nobody:  # an attacker leaves nobody out
        outcomes, read = payload.read(task, number, payloads, Intake(master, nobody))
    for place, outcome in enumerate(outcomes):
        if outcome is not payload.Outcome.COUNTED:
            raise ParameterError(f"payload {place} is not a report of this round: {outcome.value}")
    found = np.empty((len(payloads), len(known)))
    for row, (asked, symbols) in enumerate(zip(read.asked, read.symbols, strict=True)):
        law = _law(task, known, asked)
        likely = np.take_along_axis(law, symbols[None, :, None], axis=2)[..., 0]
        found[row] = _normalised(np.log(weights) + np.log(likely).sum(axis=1))
    return found


def best_success_of_reports(task: Task, client: Any, number: int, gradients: Any, prior: Any = None) -> float:
    """Return the exact chance that the best attacker names the right candidate from one report.

    The report is that of one client in one round.

    The sum over all reports of the greatest joint chance: Bayes vulnerability. Coordinates and dither levels
    are public, and settled by the task, the client and the round.

    Args:
        task: Task of the report.
        client: Number of the client, see `payload.client_number`.
        number: Number of the round.
        gradients: Gradient of each candidate, shape (N, d).
        prior: Prior chance of each candidate; None for equal chances.

    Reference: Alvim et al. 2020, Definition 5.2 (posterior Bayes vulnerability).
    """
    known, weights = _candidates(task, gradients, prior)
    me = np.atleast_1d(np.asarray(client, dtype=np.uint64))
    asked = task.asked(me, number)
    law = _law(task, known, asked[0])
    if isinstance(task.mechanism, OneBit):  # the dither is public: of each coordinate two symbols are left
        level = task.dither(me, number, asked)[0]
        bits = np.stack([2 * level, 2 * level + 1], axis=1)[None]
        law = np.take_along_axis(law, bits, axis=2) * task.mechanism.dither_levels
    if len(known) * law.shape[2] ** law.shape[1] > MOST_CELLS:
        raise ParameterError(
            f"{law.shape[1]} coordinates of {law.shape[2]} symbols are too many reports to go through"
        )
    joint = weights[:, None]
    for place in range(law.shape[1]):
        joint = (joint[:, :, None] * law[:, place, None, :]).reshape(len(known), -1)
    return float(joint.max(axis=0).sum())


def _law(task: Task, known: Floats, asked: Any) -> Floats:
    """Return the chance of each symbol, shape (N, k, symbols), of what one client was asked."""
    if task.codebook is None:
        return task.channel.probabilities(task.clipped(known)[:, asked])
    rows = [task.codebook.exact_probabilities(one, int(asked[0])) for one in task.clipped(known)]
    return np.array([[[float(chance) for chance in row]] for row in rows])


def posterior_of_gaussian(update: Any, candidates: Any, noise: float, prior: Any = None) -> Floats:
    """Return the chance of each candidate given a noisy update.

    Args:
        update: Update as it was sent, d numbers.
        candidates: Vectors that each candidate would send without noise, clipped, shape (N, d).
        noise: Standard deviation of each number.
        prior: Prior chance of each candidate; None for equal chances.
    """
    seen, known = np.asarray(update, dtype=np.float64), np.asarray(candidates, dtype=np.float64)
    if known.ndim != 2 or seen.shape != known.shape[1:] or not np.isfinite(seen).all():
        raise ParameterError(f"update must be as many finite numbers as a candidate has, got {seen.shape}")
    sigma = real("noise", noise, low=0.0, open_low=True)
    far = np.square(known).sum(axis=1) - 2.0 * known @ seen  # |seen|^2 is the same for all
    return _normalised(np.log(_weights(prior, len(known))) - far / (2.0 * sigma**2))


def expected_record(posterior: Any, records: Any) -> Floats:
    """Return the record of least expected squared error: the mean of the candidates' records."""
    chances, known = np.asarray(posterior, dtype=np.float64), np.asarray(records, dtype=np.float64)
    return np.tensordot(chances, known, axes=1)


def _candidates(task: Task, gradients: Any, prior: Any) -> tuple[Floats, Floats]:
    known = np.asarray(gradients, dtype=np.float64)
    if known.ndim != 2 or known.shape[1] != task.dimensions or len(known) < 2:
        raise ParameterError(
            f"gradients must be of two or more candidates, {task.dimensions} numbers each, got {known.shape}"
        )
    return known, _weights(prior, len(known))


def _weights(prior: Any, count: int) -> Floats:
    if prior is None:
        return np.full(count, 1.0 / count)
    found = np.asarray(prior, dtype=np.float64)
    if found.shape != (count,) or not (found > 0.0).all() or not math.isclose(found.sum(), 1.0, rel_tol=1e-9):
        raise ParameterError(f"prior must be {count} positive chances that sum to one")
    return found


def _normalised(logs: Floats) -> Floats:
    chances = np.exp(logs - logs.max())
    return np.asarray(chances / chances.sum())
