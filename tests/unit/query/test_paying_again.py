"""The same question at the same error is free, for ever and for everybody, whatever was drawn.

A price by error is arithmetic on the declaration and the request. It once used what was recorded: where a
count came out near zero, asking the same again took 92 % of a budget.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from reticent.errors import BudgetExceeded, ParameterError
from reticent.ledger import MemoryLedger, SqlLedger
from reticent.privacy import UNITS_PER_ONE, Budget
from reticent.query import Column, DataSet, Kind, Policy, Price, Session, prices
from reticent.query import accuracy as accuracies
from reticent.query.estimates import estimates, widest
from reticent.query.language import tree
from reticent.query.language.tree import Comparison
from reticent.query.notebook import Notebook
from reticent.query.prices import units_for_error
from reticent.query.rows.rehearsal import MadeUpRows
from reticent.randomness import SimulationStream

from . import matching
from .tables import ADD, BUDGET, REPLACE, Tallied

COLUMNS = (
    Column("age", Kind.INTEGER, low=0, high=120),
    Column("sex", Kind.CATEGORY, values=("f", "m")),
)
OLD = Comparison("age", ">=", 100)
ASKED = {
    "mean": (tree.mean("age", where=OLD), 5.0),
    "share": (tree.proportion(Comparison("sex", "=", "f"), where=OLD), 0.05),
    "variance": (tree.variance("age", where=OLD), 300.0),
    "means": (tree.mean("age", by="sex"), 5.0),
}
RARE = [(0, 2, 205, 21_013)]  # two rows match, where somebody guesses five hundred


def declared(relation=ADD, **changes):
    rows = 5000 if relation is REPLACE else None
    return DataSet("d", "1", COLUMNS, **{"budget": BUDGET, "relation": relation, "rows": rows, **changes})


def opened(data, *, sums=RARE, ledger=None, seed=1, kind=Session):
    ledger = MemoryLedger() if ledger is None else ledger
    rng = None if seed is None else SimulationStream(seed)
    return kind(data, Tallied(data, sums), ledger, rng=rng)


class ByWhatIsRecorded(Session):
    """Planted, the rule as it was: once something is recorded, the price follows the width that it shows."""

    def _wanted(self, query, prepared, accuracy, reading):
        usable = reading.information and self.data.policy is Policy.SHARE and query.kind != "quantile"
        if accuracy.error is None or not usable or prepared.coordinates == 1:
            return super()._wanted(query, prepared, accuracy, reading)
        now = widest(estimates(query, prepared, reading.estimate(), reading.information, accuracy.confidence))
        units = units_for_error(accuracy.error, now * 1.01, reading.information)
        return min(units, reading.information) if now <= accuracy.error else units


# A group that may be empty


def bought_again(kind, query, error, seed):
    """What the first, second and third request for the same cost, as parts of the budget."""
    data = declared()
    with opened(data, seed=seed, kind=kind) as session:
        parts = []
        for _ in range(3):
            try:
                parts.append(session.ask(query, error=error, rows=500).cost / data.terms.cap)
            except BudgetExceeded:
                parts.append(math.inf)
    return parts


@pytest.mark.parametrize("name", ASKED)
def test_a_group_that_may_be_empty_takes_no_budget_when_it_is_asked_again(name):
    query, error = ASKED[name]
    for seed in range(20):
        first, *again = bought_again(Session, query, error, seed)
        assert 0 < first < 0.02
        assert again == [0, 0]


@pytest.mark.parametrize("name", ASKED)
def test_a_price_that_follows_what_is_recorded_is_caught(name):
    query, error = ASKED[name]
    assert any(max(bought_again(ByWhatIsRecorded, query, error, seed)[1:]) > 0.3 for seed in range(20))


# What decides a price


def test_no_recorded_count_moves_a_price():
    """Neither the group's own nor that of its count, and neither up nor down."""
    query, error = ASKED["mean"]
    for sums in (RARE, [(0, 4000, 420_000, 44_100_000)]):
        with opened(declared(), sums=sums) as session:
            price = session.price(query, error=error, rows=500)
            session.count(where=OLD, information=0.5)
            assert session.price(query, error=error, rows=500).information == price.information
            session.ask(query, information=price.information / 2e12)
            assert session.price(query, error=error, rows=500).information == price.information


@pytest.mark.parametrize("name", ASKED)
def test_a_wider_error_a_lower_confidence_and_a_larger_guess_are_free_too(name):
    query, error = ASKED[name]
    with opened(declared()) as session:
        session.ask(query, error=error, rows=500)
        for asked in (
            {"error": error * 1.001, "rows": 500},
            {"error": error, "rows": 501},
            {"error": error, "rows": 500, "confidence": 0.9},
            {"error": error * 3, "rows": 10**6, "confidence": 0.5},
        ):
            assert session.price(query, **asked).cost == session.ask(query, **asked).cost == 0
        for asked in (
            {"error": error * 0.95, "rows": 500},
            {"error": error, "rows": 450},
            {"error": error, "rows": 500, "confidence": 0.99},
        ):
            price = session.price(query, **asked).cost
            assert price > 0
            assert session.ask(query, **asked).cost == price


