"""Duchi's mechanism for a vector: d numbers of declared bounds under epsilon-LDP, with d bits."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.mechanisms.base import (
    Floats,
    Randomiser,
    Symbols,
    checked_epsilon,
    exp_below,
    require_ratio,
)
from reticent.mechanisms.numeric.base import checked_bounds
from reticent.mechanisms.packing import pack_bits, unpack_bits
from reticent.mechanisms.vector.base import row_blocks, rows_of
from reticent.randomness import LATTICE, Stream, secure_or

Flags = NDArray[np.bool_]

MAX_DUCHI_DIMENSIONS = 1 << 20


def central_binomial_share(dimensions: int) -> float:
    """m_d = E|t.v| / d for t uniform in {-1, 1}^d: the mean of one coordinate along v, on v's side.

    binom(d, d/2) / 2^d for even d, that of d - 1 for odd d. Exact integers up to 2048, then the
    asymptotic series of the central binomial, relative error below 1e-17.
    """
    half = dimensions // 2
    if half <= 1024:
        return float(Fraction(math.comb(2 * half, half), 1 << (2 * half)))
    x = 1.0 / half
    series = 1.0 + x * (-1 / 8 + x * (1 / 128 + x * (5 / 1024 + x * (-21 / 32768))))
    return series / math.sqrt(math.pi * half)


class VectorDuchi(Randomiser):
    """d numbers reported together as B t, t in {-1, 1}^d: d bits.

    v rounds the input to signs without bias; t is uniform, then turned (as a whole) to the side of v
    with probability c/(c+1) and to the other side otherwise. A tie t.v = 0 leaves t as it is.

    Reference: Duchi et al. 2018, the sampler for the unit cube; printed as Algorithm 3 of Wang et al. 2019.
    Departure: for even d the printed recipe puts ties into both half spaces, which loses ln(1 + e^epsilon)
        instead of epsilon (mathematics 1.1). Leaving ties alone is exactly epsilon-LDP and has a smaller B.
    Privacy: epsilon-LDP for the whole vector. Given v, the weight of t is 2 k, 2^52 or 2 (2^52 - k) out of
        2^(52+d); k is rounded down so that k / (2^52 - k) <= e^epsilon as integers. v is post-processed
        away: a mixture keeps the ratio.
    """

    name = "Duchi (vector)"

    def __init__(self, *, epsilon: float, dimensions: int, bounds: tuple[float, float] = (-1.0, 1.0)) -> None:
        self.epsilon = checked_epsilon(epsilon)
        self.dimensions = whole("dimensions", dimensions, low=1, high=MAX_DUCHI_DIMENSIONS)
        self.bounds = checked_bounds(bounds)
        lower, upper = self.bounds
        self._middle, self._half = lower / 2.0 + upper / 2.0, upper / 2.0 - lower / 2.0
        c = exp_below(self.epsilon)
        self._agree = math.floor(c / (c + 1) * LATTICE)
        self.check()
        self._unit_scale = LATTICE / (2 * self._agree - LATTICE) / central_binomial_share(self.dimensions)

    def __repr__(self) -> str:
        bounds = "" if self.bounds == (-1.0, 1.0) else f", bounds={self.bounds}"
        return f"{type(self).__name__}(epsilon={self.epsilon:g}, dimensions={self.dimensions}{bounds})"

    def check(self) -> None:
        """Raise `GuaranteeError` unless the weights of the two half spaces, ties between, keep epsilon."""
        weights = {2 * self._agree, LATTICE, 2 * (LATTICE - self._agree)}
        require_ratio(max(weights), min(weights), self.epsilon, "half spaces")

    @property
    def scale(self) -> float:
        """B: each reported number is the middle of the bounds plus or minus B."""
        return self._unit_scale * self._half

    @property
    def bits(self) -> int:
        """Bits that one report takes on the wire."""
        return self.dimensions

    def _clamped(self, values: Floats) -> Floats:
        with np.errstate(all="ignore"):
            unit = values if self.bounds == (-1.0, 1.0) else (values - self._middle) / self._half
            return np.clip(np.nan_to_num(unit, nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)

    def sample(self, values: ArrayLike, rng: Stream | None = None) -> Symbols:
        """Return the signs of each report as bits, 1 for plus: shape (..., dimensions)."""
        stream = secure_or(rng)
        given = rows_of(values, self.dimensions)
        rows = given.reshape(-1, self.dimensions)
        signs = np.empty(rows.shape, dtype=np.int64)
        for part in row_blocks(len(rows), self.dimensions):
            signs[part] = self._signs(self._clamped(rows[part]), stream)
        return signs.reshape(given.shape)

    def _signs(self, unit: Floats, stream: Stream) -> Flags:
        n, d = unit.shape
        with np.errstate(all="ignore"):
            half = unit / 2.0
        v = stream.units(n * d).reshape(n, d) < 1.5 + half
        words = -(-d // 64)
        bits = np.unpackbits(stream.words(n * words).view(np.uint8).reshape(n, 8 * words), axis=1, count=d)
        t = bits.astype(np.bool_)
        agree = stream.units(n) < 1.0 + self._agree / LATTICE
        side = 2 * np.count_nonzero(t == v, axis=1) - d  # t.v
        turned = (side > 0) & ~agree | (side < 0) & agree
        flipped: Flags = t ^ turned[:, None]
        return flipped

    def perturb(self, values: ArrayLike, rng: Stream | None = None) -> Floats:
        """Return one unbiased private report per row: shape (..., dimensions).

        Args:
            values: rows of `dimensions` numbers; clamped to the bounds, NaN to their middle.
            rng: None for secure randomness; a SimulationStream in tests and simulations.
        """
        return self.decode(self.sample(values, rng))

    def decode(self, signs: ArrayLike) -> Floats:
        """Return the reports that bits stand for."""
        return np.where(np.asarray(signs) != 0, self._middle + self.scale, self._middle - self.scale)

    def pack(self, signs: ArrayLike) -> bytes:
        """Pack reports one after the other, one bit per number, zero padded at the end."""
        given = np.asarray(signs)
        if given.ndim == 0 or given.shape[-1] != self.dimensions:
            raise ParameterError(f"signs must have {self.dimensions} bits per row, got shape {given.shape}")
        return pack_bits(given, 1, 2)

    def unpack(self, data: bytes, count: int) -> Symbols:
        """Return the `count` reports in `data`, shape (count, dimensions); refuse a wrong length."""
        count = whole("count", count, low=0)
        return unpack_bits(data, count * self.dimensions, 1, 2).reshape(count, self.dimensions)

    def exact_probabilities(self, value: ArrayLike) -> dict[tuple[int, ...], Fraction]:
        """Return the law of the bits for one input as rationals, by enumeration: for at most 8 dimensions."""
        if self.dimensions > 8:
            raise ParameterError(f"dimensions must be <= 8 to enumerate the law, got {self.dimensions}")
        unit = self._clamped(rows_of(value, self.dimensions).reshape(self.dimensions))
        plus = [Fraction(int((float(edge) - 1.0) * LATTICE), LATTICE) for edge in 1.5 + unit / 2.0]
        cube = list(product((0, 1), repeat=self.dimensions))
        law = dict.fromkeys(cube, Fraction(0))
        for v in cube:
            chance = Fraction(math.prod(p if bit else 1 - p for p, bit in zip(plus, v, strict=True)))
            for t in cube if chance else []:
                side = 2 * sum(a == b for a, b in zip(t, v, strict=True)) - self.dimensions
                weight = 2 * self._agree if side > 0 else 2 * (LATTICE - self._agree) if side else LATTICE
                law[t] += chance * Fraction(weight, LATTICE << self.dimensions)
        return law

    def variance(self, values: ArrayLike) -> Floats:
        """Return the variance of each reported number: B^2 - x^2."""
        unit = self._clamped(rows_of(values, self.dimensions))
        return (self._unit_scale**2 - unit * unit) * self._half**2

    @property
    def worst_case_variance(self) -> float:
        """The largest variance of one reported number: B^2, at the middle of the bounds."""
        return self.scale**2
