"""Texts of questions are kept with the first charge under the key that is named after them, and checked."""

from __future__ import annotations

import hashlib
import io
import sqlite3
from contextlib import closing

import pytest

from reticent.errors import LedgerDamaged
from reticent.ledger import Amount, MemoryLedger, SqlLedger, Terms, Unit
from reticent.ledger.base import LONGEST_TEXT, is_named_after
from reticent.ledger.export import export, verify_export
from reticent.ledger.sql.moving import hand_over, take_over
from reticent.ledger.verify import verify
from reticent.privacy import Neighbours

REPLACE = Neighbours.REPLACE_ONE
TERMS = Terms("census", Unit.MU2, REPLACE, "one row of census", 1000, 5)
TEXT = '{"measured":"count"}'


def key_of(text):
    return f"count/{hashlib.sha256(text.encode()).hexdigest()}"


KEY = key_of(TEXT)


def declare(ledger, text=TEXT, key=None):
    ledger.declare("census", key or key_of(text), question=text, grid=3, dimension=2)


def buy(ledger, key, units, values=(1, 2)):
    grant = ledger.request("census", key, Amount(units, Unit.MU2, REPLACE))
    for one in grant.pending if values else ():
        ledger.fulfil(one.number, values)
    return grant


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request, tmp_path):
    with MemoryLedger() if request.param == "memory" else SqlLedger(tmp_path / "l.sqlite") as held:
        held.open(TERMS)
        yield held


def test_a_text_is_kept_once_it_is_paid_for(ledger):
    declare(ledger)
    assert ledger.worded("census").texts == {}
    buy(ledger, KEY, 100)
    found = ledger.worded("census")
    assert found == ({KEY: TEXT}, 1)
    assert ledger.worded("census", found.number).texts == {}
    buy(ledger, "another", 10)
    assert ledger.worded("census", found.number).texts == {}
    buy(ledger, KEY, 150, ())
    assert ledger.worded("census", found.number).texts == {KEY: TEXT}, "paid for again since"


def test_what_is_recorded_comes_with_the_numbers_of_its_measurements(ledger):
    declare(ledger)
    buy(ledger, KEY, 100)
    buy(ledger, "another", 10)
    buy(ledger, KEY, 150, (7, 9))
    buy(ledger, KEY, 170, ())
    (recorded, nothing) = ledger.purchases("census", [KEY, key_of("never")])
    assert recorded.reading == ledger.reading("census", KEY)
    assert recorded.numbers == (0, 2), "what is pending does not count"
    assert recorded.reading.pending == 20
    assert (nothing.reading.information, nothing.numbers) == (0, ())


@pytest.mark.parametrize("key", ["question", f"count/{'0' * 64}", f"{KEY} "])
def test_a_text_that_its_key_is_not_named_after_is_not_kept(ledger, key):
    declare(ledger, key=key)
    buy(ledger, key, 10)
    assert ledger.worded("census").texts == {}


def test_a_very_long_text_is_not_kept(ledger):
    text = "x" * (LONGEST_TEXT + 1)
    declare(ledger, text)
    buy(ledger, key_of(text), 10)
    assert ledger.worded("census").texts == {}
    assert is_named_after(key_of(text), text)


def test_texts_survive_and_verify(tmp_path):
    with SqlLedger(tmp_path / "l.sqlite") as ledger:
        ledger.open(TERMS)
        declare(ledger)
        buy(ledger, KEY, 100)
    with SqlLedger(tmp_path / "l.sqlite") as ledger:
        assert ledger.worded("census").texts == {KEY: TEXT}
        buy(ledger, KEY, 120)
        assert verify(ledger).measurements == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "UPDATE question SET wording = wording || ' '",
            "its question is not the one that it is named after",
        ),
        ("UPDATE question SET numbers = ''", "lists other measurements"),
        ("UPDATE question SET numbers = '0,1'", "lists other measurements"),
        ("INSERT INTO question VALUES (7, 'x', '')", "a question belongs to no key"),
    ],
)
def test_a_text_that_was_tampered_with_is_found(tmp_path, change, said):
    with SqlLedger(tmp_path / "l.sqlite") as ledger:
        ledger.open(TERMS)
        declare(ledger)
        buy(ledger, KEY, 100)
        with ledger._store.writing():
            ledger._store.run(change)
        with pytest.raises(LedgerDamaged, match=said):
            verify(ledger)


def test_texts_move_with_their_account(tmp_path):
    with SqlLedger(tmp_path / "left.sqlite") as left, SqlLedger(tmp_path / "right.sqlite") as right:
        for one in (left, right):
            one.open(TERMS)
        declare(left)
        buy(left, KEY, 100)
        take_over(right, TERMS, hand_over(left, "census", "right", TERMS))
        assert right.worded("census").texts == {KEY: TEXT}
        assert right.purchases("census", [KEY])[0].numbers == (0,)
        verify(right)


def test_a_ledger_of_version_2_has_none_and_keeps_them_from_then_on(tmp_path):
    with SqlLedger(tmp_path / "l.sqlite") as ledger:
        ledger.open(TERMS)
        buy(ledger, KEY, 50)
        with ledger._store.writing():
            ledger._store.run("DROP TABLE question")
            ledger._store.run("UPDATE meta SET setting = '2' WHERE name = 'version'")
    with SqlLedger(tmp_path / "l.sqlite") as ledger:
        declare(ledger)
        buy(ledger, KEY, 60)
        assert ledger.worded("census").texts == {}, "bought before texts were kept"
        declare(ledger, "new")
        buy(ledger, key_of("new"), 10)
        assert ledger.worded("census").texts == {key_of("new"): "new"}
        verify(ledger)


def delete_text(path):
    """Delete the text of the first question from the tables of a ledger that nobody has open."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM question WHERE bought = (SELECT min(bought) FROM question)")
        database.commit()


@pytest.fixture
def two_questions(tmp_path):
    path = tmp_path / "l.sqlite"
    with SqlLedger(path) as ledger:
        ledger.open(TERMS)
        for text in (TEXT, TEXT.replace("count", "sum")):
            declare(ledger, text)
            buy(ledger, key_of(text), 100)
        buy(ledger, "a key that is named after nothing", 10)
    return path


def test_deleted_texts_are_counted(two_questions):
    """`verify` was silent: no hash covers a text, and a purchase without one is combined no more."""
    with SqlLedger(two_questions) as ledger:
        report = verify(ledger)
        assert (report.questions, report.texts, report.missing_texts) == (2, 2, 0)
    delete_text(two_questions)
    with SqlLedger(two_questions) as ledger:
        report = verify(ledger)
        assert (report.questions, report.texts, report.missing_texts) == (2, 1, 1)
        assert len(ledger.worded("census").texts) == 1


def test_control_a_count_of_texts_alone_says_nothing(two_questions):
    """Planted: questions are not counted, as before."""
    delete_text(two_questions)
    with SqlLedger(two_questions) as ledger, pytest.MonkeyPatch.context() as patch:
        patch.setattr("reticent.ledger.verify.is_question", lambda key: False)
        assert verify(ledger).missing_texts <= 0


def test_an_export_has_no_texts_to_count(two_questions):
    file = io.StringIO(newline="\n")
    with SqlLedger(two_questions) as ledger:
        export(ledger, file)
    report = verify_export(file.getvalue().splitlines(keepends=True))
    assert (report.questions, report.texts, report.missing_texts) == (None, None, 0)
