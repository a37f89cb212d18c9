"""Networks, batches and their updates for the tests of leakage."""

import itertools

import numpy as np

from reticent.audit.leakage import Layers


def network(generator, sizes, *, scale=1.0, biases=True, loss="cross-entropy"):
    """Layers of these sizes, drawn as PyTorch draws them, times a scale."""
    weights, offsets = [], []
    for fan, units in itertools.pairwise(sizes):
        reach = scale / np.sqrt(fan)
        weights.append(generator.uniform(-reach, reach, (units, fan)))
        offsets.append(generator.uniform(-reach, reach, units) * biases)
    return Layers(tuple(weights), tuple(offsets), loss)


def some_sizes(generator, depth, classes=None):
    """As many layers as `depth`, of 16 to 63 units, and 3 to 11 classes."""
    return [*generator.integers(16, 64, depth), classes or int(generator.integers(3, 12))]


def alive(layers, records, targets):
    """Whether a derivative reaches the first layer from every record."""
    entering, scores = layers.forward(records)
    return bool(layers.backward(entering, layers.slopes(scores, targets))[0].any(axis=1).all())


def error(found, records):
    """The largest error of a number, records matched in whatever order, in proportion to the largest."""
    gaps = np.abs(found[:, None, :] - records[None, :, :]).max(axis=2)
    matched = gaps.argmin(axis=1)
    if len(set(matched)) < len(records):
        return float("inf")
    return float(gaps.min(axis=1).max() / np.abs(records).max())
