"""The common base of the numeric mechanisms: bounds, totality, sampling over blocks, exact moments.

A numeric mechanism reports one number of [-1, 1] without bias; `bounds` maps any declared
interval to it and back. Values outside are clamped and NaN becomes the middle of the bounds:
whether and how a report arrives never depends on the data.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import real
from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.base import (
    Channel,
    Floats,
    Randomiser,
    Symbols,
    as_objects,
    checked_epsilon,
    is_masked,
    is_positive,
)
from reticent.mechanisms.catalogue import check_listed
from reticent.mechanisms.numeric.kernels import Formula, engine_for
from reticent.randomness import Stream, secure_or

_BLOCK = 1 << 14


def as_floats(values: ArrayLike) -> Floats:
    """Return the values as doubles whatever they hold: what is no real number, or masked, becomes NaN.

    The shape is public (so is being empty), the content is not: no content raises or warns.
    """
    array = as_objects(values, plain="fiub")
    if array.dtype != object:
        with np.errstate(all="ignore"):
            return array.astype(np.float64, copy=False)
    flat = [_as_float(item) for item in array.ravel()]
    return np.array(flat, dtype=np.float64).reshape(array.shape)


def _as_float(item: Any) -> float:
    try:
        if isinstance(item, (complex, np.complexfloating)) or is_masked(item):
            return math.nan
        return float(item)
    except OverflowError:
        return math.inf if is_positive(item) else -math.inf
    except Exception:  # a device is a total function of its data
        return math.nan


def checked_bounds(bounds: Any) -> tuple[float, float]:
    """Return (lower, upper) if they are two finite numbers with lower < upper."""
    try:
        lower, upper = bounds
    except (TypeError, ValueError) as error:
        raise ParameterTypeError(f"bounds must be a pair (lower, upper), got {bounds!r}") from error
    lower, upper = real("bounds[0]", lower), real("bounds[1]", upper)
    if not lower < upper or not np.isfinite(upper - lower):
        raise ParameterError(f"bounds must satisfy lower < upper within doubles, got ({lower:g}, {upper:g})")
    if upper - lower < 1e-9 * max(abs(lower), abs(upper)):
        raise ParameterError(f"bounds must be wider than 1e-9 of their size, got ({lower!r}, {upper!r})")
    return lower, upper


class NumericRandomiser(Randomiser):
    """One number in declared bounds, reported without bias under epsilon-LDP."""

    travels: ClassVar[tuple[str, ...] | None]

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        check_listed(cls)

    def __init__(self, *, epsilon: float, bounds: tuple[float, float] = (-1.0, 1.0)) -> None:
        self.epsilon = checked_epsilon(epsilon)
        self.bounds = checked_bounds(bounds)
        lower, upper = self.bounds
        self._middle, self._half = lower / 2.0 + upper / 2.0, upper / 2.0 - lower / 2.0

    @property
    @abstractmethod
    def ideal_worst_case_variance(self) -> float:
        """The documents' formula: real-number arithmetic, no wire."""

    @property
    @abstractmethod
    def worst_case_variance(self) -> float:
        """The largest variance over all inputs of what is really sent."""

    def __repr__(self) -> str:
        bounds = "" if self.bounds == (-1.0, 1.0) else f", bounds={self.bounds}"
        return f"{type(self).__name__}(epsilon={self.epsilon:g}{bounds})"

    def _to_unit(self, values: Floats) -> Floats:
        """Map the bounds to [-1, 1] (not clamped: the formulas do that)."""
        if self.bounds == (-1.0, 1.0):
            return values
        with np.errstate(all="ignore"):
            return (values - self._middle) / self._half

    def _from_unit(self, values: Floats) -> Floats:
        return values if self.bounds == (-1.0, 1.0) else values * self._half + self._middle


