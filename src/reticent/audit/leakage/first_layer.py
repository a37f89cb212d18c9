"""A record from the first layer alone: the update of its weights over the update of its biases.

A linear layer with biases adds d x^T to its weights' update and d to its biases' for every record x that it
is given, whatever follows the layer (ReLU, tanh, convolutions of the result) and in every local step. If all
steps are of one record, the weights' update is D x^T and the biases' D, with D the sum of the slopes: rank
one, and x is one over the other.

An update of several records has a higher rank, unless their slopes are parallel or all but one left no trace
in the layer. Slopes of records are parallel with one output or two classes and the same units active; then x
is a weighted mean. So the record is called known only where it is known that there is one, and shown without
that only where slopes are not parallel.
"""

from __future__ import annotations

import math

import numpy as np

from reticent.audit.leakage.layers import Layers, Update
from reticent.audit.leakage.noise_checks import normal_numbers
from reticent.audit.leakage.records import CLOSE_NOISE_MOVEMENT, MAX_NOISE_MOVEMENT
from reticent.audit.leakage.verdicts import Candidate, Kind, Leak
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream

_DRAWS = 8
_SEED = 2034
_MAX_EXCESS = 1.5


def record_of_first_layer(
    layers: Layers,
    update: Update,
    rounding: float,
    *,
    records: int | None,
    noise: float = 0.0,
    non_negative: bool = False,
) -> Leak | None:
    """Return the record that the first of some layers shows by itself; None where it shows none.

    Args:
        layers: Model of the update.
        update: Gradient, or the sum of gradients of several local steps.
        rounding: Share of a number that may be rounding.
        records: Count of records behind the update, if it is known.
        noise: Standard deviation of the noise on each number.
        non_negative: Whether records are known to have no negative numbers.
    """
    biases = update.biases[0]
    if biases is None:
        return None
    parallel = layers.outputs < (3 if layers.loss == "cross-entropy" else 2)
    if parallel and len(layers) == 1:
        return None  # two rows that are opposite, or one, have rank one whatever the batch
    targets = read_target(layers.loss, update.biases[-1])
    return judge_first_layer(
        update.weights[0], biases, rounding,
        records=records, noise=noise, non_negative=non_negative, has_parallel_slopes=parallel,
        targets=targets,
    )  # fmt: skip


def judge_first_layer(
    weights: Floats,
    biases: Floats,
    rounding: float,
    *,
    records: int | None,
    noise: float = 0.0,
    non_negative: bool = False,
    has_parallel_slopes: bool = False,
    targets: Floats | None = None,
) -> Leak | None:
    """Return the record that a layer's update shows; None where it is not that of one record.

    Args:
        weights: Update of the layer's weights, shape (units, inputs).
        biases: Update of its biases.
        rounding: Share of a number that may be rounding.
        records: Count of records behind the update, if it is known.
        noise: Standard deviation of the noise on each number.
        non_negative: Whether records are known to have no negative numbers.
        has_parallel_slopes: Whether several records may have slopes in one direction.
        targets: Class of the record, where it is known.
    """
    if min(weights.shape) < 2 or _count_answers(biases, rounding) < 2:
        return None  # one unit, or one number, has rank one whatever the batch
    if has_parallel_slopes and records != 1:
        return None
    record = _divide(weights, biases)
    size, gap = float(np.abs(record).max()), np.square(weights - np.outer(biases, record)).sum()
    misfit = math.sqrt(float(gap) / float(np.square(weights).sum())) if weights.any() else 0.0
    if size == 0.0 or (non_negative and float(record.min()) < -max(1e-6, noise) * size):
        return None
    moved = 0.0
    if noise == 0.0:
        if misfit > 10.0 * rounding:
            return None
    else:
        moved, largest = _move_by_noise(record, biases, noise)
        if float(gap) > _MAX_EXCESS * largest or moved > MAX_NOISE_MOVEMENT:
            return None
    wanted = np.full(1, np.nan) if targets is None else targets
    candidate = Candidate(record[None, :], wanted, misfit, moved)
    reason = "one record, by the first layer's weights over its biases, in whatever number of local steps"
    if noise > 0.0:
        reason += f", up to about {moved:.1g} of its largest number under this noise"
    if records == 1 and moved <= CLOSE_NOISE_MOVEMENT:
        return Leak(Kind.EVERYTHING, 1, 1, (candidate,), (), reason, is_first_layer=True)
    if records != 1:
        reason += "; if there are more records, they left no trace in that layer"
    return Leak(Kind.FAMILY, None, records, (candidate,), (), reason, is_first_layer=True)


def read_target(loss: str, slopes: Floats | None) -> Floats | None:
    """Return the class of one record, from the slopes of the last layer; None where they do not show it."""
    if slopes is None:
        return None
    if loss == "cross-entropy" and slopes.size > 1:
        return np.array([float(np.argmin(slopes))])
    if loss in ("logistic", "hinge"):
        return np.array([-1.0 if slopes[0] > 0.0 else 1.0])
    return None


def _divide(weights: Floats, biases: Floats) -> Floats:
    return np.asarray((biases @ weights) / float(biases @ biases))


def _count_answers(biases: Floats, rounding: float) -> int:
    return int((np.abs(biases) > 100.0 * rounding * np.abs(biases).max(initial=0.0)).sum())


def _move_by_noise(record: Floats, biases: Floats, noise: float) -> tuple[float, float]:
    """Return how far noise moves the record, and the largest squared gap it leaves of the weights."""
    # Noise lengthens the biases' update: what is left without it is nearer to the slopes themselves.
    signal = max(0.0, 1.0 - biases.size * noise**2 / float(biases @ biases))
    slopes = math.sqrt(signal) * biases
    worst = largest = 0.0
    for seed in range(_DRAWS):
        stream = SimulationStream(_SEED, path=(seed,))
        units = normal_numbers(stream, biases.size * (record.size + 1)).reshape(biases.size, -1)
        noisy_weights = np.outer(slopes, record) + noise * units[:, :-1]
        noisy_biases = slopes + noise * units[:, -1]
        rebuilt = _divide(noisy_weights, noisy_biases)
        worst = max(worst, float(np.abs(rebuilt - record).max()) / max(float(np.abs(record).max()), 1e-300))
        gap = noisy_weights - np.outer(noisy_biases, rebuilt)
        largest = max(largest, float(np.square(gap).sum()))
    return worst, largest
