"""Taking recorded tables in is bounded work; what is left out costs nobody more than its own purchases."""

import random

import pytest

from reticent.ledger import MemoryLedger, Reading
from reticent.query import By, Column, DataSet, Kind, purchases
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.measure import plan
from reticent.query.span import joint as joint_module
from reticent.query.span.elimination import Elimination
from reticent.query.span.joint import Joint

from .reusing import BUDGET, Town, asked_among

DATA = DataSet(
    "cuts",
    "1",
    (Column("age", Kind.INTEGER, low=0, high=99), Column("education", Kind.INTEGER, low=1, high=16)),
    BUDGET,
    rows=1000,
)
TABLES, UNITS = 6, 10**9
FEW, STEPS = 300, 3000  # steps that a purchase, and all of them, may take in these tests


def cut_tables():
    """Tables of 40 cells, each cut elsewhere."""
    rng = random.Random(5)
    for _ in range(TABLES):
        ages, years = sorted(rng.sample(range(1, 99), 7)), sorted(rng.sample(range(2, 16), 4))
        query = tree.histogram([By("age", edges=tuple(ages)), By("education", edges=tuple(years))])
        yield plan(resolve(query, DATA))


def take_in(tables):
    """Return a joint estimate of some tables, and the steps that each took."""
    joint, steps = Joint(DATA), []
    for table in tables:
        before = joint._elimination.steps
        sums = tuple(UNITS * place for place in range(table.values))
        joint.record(table, Reading(DATA.account, table.question.key, UNITS, sums, 0))
        steps.append(joint._elimination.steps - before)
    return joint, steps


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(joint_module, "_STEPS_PER_PURCHASE", FEW)
    monkeypatch.setattr(joint_module, "_STEPS_PER_VALUE", 10)
    monkeypatch.setattr(joint_module, "_MOST_STEPS", STEPS)


def is_bounded(tables, steps):
    return sum(steps) <= STEPS and all(
        taken <= FEW + 10 * table.values for table, taken in zip(tables, steps, strict=True)
    )


def test_ordinary_tables_are_taken_in_whole():
    joint, steps = take_in(cut_tables())
    assert all(purchase.is_joined for purchase in joint._purchases.values())
    assert 0 < max(steps) < 40 * joint_module._STEPS_PER_VALUE


def test_taking_in_is_bounded_for_each_purchase_and_for_all(few_steps):
    tables = list(cut_tables())
    joint, steps = take_in(tables)
    assert is_bounded(tables, steps)
    assert steps[0] > 0
    assert not all(purchase.is_joined for purchase in joint._purchases.values())


def test_planted_rows_without_a_bound_are_caught(few_steps, monkeypatch):
    """The old fault: every row of a table may take as many steps as any form."""
    add = Elimination.add
    monkeypatch.setattr(Elimination, "add", lambda self, number, terms, most_steps: add(self, number, terms))
    tables = list(cut_tables())
    assert not is_bounded(tables, take_in(tables)[1])


def test_what_is_left_out_keeps_to_its_own_purchase(few_steps):
    tables = list(cut_tables())
    joint, _ = take_in(tables)
    for table in tables:
        assert joint.fresh(table, UNITS) == 0
        assert joint.fresh(table, 3 * UNITS) <= 2 * UNITS
        estimates = joint.estimates(table)
        assert len(estimates) == table.values
        assert all(estimate.information >= UNITS for estimate in estimates)


# At the start


def values_of_a_first_look(monkeypatch):
    """Return how many values take part for somebody who finds many purchases at once, and slowly."""
    monkeypatch.setattr(purchases, "_MOST_RECORDED", 6)
    ledger = MemoryLedger()
    town = Town([[5, 9], [14, 3], [8, 8], [2, 30]], seed=3, ledger=ledger)
    town.by_region(information=0.1)
    town.by_both(information=0.1, reuse="key")
    for regions in ([0], [1], [2], [0, 1], [1, 2]):
        town.among(regions, information=0.1, reuse="key")
    later = Town(town.counts, seed=4, ledger=ledger, data=town.data)
    assert later.session.known(asked_among([0, 2])) is not None
    return len(later.session._purchases)


def test_a_first_look_is_bounded(monkeypatch):
    assert values_of_a_first_look(monkeypatch) == 4 + 8


def test_planted_first_look_that_takes_all_is_caught(monkeypatch):
    """The old fault: values are counted before anything of a look is taken in."""
    read = purchases.Purchases._read
    monkeypatch.setattr(
        purchases.Purchases,
        "_read",
        lambda self, key, text, *, is_full: read(self, key, text, is_full=len(self) > 6),
    )
    assert values_of_a_first_look(monkeypatch) > 4 + 8
