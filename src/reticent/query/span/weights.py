"""Exact weights of recorded values, and what they make: an estimate, its variance, and what it is worth.

The noise of coordinate k of a purchase with sensitivity D_k and i_k recorded units has variance D_k^2 / i_k,
times 10^12 as all amounts are in units; the coordinates' noises are independent. If sum of w_k form_k = form
exactly, the same sum of recorded values estimates the form without bias, with variance sum w_k^2 D_k^2 / i_k:
as good as information b = D^2 / variance recorded under the question itself, D its sensitivity. Sums of
fractions with as many denominators as purchases are cut to a fixed number of binary digits, in a direction
that is said; whoever checks a certificate gets the same digits.

Reference: docs/mathematics.md 13.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from reticent.privacy.budget import MAX_UNITS, UNITS_PER_ONE
from reticent.query.span.forms import Form, Unknown

_BITS = 200  # after the point, of 1 / b: b is below 2^64
_VALUE_BITS = 40  # after the point, of an estimate in grid units
_SAME = 1 << 50  # b below a whole unit by this part of it, or less, is that unit


@dataclass(frozen=True)
class Row:
    """One coordinate of a purchase, recorded.

    Attributes:
        key: the purchase's question.
        coordinate: its place in the vector.
        form: what is measured.
        sensitivity: D, in grid units.
        information: i, units recorded.
        total: the sum of information * value over the recorded measurements.
    """

    key: str
    coordinate: int
    form: Form
    sensitivity: int
    information: int
    total: int

    @cached_property
    def variance(self) -> Fraction:
        """Of its noise in units of the form, times the information of one unit."""
        return (self.sensitivity / self.form.scale) ** 2 / self.information


@dataclass(frozen=True)
class Estimate:
    """One coordinate of a question, from recorded values.

    Attributes:
        form: what is estimated.
        sensitivity: D of the question, in grid units.
        weights: of the rows, none zero.
    """

    form: Form
    sensitivity: int
    weights: tuple[tuple[Row, Fraction], ...]

    @cached_property
    def inverse(self) -> Fraction:
        """1 / b, rounded up."""
        unit = (self.sensitivity / self.form.scale) ** 2
        digits = 0
        for row, weight in self.weights:
            part = weight * weight * row.variance / unit
            digits -= (-part.numerator << _BITS) // part.denominator
        return Fraction(digits, 1 << _BITS)

    @cached_property
    def information(self) -> int:
        """What it is worth: b, in whole units, rounded down.

        Departure: b within 2^-50 of itself below a whole unit counts as that unit. Weights are binary
            fractions near the best, so b would else fall short of what was bought by less than anybody can
            measure, and the next who asks the same would pay the least that a measurement costs.
        """
        if not self.inverse:  # public numbers make it
            return MAX_UNITS
        exact = 1 / self.inverse
        return min(MAX_UNITS, math.floor(exact + exact / _SAME))

    @cached_property
    def value(self) -> Fraction:
        """The estimate in the question's grid units, to the nearest 2^-40."""
        scale = self.form.scale
        digits = _digits(scale * self.form.constant)
        for row, weight in self.weights:
            recorded = Fraction(row.total, row.information) / row.form.scale - row.form.constant
            digits += _digits(scale * weight * recorded)
        return Fraction(digits, 1 << _VALUE_BITS)

    @property
    def variance(self) -> float:
        """Of the estimate, in squared grid units."""
        return float(self.inverse * self.sensitivity**2 * UNITS_PER_ONE)

    def covariance(self, other: Estimate) -> float:
        """With the estimate of another form, in the product of their grid units."""
        theirs = {(row.key, row.coordinate): weight for row, weight in other.weights}
        total = math.fsum(
            float(weight * theirs[row.key, row.coordinate] * row.variance)
            for row, weight in self.weights
            if (row.key, row.coordinate) in theirs
        )
        return total * float(self.form.scale * other.form.scale * UNITS_PER_ONE)

    @property
    def keys(self) -> tuple[str, ...]:
        """The purchases that it is made of."""
        return tuple(dict.fromkeys(row.key for row, _ in self.weights))

    def holds(self) -> bool:
        """Whether the weighted sum of the rows' forms is the form, exactly."""
        return combined((row.form.terms, weight) for row, weight in self.weights) == dict(self.form.terms)


def combined(given: Iterable[tuple[Mapping[Unknown, int], Fraction]]) -> dict[Unknown, Fraction]:
    """A sum of weighted forms, without what cancels."""
    total: dict[Unknown, Fraction] = {}
    for terms, weight in given:
        for unknown, value in terms.items():
            total[unknown] = total.get(unknown, Fraction(0)) + weight * value
    return {unknown: value for unknown, value in total.items() if value}


def _digits(exact: Fraction) -> int:
    return round(exact * (1 << _VALUE_BITS))
