"""Subset: report a set of w categories that holds the true one more often than chance.

Ye and Barg draw one of all sets of w out of k categories, those with the true one e^epsilon times as often.
All that the estimate needs of these sets is that any two categories meet in equally many of them, and far
fewer sets do that. Here a report is a public seed and a shift,

    its set = { seed's block + shift mod m },    report = seed * m + shift,

where the block is, by the seed,

- for a prime m >= k the numbers a * 0, .., a * (w - 1) mod m, with a = seed + 1 in 1..m-1: the affine maps
  of the field take any two points to any two equally often;
- for other k any of the C(k, w) sets, with m = k, if these sets are few (`MOST_LISTED`);
- for w = 1 the number 0, with m = k: that is k-ary randomised response.

The seed is uniform and independent of the data. The shift is such that the true category lies in the set with
probability p: v - shift is then a uniform element of the block, otherwise of the rest. Whatever the seed, the
law of the shift has two levels whose ratio is at most e^epsilon. Another category lies in the set with

    q = (p (w - 1) + (1 - p) w) / (m - 1)

exactly: given where the true one is, the other is equally likely to be at each place that is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import whole
from reticent.mechanisms.base import Symbols, exp_below, require_ratio
from reticent.mechanisms.categorical.base import FrequencyOracle, Label
from reticent.mechanisms.packing import checked_symbols, pack_bits, unpack_bits
from reticent.randomness import LATTICE, Stream, bernoulli, secure_or, uniform_below

MOST_LISTED = 1 << 19  # C(k, w) k up to which all sets are listed: w = 2 up to k = 101, any up to 16
_CHUNK = 1 << 16
_CELLS = 1 << 18


class Subset(FrequencyOracle):
    """Subset selection. The least variance of all of them, in about 2 log2 k bits.

    A report is a whole number; it supports the categories of its set.

    Args:
        epsilon: the LDP level of one report.
        categories: a whole number k >= 2, or a sequence of distinct labels.
        fallback: the category that stands in for unknown and missing values.
        subset_size: w; by default that of least variance, about k/(e^epsilon + 1).

    Reference: Ye and Barg 2018, Section III: p = w e^epsilon / (w e^epsilon + k - w).
    Departure: fewer sets that meet as evenly, where they take all C(k, w); where k is no prime and
        has too many sets, it is taken as the next prime, which costs less than 4 % up to epsilon 4.

    Privacy: epsilon-LDP for one report *given its seed*, which is public and independent of the data.
    """

    name = "Subset"
    travels = ("subset_size",)

    def __init__(
        self,
        *,
        epsilon: float,
        categories: int | Sequence[Label],
        fallback: Label | None = None,
        subset_size: int | None = None,
    ) -> None:
        self._asked = subset_size
        super().__init__(epsilon=epsilon, categories=categories, fallback=fallback)

    def _prepare(self) -> None:
        k = self.categories.size
        if self._asked is None:
            self.subset_size = best_size(self.epsilon, k)
        else:
            self.subset_size = whole("subset_size", self._asked, low=1, high=k - 1)
        w, c = self.subset_size, exp_below(self.epsilon)
        self.modulus = modulus_for(k, w)
        self._listed: Symbols | None = None
        self.seeds = self.modulus - 1
        if w == 1:
            self.seeds = 1
        elif not _is_prime(self.modulus):
            self._listed = _orders(k, w)
            self.seeds = len(self._listed)
        self._true_count = math.floor(LATTICE * c * w / (c * w + self.modulus - w))  # down: less privacy loss

    def check(self) -> None:
        """Verify in exact integers that the shift's two levels, given any seed, keep e^epsilon."""
        w, true, others = self.subset_size, self._true_count, LATTICE - self._true_count
        require_ratio(true * (self.modulus - w), others * w, self.epsilon, self.name)
        self._require_information()

    @property
    def size(self) -> int:
        """The number of possible reports."""
        return self.seeds * self.modulus

    @property
    def p(self) -> Fraction:
        """The probability that the set holds the true category."""
        return Fraction(self._true_count, LATTICE)

    @property
    def q(self) -> Fraction:
        """The probability that it holds a given other one."""
        w, p = self.subset_size, self.p
        return (p * (w - 1) + (1 - p) * w) / (self.modulus - 1)

    @property
    def bits(self) -> int:
        """Bits of one report."""
        return (self.size - 1).bit_length()

    def perturb(self, values: ArrayLike, rng: Stream | None = None) -> Symbols:
        """Return one private report per value: whole numbers of the shape of `values`."""
        stream = secure_or(rng)
        array = self.categories.array(values)
        flat, reports = array.reshape(-1), np.empty(array.size, dtype=np.int64)
        for start in range(0, flat.size, _CHUNK):
            chunk = flat[start : start + _CHUNK]
            reports[start : start + chunk.size] = self._drawn(self.categories.indices(chunk), stream)
        return reports.reshape(array.shape)[()]

    def _drawn(self, true: Symbols, stream: Stream) -> Symbols:
        """Reports of category indices. How much is drawn does not depend on them."""
        w, m, count = self.subset_size, self.modulus, true.size
        seeds = uniform_below(self.seeds, count, stream)
        holds = bernoulli(self._true_count, count, stream)
        inside, outside = uniform_below(w, count, stream), uniform_below(m - w, count, stream)
        shifts = (true - self.elements(seeds, np.where(holds, inside, w + outside))) % m
        return seeds * m + shifts

    def elements(self, seeds: Symbols, places: Any) -> Symbols:
        """Return the elements at given places under given seeds: the first w places are the block."""
        if self._listed is not None:
            return np.asarray(self._listed[seeds, places], dtype=np.int64)
        return np.asarray((seeds + 1) * places % self.modulus)

    def sets(self, reports: ArrayLike) -> Symbols:
        """The sets of reports: shape (reports, w), numbers below m of which those from k on are nobody's."""
        seeds, shifts = np.divmod(self._checked(reports)[:, None], self.modulus)
        return (self.elements(seeds, np.arange(self.subset_size)) + shifts) % self.modulus

    def support_counts(self, reports: ArrayLike) -> Symbols:
        """Count the sets that hold each category; equal reports are looked at once where they are many."""
        given = self._checked(reports)
        weights: NDArray[Any] | None = None
        if given.size > self.size:
            counted = np.bincount(given, minlength=self.size)
            given = np.flatnonzero(counted)
            weights = counted[given]
        counts = np.zeros(self.modulus, dtype=np.int64)
        rows = max(1, _CELLS // self.subset_size)
        for start in range(0, given.size, rows):
            held = self.sets(given[start : start + rows])
            each = None if weights is None else np.repeat(weights[start : start + rows], self.subset_size)
            counts += np.bincount(held.reshape(-1), each, minlength=self.modulus).astype(np.int64)
        return counts[: self.categories.size]

    def pack(self, reports: ArrayLike) -> bytes:
        """Pack reports at their true bit width, zero padded."""
        return pack_bits(self._checked(reports), self.bits, self.size)

    def unpack(self, data: bytes, count: int) -> Symbols:
        """Return the `count` reports in `data`; refuse a wrong length or an illegal report."""
        return unpack_bits(data, count, self.bits, self.size)

    def _checked(self, reports: ArrayLike) -> Symbols:
        return checked_symbols(np.asarray(reports).reshape(-1), self.size).astype(np.int64, copy=False)


def best_size(epsilon: float, categories: int) -> int:
    """Return the w of least variance for a rare category: near m/(e^epsilon + 1)."""
    odds = math.exp(epsilon) + 1.0
    low, high = math.floor(categories / odds) - 1, math.ceil(_prime_from(categories) / odds) + 1
    sizes = {1, *range(max(1, low), min(categories, high + 1))}
    least: int = min(sorted(sizes), key=lambda w: ideal_variance(epsilon, modulus_for(categories, w), w))
    return least


def least_variance(epsilon: float, categories: int) -> float:
    """Return the ideal variance of the best w."""
    w = best_size(epsilon, categories)
    return ideal_variance(epsilon, modulus_for(categories, w), w)


def ideal_variance(epsilon: float, modulus: int, subset_size: int) -> float:
    """q(1-q)/(p-q)^2 of sets of w out of m, in real numbers.

    Reference: Ye and Barg 2018, Section III; mathematics 1.3.
    """
    m, w, c = modulus, subset_size, math.exp(epsilon)
    p = w * c / (w * c + m - w)
    q = (p * (w - 1) + (1.0 - p) * w) / (m - 1)
    return q * (1.0 - q) / (p - q) ** 2


@lru_cache(maxsize=4096)
def modulus_for(categories: int, subset_size: int) -> int:
    """m: k itself where sets of w exist that meet evenly, else the next prime."""
    are_few = categories < 128 and math.comb(categories, subset_size) * categories <= MOST_LISTED
    are_listed = subset_size == 1 or are_few  # 128 have too many, and a million would keep `comb` busy
    return categories if are_listed else _prime_from(categories)


def _prime_from(number: int) -> int:
    while not _is_prime(number):
        number += 1
    return number


@lru_cache(maxsize=4096)
def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


@lru_cache(maxsize=8)
def _orders(categories: int, subset_size: int) -> Symbols:
    """Return a row for each set of w out of k, in lexical order: its elements, then the others."""
    blocks = np.array(list(combinations(range(categories), subset_size)))
    is_outside = np.ones((len(blocks), categories), dtype=np.bool_)
    np.put_along_axis(is_outside, blocks, False, axis=1)
    table: Symbols = np.argsort(is_outside, axis=1, kind="stable").astype(np.int64)
    table.flags.writeable = False
    return table
