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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.query.span.elimination import Elimination, Made


class Limits(NamedTuple):
    """How many relations, and rows in them, are looked at."""

    relations: int
    rows: int


SCALAR = Limits(96, 768)
VECTOR = Limits(384, 1536)
_BITS = 48  # after the point, of c
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
    rows = list(
        dict.fromkeys(row for one in (*(start.numerators for start in starts), *relations) for row in one)
    )
    places = {row: place for place, row in enumerate(rows)}
    roots = np.sqrt([variances[row] for row in rows])
    z = _matrix(relations, places) * roots[:, None]
    lengths = np.linalg.norm(z, axis=0)
    z /= lengths
    targets = _matrix([one.numerators for one in starts], places) / [float(one.denominator) for one in starts]
    found = _coefficients(z, targets * roots[:, None]) / lengths[:, None]
    return [_moved(start, relations, found[:, place].tolist()) for place, start in enumerate(starts)]


def _matrix(given: Sequence[Mapping[int, int]], places: Mapping[int, int]) -> NDArray[np.float64]:
    matrix = np.zeros((len(places), len(given)))
    for column, one in enumerate(given):
        matrix[[places[row] for row in one], column] = [float(value) for value in one.values()]
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


def _moved(start: Weights, relations: Sequence[Mapping[int, int]], by: Sequence[float]) -> Weights:
    """The start less so much of each relation, exactly."""
    total = {row: value << _BITS for row, value in start.numerators.items()}
    for relation, factor in zip(relations, by, strict=True):
        times = round(math.ldexp(factor, _BITS)) * start.denominator if math.isfinite(factor) else 0
        if times:
            for row, value in relation.items():
                total[row] = total.get(row, 0) - times * value
    found = {row: value for row, value in total.items() if value}
    common = math.gcd(*found.values(), start.denominator << _BITS)
    numerators = {row: value // common for row, value in found.items()}
    return Weights(numerators, (start.denominator << _BITS) // common)
