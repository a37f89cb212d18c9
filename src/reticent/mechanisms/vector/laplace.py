"""Laplace noise in n dimensions on a grid: a point of R^n under metric privacy.

The loss grows with the distance. For training, where n is large, the discrete Gaussian
(`mechanisms.gaussian`) is the better default.
"""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats, Symbols
from reticent.mechanisms.vector.base import row_blocks, rows_of
from reticent.privacy import LocalDP, MetricDP
from reticent.randomness import Stream, secure_or

Words = NDArray[np.uint64]

MAX_LAPLACE_DIMENSIONS = 4096


class VectorLaplace:
    """A point of R^n plus noise of density proportional to exp(-epsilon ||z||), on a public grid.

    The point is rounded to the nearest point of a grid with a power of two as its step, the noise is
    rounded to the same grid, and the whole numbers are added: every point of the grid is a possible
    report of every input.

    Args:
        epsilon_per_unit: the level, per unit of Euclidean distance.
        dimensions: n.
        distance_unit: the name of the unit, as in "km".
        radius: if given, points are first moved to the nearest point of the cube around 0 of this half side,
            and then to that of the ball: neither takes two points apart.

    Reference: Biswas 2023, Proposition 5.1 and Eq. D.6: radius Gamma(n) / epsilon, direction uniform.
    Departure: the same law is drawn as sqrt(2 T) g / epsilon, T of law Gamma((n+1)/2), g standard normal:
        then each coordinate needs T and one pair of uniforms only, and can be refined alone. Points
        and noise live on a grid, because a vector Laplace on doubles leaks (mathematics 4.11).
    Privacy: exact between grid points: the noise is an ideal real-valued draw, correctly rounded, and
        rounding is post-processing. Doubles with an error bound (2^-46 relative for `log`, `sqrt` and
        the sums, plus the unknown bits of each uniform) settle nearly all coordinates. The rest, about
        n 2^-33 of them, are recomputed with further bits of the same uniforms until the rounding is certain.
        What is approximate: two points at distance d may be rounded to grid points d + `distance_slack`
        apart, so the loss between *points* is at most epsilon (d + distance_slack); epsilon times the
        slack is at most 2^-10. A report is centred on the rounded point: its bias is at most step / 2.
    Units: points and radius in `distance_unit`.
    """

    name = "Laplace (vector)"

    def __init__(
        self, *, epsilon_per_unit: float, dimensions: int, distance_unit: str, radius: float | None = None
    ) -> None:
        self.epsilon_per_unit = real("epsilon_per_unit", epsilon_per_unit, low=1e-9, high=1e9)
        self.dimensions = whole("dimensions", dimensions, low=1, high=MAX_LAPLACE_DIMENSIONS)
        slack = 2.0**-10 / (self.epsilon_per_unit * math.sqrt(self.dimensions))
        self.step = 2.0 ** math.floor(math.log2(slack))
        self._reach = self.step * 2.0**50  # the public box of points without a radius
        self.radius = radius
        if radius is not None:
            self.radius = real("radius", radius, low=self.step, high=self.step * 2.0**32)
        self.guarantee = MetricDP(self.epsilon_per_unit, distance_unit, slack=self.distance_slack)

    def __repr__(self) -> str:
        radius = "" if self.radius is None else f", radius={self.radius:g}"
        level = f"epsilon_per_unit={self.epsilon_per_unit:g}, dimensions={self.dimensions}"
        return f"{type(self).__name__}({level}, distance_unit={self.guarantee.distance_unit!r}{radius})"

    @property
    def distance_slack(self) -> float:
        """The most by which two points may be further apart on the grid: sqrt(n) steps, and rounding."""
        rounding = 0.0 if self.radius is None else self.radius * 2.0**-46
        return math.sqrt(self.dimensions) * self.step * (1.0 + 2.0**-50) + rounding

    @property
    def local_guarantee(self) -> LocalDP:
        """The local guarantee over the whole ball, slack included; only with a radius."""
        if self.radius is None:
            raise ParameterError("radius must be given for a local guarantee: R^n has no diameter")
        return self.guarantee.within(2.0 * self.radius)

    @property
    def variance(self) -> float:
        """The variance of one reported coordinate: (n+1)/epsilon^2 and step^2/12 for the rounded noise."""
        return (self.dimensions + 1) / self.epsilon_per_unit**2 + self.step**2 / 12.0

    def _grid(self, points: Floats) -> Symbols:
        """The nearest grid points of the clamped points: clamping brings no two points further apart."""
        reach = self._reach if self.radius is None else self.radius
        with np.errstate(all="ignore"):
            box = np.clip(np.nan_to_num(points, nan=0.0, posinf=reach, neginf=-reach), -reach, reach)
            if self.radius is not None:
                norm = np.sqrt(np.sum(np.square(box / reach), axis=-1, keepdims=True))
                box = box / np.maximum(norm, 1.0)
            return np.rint(box / self.step).astype(np.int64)

    def sample(self, points: ArrayLike, rng: Stream | None = None) -> Symbols:
        """Return the reports as whole numbers of steps: shape (..., dimensions)."""
        stream = secure_or(rng)
        given = rows_of(points, self.dimensions)
        rows = given.reshape(-1, self.dimensions)
        report = np.empty(rows.shape, dtype=np.int64)
        factor = 2 / (Fraction(self.epsilon_per_unit) * Fraction(self.step))
        for part in row_blocks(len(rows), self.dimensions):
            count = part.stop - part.start
            report[part] = self._grid(rows[part]) + _laplace_steps(count, self.dimensions, factor, stream)
        return report.reshape(given.shape)

    def perturb(self, points: ArrayLike, rng: Stream | None = None) -> Floats:
        """Return one private report per point, in `distance_unit`: shape (..., dimensions).

        Args:
            points: rows of `dimensions` numbers; NaN counts as 0, infinities as the bound.
            rng: None for secure randomness; a SimulationStream in tests and simulations.
        """
        return self.sample(points, rng).astype(np.float64) * self.step


