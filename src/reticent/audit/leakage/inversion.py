"""Inversion of updates: the one entry for any model that is a sequence of linear layers with ReLU."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import real, whole
from reticent.audit.leakage.batches import Effort, batch_candidates, rank_of, scattered
from reticent.audit.leakage.first_layer import record_of_first_layer
from reticent.audit.leakage.labels import certain_labels
from reticent.audit.leakage.layers import Layers, Update, rounding_share
from reticent.audit.leakage.noise_checks import estimate_noise
from reticent.audit.leakage.records import (
    CLOSE_NOISE_MOVEMENT,
    MAX_NOISE_MOVEMENT,
    describe_movement,
    nothing,
    one_record,
)
from reticent.audit.leakage.sensitivity import MOST_NUMBERS, sensitivity
from reticent.audit.leakage.verdicts import Candidate, Kind, Leak
from reticent.errors import ParameterError
from reticent.randomness import SimulationStream

_PROBE = 2026
_STEADY = 1e-4  # what other roundings may change of a record that is called known, by its largest number


def invert(
    layers: Layers,
    update: Update,
    *,
    records: int | None = None,
    labels: ArrayLike | None = None,
    non_negative: bool = False,
    noise: float = 0.0,
    effort: Effort | None = None,
) -> Leak:
    """Return what the holder of an update and of the model learns of the records behind the update.

    A batch is said to be known only if its own update is the one that was seen, in every layer, up to the
    rounding of its numbers; where the equations leave a choice, the choice is what is told.

    Args:
        layers: Model that the update is of, before the update.
        update: Mean gradient of a batch.
        records: Number of records of the batch, if it is known.
        labels: Classes of the records, if they are known, in any order.
        non_negative: True if records are known to have no negative numbers, as pictures have none.
        noise: Standard deviation of noise on each number of the update, if there is any.
        effort: Effort of the search for batches.

    Raises:
        ParameterError: an update of another model, with numbers that are not finite, or with options that
            contradict each other.
    """
    count = None if records is None else whole("records", records, low=1)
    told = None if labels is None else _classes(layers, labels, count)
    if told is not None:
        count = len(told)
    level = real("noise", noise, low=0.0)
    first = update.checked(layers).finite_from()
    if first > 0:
        raise ParameterError(f"update: layer {first} holds numbers that are not finite")
    if layers.loss == "logistic":
        return _logistic(layers, update, count, told, non_negative, level, effort)
    tolerances, rounding = _tolerances(update, level), rounding_share(update)
    if _silent(update) or (layers.loss == "cross-entropy" and layers.outputs == 1):
        return nothing(layers, update, records=count, noise=level)
    estimate = estimate_noise(layers, update, rounding)
    if estimate.low > level:
        certain = certain_labels(layers, update, rounding, noise=estimate.high, non_negative=non_negative)
        return Leak(Kind.UNDECIDED, None, count, (), certain, _describe_noise(estimate.level, level))
    if count is None or count == 1:
        found = one_record(layers, update, tolerances, noise=level, non_negative=non_negative)
        if found is not None and not (level > 0.0 and found.kind is Kind.UNDECIDED):
            is_untold = count is None and found.kind is Kind.EVERYTHING and _are_batches_alike(layers)
            return _of_how_many(found) if is_untold else found
        by_first_layer = record_of_first_layer(
            layers, update, rounding, records=count, noise=level, non_negative=non_negative
        )
        if by_first_layer is not None:
            return by_first_layer
        if count == 1:
            return found or Leak(Kind.UNDECIDED, None, 1, (), (), "no single record has this update")
    return _batch(layers, update, tolerances, count, told, non_negative, level, effort)


def _describe_noise(estimate: float, declared: float) -> str:
    """Return what it means that the slopes of all classes do not sum to zero."""
    more = f" (more than the {declared:.2g} that is declared)" if declared > 0.0 else ""
    return (
        f"the slopes of the classes do not sum to zero: noise of about {estimate:.2g} on each number{more}, "
        "or a term that is no gradient of the loss; declare the noise, or send the gradient alone"
    )


def _are_batches_alike(layers: Layers) -> bool:
    """Whether batches have updates of single records: slopes are free (squares), or a class's (hinge)."""
    return layers.loss in ("squares", "hinge") and len(layers) == 1 and layers.outputs == 1


def _of_how_many(found: Leak) -> Leak:
    """Return what is known of one record, where nobody said that there is one."""
    reason = (
        "this record if there is one, else a mean of several, which looks the same (say how many there are)"
    )
    return Leak(Kind.FAMILY, None, None, found.candidates, (), reason)


