"""What all recorded purchases about one declaration say together about any question.

A question whose coordinates are combinations of recorded ones can be answered from them, without bias and
with a known variance; the best such answer is generalised least squares over all purchases. What it is worth,
in units of the question, need not be bought again: the charge for t units is max(0, t - b). It is never more
than the rule of the question's own key charges, since what is recorded under the key is among the purchases.

Only what is recorded counts: what is paid and not recorded may come out as anything, or never come. Purchases
of another version of the data, another declaration or another account are refused, not mixed.

Privacy: nothing here touches data. Everything is arithmetic on released numbers and public ones.
Reference: docs/mathematics.md 13.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from reticent.errors import ParameterError
from reticent.ledger import Reading
from reticent.query.declarations.datasets import DataSet
from reticent.query.measure import Plan
from reticent.query.span.best import SCALAR, VECTOR, improved, nearby
from reticent.query.span.elimination import Elimination, Made
from reticent.query.span.forms import Form, forms
from reticent.query.span.vectors import least_information
from reticent.query.span.weights import Estimate, Row

_MOST_VECTOR = 256  # coordinates of a question that is combined from others


@dataclass
class _Purchase:
    """What is recorded under one key, and which rows it has in the elimination."""

    plan: Plan
    forms: tuple[Form, ...] | None
    reading: Reading
    first: int
    is_joined: bool


class Joint:
    """All recorded purchases about one declaration. Threads may share it.

    Args:
        data: the declaration; purchases and questions must be about it.
    """

    def __init__(self, data: DataSet) -> None:
        self.data = data
        self._guard = threading.RLock()
        self._elimination = Elimination()
        self._purchases: dict[str, _Purchase] = {}
        self._rows: list[tuple[_Purchase, int]] = []
        self._last: dict[str, list[Made]] = {}

    def __len__(self) -> int:
        """How many recorded values there are."""
        return len(self._rows)

    def record(self, plan: Plan, reading: Reading) -> None:
        """Take in what is recorded under a question; again, when more is. What is pending does not count."""
        self._check(plan, reading)
        if not reading.information:
            return
        with self._guard:
            held = self._purchases.get(plan.question.key)
            if held is None:
                self._join(plan, reading)
            elif reading.information > held.reading.information:
                held.reading = reading

    def recorded(self, key: str) -> int:
        """The units recorded under a key, as far as this was told."""
        with self._guard:
            held = self._purchases.get(key)
            return 0 if held is None else held.reading.information

    def fresh(self, plan: Plan, wanted: int) -> int:
        """The units that must be recorded under a question beyond those that are, to be worth `wanted`.

        Then every coordinate, and every combination of those of one cell, is known at least as exactly as if
        `wanted` units were recorded under the question alone. Never more than `wanted` less what is.
        """
        with self._guard:
            missing = max(0, wanted - self.recorded(plan.question.key))
            if not missing:
                return 0
            found = self._forms(plan)
            if found is None:
                return missing
            if plan.values > 1:
                return min(missing, self._fresh_vector(plan, found, wanted))
            estimates = self.estimates(plan)
            return missing if estimates is None else min(missing, max(0, wanted - estimates[0].information))

    def estimates(self, plan: Plan) -> tuple[Estimate, ...] | None:
        """The best estimate of each coordinate of a question; None if one is outside of the span."""
        with self._guard:
            found = self._forms(plan)
            starts = None if found is None else self._starts(plan, found)
            if found is None or starts is None:
                return None
            best = self._best(plan, starts)
            return tuple(self._estimate(plan, form, one) for form, one in zip(found, best, strict=True))

    # Within

    def _check(self, plan: Plan, reading: Reading) -> None:
        if plan.question.data != self.data:
            raise ParameterError("plan must be about the data set as it is declared here")
        if reading.account != self.data.account:
            raise ParameterError(f"reading must be of account {self.data.account}, got {reading.account}")
        if reading.key != plan.question.key:
            raise ParameterError("reading must be of the question that is planned")
        if reading.information and len(reading.sums) != plan.values:
            raise ParameterError(f"reading must have {plan.values} values, got {len(reading.sums)}")

    def _forms(self, plan: Plan) -> tuple[Form, ...] | None:
        if plan.question.data != self.data:
            raise ParameterError("plan must be about the data set as it is declared here")
        if plan.values > _MOST_VECTOR:
            return None
        held = self._purchases.get(plan.question.key)
        return forms(plan) if held is None else held.forms

    def _join(self, plan: Plan, reading: Reading) -> None:
        made = forms(plan)
        first = len(self._rows)
        purchase = _Purchase(plan, made, reading, first, made is not None)
        self._purchases[plan.question.key] = purchase
        for place, form in enumerate(made or ()):
            self._rows.append((purchase, place))
            purchase.is_joined &= self._elimination.add(first + place, form.terms)

    def _own(self, plan: Plan, place: int) -> Made | None:
        held = self._purchases.get(plan.question.key)
        return None if held is None or held.forms is None else {held.first + place: 1}

    def _starts(self, plan: Plan, found: Sequence[Form]) -> list[Made] | None:
        """Any exact weights of each coordinate; None if one is outside of the span."""
        starts = []
        for place, form in enumerate(found):
            start = self._elimination.combination(form.terms)
            if start is None:
                start = self._own(plan, place)
            if start is None:
                return None
            starts.append(start)
        return starts

    def _best(self, plan: Plan, starts: list[Made]) -> list[Made]:
        """Better weights of the same forms, never worse than their own purchase or what was found last."""
        limits = SCALAR if len(starts) == 1 else VECTOR
        relations, is_capped = nearby(self._elimination, starts, limits)
        held = self._purchases.get(plan.question.key)
        if not is_capped and (held is None or held.is_joined):
            return improved(starts, relations, _Variances(self._rows))
        before = self._last.get(plan.question.key)
        best = []
        for place, start in enumerate(starts):
            others = [self._own(plan, place), before[place] if before is not None else None]
            beside = [_difference(one, start) for one in others if one is not None]
            best += improved([start], [*relations, *(one for one in beside if one)], _Variances(self._rows))
        self._last[plan.question.key] = best
        return best

    def _estimate(self, plan: Plan, form: Form, weights: Made) -> Estimate:
        listed = sorted(weights.items())
        return Estimate(
            form, plan.sensitivity, tuple((self._row(number), Fraction(value)) for number, value in listed)
        )

    def _row(self, number: int) -> Row:
        purchase, place = self._rows[number]
        assert purchase.forms is not None
        reading = purchase.reading
        return Row(
            reading.key,
            place,
            purchase.forms[place],
            purchase.plan.sensitivity,
            reading.information,
            reading.sums[place],
        )

    def _fresh_vector(self, plan: Plan, found: Sequence[Form], wanted: int) -> int:
        starts = self._starts(plan, found)
        if starts is not None:
            known: list[Made] = [{place: 1} for place in range(len(found))]
            best = self._best(plan, starts)
        else:
            pairs = self._elimination.combinations([form.terms for form in found])
            if not pairs:
                return wanted
            known, starts = [one for one, _ in pairs], [rows for _, rows in pairs]
            relations, _ = nearby(self._elimination, starts, VECTOR)
            best = improved(starts, relations, _Variances(self._rows))
        spreads = [float(plan.sensitivity / form.scale) for form in found]
        return least_information(known, best, _Variances(self._rows), spreads, plan.coordinates, wanted)


class _Variances(dict[int, float]):
    """Of the rows' noise, in units of their forms, times the information of one unit."""

    def __init__(self, rows: Sequence[tuple[_Purchase, int]]) -> None:
        super().__init__()
        self._of = rows

    def __missing__(self, number: int) -> float:
        purchase, place = self._of[number]
        assert purchase.forms is not None
        spread = float(purchase.plan.sensitivity / purchase.forms[place].scale)
        self[number] = found = spread * spread / purchase.reading.information
        return found


def _difference(one: Made, other: Made) -> Made:
    rows = dict.fromkeys((*one, *other))
    found = {row: one.get(row, 0) - other.get(row, 0) for row in rows}
    return {row: value for row, value in found.items() if value}
