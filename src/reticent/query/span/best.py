"""The weights of least variance, from any exact ones: floats look for them, whole numbers hold.

If sum of w_k row_k = form, so does w - sum of c_l z_l for any relations z_l (`elimination`), whatever the
numbers c. The c of least variance solve a small least-squares problem; they are found in floats, rounded to
binary fractions and put in exactly. So a float that is off costs a little variance, of second order, and no
truth: the identity holds for every c, and the variance that is said is that of the weights that are used.

Only relations near the weights are looked at, and so many at most; of more, those that take most off the
variance. Where that bound is met, two more kinds are among them: to the question's own purchase, and to what
was known of it when it was asked before. So what an estimate is worth does not fall as more is bought, as
long as that is kept.

Reference: docs/mathematics.md 7.2.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.query.span.elimination import Elimination, Made, Relation


class Limits(NamedTuple):
    """How many relations, and rows in them, are looked at."""

    relations: int
    rows: int


SCALAR = Limits(64, 512)
CHOSEN = Limits(32, 320)  # for a number that more than so many are about
VECTOR = Limits(384, 1536)
_BITS = 40  # after the point, of what c makes of a weight
_FITS = 2.0**62  # sums of whole numbers of 64 bits, with room for the roundings of c
_PART_BITS = 21
_PART = (1 << _PART_BITS) - 1
_MOST_SUMMED = 1 << 11  # products of a part and a small whole number whose sum a float holds exactly
_REFINEMENTS = 3
_ROUNDS = 2  # of choosing relations
_NOISIEST = 32  # rows whose relations are looked at
_CANDIDATES = 128
_NEARLY = 1e-5  # a diagonal of the root of the normal equations below which they say too little


def nearby(
    among: Elimination, starts: Iterable[Iterable[int]], limits: Limits
) -> tuple[list[Relation], bool]:
    """Relations that share a row with the weights, or with one that does; whether there are more."""
    rows = list(dict.fromkeys(row for start in starts for row in start))
    known = set(rows)
    found: dict[int, None] = {}
    for row in rows:  # which grows
        for place in among.touching.get(row, ()):
            if place in found:
                continue
            fresh = set(among.relations[place].rows.tolist()) - known
            if len(found) == limits.relations or len(known) + len(fresh) > limits.rows:
                return [among.relations[one] for one in found], True
            found[place] = None
            known |= fresh
            rows.extend(sorted(fresh))
    return [among.relations[one] for one in found], False


class Weights(NamedTuple):
    """Exact weights of rows: whole numbers over a common denominator."""

    numerators: dict[int, int]
    denominator: int


def whole(made: Made) -> Weights:
    """The same with a common denominator."""
    denominator = math.lcm(*(value.denominator for value in made.values()))
    return Weights({row: int(value * denominator) for row, value in made.items()}, denominator)


def promising(
    among: Elimination, start: Weights, variances: NDArray[np.float64], limits: Limits
) -> list[Relation]:
    """The relations that take most off the variance, where there are more than may be looked at.

    In rounds, as matching pursuit does: those with the largest gain by themselves, (z'Kw)^2 / z'Kz, then the
    weights that all chosen ones together make of the start, then those with the largest gain beside them.
    """
    places = np.fromiter(start.numerators, np.int64, len(start.numerators))
    roots = np.sqrt(variances)
    first = np.zeros(variances.size)
    first[places] = [value / start.denominator for value in start.numerators.values()]
    first *= roots
    now, known, found = first, set(places.tolist()), dict[int, None]()
    for _ in range(_ROUNDS):
        more = _touching(among, np.argsort(-np.abs(now))[:_NOISIEST].tolist(), found)
        if not more:
            break
        gains = _gains([among.relations[place] for place in more], now, roots)
        for at in np.argsort(-gains)[: limits.relations // _ROUNDS].tolist():
            rows = known.union(among.relations[more[at]].rows.tolist())
            if len(rows) <= limits.rows:
                known, found[more[at]] = rows, None
        if not found:
            break
        rows_now = np.array(sorted(known), dtype=np.int64)
        z = _matrix([among.relations[place] for place in found], rows_now).astype(float)
        z *= roots[rows_now, None]
        z /= np.linalg.norm(z, axis=0)
        now = np.zeros(variances.size)
        now[rows_now] = first[rows_now] - z @ _coefficients(z, first[rows_now, None], 1)[:, 0]
    return [among.relations[place] for place in found]


def _touching(among: Elimination, rows: Iterable[int], found: Container[int]) -> list[int]:
    """Relations of some rows that are not found yet, so many at most."""
    listed: dict[int, None] = {}
    for row in rows:
        listed.update(dict.fromkeys(among.touching.get(row, ())))
        if len(listed) > _CANDIDATES:
            break
    return [place for place in listed if place not in found][:_CANDIDATES]


def _gains(
    relations: Sequence[Relation], weights: NDArray[np.float64], roots: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What each relation by itself takes off the variance."""
    rows = np.concatenate([one.rows for one in relations])
    z = np.concatenate([one.values for one in relations]).astype(float) * roots[rows]
    starts = np.cumsum([0, *(one.rows.size for one in relations[:-1])])
    gains: NDArray[np.float64] = np.add.reduceat(z * weights[rows], starts) ** 2
    gains /= np.add.reduceat(z * z, starts)
    return gains


def improved(
    starts: Sequence[Weights], relations: Sequence[Relation], variances: NDArray[np.float64]
) -> list[Weights]:
    """For each start, exact weights of the same form with the least variance that the relations reach.

    Args:
        starts: exact weights, by row.
        relations: combinations of rows that are zero.
        variances: of the rows' noise, by row.
    """
    if not relations:
        return list(starts)
    given = [np.fromiter(one.numerators, np.int64, len(one.numerators)) for one in starts]
    rows = np.unique(np.concatenate([*given, *(one.rows for one in relations)]))
    roots = np.sqrt(variances[rows])
    exact = _matrix(relations, rows)
    z = exact.astype(float) * roots[:, None]
    lengths = np.linalg.norm(z, axis=0)
    z /= lengths
    targets = np.zeros((rows.size, len(starts)))
    for column, (places, start) in enumerate(zip(given, starts, strict=True)):
        weights = [value / start.denominator for value in start.numerators.values()]
        targets[np.searchsorted(rows, places), column] = weights
    found = _coefficients(z, targets * roots[:, None]) / lengths[:, None]
    return _moved(starts, exact, rows.tolist(), found)


def _matrix(relations: Sequence[Relation], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Relations as columns: of 64 bits where all fit, of Python's whole numbers else."""
    values = np.concatenate([one.values for one in relations])
    columns = np.repeat(np.arange(len(relations)), [one.rows.size for one in relations])
    matrix = np.zeros((rows.size, len(relations)), dtype=values.dtype)
    matrix[np.searchsorted(rows, np.concatenate([one.rows for one in relations])), columns] = values
    return matrix


def _coefficients(
    z: NDArray[np.float64], target: NDArray[np.float64], times: int = _REFINEMENTS
) -> NDArray[np.float64]:
    """The c that makes target - z c least, with the rounding of the normal equations refined away."""
    normal = z.T @ z
    try:
        root = np.linalg.cholesky(normal)
    except np.linalg.LinAlgError:
        return _of_many(z, target)
    if root.diagonal().min() < _NEARLY:
        return _of_many(z, target)
    inverse = np.linalg.inv(root)
    found = np.zeros((z.shape[1], target.shape[1]))
    for _ in range(times):
        found += inverse.T @ (inverse @ (z.T @ (target - z @ found)))
    return found


def _of_many(z: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same where relations are combinations of each other, or nearly: any best c will do."""
    return np.asarray(np.linalg.lstsq(z, target, rcond=None)[0])


def _moved(
    starts: Sequence[Weights], relations: NDArray[Any], rows: list[int], by: NDArray[np.float64]
) -> list[Weights]:
    """Return each start less so much of each relation, exactly.

    Args:
        starts: Weights by row.
        relations: Relations as columns, over the rows.
        rows: Number of each row.
        by: How much of each relation is taken off each start, a column for each start.
    """
    by = np.where(np.isfinite(by), by, 0.0)
    sizes = np.abs(relations)
    reach = (sizes.astype(float) @ np.abs(by)).max(axis=0)
    bits = _BITS + int(sizes.max()).bit_length()  # relations of large numbers have a small c
    fits = (np.ldexp(reach, bits) < _FITS) & (relations.dtype == np.int64)
    taken: list[list[int]] = [[]] * len(starts)
    if fits.any():
        quick = _exact_product(relations, np.rint(np.ldexp(by[:, fits], bits)).astype(np.int64))
        for place, column in zip(np.flatnonzero(fits).tolist(), quick.T.tolist(), strict=True):
            taken[place] = column
    if not fits.all():
        large = relations.astype(object)
        for place in np.flatnonzero(~fits).tolist():
            times = [round(Fraction(one) * (1 << bits)) for one in by[:, place].tolist()]
            taken[place] = (large @ np.array(times, dtype=object)).tolist()
    return [_less(start, rows, less, bits) for start, less in zip(starts, taken, strict=True)]


def _exact_product(relations: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the product of two matrices of whole numbers, exactly, where it is below 2^63.

    Floats multiply matrices many times faster. Parts of 21 bits times numbers below 2^20, and so many of them
    as there are relations, make sums below 2^53, which floats hold exactly.
    """
    if relations.shape[1] > _MOST_SUMMED:
        return relations @ times
    floats = relations.astype(float)
    parts = (times & _PART, (times >> _PART_BITS) & _PART, times >> (2 * _PART_BITS))
    low, middle, high = ((floats @ part.astype(float)).astype(np.int64) for part in parts)
    product: NDArray[np.int64] = low + (middle << _PART_BITS) + (high << (2 * _PART_BITS))
    return product


def _less(start: Weights, rows: list[int], less: list[int], bits: int) -> Weights:
    """Return a start less whole numbers of 2^-bits of each row, in lowest terms."""
    numerators, denominator = start.numerators, start.denominator
    total = [
        (row, (numerators.get(row, 0) << bits) - denominator * taken)
        for row, taken in zip(rows, less, strict=True)
    ]
    found = {row: value for row, value in total if value}
    common = math.gcd(denominator << bits, *found.values())
    return Weights({row: one // common for row, one in found.items()}, (denominator << bits) // common)
