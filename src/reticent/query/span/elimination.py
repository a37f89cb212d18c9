"""Which forms are combinations of which others: exact elimination, kept between questions.

Rows come one by one. What is left of a row after its first unknowns were eliminated is either a new row of
the echelon form, with a first unknown of its own, or nothing: then the row is a combination of earlier ones,
and how it is one is kept as a *relation*, whole numbers z with sum of z_k row_k = 0. Every row of the echelon
form knows of which rows it is made. All of it is exact; there is no tolerance by which something could be
called zero.

Work is bounded: where a row would take too many steps, it is left out, or a form is not found in the span.
That costs money and no truth, since whatever is found is checked by what it is: an identity.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reticent.query.span.forms import Unknown

Number: TypeAlias = int | Fraction
Made: TypeAlias = dict[int, Number]
"""A combination of rows: their coefficients by number."""

_SMALL = 1 << 20  # whole numbers that leave room in 64 bits
MOST_STEPS = 20_000  # additions in eliminating one form
_Echelon: TypeAlias = dict[Unknown, tuple[dict[Unknown, Number], Made]]


class Relation(NamedTuple):
    """Whole numbers with sum of value * row = 0; of 64 bits where they are small, Python's own else."""

    rows: NDArray[np.int64]
    values: NDArray[Any]

    @classmethod
    def of(cls, values: Mapping[int, int]) -> Relation:
        """From the values by row."""
        kind = np.int64 if max(map(abs, values.values())) < _SMALL else object
        return cls(np.array(list(values), dtype=np.int64), np.array(list(values.values()), dtype=kind))


class Elimination:
    """Rows in echelon form, and the relations among them."""

    def __init__(self, most_steps: int = MOST_STEPS) -> None:
        self._most_steps = most_steps
        self.steps = 0  # additions that rows took which were added
        self._echelon: _Echelon = {}
        self.relations: list[Relation] = []
        self.touching: dict[int, tuple[int, ...]] = {}  # places of the relations of each row

    def copied(self) -> Elimination:
        """Return another with the same rows, to which more may be added; the rows themselves are shared."""
        other = Elimination(self._most_steps)
        other.steps = self.steps
        other._echelon = dict(self._echelon)
        other.relations = list(self.relations)
        other.touching = dict(self.touching)
        return other

    def add(self, number: int, terms: Mapping[Unknown, int], most_steps: int = MOST_STEPS) -> bool:
        """Take a row in under a number; return False if that takes too many steps, and leave it out.

        Args:
            number: Number of the row.
            terms: Coefficients of the row by unknown.
            most_steps: Additions that it may take; never more than any form may.
        """
        room = min(most_steps, self._most_steps)
        rest, made, left = self._reduced(terms, {}, room)
        self.steps += room - max(0, left)
        if left < 0:
            return False
        made = {row: -value for row, value in made.items()}
        made[number] = 1
        if rest:
            self._echelon[min(rest)] = _leading_one(rest, made)
        else:
            self._relate(made)
        return True

    def combination(self, terms: Mapping[Unknown, int]) -> Made | None:
        """Rows whose sum is the form, exactly; None if it is outside of their span, or takes too long."""
        rest, made, left = self._reduced(terms, {}, self._most_steps)
        return None if left < 0 or rest else made

    def combinations(self, forms: list[Mapping[Unknown, int]]) -> list[tuple[Made, Made]]:
        """A basis of the combinations of forms that are combinations of rows.

        Returns:
            Pairs: coefficients of forms, by their place, and of rows, with equal sums.
        """
        beside: _Echelon = {}
        found = []
        for place, terms in enumerate(forms):
            rest, made, left = self._reduced(terms, beside, self._most_steps)
            if left < 0:
                continue
            own = {row: -value for row, value in made.items()}
            own[-1 - place] = 1
            if rest:
                beside[min(rest)] = _leading_one(rest, own)
            else:
                of_forms = {-1 - row: value for row, value in own.items() if row < 0}
                found.append((of_forms, {row: -value for row, value in own.items() if row >= 0}))
        return found

    def _relate(self, made: Made) -> None:
        whole = math.lcm(*(Fraction(value).denominator for value in made.values()))
        place = len(self.relations)
        self.relations.append(Relation.of({row: int(value * whole) for row, value in made.items()}))
        for row in made:
            self.touching[row] = (*self.touching.get(row, ()), place)

    def _reduced(
        self, terms: Mapping[Unknown, int], beside: _Echelon, room: int
    ) -> tuple[dict[Unknown, Number], Made, int]:
        """Return what is left of a form, the rows taken off, and how many steps are left of the room.

        What is left begins with the first unknown that no row begins with. If less than no step is left, the
        work was cut short, and the rest says nothing.
        """
        rest: dict[Unknown, Number] = dict(terms)
        made: Made = {}
        order = list(rest)
        heapq.heapify(order)
        while order:
            first = heapq.heappop(order)
            factor = rest.get(first)
            if factor is None:  # taken off since
                continue
            taken = self._echelon.get(first) or beside.get(first)
            if taken is None:
                break
            row, rows = taken
            room -= len(row) + len(rows)
            if room < 0:
                break
            for unknown, value in row.items():
                before = rest.get(unknown)
                if before is None:
                    rest[unknown] = _plain(-factor * value)
                    heapq.heappush(order, unknown)
                elif after := _plain(before - factor * value):
                    rest[unknown] = after
                else:
                    del rest[unknown]
            for number, value in rows.items():
                if after := _plain(made.get(number, 0) + factor * value):
                    made[number] = after
                else:
                    del made[number]
        return rest, made, room


def _leading_one(rest: dict[Unknown, Number], made: Made) -> tuple[dict[Unknown, Number], Made]:
    """A row and what it is made of, divided by the coefficient of its first unknown."""
    lead = rest[min(rest)]
    if lead == 1:
        return rest, made
    if lead == -1:  # as nearly always, and far faster than a division
        return (
            {unknown: -value for unknown, value in rest.items()},
            {row: -value for row, value in made.items()},
        )
    return (
        {unknown: _plain(Fraction(value) / lead) for unknown, value in rest.items()},
        {row: _plain(Fraction(value) / lead) for row, value in made.items()},
    )


def _plain(value: Number) -> Number:
    return value if type(value) is int or value.denominator != 1 else value.numerator
