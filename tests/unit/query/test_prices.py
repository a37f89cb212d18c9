"""What an answer must cost to be as exact as asked: asked against got, rounding, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.ledger import MemoryLedger
from reticent.privacy import mu_of
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query import By, Case, Column, DataSet, Kind, Session
from reticent.query.accuracy import Accuracy
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.language.tree import Comparison
from reticent.query.measure import plan
from reticent.query.prices import assumed_rows, predicted_error, units_for_error
from reticent.randomness import SimulationStream

from .tables import ADD, BUDGET, REPLACE, Tallied

COLUMNS = (
    Column("pay", Kind.NUMBER, low=-50, high=350, step=0.5),
    Column("sex", Kind.CATEGORY, values=("f", "m")),
    Column("age", Kind.INTEGER, low=0, high=119),
)
OLD = Comparison("age", ">=", 60)
ROWS = 40_000


def declared(relation=REPLACE):
    return DataSet("d", "1", COLUMNS, BUDGET, relation, ROWS if relation is REPLACE else None)


def opened(data, sums, seed=1):
    return Session(data, Tallied(data, sums), MemoryLedger(), rng=SimulationStream(seed))


def spread_out(rows):
    """The sums of so many values, evenly over the range of `pay`."""
    codes = np.linspace(-100, 700, rows).round().astype(int)
    return rows, int(codes.sum()), int((codes**2).sum())


# Asked against got


@pytest.mark.parametrize(
    ("query", "relation", "error"),
    [
        (tree.count(where=OLD), REPLACE, 30.0),
        (tree.count(), ADD, 12.0),
        (tree.total("pay"), REPLACE, 5_000.0),
        (tree.total("pay", where=OLD), ADD, 9_000.0),
        (tree.mean("pay"), REPLACE, 0.25),
        (tree.proportion(OLD), REPLACE, 0.001),
        (tree.histogram("sex"), REPLACE, 40.0),
        (tree.total("pay", by="sex"), ADD, 10_000.0),
    ],
)
def test_the_error_is_the_one_that_was_asked(query, relation, error):
    """To the unit: nothing dearer than needed, nothing wider than asked."""
    data = declared(relation)
    half = spread_out(ROWS // 2)
    with opened(data, [(cell, *half) for cell in (0, 1)]) as session:
        price = session.price(query, error=error)
        answer = session.ask(query, error=error)
    assert price.cost == answer.cost
    halves = 2 if query.kind == "histogram" else 1  # one cell is all rows less the other
    assert answer.cost == pytest.approx(answer.information / halves, rel=1e-8)
    assert answer.error == pytest.approx(error, rel=1e-7)
    assert answer.error <= error * (1 + 1e-12)
    assert price.error == pytest.approx(error, rel=1e-9)
    measured = plan(resolve(query, data))
    assert predicted_error(query, measured, price.information - 2, 0.95, 1.0) > error * (1 - 1e-15)


@pytest.mark.parametrize("relation", [REPLACE, ADD])
@pytest.mark.parametrize(
    ("query", "error"),
    [
        (tree.mean("pay", where=OLD), 3.0),
        (tree.proportion(Comparison("pay", ">", 100), where=OLD), 0.01),
        (tree.mean("pay", by="sex"), 2.0),
        (tree.variance("pay", where=OLD), 700.0),
        (tree.variance("pay", by="sex"), 500.0),
    ],
)
def test_a_right_guess_of_the_rows_gives_at_most_about_the_error_asked(query, relation, error):
    """The price is that of a mean at a bound, where the noise of the count tells most; others get it better.

    The interval depends on the noise of the count; the price does not, and asking again is free.
    """
    rows = 10_000
    sums = spread_out(rows)
    if query.kind == "proportion":
        sums = (rows, 6_000, 0)
    with opened(declared(relation), [(cell, *sums) for cell in (0, 1)]) as session:
        asked = {"error": error, "rows": rows, "reuse": "key"}
        price = session.price(query, **asked)
        assert price.error == pytest.approx(error, rel=1e-6)
        first = session.ask(query, **asked)
        assert first.cost == price.cost
        assert 0.5 * error < first.error < 1.05 * error
        again = session.ask(query, **asked)
        assert (again.cost, again.cells) == (0, first.cells)


def test_a_variance_far_from_the_middle_is_wider_than_asked_and_free_when_asked_again():
    """Its error is predicted for a mean in the middle of the range: at a bound it is up to twice that."""
    codes = np.array([690] * (ROWS // 2) + [700] * (ROWS // 2))
    with opened(declared(), [(0, ROWS, int(codes.sum()), int((codes**2).sum()))]) as session:
        first, again = (session.variance("pay", error=50.0) for _ in range(2))
        assert 50.0 < first.error < 100.0
        assert (again.cost, again.cells) == (0, first.cells)
        assert session.variance("pay", error=25.0).error < 50.0


@pytest.mark.parametrize("relation", [REPLACE, ADD])
def test_the_price_is_right_for_a_mean_at_a_bound(relation):
    """Here next to it: an interval at the bound itself is cut in half."""
    rows, code = 10_000, 690
    with opened(declared(relation), [(0, rows, rows * code, rows * code**2)]) as session:
        answer = session.mean("pay", where=OLD, error=3.0, rows=rows)
    assert answer.error == pytest.approx(3.0, rel=0.05)


def test_the_error_of_a_quantile_is_one_of_its_rank():
    """At the median the rank is a sum over half of the bins, less half of all: sigma sqrt(bins) / 2, of n."""
    data, bins = declared(), 60
    query = tree.median("age", bins=bins)
    measured = plan(resolve(query, data))
    with opened(data, [(cell, ROWS // bins, 0, 0) for cell in range(bins)]) as session:
        price = session.price(query, error=0.01)
        assert price.error == pytest.approx(0.01)
        sigma = measured.noise(price.information).sigma * 2.0**-measured.shift
        assert 1.959964 * sigma * math.sqrt(bins) / 2 / ROWS == pytest.approx(0.01, rel=1e-6)
        answer = session.ask(query, error=0.01)
    # Ages are even over 0 to 119: one per cent of rank is 1.2 years, and ends go to whole bins of 2 years.
    assert answer.interval[0] <= 60 <= answer.interval[1]
    assert answer.error <= 1.2 + 2 * 2


def test_a_quantile_of_a_private_number_of_rows_needs_a_guess():
    data = declared(ADD)
    with opened(data, [(0, 100, 0, 0)]) as session:
        with pytest.raises(ParameterError, match="rows must be given with error"):
            session.price(tree.median("age"), error=0.01)
        dear, cheap = (session.price(tree.median("age"), error=0.01, rows=n).cost for n in (1000, 2000))
        assert dear == pytest.approx(4 * cheap)
        assert session.price(tree.median("age"), information=0.1).error is None


def test_an_error_that_is_met_already_is_free_and_coarser():
    with opened(declared(), [(0, *spread_out(ROWS))]) as session:
        for query, finer, coarser in ((tree.mean("pay"), 0.5, 2.0), (tree.mean("pay", where=OLD), 1.0, 6.0)):
            session.ask(query, information=1.0)
            for error in (coarser, finer):
                price, answer = session.price(query, error=error), session.ask(query, error=error)
                assert (answer.cost, price.cost) == (0, 0)
                assert answer.case is price.case is Case.COARSER
        assert session.mean("pay", error=0.015).case is Case.REFINED
        assert session.mean("pay", error=0.015).case is Case.EQUAL
        assert session.price(tree.mean("pay"), error=0.015).case is Case.EQUAL


def test_rows_are_assumed_from_public_numbers():
    public, private = declared(), declared(ADD)
    for query, data, guess, expected in (
        (tree.mean("pay", by="sex"), public, None, ROWS / 2),
        (tree.mean("pay", by="sex"), public, 10, 10.0),
        (tree.mean("pay", by="sex"), private, None, None),
        (tree.variance("pay"), public, 10, float(ROWS)),
        (tree.total("pay"), private, None, 1.0),
        (tree.median("age"), public, None, float(ROWS)),
        (tree.median("age"), private, None, None),
        (tree.histogram(By("age", bins=4)), private, None, 1.0),
    ):
        assert assumed_rows(query, plan(resolve(query, data)), guess) == expected


# Rounding


def units(**asked):
    query = tree.count(where=OLD)
    return Accuracy(**asked).units(query, plan(resolve(query, declared())), BUDGET, 1.0)


def test_information_and_epsilon_round_down_and_errors_round_up():
    assert units(information=0.1) == 10**11
    assert units(information=math.nextafter(0.1, 0)) == 10**11 - 1
    assert units(information=1.9e-12) == 1
    assert units(epsilon=1.0, delta=1e-5) == math.floor(Fraction(mu_of(1.0, 1e-5)) ** 2 * UNITS_PER_ONE)
    assert units(epsilon=1.0) == units(epsilon=1.0, delta=BUDGET.delta)
    assert units_for_error(3.0, 3.0, 7) == 7
    assert units_for_error(math.nextafter(3.0, 0), 3.0, 7) == 8
    assert units_for_error(math.nextafter(3.0, 4), 3.0, 7) == 7
    assert units_for_error(30.0, 3.0, 7) == 1


def test_an_answer_for_epsilon_alone_keeps_it():
    with opened(declared(), [(0, 10, 0, 0)]) as session:
        for epsilon in (0.1, 1.0, 3.0):
            price = session.price(tree.count(where=OLD), epsilon=epsilon)
            assert price.epsilon <= epsilon
            assert price.epsilon == pytest.approx(epsilon, rel=1e-6)


# What is refused


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "accuracy must be one of error, epsilon or information, got nothing"),
        ({"error": 1.0, "epsilon": 1.0}, "got error and epsilon"),
        ({"error": 1.0, "information": 1.0, "epsilon": 1.0}, "got error and epsilon and information"),
        ({"information": 1.0, "delta": 1e-5}, "delta must come with epsilon"),
        ({"delta": 1e-5}, "got nothing"),
        ({"error": math.nan}, "error must be"),
        ({"error": math.inf}, "error must be"),
        ({"error": 0.0}, "error must be > 0"),
        ({"error": -1.0}, "error must be > 0"),
        ({"epsilon": 0.0}, "epsilon must be > 0"),
        ({"epsilon": math.nan}, "epsilon must be"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta must be"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta must be"),
        ({"epsilon": 1.0, "delta": math.nan}, "delta must be"),
        ({"information": -0.5}, "information must be > 0"),
        ({"information": math.inf}, "information must be"),
        ({"information": 1e-13}, "information must be a larger number"),
        ({"information": 1e9}, "cap must be <="),
        ({"error": 1e-9}, "error must be a larger number"),
        ({"epsilon": 1e-9, "delta": 1e-9}, "epsilon must be a larger number"),
        ({"error": 1.0, "confidence": 0.4}, "confidence must be"),
        ({"error": 1.0, "confidence": 1.0}, "confidence must be"),
        ({"error": 1.0, "confidence": math.nan}, "confidence must be"),
        ({"error": 1.0, "rows": 0}, "rows must be"),
        ({"error": 1.0, "rows": 1 << 40}, "rows must be"),
    ],
)
def test_bad_accuracy_is_refused_and_costs_nothing(asked, said):
    with opened(declared(), [(0, 10, 0, 0)]) as session:
        for verb in (session.price, session.ask):
            with pytest.raises(ParameterError, match=said):
                verb(tree.count(where=OLD), **asked)
        assert session.balance().spent == 0


@pytest.mark.parametrize(
    "asked", [{"error": "1"}, {"epsilon": True}, {"information": [1.0]}, {"error": 1.0, "rows": 1.5}]
)
def test_accuracy_of_a_wrong_type_is_refused(asked):
    with opened(declared(), [(0, 10, 0, 0)]) as session, pytest.raises((ParameterTypeError, ParameterError)):
        session.ask(tree.count(where=OLD), **asked)


def test_the_least_purchase_is_charged_for_less():
    """mathematics 4.8: one millionth of the cap."""
    data = declared()
    minimum = data.terms.minimum
    assert minimum == data.terms.cap // 10**6
    with opened(data, [(0, 10, 0, 0)]) as session:
        query = tree.count(where=OLD)
        price = session.price(query, information=2e-12)
        answer = session.ask(query, information=2e-12)
        assert price.cost == answer.cost == answer.information == minimum
        assert answer.without_reuse == minimum
        assert session.ask(query, information=(minimum + 1) / UNITS_PER_ONE).cost == minimum


# As one, or word by word


def test_an_accuracy_is_given_as_one_or_word_by_word():
    one = Accuracy(error=3.0, confidence=0.9, rows=40)
    assert one.words() == {"error": 3.0, "confidence": 0.9, "rows": 40}
    assert Accuracy.of(None, one.words()) == one
    assert Accuracy.of(one, {}) is one
    with pytest.raises(ParameterError, match="as one or word by word, got rows too"):
        Accuracy.of(one, {"rows": 40})
    with pytest.raises(TypeError, match="eror"):
        Accuracy.of(None, {"eror": 3.0})


def test_a_session_takes_either():
    asked = tree.total("pay")
    with opened(declared(), [(0, *spread_out(ROWS))]) as session:
        assert session.price(asked, Accuracy(error=5_000.0)) == session.price(asked, error=5_000.0)
        assert session.ask(asked, Accuracy(error=5_000.0)).cost > 0
        assert session.ask(asked, error=5_000.0).cost == 0
        assert session.free(asked, Accuracy(error=5_000.0)) == session.reused(asked, error=5_000.0)
