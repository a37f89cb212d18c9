"""One record from its update: exactly, without a search, with or without the gradients of biases.

The gradient of a layer's weights is d h^T: h enters the layer, d is the derivative of what it gives.

* Where a bias's gradient is shared, it is d, and h = G^T d / |d|^2 (Lemma 6.1, for any layer).
* Where none is, the last layer shows the direction u of h. Its length t follows from the loss (`clones`), or
  from the biases below, since t u = relu(t W u' + b) (Lemma 6.13 without the unit that it takes as known).
* From h and d of one layer follow d' = (W^T d)(h > 0) and h' of the layer below, down to the record
  (Theorem 6.14).

Every candidate is put through the network again, and kept only if its update is the one that was seen.

Reference: Biswas 2023, Lemmas 6.1 and 6.13, Theorem 6.14.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from reticent.audit.leakage.clones import lengths
from reticent.audit.leakage.labels import certain_labels
from reticent.audit.leakage.layers import Layers, Update, rounding_share
from reticent.audit.leakage.noise_checks import noise_movement
from reticent.audit.leakage.verdicts import Candidate, Kind, Leak
from reticent.mechanisms.base import Floats

CLOSE_NOISE_MOVEMENT = 0.01  # of the largest number: as near as a record is called known under noise
MAX_NOISE_MOVEMENT = 0.5  # from here on what was rebuilt says nothing of the record


@dataclass(frozen=True)
class _Chain:
    """The values that enter each layer and come back to it, from `top` down, up to an unknown length."""

    top: int
    entering: list[Floats]
    back: list[Floats]


def one_record(
    layers: Layers, update: Update, tolerances: list[float], *, noise: float = 0.0, non_negative: bool = False
) -> Leak | None:
    """Return what an update reveals of its one record; None if no single record has this update.

    Args:
        layers: Model, as the record met it.
        update: Update of the model, finite, and not all zero in the first layer.
        tolerances: Share of each layer's gradient that may be rounding or noise.
        noise: Standard deviation of the noise on each number. Under noise a record is called known only as
            far as noise of this size does not move it.
        non_negative: True if records are known to have no negative numbers.
    """
    leak = _exact_record(layers, update, tolerances, non_negative, is_checked=noise == 0.0)
    if leak is None or noise == 0.0:
        return leak
    return _limit_by_noise(layers, update, leak, tolerances, noise, non_negative)


def _limit_by_noise(
    layers: Layers, update: Update, leak: Leak, tolerances: list[float], noise: float, non_negative: bool
) -> Leak:
    """Return what is left of a verdict on one record, where noise moves what was rebuilt."""
    labels = certain_labels(layers, update, rounding_share(update), noise=noise, non_negative=non_negative)
    if not leak.candidates:
        return Leak(Kind.UNDECIDED, None, 1, (), labels, "noise hides which units answered the record")
    movements = [
        noise_movement(
            layers, update, candidate, noise, records=1,
            solve=partial(_nearest_record, layers, candidate, tolerances, non_negative),
        )
        for candidate in leak.candidates
    ]  # fmt: skip
    kept = tuple(
        replace(candidate, moved=moved)
        for candidate, moved in zip(leak.candidates, movements, strict=True)
        if moved <= MAX_NOISE_MOVEMENT
    )
    if not kept:
        return Leak(Kind.UNDECIDED, None, 1, (), labels, describe_movement(min(movements)))
    moved = max(candidate.moved for candidate in kept)
    if leak.kind is Kind.EVERYTHING and moved > CLOSE_NOISE_MOVEMENT:
        reason = f"one record, up to about {moved:.1g} of its largest number under this noise"
        return Leak(Kind.FAMILY, None, 1, kept, labels, reason)
    reason = f"{leak.reason}, up to about {moved:.1g} of its largest number under this noise"
    return replace(leak, number=len(kept), candidates=kept, reason=reason)


def describe_movement(moved: float) -> str:
    """Return why a batch that was rebuilt under noise is not called known."""
    if math.isinf(moved):
        return "noise of this size does not explain what the rebuilt record leaves of the update"
    return f"noise of this size moves what is rebuilt by {moved:.2g} of its largest number"


def _nearest_record(
    layers: Layers, candidate: Candidate, tolerances: list[float], non_negative: bool, update: Update
) -> Floats | None:
    """Return the record of another update that is nearest to a candidate."""
    leak = _exact_record(layers, update, tolerances, non_negative, is_checked=False)
    if leak is None or not leak.candidates:
        return None
    return min(
        (other.records for other in leak.candidates),
        key=lambda records: float(np.abs(records - candidate.records).max()),
    )


def _exact_record(
    layers: Layers, update: Update, tolerances: list[float], non_negative: bool, *, is_checked: bool
) -> Leak | None:
    """Return what the update says if its numbers are exact, up to the tolerances.

    Args:
        layers: Model of the update.
        update: Update of one record.
        tolerances: Share of each layer's gradient that may be rounding or noise.
        non_negative: Whether records are known to have no negative numbers.
        is_checked: Whether a candidate counts only if its own update is this one, up to the tolerances. Under
            noise its residual is judged by `noise_movement` instead.
    """
    limits = tolerances if is_checked else [math.inf] * len(tolerances)
    shared = next((place for place, b in enumerate(update.biases) if b is not None and b.any()), None)
    attempts = (0.0, 1.0) if len(layers) > 1 else (0.0,)
    for (
        share
    ) in attempts:  # a silent unit leaves zeros; only noise, or a sum in another order, makes them less
        floors = [share * tolerance for tolerance in tolerances]
        if shared is None:
            found = _from_weights(layers, update, tolerances, limits, floors, non_negative)
        else:
            found = _from_bias(layers, update, limits, floors, shared)
        if found is not None:
            return found
    return None


def _from_bias(
    layers: Layers, update: Update, limits: list[float], floors: list[float], place: int
) -> Leak | None:
    """From the lowest layer whose bias's gradient is shared."""
    d = update.biases[place]
    assert d is not None
    h = (d @ update.weights[place]) / float(d @ d)
    chain = _descend(layers, update, place, h, d, floors)
    if chain is None:
        return _nothing(layers, update)
    kept = _checked(layers, update, chain.entering[0], chain.back[0], limits)
    return None if kept is None else _leak(layers, [kept])


