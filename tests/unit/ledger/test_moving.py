"""An account that moves: the sum counts, nothing is left behind, and a crash anywhere is made good."""

import pytest

from reticent.errors import AccountConflict, BudgetExceeded, MeasurementVoid
from reticent.ledger import Amount, SqlLedger, Terms, Unit
from reticent.ledger.sql.batch import Batch
from reticent.ledger.sql.moving import hand_over, take_over
from reticent.ledger.verify import verify
from reticent.privacy import Neighbours

REPLACE = Neighbours.REPLACE_ONE
TERMS = Terms("census", Unit.MU2, REPLACE, "one row of census", 1000, 5)


def buy(ledger, key, information, values=(3, -4)):
    grant = ledger.request("census", key, Amount(information, Unit.MU2, REPLACE))
    for one in grant.pending:
        ledger.fulfil(one.number, values)
    return grant


@pytest.fixture
def left(tmp_path):
    with SqlLedger(tmp_path / "left.sqlite") as ledger:
        ledger.open(TERMS)
        yield ledger


@pytest.fixture
def right(tmp_path):
    with SqlLedger(tmp_path / "right.sqlite") as ledger:
        ledger.open(TERMS)
        yield ledger


def test_all_that_was_bought_comes_along(left, right):
    buy(left, "a", 100)
    buy(left, "a", 150, (5, 6))
    buy(left, "b", 70, (1,))
    buy(right, "a", 40, (7, 7))
    taken = take_over(right, TERMS, hand_over(left, "census", "right", TERMS))
    assert (taken.charged, taken.over) == (220, 0)
    assert right.balance("census").spent == 260
    both = right.reading("census", "a")
    assert (both.information, both.sums) == (190, (40 * 7 + 100 * 3 + 50 * 5, 40 * 7 - 100 * 4 + 50 * 6))
    assert right.reading("census", "b").sums == (70,)
    assert buy(right, "a", 190).charged == 0  # what was bought in either is free
    for ledger in (left, right):
        verify(ledger)


def test_nothing_is_left_to_spend(left, right):
    buy(left, "a", 100)
    hand_over(left, "census", "right", TERMS)
    assert left.balance("census").remaining == 0
    with pytest.raises(BudgetExceeded):
        buy(left, "b", 5)


def test_moving_again_changes_nothing(left, right):
    buy(left, "a", 100)
    first = hand_over(left, "census", "right", TERMS)
    assert hand_over(left, "census", "right", TERMS) == first  # after a crash
    take_over(right, TERMS, first)
    assert take_over(right, TERMS, first).charged == 0
    assert right.balance("census").spent == 100


def test_what_both_spent_beyond_the_cap_leaves_nothing(left, right):
    buy(left, "a", 900)
    buy(right, "b", 900)
    taken = take_over(right, TERMS, hand_over(left, "census", "right", TERMS))
    assert (taken.charged, taken.over) == (100, 900)
    assert right.balance("census").remaining == 0
    assert right.reading("census", "a").information == 0
    verify(right)
    assert take_over(right, TERMS, hand_over(left, "census", "right", TERMS)).charged == 0


def test_a_full_account_takes_over_and_says_so(left, right):
    buy(left, "a", 500)
    buy(right, "b", 998)
    assert take_over(right, TERMS, hand_over(left, "census", "right", TERMS)).over == 500
    assert right.balance("census").spent == 998


def test_what_is_being_drawn_never_leaves(left, right):
    """Somebody has paid in the old ledger and draws: the values are refused, and so not released."""
    grant = left.request("census", "a", Amount(100, Unit.MU2, REPLACE))
    history = hand_over(left, "census", "right", TERMS)
    with pytest.raises(MeasurementVoid):
        left.fulfil(grant.pending[0].number, (1, 2))
    assert (history.spent, history.lost, history.recorded) == (100, 100, ())
    take_over(right, TERMS, history)
    assert right.balance("census").spent == 100  # it stays paid for
    assert right.pending("census") == []
    assert right.reading("census", "a").information == 0
    for ledger in (left, right):
        verify(ledger)


def test_the_check_finds_a_move_that_leaves_drawing_open(left, monkeypatch):
    """Planted: pending measurements stay open, and a second draw of what was paid once can leave."""
    monkeypatch.setattr(Batch, "close_pending", lambda *_: None)
    grant = left.request("census", "a", Amount(100, Unit.MU2, REPLACE))
    hand_over(left, "census", "right", TERMS)
    left.fulfil(grant.pending[0].number, (1, 2))  # what the test above finds


def test_the_check_finds_a_move_that_leaves_budget(left, right, monkeypatch):
    """Planted: the old account is not closed."""
    monkeypatch.setattr(Batch, "pay", lambda *_: None)
    buy(left, "a", 100)
    take_over(right, TERMS, hand_over(left, "census", "right", TERMS))
    buy(left, "b", 5)
    assert left.balance("census").spent + right.balance("census").spent > 200


def test_the_check_finds_a_mark_that_is_ignored(left, right, monkeypatch):
    """Planted: a second try charges again."""
    buy(left, "a", 100)
    history = hand_over(left, "census", "right", TERMS)
    monkeypatch.setattr(Batch, "is_answered", lambda *_: False)
    take_over(right, TERMS, history)
    with pytest.raises(Exception, match="idempotency"):  # the ledger's own rule stands behind it
        take_over(right, TERMS, history)


def test_other_accounts_of_a_ledger_stay(left, right):
    other = Terms("town", Unit.MU2, REPLACE, "one row of town", 50)
    left.open(other)
    grant = left.request("town", "k", Amount(10, Unit.MU2, REPLACE))
    hand_over(left, "census", "right", TERMS)
    left.fulfil(grant.pending[0].number, (1,))
    assert left.balance("town").remaining == 40


@pytest.mark.parametrize("change", [{"cap": 999}, {"minimum": 4}, {"neighbours": Neighbours.ADD_REMOVE_ONE}])
def test_other_terms_are_not_taken_over(left, right, change):
    from dataclasses import replace

    buy(left, "a", 100)
    with pytest.raises(AccountConflict, match="account census cannot take over census: unit, neighbours"):
        hand_over(left, "census", "right", replace(TERMS, **change))
    assert left.balance("census").spent == 100  # it goes on there
    with pytest.raises(AccountConflict, match="account census cannot take over census: unit, neighbours"):
        take_over(right, replace(TERMS, **change), hand_over(left, "census", "right", TERMS))
    assert right.balance("census").spent == 0
