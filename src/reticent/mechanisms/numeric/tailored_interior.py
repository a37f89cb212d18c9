"""The best channel among given outputs, by an interior-point method that knows the form of its program.

For each output y and knot i the chance p of y at i lies between m/c and m, m the largest of that output. With
l = p - m/c and u = m - p, both positive, the program is to minimise sum w_i y^2 p over l, u >= 0 with
the rows sum_y p = 1, sum_y y p = a_i and, within a limit, sum_y y^2 p <= cap_i + t, an excess t that costs a
penalty. With dl = z_l/l, du = z_u/u (z the prices of l and u) a Newton step has, for one output,

    dp = (F' dprices - r)/(dl + du) + v dm,    v = (dl/c + du)/(dl + du),

and dm follows from one number, (1 - 1/c)^2 sum_i dl du/(dl + du). So the whole step is one system of two or
three numbers for each knot, made of diagonals and one product of matrices, however many outputs there are: a
few hundred of them at 41 knots take about a millisecond a step. With the prices of all patterns of an output
at once, few rounds of better outputs are left to do: see `tailored_solver`.

Not here: anything that accuracy or privacy rests on. What comes out are prices, from which the solver proves
its bound, and patterns, from which it makes its table.

Reference: Mehrotra 1992 (predictor and corrector); mathematics 1.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_STEPS: Final = 200
_WITHOUT_GAIN: Final = 10  # steps after which rounding has the last word
_NEARLY: Final = 0.995  # of the way to the border


class Point(NamedTuple):
    """The point at which the interior method ended.

    Attributes:
        chances: Chances p, of shape (outputs, knots).
        tops: Value m of each output.
        prices: Prices of the rows, of shape (rows, knots).
        value: Value of the program at the point.
        error: Distance of the value from the best one, at most, roughly.
    """

    chances: Array
    tops: Array
    prices: Array
    value: float
    error: float


class _Parts(NamedTuple):
    """The parts of a point or a step: slacks x (l, u, and within a limit s and t) and their prices z."""

    tops: Array
    x: list[Array]
    prices: Array
    z: list[Array]


def best_among(
    y: Array, c: float, weights: Array, sums: Array, penalty: float, *, until: tuple[float, float]
) -> Point:
    """Solve for given outputs, to an error, or as near as doubles go.

    Args:
        y: the outputs.
        c: e^epsilon.
        weights: w_i.
        sums: Sums of the rows at each knot: 1, a_i and, within a limit, cap_i.
        penalty: Penalty of the excess over the limit.
        until: a base and a share: an error of that share of what the value is above the base is enough.
    """
    program = _Interior(y, c, weights, sums, penalty)
    (base, share), best, waited = until, program.point(), 0
    for _ in range(_STEPS):
        if best.error <= share * (best.value - base) or waited > _WITHOUT_GAIN:
            break
        try:
            program.step()
        except np.linalg.LinAlgError:  # at the end of what doubles can tell apart
            break
        found = program.point()
        if not math.isfinite(found.error):
            break
        waited = 0 if found.error < best.error else waited + 1
        best = min(best, found, key=lambda one: one.error)
    return best


class _Interior:
    def __init__(self, y: Array, c: float, weights: Array, sums: Array, penalty: float) -> None:
        n, k = weights.size, y.size
        self.c, self.sums, self.penalty, self.is_limited = c, sums, penalty, len(sums) == 3
        self.powers = y ** np.arange(len(sums))[:, None]
        self.pairs = (self.powers[:, None] * self.powers).reshape(-1, k)
        self.cost = (y * y)[:, None] * weights
        half, price = np.full((k, n), (c - 1.0) / (c + 1.0) / k), np.full((k, n), 1.0 / n)
        at = _Parts(np.full(k, 2.0 * c / (c + 1.0) / k), [half, half], np.zeros(sums.shape), [price, price])
        if self.is_limited:
            at.x.extend([np.ones(n), np.ones(1)])
            at.z.extend([np.full(n, penalty / (2 * n)), np.full(1, penalty / 2.0)])
            at.prices[2] = -at.z[2]
        self._move_to(at)

    def _move_to(self, at: _Parts) -> None:
        """Work out what the rows and the prices lack there."""
        self.at, (lower, _, *more) = at, at.x
        self.chances = lower + at.tops[:, None] / self.c
        self.short = self.sums - self.powers @ self.chances
        z_l, z_u, *z_more = at.z
        self.dual = self.cost - self.powers.T @ at.prices - z_l + z_u
        self.dual_tops = (z_l / self.c - z_u).sum(axis=1)
        if self.is_limited:
            s, t = more
            self.short[2] -= s - t
            self.dual_s = -at.prices[2] - z_more[0]
            self.dual_t = self.penalty + at.prices[2].sum() - z_more[1]
        self.products = sum(float((x * z).sum()) for x, z in zip(at.x, at.z, strict=True))

    def point(self) -> Point:
        value = float((self.cost * self.chances).sum())
        if self.is_limited:
            value += self.penalty * float(self.at.x[3][0])
        error = self.products + float((np.maximum(np.abs(self.at.prices), 1.0) * np.abs(self.short)).sum())
        error += float((np.abs(self.dual) * self.chances).sum())
        return Point(self.chances, self.at.tops, self.at.prices, value, error)

    def step(self) -> None:
        """One predictor, one corrector (Mehrotra)."""
        self._factor()
        at, count = self.at, sum(x.size for x in self.at.x)
        guess = self._direction([-x * z for x, z in zip(at.x, at.z, strict=True)])
        primal, dual = _room(at.x, guess.x), _room(at.z, guess.z)
        after = sum(
            float(((x + primal * dx) * (z + dual * dz)).sum())
            for x, dx, z, dz in zip(at.x, guess.x, at.z, guess.z, strict=True)
        )
        centre = (after / self.products) ** 3 * self.products / count
        way = self._direction(
            [centre - x * z - dx * dz for x, z, dx, dz in zip(at.x, at.z, guess.x, guess.z, strict=True)]
        )
        primal = min(1.0, _NEARLY * _room(at.x, way.x))
        dual = min(1.0, _NEARLY * _room(at.z, way.z))
        self._move_to(
            _Parts(
                at.tops + primal * way.tops,
                [x + primal * dx for x, dx in zip(at.x, way.x, strict=True)],
                at.prices + dual * way.prices,
                [z + dual * dz for z, dz in zip(at.z, way.z, strict=True)],
            )
        )

    def _factor(self) -> None:
        (lower, upper, *more), (z_l, z_u, *z_more), (rows, n) = self.at.x, self.at.z, self.sums.shape
        self.d_l, self.d_u = z_l / lower, z_u / upper
        self.d = self.d_l + self.d_u
        self.v = (self.d_l / self.c + self.d_u) / self.d
        self.curve = (self.d_l * self.d_u / self.d).sum(axis=1) * (1.0 - 1.0 / self.c) ** 2
        by_output = (self.powers[:, None] * self.v.T).reshape(rows * n, -1) / np.sqrt(self.curve)
        system = (by_output @ by_output.T).reshape(rows, n, rows, n)
        places = np.arange(n)
        diagonals = (self.pairs @ (1.0 / self.d)).reshape(rows, rows, n)
        if self.is_limited:
            diagonals[2, 2] += more[0] / z_more[0]
            system[2, :, 2, :] += more[1] / z_more[1]
        system[:, places, :, places] += np.moveaxis(diagonals, 2, 0)
        self.system = system.reshape(rows * n, rows * n)
        self.factors = _linalg().cho_factor(self.system, lower=True, check_finite=False)

    def _direction(self, wanted: Sequence[Array]) -> _Parts:
        """Return the Newton step that changes the products x z by what is wanted, to first order."""
        (lower, upper, *more), (_, _, *z_more), shape = self.at.x, self.at.z, self.sums.shape
        per_l, per_u = wanted[0] / lower, wanted[1] / upper
        r = self.dual - per_l + per_u
        eta = -self.dual_tops - (per_l / self.c - per_u).sum(axis=1)
        tops = ((self.v * r).sum(axis=1) - eta) / self.curve
        right = self.short + self.powers @ (r / self.d + self.v * tops[:, None])
        if self.is_limited:
            right[2] -= (wanted[2] - more[0] * self.dual_s) / z_more[0]
            right[2] += (wanted[3] - more[1] * self.dual_t) / z_more[1]
        prices = self._solved(right.reshape(-1)).reshape(shape)
        q = self.powers.T @ prices - r
        tops = (eta + (self.v * q).sum(axis=1)) / self.curve
        chances = q / self.d + self.v * tops[:, None]
        x = [chances - tops[:, None] / self.c, tops[:, None] - chances]
        z = [per_l - self.d_l * x[0], per_u - self.d_u * x[1]]
        if self.is_limited:
            z += [self.dual_s - prices[2], self.dual_t + prices[2].sum()]
            x += [(wanted[place] - self.at.x[place] * z[place]) / self.at.z[place] for place in (2, 3)]
        return _Parts(tops, x, prices, z)

    def _solved(self, right: Array) -> Array:
        """With one refinement: towards the end the system is badly conditioned."""
        solve = _linalg().cho_solve
        first = solve(self.factors, right, check_finite=False)
        return np.asarray(
            first + solve(self.factors, right - self.system @ first, check_finite=False), dtype=np.float64
        )


def _room(at: Sequence[Array], way: Sequence[Array]) -> float:
    """Return the share of a step that leaves everything positive, at most all of it."""
    return 1.0 / max(1.0, *(float((-d / x).max()) for x, d in zip(at, way, strict=True)))


def _linalg() -> Any:
    from scipy import linalg

    return linalg
