"""A batch of k records from its mean gradient, where there are more classes than records.

The last layer's gradient is D^T H / k, with H what enters it (k rows) and D = P - Y its slopes. For k < m
classes D has rank k (its columns of the batch's classes are those of a strictly substochastic matrix, less
one), so the gradient shows k and the row space of H: H = A V with A of k x k unknowns, and the k m equations
D^T A = k G V^T in them, by Levenberg-Marquardt from starts that the classes give. Below, D' = (D W)(H > 0)
is known, and H' = D'^+ k G' by least squares, down to the records.

For k >= m the rows of D are dependent, and the last layer leaves a family; see `families`.

Every answer is put through the network again and kept only if its update is the one that was seen.

Reference: Biswas 2023, Lemmas 6.8 and 6.10, whose conjecture holds for all k < m, as above.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from reticent.audit.leakage.labels import certain_labels, label_sets
from reticent.audit.leakage.layers import Layers, Update, softmax
from reticent.audit.leakage.noise_checks import noise_movement
from reticent.audit.leakage.verdicts import Candidate
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream

_AT_ONCE = 12  # starts that are improved together
_STEPS = 40
_SPREADS = (0.0, 0.3, 1.0, 0.1, 2.0, 0.3, 1.0, 0.5)  # how far the starts' scores are from the biases
_SEARCH = 2026  # the same search every time


@dataclass(frozen=True)
class Effort:
    """The effort of a search.

    Attributes:
        sets: Number of sets of classes that are tried, where the classes are not given.
        rounds: Number of rounds of starts, for classes that are given or certain.
    """

    sets: int = 240
    rounds: int = 8


def scattered(stream: SimulationStream, *shape: int) -> Floats:
    """Numbers of mean 0 and variance 1, uniform."""
    return np.asarray((2.0 * stream.units(math.prod(shape)) - 3.0) * math.sqrt(3.0)).reshape(shape)


def rank_of(update: Update, tolerance: float) -> int:
    """Return the number of records that the last layer's gradient can tell apart."""
    values = np.linalg.svd(update.weights[-1], compute_uv=False)
    if values[0] == 0.0:
        return 0
    return int((values > tolerance * values[0]).sum())


@dataclass(frozen=True)
class _Last:
    """The last layer's equations in A, with columns scaled by the gradient's singular values.

    Attributes:
        basis: S V^T, shape (k, inputs of the layer): H = A basis.
        left: records times the left singular vectors, shape (m, k): D^T A = left.
        scores: basis W^T, shape (k, m).
        offsets: b.
        sums: records times the bias's gradient, if it is shared: the sums of D's columns.
        floor: the sum of squares below which a misfit is rounding.
    """

    basis: Floats
    left: Floats
    scores: Floats
    offsets: Floats
    sums: Floats | None
    floor: float


def _last_layer(layers: Layers, update: Update, rank: int, records: int, tolerance: float) -> _Last:
    u, s, vt = np.linalg.svd(update.weights[-1], full_matrices=False)
    basis = s[:rank, None] * vt[:rank]
    sums = update.biases[-1]
    noise = records * tolerance * float(s[0] / s[rank - 1])
    return _Last(
        basis,
        records * u[:, :rank],
        basis @ layers.weights[-1].T,
        layers.biases[-1],
        None if sums is None else records * sums,
        max(noise * noise, 1e-24),
    )


def _misses(last: _Last, one_hot: Floats, a: Floats) -> tuple[Floats, Floats]:
    """Return the slopes D of each start, and the equations' misfits, shape (starts, m, k or k + 1)."""
    d = softmax(a @ last.scores + last.offsets) - one_hot
    found = np.swapaxes(d, 1, 2) @ a - last.left
    if last.sums is not None:
        found = np.concatenate([found, (d.sum(axis=1) - last.sums)[:, :, None]], axis=2)
    return d, found


def _derivatives(last: _Last, one_hot: Floats, d: Floats, a: Floats) -> Floats:
    """Return the derivatives of the misfits by A, shape (starts, equations, k k)."""
    starts, k, m = d.shape
    p = d + one_hot
    turned = last.scores.T
    t = p[:, :, :, None] * (turned[None, None] - (p @ turned)[:, :, None, :])  # (start, s, j, e)
    found = np.empty((starts, m, k + (last.sums is not None), k, k))
    np.multiply(
        np.swapaxes(t, 1, 2)[:, :, None, :, :],
        np.swapaxes(a, 1, 2)[:, None, :, :, None],
        out=found[:, :, :k],
    )
    place = np.arange(k)
    found[:, :, place, :, place] += np.swapaxes(d, 1, 2)[None]
    if last.sums is not None:
        found[:, :, k] = np.swapaxes(t, 1, 2)
    return found.reshape(starts, -1, k * k)


