"""Exact discrete draws: probabilities are ratios of integers, never rounded doubles.

An integer weight of one out of any total, however large, keeps its chance: nothing that is
possible becomes impossible. (With 64-bit thresholds a probability below 2^-64 would vanish and
its absence would tell inputs apart.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.randomness.streams import Stream, secure_or

LATTICE = 1 << 52  # number of equally likely values of one unit draw


def bernoulli(count: int, size: int, rng: Stream | None = None) -> NDArray[np.bool_]:
    """Return `size` independent draws that are True with probability exactly `count` / 2^52."""
    threshold = 1.0 + whole("count", count, low=0, high=LATTICE) / LATTICE
    hits = np.empty(whole("size", size, low=0), dtype=np.bool_)
    start = 0
    for units in secure_or(rng).unit_blocks(size):
        hits[start : start + units.size] = units < threshold
        start += units.size
    return hits


def uniform_below(bound: int, size: int, rng: Stream | None = None) -> NDArray[np.int64]:
    """Return `size` independent whole numbers, uniform in [0, bound), by rejection.

    How often a draw is rejected depends on `bound` alone.
    """
    bound = whole("bound", bound, low=1, high=1 << 62)
    stream = secure_or(rng)
    shift = np.uint64(64 - (bound - 1).bit_length()) if bound > 1 else np.uint64(63)
    kept = np.empty(whole("size", size, low=0), dtype=np.int64)
    have = 0
    while have < size:
        tries = (stream.words(size - have) >> shift).astype(np.int64)
        tries = tries[tries < bound]
        kept[have : have + tries.size] = tries
        have += tries.size
    return kept


def categorical(weights: Sequence[int], size: int, rng: Stream | None = None) -> NDArray[np.int64]:
    """Return `size` independent indices, index i with probability weights[i] / sum(weights).

    Weights are non-negative Python integers of any length.
    """
    weights = [whole(f"weights[{i}]", weight, low=0) for i, weight in enumerate(weights)]
    total = sum(weights)
    if total == 0:
        raise ParameterError("weights must hold at least one positive weight, got none")
    edges = list(accumulate(weights))
    size = whole("size", size, low=0)
    if total <= 1 << 62:
        draws = uniform_below(total, size, rng)
        return np.searchsorted(np.asarray(edges, dtype=np.int64), draws, side="right").astype(np.int64)
    return _by_long_edges(edges, total, size, secure_or(rng))


def _by_long_edges(edges: list[int], total: int, size: int, stream: Stream) -> NDArray[np.int64]:
    """Indices for a total of any length: a word is compared with the edges cut to 64 bits.

    A word that equals a cut edge does not decide; then further words are drawn for it alone.
    """
    last = (1 << 64) - 1  # the edge of weights that are followed by zeros only, too
    cut = np.array([min((edge << 64) // total, last) for edge in edges[:-1]], dtype=np.uint64)
    words = stream.words(size)
    found = np.searchsorted(cut, words, side="right").astype(np.int64)
    for place in np.flatnonzero(np.searchsorted(cut, words, side="left") != found):
        found[place] = _refined(edges, total, int(words[place]), stream)
    return found


def _refined(edges: list[int], total: int, word: int, stream: Stream) -> int:
    """Return the index of a uniform number in [0, 1) whose first 64 bits are given."""
    bits = 64
    while True:
        bits += 64
        word = word << 64 | int(stream.words(1)[0])
        low = bisect_right(edges, (word * total) >> bits)
        if low == bisect_right(edges, ((word + 1) * total - 1) >> bits):
            return low
