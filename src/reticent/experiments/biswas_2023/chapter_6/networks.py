"""The networks and batches of the chapter's experiments, drawn from a seed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from reticent.audit.leakage import Candidate, Layers
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream

CLASSES = 10


def scattered(stream: SimulationStream, *shape: int) -> Floats:
    """Numbers of mean 0 and variance 1, uniform."""
    return np.asarray((2.0 * stream.units(math.prod(shape)) - 3.0) * math.sqrt(3.0)).reshape(shape)


def network(stream: SimulationStream, sizes: Sequence[int]) -> Layers:
    """Untrained layers, as PyTorch draws them: uniform in +-1/sqrt(inputs)."""
    weights, biases = [], []
    for fan, units in itertools.pairwise(sizes):
        reach = 1.0 / math.sqrt(3.0 * fan)
        weights.append(reach * scattered(stream, units, fan))
        biases.append(reach * scattered(stream, units))
    return Layers(tuple(weights), tuple(biases))


def distinct(stream: SimulationStream, count: int) -> Floats:
    """Different classes, in any order; from the first again where there are more records than classes."""
    order = np.argsort(stream.words(CLASSES))
    return np.asarray(np.resize(order, count), dtype=np.float64)


def error(found: Candidate, records: Floats) -> float:
    """The largest error of a number, records matched in whatever order, in proportion to the largest."""
    gaps = np.abs(found.records[:, None, :] - records[None, :, :]).max(axis=2)
    if len(set(gaps.argmin(axis=1).tolist())) < len(records):
        return math.inf
    return float(gaps.min(axis=1).max() / np.abs(records).max())