def _classes(layers: Layers, labels: ArrayLike, count: int | None) -> NDArray[np.int64]:
    given = np.asarray(labels)
    if given.ndim != 1 or given.size == 0 or not np.array_equal(given, np.round(given)):
        raise ParameterError("labels must be a list of whole numbers")
    if layers.loss == "cross-entropy" and (given.min() < 0 or given.max() >= layers.outputs):
        raise ParameterError(f"labels must be in 0 .. {layers.outputs - 1}")
    if count is not None and len(given) != count:
        raise ParameterError(f"labels must be of {count} records, got {len(given)}")
    return given.astype(np.int64)


def _tolerances(update: Update, noise: float) -> list[float]:
    """For each layer, what of its gradient may be rounding or noise, in proportion."""
    base = rounding_share(update)
    if noise == 0.0:
        return [base] * len(update.weights)
    found = []
    for weights in update.weights:
        size = float(np.linalg.norm(weights))
        found.append(base + 3.0 * noise * math.sqrt(weights.size) / size if size > 0.0 else base)
    return found


def _silent(update: Update) -> bool:
    """Whether nothing came through to the first layer."""
    if update.squares[0] > 0.0 or update.weights[0].any():
        return False
    bias = update.biases[0]
    if bias is not None:
        return not bias.any()
    return not update.weights[-1].any()  # otherwise the record may be zero, which its layers above show


def _logistic(
    layers: Layers,
    update: Update,
    count: int | None,
    told: NDArray[np.int64] | None,
    non_negative: bool,
    noise: float,
    effort: Effort | None,
) -> Leak:
    """Invert a logistic model as softmax of two classes with scores 0 and f.

    Class 1 is the target 1, class 0 the target -1.
    """
    last = len(layers) - 1
    w, b, g, slope = layers.weights[last], layers.biases[last], update.weights[last], update.biases[last]
    two = Layers(
        (*layers.weights[:last], np.concatenate([np.zeros_like(w), w])),
        (*layers.biases[:last], np.concatenate([np.zeros_like(b), b])),
    )
    both = Update(
        (*update.weights[:last], np.concatenate([-g, g])),
        (*update.biases[:last], None if slope is None else np.concatenate([-slope, slope])),
        update.precision,
    )
    found = invert(
        two,
        both,
        records=count,
        labels=None if told is None else (told > 0).astype(np.int64),
        non_negative=non_negative,
        noise=noise,
        effort=effort,
    )
    signed = tuple(
        replace(candidate, targets=2.0 * candidate.targets - 1.0) for candidate in found.candidates
    )
    labels = tuple(2 * label - 1 for label in found.labels)
    # Slopes of one output have nothing to sum to: only a batch that was rebuilt shows that there is no noise.
    is_open = noise == 0.0 and not signed
    return replace(found, candidates=signed, labels=labels, assumes_no_noise=is_open)


def _batch(
    layers: Layers,
    update: Update,
    tolerances: list[float],
    count: int | None,
    told: NDArray[np.int64] | None,
    non_negative: bool,
    noise: float,
    effort: Effort | None,
) -> Leak:
    if layers.loss != "cross-entropy":
        return _family(layers, update, count, (), "the records of a batch cannot be told apart by one output")
    certain = certain_labels(layers, update, rounding_share(update), noise=noise, non_negative=non_negative)
    rank = rank_of(update, tolerances[-1])
    size = rank if count is None else count
    if rank == 0:
        reason = "the last layer's weights have no gradient"
        return Leak(
            Kind.UNDECIDED, None, count, (), certain, f"{reason} beyond the noise" if noise > 0.0 else reason
        )
    if size >= layers.outputs or rank > size:
        if rank > size:
            return Leak(Kind.UNDECIDED, None, count, (), certain, f"an update of at least {rank} records")
        reason = f"{size} records and {layers.outputs} classes: the slopes of the last layer are dependent"
        return _family(layers, update, count, certain, reason)
    determined = len(layers) > 1 or rank < layers.outputs - 1 or update.biases[-1] is not None
    if count is None and not determined:
        return _untold(layers, rank, certain)
    found: list[Candidate] = []
    unsteady = math.inf
    looked = batch_candidates(
        layers, update, tolerances,
        rank=rank, records=size, labels=told if rank == size else None,
        non_negative=non_negative, effort=effort, every=not determined, noise=noise,
    )  # fmt: skip
    limit = MAX_NOISE_MOVEMENT if noise > 0.0 else _STEADY
    for candidate in looked:
        if non_negative and float(candidate.records.min()) < -1e-6 * float(np.abs(candidate.records).max()):
            continue
        if candidate.moved > limit:
            unsteady = min(unsteady, candidate.moved)
            continue
        if not any(_same_batch(candidate, other) for other in found):
            found.append(candidate)
        if determined:
            break  # more equations than unknowns, and all of them hold
    if not found:
        if count is None and rank == layers.outputs - 1:
            return _untold(layers, rank, certain)
        reason = f"no batch of {size} records with this update was found"
        if unsteady < math.inf:
            reason = f"the rounding of the update alone moves the records by {unsteady:.1g} of their size"
            if noise > 0.0:
                reason = describe_movement(unsteady)
        return Leak(Kind.UNDECIDED, None, count, (), certain, reason)
    leak = _known(layers, found, size, rank, certain, determined)
    moved = max(candidate.moved for candidate in found)
    if noise == 0.0 or leak.kind is not Kind.EVERYTHING:
        return leak
    reason = f"{leak.reason}, up to about {moved:.1g} of the largest number under this noise"
    if moved <= CLOSE_NOISE_MOVEMENT:
        return replace(leak, reason=reason)
    return replace(leak, kind=Kind.FAMILY, number=None, labels=certain, reason=reason)


