"""Output values of the window mechanism: a small convex problem, solved with numpy alone.

Here: the values y that minimise the worst-case variance for a given privacy level, number of outputs and
window length, a certificate (a lower bound from the dual), and the choice of the window length. Not here:
sampling, and privacy. The mechanism has two probability levels whose ratio is e^epsilon whatever y is, so
nothing in this module can change its guarantee; a bad y costs accuracy only.

The mechanism (Reticent, docs/references.md [Window]): N outputs y_1 < .. < y_N with y_i = -y_{N+1-i}, and
rows s = 0..N-M. Row s reports y_i with probability c q if s <= i < s + M (i from 0), else q, where
c = e^epsilon and q = 1 / (N - M + c M). Its mean is the knot x_s, and y is scaled so that x_{N-M} = 1. An
input between two knots is rounded at random to one of them, without bias, and that row is sampled.

The problem. Let z be the non-negative half of y: h = N // 2 unknowns. In the cell [x_s, x_{s+1}], at the
share l of the way, the variance is

    f_{s,l}(z) = (1 - l) m_s + l m_{s+1} - ((1 - l) x_s + l x_{s+1})^2,

with m_s the second moment of row s: a positive semi-definite quadratic in z, and a concave parabola in l.
So F_s(z) = max over l in [0, 1] of f_{s,l}(z) is convex and has a closed form, and the task is to minimise
max_s F_s(z) subject to x_{N-M}(z) = 1. By symmetry only the cells of the non-negative half count.

The method is a log barrier with Newton steps on (z, t), t > F_s(z), one (h + 2) x (h + 2) linear solve each.
The barrier's multipliers are weights w_s on points (s, l_s); for any weights the smallest weighted variance
1 / (a' Q(w)^-1 a), with Q(w) the weighted quadratic and a the linear form x_{N-M}, is a lower bound on what
any y can reach with this N and M.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.mechanisms.base import checked_epsilon
from reticent.mechanisms.numeric.window import MOST_OUTPUTS

Array = NDArray[np.float64]

_GAP: Final = 1e-7  # relative gap between the variance and its lower bound at which the solver stops
_GROWTH: Final = 20.0  # growth of the barrier's parameter after each centring
_CENTRED: Final = 0.3  # Newton decrement (squared) below which an iterate counts as centred
_MOST_STEPS: Final = 600  # at most 80 were ever used at N <= 64, 160 at 128, 240 at 256
_MOST_HALVINGS: Final = 50
_SPREAD: Final = 1e-7  # weight of equal steps mixed in to part ties; by convexity it costs about as much
_FEWER_OUTPUTS: Final = 6  # `best_window` also tries up to this many outputs fewer
_TINY: Final = 1e-300  # stands for zero below a fraction line

# Best M / N by epsilon. Up to 6: Reticent, docs/references.md [Window]. From 8 on, from an exhaustive search
# over 48 <= N <= 64 (8 is printed there as .08; 5 / 60 is best); after the last, one output is best.
_RATIO_EPSILON: Final = (0.8, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 9.0, 10.0, 12.0)
_RATIO: Final = (0.5, 0.484, 0.455, 0.43, 0.39, 0.36, 0.328, 0.266, 0.205, 0.156, 0.083, 0.062, 0.047, 0.016)


@dataclass(frozen=True, eq=False)
class WindowSolution:
    """A solved window mechanism. Its arrays are read-only, since solutions are cached and shared.

    Invariant: `outputs == -outputs[::-1]` exactly, strictly increasing (the optimum can have ties, which
        are parted by about 1e-9); `knots` is antisymmetric too, strictly increasing, and runs from exactly
        -1.0 to exactly 1.0; `dual_bound <= worst_case_variance`.

    Attributes:
        epsilon: The privacy level that the two probability levels of a row realise.
        window: M, the number of outputs in a window.
        outputs: y_1..y_N.
        knots: x_0..x_{N-M}, the means of the rows.
        worst_case_variance: The largest variance over all inputs in [-1, 1], exact for these outputs.
        dual_bound: No outputs have a smaller worst-case variance with this N and M.
    """

    epsilon: float
    window: int
    outputs: Array
    knots: Array
    worst_case_variance: float
    dual_bound: float


def solve_window(epsilon: float, outputs: int, window: int) -> WindowSolution:
    """Minimise the worst-case variance over the output values, for a given window length.

    Args:
        epsilon: Privacy level, in the range of every local mechanism (`checked_epsilon`).
        outputs: N, from 2 to 256.
        window: M, from 1 to N - 1.

    Returns:
        The solution, with its certificate. Deterministic. About 20 ms for 64 outputs.

    Raises:
        ParameterError: If an argument is outside its range.
        ParameterTypeError: If an argument is not a number.

    Reference: Reticent, docs/references.md [Window].
    Departure: A barrier method on the exact maximum of every cell, in place of exponentiated gradient on a
        grid of points in the cells: same optimum, reached in tens of steps.
    Privacy: Holds for any output values; this function affects accuracy only.
    """
    epsilon, n = checked_epsilon(epsilon), whole("outputs", outputs, low=2, high=MOST_OUTPUTS)
    return _solve(epsilon, n, whole("window", window, low=1, high=n - 1))


def best_window(epsilon: float, outputs: int) -> WindowSolution:
    """Return the best window mechanism found with at most `outputs` outputs. Cached.

    The window length follows a table of the best ratio M / N. Since M is whole, slightly fewer outputs can
    fit the ratio better, so up to six fewer are tried, each with the two nearest lengths; then either number
    is moved by one while that helps.

    Args:
        epsilon: Privacy level, in the range of every local mechanism (`checked_epsilon`).
        outputs: The most outputs to use, from 2 to 256.

    Returns:
        The solution of smallest worst-case variance among those tried. Its `dual_bound` is for its own N
        and M, not for every mechanism.

    Raises:
        ParameterError: If an argument is outside its range.
        ParameterTypeError: If an argument is not a number.

    Reference: Reticent, docs/references.md [Window].
    """
    return _best_window(checked_epsilon(epsilon), whole("outputs", outputs, low=2, high=MOST_OUTPUTS))


def window_worst_case_variance(epsilon: float, outputs_y: ArrayLike, window: int) -> float:
    """Return the exact worst-case variance over [-1, 1] of the window mechanism with the given output values.

    Args:
        epsilon: Privacy level, in the range of every local mechanism (`checked_epsilon`).
        outputs_y: y_1..y_N, with y == -y[::-1] exactly; only their proportions matter, since they are
            scaled so that the last knot is 1.
        window: M, from 1 to N - 1.

    Raises:
        ParameterError: If an argument is outside its range, the values are not finite and antisymmetric, or
            the knots do not increase.
        ParameterTypeError: If epsilon or window is not a number.

    Reference: Reticent, docs/references.md [Window].
    """
    epsilon = checked_epsilon(epsilon)
    y = np.asarray(outputs_y, dtype=np.float64)
    if y.ndim != 1 or not 2 <= y.size <= MOST_OUTPUTS:
        raise ParameterError(f"outputs_y must be 2 to {MOST_OUTPUTS} numbers in a row, got shape {y.shape}")
    if not (np.isfinite(y).all() and np.array_equal(y, -y[::-1])):
        raise ParameterError("outputs_y must be finite and antisymmetric, y == -y[::-1]")
    half = _half_rows(epsilon, y.size, whole("window", window, low=1, high=y.size - 1))
    z = y[-half.size :]
    if not (np.diff(half.means(z)) > 0.0).all() or not half.top @ z > 0.0:
        raise ParameterError("outputs_y must give increasing knots: y[s + window] > y[s] for every s")
    return float(_cells(half, z / (half.top @ z)).maxima.max())


@dataclass(frozen=True)
class _HalfRows:
    """The rows of the non-negative half, as linear maps of z and of z^2.

    With K cells and h unknowns: mean[s] @ z is x_s and moment[s] @ z**2 is m_s, both of shape (K + 1, h),
    ordered by s; mean_step and moment_step are their differences, shape (K, h). If N - M is odd the first
    cell is centred at zero, else it starts there.
    """

    mean: Array
    moment: Array
    mean_step: Array
    moment_step: Array

    @property
    def size(self) -> int:
        return int(self.mean.shape[1])

    @property
    def top(self) -> Array:
        """The linear form x_{N-M}, which is scaled to one."""
        form: Array = self.mean[-1]
        return form

    def means(self, z: Array) -> Array:
        """Return the knots x_s of these rows."""
        return self.mean @ z


def _half_rows(epsilon: float, n: int, m: int) -> _HalfRows:
    """Rows s >= (N - M) // 2 on the pairs (y_i, -y_i) of the upper half."""
    inside = 1.0 / (m + (n - m) * math.exp(-epsilon))  # c q, without e^epsilon, which overflows
    outside = inside * math.exp(-epsilon)  # q
    s = np.arange((n - m) // 2, n - m + 1)[:, np.newaxis]
    i = np.arange(n - n // 2, n)
    upper = ((s <= i) & (i < s + m)).astype(np.float64)
    lower = ((s <= n - 1 - i) & (n - 1 - i < s + m)).astype(np.float64)
    gain = -math.expm1(-epsilon) * inside  # (c - 1) q
    mean = gain * (upper - lower)
    moment = 2.0 * outside + gain * (upper + lower)
    return _HalfRows(mean, moment, np.diff(mean, axis=0), np.diff(moment, axis=0))


@dataclass(frozen=True)
class _Cells:
    """Every cell at one z: length x_{s+1} - x_s, share l of the largest variance, mean there, F_s."""

    length: Array
    share: Array
    mean: Array
    maxima: Array


def _cells(half: _HalfRows, z: Array) -> _Cells:
    """Return the largest variance in every cell: the vertex of the parabola in l, clipped to [0, 1]."""
    x, second = half.means(z), half.moment @ (z * z)
    length, rise = np.diff(x), np.diff(second)
    share = np.clip((rise - 2.0 * x[:-1] * length) / np.maximum(2.0 * length**2, _TINY), 0.0, 1.0)
    mean = x[:-1] + share * length
    return _Cells(length, share, mean, second[:-1] + share * rise - mean**2)


@dataclass(frozen=True)
class _Step:
    """A Newton step (z, t), its squared decrement, and the multipliers and shares that it predicts."""

    dz: Array
    dt: float
    decrement: float
    weights: Array
    shares: Array


def _newton(half: _HalfRows, z: Array, t: float, cells: _Cells, tau: float) -> _Step:
    """Return the Newton step of tau t - sum_s log(t - F_s(z)) subject to a' z constant.

    By the envelope theorem the gradient of F_s is that of f_{s,l} at the maximising l. Its Hessian has the
    further term g g' / (2 length^2), g the derivative of that gradient in l, wherever 0 < l < 1.
    """
    h = half.size
    share = cells.share[:, np.newaxis]
    mean = half.mean[:-1] + share * half.mean_step
    moment = half.moment[:-1] + share * half.moment_step
    gradient = 2.0 * (moment * z - cells.mean[:, np.newaxis] * mean)
    turn = 2.0 * (
        half.moment_step * z - cells.length[:, np.newaxis] * mean - cells.mean[:, np.newaxis] * half.mean_step
    )
    free = (cells.share > 0.0) & (cells.share < 1.0)
    bend = np.where(free, 1.0 / np.maximum(2.0 * cells.length**2, _TINY), 0.0)
    u = 1.0 / (t - cells.maxima)
    system = np.zeros((h + 2, h + 2))
    system[:h, :h] = (
        2.0 * np.diag(u @ moment)
        - 2.0 * (mean.T * u) @ mean
        + (turn.T * (u * bend)) @ turn
        + (gradient.T * u**2) @ gradient
    )
    system[:h, h] = system[h, :h] = -(u**2) @ gradient
    system[h, h] = u @ u
    system[:h, h + 1] = system[h + 1, :h] = half.top
    slope = np.concatenate([u @ gradient, [tau - u.sum(), 0.0]])
    step = np.linalg.solve(system, -slope)
    dz, dt = step[:h], float(step[h])
    return _Step(
        dz,
        dt,
        decrement=-float(slope @ step),
        weights=np.maximum(u + u**2 * (gradient @ dz - dt), 0.0),
        shares=np.clip(cells.share + bend * (turn @ dz), 0.0, 1.0),
    )


def _dual_value(half: _HalfRows, weights: Array, shares: Array) -> float:
    """The smallest weighted variance over z with a' z = 1: a lower bound for any weights and shares."""
    total = float(weights.sum())
    if not 0.0 < total < math.inf:
        return 0.0
    w, share = weights / total, shares[:, np.newaxis]
    mean = half.mean[:-1] + share * half.mean_step
    moment = half.moment[:-1] + share * half.moment_step
    form = np.diag(w @ moment) - (mean.T * w) @ mean
    return 1.0 / float(half.top @ np.linalg.solve(form, half.top))


def _line_search(
    half: _HalfRows, z: Array, t: float, cells: _Cells, tau: float, step: _Step
) -> tuple[Array, float, _Cells] | None:
    """Halve the step until it stays inside the barrier and lowers it; None where rounding forbids both."""
    value = tau * t - float(np.log(t - cells.maxima).sum())
    length = 1.0
    for _ in range(_MOST_HALVINGS):
        new_z, new_t = z + length * step.dz, t + length * step.dt
        new_cells = _cells(half, new_z)
        if (new_cells.maxima < new_t).all():
            new_value = tau * new_t - float(np.log(new_t - new_cells.maxima).sum())
            if new_value <= value - 0.01 * length * step.decrement + 1e-12 * abs(value):
                return new_z, new_t, new_cells
        length /= 2.0
    return None


def _minimise(half: _HalfRows, start: Array) -> tuple[Array, float]:
    """Follow the central path from `start`: the best z seen and the best lower bound seen.

    Whatever happens numerically, z is usable and the bound is valid (0 at worst).
    """
    z = start / (half.top @ start)
    cells = _cells(half, z)
    count = cells.maxima.size
    best_z, best, bound = z, float(cells.maxima.max()), 0.0
    t = 1.5 * best
    tau = count / t
    for _ in range(_MOST_STEPS):
        try:
            step = _newton(half, z, t, cells, tau)
            bound = max(bound, _dual_value(half, step.weights, step.shares))
            if best - bound <= _GAP * best:
                break
            if step.decrement < _CENTRED:
                if count / tau < 0.01 * _GAP * t:
                    break
                tau *= _GROWTH
                step = _newton(half, z, t, cells, tau)
        except np.linalg.LinAlgError:
            break
        moved = _line_search(half, z, t, cells, tau, step)
        if moved is None:
            break
        z, t, cells = moved
        largest = float(cells.maxima.max())
        if largest < best:
            best_z, best = z, largest
    return best_z, bound


def _solve(epsilon: float, n: int, m: int) -> WindowSolution:
    """`solve_window` on checked arguments."""
    half = _half_rows(epsilon, n, m)
    start = np.arange(half.size, dtype=np.float64) + (1.0 if n % 2 else 0.5)  # equal steps
    z, bound = _minimise(half, start)
    z = np.maximum.accumulate(np.maximum(z, 0.0))  # ties come out of order in the last digits
    z = z + _SPREAD * start / (half.top @ start)
    z = z / (half.top @ z)
    variance = float(_cells(half, z).maxima.max())
    knots = _mirrored(half.means(z)[1:], centre=(n - m) % 2 == 0)
    knots[0], knots[-1] = -1.0, 1.0
    y = _mirrored(z, centre=n % 2 == 1)
    y.setflags(write=False)
    knots.setflags(write=False)
    return WindowSolution(epsilon, m, y, knots, variance, min(bound, variance))


def _mirrored(upper: Array, *, centre: bool) -> Array:
    """Return the antisymmetric array with this upper half, around a zero if it has a centre."""
    return np.concatenate([-upper[::-1], [0.0] if centre else [], upper])


@lru_cache(maxsize=256)
def _best_window(epsilon: float, outputs: int) -> WindowSolution:
    """`best_window` on checked arguments."""
    ratio = float(np.interp(epsilon, _RATIO_EPSILON, _RATIO))
    tried: dict[tuple[int, int], WindowSolution] = {}
    for n in range(max(2, outputs - _FEWER_OUTPUTS), outputs + 1):
        for m in {math.floor(ratio * n), math.ceil(ratio * n)}:
            _try(tried, epsilon, n, m)
    while True:
        best = min(tried.values(), key=lambda solution: solution.worst_case_variance)
        n, m = best.outputs.size, best.window
        neighbours = ((n, m - 1), (n, m + 1), (max(n - 1, 2), m))
        if not any(_try(tried, epsilon, *neighbour) for neighbour in neighbours):
            return best


def _try(tried: dict[tuple[int, int], WindowSolution], epsilon: float, n: int, m: int) -> bool:
    """Solve (n, m) unless it was tried or is out of range; whether it was solved."""
    m = min(max(m, 1), n - 1)
    if (n, m) in tried:
        return False
    tried[n, m] = _solve(epsilon, n, m)
    return True
