"""Exports verify without the database, and each of their lines matters."""

import json
import sqlite3
from contextlib import closing
from io import StringIO

import pytest

from reticent.errors import LedgerDamaged, LedgerError
from reticent.ledger import SqlLedger, Terms
from reticent.ledger.checkpoint import PublicKey
from reticent.ledger.export import export, verify_export
from reticent.ledger.verify import verify

from .tampered_ledgers import KEY, MU2, TERMS, amount, copy, filled, template

__all__ = ["copy", "template"]  # fixtures


def exported(ledger, **options):
    file = StringIO()
    export(ledger, file, **options)
    return file.getvalue().splitlines(keepends=True)


@pytest.mark.parametrize("openings", [False, True])
def test_an_export_verifies_without_the_database(place, openings):
    with closing(filled(place, 30)) as ledger:
        early = ledger.checkpoint()
        ledger.open(Terms("late", *MU2, "one", 5))
        lines, whole = exported(ledger, openings=openings), verify(ledger)
    public = PublicKey("reticent/ledger", KEY.public_key())
    assert verify_export(lines) == whole
    assert verify_export(lines, public_key=public, checkpoint=early).checked == whole.size - 1
    told = "".join(lines)
    assert ("question 3" in told) == openings
    assert ("census" in told) == openings


@pytest.mark.parametrize("openings", [False, True])
def test_every_line_of_an_export_matters(database, openings):
    with closing(filled(database, 12)) as ledger:
        lines = exported(ledger, openings=openings)
    verify_export(lines)
    for i, line in enumerate(lines):
        middle = len(line) // 2
        changed = line[:middle] + ("0" if line[middle] != "0" else "1") + line[middle + 1 :]
        for wrong in (
            [*lines[:i], *lines[i + 1 :]],
            [*lines[:i], line, *lines[i:]],
            [*lines[:i], changed, *lines[i + 1 :]],
            [*lines[:i], line[:-1]],
            lines[:i],
        ):
            with pytest.raises(LedgerError):
                verify_export(wrong)


@pytest.fixture
def opened_export(database):
    with closing(filled(database, 3)) as ledger:
        return exported(ledger, openings=True)


SIZES = [
    "\u00b2",
    "\u0663",
    "9" * 5000,
    "9" * 20,
    "0",
    "00",
    "01",
    "-1",
    "+1",
    " 1",
    "1\n",
    "",
    "1.0",
    7,
    None,
    [],
    True,
]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: ascii(size)[:8].replace("\\", ""))
def test_an_export_of_impossible_size_is_damage(opened_export, size):
    header = json.loads(opened_export[0])
    header["size"] = size
    with pytest.raises(LedgerDamaged, match="does not begin as an exported ledger"):
        verify_export([json.dumps(header) + "\n", *opened_export[1:]])


def test_an_export_of_no_entries_is_damage():
    head = {"head": "\n0\n\n"}
    header = {"export": "1", "openings": False, "origin": "", "size": "0"}
    with pytest.raises(LedgerDamaged, match="does not begin as an exported ledger"):
        verify_export([json.dumps(header) + "\n", json.dumps(head) + "\n"])


def test_half_a_surrogate_pair_in_an_export_is_damage(opened_export):
    for i, line in enumerate(opened_export):
        texts = [line[:-2] + "\ud800" + line[-2:]]
        told = json.loads(line)
        for name in told:
            texts.append(json.dumps({**told, name: "\ud800"}) + "\n")
            texts.append(json.dumps({**told, name: ["\ud800"]}) + "\n")
            texts.append(json.dumps({**told, name: {"\ud800": 1}}) + "\n")
        for text in texts:
            with pytest.raises(LedgerDamaged):
                verify_export([*opened_export[:i], text, *opened_export[i + 1 :]])