class NumericChannel(NumericRandomiser, Channel):
    """A numeric randomiser with a finite alphabet.

    Subclasses give the law in units of [-1, 1]: `_unit_alphabet`, the kernel and its parameters
    (`_kernel`, `_law`), exact probabilities, and the points where the variance can be largest.
    """

    _kernel: Formula

    @property
    @abstractmethod
    def _unit_alphabet(self) -> Floats:
        """The outputs in units of [-1, 1], indexed by symbol."""

    @abstractmethod
    def _law(self, *, symbols: bool) -> tuple[Any, ...]:
        """Return the kernel's parameters, for codes that are symbol indices or unit outputs."""

    @abstractmethod
    def _unit_probabilities(self, unit: Floats) -> Floats:
        """Return the law for a vector of inputs already clamped to [-1, 1]: shape (inputs, symbols)."""

    @abstractmethod
    def _exact(self, unit: float) -> list[Fraction]:
        """Return the law for one input already clamped to [-1, 1]."""

    @property
    def size(self) -> int:
        """The number of symbols."""
        return int(self._unit_alphabet.size)

    @cached_property
    def alphabet(self) -> Floats:
        """The outputs, indexed by symbol."""
        outputs = self._from_unit(self._unit_alphabet.copy())
        outputs.flags.writeable = False
        return outputs

    def sample(self, values: ArrayLike, rng: Stream | None = None) -> Symbols:
        """Return one symbol index per value (a whole number, same shape as `values`)."""
        return self._run(values, rng, None, symbols=True).astype(np.int64)

    def perturb(self, values: ArrayLike, rng: Stream | None = None, *, out: Floats | None = None) -> Floats:
        """Return one unbiased private report per value: alphabet[sample(values)].

        Args:
            values: numbers of any shape; clamped to the bounds, NaN to their middle.
            rng: None for secure randomness; a SimulationStream in tests and simulations.
            out: Array to write the reports to, float64 of the same shape.
        """
        return self._run(values, rng, out, symbols=False)

    def _run(self, values: ArrayLike, rng: Stream | None, out: Floats | None, *, symbols: bool) -> Floats:
        stream = secure_or(rng)
        given = as_floats(values)
        if given.size == 0:
            raise ParameterError(f"values must hold at least one value, got shape {given.shape}")
        out = np.empty(given.shape) if out is None else checked_out(out, given.shape)
        flat, flat_out = given.reshape(-1), out.reshape(-1)
        run, law, start = engine_for(given.size).run, self._law(symbols=symbols), 0
        with np.errstate(all="ignore"):
            for randomness in self._randomness(stream, given.size):
                stop = start + randomness[0].size
                block = flat_out[start:stop]
                run(self._kernel, self._to_unit(flat[start:stop]), randomness, block, law)
                if not symbols and self.bounds != (-1.0, 1.0):
                    block *= self._half
                    block += self._middle
                start = stop
        return out if out.ndim else out[()]

    def _randomness(self, stream: Stream, count: int) -> Any:
        """Yield the randomness of consecutive blocks of values."""
        if self._kernel.draws < 2:
            return ((words,) for words in stream.word_blocks(count))  # the engine makes units of them
        return (_pairs(stream, min(_BLOCK, count - start)) for start in range(0, count, _BLOCK))

    def probabilities(self, values: ArrayLike) -> Floats:
        """Return the exact law in doubles: shape values.shape + (size,)."""
        given = as_floats(values)
        unit = self._clamped(given).reshape(-1)
        return self._unit_probabilities(unit).reshape(*given.shape, self.size)

    def exact_probabilities(self, value: float) -> list[Fraction]:
        """Return the law that the sampler really draws from, as rationals that sum to one."""
        return self._exact(float(self._clamped(as_floats(value))))

    def _clamped(self, values: Floats) -> Floats:
        return np.clip(np.nan_to_num(self._to_unit(values), nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)

    def variance(self, values: ArrayLike) -> Floats:
        """Return the variance of one report for each input, exactly as sampled."""
        given = as_floats(values)
        unit = self._clamped(given).reshape(-1)
        return self._unit_variance(unit).reshape(given.shape)[()] * self._half**2

    def _unit_variance(self, unit: Floats) -> Floats:
        spread = np.empty(unit.size)
        rows = max(1, (1 << 20) // self.size)  # bounds the memory of large alphabets
        for start in range(0, unit.size, rows):
            x = unit[start : start + rows]
            deviation = self._unit_alphabet[None, :] - x[:, None]
            spread[start : start + rows] = np.einsum(
                "ij,ij,ij->i", self._unit_probabilities(x), deviation, deviation
            )
        return spread

    @cached_property
    def worst_case_variance(self) -> float:
        """The largest variance over all inputs of what is really sent."""
        return self._unit_worst_variance() * self._half**2

    def _unit_worst_variance(self) -> float:
        """Search [0, 1] (the laws are symmetric), finer around the best point each time."""
        low, high = 0.0, 1.0
        best = 0.0
        for points in (129, 33, 33, 33):
            x = np.linspace(low, high, points)
            spread = self._unit_variance(x)
            top = int(spread.argmax())
            best = max(best, float(spread[top]))
            low, high = x[max(0, top - 1)], x[min(points - 1, top + 1)]
        return best

    @property
    def ideal_worst_case_variance(self) -> float:
        """The documents' formula: real-number arithmetic, no wire."""
        return self._ideal_unit_worst_variance() * self._half**2

    @abstractmethod
    def _ideal_unit_worst_variance(self) -> float: ...


def checked_out(out: Any, shape: tuple[int, ...]) -> Floats:
    """Return `out` if reports of `shape` can be written into it."""
    if not isinstance(out, np.ndarray) or out.dtype != np.float64 or not out.flags.c_contiguous:
        raise ParameterTypeError("out must be a contiguous float64 array")
    if out.shape != shape:
        raise ParameterError(f"out must have shape {shape}, got {out.shape}")
    return out


def worst_between_knots(knots: NDArray[Any], second_moments: NDArray[Any]) -> float:
    """Largest E[Y^2|x] - x^2 when E[Y^2|x] is linear between knots: a concave parabola per cell."""
    slopes = np.diff(second_moments) / np.diff(knots)
    x = np.clip(slopes / 2.0, knots[:-1], knots[1:])
    return float(np.max(second_moments[:-1] + slopes * (x - knots[:-1]) - x * x))


def _pairs(stream: Stream, count: int) -> tuple[Floats, Floats]:
    units = stream.units(2 * count)
    return np.ascontiguousarray(units[0::2]), np.ascontiguousarray(units[1::2])
