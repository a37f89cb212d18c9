"""OLH: hash the category into g buckets with a public random hash, then randomised response over g.

The hash family is affine over the prime field of P = 2^32 - 5:

    z = (a * key(v) + b) mod P,    bucket = floor(z * g / 2^32),    seed = a * 2^32 + b

with a and b uniform below P, drawn anew for every report. For two different categories (z, z') is exactly
uniform over all P^2 pairs, so the chance of a collision, and with it q, is an exact rational: no
assumption about a hash function enters the unbiasedness or the variance. `key` is a fixed
bijection of 31-bit numbers that only keeps neighbouring categories from being in arithmetic progression.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import whole
from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.base import Symbols
from reticent.mechanisms.categorical.base import FrequencyOracle, Label
from reticent.mechanisms.categorical.krr import PLACES, Response, block_indices
from reticent.mechanisms.packing import pack_bits, unpack_bits
from reticent.randomness import Stream, secure_or

Seeds = NDArray[np.uint64]

P = (1 << 32) - 5  # the largest prime below 2^32
MAX_BUCKETS = 1 << 29  # e^20 + 1 is below; a bucket then holds at least 8 of the 2^32 hash values
REPORT = np.dtype([("seed", "<u8"), ("value", "<u4")])
SEED_BITS = 64

_LOW, _HIGH = np.uint64((1 << 32) - 1), np.uint64(32)
_PRIME = np.uint64(P)
_KEY_MASK = np.uint64((1 << 31) - 1)
_BLOCK = 1 << 14
_CHUNK = 1 << 18


def keys(indices: NDArray[Any]) -> NDArray[np.uint64]:
    """A fixed bijection of [0, 2^31): xor-shifts right and multiplications by odd numbers modulo 2^31."""
    key = indices.astype(np.uint64)
    for factor, shift in ((0x7FEB352D, 16), (0x046CA68B, 15)):
        key ^= key >> np.uint64(shift)
        key = (key * np.uint64(factor)) & _KEY_MASK
    return key ^ (key >> np.uint64(16))


def buckets_of(seeds: Seeds, key: Any, buckets: int) -> NDArray[np.uint64]:
    """The bucket of a category's key under each seed. No overflow: a key + b < 2^63 + 2^32, z g < 2^61."""
    z = ((seeds >> _HIGH) * key + (seeds & _LOW)) % _PRIME
    hashed: NDArray[np.uint64] = (z * np.uint64(buckets)) >> _HIGH
    return hashed


