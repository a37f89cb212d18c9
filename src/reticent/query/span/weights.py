"""Exact weights of recorded values, and what they make: an estimate, its variance, and what it is worth.

The noise of coordinate k of a purchase with sensitivity D_k and i_k recorded units has variance D_k^2 / i_k,
times 10^12 as all amounts are in units; the coordinates' noises are independent. If sum of w_k form_k = form
exactly, the same sum of recorded values estimates the form without bias, with variance sum w_k^2 D_k^2 / i_k:
as good as information b = D^2 / variance recorded under the question itself, D its sensitivity. Sums of
fractions with as many denominators as purchases are cut to a fixed number of binary digits, in a direction
that is said; whoever checks a certificate gets the same digits.

Reference: docs/mathematics.md 7.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from reticent.privacy.budget import MAX_UNITS, UNITS_PER_ONE
from reticent.query.span.forms import Form, Unknown

_BITS = 128  # after the point, of 1 / b: b is below 2^62
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

    @cached_property
    def value(self) -> Fraction:
        """What is recorded of the form's unknowns."""
        return self.total / (self.information * self.form.scale) - self.form.constant


@dataclass(frozen=True)
class Estimate:
    """One coordinate of a question, from recorded values.

    Attributes:
        form: what is estimated.
        sensitivity: D of the question, in grid units.
        rows: what it is made of.
        numerators: of the rows' weights; none is zero.
        denominator: of all weights.
    """

    form: Form
    sensitivity: int
    rows: tuple[Row, ...]
    numerators: tuple[int, ...]
    denominator: int

    @property
    def weights(self) -> list[Fraction]:
        """Of the rows."""
        return [Fraction(one, self.denominator) for one in self.numerators]

    @cached_property
    def inverse(self) -> Fraction:
        """1 / b, rounded up."""
        unit = (self.sensitivity / self.form.scale) ** 2 * self.denominator**2
        digits = 0
        for row, weight in zip(self.rows, self.numerators, strict=True):
            part = row.variance
            top = -weight * weight * part.numerator * unit.denominator << _BITS
            digits -= top // (part.denominator * unit.numerator)
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
        scale = self.form.scale / self.denominator
        digits = _digits(self.form.scale.numerator * self.form.constant, self.form.scale.denominator)
        for row, weight in zip(self.rows, self.numerators, strict=True):
            part = row.value
            digits += _digits(weight * part.numerator * scale.numerator, part.denominator * scale.denominator)
        return Fraction(digits, 1 << _VALUE_BITS)

    @property
    def variance(self) -> float:
        """Of the estimate, in squared grid units."""
        return float(self.inverse * self.sensitivity**2 * UNITS_PER_ONE)

    def covariance(self, other: Estimate) -> float:
        """With the estimate of another form, in the product of their grid units."""
        listed = zip(other.rows, other.numerators, strict=True)
        theirs = {(row.key, row.coordinate): weight for row, weight in listed}
        found = [
            (weight * theirs[row.key, row.coordinate], row.variance)
            for row, weight in zip(self.rows, self.numerators, strict=True)
            if (row.key, row.coordinate) in theirs
        ]
        both = self.denominator * other.denominator
        total = math.fsum(weight / both * (part.numerator / part.denominator) for weight, part in found)
        return total * float(self.form.scale * other.form.scale * UNITS_PER_ONE)

    @property
    def keys(self) -> tuple[str, ...]:
        """The purchases that it is made of."""
        return tuple(dict.fromkeys(row.key for row in self.rows))

    def holds(self) -> bool:
        """Whether the weighted sum of the rows' forms is the form, exactly."""
        total: dict[Unknown, int] = {}
        for row, weight in zip(self.rows, self.numerators, strict=True):
            for unknown, value in row.form.terms.items():
                total[unknown] = total.get(unknown, 0) + weight * value
        made = {unknown: value for unknown, value in total.items() if value}
        return made == {unknown: value * self.denominator for unknown, value in self.form.terms.items()}


def _digits(top: int, bottom: int) -> int:
    """A quotient in units of 2^-40, to the nearest, halves up."""
    return ((top << _VALUE_BITS + 1) + bottom) // (2 * bottom)
