"""What must not count in a combined answer: each fault is planted beside the test that catches it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.ledger import Reading
from reticent.privacy import Neighbours
from reticent.query import Column, DataSet, Kind
from reticent.query.language import tree
from reticent.query.language.tree import And, Comparison, Not, Or
from reticent.query.span import Joint, best, elimination, forms, joint
from reticent.query.span.corners import EVERYTHING, polynomial

from .span_worlds import World, planned
from .tables import BUDGET
from .test_span import session

UNITS = 10**11
SEX = Column("sex", Kind.CATEGORY, values=("f", "m"))
AREA = Column("area", Kind.CATEGORY, values=("a", "b", "c"))
AGE = Column("age", Kind.INTEGER, low=10, high=30)
LARGE = Column("large", Kind.INTEGER, low=2**30, high=2**30 + 3)
DATA = DataSet("d", "1", (SEX, AREA, AGE, LARGE), BUDGET, rows=200)
PRIVATE = dataclasses.replace(DATA, relation=Neighbours.ADD_REMOVE_ONE, rows=None)
WOMAN, IN_A, OLD = Comparison("sex", "=", "f"), Comparison("area", "=", "a"), Comparison("age", ">=", 20)


def exact(world, prepared, units=UNITS):
    """A purchase without noise."""
    sums = tuple(units * round(one) for one in world.exact(prepared))
    return Reading(world.data.account, prepared.question.key, units, sums, 0)


def known(data, *queries, made=Joint, units=UNITS):
    """All purchases recorded without noise."""
    world, found = World(data, 1), made(data)
    for one in queries:
        prepared = planned(one, data)
        found.record(prepared, exact(world, prepared, units))
    return world, found


# Root 2: one row that moves between cells changes two of them


def worth_of_a_cell(change=lambda prepared: prepared):
    world, found = World(DATA, 1), Joint(DATA)
    table = planned(tree.histogram("area"), DATA)
    found.record(change(table), exact(world, table))
    (one,) = found.estimates(planned(tree.count(where=IN_A), DATA))
    return one.information / UNITS


def test_a_cell_of_a_table_is_worth_half():
    # both cells' noises and the public total: the cell itself, or all less the two others
    assert worth_of_a_cell() == pytest.approx(0.5 * 1.5, rel=1e-6)


def test_root_two_dropped_is_caught():
    def dropped(prepared):
        return dataclasses.replace(prepared, sensitivity=round(prepared.sensitivity / 2**0.5))

    assert worth_of_a_cell(dropped) == pytest.approx(1.5, rel=1e-6)


# What is pending


def fresh_with_pending(record):
    found, prepared = Joint(DATA), planned(tree.count(where=IN_A), DATA)
    record(found, prepared, Reading(DATA.account, prepared.question.key, 0, (), UNITS))
    return found.fresh(prepared, UNITS)


def test_pending_does_not_count():
    assert fresh_with_pending(lambda found, prepared, reading: found.record(prepared, reading)) == UNITS


def test_pending_counted_is_caught():
    def counted(found, prepared, reading):
        found.record(prepared, Reading(reading.account, reading.key, reading.pending, (0,), 0))

    assert fresh_with_pending(counted) == 0


# The own key


def worth_after_two_records(made):
    world, found = known(DATA, tree.count(where=IN_A), made=made)
    prepared = planned(tree.count(where=IN_A), DATA)
    found.record(prepared, exact(world, prepared))
    found.record(prepared, exact(world, prepared, UNITS // 2))  # older than what is known
    return found.estimates(prepared)[0].information


def test_the_own_key_counts_once():
    assert worth_after_two_records(Joint) == UNITS


def test_the_own_key_counted_twice_is_caught():
    class Twice(Joint):
        def record(self, plan, reading):
            self._join(plan, reading)

    assert worth_after_two_records(Twice) > UNITS


# Other data


OTHERS = {
    "version": dataclasses.replace(DATA, version="2"),
    "name": dataclasses.replace(DATA, name="e"),
    "bounds": dataclasses.replace(DATA, columns=(SEX, AREA, Column("age", Kind.INTEGER, 11, 30), LARGE)),
    "categories": dataclasses.replace(
        DATA, columns=(SEX, Column("area", Kind.CATEGORY, values=("b", "a", "c")), AGE, LARGE)
    ),
    "neighbours": PRIVATE,
    "account": dataclasses.replace(DATA, shares="other"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_other_data_are_refused(other):
    data = OTHERS[other]
    prepared, found = planned(tree.count(where=IN_A), data), Joint(DATA)
    with pytest.raises(ParameterError, match="as it is declared here"):
        found.record(prepared, exact(World(data, 1), prepared))
    with pytest.raises(ParameterError, match="as it is declared here"):
        found.estimates(prepared)
    right = planned(tree.count(where=IN_A), DATA)
    with pytest.raises(ParameterError, match="reading must be of"):
        found.record(right, Reading("another", right.question.key, 1, (0,), 0))
    with pytest.raises(ParameterError, match="reading must be of"):
        found.record(right, Reading(DATA.account, "count/0", 1, (0,), 0))


def test_another_version_shared_is_caught():
    class Careless(Joint):
        def _check_plan(self, plan):
            pass

    found, later = Careless(DATA), planned(tree.count(where=IN_A), OTHERS["version"])
    found.record(later, exact(World(OTHERS["version"], 2), later))
    assert found.estimates(planned(tree.count(where=IN_A), DATA)) is not None


# The complement needs the public number of rows


def complement(data):
    _, found = known(data, tree.count(where=IN_A))
    return found.estimates(planned(tree.count(where=Not(IN_A)), data))


def test_the_complement_is_free_where_the_number_of_rows_is_public():
    (one,) = complement(DATA)
    assert one.information == UNITS
    assert complement(PRIVATE) is None


def test_a_complement_without_the_number_of_rows_is_caught(monkeypatch):
    def always(plan):
        return tuple(
            dataclasses.replace(
                one, terms={name: value for name, value in one.terms.items() if name[3] != EVERYTHING}
            )
            for one in forms.forms(plan)
        )

    monkeypatch.setattr(joint, "forms", always)
    assert complement(PRIVATE) is not None


# Without noise every combination is exact: offsets, shifts and weights


def missed(sessions=8):
    """How far combined answers are from the truth, at most, where nothing has noise; in sensitivities."""
    furthest, seen = 0.0, 0
    for seed in range(sessions):
        for world, found, prepared, _ in session(seed):
            purchases = found._purchases.values()
            told = Joint(world.data)
            for one in purchases:
                told.record(one.plan, exact(world, one.plan, one.reading.information))
            for estimate, right in zip(told.estimates(prepared) or (), world.exact(prepared), strict=False):
                furthest = max(furthest, abs(float(estimate.value) - right) / prepared.sensitivity)
                seen += 1
    assert seen > sessions
    return furthest


def test_without_noise_every_combination_is_exact():
    assert missed() < 1e-6


def whole_sum():
    """The sum over all rows is taken about the middle; the sums of two parts are not."""
    world, found = known(DATA, tree.total("age"), tree.total("age", where=WOMAN))
    prepared = planned(tree.total("age", where=Not(WOMAN)), DATA)
    (one,) = found.estimates(prepared)
    return (float(one.value) - world.exact(prepared)[0]) / 2.0**prepared.shift


def test_the_offset_of_a_sum_is_in():
    assert whole_sum() == pytest.approx(0.0, abs=1e-3)


def test_the_offset_of_a_sum_lost_is_caught(monkeypatch):
    def lost(plan):
        return tuple(dataclasses.replace(one, constant=0) for one in forms.forms(plan))

    monkeypatch.setattr(joint, "forms", lost)
    assert abs(whole_sum()) == 20 * DATA.rows


# In the span or not is decided exactly


def nearly():
    """The sum of codes near 2^30 is nearly, and not, 2^30 times the count."""
    _, found = known(DATA, tree.count(where=IN_A))
    return found.estimates(planned(tree.total("large", where=IN_A), DATA))


def test_what_is_nearly_in_the_span_is_not():
    assert nearly() is None


def test_a_float_span_test_is_caught(monkeypatch):
    def by_floats(self, terms):
        rows = [(row, made) for row, made in self._echelon.values()]
        names = sorted({name for row, _ in rows for name in row} | set(terms))
        matrix = np.array([[float(row.get(name, 0)) for row, _ in rows] for name in names])
        target = np.array([float(terms.get(name, 0)) for name in names])
        weights = np.linalg.lstsq(matrix, target, rcond=None)[0]
        if np.abs(matrix @ weights - target).max() > 1e-8 * np.abs(target).max():
            return None
        return {
            number: round(weight) for weight, (_, made) in zip(weights, rows, strict=True) for number in made
        }

    monkeypatch.setattr(elimination.Elimination, "combination", by_floats)
    (one,) = nearly()
    assert not one.holds()


# The complete normal form


def test_multiplied_out_is_the_same_question():
    one, other = And((IN_A, Or((WOMAN, OLD)))), Or((And((IN_A, WOMAN)), And((IN_A, OLD))))
    first, second = (planned(tree.count(where=where), DATA) for where in (one, other))
    assert first.question.key != second.question.key  # keys keep their meaning
    assert polynomial(first.question.where, DATA) == polynomial(second.question.where, DATA)
    _, found = known(DATA, tree.count(where=one))
    assert found.fresh(second, UNITS) == 0


# Bounds cost money and no truth


def test_small_bounds_cost_money_and_no_truth(monkeypatch):
    monkeypatch.setattr(joint, "SCALAR", best.Limits(1, 6))
    monkeypatch.setattr(joint, "CHOSEN", best.Limits(2, 8))
    monkeypatch.setattr(joint, "VECTOR", best.Limits(2, 12))
    for seed in range(6):
        held = {}
        for _, found, prepared, wanted in session(seed):
            key = prepared.question.key
            assert found.fresh(prepared, wanted) <= max(0, wanted - held.get(key, 0))
            held[key] = max(wanted, held.get(key, 0))
            assert all(one.holds() for one in found.estimates(prepared) or ())


def test_what_is_too_large_keeps_to_its_own_key(monkeypatch):
    monkeypatch.setattr(forms, "MOST_VALUES", 2)
    prepared = planned(tree.histogram("area"), DATA)
    world, found = known(DATA, tree.histogram("area"))
    assert forms.forms(prepared) is None
    assert found.estimates(prepared) is None
    assert found.fresh(prepared, 3 * UNITS) == 2 * UNITS
    assert found.fresh(planned(tree.count(where=IN_A), world.data), UNITS) == UNITS
