"""How the answers of a session hang together: reuse, refinement, and what is degraded."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from reticent.errors import (
    ParameterTypeError,
    QuestionRefused,
)
from reticent.ledger import SqlLedger
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query import By, Case, Column, DataSet, Kind, Policy
from reticent.query.degrade import degraded
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.measure import plan
from reticent.query.notebook import Notebook

from .asked_sessions import STANDARD_ERRORS, declared, opened
from .tables import BUDGET

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


# How answers hang together


CELLS = 4_000


BINS = Column("x", Kind.INTEGER, low=1, high=CELLS)


MANY = tree.histogram(By("x", bins=CELLS))


def many(**changes):
    """A data set whose histogram repeats one experiment 4,000 times, with exact counts of 7."""
    data = DataSet("many", "1", (BINS,), **{"budget": BUDGET, "rows": 7 * CELLS, **changes})
    return data, [(cell, 7, 0, 0) for cell in range(CELLS)]


def noise_of(answer):
    """The errors of all cells, in units of the sensitivity sqrt 2."""
    return (np.array([cell.estimate.unbiased for cell in answer.cells]) - 7.0) / math.sqrt(2.0)


def check_covariance(one, other, expected):
    """False alarms: 4e-8. Both are normal with mean 0; Var(xy) = Var x Var y + Cov^2."""
    spread = math.sqrt((one.var() * other.var() + expected**2) / one.size)
    return abs(float((one * other).mean()) - expected) < STANDARD_ERRORS * spread


LEVELS = (0.1, 0.3, 0.4, 1.5)


def check_refinement(answers):
    """Cov(best at b, best at b') = D^2 / b' for b <= b'."""
    pairs = itertools.combinations_with_replacement(zip(LEVELS, answers, strict=True), 2)
    return all(check_covariance(one, other, 1 / b) for (_, one), (b, other) in pairs)


@pytest.mark.parametrize("seed", [5, None], ids=["simulated", "production"])
def test_successive_answers_covary_as_predicted(seed):
    data, sums = many()
    with opened(data, sums=sums, seed=seed) as session:
        answers = [noise_of(session.ask(MANY, information=level)) for level in LEVELS]
        assert np.array_equal(noise_of(session.ask(MANY, information=0.2)), answers[-1])  # the best there is
    assert check_refinement(answers)


def test_planted_reuse_is_noticed():
    """Fresh noise for each answer, or an even mean of old and new, both with the right variance."""
    rng = np.random.default_rng(7)
    fresh = [rng.normal(0, 1 / math.sqrt(level), CELLS) for level in LEVELS]
    assert not check_refinement(fresh)
    answers, held = [], None
    for level in LEVELS:  # Case 2B with r = 1/2 instead of sigma_m^2 / sigma_j^2
        wanted = 1 / level
        reused = np.zeros(CELLS) if held is None else held / 2
        rest = wanted - (0 if held is None else held.var() / 4)
        held = reused + rng.normal(0, math.sqrt(max(rest, 0)), CELLS)
        answers.append(held)
    assert not check_refinement(answers)


# Degrading


def test_coarser_answers_are_nested():
    """Cov(A_s, A_t) = D^2 / max(s, t), in whatever order they are asked, before and after a refinement."""
    data, sums = many(policy=Policy.DEGRADE)
    with opened(data, sums=sums) as session:
        levels = [0.5, 0.1, 0.3, 0.05, 0.2, 1.0, 0.7, 0.5, 0.4]
        answers = [(level, noise_of(session.ask(MANY, information=level))) for level in levels]
        assert session.balance().spent == UNITS_PER_ONE
    for (s, one), (t, other) in itertools.combinations_with_replacement(answers, 2):
        assert check_covariance(one, other, 1 / max(s, t)), (s, t)


def test_many_free_answers_average_to_nothing_better_than_the_finest():
    """The best linear mean of all coarser answers puts no weight on any but the finest."""
    data, sums = many(policy=Policy.DEGRADE)
    with opened(data, sums=sums) as session:
        session.ask(MANY, information=1.0)
        coarse = np.array(
            [noise_of(session.ask(MANY, information=t)) for t in (0.2, 0.1, 0.15, 0.19, 0.199, 0.12)]
        )
        assert all(session.ask(MANY, information=0.2).case is Case.COARSER for _ in range(3))
    assert best_mean_variance(coarse) > 5.0 * (1 - STANDARD_ERRORS * math.sqrt(2 / CELLS))
    rng = np.random.default_rng(8)
    base = rng.normal(0, 1.0, CELLS)
    planted = np.array(
        [base + rng.normal(0, math.sqrt(1 / t - 1), CELLS) for t in (0.2, 0.1, 0.15, 0.19, 0.199, 0.12)]
    )
    assert best_mean_variance(planted) < 4.0  # independent draws: six free answers for less than the finest


def best_mean_variance(answers):
    """The variance of the mean with the best weights, from the answers' own covariances."""
    covariance = answers @ answers.T / answers.shape[1]
    weights = np.linalg.solve(covariance, np.ones(len(answers)))
    weights /= weights.sum()
    return float((weights @ answers).var())


def test_the_same_coarse_request_shows_the_same_draw_for_ever(tmp_path):
    data = declared(policy=Policy.DEGRADE)
    shown = []
    for _ in range(2):
        ledger, notebook = SqlLedger(tmp_path / "ledger.db"), Notebook(tmp_path / "notebook.db")
        with opened(data, ledger=ledger, notebook=notebook, seed=None) as session:
            session.histogram("sex", information=1.0)
            shown += [session.histogram("sex", information=t).cells for t in (0.25, 0.5, 0.25)]
    assert shown[:3] == shown[3:]
    assert shown[0] == shown[2] != shown[1]


def test_a_paid_answer_stays_the_answer_at_its_level():
    """Else somebody who paid for b would get a second, independent draw at b once another has bought more."""
    data, sums = many(policy=Policy.DEGRADE)
    with opened(data, sums=sums) as session:
        paid = noise_of(session.ask(MANY, information=0.25))
        finer = noise_of(session.ask(MANY, information=1.0))
        again = session.ask(MANY, information=0.25)
        assert (again.case, again.cost) == (Case.COARSER, 0)
        assert np.array_equal(noise_of(again), paid)
        below = noise_of(session.ask(MANY, information=0.1))
    assert check_covariance(below, paid, 4.0)
    assert check_covariance(below - paid, paid, 0.0)
    assert check_covariance(below - paid, finer, 0.0)


def test_a_degraded_answer_is_worth_what_was_asked():
    data = declared(policy=Policy.DEGRADE)
    with opened(data) as session:
        assert session.known(tree.mean("age")) is None
        session.mean("age", information=1.0)
        assert session.known(tree.mean("age")) is None  # committed, not readable
        coarse = session.mean("age", error=0.5)
        assert coarse.error == pytest.approx(0.5)
        assert coarse.information == session.price(tree.mean("age"), error=0.5).information
        with pytest.raises(QuestionRefused, match="nothing is recorded") as refused:
            session.mean("age", information=9.0)
        assert refused.value.best is None


def test_a_draw_that_fails_leaves_no_trace():
    data = declared(policy=Policy.DEGRADE)
    measured = plan(resolve(tree.mean("age"), data))
    notebook = Notebook()
    with pytest.raises(ParameterTypeError):
        degraded(measured, [Fraction(1)], 10, 5, notebook, "no stream")
    with notebook.drawing(measured.question.key) as drawn:
        assert drawn == {}