def _improved(last: _Last, one_hot: Floats, a: Floats, every: bool) -> tuple[Floats, Floats]:
    """Levenberg-Marquardt on all starts at once, until one (or every one) is at the floor: A, and squares."""
    d, miss = _misses(last, one_hot, a)
    size = np.square(miss).sum(axis=(1, 2))
    damping = np.full(len(a), 1e-2)
    unit = np.eye(a.shape[1] ** 2)
    for _ in range(_STEPS):
        slopes = _derivatives(last, one_hot, d, a)
        turned = np.swapaxes(slopes, 1, 2)
        square = turned @ slopes
        scale = np.maximum(np.einsum("nii->ni", square), 1e-12) * damping[:, None]
        step = np.linalg.solve(square + scale[:, :, None] * unit, turned @ miss.reshape(len(a), -1, 1))
        nearer = a - step.reshape(a.shape)
        d_next, miss_next = _misses(last, one_hot, nearer)
        size_next = np.square(miss_next).sum(axis=(1, 2))
        better = size_next < size
        damping = np.where(better, np.maximum(damping / 5.0, 1e-15), np.minimum(damping * 4.0, 1e6))
        keep = better[:, None, None]
        a, d, miss = np.where(keep, nearer, a), np.where(keep, d_next, d), np.where(keep, miss_next, miss)
        size = np.where(better, size_next, size)
        done = size < last.floor
        if bool(done.all() if every else done.any()):
            break
    return a, size


def _polished(last: _Last, one_hot: Floats, a: Floats) -> Floats:
    """Gauss-Newton by orthogonal factors, which squares no condition number."""
    for _ in range(4):
        d, miss = _misses(last, one_hot, a)
        step = np.linalg.lstsq(_derivatives(last, one_hot, d, a)[0], miss.reshape(-1), rcond=None)[0]
        nearer = a - step.reshape(a.shape)
        if float(np.square(_misses(last, one_hot, nearer)[1]).sum()) >= float(np.square(miss).sum()):
            break
        a = nearer
    return a


def _starts(last: _Last, one_hot: Floats, spread: float, stream: SimulationStream) -> Floats:
    """A as if the scores were the biases, give or take; records of one class must not start alike."""
    repeated = one_hot.sum(axis=1).max(axis=1) > 1.0
    off = np.where(repeated, max(spread, 0.05), spread)[:, None, None]
    p = softmax(last.offsets + off * scattered(stream, *one_hot.shape))
    return np.asarray(np.linalg.pinv(np.swapaxes(p - one_hot, 1, 2)) @ last.left)


def _attempts(
    last: _Last, sets: NDArray[np.int64], classes: int, effort: Effort, every: bool
) -> Iterator[tuple[NDArray[np.int64], Floats, Floats]]:
    """Sets of classes with an A at the floor: first every set once, then from other starts."""
    stream = SimulationStream(_SEARCH)
    eye = np.eye(classes)
    few = len(sets) <= _AT_ONCE
    repeat = _AT_ONCE // len(sets) if few else 1
    for place in range(effort.rounds):
        spread = _SPREADS[place % len(_SPREADS)]
        times = 1 if place == 0 else repeat
        for begin in range(0, len(sets), _AT_ONCE):
            chosen = np.repeat(sets[begin : begin + _AT_ONCE], times, axis=0)
            one_hot = eye[chosen]
            a, size = _improved(last, one_hot, _starts(last, one_hot, spread, stream), every)
            for found in np.flatnonzero(size < 1e4 * last.floor):
                part = slice(found, found + 1)
                yield chosen[found], one_hot[part], _polished(last, one_hot[part], a[part])
        if not few and place == 1:  # two passes over many sets; more only for those that are told or certain
            return


