"""Gradient clones: other inputs with the same update, where the biases' gradients are not shared.

A last layer sees h = t u: the update shows the unit vector u and the vector a = t (softmax(t s + b) - e_y),
with s = W u. All inputs of that update are the lengths t that solve this. With two labels (or scores that
agree along u for all labels but y) there are two lengths at most, by the two real branches of Lambert's W;
with more there is one, since two other labels fix t by the ratio of their probabilities.

Everything rests on the two roots of v - ln v = eta, eta >= 1, which are -W_0(-e^-eta) in (0, 1] and
-W_-1(-e^-eta) in [1, inf): taken from eta, nothing overflows, and no two large numbers are subtracted.

Reference: Biswas 2023, Lemmas 6.2 and 6.3, Theorems 6.4 to 6.6, Corollary 6.7.
Departure: Theorem 6.6 (b) prints the condition for *no* real solution, and no branch of W; see `clone`.
"""

from __future__ import annotations

import math

import numpy as np

from reticent.arguments import real
from reticent.mechanisms.base import Floats

_TIE = 8.0 * float(np.finfo(np.float64).eps)  # gamma p within this of 1: the clone is the input itself
_STEPS = 60


def lower_root(eta: float) -> float:
    """Return the root v <= 1 of v - ln v = eta >= 1, which is -W_0(-e^-eta)."""
    if eta <= 1.0:
        return 1.0
    log_v = -eta if eta > 2.0 else -math.sqrt(2.0 * (eta - 1.0))
    for _ in range(_STEPS):  # Newton on ln v: log_v - e^log_v + eta is concave, from the left
        v = math.exp(log_v)
        slope = 1.0 - v
        if slope <= 0.0:
            return 1.0
        step = (log_v - v + eta) / slope
        log_v = min(log_v - step, 0.0)
        if abs(step) <= 1e-16 * (1.0 + abs(log_v)):
            break
    return math.exp(log_v)


def upper_root(eta: float) -> float:
    """Return the root v >= 1 of v - ln v = eta >= 1, which is -W_-1(-e^-eta)."""
    if eta <= 1.0:
        return 1.0
    v = 1.0 + math.sqrt(2.0 * (eta - 1.0)) + (eta - 1.0)  # above the root: Newton falls to it
    for _ in range(_STEPS):
        step = (v - math.log(v) - eta) / (1.0 - 1.0 / v)
        v = max(v - step, 1.0)
        if abs(step) <= 1e-16 * v or v == 1.0:
            break
    return v


def partner(c: float) -> float:
    """The other root w of w e^-w = c e^-c, for c > 0: above 1 where c is below, and the other way round."""
    off = c - 1.0
    excess = off - (math.log1p(off) if abs(off) < 0.5 else math.log(c))  # eta - 1
    if abs(off) < 1e-3:  # here the square root would lose digits of w - 1
        w = 1.0 - off * (1.0 - off * (2.0 / 3.0 - off * (4.0 / 9.0 - off * 44.0 / 135.0)))
        for _ in range(3):
            w -= (w - 1.0 - math.log1p(w - 1.0) - excess) / (1.0 - 1.0 / w) if w != 1.0 else 0.0
        return w
    return upper_root(1.0 + excess) if off < 0.0 else lower_root(1.0 + excess)


def clone(gamma: float, delta: float) -> float | None:
    """The K > 0 other than 1 with which K x has the update of x (two labels, x of label A), if there is one.

    The solutions of e^(K gamma) - K e^gamma = (K - 1) e^delta are K = p_B + w / gamma with w e^-w = c e^-c
    and c = gamma p_A; w = c is x itself, and the other branch its only clone. It is larger than x where
    c < 1 and smaller where c > 1. Where gamma <= 0, or c = 1, there is none.

    Args:
        gamma: x . (w_A - w_B).
        delta: b_B - b_A. For an x of label B give -gamma and -delta.

    Reference: Biswas 2023, Theorem 6.6; Theorem 6.5 is c >= 1, that is gamma >= 1 + W_0(e^(delta - 1)).
    """
    g, d = real("gamma", gamma), real("delta", delta)
    if g <= 0.0:
        return None
    p_a, p_b = _logistic(g - d), _logistic(d - g)
    c = g * p_a
    if abs(c - 1.0) <= _TIE:
        return None
    return p_b + partner(c) / g


def clones_of_the_other_label(gamma: float, delta: float) -> tuple[float, ...]:
    """Every K < 0 with which K x, of label B, has the update of x of label A: none, one or two.

    Departure: Corollary 6.7 counts at most two clones in all; with a large bias there can be two of the
        other label beside `clone`. Inputs that cannot be negative have none of these.
    """
    g, d = real("gamma", gamma), real("delta", delta)
    return tuple(-t for t in lengths_of_two(g, -d, _logistic(d - g)))


