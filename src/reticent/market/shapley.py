"""Shares of the members that bring a federation over its quota: exact Shapley values of a threshold game.

Members have whole weights w, and a coalition earns 1 if its weights reach the quota q. With every other
member there by a coin of chance t, and t uniform,

    value of i  =  integral over t in (0, 1) of  P( q - w_i <= weight of the others < q ).

The chances follow from one product of polynomials, (1 - t) + t x^w for each member, out of which one member
is divided. Division goes wrong where t > 1/2; there the dual game, in which members are away with chance
1 - t and the quota is W - q + 1, has the same value. The integrand is a polynomial of degree n - 1, so n / 2
nodes of Gauss are exact. It lives where t W is near q, and far fewer nodes do there: as many as a proven
bound on the error of the rule asks for (`_gauss_size`), whatever the weights are.

Beyond what can be worked out, orders in which members come are drawn, and the value of a member is how often
it is she who reaches the quota: `sampled_values`, with bounds.

Reference: Biswas 2023, Section 8.4.2 (whose pruning visits subsets); Owen 1972 for the integral; Trefethen
2008, Theorem 4.5 for the bound.
Departure: O(sqrt(n) n q) instead of 2^n. Members of equal weight are worked out once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats
from reticent.randomness import Stream, secure_or

STEPS = 100_000  # of a quota
FEW = 16  # members, whose coalitions are visited one by one
MOST_WORK = 6 * 10**10  # multiplications: about twenty seconds
INTEGRAL_ERROR = 1e-15  # that the rule of Gauss adds to a share at most
_TAIL = math.log(1e18)
_ANGLES = 1024  # on half an ellipse, where a polynomial is bounded
_FEW_NODES = 24  # that are not worth a search for fewer
_AT_ONCE = 1 << 20  # places of orders that are drawn together


def threshold_values(weights: Sequence[int], quota: int, *, earlier_rule: bool = False) -> Floats:
    """Return each member's share of the earnings; the sum is 1, or 0 if all together miss the quota.

    Exact, up to `INTEGRAL_ERROR` and the rounding of doubles (together below 1e-12), if the quota is at most
    `STEPS` times the greatest common divisor, or there are at most `FEW` members. Otherwise weights are first
    rounded to `STEPS` steps of the quota, and the shares are those of the rounded game.

    Args:
        weights: Contribution of each member, whole numbers >= 0.
        quota: Quota that must be reached, a whole number >= 1.
        earlier_rule: Use the nodes of earlier releases, for deals that were settled with them: too few where
            one member has a large part of all weights (shares were off by up to 2e-5).

    Raises:
        ParameterError: no members, or more than can be worked out in time; see `sampled_values`.
    """
    goal = whole("quota", quota, low=1)
    held = [min(whole("weights", weight, low=0), goal) for weight in weights]  # enough is enough
    if not held:
        raise ParameterError("weights must be of at least one member, got none")
    if goal > sum(held):
        return np.zeros(len(held))
    common = math.gcd(*held)
    held, goal = [weight // common for weight in held], -(-goal // common)
    if goal > STEPS:
        if len(held) <= FEW:
            return _by_subsets(held, goal)
        held = [round(Fraction(weight * STEPS, goal)) for weight in held]
        goal = min(STEPS, sum(held))
    return _by_integral(held, goal, earlier_rule=earlier_rule)


def sampled_values(
    weights: Sequence[int],
    quota: int,
    *,
    orders: int = 100_000,
    confidence: float = 0.999,
    rng: Stream | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Return each member's share by drawn orders, and bounds that hold for all members at once.

    The bounds are those of Chernoff and Hoeffding: m KL(found || true) <= ln(2 n / (1 - confidence)).

    Args:
        weights: Contribution of each member, whole numbers >= 0, in all below 2^62.
        quota: Quota that must be reached, a whole number >= 1.
        orders: Number m of orders that are drawn.
        confidence: Confidence with which all bounds hold.
        rng: Random stream that draws the orders; None for the secure stream.

    Returns:
        Shares, and the lower and upper bound of each.

    Raises:
        ParameterError: no members, or numbers that are too large.
    """
    goal = whole("quota", quota, low=1, high=1 << 62)
    held = [min(whole("weights", weight, low=0), goal) for weight in weights]
    count = whole("orders", orders, low=1, high=10**9)
    doubt = 1.0 - real("confidence", confidence, low=0.0, high=1.0, open_low=True, open_high=True)
    if not held or sum(held) >= 1 << 62:
        raise ParameterError("weights must be of at least one member, and below 2^62 in all")
    if goal > sum(held):
        return np.zeros(len(held)), np.zeros(len(held)), np.zeros(len(held))
    stream, numbers = secure_or(rng), np.array(held, dtype=np.int64)
    pivots, together = np.zeros(len(held), dtype=np.int64), max(1, _AT_ONCE // len(held))
    for start in range(0, count, together):
        rows = min(together, count - start)
        drawn = np.argsort(stream.units(rows * len(held)).reshape(rows, len(held)), axis=1)
        reached = np.cumsum(numbers[drawn], axis=1) >= goal
        pivots += np.bincount(drawn[np.arange(rows), reached.argmax(axis=1)], minlength=len(held))
    found = pivots / count
    reach = math.log(2.0 * len(held) / doubt) / count
    return found, _farthest(found, np.zeros(len(held)), reach), _farthest(found, np.ones(len(held)), reach)


def _farthest(found: Floats, end: Floats, reach: float) -> Floats:
    """The share between `found` and `end` at which KL(found || share) is `reach`, or the end; outwards."""
    near, far = found.copy(), end.copy()
    for _ in range(60):
        middle = (near + far) / 2.0
        with np.errstate(divide="ignore", invalid="ignore"):
            apart = np.where(found > 0.0, found * np.log(found / middle), 0.0) + np.where(
                found < 1.0, (1.0 - found) * np.log((1.0 - found) / (1.0 - middle)), 0.0
            )
        inside = apart <= reach
        near, far = np.where(inside, middle, near), np.where(inside, far, middle)
    return far


def _by_subsets(weights: list[int], quota: int) -> Floats:
    """By every coalition: for few members of any weights."""
    n = len(weights)
    sums, sizes = np.zeros(1, dtype=object if sum(weights) > 2**62 else np.int64), np.zeros(1, dtype=np.int64)
    for weight in weights:
        sums, sizes = np.concatenate([sums, sums + weight]), np.concatenate([sizes, sizes + 1])
    orders = np.array([1.0 / (n * math.comb(n - 1, size)) for size in range(n)])
    found, places = np.zeros(n), np.arange(len(sums))
    for member, weight in enumerate(weights):
        pivotal = (sums < quota) & (sums >= quota - weight) & (places >> member & 1 == 0)
        found[member] = np.bincount(sizes[pivotal.astype(np.bool_)], minlength=n)[:n] @ orders
    return found


def _by_integral(held: list[int], goal: int, *, earlier_rule: bool = False) -> Floats:
    different, places = np.unique(np.array(held), return_inverse=True)
    counts = np.bincount(places)
    nodes, areas = _nodes(held, goal, earlier_rule=earlier_rule)
    dual = sum(held) - goal + 1
    work = len(nodes) * len(held) * min(goal, dual)
    if work > MOST_WORK:
        raise ParameterError(f"weights: {len(held)} members are more than can be worked out in time")
    found = np.zeros(len(different))
    for node, area in zip(nodes, areas, strict=True):
        chance, reach = (node, goal) if node <= 0.5 else (1.0 - node, dual)
        windows = np.zeros(len(different))
        _kernel()(np.minimum(different, reach), counts, chance, np.zeros(reach), windows)
        found += area * windows
    return np.maximum(found, 0.0)[places]


def _nodes(weights: list[int], quota: int, *, earlier_rule: bool = False) -> tuple[Floats, Floats]:
    """Return nodes and areas of the integral over t, which add at most `INTEGRAL_ERROR`."""
    n, total = len(weights), sum(weights)
    exact = n // 2 + 1
    # Beyond this reach of q the sum of the others' weights is less likely than 1e-18 (Hoeffding).
    reach = math.sqrt(sum(weight * weight for weight in weights) * _TAIL / 2.0) + max(weights)
    low, high = max(0.0, (quota - reach) / total), min(1.0, (quota + reach) / total)
    if earlier_rule:
        size = min(exact, 2 * math.isqrt(n) + 18)
    else:
        size = exact if exact <= _FEW_NODES else min(exact, _gauss_size(n - 1, low, high))
    if size == exact:
        low, high = 0.0, 1.0
    nodes, areas = np.polynomial.legendre.leggauss(size)
    return low + (high - low) * (nodes + 1.0) / 2.0, areas * (high - low) / 2.0


@lru_cache(maxsize=64)
def _gauss_size(degree: int, low: float, high: float) -> int:
    """Return how many nodes integrate the chance of any coalition over [low, high] within `INTEGRAL_ERROR`.

    The integrand is a sum of t^a (1 - t)^b with a + b = degree, each coalition once, so that it is at most
    (|z| + |1 - z|)^degree in the complex plane. By Trefethen 2008, Theorem 4.5, a rule of m nodes on [-1, 1]
    is off by at most 64/15 M r^(-2 m) / (1 - r^-2), M being the largest value on the ellipse with foci -1 and
    1 whose half axes sum to r. The best of some ellipses is taken; between angles that are looked at, the
    base of the power grows by no more than its Lipschitz constant 2 times half a step.

    Args:
        degree: Number of the other members.
        low: Lower end of the interval, >= 0.
        high: Upper end of the interval, <= 1.
    """
    half, middle = (high - low) / 2.0, (high + low) / 2.0
    logs = np.geomspace(0.02, 2.0, 40)[:, None]  # ln r
    angles = np.linspace(0.0, math.pi, _ANGLES)
    points = middle + half * (np.cosh(logs) * np.cos(angles) + 1j * np.sinh(logs) * np.sin(angles))
    base = (np.abs(points) + np.abs(1.0 - points)).max(axis=1)
    base += half * np.cosh(logs[:, 0]) * math.pi / (_ANGLES - 1)
    bounds = math.log(64.0 / 15.0 * half / INTEGRAL_ERROR) + degree * np.log(base)
    bounds -= np.log1p(-np.exp(-2.0 * logs[:, 0]))
    return max(1, math.ceil(float((bounds / (2.0 * logs[:, 0])).min())))


def _windows(weights: Any, counts: Any, chance: Any, law: Any, found: Any) -> None:
    """P(reach - w <= weight of the others < reach) for each weight; `law` is of the length of the reach."""
    reach, away = law.size, 1.0 - chance
    law[0] = 1.0
    top = 0
    for kind in range(weights.size):
        w = weights[kind]
        for _ in range(counts[kind]):
            top = min(top + w, reach - 1)
            for k in range(top, w - 1, -1):
                law[k] = away * law[k] + chance * law[k - w]
            for k in range(min(w, top + 1) - 1, -1, -1):
                law[k] *= away
    others = np.zeros(reach)
    for kind in range(weights.size):
        w = weights[kind]
        if w == 0:
            continue
        for k in range(min(w, reach)):
            others[k] = law[k] / away
        for k in range(w, reach):
            others[k] = (law[k] - chance * others[k - w]) / away
        sum_of = 0.0
        for k in range(reach - w, reach):
            sum_of += others[k]
        found[kind] = sum_of


@lru_cache(maxsize=1)
def _kernel() -> Callable[..., None]:
    try:
        import numba
    except ImportError:
        return _windows_in_arrays
    compiled: Callable[..., None] = numba.njit(nogil=True)(_windows)
    return compiled


def _windows_in_arrays(weights: Any, counts: Any, chance: float, law: Floats, found: Floats) -> None:
    """Compute the windows without numba: products by slices, divisions in strides of the weight."""
    reach, away = law.size, 1.0 - chance
    law[0] = 1.0
    for w, count in zip(weights.tolist(), counts.tolist(), strict=True):
        for _ in range(count):
            moved = chance * law[: reach - w]
            law *= away
            law[w:] += moved
    for kind, w in enumerate(weights.tolist()):
        if w == 0:
            continue
        others = law / away
        for start in range(w, reach, w):
            stop = min(start + w, reach)
            others[start:stop] -= chance / away * others[start - w : stop - w]
        found[kind] = others[reach - w :].sum()