def collision(buckets: int) -> Fraction:
    """Return the exact probability that two different categories share a bucket.

    Of the 2^32 values floor(z g / 2^32) gives `more` buckets one value more than the rest; the five
    values from P on, which z never takes, are missing from the last bucket.
    """
    least, more = divmod(1 << 32, buckets)
    last = (1 << 32) - (-(-((buckets - 1) << 32) // buckets))
    pairs = more * (least + 1) ** 2 + (buckets - more) * least**2
    return Fraction(pairs - last**2 + (last - 5) ** 2, P * P)


class OLH(FrequencyOracle):
    """Optimised local hashing: about the variance of `OUE` in 64 + log2(g) bits, however many categories.

    A report is (seed, value); it supports the categories that the seed hashes to the value.

    Args:
        epsilon: the LDP level of one report.
        categories: a whole number k >= 2, or a sequence of distinct labels.
        fallback: the category that stands in for unknown and missing values.
        buckets: g; by default e^epsilon + 1 rounded.

    Reference: Wang et al. 2017, Section 4.4.

    Privacy: epsilon-LDP for one report *given its seed*, which is public and independent of the data.
    """

    name = "OLH"
    travels = ("buckets",)

    def __init__(
        self,
        *,
        epsilon: float,
        categories: int | Sequence[Label],
        fallback: Label | None = None,
        buckets: int | None = None,
    ) -> None:
        self._asked = None if buckets is None else whole("buckets", buckets, low=2, high=MAX_BUCKETS)
        super().__init__(epsilon=epsilon, categories=categories, fallback=fallback)

    def _prepare(self) -> None:
        self.buckets = max(2, round(math.exp(self.epsilon) + 1.0)) if self._asked is None else self._asked
        self._response = Response.made(self.epsilon, self.buckets)
        self._keys = keys(np.arange(self.categories.size))

    def check(self) -> None:
        """Verify the response over the buckets in exact integers: it bounds the ratio for every seed."""
        self._response.check(self.epsilon, self.name)
        self._require_information()

    @property
    def p(self) -> Fraction:
        """The probability that a report supports the true category: its bucket is kept."""
        return Fraction(self._response.keep, PLACES)

    @property
    def q(self) -> Fraction:
        """The probability that it supports a given other one: nearly 1/g, and exact."""
        shared = collision(self.buckets)
        return shared * self.p + (1 - shared) * Fraction(self._response.other, PLACES)

    @property
    def bits(self) -> int:
        """Bits of one report: the seed and the bucket."""
        return SEED_BITS + self._width

    @property
    def _width(self) -> int:
        return (self.buckets - 1).bit_length()

    def perturb(self, values: ArrayLike, rng: Stream | None = None) -> NDArray[Any]:
        """Return one private (seed, value) per value, as a structured array of the shape of `values`."""
        stream = secure_or(rng)
        array = self.categories.array(values)
        reports = np.empty(array.size, dtype=REPORT)
        for start in range(0, array.size, _CHUNK):
            self._fill(reports[start : start + _CHUNK], array.reshape(-1)[start : start + _CHUNK], stream)
        return reports.reshape(array.shape)

    def _fill(self, reports: NDArray[Any], values: NDArray[Any], stream: Stream) -> None:
        seeds = _drawn_seeds(values.size, stream)
        indices = block_indices(self.categories, values)

        def hashed(start: int, stop: int) -> Symbols:
            key = self._keys[indices(start, stop)]
            return buckets_of(seeds[start:stop], key, self.buckets).astype(np.int64)

        reports["value"] = self._response.sample(hashed, values.size, stream)
        reports["seed"] = seeds

    def support_counts(self, reports: ArrayLike) -> Symbols:
        """Count the reports that support each category: n k hashes, in blocks."""
        given = self._checked(reports)
        counts = np.zeros(self.categories.size, dtype=np.int64)
        for start in range(0, given.size, _BLOCK):
            seeds = np.ascontiguousarray(given["seed"][start : start + _BLOCK])
            values = given["value"][start : start + _BLOCK].astype(np.uint64)
            for index, key in enumerate(self._keys):
                counts[index] += np.count_nonzero(buckets_of(seeds, key, self.buckets) == values)
        return counts

    def pack(self, reports: ArrayLike) -> bytes:
        """Pack all seeds (8 bytes each, most significant first), then all values at their bit width."""
        given = self._checked(reports)
        return given["seed"].astype(">u8").tobytes() + pack_bits(given["value"], self._width, self.buckets)

    def unpack(self, data: bytes, count: int) -> NDArray[Any]:
        """Return the `count` reports in `data`; refuse what `pack` cannot have made."""
        count = whole("count", count, low=0)
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise ParameterTypeError(f"data must be bytes, got {type(data).__name__}")
        expected = 8 * count + -(-count * self._width // 8)
        if len(data) != expected:
            raise ParameterError(f"data must be {expected} bytes for {count} reports, got {len(data)}")
        reports = np.empty(count, dtype=REPORT)
        reports["seed"] = np.frombuffer(data[: 8 * count], dtype=">u8")
        reports["value"] = unpack_bits(data[8 * count :], count, self._width, self.buckets)
        return self._checked(reports)

    def legal(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a flag for each (seed, value) record: true if a report can be so."""
        return _proper(reports["seed"]) & (reports["value"] < self.buckets)

    def _checked(self, reports: ArrayLike) -> NDArray[Any]:
        given = np.asarray(reports)
        if given.dtype != REPORT:
            raise ParameterTypeError(f"reports must be (seed, value) records, got dtype {given.dtype}")
        given = given.reshape(-1)
        if given.size and given["value"].max() >= self.buckets:
            raise ParameterError(f"reports must hold values < {self.buckets}")
        if not _proper(given["seed"]).all():
            raise ParameterError(f"reports must hold seeds of two numbers < {P}")
        return given


def _proper(seeds: Seeds) -> NDArray[np.bool_]:
    """Whether both halves of the seeds are below P."""
    return ((seeds >> _HIGH) < _PRIME) & ((seeds & _LOW) < _PRIME)


def _drawn_seeds(count: int, stream: Stream) -> Seeds:
    """Seeds uniform over all pairs below P, by rejection (about two in a thousand million)."""
    seeds = stream.words(count)
    refused = np.flatnonzero(~_proper(seeds))
    while refused.size:
        seeds[refused] = stream.words(refused.size)
        refused = refused[~_proper(seeds[refused])]
    return seeds
