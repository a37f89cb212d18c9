"""What a survey learnt is a ledger entry: charged before it is shown, once for each period."""

import pytest

from reticent.collect.record import account, learn
from reticent.errors import BudgetExceeded
from reticent.ledger import MemoryLedger

from . import fleet


@pytest.fixture
def ledger():
    return MemoryLedger()


@pytest.fixture
def survey():
    return fleet.single("OneBit", periods=3)


def test_each_period_is_charged_once(ledger, survey):
    name = account(survey).name
    learn(ledger, survey, {0: None})
    assert ledger.balance(name).spent == survey.units
    assert len(ledger.pending(name)) == 1
    for _ in range(2):
        learn(ledger, survey, {0: 120, 1: None})
        assert ledger.balance(name).spent == 2 * survey.units
    assert [one.key for one in ledger.pending(name)] == ["period 1"]
    assert ledger.reading(name, "period 0").sums == (120 * survey.units,)


def test_a_survey_has_as_many_periods_as_it_says(ledger, survey):
    learn(ledger, survey, dict.fromkeys(range(3)))
    with pytest.raises(BudgetExceeded):
        learn(ledger, survey, {3: None})


def test_the_count_that_was_entered_stands(ledger, survey):
    learn(ledger, survey, {0: 120})
    learn(ledger, survey, {0: 999})
    assert ledger.reading(account(survey).name, "period 0").sums == (120 * survey.units,)


def test_surveys_are_kept_apart(ledger, survey):
    other = fleet.single("OneBit", periods=3, epsilon=2.0)
    learn(ledger, survey, {0: None})
    learn(ledger, other, {0: None})
    assert account(survey).name != account(other).name
    assert len(ledger.accounts()) == 2
