"""Workloads before any of them is bought: what is proposed is what is then charged, and never dearer."""

import random

import pytest

from reticent.errors import ParameterError
from reticent.ledger import MemoryLedger
from reticent.privacy import Neighbours
from reticent.query import Policy, Session, workload_text
from reticent.query import proposals as module
from reticent.query.accuracy import Accuracy
from reticent.query.language import tree
from reticent.query.proposals import MOST_WISHES, Proposal
from reticent.query.span import tables
from reticent.randomness import SimulationStream

from .reusing import BUDGET, asked_among, town
from .tables import Tallied

REGIONS = 6
EXACT = Accuracy(error=40.0)


class Rows(Tallied):
    """Rows that count how often they are read; all sums are zero."""

    reads = 0

    def tally(self, sql):
        self.reads += 1
        return []


def opened(**changes):
    data = town(REGIONS, **changes)
    return Session(data, Rows(data), MemoryLedger(), rng=SimulationStream(4))


def dashboard():
    """Totals, margins, and parts of them: all in the span of one table."""
    parts = [asked_among(range(first, REGIONS)) for first in range(REGIONS)]
    halves = [tree.count(where=f"half = '{half}' and region = 'r{i}'") for half in "ab" for i in range(3)]
    return [tree.count(), tree.count(by="region"), tree.count(by="half"), *parts, *halves]


def asked_as_proposed(session, workload, found):
    """What is charged if somebody does as proposed: for each table, then for each question."""
    first = [session.ask(one.query, information=one.mu2).cost for one in found.first]
    return first, [session.ask(query, EXACT).cost for query in workload]


@pytest.mark.parametrize("relation", list(Neighbours)[:2])
def test_what_is_proposed_is_what_is_charged_and_cheaper(relation):
    changes = {"relation": relation, **({"rows": 1000} if relation is Neighbours.REPLACE_ONE else {})}
    with opened(**changes) as session:
        found = session.plan(dashboard(), EXACT)
        assert found.first
        assert found.cost < found.as_they_come <= found.alone
        first, then = asked_as_proposed(session, dashboard(), found)
        assert first == pytest.approx([one.cost for one in found.first], rel=1e-9)
        assert then == pytest.approx([one.after for one in found.wishes], rel=1e-6, abs=10)
        assert session.balance().spent == pytest.approx(found.cost, rel=1e-6)


def test_planted_a_table_that_is_taken_for_better_than_it_is(monkeypatch):
    """Supposing twice the information that is bought, as a lost root 2 would, shows at the till."""
    right = tables.supposed
    monkeypatch.setattr(module, "supposed", lambda plan, units: right(plan, 2 * units))
    with opened() as session:
        found = session.plan(dashboard(), EXACT)
        asked_as_proposed(session, dashboard(), found)
        assert session.balance().spent > 1.01 * found.cost


def test_as_they_come_and_alone_are_the_ledgers_own_prices():
    with opened() as span, opened() as key:
        found = span.plan(dashboard(), EXACT)
        for query in dashboard():
            span.ask(query, EXACT)
            key.ask(query, error=40.0, reuse="key")
        assert span.balance().spent == pytest.approx(found.as_they_come, rel=1e-6)
        assert key.balance().spent == found.alone


@pytest.mark.parametrize("seed", range(12))
def test_a_proposal_is_never_dearer_than_no_proposal(seed):
    chance = random.Random(seed)
    with opened() as session:
        for _ in range(chance.randrange(3)):  # something is there already
            session.ask(asked_among(sorted(chance.sample(range(REGIONS), 3))), error=chance.uniform(20, 80))
        queries = [
            asked_among(sorted(chance.sample(range(REGIONS), chance.randrange(1, REGIONS)))) for _ in range(8)
        ]
        found = session.plan([(query, Accuracy(error=chance.uniform(20, 90))) for query in queries])
        assert found.cost <= found.as_they_come <= found.alone
        assert found.cost == sum(one.cost for one in found.first) + sum(one.after for one in found.wishes)


