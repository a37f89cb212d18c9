"""What all recorded purchases about one declaration say together about any question.

A question whose coordinates are combinations of recorded ones can be answered from them, without bias and
with a known variance; the best such answer is generalised least squares over all purchases. What it is worth,
in units of the question, need not be bought again: the charge for t units is max(0, t - b). It is never more
than the rule of the question's own key charges, since what is recorded under the key is among the purchases.

Only what is recorded counts: what is paid and not recorded may come out as anything, or never come. Purchases
of another version of the data, another declaration or another account are refused, not mixed.

Privacy: nothing here touches data. Everything is arithmetic on released numbers and public ones.
Reference: docs/mathematics.md 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from reticent.errors import ParameterError
from reticent.ledger import Reading
from reticent.query.declarations.datasets import DataSet
from reticent.query.measure import Plan
from reticent.query.plans import Kept
from reticent.query.span.best import CHOSEN, SCALAR, VECTOR, Weights, improved, nearby, promising, whole
from reticent.query.span.elimination import Elimination, Made, Relation
from reticent.query.span.forms import Form, forms
from reticent.query.span.vectors import least_information
from reticent.query.span.weights import Estimate, Row

_MOST_VECTOR = 256  # coordinates of a question that is combined from others
_MOST_FOUND = 200  # questions whose estimates are kept ready, and what was known of them before


_LARGEST = 1 << 512  # denominator of weights that are kept
_STEPS_PER_PURCHASE = 20_000  # additions that taking a purchase in may need, and beyond:
_STEPS_PER_VALUE = 500  # for each of its values; tables of many cuts need about 150
_MOST_STEPS = 1 << 24  # for all purchases: some 6 s


@dataclass(frozen=True)
class _Purchase:
    """What is recorded under one key, and where its rows begin in the elimination.

    `rows` keeps values that anybody may make again from the rest, so copies of a joint estimate share them.
    """

    plan: Plan
    forms: tuple[Form, ...] | None
    reading: Reading
    first: int
    is_joined: bool
    rows: dict[int, Row] = field(default_factory=dict)


class Joint:
    """All recorded purchases about one declaration.

    Threads may ask it at once, and wait for nobody. Nobody may ask while something is recorded in it: take a
    copy, record there, and let others ask the copy from then on (`Purchases`).

    Args:
        data: the declaration; purchases and questions must be about it.
    """

    def __init__(self, data: DataSet) -> None:
        self.data = data
        self._elimination = Elimination()
        self._purchases: dict[str, _Purchase] = {}
        self._rows: list[tuple[str, int]] = []  # key and place of each recorded value
        self._noise = np.zeros(64)
        self._found: Kept[str, tuple[Estimate, ...] | None] = Kept(_MOST_FOUND)
        self._needed: Kept[tuple[str, int], int] = Kept(_MOST_FOUND)  # fresh units by key and units wanted
        self._known: Kept[str, list[tuple[Made, Weights]]] = Kept(_MOST_FOUND)

    def __len__(self) -> int:
        """How many recorded values there are."""
        return len(self._rows)

    def record(self, plan: Plan, reading: Reading) -> None:
        """Take in what is recorded under a question; again, when more is. What is pending does not count."""
        self._check(plan, reading)
        if not reading.information:
            return
        held = self._purchases.get(plan.question.key)
        if held is None:
            self._join(plan, reading)
        elif reading.information > held.reading.information:
            self._refine(held, reading)

    def copied(self) -> Joint:
        """Return another that knows the same, in which more may be supposed.

        It knows what was found before too: a search that is cut short begins there, so without it the copy
        would find other weights, and another price.
        """
        other = self.successor()
        other._known = self._known.copied()
        return other

    def successor(self) -> Joint:
        """Return a copy in which more that is really recorded will be recorded.

        Both know what either finds from now on: somebody may still be asking this one, and what was found
        once must not be lost. Rows keep their numbers, so weights of the one hold in the other.
        """
        other = Joint(self.data)
        other._elimination = self._elimination.copied()
        other._purchases = dict(self._purchases)
        other._rows, other._noise = list(self._rows), self._noise.copy()
        other._found, other._needed = self._found.copied(), self._needed.copied()
        other._known = self._known
        return other

    def recorded(self, key: str) -> int:
        """The units recorded under a key, as far as this was told."""
        held = self._purchases.get(key)
        return 0 if held is None else held.reading.information

    def fresh(self, plan: Plan, wanted: int) -> int:
        """The units that must be recorded under a question beyond those that are, to be worth `wanted`.

        Then every coordinate, and every combination of those of one cell, is known at least as exactly as if
        `wanted` units were recorded under the question alone. Never more than `wanted` less what is.
        """
        missing = max(0, wanted - self.recorded(plan.question.key))
        found = self._forms(plan) if missing else None
        if found is None:
            return missing
        if plan.values > 1:
            place = (plan.question.key, wanted)
            needed = self._needed.get(place)
            if needed is None:
                needed = self._fresh_vector(plan, found, wanted)
                self._needed.keep(place, needed)
            return min(missing, needed)
        estimates = self.estimates(plan)
        return missing if estimates is None else min(missing, max(0, wanted - estimates[0].information))

    def estimates(self, plan: Plan) -> tuple[Estimate, ...] | None:
        """The best estimate of each coordinate of a question; None if one is outside of the span."""
        forms = self._forms(plan)
        if forms is None:
            return None
        found = self._found.get(plan.question.key)
        if found is None:
            starts = self._starts(plan, forms)
            if starts is None:
                return None
            best = zip(forms, self._best(plan, starts), strict=True)
            found = tuple(self._estimate(plan, form, one) for form, one in best)
            self._found.keep(plan.question.key, found)
        return found

    # Within

    def _check(self, plan: Plan, reading: Reading) -> None:
        self._check_plan(plan)
        if reading.account != self.data.account:
            raise ParameterError(f"reading must be of account {self.data.account}, got {reading.account}")
        if reading.key != plan.question.key:
            raise ParameterError("reading must be of the question that is planned")
        if reading.information and len(reading.sums) != plan.values:
            raise ParameterError(f"reading must have {plan.values} values, got {len(reading.sums)}")

    def _check_plan(self, plan: Plan) -> None:
        if plan.question.data is not self.data and plan.question.data != self.data:
            raise ParameterError("plan must be about the data set as it is declared here")

    def _forms(self, plan: Plan) -> tuple[Form, ...] | None:
        self._check_plan(plan)
        if plan.values > _MOST_VECTOR:
            return None
        held = self._purchases.get(plan.question.key)
        return forms(plan) if held is None else held.forms

    def _join(self, plan: Plan, reading: Reading) -> None:
        made = forms(plan)
        first = len(self._rows)
        is_joined = made is not None
        if first + len(made or ()) > self._noise.size:
            self._noise = np.concatenate([self._noise, np.zeros(self._noise.size + len(made or ()))])
        room = self._elimination.steps + _STEPS_PER_PURCHASE + _STEPS_PER_VALUE * len(made or ())
        room = min(room, _MOST_STEPS)
        for place, form in enumerate(made or ()):
            self._rows.append((plan.question.key, place))
            left = room - self._elimination.steps
            is_joined &= left > 0 and self._elimination.add(first + place, form.terms, left)
        self._refine(_Purchase(plan, made, reading, first, is_joined), reading)

    def _refine(self, purchase: _Purchase, reading: Reading) -> None:
        """Replace what is recorded under a key: the same rows with less noise."""
        self._purchases[purchase.plan.question.key] = replace(purchase, reading=reading, rows={})
        for place, form in enumerate(purchase.forms or ()):
            spread = float(purchase.plan.sensitivity / form.scale)
            self._noise[purchase.first + place] = spread * spread / reading.information
        self._found, self._needed = Kept(_MOST_FOUND), Kept(_MOST_FOUND)

    def _own(self, plan: Plan, place: int) -> Made | None:
        held = self._purchases.get(plan.question.key)
        return None if held is None or held.forms is None else {held.first + place: 1}

    def _starts(self, plan: Plan, found: Sequence[Form]) -> list[Weights] | None:
        """Any exact weights of each coordinate; None if one is outside of the span."""
        starts = []
        for place, form in enumerate(found):
            start = self._elimination.combination(form.terms)
            if start is None:
                start = self._own(plan, place)
            if start is None:
                return None
            starts.append(whole(start))
        return starts

    def _best(self, plan: Plan, starts: list[Weights]) -> list[Weights]:
        """Better weights of the same forms, never worse than their own purchase and what was known before."""
        limits = SCALAR if len(starts) == 1 else VECTOR
        relations, is_capped = nearby(self._elimination, [one.numerators for one in starts], limits)
        if is_capped and len(starts) == 1:
            relations = promising(self._elimination, starts[0], self._noise, CHOSEN)
        held = self._purchases.get(plan.question.key)
        if is_capped or (held is not None and not held.is_joined):
            relations += self._beside(plan, starts)
        best = improved(starts, relations, self._noise)
        if max(one.denominator for one in best) < _LARGEST:  # what is built on what is kept has more digits
            self._known.keep(plan.question.key, [({place: 1}, one) for place, one in enumerate(best)])
        return best

    def _beside(self, plan: Plan, starts: list[Weights]) -> list[Relation]:
        """Relations to the question's own purchase and to what was known of it when it was asked before."""
        count = len(self._rows)  # a successor may have found weights of rows that are not recorded here
        kept = self._known.get(plan.question.key) or ()
        known = [one for one in kept if max(one[1].numerators, default=-1) < count]
        for place in range(len(starts)):
            own = self._own(plan, place)
            known += [] if own is None else [({place: 1}, whole(own))]
        found = (_difference(of_forms, starts, rows) for of_forms, rows in known)
        return [Relation.of(one) for one in found if one]

    def _estimate(self, plan: Plan, form: Form, weights: Weights) -> Estimate:
        numbers = sorted(weights.numerators)
        return Estimate(
            form,
            plan.sensitivity,
            tuple(self._row(number) for number in numbers),
            tuple(weights.numerators[number] for number in numbers),
            weights.denominator,
        )

    def _row(self, number: int) -> Row:
        key, place = self._rows[number]
        purchase = self._purchases[key]
        row = purchase.rows.get(place)
        if row is None:
            assert purchase.forms is not None
            reading, sensitivity = purchase.reading, purchase.plan.sensitivity
            form, total = purchase.forms[place], reading.sums[place]
            row = Row(reading.key, place, form, sensitivity, reading.information, total)
            purchase.rows[place] = row
        return row

    def _fresh_vector(self, plan: Plan, found: Sequence[Form], wanted: int) -> int:
        starts = self._starts(plan, found)
        if starts is not None:
            known: list[Made] = [{place: 1} for place in range(len(found))]
            best = self._best(plan, starts)
        else:
            pairs = self._elimination.combinations([form.terms for form in found])
            if not pairs:
                return wanted
            known, starts = [one for one, _ in pairs], [whole(rows) for _, rows in pairs]
            relations, _ = nearby(self._elimination, [one.numerators for one in starts], VECTOR)
            best = improved(starts, relations, self._noise)
            self._known.keep(plan.question.key, list(zip(known, best, strict=True)))
        spreads = [float(plan.sensitivity / form.scale) for form in found]
        return least_information(known, best, self._noise, spreads, plan.coordinates, wanted)


def _difference(of_forms: Made, starts: Sequence[Weights], rows: Weights) -> dict[int, int]:
    """The relation that a combination of forms, which the starts make one by one, is one of rows too."""
    total: dict[int, Fraction] = {}
    for place, times in of_forms.items():
        for row, value in starts[place].numerators.items():
            total[row] = total.get(row, Fraction(0)) + times * Fraction(value, starts[place].denominator)
    for row, value in rows.numerators.items():
        total[row] = total.get(row, Fraction(0)) - Fraction(value, rows.denominator)
    return whole({row: one for row, one in total.items() if one}).numerators