def batch_candidates(
    layers: Layers,
    update: Update,
    tolerances: list[float],
    *,
    rank: int,
    records: int,
    labels: NDArray[np.int64] | None = None,
    non_negative: bool = False,
    effort: Effort | None = None,
    every: bool = False,
    noise: float = 0.0,
) -> Iterator[Candidate]:
    """Yield batches of `rank` records with this update, a mean over `records`; each was checked.

    Args:
        layers: Classifier with more classes than `rank`.
        update: Update of the classifier.
        tolerances: Share of each layer's gradient that may be rounding or noise.
        rank: Number of records that left a trace.
        records: Number of records in the mean; more than `rank` where some records are silent.
        labels: Classes of the records that left a trace, if they are given, in any order.
        non_negative: True if records are known to have no negative numbers.
        effort: Effort of the search.
        every: True if more than one batch may have the update, and all that can be found are wanted.
        noise: Standard deviation of the noise on each number, if there is any.
    """
    tries = effort or Effort()
    if labels is None:
        certain = certain_labels(layers, update, tolerances[-1], non_negative=non_negative)
        sets = label_sets(layers, update, rank, certain, non_negative=non_negative)[: tries.sets]
    else:
        sets = np.sort(np.asarray(labels, dtype=np.int64))[None, :]
    if len(sets) == 0:
        return
    last = _last_layer(layers, update, rank, records, tolerances[-1])
    for classes, one_hot, a in _attempts(last, sets, layers.outputs, tries, every):
        d = (softmax(a @ last.scores + last.offsets) - one_hot)[0]
        for floor in (1.0, 1e3, 1e6):
            found = _descended(layers, update, a[0] @ last.basis, d, records, floor * tolerances[-1])
            if found is not None:
                kept = checked_batch(layers, update, found, classes.astype(np.float64), records, tolerances)
                if kept is not None:
                    moved = _moved(layers, update, kept, one_hot, rank, records)
                    if noise > 0.0:
                        solve = partial(_solved_near, layers, kept, one_hot, rank, records)
                        shift = noise_movement(layers, update, kept, noise, records=records, solve=solve)
                        moved = max(moved, shift)
                    yield replace(kept, moved=moved)
                    break


def _moved(
    layers: Layers, update: Update, kept: Candidate, one_hot: Floats, rank: int, records: int
) -> float:
    """Return how far other roundings of the update move the records: the largest change of two tries."""
    worst, size = 0.0, max(float(np.abs(kept.records).max()), 1e-300)
    for seed in range(2):
        stream = SimulationStream(_SEARCH, path=(seed,))
        other = Update(
            tuple(_otherwise(stream, w, update.precision) for w in update.weights),
            tuple(None if b is None else _otherwise(stream, b, update.precision) for b in update.biases),
            update.precision,
        )
        found = _solved_near(layers, kept, one_hot, rank, records, other)
        if found is None:
            return math.inf
        worst = max(worst, float(np.abs(found - kept.records).max()) / size)
    return worst


def _solved_near(
    layers: Layers, kept: Candidate, one_hot: Floats, rank: int, records: int, other: Update
) -> Floats | None:
    """Return the records of another update, from a start at a candidate and with its active units."""
    entering = layers.forward(kept.records)[0]
    last = _last_layer(layers, other, rank, records, other.precision)
    start = entering[-1] @ np.linalg.pinv(last.basis)
    a = _polished(last, one_hot, start[None])
    d = (softmax(a @ last.scores + last.offsets) - one_hot)[0]
    active = [values > 0.0 for values in entering]
    return _descended(layers, other, a[0] @ last.basis, d, records, 0.0, active)


def _otherwise(stream: SimulationStream, numbers: Floats, precision: float) -> Floats:
    scale = precision * (0.5 * np.abs(numbers) + 0.1 * np.abs(numbers).max())
    return np.asarray(numbers + scale * scattered(stream, *numbers.shape))


def _descended(
    layers: Layers,
    update: Update,
    h: Floats,
    d: Floats,
    records: int,
    floor: float,
    active: list[NDArray[np.bool_]] | None = None,
) -> Floats | None:
    """Down to the records; None where some layer does not carry them all."""
    for place in range(len(layers) - 2, -1, -1):
        answers = h > min(floor, 1e-3) * np.abs(h).max() if active is None else active[place + 1]
        d = (d @ layers.weights[place + 1]) * answers
        found, _, rank, _ = np.linalg.lstsq(d.T, records * update.weights[place], rcond=None)
        if rank < len(d):
            return None
        h = np.asarray(found, dtype=np.float64)
    return h


def checked_batch(
    layers: Layers,
    update: Update,
    found: Floats,
    targets: Floats,
    records: int,
    tolerances: list[float],
) -> Candidate | None:
    """Return the batch, if the whole update is its."""
    again = layers.update(found, targets)
    share = len(found) / records
    worst = 0.0
    for place, tolerance in enumerate(tolerances):
        seen, theirs = update.weights[place], share * again.weights[place]
        gap, size = float(np.linalg.norm(seen - theirs)), float(np.linalg.norm(seen))
        bias, slopes = update.biases[place], again.biases[place]
        if bias is not None and slopes is not None and len(found) == records:
            gap = max(
                gap, float(np.linalg.norm(bias - slopes)) * size / max(float(np.linalg.norm(bias)), 1e-300)
            )
        if not gap <= 100.0 * tolerance * size:
            return None
        worst = max(worst, gap / size if size > 0.0 else 0.0)
    return Candidate(found, targets, worst)
