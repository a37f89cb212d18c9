"""OneBit: one dithered bit, the exact optimum for epsilon up to 0.712.

A public dither level j, drawn uniformly, turns the number into the question "is it above the
knot?"; the answer is flipped with probability 1/(1 + e^epsilon). The level may be known to everybody,
so only the bit travels. Reference: [OneBit] in docs/references.md, with the proof of optimality.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reticent.arguments import real, whole
from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.base import Floats, Symbols, exp_below, require_ratio
from reticent.mechanisms.numeric import formulas
from reticent.mechanisms.numeric.base import NumericChannel, worst_between_knots
from reticent.mechanisms.numeric.kernels import Formula, Function, Law, Writing
from reticent.mechanisms.packing import checked_symbols, unpack_bits
from reticent.randomness import Stream, secure_or

MAX_DITHER_LEVELS = 1 << 16
_LEAST_RHO = 1e-7  # one of 2^22 attributes is more
_BLOCK = 1 << 15  # symbols, a multiple of 8


def _one_bit(writing: Writing) -> Function:
    where, compiled, clamp = writing

    @compiled
    def one_bit(x: Any, word: Any, law: Law) -> Any:
        """Dither level from the low bits of the word; the bit by comparing the high ones with a threshold.

        Row j of `table` is (lower knot, threshold per unit of x, code of bit 1, code of bit 0).
        """
        table, level_mask, level_shift, lowest, highest = law
        v = clamp(x)
        row = (word & level_mask) * np.uint64(4)
        draw = np.int64(word >> level_shift)
        threshold = (v - table[row]) * table[row + np.uint64(1)] + lowest
        threshold = where(threshold > lowest, threshold, lowest)
        threshold = where(threshold < highest, threshold, highest)
        return table[row + np.uint64(2) + np.uint64(draw >= np.int64(threshold))]

    return one_bit  # type: ignore[no-any-return]


class OneBit(NumericChannel):
    """One bit per report, with a symbol (dither level, bit) of index 2 * level + bit.

    Args:
        epsilon: the LDP level of one report, for every fixed dither level.
        rho: 1 for a single number; k/d when k of d attributes are sampled, which shapes the outputs
            for the variance that then counts.
        dither_levels: a power of two; the report is unbiased at any number of levels.
        bounds: the declared interval.
    """

    name = "OneBit"
    travels = ("rho", "dither_levels")
    _kernel = Formula(_one_bit, 0)

    def __init__(
        self,
        *,
        epsilon: float,
        rho: float = 1.0,
        dither_levels: int = 1024,
        bounds: tuple[float, float] = (-1.0, 1.0),
    ) -> None:
        super().__init__(epsilon=epsilon, bounds=bounds)
        self.rho = real("rho", rho, low=_LEAST_RHO, high=1.0)
        self.dither_levels = whole("dither_levels", dither_levels, low=1, high=MAX_DITHER_LEVELS)
        if self.dither_levels & (self.dither_levels - 1):
            raise ParameterError(f"dither_levels must be a power of two, got {self.dither_levels}")
        self._shift = max(11, self.dither_levels.bit_length() - 1)
        self._draws = 1 << (64 - self._shift)
        self._low = math.ceil(self._draws / (1 + exp_below(self.epsilon)))
        self._high = self._draws - self._low
        require_ratio(self._high, self._low, self.epsilon, "bit")

    @property
    def bits(self) -> int:
        """The dither level is public: one bit travels."""
        return 1

    @cached_property
    def _a(self) -> float:
        """Rho / C, with the C that the realised flip probability gives."""
        return self.rho * (self._high - self._low) / self._draws

    @cached_property
    def knots(self) -> Floats:
        """sinh(a e)/sinh(a) at the edges e of the dither levels."""
        edges = -1.0 + 2.0 * np.arange(self.dither_levels + 1) / self.dither_levels
        return np.sinh(self._a * edges) / math.sinh(self._a)

    @cached_property
    def _unit_alphabet(self) -> Floats:
        levels, a = self.dither_levels, self._a
        u = -1.0 + (2.0 * np.arange(levels) + 1.0) / levels
        gain = self.rho / math.sinh(a) * (levels / a) * math.sinh(a / levels)
        return np.stack([-gain * np.exp(-a * u), gain * np.exp(a * u)], axis=-1).reshape(-1)

    def _law(self, *, symbols: bool) -> tuple[Any, ...]:
        codes = np.arange(self.size, dtype=np.float64) if symbols else self._unit_alphabet
        slope = (self._high - self._low) / np.diff(self.knots)
        table = np.stack([self.knots[:-1], slope, codes[1::2], codes[0::2]], axis=-1).reshape(-1)
        mask, shift = np.uint64(self.dither_levels - 1), np.uint64(self._shift)
        return (table, mask, shift, float(self._low), float(self._high))

    def _randomness(self, stream: Stream, count: int) -> Iterator[tuple[Any, ...]]:
        return ((words,) for words in stream.word_blocks(count))

    def sample(
        self, values: ArrayLike, rng: Stream | None = None, *, dither: ArrayLike | None = None
    ) -> Symbols:
        """Return one symbol index per value.

        Args:
            values: numbers of any shape.
            rng: None for secure randomness.
            dither: the public dither level of each report; drawn uniformly if not given.
        """
        if dither is None:
            return super().sample(values, rng)
        levels = self._checked_dither(dither)
        return self._run(
            values, _Dithered(secure_or(rng), levels, self.dither_levels), None, symbols=True
        ).astype(np.int64)

    def pack(self, symbols: ArrayLike) -> bytes:
        """Pack the bits alone; the reader knows the dither levels."""
        flat, bits = np.asarray(symbols).reshape(-1), []
        for start in range(0, flat.size, _BLOCK):
            block = checked_symbols(flat[start : start + _BLOCK], self.size)
            bits.append(np.packbits((block & 1).astype(np.uint8)).tobytes())
        return b"".join(bits)

    def unpack(self, data: bytes, count: int, *, dither: ArrayLike | None = None) -> Symbols:
        """Return the symbols of `count` bits, given the public dither level of each."""
        if dither is None:
            raise ParameterError("dither must be given: the packed reports hold the bits alone")
        levels = self._checked_dither(dither)
        if levels.shape != (count,):
            raise ParameterError(f"dither must have shape ({count},), got {levels.shape}")
        return 2 * levels + unpack_bits(data, count, 1, 2)

    def _checked_dither(self, dither: ArrayLike) -> Symbols:
        levels = np.asarray(dither)
        if not np.issubdtype(levels.dtype, np.integer):
            raise ParameterTypeError(f"dither must be whole numbers, got dtype {levels.dtype}")
        if levels.size and (levels.min() < 0 or levels.max() >= self.dither_levels):
            raise ParameterError(f"dither must be >= 0 and < {self.dither_levels}")
        return levels.astype(np.int64)

    def _thresholds(self, unit: Floats) -> np.ndarray[Any, Any]:
        """Counts of bit 1 out of `_draws`, per input and level: the kernel's arithmetic."""
        low, high = float(self._low), float(self._high)
        slope = (self._high - self._low) / np.diff(self.knots)
        thresholds = (unit[:, None] - self.knots[:-1]) * slope + low
        return np.clip(thresholds, low, high).astype(np.int64)

    def _unit_probabilities(self, unit: Floats) -> Floats:
        ones = self._thresholds(unit) / float(self._draws)
        both = np.stack([1.0 - ones, ones], axis=-1).reshape(unit.size, -1)
        return both / self.dither_levels

    def _exact(self, unit: float) -> list[Fraction]:
        total = self._draws * self.dither_levels
        ones = [int(count) for count in self._thresholds(np.array([unit]))[0]]
        return [Fraction(count, total) for one in ones for count in (self._draws - one, one)]

    def _unit_worst_variance(self) -> float:
        return worst_between_knots(self.knots, self._unit_variance(self.knots) + self.knots**2)

    def _ideal_unit_worst_variance(self) -> float:
        """For rho < 1, E[Y^2|x] - x^2 is largest at x = 0."""
        return self.rho * formulas.one_bit_worst(self.epsilon, self.rho)


class _Dithered(Stream):
    """A stream whose words carry given dither levels in their low bits."""

    def __init__(self, stream: Stream, levels: Symbols, dither_levels: int) -> None:
        self._stream, self._levels = stream, levels.reshape(-1).astype(np.uint64)
        self._kept = ~np.uint64(dither_levels - 1)

    def _take(self) -> Any:
        return self._stream._take()

    def _give_back(self, held: Any) -> None:
        self._stream._give_back(held)

    def word_blocks(self, count: int) -> Iterator[Any]:
        if self._levels.size != count:
            raise ParameterError(f"dither must give one level per value, got {self._levels.size} for {count}")
        start = 0
        for words in super().word_blocks(count):
            stop = start + words.size
            np.bitwise_and(words, self._kept, out=words)
            np.bitwise_or(words, self._levels[start:stop], out=words)
            start = stop
            yield words