def test_control_such_an_opening_has_no_bytes(opened_export, monkeypatch):
    monkeypatch.setattr("reticent.ledger.export._is_text", lambda part: True)
    i = next(i for i, line in enumerate(opened_export) if '"opens"' in line)
    told = json.loads(opened_export[i])
    text = json.dumps({**told, "opens": ["\ud800"]}) + "\n"
    with pytest.raises(UnicodeEncodeError):
        verify_export([*opened_export[:i], text, *opened_export[i + 1 :]])


def changed_line(place, **fields):
    """A function that changes fields of one line."""

    def change(lines):
        line = json.dumps({**json.loads(lines[place]), **fields}) + "\n"
        return [line if i == place else other for i, other in enumerate(lines)]

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[:5], "line 6 is missing, cut off, too long or no text"),
        (lambda lines: [*lines, "\n"], "the file goes on after its head"),
        (lambda lines: ["[]\n", *lines[1:]], "line 1 is no JSON object"),
        (lambda lines: ["[" * 100_000 + "\n", *lines[1:]], "line 1 is no JSON object"),
        (changed_line(0, origin="x"), "the header names another log than entry 0"),
        (changed_line(0, origin=5), "the file names no log"),
        (changed_line(0, openings=1), "the file does not begin as an exported ledger"),
        (changed_line(0, export="2"), "the file does not begin as an exported ledger"),
        (changed_line(0, openings=False), "entry 2: an entry is not in canonical form"),
        (changed_line(3, more=1), "a line that should open an entry does not"),
        (changed_line(3, nonce="x"), "a line that should open an entry does not"),
        (changed_line(3, opens=[5]), "a line that should open an entry does not"),
        (lambda lines: [*lines[:3], lines[5], *lines[4:]], "entry 1: what opens it does not fit"),
        (lambda lines: [*lines[:-1], '{"head":""}\n'], "the head of the file is not that of its entries"),
        (lambda lines: [*lines[:-1], '{"checkpoint":5}\n'], "the head of the file is not signed"),
    ],
)
def test_the_wrong_line_of_an_export_is_named(opened_export, change, said):
    with pytest.raises(LedgerDamaged) as found:
        verify_export(change(opened_export))
    assert str(found.value) == said


def test_an_earlier_head_is_not_that_of_an_export(database):
    with closing(filled(database, 3)) as ledger:
        early = json.dumps({"checkpoint": ledger.checkpoint()}) + "\n"
        ledger.request("census", "later", amount(TERMS[0], 50))
        lines = exported(ledger)
    with pytest.raises(LedgerDamaged, match="the signed head is not that of the entries"):
        verify_export([*lines[:-1], early])


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("DELETE FROM answered", "an answer that an entry speaks of is missing"),
        ("DELETE FROM account WHERE id = 2", "a row that entry 3 of this part speaks of is missing"),
        ("UPDATE measurement SET nonce = NULL", "a row that entry 9 of this part speaks of is missing"),
    ],
)
def test_what_is_missing_is_not_exported(copy, sql, said):
    path = copy()
    with closing(sqlite3.connect(path)) as db:
        db.execute(sql)
        db.commit()
    with closing(SqlLedger(path)) as ledger, pytest.raises(LedgerDamaged, match=said):
        exported(ledger, openings=True)


def test_an_export_tells_how_far_it_is(database, monkeypatch):
    monkeypatch.setattr("reticent.ledger.export.CHUNK", 10)
    with closing(filled(database, 3)) as ledger:
        size, written, read = ledger.head().size, [], []
        lines = exported(ledger, openings=True, progress=lambda *how_far: written.append(how_far))
        assert verify_export(lines, progress=lambda *how_far: read.append(how_far)) == verify(ledger)
    assert written == read == [(done, size) for done in (*range(10, size, 10), size)]


def test_an_unsigned_export_is_not_taken_for_a_signed_one(database):
    with closing(SqlLedger(database)) as ledger:
        lines = exported(ledger)
    assert verify_export(lines).size == 1
    with pytest.raises(LedgerDamaged, match="not signed"):
        verify_export(lines, public_key=PublicKey("reticent/ledger", KEY.public_key()))
