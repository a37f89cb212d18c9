"""T5: what is charged, reused and refused, and how successive answers hang together.

The cells of one large histogram are independent repetitions of one experiment, so that a law about answers is
put to the test by a single session.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import random
from fractions import Fraction
from pathlib import Path

import pytest

from reticent.errors import (
    BudgetExceeded,
    ParameterError,
    ParameterTypeError,
    QuestionRefused,
)
from reticent.ledger import MemoryLedger, SqlLedger
from reticent.ledger.base import increment
from reticent.privacy import Budget, mu_of
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query import Case, Session
from reticent.query.answers import _csv_cell
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.language.tree import Comparison
from reticent.query.measure import Plan

from .asked_sessions import OLD, SUMS, declared, opened
from .tables import ADD, BUDGET, Tallied

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


GOLDEN = Path(__file__).parents[2] / "golden" / "query.json"


# The ledger's total


QUESTIONS = (
    tree.count(where=OLD),
    tree.count(where={"not": {"column": "age", "op": "<", "value": 40}}),  # the same
    tree.mean("age"),
    tree.total("age"),  # the same measurement as the mean, since n is public
    tree.mean("age", where=OLD),
    tree.histogram("sex"),
    tree.count(by="sex"),  # the same
    tree.variance("age", by="sex"),
)


class Model:
    """What is bought under each key, in exact units: the whole rule."""

    def __init__(self, data, keys):
        self.data, self.keys, self.bought = data, keys, {}

    def ask(self, query, wanted):
        """The charge and the case, or None where the budget does not suffice."""
        key = self.keys[query]
        held = self.bought.get(key, 0)
        charge = 0
        if wanted > held:
            charge = max(wanted - held, self.data.terms.minimum)
        if sum(self.bought.values()) + charge > self.data.terms.cap:
            return None
        if charge:
            self.bought[key] = held + charge
        if not held:
            return charge, Case.FRESH
        return charge, Case.EQUAL if wanted == held else Case.COARSER if wanted < held else Case.REFINED


def accuracy(chance, data):
    """An accuracy at random, by information or by epsilon, and its units; of the own key alone."""
    asked, units = _accuracy(chance, data)
    return {**asked, "reuse": "key"}, units


def _accuracy(chance, data):
    if chance.random() < 0.2:  # around the least purchase
        units = chance.randrange(1, 3 * data.terms.minimum)
        return {"information": units / UNITS_PER_ONE}, math.floor(
            Fraction(units / UNITS_PER_ONE) * UNITS_PER_ONE
        )
    if chance.random() < 0.9:
        mu2 = chance.choice((0.01, 0.05, 0.1, 0.4, 1.0, 2.5)) * chance.choice((1.0, 1.0, chance.random()))
        return {"information": mu2}, math.floor(Fraction(mu2) * UNITS_PER_ONE)
    epsilon, delta = chance.choice((0.1, 0.5, 1.0, 2.0)), chance.choice((None, 1e-5, 1e-6))
    mu = mu_of(epsilon, data.budget.delta if delta is None else delta)
    return {"epsilon": epsilon, "delta": delta}, math.floor(Fraction(mu) ** 2 * UNITS_PER_ONE)


def check_sequences(count, seed):
    """Sequences of one to eight requests, each against a fresh ledger, in one session that keeps its plans.

    The noise is left out: what is charged cannot depend on it, and drawing it would take most of the time.
    """
    chance, data = random.Random(seed), declared()
    keys = {query: resolve(query, data).key for query in QUESTIONS}
    session = opened(data)
    cases, refused = dict.fromkeys(Case, 0), 0
    for _ in range(count):
        ledger, model = MemoryLedger(), Model(data, keys)
        ledger.open(data.terms)
        session._ledger = session._teller._ledger = ledger
        for query in chance.choices(QUESTIONS, k=chance.randrange(1, 9)):
            asked, units = accuracy(chance, data)
            price = session.price(query, **asked)
            before = ledger.balance("d").spent
            expected = model.ask(query, units)
            if expected is None:
                refused += 1
                with pytest.raises(QuestionRefused) as refusal:
                    session.ask(query, **asked)
                assert (refusal.value.asked, refusal.value.left) == (price.cost, price.remaining)
                assert not price.affordable
                assert ledger.balance("d").spent == before
                continue
            answer = session.ask(query, **asked)
            assert (answer.cost, answer.case) == expected
            assert (price.cost, price.case) == expected
            assert answer.spent == before + answer.cost == sum(model.bought.values())
            assert answer.spent + answer.remaining == data.terms.cap
            assert answer.information == model.bought[keys[query]]
            assert answer.reused == answer.information - answer.cost
            cases[answer.case] += 1
        assert ledger.balance("d").spent == sum(model.bought.values())
    return cases, refused


@pytest.fixture
def no_noise(monkeypatch):
    monkeypatch.setattr(Plan, "measure", lambda self, exact, information, rng: exact)


@pytest.mark.usefixtures("no_noise")
def test_the_ledger_holds_the_most_that_was_bought_under_each_key():
    cases, refused = check_sequences(1_000, 1)
    assert refused > 100
    assert all(cases[case] > 50 for case in (Case.FRESH, Case.EQUAL, Case.REFINED, Case.COARSER)), cases


@pytest.mark.slow
@pytest.mark.usefixtures("no_noise")
def test_the_ledger_holds_it_after_a_hundred_thousand_sequences():
    check_sequences(100_000, 2)


@pytest.mark.usefixtures("no_noise")
def test_a_session_that_charges_again_would_be_noticed(monkeypatch):
    """Planted: a ledger that forgets what was bought charges in full each time."""
    monkeypatch.setattr(
        "reticent.ledger.memory.increment", lambda terms, held, units: increment(terms, 0, units)
    )
    with pytest.raises(AssertionError):
        check_sequences(100, 3)


def test_table_4_2():
    """Zhao 2022, Table 4.2: cases, and V / Delta^2 = 16 + 1 + 4/9 against 25.8478 without reuse."""
    golden = json.loads(GOLDEN.read_text())["table42"]
    asked = [(1, "1"), (2, "3"), (3, "2"), (1, "2.5"), (2, "2"), (1, "0.5"), (3, "2"), (2, "2.5"), (2, "1.5"),
             (1, "0.25"), (2, "1"), (1, "0.75"), (3, "1.5")]  # fmt: skip
    data = declared(budget=Budget(30.0, 1e-5))
    cases, naive = {}, 0
    with opened(data) as session:
        for number, (kind, sigma) in enumerate(asked, start=1):
            information = 1 / Fraction(sigma) ** 2
            answer = session.ask(
                tree.count(where=Comparison("age", "=", kind)), information=float(information)
            )
            cases.setdefault(answer.case.value, []).append(number)
            naive += answer.without_reuse
        spent = session.balance().spent
        epsilon = answer.epsilon_spent
    assert cases == golden["cases"]
    assert spent / UNITS_PER_ONE == pytest.approx(golden["V_over_Delta2"], abs=1e-11)
    assert naive / UNITS_PER_ONE == pytest.approx(golden["naive"], abs=1e-10)
    assert epsilon == pytest.approx(golden["eps_total_delta1e5"], rel=1e-9)


def test_the_total_in_epsilon_is_that_of_dp_accounting():
    """To 6 digits, as one Gaussian release; and composed from what each key cost, as fine as its grid."""
    import dp_accounting

    losses = dp_accounting.pld.privacy_loss_distribution
    data, ledger = declared(), MemoryLedger()
    with opened(data, ledger=ledger) as session:
        for query, mu2 in zip(QUESTIONS, (0.01, 0.02, 0.05, 0.3, 0.4, 0.5, 1.0, 1.1), strict=True):
            answer = session.ask(query, information=mu2)
            theirs = dp_accounting.get_epsilon_gaussian(
                1 / math.sqrt(answer.spent / UNITS_PER_ONE), BUDGET.delta
            )
            assert answer.epsilon_spent == pytest.approx(theirs, rel=1e-6)
            assert answer.epsilon_spent <= BUDGET.epsilon
        keys = {resolve(query, data).key for query in QUESTIONS}
        bought = [ledger.reading("d", key).information for key in keys]
    assert sum(bought) == answer.spent
    composed = losses.identity(1e-3)
    for units in bought:
        sigma = math.sqrt(UNITS_PER_ONE / units)
        composed = composed.compose(losses.from_gaussian_mechanism(sigma, value_discretization_interval=1e-3))
    assert composed.get_epsilon_for_delta(BUDGET.delta) == pytest.approx(answer.epsilon_spent, rel=1e-4)


# Public numbers only


class Untouchable:
    """Rows that must not be read."""

    relation, names, engine = "rows", {"age": "c0", "sex": "c1"}, "duckdb"

    def tally(self, sql):
        raise AssertionError(sql)

    def close(self):
        pass


def unreachable():
    raise AssertionError("the source was opened")


def test_a_price_never_touches_the_source():
    data = declared()
    with Session(data, unreachable, MemoryLedger()) as session:
        for query, asked in itertools.product(
            QUESTIONS, ({"error": 50.0}, {"epsilon": 1.0}, {"information": 0.1})
        ):
            case = session.price(query, **asked).case  # of two cells the public number of rows says one
            is_halved = query in (tree.histogram("sex"), tree.count(by="sex"))
            assert case is (Case.SPAN if is_halved else Case.FRESH)
            assert session.known(query) is None
        assert session.price(tree.count(), error=1.0).case is Case.PUBLIC
        assert session.count(error=1.0).value == 5000


def seen(data, sums, seed):
    """What a script of questions shows beside the answers themselves."""
    shown = []
    with opened(data, sums=sums, seed=seed) as session:
        script = [
            (tree.mean("age"), {"error": 0.5}),
            (tree.count(where=OLD), {"error": 20.0}),
            (tree.mean("age", where=OLD), {"information": 0.2}),
            (tree.mean("age", where=OLD), {"error": 1.0, "rows": 900}),
            (tree.mean("age", where=OLD), {"error": 0.9}),
            (tree.histogram("sex"), {"epsilon": 1.0}),
            (tree.variance("age", by="sex"), {"information": 0.3}),
            (tree.total("age"), {"error": 9000.0}),
            (tree.count(where=OLD), {"error": 3.0}),
            (tree.mean("age", where=OLD), {"information": 0.5}),
            (tree.histogram("sex"), {"information": 3.0}),
            (tree.mean("age"), {"information": 99.0}),
        ]
        for query, asked in script:
            price = session.price(query, **asked)
            shown.append(
                (price.cost, price.bought, price.information, price.remaining, price.case, price.affordable)
            )
            try:
                answer = session.ask(query, **asked)
            except QuestionRefused as refusal:
                shown.append((refusal.asked, refusal.left, refusal.best is None))
            else:
                told = dataclasses.replace(answer, cells=(), query=query, combined=None)
                shown.append((told, len(answer.cells), [cell.labels for cell in answer.cells]))
    return shown


def test_prices_cases_refusals_and_receipts_are_the_same_whatever_the_rows_hold():
    data = declared()
    expected = seen(data, SUMS, 1)
    assert [one for one in expected if len(one) == 3 and one[2] is False], "the script must also be refused"
    for sums in ([], [(0, 1, 120, 14_400)], [(1, 5000, 0, 0)], [(-1, 5000, 0, 0)]):
        assert seen(data, sums, 2) == expected


def test_a_refusal_says_what_is_asked_left_and_free():
    data = declared()
    with opened(data) as session:
        paid = session.mean("age", information=0.5)
        session.count(where=OLD, information=2.5)
        session._rows = Untouchable()
        with pytest.raises(QuestionRefused) as refused:
            session.mean("age", information=3.0)
        refusal = refused.value
        assert isinstance(refusal, BudgetExceeded)
        assert refusal.asked == 25 * UNITS_PER_ONE // 10
        assert refusal.left == data.terms.cap - 3 * UNITS_PER_ONE == session.balance().remaining
        assert refusal.best.cells == paid.cells
        assert refusal.best_error == paid.error
        assert refusal.reachable_error == pytest.approx(
            paid.error * math.sqrt(0.5 / (0.5 + refusal.left / 1e12))
        )
        for part in (
            "asked for 73.73 % of the budget",
            f"left is {100 * refusal.left / refusal.budget:.4g} %",
            f"within {paid.error:.6g}",
            "all that is left buys",
        ):
            assert part in str(refusal)
        with pytest.raises(QuestionRefused, match="nothing is recorded to reuse") as refused:
            session.histogram("sex", information=3.0)
        assert refused.value.best is None
        with pytest.raises(QuestionRefused, match="epsilon 2"):
            session.mean("age", information=4e6)  # far beyond any budget
        assert not refusal.if_rows  # the number of rows is public
        with pytest.raises(QuestionRefused, match=r"all that is left buys [\d.]+ if 100 rows match$"):
            session.mean("age", where="sex = 'f'", information=3.0, rows=100)


def test_a_spent_budget_still_gives_what_is_bought():
    data = declared()
    with opened(data) as session:
        session.mean("age", information=data.terms.cap / UNITS_PER_ONE)
        assert session.balance().remaining <= 1
        again = session.mean("age", information=1.0)
        assert (again.cost, again.case) == (0, Case.COARSER)
        with pytest.raises(QuestionRefused) as refused:
            session.count(where=OLD, epsilon=0.1)
        assert refused.value.reachable_error is None


# What a session is given


def test_queries_come_in_three_forms():
    with opened(declared()) as session:
        one = session.ask(tree.mean("age", where=OLD), information=0.1)
        for same in (
            {"kind": "mean", "column": "age", "where": {"column": "age", "op": ">=", "value": 40}},
            "SELECT AVG(age) FROM d WHERE age >= 40",
        ):
            assert session.ask(same, information=0.1).cells == one.cells
        with pytest.raises(ParameterTypeError, match="query must be a Query, JSON or SQL, got int"):
            session.ask(7, information=0.1)
        assert list(session.questions().values()) == [one.query]


def test_shorthands_ask_what_they_say():
    with opened(declared()) as session:
        for method, given, query in (
            ("count", {"where": OLD}, tree.count(where=OLD)),
            ("sum", {"column": "age"}, tree.total("age")),
            ("mean", {"column": "age", "by": "sex"}, tree.mean("age", by="sex")),
            ("proportion", {"of": OLD, "by": "sex"}, tree.proportion(OLD, by="sex")),
            ("variance", {"column": "age"}, tree.variance("age")),
            ("histogram", {"by": "sex"}, tree.histogram("sex")),
            (
                "quantile",
                {"column": "age", "levels": (0.1, 0.9), "bins": 12},
                tree.quantile("age", (0.1, 0.9), bins=12),
            ),
            ("median", {"column": "age", "bins": 12}, tree.median("age", bins=12)),
        ):
            assert getattr(session, method)(**given, information=0.01).query == query


def test_a_receipt_shows_the_payment(tmp_path):
    with opened(declared(), ledger=SqlLedger(tmp_path / "ledger.db"), seed=None) as session:
        answer = session.mean("age", information=0.1)
        (number,) = answer.receipt.measurements
        assert number == 0
        assert answer.receipt.log_size == session._ledger.head().size
        assert answer.receipt.log_root == session._ledger.head().root.hex()
        assert session.mean("age", information=0.1).receipt.measurements == ()
        shown = json.loads(json.dumps(answer.to_json()))
        assert shown["cost"] == str(UNITS_PER_ONE // 10)
        assert shown["receipt"]["key"] == resolve(tree.mean("age"), session.data).key


def test_answers_become_tables():
    with opened(declared()) as session:
        answer = session.mean("age", by="sex", information=0.5)
        frame, table = answer.to_pandas(), answer.to_arrow()
        assert list(frame["sex"]) == table["sex"].to_pylist() == ["f", "m"]
        assert list(frame.columns) == ["sex", "value", "standard_error", "low", "high", "unbiased"]
        head, first, *_ = answer.to_csv().splitlines()
        assert head == "sex,value,standard_error,low,high,unbiased"
        assert first.split(",")[:2] == ["f", str(frame["value"][0])]
        with pytest.raises(ParameterError, match="2 cells"):
            _ = answer.value
        assert session.median("age", bins=12, information=0.1).columns()["level"] == [0.5]


def test_no_label_of_a_csv_is_a_formula():
    given = ("=1+1", "@x", "-3", "\tx", "plain", -3.0, float("inf"))
    assert [_csv_cell(one) for one in given] == ["'=1+1", "'@x", "'-3", "'\tx", "plain", -3.0, ""]


def test_the_public_number_of_rows_is_free_and_exact():
    with opened(declared()) as session:
        answer = session.count(epsilon=0.1)
        assert (answer.value, answer.cost, answer.case) == (5000.0, 0, Case.PUBLIC)
        assert answer.interval == (5000.0, 5000.0)
    with opened(declared(relation=ADD, rows=None)) as session:
        assert session.count(epsilon=0.1).case is Case.FRESH


def test_plans_are_forgotten_in_turn():
    with opened(declared()) as session:
        for number in range(1100):
            session.price(tree.count(where=Comparison("age", ">=", number / 10)), information=0.1)
        assert len(session._plans) == 1000


def test_a_rehearsal_costs_nothing_and_reads_nothing():
    for data in (declared(), declared(relation=ADD, rows=None), declared(rows=10**9)):
        with Session(data, unreachable, MemoryLedger()) as session:
            answer = session.rehearse(tree.mean("age", by="sex"), information=0.5)
            assert [cell.labels for cell in answer.cells] == [("f",), ("m",)]
            assert answer == session.rehearse(tree.mean("age", by="sex"), information=0.5)
            assert session.balance().spent == 0


def test_a_closed_session_closes_what_it_holds(tmp_path):
    rows = Tallied(declared())
    closed = []
    rows.close = lambda: closed.append("rows")
    with contextlib.closing(Session(declared(), rows, SqlLedger(tmp_path / "ledger.db"))) as session:
        session.balance()
    assert closed == ["rows"]