def _descend(
    layers: Layers, update: Update, top: int, h: Floats, d: Floats, floors: list[float]
) -> _Chain | None:
    """Down to the record; None where nothing comes through."""
    entering, back = [h], [d]
    for place in range(top - 1, -1, -1):
        h = entering[-1]
        d = (back[-1] @ layers.weights[place + 1]) * (h > floors[place + 1] * float(h.max(initial=0.0)))
        size = float(d @ d)
        if size == 0.0:
            return None
        back.append(d)
        entering.append((d @ update.weights[place]) / size)
    return _Chain(top, entering[::-1], back[::-1])


def _from_weights(
    layers: Layers,
    update: Update,
    tolerances: list[float],
    limits: list[float],
    floors: list[float],
    non_negative: bool,
) -> Leak | None:
    """Without any gradient of a bias: the direction first, then its length."""
    last, top = update.weights[-1], len(layers) - 1
    row = last[int(np.argmax(np.einsum("ij,ij->i", last, last)))]
    size = math.sqrt(float(row @ row))
    if size == 0.0:
        return _nothing(layers, update)
    u = row / size
    hidden = len(layers) > 1 or non_negative
    if hidden and u.sum() < 0.0:
        u = -u
    if hidden and float(u.min()) < -10.0 * tolerances[-1]:
        return None
    seen = last @ u
    kept: list[Candidate] = []
    for sign in (1.0,) if hidden else (1.0, -1.0):
        chain = _descend(layers, update, top, sign * u, sign * seen, floors)
        if chain is None:
            return _nothing(layers, update)
        found = _lengths(layers, chain, tolerances, floors)
        if found is None:
            return _free_length(layers)
        for t in found:
            candidate = _checked(layers, update, t * chain.entering[0], chain.back[0] / t, limits)
            if candidate is not None:
                kept.append(candidate)
    return _leak(layers, kept) if kept else None


def _lengths(
    layers: Layers, chain: _Chain, tolerances: list[float], floors: list[float]
) -> list[float] | None:
    """Return the lengths that may be; None where any length fits."""
    u, seen, tolerance = chain.entering[-1], chain.back[-1], tolerances[-1]
    from_biases = _length_from_biases(layers, chain, tolerances, floors)
    if from_biases is not None:
        return [from_biases]
    if layers.loss == "hinge":
        return [abs(float(seen[0]))]
    if layers.loss == "squares":
        return None
    label = int(np.argmin(seen))
    if seen[label] >= 0.0 or np.partition(seen, 1)[1] < -10.0 * tolerance * abs(float(seen[label])):
        return []
    return lengths(layers.weights[-1] @ u, layers.biases[-1], label, seen, tolerance=tolerance)


def _length_from_biases(
    layers: Layers, chain: _Chain, tolerances: list[float], floors: list[float]
) -> float | None:
    """The t of t (u - W u') = b on the active units of all hidden layers, if the biases are large enough."""
    above = below = scale = 0.0
    for place in range(len(layers) - 1):
        given = chain.entering[place + 1]
        active = given > floors[place + 1] * float(given.max())
        gap = (given - layers.weights[place] @ chain.entering[place])[active]
        above += float(gap @ layers.biases[place][active])
        below += float(gap @ gap)
        scale += float(given @ given)
    if below <= (1e5 * max(tolerances)) ** 2 * scale or above <= 0.0:
        return None
    return above / below