def test_planning_reads_nothing_charges_nothing_and_leaves_no_trace():
    with opened() as session:
        session.ask(tree.count(by="half"), error=60)
        reads, spent = session._rows.reads, session.balance().spent
        before = session.price(tree.count(by="region"), EXACT)
        session.plan(dashboard(), EXACT)
        assert session.price(tree.count(by="region"), EXACT) == before
        assert (session._rows.reads, session.balance().spent) == (reads, spent)


def test_under_degrade_and_by_key_nothing_is_proposed():
    with opened(policy=Policy.DEGRADE) as session:
        found = session.plan(dashboard(), EXACT)
        assert (found.first, found.cost) == ((), found.alone)
    with opened() as session:
        found = session.plan(dashboard(), error=40.0, reuse="key")
        assert (found.first, found.cost) == ((), found.alone)


def test_variances_and_quantiles_keep_their_own_price():
    with opened(relation=Neighbours.REPLACE_ONE, rows=1000) as session:
        found = session.plan([tree.count(by="half"), tree.proportion("half = 'a'")], error=0.05)
        assert found.alone == sum(one.alone for one in found.wishes)
        assert Proposal.from_json(found.to_json()) == found
        assert "2 questions" in str(found)


@pytest.mark.parametrize(
    ("workload", "words", "rule"),
    [
        ([], {"error": 1.0}, "workload must be 1 to 200 questions, got 0"),
        ([tree.count(by="half")] * (MOST_WISHES + 1), {"error": 1.0}, "got 201"),
        ([tree.count(by="half")], {}, "accuracy must be given"),
        ([tree.count(by="half")], {"error": 1.0, "reuse": "none"}, "reuse must be one of span, key"),
        (["SELECT COUNT(*) FROM town WHERE nobody = 1"], {"error": 1.0}, "nobody"),
    ],
)
def test_what_cannot_be_planned_is_refused(workload, words, rule):
    with opened() as session, pytest.raises(ParameterError, match=rule):
        session.plan(workload, **words)


# Texts


def test_a_text_of_questions_says_how_exact():
    text = """
    -- totals
    -- error 60
    SELECT COUNT(*) FROM town WHERE half = 'a;b'; SELECT COUNT(*) FROM town;
    -- error 3e4 rows 2000
    SELECT AVG(x) FROM town
    """
    assert workload_text.questions(text) == [
        ("SELECT COUNT(*) FROM town WHERE half = 'a;b'", Accuracy(error=60.0)),
        ("SELECT COUNT(*) FROM town", Accuracy(error=60.0)),
        ("SELECT AVG(x) FROM town", Accuracy(error=3e4, rows=2000)),
    ]


def test_one_error_for_all_holds_until_a_line_says_another():
    every = Accuracy(error=5.0, confidence=0.9)
    found = workload_text.questions("SELECT 1;\n-- error 7\nSELECT 2", every)
    assert [one.error for _, one in found] == [5.0, 7.0]
    assert {one.confidence for _, one in found} == {0.9}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "at least one question"),
        (" ; ;\n-- error 3\n", "at least one question"),
        ("SELECT 1", "say how exact"),
        ("-- error much\nSELECT 1", "must be numbers, got '-- error much'"),
        ("-- error 5 rows 1.5\nSELECT 1", "must be numbers"),
        ("-- error -5\nSELECT 1", "error must be > 0"),
        ("-- error nan\nSELECT 1", "error"),
        ("x" * (workload_text.LONGEST + 1), "at most"),
    ],
)
def test_a_text_that_is_none_is_refused(text, rule):
    with pytest.raises(ParameterError, match=rule):
        workload_text.questions(text)


def test_the_budget_is_as_the_town_has_it():
    with opened() as session:
        found = session.plan(dashboard(), EXACT)
        assert found.budget == BUDGET.mu2_cap
        assert found.affordable == (found.cost <= found.remaining)
