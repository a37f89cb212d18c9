"""Laplace noise for one number, as integers on a public grid.

The input, clamped to [-1, 1], is rounded at random to a neighbouring multiple of a power of two (the
step), two-sided geometric noise of the same grid is added, and the integer is sent. No double that
depends on the input ever leaves: on doubles, Laplace noise tells inputs apart (Mironov 2012).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reticent.arguments import whole
from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.base import Floats, Symbols
from reticent.mechanisms.geometric import TwoSidedGeometric
from reticent.mechanisms.numeric import formulas
from reticent.mechanisms.numeric.base import NumericRandomiser, as_floats, checked_out
from reticent.randomness import LATTICE, Stream, secure_or

STEPS_PER_SCALE_BITS = 12
LARGEST = (1 << 31) - 1  # published integers are clamped to [-LARGEST, LARGEST]
_BLOCK = 1 << 14


class Laplace(NumericRandomiser):
    """x plus Laplace noise of scale 2/epsilon, discretised: a 32-bit integer number of steps.

    Unbounded, hence not a channel: there is no `size` and no `alphabet` (mathematics 4.14).

    Reference: Dwork et al. 2006, Section 3; Wang et al. 2019, Section III-A.
    Departure: noise and report live on the grid of `step`, a power of two between 2^-13 and 2^-12 of the
        scale and at most 1; that adds less than 1e-8 of the variance. Where
        mathematics 4.14 escapes to big integers, the published integer is clamped to 32 bits: that is
        post-processing, happens with probability below e^-100000 and biases the mean by less than e^-99000.
    Privacy: epsilon-LDP exactly, see `mechanisms.geometric`: the integers of any two inputs, however they
        were rounded, are at most 2/step apart. The rounding happens before the noise and costs nothing.
    """

    name = "Laplace"
    travels = None  # no finite alphabet

    def __init__(self, *, epsilon: float, bounds: tuple[float, float] = (-1.0, 1.0)) -> None:
        super().__init__(epsilon=epsilon, bounds=bounds)
        scale = 2.0 / self.epsilon
        self._unit_step = 2.0 ** min(0, math.floor(math.log2(scale)) - STEPS_PER_SCALE_BITS)
        self._noise = TwoSidedGeometric(self.epsilon, round(2.0 / self._unit_step))

    @property
    def step(self) -> float:
        """The width of the grid in the units of the bounds."""
        return self._unit_step * self._half

    @property
    def bits(self) -> int:
        """Bits that one report takes on the wire."""
        return 32

    def check(self) -> None:
        """Raise `GuaranteeError` unless the thresholds in use keep epsilon."""
        self._noise.check()

    def _grid(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the multiple of the step below each value, and the fraction of a step above it."""
        with np.errstate(all="ignore"):
            unit = np.nan_to_num(self._to_unit(values), nan=0.0, posinf=1.0, neginf=-1.0)
        scaled = np.clip(unit, -1.0, 1.0) / self._unit_step  # exact: the step is a power of two
        below = np.floor(scaled)
        return below, scaled - below

    def sample(self, values: ArrayLike, rng: Stream | None = None) -> Symbols:
        """Return one whole number of steps per value (same shape as `values`)."""
        given = as_floats(values)
        symbols = np.empty(_filled(given).shape, dtype=np.int64)
        self._run(given, secure_or(rng), symbols.reshape(-1))
        return symbols if symbols.ndim else symbols[()]

    def _run(self, given: Floats, stream: Stream, out: Any) -> None:
        flat = given.reshape(-1)
        for start in range(0, flat.size, _BLOCK):
            below, fraction = self._grid(flat[start : start + _BLOCK])
            up = stream.units(below.size) - 1.0 < fraction
            noise = self._noise.sample(below.size, stream)
            out[start : start + _BLOCK] = np.clip(below.astype(np.int64) + up + noise, -LARGEST, LARGEST)

    def perturb(self, values: ArrayLike, rng: Stream | None = None, *, out: Floats | None = None) -> Floats:
        """Return one unbiased private report per value: decode(sample(values)).

        Args:
            values: numbers of any shape; clamped to the bounds, NaN to their middle.
            rng: None for secure randomness; a SimulationStream in tests and simulations.
            out: Array to write the reports to, float64 of the same shape.
        """
        given = as_floats(values)
        reports = np.empty(_filled(given).shape) if out is None else checked_out(out, given.shape)
        self._run(given, secure_or(rng), flat := reports.reshape(-1))
        flat *= self._unit_step
        if self.bounds != (-1.0, 1.0):
            flat *= self._half
            flat += self._middle
        return reports if reports.ndim else reports[()]

    def decode(self, symbols: ArrayLike) -> Floats:
        """Return the reports that whole numbers of steps stand for."""
        return self._from_unit(_whole_steps(symbols).astype(np.float64) * self._unit_step)

    def pack(self, symbols: ArrayLike) -> bytes:
        """Pack whole numbers of steps: four bytes each, little-endian two's complement."""
        return _whole_steps(symbols).astype("<i4").tobytes()

    def unpack(self, data: bytes, count: int) -> Symbols:
        """Return the `count` symbols in `data`; refuse a wrong length or an illegal symbol."""
        count = whole("count", count, low=0)
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise ParameterTypeError(f"data must be bytes, got {type(data).__name__}")
        if len(data) != 4 * count:
            raise ParameterError(f"data must be {4 * count} bytes for {count} symbols, got {len(data)}")
        symbols = np.frombuffer(data, dtype="<i4").astype(np.int64)
        if symbols.size and symbols.min() < -LARGEST:
            raise ParameterError(f"data holds a symbol < {-LARGEST}")
        return symbols

    def probability(self, symbols: ArrayLike, values: ArrayLike) -> Floats:
        """P(symbol | value), broadcast over both, the realised law to a relative error below 1e-10."""
        below, fraction = self._grid(as_floats(values))
        up = np.ceil(fraction * LATTICE) / LATTICE
        distance = _whole_steps(symbols) - below.astype(np.int64)
        here, next_one = self._noise.probability(distance), self._noise.probability(distance - 1)
        return (1.0 - up) * here + up * next_one

    def variance(self, values: ArrayLike) -> Floats:
        """Return the variance of one report for each input: that of the noise and that of the rounding."""
        _, fraction = self._grid(as_floats(values))
        spread = self._noise.variance + fraction * (1.0 - fraction)
        return spread[()] * self.step**2

    @property
    def worst_case_variance(self) -> float:
        """The largest variance over all inputs of what is really sent: half-way between grid points."""
        return (self._noise.variance + 0.25) * self.step**2

    @property
    def ideal_worst_case_variance(self) -> float:
        """The documents' formula: real-number arithmetic, no wire."""
        return formulas.laplace_worst(self.epsilon) * self._half**2


def _filled(given: Floats) -> Floats:
    if given.size == 0:
        raise ParameterError(f"values must hold at least one value, got shape {given.shape}")
    return given


def _whole_steps(symbols: ArrayLike) -> Symbols:
    """Return what may have been published, or raise."""
    given = np.asarray(symbols)
    if given.dtype.kind not in "iu":
        raise ParameterTypeError(f"symbols must be whole numbers, got dtype {given.dtype}")
    if given.size and (given.min() < -LARGEST or given.max() > LARGEST):
        raise ParameterError(f"symbols must be >= {-LARGEST} and <= {LARGEST}")
    return given.astype(np.int64)
