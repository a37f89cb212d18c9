"""The weights of least variance, from any exact ones: floats look for them, whole numbers hold.

If sum of w_k row_k = form, so does w - sum of c_l z_l for any relations z_l (`elimination`), whatever the
numbers c. The c of least variance solve a small least-squares problem; they are found in floats, rounded to
binary fractions and put in exactly. So a float that is off costs a little variance, of second order, and no
truth: the identity holds for every c, and the variance that is said is that of the weights that are used.

Only relations near the weights are looked at, and so many at most. Where that bound is met, two more kinds
are among them: to the question's own purchase, and to what was known of it when it was asked before. So what
an estimate is worth does not fall as more is bought, as long as that is kept.

Reference: docs/mathematics.md 7.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
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
VECTOR = Limits(384, 1536)
_BITS = 40  # after the point, of what c makes of a weight
_FITS = 2.0**62  # sums of whole numbers of 64 bits, with room for the roundings of c
_REFINEMENTS = 3
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
    numbers = rows.tolist()
    return [_moved(start, exact, numbers, found[:, place]) for place, start in enumerate(starts)]


def _matrix(relations: Sequence[Relation], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Relations as columns: of 64 bits where all fit, of Python's whole numbers else."""
    values = np.concatenate([one.values for one in relations])
    columns = np.repeat(np.arange(len(relations)), [one.rows.size for one in relations])
    matrix = np.zeros((rows.size, len(relations)), dtype=values.dtype)
    matrix[np.searchsorted(rows, np.concatenate([one.rows for one in relations])), columns] = values
    return matrix


def _coefficients(z: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
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
    for _ in range(_REFINEMENTS):
        found += inverse.T @ (inverse @ (z.T @ (target - z @ found)))
    return found


def _of_many(z: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same where relations are combinations of each other, or nearly: any best c will do."""
    return np.asarray(np.linalg.lstsq(z, target, rcond=None)[0])


def _moved(start: Weights, relations: NDArray[Any], rows: list[int], by: NDArray[np.float64]) -> Weights:
    """The start less so much of each relation, exactly."""
    by = np.where(np.isfinite(by), by, 0.0)
    reach = float((np.abs(relations).astype(float) @ np.abs(by)).max())
    bits = _BITS + int(np.abs(relations).max()).bit_length()  # relations of large numbers have a small c
    if relations.dtype == np.int64 and math.ldexp(reach, bits) < _FITS:
        taken = (relations @ np.rint(np.ldexp(by, bits)).astype(np.int64)).tolist()
    else:
        times = [round(Fraction(one) * (1 << bits)) for one in by.tolist()]
        taken = (relations.astype(object) @ np.array(times, dtype=object)).tolist()
    numerators, denominator = start.numerators, start.denominator
    total = [
        (row, (numerators.get(row, 0) << bits) - denominator * less)
        for row, less in zip(rows, taken, strict=True)
    ]
    found = {row: value for row, value in total if value}
    common = math.gcd(denominator << bits, *found.values())
    return Weights({row: one // common for row, one in found.items()}, (denominator << bits) // common)
