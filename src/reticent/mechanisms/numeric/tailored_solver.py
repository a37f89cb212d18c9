"""The unbiased epsilon-LDP channel of least expected variance under a public guess, by column generation.

Here: the linear program, its certificate, and the choice of at most 64 outputs. Not here: sampling, and
privacy. Whatever this module returns is made a table of whole numbers by `tailored`, which keeps e^epsilon
by construction and checks it; a bad solution costs accuracy only. Solving needs scipy (HiGHS) and is the
operator's work.

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

The solver starts at few knots and refines: a pattern of the coarse knots gives at most four on knots twice as
many, which is nearly all that the next program needs (5 to 25 turns instead of 60 and more).

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

Array = NDArray[np.float64]

MOST_OUTPUTS: Final = 64
LEAST_EPSILON, MOST_EPSILON = 0.05, 10.0  # beyond, tables in closed form: see `columns_for`
_GAP, _GAP_WITHIN = 0.0004, 0.002  # relative gap at which the solver stops; within a limit
_LOOSE: Final = 0.005  # on coarser knots, and with few outputs
_TURNS: Final = 60
_COARSEST: Final = 9
_EVEN, _EVEN_WITHIN = 0.4, 0.8  # share of the knots that lie evenly, whatever the guess; within a limit
_CLOSEST: Final = 1.0 / 400.0  # the mechanism wants 1/500
_PENALTIES: Final = (5.0, 100.0)  # of an excess over the limit; the next where the first is paid
_PER_TURN: Final = 33  # columns that one turn adds for each set of prices
_NEAR: Final = (8, 64)  # columns for each knot kept from turn to turn; the next where it is too few
_ENOUGH: Final = 0.005  # a gap with which the first of these is left
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
        high: where a column is c times as likely: booleans of shape (columns, n).
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
        """How much less any channel at these knots can have at most, as a share."""
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

    def towards(self, other: _Prices) -> _Prices:
        return _Prices(*((mine + theirs) / 2.0 for mine, theirs in zip(self, other, strict=True)))


def solved(
    epsilon: float, prior: Prior, *, inputs: int | None = None, most_variance: float | None = None
) -> Solution:
    """The channel of least expected variance.

    Args:
        epsilon: its level.
        prior: the guess.
        inputs: n; 33 up to epsilon 4 and 41 beyond if not given.
        most_variance: that no input's variance may exceed.
    """
    n = (33 if epsilon <= 4.0 else 41) if inputs is None else inputs
    masses = prior.masses.tobytes()
    return _solved(epsilon, masses, n, most_variance)


def lower_bound(epsilon: float, prior: Prior, *, inputs: int, gap: float = 0.005) -> float:
    """An expected variance that no channel at this many knots falls below. For comparing: it makes none.

    Args:
        epsilon: of all of them.
        prior: the guess.
        inputs: how many knots.
        gap: how far the best may be above it at most, as a share, if all goes well.
    """
    program, _, _ = _generated(epsilon, prior, spread_knots(prior, inputs), _sizes(inputs), (gap, gap))
    return (program.bound - program.base) * program.scale**2


def _sizes(inputs: int) -> list[int]:
    """Knots of which each program has twice as many as the one before."""
    sizes = [inputs]
    while sizes[0] > _COARSEST and sizes[0] % 2:
        sizes.insert(0, (sizes[0] + 1) // 2)
    return sizes


@lru_cache(maxsize=64)
def _solved(epsilon: float, masses: bytes, inputs: int, most_variance: float | None) -> Solution:
    prior = Prior(np.frombuffer(masses))
    sizes = _sizes(inputs)
    knots = spread_knots(prior, inputs, _EVEN if most_variance is None else _EVEN_WITHIN)
    if not LEAST_EPSILON <= epsilon <= MOST_EPSILON:
        return _closed_form(epsilon, prior, knots)
    for penalty in _PENALTIES:
        found: list[Solution] = []
        for near in _NEAR:
            program, columns, theta = _refining(epsilon, prior, knots, sizes, most_variance, penalty, near)
            if program.excess > _EXCESS:
                break
            found.append(program.solution(columns, theta))
            if found[-1].gap <= _ENOUGH:
                break
        if found:
            return min(found, key=lambda one: one.expected)
    raise ParameterError("regret must be larger at this epsilon: no channel at its knots keeps it")


def _generated(
    epsilon: float,
    prior: Prior,
    knots: Array,
    sizes: list[int],
    gaps: tuple[float, float],
    limits: tuple[float | None, float, int] = (None, 0.0, _NEAR[0]),
) -> tuple[_Program, _Columns, Array]:
    """From few knots, each to the first gap, to all, to the second. Limits: see `_Program`."""
    found: _Columns | None = None
    for size in sizes:
        within = knots[:: (knots.size - 1) // (size - 1)]
        program = _Program(epsilon, prior, within, *limits)
        columns = program.steps()
        if found is not None:
            columns += _refined(found)
        theta, columns = program.generate(columns, gaps[size == knots.size])
        found, theta = columns.only(theta > _TINY), theta[theta > _TINY]
    assert found is not None
    return program, found, theta


def _refining(
    epsilon: float,
    prior: Prior,
    knots: Array,
    sizes: list[int],
    most_variance: float | None,
    penalty: float,
    near: int,
) -> tuple[_Program, _Columns, Array]:
    """From few knots to all of them, then to at most 64 outputs."""
    gap = _GAP if most_variance is None else _GAP_WITHIN
    limits = most_variance, penalty, near
    program, found, theta = _generated(epsilon, prior, knots, sizes, (_LOOSE, gap), limits)
    if np.unique(np.round(found.y, 9)).size > MOST_OUTPUTS and program.excess <= _EXCESS:
        kept = _clustered(np.round(found.y, 9), theta * found.high.mean(axis=1))
        nearest = kept[np.abs(found.y[:, None] - kept).argmin(axis=1)]
        few = program.steps(kept[0], kept[-1]) + _Columns(nearest, found.high)
        theta, found = program.generate(few, gap, kept)
        found, theta = found.only(theta > _TINY), theta[theta > _TINY]
    return program, found, theta


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
        near: int = _NEAR[0],
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
        self.penalty, self.near = penalty, near
        self.bound, self.value, self.excess = -math.inf, math.inf, 0.0

    def steps(self, lowest: float = -1.0, highest: float = 1.0) -> _Columns:
        """Columns that make Duchi's mechanism, or one like it between two outputs: there is a solution."""
        places = np.arange(self.knots.size)
        up = places >= np.arange(self.knots.size + 1)[:, None]
        y = np.repeat([highest, lowest], len(up))
        return _Columns(y, np.concatenate([up, ~up]))

    def generate(self, columns: _Columns, gap: float, allowed: Array | None = None) -> tuple[Array, _Columns]:
        """Add columns until the value is within `gap` of the bound; among `allowed` outputs, if given."""
        best: _Prices | None = None
        bound = -math.inf
        for turn in range(_TURNS):
            try:
                theta, prices = self._master(columns)
            except ArithmeticError:  # HiGHS loses its way among nearly equal columns, at a small epsilon
                if not turn:
                    raise
                break
            tried = [prices] if best is None else [best.towards(prices), prices]
            new = []
            for one in tried:
                y, costs, high = self._priced(one) if allowed is None else self._at(one, allowed)
                below = costs.min(initial=0.0)
                reached = self._bound(one, below)
                if best is None or reached > bound:
                    best, bound = one, reached
                order = np.argsort(costs)[:_PER_TURN]
                chosen = order[costs[order] < -_TINY]
                new.append(_Columns(y[chosen], high[chosen]))
            if allowed is None:
                self.bound = max(self.bound, bound)
            enough = self.value - max(bound, self.bound) <= gap * (self.value - self.base)
            if enough or turn == _TURNS - 1 or not any(one.y.size for one in new):
                break
            columns, theta = self._near(columns, theta, prices)
            for added in new:
                columns += added
        return theta, columns.only(slice(theta.size))

    def _near(self, columns: _Columns, theta: Array, prices: _Prices) -> tuple[_Columns, Array]:
        """The columns in use, and the others that are nearest to it: a master of all of them takes longer."""
        most = self.near * self.knots.size
        if theta.size <= most:
            return columns, theta
        y, s = columns.y[:, None], np.where(columns.high, 1.0, 1.0 / self.c)
        costs = (s * (((self.w - prices.mu) * y - prices.beta) * y - prices.alpha)).sum(axis=1)
        kept = np.sort(np.argsort(np.where(theta > _TINY, -math.inf, costs))[:most])
        return columns.only(kept), theta[kept]

    def _master(self, columns: _Columns) -> tuple[Array, _Prices]:
        """Solve for the weights (in units of 1/c) of given columns."""
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
        duals, size = found.eqlin.marginals, columns.y.size
        mu = np.zeros(n) if self.caps is None else np.minimum(found.ineqlin.marginals, 0.0)
        self.value = float(found.fun)
        self.excess = 0.0 if self.caps is None else float(found.x[-1])
        return found.x[:size], _Prices(duals[:n], duals[n:], mu)

    def _at(self, prices: _Prices, y: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
        """The least reduced cost at outputs, and its pattern."""
        curve = self.w - prices.mu
        h = curve * y[:, None] ** 2 - prices.beta * y[:, None] - prices.alpha
        high = h < 0.0
        return y, np.where(high, h, h / self.c).sum(axis=1), high

    def _priced(self, prices: _Prices) -> tuple[Array, Array, NDArray[np.bool_]]:
        """The least reduced cost of every piece of g, over all real outputs."""
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
        """A lower bound on the value: the dual one, made feasible in the cheaper of two ways."""
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
    """Where a y^2 - b y - d changes its sign, for all of them, in order; two at least."""
    with np.errstate(all="ignore"):
        root = np.sqrt(b * b + 4.0 * a * d)
        larger = np.where(b >= 0.0, b + root, b - root) / 2.0  # without cancellation
        found = np.concatenate([larger / a, -d / larger])
    found = np.unique(found[np.isfinite(found)])
    return found if found.size else np.zeros(1)


def _refined(columns: _Columns) -> _Columns:
    """Columns on knots twice as many: between two levels of a pattern either may go on, on either side."""
    a, b = columns.high[:, :-1], columns.high[:, 1:]
    made = []
    for rises, falls in ((False, False), (False, True), (True, False), (True, True)):
        fine = np.empty((len(a), 2 * a.shape[1] + 1), dtype=np.bool_)
        fine[:, ::2] = columns.high
        fine[:, 1::2] = np.where(a == b, a, np.where(b, rises, falls))
        made.append(fine)
    rows = np.unique(np.column_stack([np.tile(columns.y, 4), np.concatenate(made)]), axis=0)
    return _Columns(rows[:, 0].copy(), rows[:, 1:] > 0.5)


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
