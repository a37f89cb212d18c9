"""Exact check of finite channels (T1): rational arithmetic, no sampling, no tolerance.

What it proves: for the inputs that were compared, every row is a distribution and no two of them differ
by more than the claim. What it does not: that the sampler draws from this law (see `fit`), and
anything about inputs in between, unless the law is monotone there. That is so for every channel of
Reticent between its knots, and `telling_inputs` takes the knots, the ends, and the inputs at which each
symbol has its extremes on a grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from reticent.arguments import real
from reticent.audit.findings import ExactFinding
from reticent.errors import ParameterError
from reticent.mechanisms.base import Channel, exp_below
from reticent.mechanisms.categorical import Categories

Row = Sequence[Fraction]

_MOST_CATEGORIES = 128
ODD_NUMBERS = (math.nan, math.inf, -math.inf, 2.0, -1e308)


def exp_below_exact(exponent: Fraction) -> Fraction:
    """Return a rational just below e^exponent for a rational exponent (`exp_below` takes doubles)."""
    context = Context(prec=60, rounding=ROUND_FLOOR)
    low = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return Fraction(Context(prec=50).exp(low)) * (1 - Fraction(1, 10**49))


def log_ratio(largest: Fraction, smallest: Fraction) -> float:
    """ln(largest / smallest) as a double; infinite where the smallest is 0."""
    if smallest == 0:
        return math.inf if largest > 0 else 0.0
    excess = (largest - smallest) / smallest
    if excess < 1:
        return math.log1p(float(excess))
    ratio = largest / smallest
    return math.log(ratio.numerator) - math.log(ratio.denominator)


def check_matrix(
    rows: Sequence[Row],
    epsilon: float,
    *,
    delta: float | Fraction = 0,
    distances: Sequence[Sequence[float | Fraction]] | None = None,
    names: Sequence[str] | None = None,
) -> ExactFinding:
    """Check a channel given as rows of rationals, one per input.

    Args:
        rows: P(symbol | input).
        epsilon: the claim; per unit of distance if `distances` is given.
        delta: 0 for a pure claim, else the delta of (epsilon, delta) over all sets of symbols. With distances
            it is that of `ApproximateMetricDP`: P(S | x) <= e^(epsilon d) (P(S | x') + delta).
        distances: d(input, input') for metric privacy; need not be symmetric (the smaller one counts; with a
            delta, that from the first to the second).
        names: Names of the inputs.
    """
    epsilon = real("epsilon", epsilon, low=0.0)
    names = [f"input {index}" for index in range(len(rows))] if names is None else names
    wrong = _distribution_fault(rows, names)
    if wrong is not None:
        return ExactFinding("exact", False, wrong, inputs=len(rows))
    if distances is not None and delta:
        return _approximate_metric(rows, epsilon, Fraction(delta), distances, names)
    if distances is not None:
        return _metric(rows, epsilon, distances, names)
    if delta:
        return _approximate(rows, epsilon, Fraction(delta), names)
    return _pure(rows, epsilon, names)


def _distribution_fault(rows: Sequence[Row], names: Sequence[str]) -> str | None:
    if len(rows) < 2:
        raise ParameterError(f"rows must hold at least two inputs, got {len(rows)}")
    for row, name in zip(rows, names, strict=True):
        if len(row) != len(rows[0]):
            return f"{name}: {len(row)} symbols, {names[0]} has {len(rows[0])}"
        if min(row) < 0:
            return f"{name}: a probability is negative ({float(min(row)):.6g})"
        if (total := sum(row, Fraction(0))) != 1:
            return f"{name}: probabilities sum to 1 {float(total - 1):+.3g}, not to 1"
    return None


def _pure(rows: Sequence[Row], epsilon: float, names: Sequence[str]) -> ExactFinding:
    """Per symbol only the largest and the smallest probability matter."""
    bound = exp_below(epsilon)
    worst, where, broken = 0.0, "all rows are equal", 0
    for symbol, column in enumerate(zip(*rows, strict=True)):
        top, low = max(column), min(column)
        if top > bound * low:
            broken += 1
        if (loss := log_ratio(top, low)) > worst:
            pair = f"{names[column.index(top)]} and {names[column.index(low)]}"
            worst, where = loss, f"symbol {symbol} between {pair}"
    verdict = "every ratio is within" if not broken else f"{broken} symbols exceed"
    detail = f"{verdict} e^{epsilon:g}; largest log-ratio {worst:.12g} at {where}"
    return ExactFinding("exact", not broken, detail, loss=worst, inputs=len(rows))


def _metric(
    rows: Sequence[Row], epsilon: float, distances: Sequence[Sequence[Any]], names: Sequence[str]
) -> ExactFinding:
    worst, where, broken = 0.0, "all rows are equal", 0
    for i, j in combinations(range(len(rows)), 2):
        apart = min(Fraction(distances[i][j]), Fraction(distances[j][i]))
        bound = exp_below_exact(Fraction(epsilon) * apart)
        exceeded = False
        for a, b in zip(rows[i], rows[j], strict=True):
            top, low = max(a, b), min(a, b)
            exceeded |= top > (bound * low if apart else low)
            loss = log_ratio(top, low)
            per_unit = loss / float(apart) if apart else (math.inf if loss else 0.0)
            if per_unit > worst:
                worst, where = per_unit, f"{names[i]} and {names[j]}"
        broken += exceeded
    verdict = "every pair keeps" if not broken else f"{broken} pairs exceed"
    detail = f"{verdict} e^({epsilon:g} d); largest log-ratio per distance {worst:.12g}, {where}"
    return ExactFinding("exact", not broken, detail, loss=worst, inputs=len(rows))


def _approximate(rows: Sequence[Row], epsilon: float, delta: Fraction, names: Sequence[str]) -> ExactFinding:
    """Delta over sets: the worst set is where P(y|x) exceeds e^epsilon P(y|x')."""
    bound = exp_below(epsilon) if epsilon > 0 else Fraction(1)
    worst, where = Fraction(0), "all rows are equal"
    for i, here in enumerate(rows):
        for j, there in enumerate(rows):
            excess = sum(
                (max(Fraction(0), a - bound * b) for a, b in zip(here, there, strict=True)), Fraction(0)
            )
            if excess > worst:
                worst, where = excess, f"{names[i]} against {names[j]}"
    passed = worst <= delta
    detail = (
        f"delta over sets at epsilon {epsilon:g} is {float(worst):.6g}, {where}; claim {float(delta):.3g}"
    )
    loss = max(log_ratio(max(column), min(column)) for column in zip(*rows, strict=True))
    return ExactFinding("exact", passed, detail, loss=loss, delta=float(worst), inputs=len(rows))


def _approximate_metric(
    rows: Sequence[Row],
    epsilon: float,
    delta: Fraction,
    distances: Sequence[Sequence[Any]],
    names: Sequence[str],
) -> ExactFinding:
    """Delta over sets: the worst set is where e^(-epsilon d) P(y|x), rounded up, exceeds P(y|x')."""
    worst, where = Fraction(0), "all rows are equal"
    for i, here in enumerate(rows):
        for j, there in enumerate(rows):
            apart = Fraction(distances[i][j])
            share = 1 / exp_below_exact(Fraction(epsilon) * apart) if apart else Fraction(1)
            pairs = zip(here, there, strict=True)
            excess = sum((max(Fraction(0), share * a - b) for a, b in pairs), Fraction(0))
            if excess > worst:
                worst, where = excess, f"{names[i]} against {names[j]}"
    detail = (
        f"delta over sets at {epsilon:g} per distance is {float(worst):.6g}, {where}; "
        f"claim {float(delta):.3g}"
    )
    loss = max(log_ratio(max(column), min(column)) for column in zip(*rows, strict=True))
    return ExactFinding("exact", worst <= delta, detail, loss=loss, delta=float(worst), inputs=len(rows))


def telling_inputs(channel: Channel, *, points: int | None = None, most: int = 1024) -> list[Any]:
    """Return the inputs whose rows are worth comparing.

    For categories all of them (128 evenly spread ones if there are more), and an unknown one. For
    numbers the ends, the middle, the knots, what is no number or out of range, and from a grid of `points` a
    set of inputs that holds the largest and the smallest probability of every symbol on that grid. By
    default the grid is four times as fine as the window of a piecewise mechanism is narrow, e^(-epsilon/3).
    """
    if points is None:
        points = min(4097, max(257, 4 * math.ceil(math.exp(channel.guarantee.epsilon / 3.0)) + 1))
    categories = getattr(channel, "categories", None)
    if isinstance(categories, Categories):
        labels = categories.alphabet.tolist()
        step = -(-len(labels) // min(most, _MOST_CATEGORIES))
        every: list[Any] = [*labels[::step], labels[-1], object()]
        return every
    lower, upper = getattr(channel, "bounds", (-1.0, 1.0))
    middle, half = lower / 2.0 + upper / 2.0, upper / 2.0 - lower / 2.0
    chosen = [lower, middle, upper, *(middle + half * odd for odd in ODD_NUMBERS)]
    knots = np.asarray(getattr(channel, "knots", np.linspace(-1.0, 1.0, points)))
    if knots.size <= 65:
        return [*chosen, *(middle + half * knots).tolist()]
    return chosen + _covering(channel, middle + half * knots[:: -(-knots.size // points)], most)


def _covering(channel: Channel, grid: Any, most: int) -> list[float]:
    """Greedily pick inputs until each symbol's extremes on the grid are among them."""
    law = channel.probabilities(grid)
    extreme = np.concatenate([law == law.max(axis=0), law == law.min(axis=0)], axis=1)
    chosen: list[float] = []
    while len(chosen) < most and extreme.any():
        best = int(extreme.sum(axis=1).argmax())
        chosen.append(float(grid[best]))
        extreme = extreme[:, ~extreme[best]]
    return chosen


def check_channel(channel: Channel, *, inputs: Sequence[Any] | None = None) -> ExactFinding:
    """Check a finite channel against the epsilon of its guarantee, from `exact_probabilities`."""
    values = telling_inputs(channel) if inputs is None else list(inputs)
    rows = [channel.exact_probabilities(value) for value in values]
    names = [_shown(value) for value in values]
    return check_matrix(rows, channel.guarantee.epsilon, names=names)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"input {value:.6g}"
    return f"input {value}" if isinstance(value, (int, str)) else "an unknown input"
