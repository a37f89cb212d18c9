"""A device whose reports cost a level and a delta: two accounts, both paid or neither, once."""

import pytest

from reticent.errors import BudgetExceeded, GuaranteeError, ParameterError
from reticent.fleet.reporter import Reporter
from reticent.ledger.base import Unit
from reticent.location import LocationDevice
from reticent.privacy import cost_units

from . import campaign

PHONE = campaign.enrolment(8)
HERE = (48.85, 2.35)
DELTA = 0.01


class Approximate(LocationDevice):
    """Reports of rounds that cost a delta beside their level."""

    def __init__(self, path, *, lifetime=1000.0, delta=0.03):
        self._most_jump = 5.0
        Reporter.__init__(
            self, path, PHONE, campaign.SIGNER, lifetime=lifetime, most=9.0, lifetime_delta=delta
        )

    def _delta(self, asked):
        return cost_units(DELTA)


class LevelFirst(Approximate):
    """Planted: the level is paid although the delta is not there."""

    def _paid(self, held, number, draw, *, price=None):
        values = self._memory(held).paid(number, self._price(held), draw)
        self._pay_beside(0, self._delta_amount(held), f"{self._head(held)}/{number}")
        return values


def rounds(one, count):
    return [one.take(campaign.file_of(campaign.asked(number=number, rounds=9))) for number in range(count)]


def spent(one):
    return one.ledger.balance(one.account).spent, one.ledger.balance(f"{one.account}-delta").spent


def test_both_are_paid_once_and_the_delta_runs_out(tmp_path):
    with Approximate(tmp_path / "ledger") as one:
        asked = rounds(one, 4)
        reports = [one.report(each, *HERE) for each in asked[:2]]
        paid = spent(one)
        assert paid[1] == 2 * cost_units(DELTA)
        assert one.spent_delta == pytest.approx(0.02)
        assert one.ledger.balance(f"{one.account}-delta").terms.unit is Unit.METRIC_DELTA
        assert [one.report(each, *HERE) for each in asked[:2]] == reports
        assert spent(one) == paid
    with Approximate(tmp_path / "ledger") as one:
        asked = rounds(one, 4)
        assert one.report(asked[0], *HERE) == reports[0]
        assert spent(one) == paid
        with pytest.raises(BudgetExceeded, match="places-delta"):
            one.report(asked[2], *HERE)  # 0.01 costs a unit more than a third of 0.03
        assert spent(one) == paid


def unpaid_delta(kind, folder):
    """Whether a report that the second account refuses leaves the first as it was."""
    with kind(folder / "ledger", delta=0.005) as one:
        (asked,) = rounds(one, 1)
        with pytest.raises(BudgetExceeded, match="places-delta"):
            one.report(asked, *HERE)
        return spent(one) == (0, 0)


def test_neither_is_paid_where_one_is_spent(tmp_path):
    assert unpaid_delta(Approximate, tmp_path)
    with Approximate(tmp_path / "other", lifetime=1e-6) as one:
        (asked,) = rounds(one, 1)
        with pytest.raises(BudgetExceeded, match="account places:"):
            one.report(asked, *HERE)
        assert spent(one) == (0, 0)


def test_planted_paying_the_level_first_is_found(tmp_path):
    assert not unpaid_delta(LevelFirst, tmp_path)


def test_a_crash_between_the_two_charges_nothing_twice(tmp_path, monkeypatch):
    with Approximate(tmp_path / "ledger") as one:
        (asked,) = rounds(one, 1)
        with monkeypatch.context() as broken:
            broken.setattr(one, "_memory", lambda held: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                one._paid(asked, 0, lambda: (1, 2))
        one._pay_beside(one._price(asked), one._delta_amount(asked), f"{one._head(asked)}/0")
        one.report(asked, *HERE)
        assert spent(one)[1] == cost_units(DELTA)


def test_a_device_without_a_second_account_takes_no_such_text(tmp_path):
    with Approximate(tmp_path / "ledger", delta=None) as one:
        with pytest.raises(GuaranteeError, match="costs delta, and this device has no budget for it"):
            rounds(one, 1)
        assert one.spent_delta == 0.0
    with pytest.raises(ParameterError, match="lifetime_delta must be > 0 and <= 1, got 2"):
        Approximate(tmp_path / "third", delta=2.0)


def test_what_the_collector_counted_is_paid_from_both(tmp_path):
    with Approximate(tmp_path / "ledger") as one:
        (asked,) = rounds(one, 1)
        one._settle_both(asked, f"{one._head(asked)}/0")
        assert spent(one) == (one._price(asked), cost_units(DELTA))