def lengths_of_two(slope: float, delta: float, a: float) -> tuple[float, ...]:
    """Every t > 0 with t / (1 + e^(slope t - delta)) = a > 0, in rising order.

    With v = slope (t - a) this is v e^-v = slope a e^(slope a - delta).
    """
    if slope == 0.0:
        return (a * (1.0 + math.exp(-delta)),)
    exponent = slope * a - delta
    if slope < 0.0:  # the left side rises: one root, between a and a (1 + e^-delta)
        return (_rising_root(slope, delta, a),)
    eta = -(math.log(slope * a) + exponent)
    if eta < 1.0:
        return (a + 1.0 / slope,) if eta > 1.0 - 1e-12 else ()
    return (a + lower_root(eta) / slope, a + upper_root(eta) / slope)


def _rising_root(slope: float, delta: float, a: float) -> float:
    """By Newton on ln t in ln t - ln a = ln(1 + e^(slope t - delta)), safeguarded by a bracket."""
    low = math.log(a)
    high = low + _softplus(slope * a - delta)
    x = high
    for _ in range(_STEPS):
        t = math.exp(x)
        value = x - low - _softplus(slope * t - delta)
        if value > 0.0:
            high = x
        nearer = x - value / (1.0 - slope * t * _logistic(slope * t - delta))
        if abs(nearer - x) <= 1e-16 * (1.0 + abs(x)):
            return math.exp(nearer)
        x = nearer if nearer <= high else 0.5 * (low + high)
    return math.exp(x)


def lengths(scores: Floats, offsets: Floats, label: int, seen: Floats, *, tolerance: float) -> list[float]:
    """Return every t > 0 with t (softmax(t scores + offsets) - e_label) = seen, up to the tolerance.

    Args:
        scores: W u, of each label.
        offsets: b, of each label.
        label: y.
        seen: a, of each label; negative at y alone.
        tolerance: Share of `seen` that may be rounding or noise.
    """
    a = -float(seen[label])
    if a <= 0.0:
        return []
    others = np.arange(len(scores)) != label
    s, b = scores[others], offsets[others]
    spread = float(s.max() - s.min())
    if spread * a > 1e3 * tolerance:  # two of the other labels fix t: the first that fits is the only one
        for start in _starts(scores, offsets, label, seen, a):
            t = _polished(start, scores, offsets, label, seen)
            if _misfit(t, scores, offsets, label, seen) <= 10.0 * tolerance:
                return [t]
        return []
    top = float(b.max())  # along u the other labels are one label, or nearly
    merged = top + math.log(float(np.exp(b - top).sum()))
    slope = float(scores[label] - s.mean())
    starts = [*lengths_of_two(slope, merged - float(offsets[label]), a)]
    starts += _starts(scores, offsets, label, seen, a)
    found: list[float] = []
    for t in starts if spread == 0.0 else [_polished(t, scores, offsets, label, seen) for t in starts]:
        fits = _misfit(t, scores, offsets, label, seen) <= 10.0 * tolerance
        if fits and all(abs(t - other) > 1e-6 * t for other in found):
            found.append(t)
    return found


def _starts(scores: Floats, offsets: Floats, label: int, seen: Floats, a: float) -> list[float]:
    """Return starting points: as if t were small, and from the ratios of the other labels' probabilities."""
    found = [a / max(1.0 - float(_softmax(a * scores + offsets)[label]), 1e-300)]
    weight = np.maximum(seen, 0.0)
    weight[label] = 0.0
    total = float(weight.sum())
    if total > 0.0:
        logs = np.log(np.where(weight > 0.0, weight, 1.0)) - offsets
        centred = scores - float(weight @ scores) / total
        lever = float(weight @ np.square(centred))
        if lever > 0.0:
            found.append(float(weight @ (centred * logs)) / lever)
    return [t for t in found if math.isfinite(t) and t > 0.0] or [a]


def _polished(t: float, scores: Floats, offsets: Floats, label: int, seen: Floats) -> float:
    """Gauss-Newton on all labels at once."""
    for _ in range(_STEPS):
        p = _softmax(t * scores + offsets)
        slope = t * p * (scores - float(p @ scores)) + p
        slope[label] -= 1.0
        miss = t * p - seen
        miss[label] -= t
        step = float(slope @ miss) / max(float(slope @ slope), 1e-300)
        t, before = max(t - step, 0.2 * t), t
        if abs(t - before) <= 2e-16 * before:
            break
    return t


def _misfit(t: float, scores: Floats, offsets: Floats, label: int, seen: Floats) -> float:
    """Return the distance of t from solving the equation, in proportion to what was seen."""
    d = _softmax(t * scores + offsets)
    d[label] -= 1.0
    return float(np.linalg.norm(t * d - seen) / np.linalg.norm(seen))


def _softmax(z: Floats) -> Floats:
    e = np.exp(z - z.max())
    return np.asarray(e / e.sum())


def _logistic(z: float) -> float:
    return 1.0 / (1.0 + math.exp(-z)) if z > -700.0 else math.exp(z)


def _softplus(z: float) -> float:
    return max(z, 0.0) + math.log1p(math.exp(-abs(z)))
