"""Codes of the reports of each kind of mechanism, and the exact probability of each code.

`laws_of(mechanism, value)` gives an encoder from reports to integers and the distribution of these integers.
`fit` compares the two. Finite channels are their own code; bit rows, hashed reports, vectors and noise
are reduced to a number that still sees the parameters that matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.audit.places import PLACE_CHANNELS, rows_of
from reticent.audit.statistics import special
from reticent.mechanisms.base import Channel
from reticent.mechanisms.categorical import OLH, OUE, Subset
from reticent.mechanisms.categorical.olh import buckets_of, keys
from reticent.mechanisms.gaussian import DiscreteGaussian
from reticent.mechanisms.numeric.laplace import Laplace
from reticent.mechanisms.vector import Codebook, VectorDuchi, VectorLaplace
from reticent.mechanisms.vector.codebook import lifted
from reticent.mechanisms.vector.sphere import Along

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]

_BITS = 8  # bits of a row that are looked at together
_NOISE_CELLS = 400
_SEED_CLASSES = 256
_RANKED = 1 << 12  # reports whose directions are ranked at once


class Law(NamedTuple):
    """An encoder of reports as codes 0..size-1, where code i has probability law[i]."""

    encode: Callable[[Any], Codes]
    law: Floats
    what: str


def laws_of(mechanism: Any, value: Any) -> list[Law]:
    """Return everything about the reports of one input that has an exact distribution."""
    if isinstance(mechanism, Channel):
        exact = np.array([float(chance) for chance in mechanism.exact_probabilities(value)])
        return [Law(lambda symbols: np.asarray(symbols).reshape(-1), exact, "symbols")]
    for kind, make in _KINDS:
        if isinstance(mechanism, kind):
            return make(mechanism, value)
    raise TypeError(f"no law is known for {type(mechanism).__name__}")


def _places(channel: Any, value: Any) -> list[Law]:
    """Return the distribution of reported places, from the integers that are drawn from."""
    (row,) = rows_of(channel, [int(value)])
    law = np.array([float(chance) for chance in row])
    return [Law(lambda places: np.asarray(places).reshape(-1), law, "reported places")]


def _unary(oracle: Any, value: Any) -> list[Law]:
    """Return the distribution of eight neighbouring bits, the true one among them, and of all set bits."""
    k, p, q = oracle.categories.size, float(oracle.p), float(oracle.q)
    width = min(k, _BITS)
    true = oracle.categories.index(value)
    start = min(true, k - width)
    weights = 1 << np.arange(width)
    law = np.ones(1 << width)
    for bit in range(width):
        chance = p if start + bit == true else q
        law *= np.where(np.arange(1 << width) >> bit & 1, chance, 1.0 - chance)
    set_bits = _binomial(k - 1, q)
    number = np.convolve(set_bits, [1.0 - p, p])
    return [
        Law(lambda rows: np.asarray(rows)[:, start : start + width] @ weights, law, f"{width} bits jointly"),
        Law(lambda rows: np.asarray(rows).sum(axis=1), number, "number of bits set"),
    ]


def _binomial(n: int, p: float) -> Floats:
    k = np.arange(n + 1)
    gammaln = special().gammaln
    logs = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p)
    return np.asarray(np.exp(logs))


def _hashed(oracle: Any, value: Any) -> list[Law]:
    """Return the distribution of the bucket relative to the truth's under the report's seed, and of seeds."""
    g, p = oracle.buckets, float(oracle.p)
    key = keys(np.array([oracle.categories.index(value)]))[0]

    def offset(reports: Any) -> Codes:
        true = buckets_of(np.ascontiguousarray(reports["seed"]), key, g).astype(np.int64)
        return np.asarray((reports["value"].astype(np.int64) - true) % g)

    law = np.full(g, (1.0 - p) / (g - 1))
    law[0] = p
    seeds = Law(
        lambda reports: (reports["seed"] >> np.uint64(54)).astype(np.int64), np.full(1024, 1.0), "seeds"
    )
    return [Law(offset, law, "bucket relative to the truth"), seeds]


def _subsets(oracle: Any, value: Any) -> list[Law]:
    """Return the distributions of the true element's index in the set, and of seeds with its membership."""
    w, m, p = oracle.subset_size, oracle.modulus, float(oracle.p)
    true = oracle.categories.index(value)
    classes = min(oracle.seeds, _SEED_CLASSES)

    def place(reports: Any) -> Codes:
        held = oracle.sets(reports) == true
        return np.asarray(np.where(held.any(axis=1), held.argmax(axis=1), w))

    def seed(reports: Any) -> Codes:
        return np.asarray(2 * (np.asarray(reports) // m * classes // oracle.seeds) + (place(reports) < w))

    sizes = np.bincount(np.arange(oracle.seeds) * classes // oracle.seeds) / oracle.seeds
    return [
        Law(place, np.append(np.full(w, p / w), 1.0 - p), "place of the truth in the set"),
        Law(seed, np.outer(sizes, [1.0 - p, p]).reshape(-1), "seeds, and whether the set holds the truth"),
    ]


def _signs(mechanism: Any, value: Any) -> list[Law]:
    """Return the distribution of all signs for few dimensions, and of those that agree with a corner."""
    d = mechanism.dimensions
    laws = []
    if d <= _BITS:
        exact = mechanism.exact_probabilities(value)
        weights = 1 << np.arange(d)[::-1]
        law = np.array([float(exact[bits]) for bits in product((0, 1), repeat=d)])
        laws.append(Law(lambda signs: np.asarray(signs) @ weights, law, "signs jointly"))
    corner = np.asarray(value) == mechanism.bounds[1]
    if np.isin(np.asarray(value), mechanism.bounds).all():
        agree = mechanism._agree / 2**52
        number = np.arange(d + 1)
        weight = np.where(2 * number > d, 2.0 * agree, np.where(2 * number < d, 2.0 * (1.0 - agree), 1.0))
        law = _binomial(d, 0.5) * weight
        laws.append(Law(lambda signs: (np.asarray(signs) == corner).sum(axis=1), law, "agreeing signs"))
    return laws


def _ranks(mechanism: Any, value: Any) -> list[Law]:
    """Return the distributions of the reported rank under its seed, of the decoded distance, and of seeds.

    Ranks are those of the parent class; how far along follows from the claimed level, not from the scale.
    """
    size, top, epsilon = mechanism.size, mechanism.top, mechanism.guarantee.epsilon
    x = np.asarray(value, dtype=np.float64)
    total = top * math.exp(epsilon) + size - top
    near, far = math.exp(epsilon) / total, 1.0 / total

    def rank(reports: Any) -> Codes:
        codes = np.empty(reports.size, dtype=np.int64)
        for start in range(0, reports.size, _RANKED):
            part = reports[start : start + _RANKED]
            seeds = np.ascontiguousarray(part["seed"])
            order = Codebook._ranked(mechanism, np.repeat(lifted(x[None]), part.size, axis=0), seeds)
            codes[start : start + part.size] = (order == part["value"][:, None]).argmax(axis=1)
        return codes

    laws = [
        Law(rank, np.where(np.arange(size) < top, near, far), "rank of the direction"),
        Law(lambda reports: (reports["seed"] >> np.uint64(54)).astype(np.int64), np.full(1024, 1.0), "seeds"),
    ]
    if abs(float(x @ x) - 1.0) < 1e-9:  # nothing of the direction is in the number that is left out
        along = Along(x.size + 1, size, top, near, far)
        edges = along.quantile(np.arange(1, _NOISE_CELLS) / _NOISE_CELLS) / along.mean

        def decoded(reports: Any) -> Codes:
            return np.asarray(np.searchsorted(edges, mechanism.decode(reports) @ x), dtype=np.int64)

        laws.append(Law(decoded, np.full(_NOISE_CELLS, 1.0 / _NOISE_CELLS), "how far along it decodes"))
    return laws


def _radial(mechanism: Any, value: Any) -> list[Law]:
    """Return the distributions of the noise's length, Gamma(n) / epsilon, and of its direction."""
    n, rate = mechanism.dimensions, mechanism.guarantee.epsilon_per_unit
    centre = np.rint(np.asarray(value, dtype=np.float64) / mechanism.step)
    edges = special().gammaincinv(n, np.arange(1, _NOISE_CELLS) / _NOISE_CELLS) / rate

    def length(reports: Any) -> Codes:
        noise = (reports - centre) * mechanism.step
        return np.asarray(np.searchsorted(edges, np.sqrt(np.square(noise).sum(axis=1))), dtype=np.int64)

    def direction(reports: Any) -> Codes:
        noise = reports - centre + 1e-9  # a coordinate of exactly 0 counts as positive
        pattern = (noise[:, : min(n, 4)] > 0) @ (1 << np.arange(min(n, 4)))
        if n == 1:
            return np.asarray(pattern)
        return np.asarray(2 * pattern + (np.abs(noise[:, 0]) > np.abs(noise[:, 1])))

    sectors = (1 << min(n, 4)) * (1 if n == 1 else 2)
    laws = [Law(length, np.full(_NOISE_CELLS, 1.0 / _NOISE_CELLS), "length of the noise")]
    return [*laws, Law(direction, np.full(sectors, 1.0 / sectors), "direction of the noise")]


def _grid_noise(mechanism: Any, value: Any) -> list[Law]:
    """Return the distribution of Laplace symbols within 40 scales; beyond, one cell on each side."""
    lower, upper = mechanism.bounds
    scale = (upper - lower) / mechanism.epsilon / mechanism.step
    clamped = min(max(float(value), lower), upper) if math.isfinite(float(value)) else 0.0
    centre = round((clamped - lower / 2.0 - upper / 2.0) / mechanism.step)
    first = centre - math.ceil(40.0 * scale)
    symbols = np.arange(first, centre + math.ceil(40.0 * scale) + 1)
    law = mechanism.probability(symbols, value)
    top = symbols.size - 1
    return [Law(lambda drawn: np.clip(np.asarray(drawn) - first, 0, top), law, "symbols")]


def _gaussian(mechanism: Any, value: Any) -> list[Law]:
    """Return equal cells of the continuous Gaussian with edges half-way between integers.

    From sigma 2^10 on the two laws agree to 1e-7 on a cell, a thousandth of what 10^6 draws resolve.
    """
    ndtr, ndtri = special().ndtr, special().ndtri
    edges = np.floor(mechanism.sigma * ndtri(np.arange(1, _NOISE_CELLS) / _NOISE_CELLS)) + 0.5
    below = np.concatenate([[0.0], ndtr(edges / mechanism.sigma), [1.0]])
    return [
        Law(lambda noisy: np.searchsorted(edges, noisy - value).astype(np.int64), np.diff(below), "noise"),
    ]


_KINDS: tuple[tuple[Any, Callable[[Any, Any], list[Law]]], ...] = (
    (PLACE_CHANNELS, _places),
    (OUE, _unary),
    (OLH, _hashed),
    (Subset, _subsets),
    (VectorDuchi, _signs),
    (VectorLaplace, _radial),
    (Codebook, _ranks),
    (Laplace, _grid_noise),
    (DiscreteGaussian, _gaussian),
)
