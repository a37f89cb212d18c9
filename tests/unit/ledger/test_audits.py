"""Audits in the log: verified with and without the database, opened by their report alone."""

import hashlib
import shutil
import sqlite3
from contextlib import closing
from io import StringIO

import pytest

from reticent.errors import LedgerDamaged, ParameterError, RolledBack
from reticent.ledger import SqlLedger, WitnessedLedger, audits, entries
from reticent.ledger.audits import Verdict
from reticent.ledger.checkpoint import parse
from reticent.ledger.export import export, verify_export
from reticent.ledger.verify import verify

from .witness_process import KEY, ORIGIN, put_back

CLAIM = "mechanism Duchi: epsilon 1"


def report(words="nothing was found"):
    return f"<!doctype html><head>{audits.mark()}</head><p>{words}</p>\n"


def test_an_audit_is_recorded_and_opened_by_its_report(place):
    first, second = report(), report("p < 0.001")
    with closing(SqlLedger(place)) as ledger:
        made = audits.record(ledger, claim=CLAIM, verdict=Verdict.NOTHING_FOUND, report=first)
        audits.record(ledger, claim="mine: epsilon 2", verdict=Verdict.BROKEN, report=second)
        listed = list(audits.recorded(ledger))
        assert [(one.entry, one.claim, one.verdict) for one in listed] == [
            (1, CLAIM, Verdict.NOTHING_FOUND),
            (2, "mine: epsilon 2", Verdict.BROKEN),
        ]
        assert audits.of_report(ledger, first) == made == listed[0]
        assert audits.of_report(ledger, second) == listed[1]
        assert verify(ledger).audits == 2
        for changed in (first.replace("nothing", "everything"), first + " ", "", second[:-1]):
            with pytest.raises(LedgerDamaged, match="no audit in the log commits to this report"):
                audits.of_report(ledger, changed)


@pytest.mark.parametrize("openings", [False, True])
def test_an_export_with_audits_verifies_without_the_database(database, openings):
    with closing(SqlLedger(database)) as ledger:
        audits.record(ledger, claim=CLAIM, verdict=Verdict.BROKEN, report=report())
        file = StringIO()
        export(ledger, file, openings=openings)
        whole = verify(ledger)
    lines = file.getvalue().splitlines(keepends=True)
    assert verify_export(lines) == whole
    assert whole.audits == 1
    wrong = [line.replace('"broken"', '"nothing_found"') for line in lines]
    assert wrong != lines
    with pytest.raises(LedgerDamaged):
        verify_export(wrong)


@pytest.mark.parametrize(("old", "new"), [('"broken"', '"nothing_found"'), ("epsilon 1", "epsilon 9")])
def test_a_verdict_cannot_be_changed_afterwards(database, old, new):
    text = report()
    with closing(SqlLedger(database)) as ledger:
        audits.record(ledger, claim=CLAIM, verdict=Verdict.BROKEN, report=text)
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("UPDATE entry SET leaf = replace(leaf, ?, ?) WHERE number = 1", (old, new))
    with closing(SqlLedger(database)) as ledger:
        with pytest.raises(LedgerDamaged, match="head kept in the ledger"):
            verify(ledger)
        with pytest.raises(LedgerDamaged, match="no audit"):  # the commitment binds claim and verdict too
            audits.of_report(ledger, text)


def test_an_audit_that_is_taken_out_is_missed(database):
    with closing(SqlLedger(database)) as ledger:
        audits.record(ledger, claim=CLAIM, verdict=Verdict.BROKEN, report=report())
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("DELETE FROM entry WHERE number = 1")
    with closing(SqlLedger(database)) as ledger, pytest.raises(LedgerDamaged, match="entry 1 is missing"):
        verify(ledger)


def test_planted_a_commitment_without_salt_is_seen_and_one_without_the_report_accepts_another(monkeypatch):
    text, other = report(), report("something else")
    bare = hashlib.sha256(text.encode()).hexdigest()
    nonce = audits._NONCE.search(text)[1]
    found = audits._commitment(nonce, CLAIM, Verdict.BROKEN, text)
    assert found != bare
    again = text.replace(nonce, "00" * 32)
    assert audits._commitment("00" * 32, CLAIM, Verdict.BROKEN, again) != found
    assert not audits.AuditEntry(1, CLAIM, Verdict.BROKEN, found).is_of(other)

    def careless(nonce, claim, verdict, report):
        return entries.commitment(bytes(32), claim, verdict.value)

    monkeypatch.setattr(audits, "_commitment", careless)
    loose = audits.AuditEntry(1, CLAIM, Verdict.BROKEN, careless(nonce, CLAIM, Verdict.BROKEN, text))
    assert loose.is_of(other), "the planted bug is one that the line above catches"


@pytest.mark.parametrize("claim", ["", "x" * 201, 'a "claim"', "back\\slash", "naïve", "two\nlines"])
def test_a_claim_that_cannot_be_written_is_refused(database, claim):
    with closing(SqlLedger(database)) as ledger:
        with pytest.raises(ParameterError, match="claim must be 1 to 200 characters of ASCII"):
            audits.record(ledger, claim=claim, verdict=Verdict.BROKEN, report=report())
        assert ledger.head().size == 1
        if claim:
            fit = audits.plain_claim(claim)
            assert audits.record(ledger, claim=fit, verdict=Verdict.BROKEN, report=report()).claim == fit


@pytest.mark.parametrize(
    "text", ["", "<p>no nonce</p>", audits.mark() + audits.mark()], ids=["empty", "none", "two"]
)
def test_a_report_names_one_nonce(database, text):
    with closing(SqlLedger(database)) as ledger, pytest.raises(ParameterError, match="one nonce of its own"):
        audits.record(ledger, claim=CLAIM, verdict=Verdict.BROKEN, report=text)


def test_a_verdict_that_a_witness_saw_cannot_be_rolled_back(witnessed, witness, database, tmp_path):
    witnessed.close()
    backup = tmp_path / "backup"
    shutil.copyfile(database, backup)
    with closing(WitnessedLedger(database, client=witness.client(), key=KEY)) as ledger:
        audits.record(ledger, claim=CLAIM, verdict=Verdict.BROKEN, report=report())
        assert parse(witness.client().last(ORIGIN)[0])[0] == ledger.head(), "seen before it was answered"
        assert verify(ledger, witness=witness.client()).audits == 1
    put_back(database, backup)
    with closing(SqlLedger(database)) as ledger:
        assert verify(ledger).audits == 0, "the copy alone knows nothing of it"
        with pytest.raises(RolledBack, match="it was rolled back"):
            verify(ledger, witness=witness.client())
