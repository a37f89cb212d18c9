"""OUE: one bit per category, the true one kept with probability 1/2, the others set with probability q.

Every bit is decided by 16 random bits, and in one case of 65 536, where these equal the leading bits of
the threshold, by 48 more: an exact Bernoulli draw out of 2^64 at a quarter of the random bits. How
many more are needed depends on the random bits alone, never on the data.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import whole
from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.base import Symbols, exp_below, require_ratio
from reticent.mechanisms.categorical.base import FrequencyOracle
from reticent.randomness import Stream, secure_or

Bits = NDArray[np.bool_]

DRAWS = 1 << 64
_LANE_BITS, _TAIL_BITS = 16, 48
_HALF = np.uint16(1 << (_LANE_BITS - 1))
_COUNT_ROWS = 4096


class OUE(FrequencyOracle):
    """Optimised unary encoding. The least variance when there are many categories.

    A report is a row of k booleans; it supports the categories whose bit is set. See `FrequencyOracle` for
    the arguments.

    Reference: Wang et al. 2017, Section 4.3: p = 1/2, q = 1/(e^epsilon + 1).

    Privacy: epsilon-LDP for one report. Two inputs differ in two bits, and the ratio of the
        probabilities is largest where both show the truth: p(1-q) / (q(1-p)) = (1-q)/q.
    """

    name = "OUE"
    travels = ()

    def _prepare(self) -> None:
        self._true_count = DRAWS // 2
        self._other_count = math.ceil(DRAWS / (1 + exp_below(self.epsilon)))  # up: less privacy loss

    def check(self) -> None:
        """Verify p(1-q) <= e^epsilon q(1-p) in exact integers; 0 < q < p makes it the largest ratio."""
        self._require_information()
        true, other = self._true_count, self._other_count
        require_ratio(true * (DRAWS - other), other * (DRAWS - true), self.epsilon, self.name)

    @property
    def p(self) -> Fraction:
        """The probability that the true category's bit is set: 1/2."""
        return Fraction(self._true_count, DRAWS)

    @property
    def q(self) -> Fraction:
        """The probability that another category's bit is set."""
        return Fraction(self._other_count, DRAWS)

    @property
    def bits(self) -> int:
        """Bits of one report: k."""
        return self.categories.size

    def perturb(self, values: ArrayLike, rng: Stream | None = None, *, out: Bits | None = None) -> Bits:
        """Return one private row of k booleans per value: shape values.shape + (k,).

        Args:
            values: categories (indices, or labels if declared); unknown ones become the fallback.
            rng: None for secure randomness; a SimulationStream in tests and simulations.
            out: Array to write the rows to.
        """
        stream = secure_or(rng)
        array = self.categories.array(values)
        k = self.categories.size
        shape = (*array.shape, k)
        rows = np.empty(shape, dtype=np.bool_) if out is None else _checked_out(out, shape)
        flat, values_flat = rows.reshape(-1), array.reshape(-1)
        ties = self._draw(flat, values_flat, stream)
        self._break_ties(flat, values_flat, ties, stream)
        return rows

    def _draw(self, flat: Bits, values: NDArray[Any], stream: Stream) -> Symbols:
        """Fill `flat` from 16 bits each; return the places where these do not decide."""
        top = np.uint16(self._other_count >> _TAIL_BITS)
        k, start = self.categories.size, 0
        ties = []
        for words in stream.word_blocks(-(-flat.size // 4)):
            lanes = words.view("<u2")[: flat.size - start]
            stop = start + lanes.size
            np.less(lanes, top, out=flat[start:stop])
            ties.append(np.flatnonzero(lanes == top) + start)
            first, last = start // k, -(-stop // k)
            here = self.categories.indices(values[first:last]) + np.arange(first * k, last * k, k)
            here = here[(here >= start) & (here < stop)]  # of rows that began or end in another block
            flat[here] = lanes[here - start] < _HALF
            start = stop
        return np.concatenate(ties)

    def _break_ties(self, flat: Bits, values: NDArray[Any], ties: Symbols, stream: Stream) -> None:
        """Decide the ties by 48 bits each. A true bit has no tie (its 16 bits decide): it stays."""
        tail = np.uint64(self._other_count & ((1 << _TAIL_BITS) - 1))
        hits = (stream.words(ties.size) >> np.uint64(_LANE_BITS)) < tail
        row, place = np.divmod(ties, self.categories.size)
        flat[ties] = np.where(self.categories.indices(values[row]) == place, flat[ties], hits)

    def support_counts(self, reports: ArrayLike) -> Symbols:
        """Count the rows that have each bit set."""
        rows = self._checked(reports)
        counts = np.zeros(self.categories.size, dtype=np.int64)
        for start in range(0, len(rows), _COUNT_ROWS):
            counts += rows[start : start + _COUNT_ROWS].view(np.uint8).sum(axis=0, dtype=np.uint16)
        return counts

    def pack(self, reports: ArrayLike) -> bytes:
        """Pack k bits per report, first category first, zero padded at the very end."""
        return np.packbits(self._checked(reports).reshape(-1)).tobytes()

    def unpack(self, data: bytes, count: int) -> Bits:
        """Return the `count` rows in `data`; refuse a wrong length or padding that is not zero."""
        count = whole("count", count, low=0)
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise ParameterTypeError(f"data must be bytes, got {type(data).__name__}")
        total = count * self.categories.size
        if len(data) != -(-total // 8):
            raise ParameterError(f"data must be {-(-total // 8)} bytes for {count} reports, got {len(data)}")
        bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
        if bits[total:].any():
            raise ParameterError("data must end in zero padding")
        return bits[:total].reshape(count, self.categories.size).view(np.bool_)

    def _checked(self, reports: ArrayLike) -> Bits:
        rows = np.asarray(reports)
        k = self.categories.size
        if rows.ndim < 1 or rows.shape[-1] != k:
            raise ParameterError(f"reports must have {k} bits each, got shape {rows.shape}")
        if rows.dtype != np.bool_:
            if rows.dtype.kind not in "iu":
                raise ParameterTypeError(f"reports must be booleans, got dtype {rows.dtype}")
            if rows.size and (rows.min() < 0 or rows.max() > 1):
                raise ParameterError("reports must hold 0 and 1 alone")
            rows = rows.astype(np.bool_)
        return np.ascontiguousarray(rows.reshape(-1, k))


def _checked_out(out: Bits, shape: tuple[int, ...]) -> Bits:
    if not isinstance(out, np.ndarray) or out.dtype != np.bool_ or not out.flags.c_contiguous:
        raise ParameterTypeError("out must be a contiguous boolean array")
    if out.shape != shape:
        raise ParameterError(f"out must have shape {shape}, got {out.shape}")
    return out