def test_without_a_guess_the_price_of_a_private_group_is_refused_with_what_is_recorded():
    query, error = ASKED["mean"]
    asked = "rows must be given with error: how many rows match is private, so guess it"
    with opened(declared()) as session:
        with pytest.raises(ParameterError, match=f"{asked}$"):
            session.price(query, error=error)
        session.ask(query, error=error, rows=500)
        spent = session.balance().spent
        for verb in (session.price, session.ask):
            with pytest.raises(ParameterError, match="what is recorded cannot tell the group from an empty"):
                verb(query, error=error)
        assert session.balance().spent == spent
    large = [(0, 4000, 420_000, 44_100_000)]
    with opened(declared(), sums=large) as session:
        session.count(where=OLD, information=0.5)
        with pytest.raises(ParameterError, match=r"what is recorded says at least 39\d\d$"):
            session.ask(query, error=error)
        assert 3950 < session.recorded_rows(query) < 4000
    with opened(declared(policy=Policy.DEGRADE), sums=large) as session:
        session.count(where=OLD, information=0.5)  # nothing of it is shown to who pays less
        assert session.recorded_rows(query) is None
        with pytest.raises(ParameterError, match=f"{asked}$"):
            session.ask(query, error=error)


def test_a_price_says_what_is_free():
    """A guess that is far too low asks for more than is needed: what is recorded is better."""
    query, _ = ASKED["mean"]
    with opened(declared(), sums=[(0, 4000, 420_000, 44_100_000)]) as session:
        assert session.price(query, error=5.0, rows=500).free_error is None
        session.ask(query, error=5.0, rows=500)
        price = session.price(query, error=5.0, rows=100)
        assert price.cost > 0
        assert price.free_error == session.known(query).error < 5.0
        assert Price.from_json(price.to_json()) == price
    with opened(declared(policy=Policy.DEGRADE)) as session:
        session.ask(query, error=5.0, rows=500)
        assert session.price(query, error=5.0, rows=100).free_error is None


def test_what_is_recorded_of_a_size_is_the_least_of_all_groups():
    sums = [(0, 4000, 420_000, 44_100_000), (1, 30, 3_000, 300_000)]
    with opened(declared(), sums=sums) as session:
        for query in (tree.mean("age", by="sex"), tree.histogram("sex")):
            session.ask(query, information=1.0)
            assert 20 <= session.recorded_rows(query) <= 30
        assert session.recorded_rows(tree.count(where=OLD)) is None
        session.ask(tree.median("age", bins=2), information=1.0)
        assert 4000 < session.recorded_rows(tree.median("age", bins=2)) < 4030  # a rank is among all rows


@pytest.mark.parametrize("accuracy", [{"error": 5.0, "rows": 500}, {"epsilon": 0.5}])
def test_another_machine_that_rounds_otherwise_buys_nothing(accuracy, monkeypatch):
    """Logarithms differ in the last digit between libraries: one unit more is not another question."""
    query, _ = ASKED["mean"]
    with opened(declared()) as session:
        session.ask(query, **accuracy)
        factor, mu = prices.half_width_factor, accuracies.mu_of
        monkeypatch.setattr(prices, "half_width_factor", lambda c: factor(c) * (1 + 1e-15))
        monkeypatch.setattr(accuracies, "mu_of", lambda *given: mu(*given) * (1 + 1e-14))
        assert session.price(query, **accuracy).cost == session.ask(query, **accuracy).cost == 0
        monkeypatch.setattr(prices, "half_width_factor", lambda c: factor(c) * (1 + 1e-6))
        monkeypatch.setattr(accuracies, "mu_of", lambda *given: mu(*given) * (1 + 1e-6))
        assert session.price(query, **accuracy).cost > 0


# Everything that can be asked


