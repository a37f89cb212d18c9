"""The weights of least variance, from any exact ones: floats look for them, whole numbers hold.

If sum of w_k row_k = form, so does w - sum of c_l z_l for any relations z_l (`elimination`), whatever the
numbers c. The c of least variance solve a small least-squares problem; they are found in floats, rounded to
binary fractions and put in exactly. So a float that is off costs a little variance, of second order, and no
truth: the identity holds for every c, and the variance that is said is that of the weights that are used.

Only relations near the weights are looked at, and so many at most. Two more are always among them where that
bound was met: to the question's own purchase, and to the weights that were found last time. So what an
estimate is worth never falls as more is bought.

Reference: docs/mathematics.md 7.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.query.span.elimination import Elimination, Made


class Limits(NamedTuple):
    """How many relations, and rows in them, are looked at."""

    relations: int
    rows: int


SCALAR = Limits(64, 512)
VECTOR = Limits(384, 1536)
_BITS = 40  # after the point, of c
_SMALL = 1 << 20  # whole numbers, and sums of them times c, that leave room for these bits
_REFINEMENTS = 3


def nearby(
    among: Elimination, starts: Iterable[Iterable[int]], limits: Limits
) -> tuple[list[Mapping[int, int]], bool]:
    """Relations that share a row with the weights, or with one that does; whether there are more."""
    rows = list(dict.fromkeys(row for start in starts for row in start))
    known = set(rows)
    found: dict[int, None] = {}
    for row in rows:  # which grows
        for place in among.touching.get(row, ()):
            if place in found:
                continue
            relation = among.relations[place]
            fresh = [one for one in relation if one not in known]
            if len(found) == limits.relations or len(known) + len(fresh) > limits.rows:
                return [among.relations[one] for one in found], True
            found[place] = None
            known.update(fresh)
            rows.extend(fresh)
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
    starts: Sequence[Weights], relations: Sequence[Mapping[int, int]], variances: Sequence[float]
) -> list[Weights]:
    """For each start, exact weights of the same form with the least variance that the relations reach.

    Args:
        starts: exact weights, by row.
        relations: combinations of rows that are zero.
        variances: of the rows' noise.
    """
    if not relations:
        return list(starts)
    every: dict[int, None] = {}
    for one in (*(start.numerators for start in starts), *relations):
        every.update(dict.fromkeys(one))
    rows = list(every)
    places = {row: place for place, row in enumerate(rows)}
    roots = np.sqrt([variances[row] for row in rows])
    exact = _matrix(relations, places)
    z = exact.astype(float) * roots[:, None]
    lengths = np.linalg.norm(z, axis=0)
    z /= lengths
    targets = np.zeros((len(rows), len(starts)))
    for column, start in enumerate(starts):
        for row, value in start.numerators.items():
            targets[places[row], column] = value / start.denominator
    found = _coefficients(z, targets * roots[:, None]) / lengths[:, None]
    return [_moved(start, exact, rows, found[:, place]) for place, start in enumerate(starts)]


def _matrix(relations: Sequence[Mapping[int, int]], places: Mapping[int, int]) -> NDArray[Any]:
    """Relations as columns: of 64 bits where they fit, of Python's whole numbers else."""
    largest = max(max(map(abs, one.values())) for one in relations)
    matrix = np.zeros((len(places), len(relations)), dtype=np.int64 if largest < _SMALL else object)
    for column, one in enumerate(relations):
        matrix[[places[row] for row in one], column] = list(one.values())
    return matrix


def _coefficients(z: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """The c that makes target - z c least, with the rounding of the normal equations refined away."""
    normal = z.T @ z
    try:
        root = np.linalg.cholesky(normal)
    except np.linalg.LinAlgError:  # relations that are nearly the same: any best c will do
        return np.asarray(np.linalg.lstsq(z, target, rcond=None)[0])
    inverse = np.linalg.inv(root)
    found = np.zeros((z.shape[1], target.shape[1]))
    for _ in range(_REFINEMENTS):
        found += inverse.T @ (inverse @ (z.T @ (target - z @ found)))
    return found


def _moved(start: Weights, relations: NDArray[Any], rows: list[int], by: NDArray[np.float64]) -> Weights:
    """The start less so much of each relation, exactly."""
    by = np.where(np.isfinite(by), by, 0.0)
    reach = float((np.abs(relations).astype(float) @ np.abs(by)).max())
    if relations.dtype == np.int64 and reach < _SMALL:  # every sum below is far from 2^63
        taken = (relations @ np.rint(np.ldexp(by, _BITS)).astype(np.int64)).tolist()
    else:
        times = [round(math.ldexp(one, _BITS)) for one in by.tolist()]
        taken = (relations.astype(object) @ np.array(times, dtype=object)).tolist()
    numerators, denominator = start.numerators, start.denominator
    total = [
        (row, (numerators.get(row, 0) << _BITS) - denominator * less)
        for row, less in zip(rows, taken, strict=True)
    ]
    found = {row: value for row, value in total if value}
    common = math.gcd(denominator << _BITS, *found.values())
    return Weights({row: one // common for row, one in found.items()}, (denominator << _BITS) // common)
