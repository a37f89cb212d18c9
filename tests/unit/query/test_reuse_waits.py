"""Nobody who asks for a price or a known answer waits for what somebody else's table is estimated from."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from reticent.query.accuracy import Accuracy
from reticent.query.language import tree
from reticent.query.purchases import Purchases
from reticent.query.span.joint import Joint

from .reusing import Town, asked_among

PATIENCE_S = 120.0  # of a test that would otherwise hang
COUNTS = [[5, 9], [14, 3], [8, 8], [2, 30]]
TABLE, NUMBER = tree.count(by=("half", "region")), asked_among([0, 2])
WANTED = {"information": 0.3}

READERS = {
    "price": lambda session: session.price(NUMBER, **WANTED),
    "known": lambda session: session.known(NUMBER),
    "free": lambda session: session.free(NUMBER, **WANTED),
    "plan": lambda session: session.plan([NUMBER, asked_among([1])], **WANTED),
}


class HeldEstimate:
    """A door before the estimate of one table, for the first who asks for it."""

    def __init__(self, patch):
        self.came, self.open = threading.Event(), threading.Event()
        estimate = Joint._fresh_vector

        def held(joint, plan, *rest):
            if plan.values == 8 and not self.came.is_set():
                self.came.set()
                assert self.open.wait(PATIENCE_S)
            return estimate(joint, plan, *rest)

        patch.setattr(Joint, "_fresh_vector", held)


@contextmanager
def priced_table(monkeypatch, town):
    """Somebody whose price of a table is being estimated, and threads for others."""
    door = HeldEstimate(monkeypatch)
    with ThreadPoolExecutor(4) as crew:
        pricing = crew.submit(town.session.price, TABLE, **WANTED)
        try:
            assert door.came.wait(PATIENCE_S)
            yield crew, pricing, door
        finally:
            door.open.set()


def bought_town():
    town = Town(COUNTS, seed=3)
    town.by_region(information=0.2)
    return town


@pytest.mark.parametrize("what", READERS)
def test_readers_do_not_wait_for_an_estimate(monkeypatch, what):
    town = bought_town()
    with priced_table(monkeypatch, town) as (crew, pricing, _):
        assert crew.submit(READERS[what], town.session).result(PATIENCE_S) is not None or what == "free"
        assert not pricing.done()


@pytest.mark.parametrize("what", READERS)
def test_planted_lock_makes_readers_wait(monkeypatch, what):
    """The old fault: the lock of the data set is held while something is estimated."""
    estimate, waiting = Purchases.fresh, threading.Event()
    look = Purchases._look

    def locked_fresh(purchases, plan, wanted):
        with purchases._guard:
            return estimate(purchases, plan, wanted)

    def noticed_look(purchases):
        if purchases._guard.locked():
            waiting.set()
        look(purchases)

    monkeypatch.setattr(Purchases, "fresh", locked_fresh)
    monkeypatch.setattr(Purchases, "_look", noticed_look)
    town = bought_town()
    with priced_table(monkeypatch, town) as (crew, _, door):
        reading = crew.submit(READERS[what], town.session)
        assert waiting.wait(PATIENCE_S), "it stands before the lock"
        assert not reading.done()
        door.open.set()
        reading.result(PATIENCE_S)


def charged_beside_a_purchase(monkeypatch):
    """Return what a table is priced at if half of it is recorded while the price is estimated, and alone."""
    town = bought_town()
    with priced_table(monkeypatch, town) as (crew, _, door):
        plan = town.session._plans.of(TABLE)
        wanted = Accuracy(**WANTED).units(TABLE, plan, town.data.budget, None)
        alone = town.session._purchases.fresh(plan, wanted)
        door.came.clear()
        pair = crew.submit(town.session._purchases.fresh, plan, wanted + 1)
        assert door.came.wait(PATIENCE_S)
        town.by_both(information=0.1)
        door.open.set()
        return pair.result(PATIENCE_S), alone, town.session._purchases.fresh(plan, wanted)


def test_a_price_is_of_one_look(monkeypatch):
    """The units to ask the ledger for are the recorded ones plus the missing ones: both as of one moment."""
    (recorded, fresh), alone, later = charged_beside_a_purchase(monkeypatch)
    assert (recorded, fresh) == (alone[0], alone[1] + 1)
    assert later[0] > 0
    assert later[0] + later[1] <= alone[0] + alone[1] + 1


def test_planted_units_of_two_looks_are_caught(monkeypatch):
    def mixed(purchases, plan, wanted):
        fresh = purchases._published.joint.fresh(plan, wanted)
        return purchases._published.joint.recorded(plan.question.key), fresh

    monkeypatch.setattr(Purchases, "fresh", mixed)
    (recorded, fresh), alone, _ = charged_beside_a_purchase(monkeypatch)
    assert recorded + fresh > alone[0] + alone[1] + 1, "the ledger would charge for what is bought"


def test_what_one_finds_holds_beside_what_is_recorded_meanwhile():
    """Weights of rows that are recorded later are not used where those rows are not known."""
    town = bought_town()
    session = town.session
    session.known(NUMBER)
    before = session._purchases._published.joint
    town.among([0, 2], information=0.5)
    session.known(NUMBER)
    after = session._purchases._published.joint
    assert after._known is before._known
    assert len(after) > len(before)
    plan = session._plans.of(NUMBER)
    kept = after._known.get(plan.question.key)
    assert any(max(weights.numerators) >= len(before) for _, weights in kept)
    before._found = type(before._found)(1)
    (estimate,) = before.estimates(plan)
    assert all(row.key != plan.question.key for row in estimate.rows)
    (start,) = before._starts(plan, before._forms(plan))
    assert before._beside(plan, [start]) == []
