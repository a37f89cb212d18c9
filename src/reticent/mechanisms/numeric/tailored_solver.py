"""The unbiased epsilon-LDP channel of least expected variance under a public guess, by column generation.

Here: the linear program, its certificate, and the choice of at most 64 outputs. Not here: sampling, and
privacy. Whatever this module returns is made a table of whole numbers by `tailored`, which keeps e^epsilon
by construction and checks it; a bad solution costs accuracy only. Solving needs scipy and is the operator's
work.

The program. An input is rounded at random, without bias, to knots a_1 < .. < a_n. With w_i the guess's mass
that arrives at a_i, minimise sum_i w_i E[Y^2 | a_i] over channels with P(y | a_i) <= c P(y | a_j), c =
e^epsilon, and mean a_i at a_i. By convexity all that holds between the knots as well. The extreme columns
of the cone of ratios are P(y | .) = theta (1 or c for each input), so a channel is a mixture of columns (y,
pattern): unknowns theta >= 0,

    sum theta s_i = 1,    sum theta s_i y = a_i    for every i,    optionally  sum theta s_i y^2 <= cap_i.

With dual prices alpha, beta and mu <= 0 a column's reduced cost is the sum over i of s_i h_i(y),
h_i(y) = (w_i - mu_i) y^2 - beta_i y - alpha_i, least where s_i = c if h_i(y) < 0 and 1 otherwise: a
piecewise quadratic g(y) whose pieces end at the roots of the h_i, so that its minimum over all real y is
found in closed form. Since sum theta <= 1, the dual value plus min(0, min g) is a lower bound on every
channel at these knots. Lowering all alpha_i by t raises g(y) by t sum s_i, which often costs less: the
bound takes the better.

The way. `tailored_interior` solves for a few hundred outputs, with all their patterns at once; outputs that
are in use stay, those where g is least are added, until the bound is near (2 to 12 rounds). Then at most 64
outputs are kept and solved for, and HiGHS picks few of the patterns that this comes to.

Reference: mathematics 1.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.errors import MissingExtra, ParameterError
from reticent.mechanisms.numeric.formulas import duchi_bound
from reticent.mechanisms.numeric.priors import Prior
from reticent.mechanisms.numeric.tailored_interior import Array, Point, best_among

MOST_OUTPUTS: Final = 64
LEAST_EPSILON, MOST_EPSILON = 0.05, 10.0  # beyond, tables in closed form: see `columns_for`
_GAP, _GAP_WITHIN = 0.0005, 0.0015  # relative gap at which the solver stops; within a limit
_SHARE: Final = 0.1  # of that, the error to which outputs are solved for
_ROUNDS: Final = 20
_EVEN, _EVEN_WITHIN = 0.4, 0.8  # share of the knots that lie evenly, whatever the guess; within a limit
_CLOSEST: Final = 1.0 / 400.0  # the mechanism wants 1/500
_PENALTIES: Final = (30.0, 1000.0)  # of an excess over the limit; the next where the first is paid
_EVENLY: Final = np.linspace(-2.0, 2.0, 61)  # outputs that are always there: they keep a way open
_BEYOND: Final = 1.15  # knots and the middles between them, as outputs, and so much further out
_IN_USE, _OF_USE = 1e-5, 1e-8  # of the likeliest output: to stay for another round, and to be kept
_SNAPPED: Final = 1e-6  # of a level of a pattern
_TINY: Final = 1e-12
_EXCESS: Final = 1e-9
_METHODS: Final[tuple[tuple[str, dict[str, float]], ...]] = (  # the next where one fails, at a small epsilon
    ("highs-ds", {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-10}),
    ("highs-ds", {}),
    ("highs-ipm", {}),
)


@dataclass(frozen=True, eq=False)
class Solution:
    """A mixture of columns.

    Attributes:
        knots: n of them, from -1 to 1.
        outputs: y of each column, at most 64 different ones.
        high: Booleans of shape (columns, n): true where a column is c times as likely.
        weights: theta of each column, P(y | a) = theta or c theta.
        expected: the expected variance under the guess, as solved.
        bound: no channel at these knots has less; -inf where nothing was solved.
    """

    knots: Array
    outputs: Array
    high: NDArray[np.bool_]
    weights: Array
    expected: float
    bound: float

    @property
    def gap(self) -> float:
        """The most by which any channel at these knots can have less, as a share."""
        return (self.expected - self.bound) / self.expected


class _Columns(NamedTuple):
    y: Array
    high: NDArray[np.bool_]

    def __add__(self, other: Any) -> _Columns:
        return _Columns(np.append(self.y, other.y), np.concatenate([self.high, other.high]))

    def only(self, which: Any) -> _Columns:
        return _Columns(self.y[which], self.high[which])


class _Prices(NamedTuple):
    alpha: Array
    beta: Array
    mu: Array


def solved(
    epsilon: float, prior: Prior, *, inputs: int | None = None, most_variance: float | None = None
) -> Solution:
    """Return the channel of least expected variance.

    Args:
        epsilon: Level of the channel.
        prior: Guess of the distribution.
        inputs: Number n of knots; 33 up to epsilon 4 and 41 beyond if not given.
        most_variance: Limit that no input's variance may exceed.
    """
    n = (33 if epsilon <= 4.0 else 41) if inputs is None else inputs
    masses = prior.masses.tobytes()
    return _solved(epsilon, masses, n, most_variance)


def lower_bound(epsilon: float, prior: Prior, *, inputs: int, gap: float = 0.005) -> float:
    """Return an expected variance below which no channel at this many knots falls.

    For comparing: no channel is made.

    Args:
        epsilon: Level of the channels.
        prior: Guess of the distribution.
        inputs: Number of knots.
        gap: Share by which the best may be above the bound at most, if all goes well.
    """
    program = _Program(epsilon, prior, spread_knots(prior, inputs))
    program.solve(gap)
    return (program.bound - program.base) * program.scale**2


@lru_cache(maxsize=64)
def _solved(epsilon: float, masses: bytes, inputs: int, most_variance: float | None) -> Solution:
    prior = Prior(np.frombuffer(masses))
    knots = spread_knots(prior, inputs, _EVEN if most_variance is None else _EVEN_WITHIN)
    if not LEAST_EPSILON <= epsilon <= MOST_EPSILON:
        return _closed_form(epsilon, prior, knots)
    for penalty in _PENALTIES:
        program = _Program(epsilon, prior, knots, most_variance, penalty)
        y, point = program.solve(_GAP if most_variance is None else _GAP_WITHIN)
        columns = program.few(y, point)
        theta = program.vertex(columns)
        if program.excess <= _EXCESS:
            return program.solution(columns.only(theta > _TINY), theta[theta > _TINY])
    raise ParameterError("regret must be larger at this epsilon: no channel at its knots keeps it")


def spread_knots(prior: Prior, inputs: int, even: float = _EVEN) -> Array:
    """Knots from -1 to 1, denser where the guess is: rounding costs sum w h^2 / 6, least for h ~ w^(-1/3)."""
    wide = max(1, prior.masses.size // 64)
    smooth = np.convolve(prior.masses, np.full(2 * wide + 1, 1.0), mode="same")
    density = np.cbrt(smooth)
    density = even / density.size + (1.0 - even) * density / density.sum()
    for _ in range(20):  # no two knots closer than _CLOSEST
        density = np.minimum(density, 2.0 / _CLOSEST / density.size / (inputs - 1))
        density /= density.sum()
    below = np.append(0.0, np.cumsum(density)) / density.sum()
    edges = np.linspace(-1.0, 1.0, below.size)
    knots = np.interp(np.linspace(0.0, 1.0, inputs), below, edges)
    knots[0], knots[-1] = -1.0, 1.0
    return np.asarray(knots)


class _Program:
    """The linear program at given knots. Outputs are in units of C = coth(epsilon/2), where all is near 1."""

    def __init__(
        self,
        epsilon: float,
        prior: Prior,
        knots: Array,
        most_variance: float | None = None,
        penalty: float = 0.0,
    ) -> None:
        self.c, self.scale = math.exp(epsilon), duchi_bound(epsilon)
        self.knots, self.w = knots, prior.on(knots)
        self.means = knots / self.scale
        self.base = prior.second_moment / self.scale**2
        self.caps: Array | None = None
        if most_variance is not None:  # a cell's variance is at most h^2/4 above its ends'
            cells = np.diff(knots)
            widest = np.maximum(np.append(0.0, cells), np.append(cells, 0.0))
            self.caps = (knots**2 + most_variance * (1.0 - 1e-6) - widest**2 / 4.0) / self.scale**2
        self.penalty = penalty
        self.bound, self.value, self.excess = -math.inf, math.inf, 0.0

    def steps(self, lowest: float = -1.0, highest: float = 1.0) -> _Columns:
        """Columns that make Duchi's mechanism, or one like it between two outputs: there is a solution."""
        places = np.arange(self.knots.size)
        up = places >= np.arange(self.knots.size + 1)[:, None]
        y = np.repeat([highest, lowest], len(up))
        return _Columns(y, np.concatenate([up, ~up]))

    def solve(self, gap: float) -> tuple[Array, Point]:
        """Outputs, and the best among them: within `gap` of every channel there, if all goes well."""
        y = self._first_outputs()
        for turn in range(_ROUNDS):
            point = self._among(y, gap)
            prices = self._prices(point)
            places, costs, _ = self._priced(prices)
            self.bound = max(self.bound, self._bound(prices, costs.min(initial=0.0)))
            enough = gap * (point.value - self.base)
            if (point.value - self.bound <= enough and point.error <= enough) or turn == _ROUNDS - 1:
                break
            around = np.pad(costs, 1, constant_values=math.inf)
            is_least = (costs < 0.0) & (costs <= around[:-2]) & (costs <= around[2:])
            used = y[point.tops > _IN_USE * point.tops.max()]
            y = np.unique(np.round(np.concatenate([used, places[is_least], _EVENLY]), 7))
        return y, point

    def _first_outputs(self) -> Array:
        near = np.append(self.means, (self.means[1:] + self.means[:-1]) / 2.0)
        return np.unique(np.concatenate([near, _BEYOND * near, _EVENLY]))

    def _among(self, y: Array, gap: float) -> Point:
        sums = [np.ones(self.knots.size), self.means] + ([] if self.caps is None else [self.caps])
        until = self.base, gap * _SHARE
        return best_among(y, self.c, self.w, np.array(sums), self.penalty, until=until)

    def _prices(self, point: Point) -> _Prices:
        alpha, beta, *more = point.prices
        return _Prices(alpha, beta, np.minimum(more[0], 0.0) if more else np.zeros(alpha.size))

    def few(self, y: Array, point: Point) -> _Columns:
        """Return the patterns of at most 64 outputs, solved for again if there were more."""
        used = point.tops > _OF_USE * point.tops.max()
        if used.sum() > MOST_OUTPUTS:
            y = _clustered(np.round(y[used], 9), point.chances[used].mean(axis=1))
            point = self._among(y, _GAP)
            used = point.tops > _OF_USE * point.tops.max()
        few = _patterns(y[used], point.chances[used], point.tops[used], self.c)
        return few + self.steps(y[0], y[-1])  # with which there is a solution, however levels were rounded

    def vertex(self, columns: _Columns) -> Array:
        """Solve for the weights (in units of 1/c) of given columns: few of them are not 0."""
        optimize = _optimize()
        n, s = self.knots.size, np.where(columns.high, 1.0, 1.0 / self.c)
        equal = np.concatenate([s.T, (s * columns.y[:, None]).T])
        cost = columns.y**2 * (s @ self.w)
        limits: dict[str, Any] = {}
        if self.caps is not None:  # with an excess that costs much, so that there is always a solution
            squares = (s * columns.y[:, None] ** 2).T
            limits = {"A_ub": np.column_stack([squares, -np.ones(n)]), "b_ub": self.caps}
            equal, cost = np.column_stack([equal, np.zeros(2 * n)]), np.append(cost, self.penalty)
        for method, options in _METHODS:
            found = optimize.linprog(
                cost,
                A_eq=equal,
                b_eq=np.append(np.ones(n), self.means),
                method=method,
                options=options,
                **limits,
            )
            if found.status == 0:
                break
        else:
            raise ArithmeticError(f"HiGHS found no solution: {found.message}")
        self.value = float(found.fun)
        self.excess = 0.0 if self.caps is None else float(found.x[-1])
        return np.asarray(found.x[: columns.y.size])

    def _at(self, prices: _Prices, y: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Return the least reduced cost at outputs, and its pattern."""
        curve = self.w - prices.mu
        h = curve * y[:, None] ** 2 - prices.beta * y[:, None] - prices.alpha
        high = h < 0.0
        return y, np.where(high, h, h / self.c).sum(axis=1), high

    def _priced(self, prices: _Prices) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Return the least reduced cost of every piece of g, over all real outputs."""
        ends = _roots(self.w - prices.mu, prices.beta, prices.alpha)
        low, high = np.append(-math.inf, ends), np.append(ends, math.inf)
        inside = np.append(ends[:1] - 1.0, np.append((ends[:-1] + ends[1:]) / 2.0, ends[-1:] + 1.0))
        _, _, pattern = self._at(prices, inside)
        s = np.where(pattern, 1.0, 1.0 / self.c)
        a, b, d = s @ (self.w - prices.mu), s @ prices.beta, s @ prices.alpha
        with np.errstate(all="ignore"):
            y = np.clip(np.where(a > 0.0, b / (2.0 * a), inside), low, high)
        return y, (a * y - b) * y - d, pattern

    def _bound(self, prices: _Prices, below: float) -> float:
        """Return a lower bound on the value: the dual one, made feasible in the cheaper of two ways."""
        dual = float(prices.alpha.sum() + prices.beta @ self.means)
        if self.caps is not None:
            dual += float(prices.mu @ self.caps)
            if -prices.mu.sum() > self.penalty * (1.0 + 1e-9):  # not a price of the excess
                return -math.inf
        plain = dual + self.c * min(0.0, below)
        lowered, lost = prices, 0.0
        for _ in range(4):
            _, costs, high = self._priced(lowered)
            least = int(costs.argmin())
            if costs[least] >= 0.0:
                break
            t = -1.01 * float(np.max(-costs / np.where(high, 1.0, 1.0 / self.c).sum(axis=1)))
            lowered = lowered._replace(alpha=lowered.alpha + t)
            lost -= t * self.knots.size
        shifted = dual - lost + self.c * min(0.0, float(costs.min()))
        return max(plain, shifted)

    def solution(self, columns: _Columns, theta: Array) -> Solution:
        """In the units of [-1, 1]."""
        square = self.scale**2
        return Solution(
            self.knots,
            np.round(columns.y, 9) * self.scale,
            columns.high,
            theta / self.c,
            (self.value - self.base) * square,
            (self.bound - self.base) * square,
        )


def _roots(a: Array, b: Array, d: Array) -> Array:
    """Return the points where a y^2 - b y - d changes its sign, for all of them, in order; two at least."""
    with np.errstate(all="ignore"):
        root = np.sqrt(b * b + 4.0 * a * d)
        larger = np.where(b >= 0.0, b + root, b - root) / 2.0  # without cancellation
        found = np.concatenate([larger / a, -d / larger])
    found = np.unique(found[np.isfinite(found)])
    return found if found.size else np.zeros(1)


def _patterns(y: Array, chances: Array, tops: Array, c: float) -> _Columns:
    """Columns of which the chances are mixtures: an output is likely wherever its level is above a cut."""
    levels = (chances / tops[:, None] - 1.0 / c) / (1.0 - 1.0 / c)
    levels = np.where(levels < _SNAPPED, 0.0, np.where(levels > 1.0 - _SNAPPED, 1.0, levels))
    made = []
    for output, row in zip(y.tolist(), levels, strict=True):
        cuts = np.unique(row)
        made += [_Columns(np.array([output]), (row >= cut)[None]) for cut in cuts[cuts > 0.0]]
        if cuts[-1] < 1.0:
            made.append(_Columns(np.array([output]), np.zeros((1, row.size), dtype=np.bool_)))
    return _Columns(np.concatenate([one.y for one in made]), np.concatenate([one.high for one in made]))


def _clustered(y: Array, mass: Array) -> Array:
    """At most 64 outputs near those that are used: the two that lose least become one, again and again."""
    points, places = np.unique(y, return_inverse=True)
    weights = np.bincount(places, mass) + _TINY
    while points.size > MOST_OUTPUTS:
        lost = weights[:-1] * weights[1:] / (weights[:-1] + weights[1:]) * np.diff(points) ** 2
        lost[[0, -1]] = math.inf  # the ends are needed
        at = int(lost.argmin())
        both = weights[at] + weights[at + 1]
        points[at] = (weights[at] * points[at] + weights[at + 1] * points[at + 1]) / both
        weights[at] = both
        points, weights = np.delete(points, at + 1), np.delete(weights, at + 1)
    return np.round(points, 9)


def _closed_form(epsilon: float, prior: Prior, knots: Array) -> Solution:
    """Duchi's mechanism at the knots for a tiny epsilon; for a large one an output for each knot."""
    program, c, n = _Program(epsilon, prior, knots), math.exp(epsilon), knots.size
    if epsilon < LEAST_EPSILON:
        columns, cells = program.steps().only(slice(None)), np.diff(knots)
        theta = np.zeros(columns.y.size)
        half = n + 1  # step t makes a knot of at least t likely, and for -1 those below it
        theta[1:n] = theta[half + 1 : half + n] = cells / 2.0 * c / (c + 1.0)
    else:
        y = knots * (c + n - 1.0) / (c - 1.0) / program.scale
        columns, theta = _Columns(y, np.eye(n, dtype=np.bool_)), np.full(n, c / (c + n - 1.0))
    s = np.where(columns.high, 1.0, 1.0 / c)
    program.value = float(theta @ (columns.y**2 * (s @ program.w)))
    kept = theta > 0.0
    return program.solution(columns.only(kept), theta[kept])


def _optimize() -> Any:
    try:
        from scipy import optimize
    except ImportError as error:
        raise MissingExtra("a tailored mechanism is solved with scipy", "accounting") from error
    return optimize