def _untold(layers: Layers, rank: int, certain: tuple[int, ...]) -> Leak:
    reason = f"at least {rank} records, as many as {layers.outputs} classes can tell apart"
    return Leak(Kind.FAMILY, None, None, (), certain, reason)


def _known(
    layers: Layers, found: list[Candidate], size: int, rank: int, certain: tuple[int, ...], determined: bool
) -> Leak:
    labels = tuple(sorted({int(label) for label in found[0].targets})) if len(found) == 1 else certain
    if rank < size:
        reason = f"{rank} of {size} records are known, the others left no trace"
        return Leak(Kind.FAMILY, (size - rank) * layers.inputs, size, tuple(found), labels, reason)
    if not determined:
        reason = f"as many equations as unknowns: {len(found)} found, and there may be others"
        return Leak(Kind.CANDIDATES, None, size, tuple(found), certain, reason)
    reason = f"all {size} records, and the class of each"
    return Leak(Kind.EVERYTHING, 1, size, tuple(found[:1]), labels, reason)


def _family(layers: Layers, update: Update, count: int | None, certain: tuple[int, ...], reason: str) -> Leak:
    """Return the verdict with the dimensions that a generic batch of this size has left."""
    if count is None:
        return Leak(Kind.FAMILY, None, None, (), certain, reason)
    shared = tuple(bias is not None for bias in update.biases)
    number = family_dimension(layers, count, biases=shared)
    if number is None:
        return Leak(Kind.UNDECIDED, None, count, (), certain, f"{reason}; too large to count what is left")
    if number == 0:
        more = "; the layers below leave finitely many batches, none of which was looked for"
        return Leak(Kind.CANDIDATES, None, count, (), certain, reason + more)
    return Leak(Kind.FAMILY, number, count, (), certain, reason)


def family_dimension(layers: Layers, records: int, *, biases: tuple[bool, ...] | bool = True) -> int | None:
    """The dimension of the batches that share a generic batch's update; None if it is too large to count.

    The rank of a derivative is the same at almost all batches with the same active units, so that it is taken
    at a drawn one. With one layer, m classes and no gradients of biases it is inputs (records - m + 1).
    """
    free = layers.outputs if layers.loss == "squares" else 0
    if records * (layers.inputs + free) > MOST_NUMBERS:
        return None
    stream = SimulationStream(_PROBE)
    drawn = scattered(stream, records, layers.inputs)
    if layers.loss == "cross-entropy":
        targets = (np.arange(records) % layers.outputs).astype(np.float64)
    elif layers.loss == "squares":
        targets = scattered(stream, records, layers.outputs)
    else:
        targets = np.where(np.arange(records) % 2, 1.0, -1.0)
    return sensitivity(layers, drawn, targets, biases=biases).dimension


def _same_batch(one: Candidate, other: Candidate) -> bool:
    """Whether two batches are one in another order."""
    if not np.array_equal(np.sort(one.targets), np.sort(other.targets)):
        return False
    gaps = np.abs(one.records[:, None, :] - other.records[None, :, :]).max(axis=2)
    return bool(gaps.min(axis=1).max() <= 1e-6 * float(np.abs(one.records).max()))
