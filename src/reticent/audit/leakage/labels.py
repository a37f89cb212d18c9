"""Classes of a batch from the signs of the last layer's gradient, and the number of records of each.

The row of class j in the last layer's gradient is the mean of (p_j - [y = j]) h over the records. What enters
a hidden last layer is never negative, so a row with a negative number has a record of its class for certain;
so has a bias with a negative gradient. A class whose records are outweighed by the others' p_j does not show
its sign: then `label_sets` lists what may be, the likeliest first, and `batches` tries them by residual.

Reference: Biswas 2023, Remark 6.4.1 and Section 6.4.3 (signs); the count of a class is that of a residual.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from reticent.audit.leakage.layers import Layers, Update, softmax
from reticent.mechanisms.base import Floats

_POOL = 12  # classes that are considered beside the certain ones
_MOST_SETS = 30_000
_NOISE_MULTIPLE = 20.0  # standard deviations: below 1e-12 for Gaussian and Laplace noise


def certain_labels(
    layers: Layers, update: Update, rounding: float, *, noise: float = 0.0, non_negative: bool = False
) -> tuple[int, ...]:
    """Return the classes that have a record in the batch, whatever the batch is.

    Args:
        layers: Model of the update.
        update: Mean gradient of a batch.
        rounding: Share of a number that may be rounding.
        noise: Largest standard deviation of the noise on each number; a sign counts from 20 of them on.
        non_negative: Whether records are known to have no negative numbers.
    """
    if layers.loss != "cross-entropy":
        return ()
    shown = np.zeros(layers.outputs, dtype=np.bool_)
    if len(layers) > 1 or non_negative:
        rows = update.weights[-1]
        shown |= rows.min(axis=1) < -_least_sign(rows, rounding, noise)
    slopes = update.biases[-1]
    if slopes is not None:
        shown |= slopes < -_least_sign(slopes, rounding, noise)
    return tuple(int(label) for label in np.flatnonzero(shown))


def _least_sign(numbers: Floats, rounding: float, noise: float) -> float:
    """Return the size from which on the sign of a number is neither rounding nor noise."""
    return 10.0 * rounding * float(np.abs(numbers).max()) + _NOISE_MULTIPLE * noise


def label_sets(
    layers: Layers, update: Update, records: int, certain: tuple[int, ...], *, non_negative: bool = False
) -> NDArray[np.int64]:
    """Return the classes that a batch may have, shape (sets, records), the likeliest first.

    A set has the count n_j of class j. With p the chances before any record is seen, the biases' gradient is
    near p - n / records, and a row's sum near that times the mean size of what enters.
    """
    free = records - len(certain)
    if free < 0:
        return np.empty((0, records), dtype=np.int64)
    rough, known_scale = _pull(layers, update, non_negative)
    pool = _pool(rough, certain, layers.outputs)
    while free > 0 and len(pool) > 1 and _count(len(pool), free) > _MOST_SETS:
        pool = pool[:-1]
    listed = [*combinations_with_replacement(pool, free)]
    more = np.array(listed, dtype=np.int64).reshape(len(listed), free)
    fixed = np.broadcast_to(np.array(certain, dtype=np.int64), (len(more), len(certain)))
    sets = np.concatenate([fixed, more], axis=1)
    counts = np.zeros((len(sets), layers.outputs))
    np.add.at(counts, (np.arange(len(sets))[:, None], sets), 1.0)
    wanted = softmax(layers.biases[-1]) - counts / records
    if rough is None:
        return sets
    scale = np.ones((len(sets), 1))
    if not known_scale:
        scale = np.maximum(wanted @ rough, 0.0)[:, None] / max(float(rough @ rough), 1e-300)
    order = np.argsort(np.square(wanted - scale * rough).sum(axis=1), kind="stable")
    return np.asarray(sets[order])


def _pull(layers: Layers, update: Update, non_negative: bool) -> tuple[Floats | None, bool]:
    """Return the pull on each class, and whether the scale of the pull is known."""
    slopes = update.biases[-1]
    if slopes is not None:
        return slopes, True
    if len(layers) > 1 or non_negative:
        return np.asarray(update.weights[-1].sum(axis=1)), False
    return None, False


def _pool(rough: Floats | None, certain: tuple[int, ...], classes: int) -> list[int]:
    order = np.arange(classes) if rough is None else np.argsort(rough, kind="stable")
    first = [int(label) for label in order[:_POOL]]
    return first + [label for label in certain if label not in first]


def _count(pool: int, free: int) -> int:
    """Return the number of sets of `free` classes, with repetition."""
    found = 1
    for place in range(free):
        found = found * (pool + place) // (place + 1)
    return found
