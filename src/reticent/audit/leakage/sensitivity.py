"""Sensitivity of an update to its records: the family that it leaves, its condition, the error under noise.

J is the derivative of the whole update by all numbers of the batch (and by its targets, where these are real
numbers). J^T J is made from the layers' own derivatives, so that J, which has a row for each
parameter, is never formed.

* The directions in which the update stands still are the family of batches that share it, near this one.
* The condition number is the largest over the smallest singular value of J.
* Under Gaussian noise of standard deviation s on each number of the update no unbiased attack has less error
  than s sqrt(trace((J^T J)^-1) / numbers) (Cramer and Rao).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real
from reticent.audit.leakage.layers import Layers, Targets, softmax
from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats

MOST_NUMBERS = 4096  # of a batch: the matrix of its derivatives is this large each way
_ZERO = 1e-12  # of the largest eigenvalue


@dataclass(frozen=True)
class Sensitivity:
    """The derivatives of an update at one batch.

    Attributes:
        numbers: Count of numbers of the batch, with its targets where they are free.
        dimension: Dimension of the family of batches near this one that have the same update.
        condition: Condition number; infinite where there is a family.
    """

    numbers: int
    dimension: int
    condition: float
    _spread: float
    _mean_spread: float = math.inf

    def error(self, noise: float) -> float:
        """The least root mean squared error of a record's numbers under this noise on each number sent."""
        return real("noise", noise, low=0.0) * self._spread

    def error_of_mean(self, noise: float) -> float:
        """Return the error for the numbers of the mean of the batch's records."""
        return real("noise", noise, low=0.0) * self._mean_spread


def sensitivity(
    layers: Layers, records: Floats, targets: Targets, *, biases: tuple[bool, ...] | bool = True
) -> Sensitivity:
    """Return the sensitivity of the mean gradient of a batch.

    Args:
        layers: Model.
        records: Records, shape (records, inputs).
        targets: Targets of the records.
        biases: True if the biases' gradients are shared, for all layers or for each.

    Raises:
        ParameterError: a batch of more numbers than `MOST_NUMBERS`.
    """
    shared = (biases,) * len(layers) if isinstance(biases, bool) else biases
    square, own = _square(layers, np.asarray(records, dtype=np.float64), targets, shared)
    values, vectors = np.linalg.eigh(square)
    top = float(values[-1])
    alive = values > _ZERO * top if top > 0.0 else np.zeros(len(values), dtype=np.bool_)
    dimension = int((~alive).sum())
    if dimension:
        return Sensitivity(len(values), dimension, math.inf, math.inf)
    spread = float(np.square(vectors[own]).sum(axis=0) @ (1.0 / values)) / int(own.sum())
    count = len(records)
    means = vectors.reshape(count, -1, len(values)).mean(axis=0)[: layers.inputs]
    of_mean = float(np.square(means).sum(axis=0) @ (1.0 / values)) / layers.inputs
    return Sensitivity(
        len(values), 0, math.sqrt(top / float(values[0])), math.sqrt(spread), math.sqrt(of_mean)
    )


def _square(
    layers: Layers, records: Floats, targets: Targets, shared: tuple[bool, ...]
) -> tuple[Floats, NDArray[np.bool_]]:
    """J^T J, and which of its rows belong to records rather than targets."""
    count, inputs = records.shape
    free = layers.outputs if layers.loss == "squares" else 0
    width = inputs + free
    if count * width > MOST_NUMBERS:
        raise ParameterError(f"a batch of {count * width} numbers is too large: at most {MOST_NUMBERS}")
    entering, scores = layers.forward(records)
    back = layers.backward(entering, layers.slopes(scores, targets))
    ahead, behind = zip(*(_chains(layers, entering, scores, row, free) for row in range(count)), strict=True)
    found = np.zeros((count, width, count, width))
    for place in range(len(layers)):
        h, d = entering[place], back[place]
        hh, dd = h @ h.T + float(shared[place]), d @ d.T
        for s in range(count):
            for t in range(s, count):
                m_s, n_s, m_t, n_t = ahead[s][place], behind[s][place], ahead[t][place], behind[t][place]
                block = hh[s, t] * (n_s.T @ n_t) + np.outer(n_s.T @ d[t], h[s] @ m_t)
                block += np.outer(m_s.T @ h[t], d[s] @ n_t) + dd[s, t] * (m_s.T @ m_t)
                found[s, :, t, :] += block
                if t > s:
                    found[t, :, s, :] += block.T
    own = np.tile(np.arange(width) < inputs, count)
    return found.reshape(count * width, count * width) / count**2, own


def _chains(
    layers: Layers, entering: list[Floats], scores: Floats, row: int, free: int
) -> tuple[list[Floats], list[Floats]]:
    """Derivatives of what enters each layer, and of what comes back to it, by a record and its target."""
    ahead = [np.eye(layers.inputs, layers.inputs + free)]
    for w, values in zip(layers.weights[:-1], entering[1:], strict=True):
        ahead.append((w @ ahead[-1]) * (values[row] > 0.0)[:, None])
    said = layers.weights[-1] @ ahead[-1]
    if layers.loss == "cross-entropy":
        p = softmax(scores[row])
        said = p[:, None] * (said - p @ said)
    elif layers.loss == "squares":
        said[:, layers.inputs :] -= np.eye(free)
        said *= 2.0 / layers.outputs
    elif layers.loss == "logistic":
        p = 1.0 / (1.0 + np.exp(-np.clip(scores[row], -700.0, 700.0)))
        said = (p * (1.0 - p))[:, None] * said
    else:
        said = np.zeros_like(said)
    behind = [said]
    for w, values in zip(layers.weights[:0:-1], entering[:0:-1], strict=True):
        behind.append((w.T @ behind[-1]) * (values[row] > 0.0)[:, None])
    return ahead, behind[::-1]
