"""Verification names the first place that is wrong, and holds answers against charges."""

import sqlite3
from contextlib import closing
from unittest import mock

import pytest

from reticent.errors import LedgerDamaged
from reticent.ledger import SqlLedger
from reticent.ledger import verify as module
from reticent.ledger.verify import verify

from .tampered_ledgers import TERMS, amount, copy, filled, template

__all__ = ["copy", "template"]  # fixtures


PLACES = [
    ("DELETE FROM entry WHERE number = 9", "entry 9 is missing"),
    ("DELETE FROM entry WHERE number = 344", "entry 344 is missing"),
    ("INSERT INTO entry VALUES (9999, '{}')", "the table entry has rows that no entry speaks of"),
    ("UPDATE node SET hash = zeroblob(32)", "entries 0 to 255 do not have the hash kept for them"),
    ("DELETE FROM node", "entries 0 to 255 do not have the hash kept for them"),
    ("INSERT INTO node VALUES (20, 5, zeroblob(32))", "the table node has rows that no entry speaks of"),
    ("DELETE FROM account WHERE id = 2", "account 2 is missing"),
    ("UPDATE account SET nonce = 5 WHERE id = 2", "account 2: its nonce is no byte string"),
    (
        "UPDATE account SET nonce = zeroblob(32) WHERE id = 2",
        "account 2: its name is not the one of entry 3",
    ),
    ("DELETE FROM measurement WHERE number = 3", "measurements 0 to 162: a row is missing"),
    (
        "UPDATE measurement SET information = information + 1 WHERE number = 3",
        "measurement 3: its row is not what entry 12 says",
    ),
    ("UPDATE bought SET nonce = zeroblob(32) WHERE id = 3", "key 3: its name is not the one of entry 12"),
    (
        "UPDATE measurement SET nonce = zeroblob(32) WHERE number = 3",
        "measurement 3: its values are not those of entry 14",
    ),
    (
        "UPDATE measurement SET recorded = NULL, nonce = NULL WHERE number = 3",
        "measurement 3: its values are not those of entry 14",
    ),
    (
        "UPDATE measurement SET recorded = '1', nonce = zeroblob(32) WHERE number = 2",
        "measurement 2: it has values that no entry speaks of, or has none",
    ),
    (
        "UPDATE measurement SET nonce = zeroblob(32) WHERE number = 2",
        "measurement 2: it has a nonce and no values",
    ),
    ("INSERT INTO meta VALUES ('more', 'x')", "the settings kept in the ledger are not those of entry 0"),
]


@pytest.mark.parametrize(("sql", "said"), PLACES, ids=range(len(PLACES)))
def test_the_first_wrong_place_is_named(copy, sql, said):
    path = copy()
    with closing(sqlite3.connect(path)) as db:
        db.execute(sql)
        db.commit()
    with closing(SqlLedger(path)) as ledger, pytest.raises(LedgerDamaged) as found:
        verify(ledger)
    assert str(found.value) == said


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("UPDATE account SET minimum = 6 WHERE id = 0", "account 0: its terms are not those of entry 1"),
        ("UPDATE account SET unit = 'mu2' WHERE id = 1", "account 1: its terms are not those of entry 2"),
        (
            "UPDATE account SET spent = spent - 1 WHERE id = 0",
            "account 0: what is spent is not the sum of its entries",
        ),
        ("UPDATE bought SET sums = '91' WHERE id = 3", "key 3: its sums are not those of its measurements"),
        (
            "UPDATE bought SET waiting = '2:30' WHERE id = 2",
            "key 2: its sums are not those of its measurements",
        ),
    ],
)
def test_a_row_that_was_sealed_again_is_named(copy, monkeypatch, sql, said):
    """Seals are no secret: whoever edits a row can make its seal fit."""
    path = copy()
    with closing(sqlite3.connect(path)) as db:
        db.execute(sql)
        db.commit()
    for row in (module.Account, module.Bought):
        monkeypatch.setattr(row, "seal", lambda self, *given: mock.ANY)
    with closing(SqlLedger(path)) as ledger, pytest.raises(LedgerDamaged) as found:
        verify(ledger)
    assert str(found.value) == said


