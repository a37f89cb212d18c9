"""What an update reveals: the one entry for any model that is a sequence of linear layers with ReLU."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import real, whole
from reticent.audit.leakage.batches import Effort, batch_candidates, rank_of, scattered
from reticent.audit.leakage.labels import certain_labels
from reticent.audit.leakage.layers import Layers, Update
from reticent.audit.leakage.records import nothing, one_record
from reticent.audit.leakage.sensitivity import MOST_NUMBERS, sensitivity
from reticent.audit.leakage.verdicts import Candidate, Kind, Leak
from reticent.errors import ParameterError
from reticent.randomness import SimulationStream

_ROUNDINGS = {True: 4096.0, False: 64.0}  # of one number: doubles have digits to spare
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
    """What the holder of an update and of the model learns of the records behind it.

    A batch is said to be known only if its own update is the one that was seen, in every layer, up to the
    rounding of its numbers; where the equations leave a choice, the choice is what is told.

    Args:
        layers: the model that the update is of, before the update.
        update: the mean gradient of a batch.
        records: of the batch, if that is known.
        labels: their classes, if they are known, in any order.
        non_negative: whether records are known to have no negative numbers, as pictures have none.
        noise: the standard deviation of noise on each number of the update, if there is any.
        effort: how long to look for batches.

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
    tolerances = _tolerances(update, level)
    if _silent(update) or (layers.loss == "cross-entropy" and layers.outputs == 1):
        return nothing(layers, update, records=count)
    if count is None or count == 1:
        found = one_record(layers, update, tolerances, non_negative=non_negative)
        if found is not None:
            is_untold = count is None and found.kind is Kind.EVERYTHING and _are_batches_alike(layers)
            return _of_how_many(found) if is_untold else found
        if count == 1:
            return Leak(Kind.UNDECIDED, None, 1, (), (), "no single record has this update")
    return _batch(layers, update, tolerances, count, told, non_negative, effort)


def _are_batches_alike(layers: Layers) -> bool:
    """Whether batches have updates of single records: slopes are free (squares), or a class's (hinge)."""
    return layers.loss in ("squares", "hinge") and len(layers) == 1 and layers.outputs == 1


def _of_how_many(found: Leak) -> Leak:
    """What is known of one record, where nobody said that there is one."""
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
    base = _ROUNDINGS[update.precision < 1e-12] * update.precision
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
    """As softmax of two classes, whose scores are 0 and f: class 1 is the target 1, class 0 the target -1."""
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
    signed = tuple(Candidate(c.records, 2.0 * c.targets - 1.0, c.misfit) for c in found.candidates)
    labels = tuple(2 * label - 1 for label in found.labels)
    return Leak(found.kind, found.number, found.records, signed, labels, found.reason)


def _batch(
    layers: Layers,
    update: Update,
    tolerances: list[float],
    count: int | None,
    told: NDArray[np.int64] | None,
    non_negative: bool,
    effort: Effort | None,
) -> Leak:
    if layers.loss != "cross-entropy":
        return _family(layers, update, count, (), "the records of a batch cannot be told apart by one output")
    certain = certain_labels(layers, update, tolerances[-1], non_negative=non_negative)
    rank = rank_of(update, tolerances[-1])
    size = rank if count is None else count
    if rank == 0:
        return Leak(Kind.UNDECIDED, None, count, (), certain, "the last layer's weights have no gradient")
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
        non_negative=non_negative, effort=effort, every=not determined,
    )  # fmt: skip
    for candidate in looked:
        if non_negative and float(candidate.records.min()) < -1e-6 * float(np.abs(candidate.records).max()):
            continue
        if candidate.moved > _STEADY:
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
        return Leak(Kind.UNDECIDED, None, count, (), certain, reason)
    return _known(layers, found, size, rank, certain, determined)


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
    """How many dimensions a batch of this size has left, where it is generic."""
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
