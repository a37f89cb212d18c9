"""A bound on the variance of reports of a tailored channel, read off the reports themselves, with a proof.

A tailored channel has little variance where values were expected and more elsewhere. Its worst case says
nothing about the reports at hand: an interval that rests on it is wider than that of a channel made for no
values at all. A witness is a function g of one report with E[g(Y) | x] >= Var[Y | x] for every input x. The
mean of g over the reports, plus what it may be below its expectation, bounds the average variance of the
reports, whatever the values are.

g is a polynomial of degree two, g(y) = a + b y + c y^2, so that E[g | x] = a + b x + c E[Y^2 | x]: the one of
least expectation at the knots, weighted by where the channel has little variance. All of it is public.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.tailored import Tailored

_ROUNDING = 1e-9  # relative: the sampler's rows differ from the table's in their last digits
_SINGULAR = 1e-9


@dataclass(frozen=True)
class VarianceWitness:
    """A function of one report whose expectation is at least the variance of the report.

    Attributes:
        values: The function at each symbol of the channel, in squares of the bounds' unit.
        variance: Largest variance of the function over all inputs.
        expected: Expectation of the function where the channel was made for.
    """

    values: Floats
    variance: float
    expected: float

    @property
    def reach(self) -> float:
        """Return how far the function can be from its expectation."""
        return float(np.ptp(self.values))


@lru_cache(maxsize=128)  # channels are compared by identity and never change
def find_witness(channel: Tailored, *, of_population: bool) -> VarianceWitness:
    """Return the witness of a channel.

    Args:
        channel: The channel that made the reports.
        of_population: True if values count as a sample, whose spread is part of the variance. Then g(y) = (y
            - m)^2 with m in the middle of the values that the channel was made for.
    """
    knots, outputs = channel.knots, channel.unit_outputs
    rows = channel.probabilities_at_knots
    second = rows @ outputs**2
    variances = second - knots**2
    weights = 1.0 / variances**2
    weights /= weights.sum()
    if of_population:
        middle = float(weights @ knots)
        unit_values = (outputs - middle) ** 2
        needed = second - 2.0 * middle * knots + middle**2
    else:
        needed = variances + _between_knots(knots)
        a, b, c = _least_polynomial(knots, second, needed, weights)
        unit_values = a + b * outputs + c * outputs**2
    needed = needed * (1.0 + _ROUNDING)
    unit_values = unit_values + max(0.0, float((needed - rows @ unit_values).max()))
    scale = channel.half_width**2
    return VarianceWitness(
        values=unit_values * scale,
        variance=_largest_variance(rows, unit_values) * scale**2,
        expected=float(weights @ (rows @ unit_values)) * scale,
    )


def _between_knots(knots: Floats) -> Floats:
    """Return what the variance between two knots exceeds the line between theirs by, at most, at each knot.

    An input x in [a, b] is rounded to a or b at random, which adds (x - a)(b - x) <= (b - a)^2 / 4.
    """
    added = np.diff(knots) ** 2 / 4.0
    return np.asarray(np.maximum(np.append(added, 0.0), np.append(0.0, added)))


def _least_polynomial(knots: Floats, second: Floats, needed: Floats, weights: Floats) -> Floats:
    """Return (a, b, c) of least weighted expectation with a + b x + c E[Y^2 | x] >= needed at every knot.

    A linear program of three variables: its best vertex has three knots where equality holds.
    """
    moments = np.stack([np.ones_like(knots), knots, second], axis=1)
    corners = np.array(list(combinations(range(knots.size), 3)))
    systems = moments[corners]
    corners = corners[np.abs(np.linalg.det(systems)) > _SINGULAR]
    found = np.linalg.solve(moments[corners], needed[corners][..., None])[..., 0]
    holds = (found @ moments.T >= needed * (1.0 - _ROUNDING)).all(axis=1)
    found = np.vstack([found[holds], [needed.max(), 0.0, 0.0]])
    return np.asarray(found[np.argmin(found @ (weights @ moments))])


def _largest_variance(rows: Floats, values: Floats) -> float:
    """Return the largest variance of a function of the report; between knots both moments are linear."""
    first, second = rows @ values, rows @ values**2
    rise, slope = np.diff(second), np.diff(first)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.where(slope != 0.0, (rise - 2.0 * first[:-1] * slope) / (2.0 * slope**2), 0.0)
    at = np.clip(np.nan_to_num(at), 0.0, 1.0)
    inside = second[:-1] + rise * at - (first[:-1] + slope * at) ** 2
    return float(max(inside.max(), (second - first**2).max()))
