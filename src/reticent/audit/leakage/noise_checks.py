"""Checks of what an update can prove when its numbers carry noise, declared or not.

* `estimate_noise`: with softmax and cross-entropy the slopes of all classes sum to zero, so each column of
  the last layer's gradient does. What is left of these sums is noise, or a term that is no gradient of the
  loss.
* `noise_movement`: how far noise moves what was rebuilt. Noise is drawn again on the candidate's own update,
  the same inversion is run on it, and the largest change is returned (a parametric bootstrap).

Noise is taken to be independent in each number of the update, with one standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reticent.audit.leakage.clones import lower_root, upper_root
from reticent.audit.leakage.layers import Layers, Update
from reticent.audit.leakage.verdicts import Candidate
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream

_DRAWS = 8
_SEED = 2033
_MAX_EXCESS = 1.5  # residual of the update over the largest of the draws
_FALSE_ALARM = 1e-6  # that the noise is above `NoiseEstimate.high`, or below `low`


@dataclass(frozen=True)
class NoiseEstimate:
    """The standard deviation of the noise on each number of an update, as its own sums show it.

    Attributes:
        level: Estimate of the standard deviation; 0 where rounding explains the sums.
        low: Value that the standard deviation exceeds, but for a false alarm of 1e-6.
        high: Value that the standard deviation does not exceed, but for the same.
    """

    level: float
    low: float
    high: float


NO_NOISE = NoiseEstimate(0.0, 0.0, 0.0)


def estimate_noise(layers: Layers, update: Update, rounding: float) -> NoiseEstimate:
    """Return the noise that the sums over the classes show; none for losses without such sums.

    Args:
        layers: Model of the update.
        update: Mean gradient, or a sum of gradients.
        rounding: Share of a number that may be rounding.
    """
    if layers.loss != "cross-entropy" or layers.outputs < 2:
        return NO_NOISE
    parts = [update.weights[-1]]
    if (slopes := update.biases[-1]) is not None:
        parts.append(slopes[:, None])
    columns = np.concatenate(parts, axis=1)
    sums = columns.sum(axis=0)
    explained = rounding * np.abs(columns).sum(axis=0).max()
    if float(np.abs(sums).max()) <= explained:
        return NO_NOISE
    count = sums.size
    level = math.sqrt(float(sums @ sums) / count / layers.outputs)
    # Chernoff, for a sum of squares of n normal numbers: P(q n or less), P(q n or more) <= (q e^(1-q))^(n/2).
    exponent = 1.0 - 2.0 * math.log(_FALSE_ALARM) / count
    return NoiseEstimate(
        level, level / math.sqrt(upper_root(exponent)), level / math.sqrt(lower_root(exponent))
    )


def noise_movement(
    layers: Layers,
    update: Update,
    candidate: Candidate,
    noise: float,
    *,
    records: int,
    solve: Callable[[Update], Floats | None],
) -> float:
    """Return how far noise of this size moves the rebuilt records, in proportion to their largest number.

    Args:
        layers: Model of the update.
        update: Update that was seen.
        candidate: Batch that was rebuilt from it.
        noise: Standard deviation of the noise on each number.
        records: Count of records in the mean that the update is.
        solve: Inversion of another update, near the candidate; None where it finds nothing.

    Returns:
        The largest change over a fixed set of draws; infinite where an inversion finds nothing, or where the
        noise does not explain what the candidate leaves of the update.
    """
    share = len(candidate.records) / records
    own = _scaled_update(layers, candidate.records, candidate.targets, share)
    size = max(float(np.abs(candidate.records).max()), 1e-300)
    worst = largest = 0.0
    for seed in range(_DRAWS):
        noisy = _add_noise(own, update, noise, SimulationStream(_SEED, path=(seed,)))
        rebuilt = solve(noisy)
        if rebuilt is None or rebuilt.shape != candidate.records.shape:
            return math.inf
        worst = max(worst, float(np.abs(rebuilt - candidate.records).max()) / size)
        again = _scaled_update(layers, rebuilt, candidate.targets, share)
        largest = max(largest, _squared_distance(noisy, again))
    return worst if _squared_distance(update, own) <= _MAX_EXCESS * largest else math.inf


def _scaled_update(layers: Layers, records: Floats, targets: Floats, share: float) -> Update:
    update = layers.update(records, targets)
    biases = tuple(None if bias is None else share * bias for bias in update.biases)
    return Update(tuple(share * weights for weights in update.weights), biases)


def _add_noise(own: Update, seen: Update, noise: float, stream: SimulationStream) -> Update:
    """Return the update with noise on each number, and the biases that were shared alone."""

    def perturb(numbers: Floats) -> Floats:
        return np.asarray(numbers + noise * normal_numbers(stream, numbers.size).reshape(numbers.shape))

    return Update(
        tuple(perturb(weights) for weights in own.weights),
        tuple(
            None if shared is None or bias is None else perturb(bias)
            for bias, shared in zip(own.biases, seen.biases, strict=True)
        ),
        seen.precision,
    )


def normal_numbers(stream: SimulationStream, count: int) -> Floats:
    """Return standard normal numbers of a simulation (Box and Muller)."""
    radius = np.sqrt(-2.0 * np.log(2.0 - stream.units(count)))
    return np.asarray(radius * np.cos(2.0 * np.pi * stream.units(count)))


def _squared_distance(one: Update, other: Update) -> float:
    total = sum(float(np.square(a - b).sum()) for a, b in zip(one.weights, other.weights, strict=True))
    for a, b in zip(one.biases, other.biases, strict=True):
        if a is not None and b is not None:
            total += float(np.square(a - b).sum())
    return total