# The noise. With uniforms e_i in (0, 1) and (u, v) in the unit disc, s = u^2 + v^2, the number
# g = u sqrt(-2 ln s / s) is standard normal (Marsaglia's polar method), v gives a second one, and
# T = sum -ln e_i (+ g^2/2 for even n) is Gamma((n+1)/2). One coordinate, in steps, is
#     factor * u * sqrt(T * (-ln s) / s),   factor = 2 / (epsilon step).
# A uniform is a 64-bit word of which the top 53 bits make a double; further bits are drawn on demand.

_CERTAIN = 2.0**-46  # relative error of the library functions and sums, far above what they have
_HALF_CELL = 2.0**-53  # of a uniform in (-1, 1) known to 53 bits


class _Draws(NamedTuple):
    """The uniforms of a block of vectors, as words: (rows, exponentials), (rows, pairs, 2)."""

    exponentials: Words
    pairs: Words


def _laplace_steps(rows: int, n: int, factor: Fraction, stream: Stream) -> Symbols:
    """Return `rows` draws of n-dimensional Laplace noise, correctly rounded to whole steps."""
    exponentials = stream.words(rows * ((n + 1) // 2)).reshape(rows, -1)
    pairs = _disc_pairs(rows * (n // 2 + 1), stream).reshape(rows, -1, 2)
    draws = _Draws(exponentials, pairs)
    steps, error = _in_doubles(draws, n, float(factor))
    rounded = np.floor(steps + 0.5)
    unsure = ~(np.abs(steps - rounded) + error < 0.5)  # NaN is unsure too
    noise = np.where(unsure, 0.0, rounded).astype(np.int64)
    for row in np.flatnonzero(unsure.any(axis=1)):
        vector = _Refined(draws, int(row), n, factor, stream)
        for column in np.flatnonzero(unsure[row]):
            noise[row, column] = vector.coordinate(int(column))
    return noise


def _in_doubles(draws: _Draws, n: int, factor: float) -> tuple[Floats, Floats]:
    """The coordinates in steps, and a bound on the error of each (infinite where the bound says nothing)."""
    with np.errstate(all="ignore"):
        e = ((draws.exponentials >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        total = np.abs(np.log(e)).sum(axis=1)
        total_error = (2.0**-53 / e).sum(axis=1)  # half a cell, and the rounding of e itself
        uv = _signed(draws.pairs)
        s = np.square(uv).sum(axis=2)
        s_error = 2.0**-50 / s  # relative
        depth = -np.log(s)
        ratio = depth / s
        ratio_error = s_error + s_error / np.abs(depth)  # relative
        if n % 2 == 0:  # the last pair's first number goes into T
            extra = np.square(uv[:, -1, 0]) * ratio[:, -1]
            total = total + extra
            total_error = total_error + np.abs(extra) * (ratio_error[:, -1] + 2.0**-51 / np.abs(uv[:, -1, 0]))
        steps = factor * uv * np.sqrt(total[:, None] * ratio)[:, :, None]
        # Half of the relative errors would do under the root; the other half covers second-order terms.
        relative = (total_error / total)[:, None, None] + ratio_error[:, :, None] + _HALF_CELL / np.abs(uv)
        error = np.abs(steps) * (relative + _CERTAIN)
        error = np.where(relative < 2.0**-10, error, np.inf)
    rows = len(steps)
    return steps.reshape(rows, -1)[:, :n], error.reshape(rows, -1)[:, :n]


def _signed(words: Words) -> Floats:
    """Return the middle of the cell of (-1, 1) that the top 53 bits of a word name; exact."""
    return ((words >> np.uint64(11)).astype(np.float64) - 2.0**52 + 0.5) * 2.0**-52


def _disc_pairs(count: int, stream: Stream) -> Words:
    """Return `count` pairs of words whose uniforms lie in the unit disc: shape (count, 2)."""
    kept = np.empty((count, 2), dtype=np.uint64)
    have = 0
    while have < count:
        tries = stream.words(2 * max(16, (count - have) * 4 // 3)).reshape(-1, 2)
        s = np.square(_signed(tries)).sum(axis=1)
        inside = s < 1.0
        for index in np.flatnonzero(np.abs(s - 1.0) < 2.0**-48):
            inside[index] = _inside(int(tries[index, 0]), int(tries[index, 1]), stream)
        tries = tries[inside][: count - have]
        kept[have : have + len(tries)] = tries
        have += len(tries)
    return kept


def _further(known: int, stream: Stream) -> int:
    """Return the uniform number with 64 more bits."""
    return known << 64 | int(stream.words(1)[0])


def _squares(u: int, v: int, bits: int) -> tuple[int, int]:
    """Bounds on s = u^2 + v^2, times 2^(2 bits), for uniforms in (-1, 1) known to `bits` bits."""
    low = high = 0
    for known in (u, v):
        ends = sorted((abs(2 * known - (1 << bits)), abs(2 * known + 2 - (1 << bits))))
        low, high = low + ends[0] ** 2, high + ends[1] ** 2
    return low, high


def _inside(u: int, v: int, stream: Stream) -> bool:
    """Whether a pair lies in the disc, in exact integers, with as many bits as that takes."""
    bits = 64
    while True:
        low, high = _squares(u, v, bits)
        if high <= 1 << 2 * bits or low >= 1 << 2 * bits:
            return high <= 1 << 2 * bits
        u, v, bits = _further(u, stream), _further(v, stream), bits + 64


class _Refined:
    """One vector of noise in decimal intervals, with as many bits of its uniforms as the rounding takes.

    Bits once drawn are kept, so that all coordinates are of one and the same vector. A pair is known
    to lie in the disc: bits that lead out of it are drawn again.
    """

    def __init__(self, draws: _Draws, row: int, n: int, factor: Fraction, stream: Stream) -> None:
        self._exponentials = [int(word) for word in draws.exponentials[row]]
        self._exponential_bits = 64
        self._words = [(int(u), int(v)) for u, v in draws.pairs[row]]
        self._pairs = {index: (*pair, 64) for index, pair in enumerate(self._words)}
        self._even, self._factor, self._stream = n % 2 == 0, factor, stream

    def coordinate(self, column: int) -> int:
        """Return the coordinate, correctly rounded to a whole number of steps."""
        bits = 64
        while True:
            bits += 64
            context = Context(prec=bits + 30)
            self._draw(bits, {column // 2, len(self._words) - 1} if self._even else {column // 2})
            ends = self._interval(column, bits, context)
            if ends is not None:
                nearest = [context.add(end, Decimal("0.5")).to_integral_value(ROUND_FLOOR) for end in ends]
                if nearest[0] == nearest[1]:
                    return int(nearest[0])

    def _draw(self, bits: int, pairs: set[int]) -> None:
        """Make sure that this many bits are known."""
        while self._exponential_bits < bits:
            self._exponentials = [_further(known, self._stream) for known in self._exponentials]
            self._exponential_bits += 64
        for index in pairs:
            u, v, known_bits = self._pairs[index]
            while known_bits < bits:
                u, v, known_bits = _further(u, self._stream), _further(v, self._stream), known_bits + 64
                if _squares(u, v, known_bits)[0] >= 1 << 2 * known_bits:
                    (u, v), known_bits = self._words[index], 64
            self._pairs[index] = (u, v, known_bits)

    def _interval(self, column: int, bits: int, context: Context) -> tuple[Decimal, Decimal] | None:
        """Bounds on the coordinate in steps, or None where there are none yet."""
        total, ratio = self._total(context), self._ratio(column // 2, context)
        if total is None or ratio is None:
            return None
        factor = context.divide(Decimal(self._factor.numerator), Decimal(self._factor.denominator))
        sizes = []
        for side, end in enumerate(self._size(column // 2, column % 2, context)):
            root = context.sqrt(context.multiply(total[side], ratio[side]))
            widened = context.add(1, context.scaleb(Decimal(2 * side - 1), 20 - bits // 2))
            sizes.append(context.multiply(context.multiply(factor, widened), context.multiply(end, root)))
        known, known_bits = self._pairs[column // 2][column % 2], self._pairs[column // 2][2]
        negative = known < 1 << (known_bits - 1)
        return (sizes[1].copy_negate(), sizes[0].copy_negate()) if negative else (sizes[0], sizes[1])

    def _total(self, context: Context) -> tuple[Decimal, Decimal] | None:
        """Bounds on T."""
        low = high = Decimal(0)
        whole_range = Decimal(1 << self._exponential_bits)
        for known in self._exponentials:
            if known == 0:
                return None
            low = context.subtract(low, context.ln(context.divide(Decimal(known + 1), whole_range)))
            high = context.subtract(high, context.ln(context.divide(Decimal(known), whole_range)))
        if not self._even:
            return low, high
        last = len(self._words) - 1
        ratio, size = self._ratio(last, context), self._size(last, 0, context)
        if ratio is None:
            return None
        squares = [
            context.multiply(context.multiply(u, u), part) for u, part in zip(size, ratio, strict=True)
        ]
        return context.add(low, squares[0]), context.add(high, squares[1])

    def _size(self, index: int, which: int, context: Context) -> tuple[Decimal, Decimal]:
        """Bounds on |u| or |v| of a pair."""
        known, bits = self._pairs[index][which], self._pairs[index][2]
        low, high = sorted((abs(2 * known - (1 << bits)), abs(2 * known + 2 - (1 << bits))))
        whole_range = Decimal(1 << bits)
        return context.divide(Decimal(low), whole_range), context.divide(Decimal(high), whole_range)

    def _ratio(self, index: int, context: Context) -> tuple[Decimal, Decimal] | None:
        """Bounds on -ln(s)/s, which falls in s."""
        u, v, bits = self._pairs[index]
        low, high = _squares(u, v, bits)
        if low == 0 or high >= 1 << 2 * bits:
            return None
        bounds = []
        for end in (high, low):
            s = context.divide(Decimal(end), Decimal(1 << 2 * bits))
            bounds.append(context.divide(context.ln(s).copy_negate(), s))
        return bounds[0], bounds[1]