class Shop:
    """One data set at random on a ledger that several openers share, each with a notebook of its own."""

    def __init__(self, rng, kind, folder, number):
        self.rng, self.kind = rng, kind
        self.declared = matching.random_schema(rng)
        relation, person = rng.choice(((REPLACE, None), (ADD, None), (ADD, "who"), (REPLACE, "who")))
        size = rng.choice((20, 300, 5000))
        data = dataclasses.replace(self.declared, relation=relation, person=person).data()
        self.data = dataclasses.replace(
            data,
            budget=Budget(rng.choice((1.0, 8.0, 20.0)), 1e-4),
            rows=size if data.rows else None,
            policy=rng.choice((Policy.SHARE, Policy.SHARE, Policy.DEGRADE)),
        )
        self.ledger = MemoryLedger() if rng.random() < 0.8 else SqlLedger(folder / f"{number}.sqlite")
        self.stream = SimulationStream(rng.getrandbits(32))
        self.rows = MadeUpRows(self.data, size, self.stream)

    @contextlib.contextmanager
    def opener(self):
        """Somebody who has nothing in common with the others but the ledger and the rows."""
        notebook = Notebook()
        with contextlib.closing(notebook):
            yield self.kind(self.data, self.rows, self.ledger, notebook, rng=self.stream)

    def close(self):
        self.rows.close()
        self.ledger.close()

    def meanwhile(self, query):
        """Others ask, the same thing more exactly among it."""
        with self.opener() as session:
            for asked in (query, matching.query(self.rng, self.declared)):
                part = self.rng.choice((0, self.rng.uniform(1e-4, 0.05)))
                with contextlib.suppress(BudgetExceeded, ParameterError):  # nothing wanted, nothing left
                    session.ask(asked, information=part * session.balance().remaining / UNITS_PER_ONE)

    def asked(self, session, query):
        """An error at random, by the part of the budget that it should cost."""
        given = {
            "rows": self.rng.choice((1, 3, 10, 100, 1000, *([None] if self.data.rows else []))),
            "confidence": self.rng.choice((0.8, 0.95, 0.99)),
        }
        mu2 = 10 ** self.rng.uniform(-7, -1) * self.data.terms.cap / UNITS_PER_ONE
        return given | {"error": session.price(query, information=mu2, **given).error}

    def thrice(self, found):
        """Ask one question three times by error, each time as somebody else, in other words, or for less."""
        query = matching.query(self.rng, self.declared)
        with self.opener() as session:
            asked = self.asked(session, query)
            if not asked["error"]:  # the public number of rows
                return
            try:
                found["charged"] += session.ask(query, **asked).cost > 0
            except BudgetExceeded:
                return
        found["asked"] += 1
        found[query.kind] += 1
        for _ in range(2):
            self.meanwhile(query)
            varied = dataclasses.replace(query, where=matching.vary(self.rng, self.declared, query.where))
            with self.opener() as session:
                cost = session.price(varied, **asked).cost
                with contextlib.suppress(BudgetExceeded):
                    cost += session.ask(varied, **asked).cost
            found["paid again"] += cost > 0
            asked["error"] *= self.rng.choice((1, 1.5))


def three_times(kind, folder, questions, seed, until=math.inf):
    rng, found, number = random.Random(seed), Counter(), 0
    while found["asked"] < questions and found["paid again"] < until:
        number += 1
        with contextlib.closing(Shop(rng, kind, folder, number)) as shop:
            for _ in range(10):
                shop.thrice(found)
    return found


KINDS = {"count", "sum", "mean", "proportion", "variance", "histogram", "quantile"}


def test_a_hundred_questions_asked_three_times_are_paid_once(tmp_path):
    found = three_times(Session, tmp_path, 100, 1)
    assert found["paid again"] == 0
    assert found.keys() >= KINDS
    assert found["charged"] > 80


@pytest.mark.slow
def test_two_thousand_questions_asked_three_times_are_paid_once(tmp_path):
    found = three_times(Session, tmp_path, 2000, 2)
    assert found["paid again"] == 0
    assert min(found[kind] for kind in KINDS) > 100
    assert found["charged"] > 1600


def test_paying_again_is_caught(tmp_path):
    assert three_times(ByWhatIsRecorded, tmp_path, 400, 3, until=1)["paid again"]


# At once


def at_once(kind, ledgers):
    """The units charged to several who ask the same by error in the same instant, twice; 1 for a refusal."""
    query, error = ASKED["mean"]
    start, charged = threading.Barrier(len(ledgers)), []

    def ask(session):
        try:
            for _ in range(2):
                start.wait()
                try:
                    charged.append(session.ask(query, error=error, rows=500).cost)
                except BudgetExceeded:
                    charged.append(1)
        except BaseException:
            start.abort()  # nobody waits for who failed
            raise

    with contextlib.ExitStack() as held:
        sessions = [
            held.enter_context(opened(declared(), ledger=one, seed=None, kind=kind)) for one in ledgers
        ]
        with ThreadPoolExecutor(len(ledgers)) as pool:
            list(pool.map(ask, sessions))
    return sorted(charged)


def ledgers(form, path, askers=4):
    return [MemoryLedger()] * askers if form == "memory" else [SqlLedger(path) for _ in range(askers)]


@pytest.mark.parametrize("form", ["memory", "sqlite"])
def test_askers_who_meet_pay_once(form, tmp_path):
    with opened(declared()) as session:
        price = session.price(ASKED["mean"][0], error=ASKED["mean"][1], rows=500).cost
    for number in range(5):
        assert at_once(Session, ledgers(form, tmp_path / f"{number}.sqlite")) == [0] * 7 + [price]


def test_askers_who_meet_and_pay_again_are_caught(tmp_path):
    """A count 15 standard errors off would hide it: false alarms below 1e-40."""
    charged = at_once(ByWhatIsRecorded, ledgers("sqlite", tmp_path / "ledger.sqlite"))
    assert sum(map(bool, charged)) > 1
