"""Two-sided geometric (discrete Laplace) noise: exact integers from integer thresholds.

How it is drawn. A geometric variable G with P(G = g) proportional to e^(-a g) has independent binary
digits: digit i is 1 with odds theta_i = e^(-a 2^i) to 1, and what lies above the first B digits is
geometric again, with ratio e^(-a 2^B). Each digit is one comparison of a 64-bit word with a whole
number; the part above is repeated trials until the first failure, so no integer becomes impossible.
The noise is G1 - G2.

What rounding costs. The threshold k_i makes the odds k_i : 2^64 - k_i, off by x_i = ln(odds / theta_i),
and the ratio above is off by y. Then ln P(G = g) = const - a g + sum of x_i over the ones of g + y (g >> B).
From g to g + s, 0 <= s <= D, each digit changes by at most one and g >> B by at most ceil(D / 2^B), so

    |ln P(G = g + s) - ln P(G = g)| <= a D + sum |x_i| + ceil(D / 2^B) |y|  =: loss.

P(Z = z) is the sum over g >= 0 of P(G = g) P(G = g + |z|). Shifting z by at most D changes |z| by at most D,
hence every term, hence the sum, by at most e^loss. The rate a is chosen a little below epsilon / D and
`loss <= epsilon` is checked in 60-digit decimals when the noise is made.

Reference: Ghosh et al. 2012 (the mechanism).
Not here: what the noise is added to; see `numeric.laplace`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import real, whole
from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.mechanisms.base import MAX_EPSILON
from reticent.randomness import Stream, secure_or

Integers = NDArray[np.int64]

WORD_BITS = 64
RARE = 10.0  # the trials above the last digit succeed with probability e^-20 to e^-10
LEAST_RATE = 2.0**-40  # keeps every digit, and all that will ever be drawn, within 64 bits
_MARGIN = Decimal("1e-45")  # far above the error of a few hundred operations with 60 digits
_BLOCK = 1 << 14


def _context() -> Context:
    return Context(prec=60, rounding=ROUND_HALF_EVEN)


def _decimal(exact: Fraction) -> Decimal:
    return _context().divide(Decimal(exact.numerator), Decimal(exact.denominator))


def _digits(rate: Fraction, rare: float) -> int:
    """Return the number of digits that leave a rare part above them."""
    return max(0, math.ceil(math.log2(rare / rate)))


def _exact_above(rate: Fraction) -> Fraction:
    """Return the next rate from `rate` down at which the threshold of the part above the digits is whole."""
    context, step = _context(), 1 << _digits(rate, RARE)
    above = math.ceil(context.multiply(context.exp(_decimal(-rate * step)), 1 << WORD_BITS))
    return -Fraction(context.ln(context.divide(above, 1 << WORD_BITS))) / step


@dataclass(frozen=True)
class GeometricDigits:
    """A geometric variable as thresholds out of 2^bits: one per digit, one for the part above.

    Attributes:
        rate: a, the logarithm of the ratio between neighbours, before rounding.
        ones: P(digit i = 1) * 2^bits.
        above: P(one more trial succeeds) * 2^bits, for the part above the digits.
        bits: bits of one draw: 64, or fewer where a test enumerates.
    """

    rate: Fraction
    ones: tuple[int, ...]
    above: int
    bits: int = WORD_BITS

    @classmethod
    def made(cls, rate: Fraction, *, bits: int = WORD_BITS, rare: float = RARE) -> GeometricDigits:
        """Round the digits' probabilities to thresholds; none becomes 0 or 1."""
        digits = _digits(rate, rare)
        context, total = _context(), 1 << bits

        def count(probability: Decimal) -> int:
            scaled = context.to_integral_value(context.multiply(probability, Decimal(total)))
            return min(total - 1, max(1, int(scaled)))

        ones = []
        for digit in range(digits):
            theta = context.exp(_decimal(rate * 2**digit).copy_negate())
            ones.append(count(context.divide(theta, context.add(1, theta))))
        return cls(rate, tuple(ones), count(context.exp(_decimal(rate * 2**digits).copy_negate())), bits)

    def loss(self, sensitivity: int) -> Decimal:
        """Upper bound on the loss of a shift by at most `sensitivity` (see the module's docstring)."""
        context, total = _context(), 1 << self.bits
        loss = context.multiply(_decimal(self.rate), sensitivity)
        for digit, count in enumerate(self.ones):
            odds = context.ln(context.divide(count, total - count))
            loss = context.add(loss, context.add(odds, _decimal(self.rate * 2**digit)).copy_abs())
        step = 1 << len(self.ones)
        above = context.add(context.ln(context.divide(self.above, total)), _decimal(self.rate * step))
        return context.add(
            context.add(loss, context.multiply(above.copy_abs(), -(-sensitivity // step))), _MARGIN
        )

    @property
    def variance(self) -> Fraction:
        """The variance of what is drawn, exactly: the digits are independent."""
        total = 1 << self.bits
        spread = sum(4**digit * count * (total - count) for digit, count in enumerate(self.ones))
        ratio = Fraction(self.above, total)
        return Fraction(spread, total**2) + (1 << 2 * len(self.ones)) * ratio / (1 - ratio) ** 2

    def sample(self, size: int, stream: Stream) -> Integers:
        """Return `size` independent draws (thresholds out of 2^64 only)."""
        drawn = np.zeros(size, dtype=np.int64)
        for digit, count in enumerate(self.ones):
            start = 0
            for words in stream.word_blocks(size):
                drawn[start : start + words.size] += (words < np.uint64(count)).astype(np.int64) << digit
                start += words.size
        alive = np.arange(size)
        while alive.size:
            alive = alive[stream.words(alive.size) < np.uint64(self.above)]
            drawn[alive] += np.int64(1) << len(self.ones)
        return drawn


class TwoSidedGeometric:
    """Integer noise Z with P(Z = z) proportional to e^(-a |z|), a just below epsilon / sensitivity.

    Added to an integer that two neighbours change by at most `sensitivity`, it is epsilon-DP, or
    epsilon-LDP when `sensitivity` is the width of all possible inputs.

    Privacy: pure. The realised law is within a factor e^(1e-10) of the ideal one, and the excess is paid
        for by a smaller rate (see the module's docstring). The time of a draw never depends on data, and
        on the noise only where the trials above the last digit go on: once in 11,000 draws or less.
    """

    def __init__(self, epsilon: float, sensitivity: int) -> None:
        self.epsilon = real("epsilon", epsilon, low=0.0, high=MAX_EPSILON, open_low=True)
        self.sensitivity = whole("sensitivity", sensitivity, low=1)
        if Fraction(self.epsilon) < Fraction(LEAST_RATE) * self.sensitivity:
            raise ParameterError(
                f"epsilon must be >= 2^-40 times the sensitivity ({self.sensitivity}), got {self.epsilon:g}"
            )
        self.digits = self._paid_for()
        self.check()

    def _paid_for(self) -> GeometricDigits:
        """Lower the rate until the rounding of the thresholds is paid for.

        Rates are taken at which the part above the digits is exact: alone it could be off by 1e-11, and by
        more with every rate that leaves its threshold in place. All digits together are off by less than
        1e-15, a slack that always pays, so doubling it ends.
        """
        slack = Fraction(0)
        while True:
            rate = _exact_above((Fraction(self.epsilon) - slack) / self.sensitivity)
            digits = GeometricDigits.made(rate)
            excess = Fraction(digits.loss(self.sensitivity)) - Fraction(self.epsilon)
            if excess <= 0:
                return digits
            slack = 2 * (slack + excess)

    def check(self) -> None:
        """Raise `GuaranteeError` unless the thresholds in use keep epsilon."""
        if Fraction(self.digits.loss(self.sensitivity)) > Fraction(self.epsilon):
            raise GuaranteeError(
                f"two-sided geometric noise: the loss exceeds epsilon {self.epsilon:g} "
                f"for sensitivity {self.sensitivity}"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(epsilon={self.epsilon:g}, sensitivity={self.sensitivity})"

    @property
    def rate(self) -> float:
        """a, per unit."""
        return float(self.digits.rate)

    @property
    def variance(self) -> float:
        """The variance of what is drawn, about 2 / a^2."""
        return float(2 * self.digits.variance)

    def probability(self, values: ArrayLike) -> NDArray[np.float64]:
        """P(Z = z) = tanh(a/2) e^(-a |z|), the realised law to a relative error below 1e-10."""
        z = np.asarray(values)
        if z.dtype.kind not in "iu":
            raise ParameterTypeError(f"values must be whole numbers, got dtype {z.dtype}")
        law: NDArray[np.float64] = math.tanh(self.rate / 2.0) * np.exp(
            -self.rate * np.abs(z.astype(np.float64))
        )
        return law

    def sample(self, size: int, rng: Stream | None = None) -> Integers:
        """Return `size` independent draws.

        Args:
            size: Number of draws.
            rng: None for secure randomness; a SimulationStream in tests and simulations.
        """
        stream = secure_or(rng)
        noise = np.empty(whole("size", size, low=0), dtype=np.int64)
        for start in range(0, noise.size, _BLOCK):
            count = min(_BLOCK, noise.size - start)
            both = self.digits.sample(2 * count, stream)
            noise[start : start + count] = both[:count] - both[count:]
        return noise