def test_a_repeated_call_writes_nothing(database):
    with closing(filled(database, 20)) as ledger:
        head = ledger.head()
        for i in range(0, 20, 5):
            terms = TERMS[i % 2]
            ledger.request(terms.name, f"question {i}", amount(terms, 9 + 7 * i), idempotency=f"call-{i}")
        assert ledger.head() == head


@pytest.mark.parametrize(
    "change",
    [
        "charged = 0, asked = information + 1",
        "charged = charged + 1",
        "information = information + 1",
        "asked = 0",
        "asked = information - charged",
        "name = 'question 1'",
        "verb = 'pay'",
        "verb = 'refund'",
    ],
)
def test_answers_must_fit_the_charges(copy, change):
    path = copy()
    with closing(sqlite3.connect(path)) as db:
        done = db.execute(f"UPDATE answered SET {change} WHERE idempotency = 'call-5'")
        assert done.rowcount == 1
        db.commit()
    with closing(SqlLedger(path)) as ledger, pytest.raises(LedgerDamaged, match="answer"):
        verify(ledger)


def answers_fit(*answers, numbers=(3, 5, 9), charges=(30, 20, 7), void=None):
    """Whether these answers (verb, asked, information, charged) fit a key with these measurements."""
    levels = module._Levels(numbers, charges, void or {})
    try:
        module._check_answers(8, 7, levels, [(8, *answer) for answer in answers])
    except LedgerDamaged as error:
        return str(error) != "key 8: an answer kept for it does not fit its charges"
    return True


def test_what_answers_fit_the_charges():
    """Below the commitments, which catch whoever cannot make an entry fit as well. The minimum is 7."""
    first, second, third = ("request", 30, 30, 30), ("request", 50, 50, 20), ("request", 51, 57, 7)
    nothing = ("request", 50, 50, 0)
    assert answers_fit(first, second, third, nothing, nothing, ("request", 1, 30, 0))
    assert answers_fit(("pay", 30, 30, 30))
    for wrong in (
        [("refund", 30, 30, 30)],
        [("pay", 50, 50, 20)],
        [("request", 0, 30, 0)],
        [("request", 31, 30, 0)],
        [("request", 40, 40, 0)],  # never bought
        [("request", 20, 20, 20)],
        [first, first],  # one charge, told twice
        [first, ("pay", 30, 30, 30)],
        [("request", 30, 50, 20)],  # charged for what was there
        [("request", 31, 50, 20)],  # too much
        [("request", 49, 50, 20)],
    ):
        assert not answers_fit(*wrong), wrong


def test_answers_fit_what_a_recovery_closed():
    """The second is closed when seven had been asked for, the third when all had: 30, 50, 30, 37, 30."""
    closed = {"void": {5: 7, 9: 10}}
    for information in (30, 50, 37):
        assert answers_fit(("request", information, information, 0), **closed)
    for information in (57, 7, 20, 0):
        assert not answers_fit(("request", information, information, 0), **closed)
    assert answers_fit(("request", 37, 37, 7), **closed)
    assert not answers_fit(("request", 57, 57, 7), **closed)
    assert answers_fit(("request", 20, 20, 0), numbers=(3, 5), charges=(30, 20), void={3: 6})


@pytest.mark.parametrize(
    "change",
    [
        *("account SET nonce", "bought SET nonce", "measurement SET nonce", "node SET hash"),
        "answered SET nonce",
    ],
)
def test_a_huge_number_in_place_of_bytes_is_damage(copy, change):
    """Planted for `bytes(number)`, which would ask for that much memory."""
    path = copy()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE {change} = ?", (1 << 61,))
        db.commit()
    with closing(SqlLedger(path)) as ledger, pytest.raises(LedgerDamaged):
        verify(ledger)


def test_a_trigger_is_damage(copy):
    path = copy()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TRIGGER t AFTER UPDATE ON account BEGIN UPDATE account SET spent = 0; END")
        db.commit()
    with closing(SqlLedger(path)) as ledger, pytest.raises(LedgerDamaged, match="triggers"):
        verify(ledger)
