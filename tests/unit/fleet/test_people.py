"""Surveys and trainings under the account of people: what operators show is added to what tables reveal."""

import contextlib
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.errors import AccountConflict, BudgetExceeded, LedgerError, MixedGuarantees
from reticent.federated.server import Round, study
from reticent.fleet import people as peoples
from reticent.fleet.people import People, not_added, price, under
from reticent.fleet.record import Record, Study
from reticent.ledger import Amount, SqlLedger, Terms, Unit
from reticent.ledger.verify import verify
from reticent.privacy import UNITS_PER_ONE, Budget, Neighbours, PureDP, mu2_cost
from reticent.randomness import SimulationStream

from ..federated import people as training
from ..operating import operator

ONE = UNITS_PER_ONE
WHO = People("people:patients", "ab" * 16, 1)
HALF = Study(
    "survey", b"12345678", "one device", Unit.EPSILON, Neighbours.ANY_TWO_VALUES, ONE // 2, 100, part="period"
)
PLACES = Study("campaign", b"12345678", "one device", Unit.EPSILON_PER_KM, Neighbours.METRIC, ONE, 3)


def opened(ledger, neighbours=Neighbours.REPLACE_ONE, epsilon=8.0):
    cap = Budget(epsilon, 1e-4).mu2_cap
    ledger.open(Terms(WHO.account, Unit.MU2, neighbours, f"one person [{WHO.identity}]", cap, cap // 10**6))
    return Record(ledger)


@pytest.fixture
def ledger(tmp_path):
    with SqlLedger(tmp_path / "ledger.sqlite") as found:
        yield found


def spent(ledger):
    return ledger.balance(WHO.account).spent


class TestPrices:
    @given(st.integers(1, 20 * ONE), st.integers(1, 5))
    def test_a_pure_report_costs_what_its_epsilon_does(self, units, devices):
        due = Fraction(units * devices, ONE)
        assert price(Unit.EPSILON, units, devices) >= mu2_cost(PureDP(float(due) * (1 - 1e-15)))
        # the corner of the trade-off curve of a pure epsilon is not below the Gaussian one
        mu = math.sqrt(price(Unit.EPSILON, units, devices) / ONE)
        assert math.erf(mu / 2 / math.sqrt(2)) >= math.tanh(float(due) / 2) * (1 - 1e-9)

    def test_gaussian_reports_of_several_devices(self):
        assert price(Unit.MU2, ONE, 1) == ONE
        assert price(Unit.MU2, ONE, 3) == 9 * ONE

    def test_distances_have_no_price(self):
        with pytest.raises(MixedGuarantees, match="epsilon_per_km cannot be added"):
            price(Unit.EPSILON_PER_KM, ONE, 1)


class TestUnder:
    def test_every_part_is_charged_once_and_the_cap_holds(self, ledger):
        record = opened(ledger)
        record.put_under(HALF, WHO)
        each, shown = price(Unit.EPSILON, HALF.units, 1), 0
        for number in range(16):
            with contextlib.suppress(BudgetExceeded):
                for _ in range(2):
                    Record(ledger).learn(HALF, {number: None})
                record.learn(HALF, {number: 7})
                shown += 1
        assert shown == ledger.balance(WHO.account).terms.cap // each
        assert spent(ledger) == shown * each
        assert verify(ledger).accounts == 3

    def test_the_check_finds_a_part_that_its_people_do_not_pay(self, ledger, monkeypatch):
        """Planted: the study's own account is charged alone, as before."""
        monkeypatch.setattr(peoples, "of_study", lambda *_: None)
        with pytest.raises(AssertionError, match="assert 16 == "):
            self.test_every_part_is_charged_once_and_the_cap_holds(ledger)

    def test_what_was_shown_before_is_charged(self, ledger):
        record = opened(ledger)
        record.learn(HALF, {0: 7, 3: None})
        assert record.put_under(HALF, WHO) == spent(ledger) == 2 * price(Unit.EPSILON, HALF.units, 1)
        assert record.put_under(HALF, WHO) == 0
        record.learn(HALF, {0: 7, 3: 9})
        assert spent(ledger) == 2 * price(Unit.EPSILON, HALF.units, 1)

    def test_more_before_than_is_left_leaves_nothing(self, ledger):
        record = opened(ledger, epsilon=1.0)
        record.learn(HALF, dict.fromkeys(range(9)))
        record.put_under(HALF, WHO)
        assert ledger.balance(WHO.account).remaining == 0
        assert record.put_under(HALF, WHO) == 0
        with pytest.raises(BudgetExceeded):
            record.learn(HALF, {9: 1})

    def test_either_of_two_at_once_sees_the_other(self, ledger, monkeypatch):
        """Another process enters a part between the note and the look at what was entered, and after it."""
        record, other = opened(ledger), Record(ledger)
        reading = ledger.reading

        def between(account, key):
            if account != WHO.account and not other._entered:
                other.learn(HALF, {0: None, 99: None})
            return reading(account, key)

        monkeypatch.setattr(ledger, "reading", between)
        record.put_under(HALF, WHO)
        assert spent(ledger) == 2 * price(Unit.EPSILON, HALF.units, 1)

    def test_data_sets_and_studies_share_the_cap(self, ledger):
        record = opened(ledger)
        record.put_under(HALF, WHO)
        left = ledger.balance(WHO.account).remaining
        ledger.request(WHO.account, "count/x", Amount(left, Unit.MU2, Neighbours.REPLACE_ONE))
        with pytest.raises(BudgetExceeded):
            record.learn(HALF, {0: 3})

    def test_under_one_account_for_ever(self, ledger):
        record = opened(ledger)
        record.put_under(HALF, WHO)
        with pytest.raises(AccountConflict, match="for ever"):
            record.put_under(HALF, People(WHO.account, WHO.identity, 2))

    def test_people_elsewhere(self, ledger):
        with pytest.raises(LedgerError, match="people:patients is not in this ledger"):
            Record(ledger).put_under(HALF, WHO)
        record = opened(ledger)
        with pytest.raises(LedgerError, match="people:patients is not in this ledger"):
            record.put_under(HALF, People(WHO.account, "c" * 32, 1))

    def test_distances_are_refused(self, ledger):
        record = opened(ledger)
        with pytest.raises(MixedGuarantees, match="epsilon per km does not add to mu2"):
            record.put_under(PLACES, WHO)
        assert under(ledger.accounts()) == {}

    def test_people_who_may_be_absent_take_no_study(self, ledger):
        record = opened(ledger, Neighbours.ADD_REMOVE_ONE)
        with pytest.raises(MixedGuarantees, match="hides what it says, not that somebody took part"):
            record.put_under(HALF, WHO)


def test_a_training_under_spent_people_steps_no_more(ledger):
    """A round whose people have nothing left is not told: neither shown nor used."""
    task = training.task("PM", 8, 3, epsilon=2.0)
    held = operator(training.MASTER, ledger)
    opened(ledger, epsilon=2.0)
    rounds = [Round(task, number, held) for number in range(2)]
    for one in rounds:
        one.add([training.report(task, training.enrolment(1), one.number, [0.1] * 8, SimulationStream(1))])
    assert rounds[0].gradient().any()
    held.record.put_under(study(task), WHO)
    assert ledger.balance(WHO.account).remaining == 0  # what was told before counts
    with pytest.raises(BudgetExceeded, match="people:patients"):
        rounds[1].gradient()


def test_what_is_not_added_is_said(ledger):
    record = Record(ledger)
    record.learn(HALF, {0: 3})
    assert not_added(ledger.accounts()) == []
    opened(ledger)
    record.learn(PLACES, {0: 3})
    campaign, survey = (f"{one.kind}:{one.id.hex()}" for one in (PLACES, HALF))
    assert not_added(ledger.accounts()) == [
        f"{campaign} is added to no account of people: epsilon per km does not add to mu2.",
        f"{survey} is added to no account of people: nobody said that these are the same people.",
    ]
    record.put_under(HALF, WHO)
    assert under(ledger.accounts()) == {survey: "people:patients"}
    assert len(not_added(ledger.accounts())) == 1