def _checked(
    layers: Layers, update: Update, record: Floats, slopes: Floats, tolerances: list[float]
) -> Candidate | None:
    """Return the record with its target, if the whole update is its.

    The record is G^T d / |d|^2 of the first layer's gradient and the slopes d that follow from above.
    """
    values, entering = record, [record]
    for w, b in zip(layers.weights[:-1], layers.biases[:-1], strict=True):
        values = np.maximum(w @ values + b, 0.0)
        entering.append(values)
    scores = layers.weights[-1] @ values + layers.biases[-1]
    shown = update.biases[-1]
    if shown is None:
        size = float(values @ values)
        if size == 0.0:
            return None
        shown = (update.weights[-1] @ values) / size
    target, d = _target(layers, scores, shown)
    steep = math.sqrt(float(d @ d))
    if steep == 0.0:
        return None
    slack = 1.0 + 1.0 / steep  # a slope is a difference of numbers near one
    worst, back = 0.0, d
    for place in range(len(layers) - 1, -1, -1):
        if place < len(layers) - 1:
            back = (back @ layers.weights[place + 1]) * (entering[place + 1] > 0.0)
        gap = _layer_misfit(update, place, back, entering[place], slopes if place == 0 else None)
        if gap > 10.0 * slack * tolerances[place]:
            return None
        worst = max(worst, gap)
    return Candidate(record[None, :], target, worst)


def _target(layers: Layers, scores: Floats, shown: Floats) -> tuple[Floats, Floats]:
    """Return the target that the slopes show, and the slopes that it has."""
    if layers.loss == "cross-entropy":
        target = np.array([float(np.argmin(shown))])
    elif layers.loss == "squares":
        target = (scores - 0.5 * layers.outputs * shown)[None, :]
    else:
        target = np.array([-1.0 if shown[0] > 0.0 else 1.0])
    d = layers.slopes(scores[None, :], target)[0]
    return (target[:, 0] if target.ndim == 2 and layers.outputs == 1 else target), d


def _layer_misfit(update: Update, place: int, d: Floats, h: Floats, solved: Floats | None) -> float:
    """Return the misfit of d h^T to the weights' gradient, and of d to the bias', in proportion.

    With E the difference: E h, E^T d and |E| are looked at, without forming d h^T. Where h was solved from
    slopes that E^T takes to zero, d is compared with these instead.
    """
    weights, bias = update.weights[place], update.biases[place]
    dd, hh = float(d @ d), float(h @ h)
    if dd == 0.0:
        return 1.0 if weights.any() or (bias is not None and bias.any()) else 0.0
    found = float(weights.any()) if hh == 0.0 else _weights_misfit(update, place, d, h, solved)
    if bias is not None:
        gap = bias - d
        found = max(found, math.sqrt(float(gap @ gap) / dd))
    return found


def _weights_misfit(update: Update, place: int, d: Floats, h: Floats, solved: Floats | None) -> float:
    weights, dd, hh = update.weights[place], float(d @ d), float(h @ h)
    left = weights @ h - d * hh
    found = math.sqrt(float(left @ left) / dd) / hh
    if solved is None:
        right = d @ weights - h * dd
        found = max(found, math.sqrt(float(right @ right) / hh) / dd)
    else:
        gap = solved - d
        found = max(found, math.sqrt(float(gap @ gap) / dd))
    size = update.squares[place] / (dd * hh) - 1.0
    if abs(size) > 1e-6:  # the part of E that neither h nor d sees; below, squares cannot show it
        found = max(found, math.sqrt(abs(size)))
    return found


def _leak(layers: Layers, kept: list[Candidate]) -> Leak:
    different: list[Candidate] = []
    for candidate in kept:
        if not any(_same(candidate, other) for other in different):
            different.append(candidate)
    labels: tuple[int, ...] = ()
    if layers.loss == "cross-entropy":
        said = {int(candidate.targets[0]) for candidate in different}
        labels = tuple(said) if len(said) == 1 else ()
    if len(different) == 1:
        return Leak(
            Kind.EVERYTHING, 1, 1, tuple(different), labels, "one record, and no other has this update"
        )
    reason = "records in one direction, which differ in length or sign, have this update"
    return Leak(Kind.CANDIDATES, len(different), 1, tuple(different), labels, reason)


def _same(one: Candidate, other: Candidate) -> bool:
    size = float(np.linalg.norm(one.records))
    near = float(np.linalg.norm(one.records - other.records)) <= 1e-9 * size
    return near and bool(np.array_equal(one.targets, other.targets))


def _free_length(layers: Layers) -> Leak:
    reason = "the direction of the record is known, its length is not: each length has a target that fits"
    return Leak(Kind.FAMILY, 1, 1, (), (), reason)


def _nothing(layers: Layers, update: Update) -> Leak:
    return nothing(layers, update, records=1)


def nothing(layers: Layers, update: Update, *, records: int | None, noise: float = 0.0) -> Leak:
    """Return that the update says nothing of the records; perhaps a label."""
    shared_biases = Update((*update.weights[:-1], np.zeros_like(update.weights[-1])), update.biases)
    labels = certain_labels(layers, shared_biases, rounding_share(update), noise=noise)
    number = (records or 1) * layers.inputs
    reason = (
        "no derivative reaches the first layer: every record that is silent in the same way has this update"
    )
    return Leak(Kind.NOTHING, number, records, (), labels, reason)
