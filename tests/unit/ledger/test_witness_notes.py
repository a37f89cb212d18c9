"""The note that says which witness a ledger in PostgreSQL has: found whatever words lead to the database."""

import json
from contextlib import closing
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from reticent.errors import LedgerError, RolledBack
from reticent.ledger import SqlLedger
from reticent.ledger.witness import opening
from reticent.ledger.witness.client import WitnessedLedger

from .witness_process import TERMS, units


def schema_of(where):
    return parse_qs(urlsplit(where).query)["options"][0].partition("=")[2]


def respelt(where):
    """The same database in other words: the host where hosts stand, no password."""
    given = parse_qs(urlsplit(where).query)
    host, options = (quote(given[name][0], safe="") for name in ("host", "options"))
    return f"postgresql://postgres@{host}/postgres?options={options}"


def copied(psycopg, where, there):
    """A copy of a ledger in another schema, as a backup that is put back there."""
    one, other = schema_of(where), schema_of(there)
    with psycopg.connect(where, autocommit=True) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (one,)).fetchall()
        for (table,) in found:
            connection.execute(f'CREATE TABLE {other}."{table}" (LIKE {one}."{table}" INCLUDING ALL)')
            connection.execute(f'INSERT INTO {other}."{table}" SELECT * FROM {one}."{table}"')


@pytest.fixture
def noted(postgres, inside, tmp_path):
    """A ledger with a witness, closed, and how to open it again as a service does."""

    class Noted:
        where, note = postgres(), tmp_path / "ledger.witness"

        def open(self, where, **options):
            return opening.opened(where, signer=tmp_path / "ledger.key", note=self.note, **options)

        def spend(self, where, key, amount):
            with closing(self.open(where)) as ledger:
                ledger.request(TERMS.name, key, units(amount))
                assert isinstance(ledger, WitnessedLedger)

        def told(self):
            return json.loads(self.note.read_text())

    found = Noted()
    with closing(found.open(found.where, witness=inside.url, witness_key=str(inside.key))) as ledger:
        ledger.open(TERMS)
    found.spend(found.where, "early", 100)
    return found


def sold_again(noted, postgres):
    """Whether an old copy that is opened under another address sells what was sold since."""
    import psycopg

    there = postgres()
    copied(psycopg, noted.where, there)
    noted.spend(noted.where, "late", TERMS.cap - 100)
    try:
        with closing(noted.open(respelt(there))) as ledger:
            ledger.request(TERMS.name, "again", units(TERMS.cap - 100))
    except RolledBack:
        return False
    return True


def test_another_spelling_asks_the_same_witness(noted):
    before = noted.told()
    noted.spend(respelt(noted.where), "late", 50)
    assert {**noted.told(), "database": before["database"]} == before
    assert before["log"]
    noted.spend(noted.where, "later", 50)
    assert noted.told() == before


def test_an_old_copy_at_another_address_is_refused(noted, postgres):
    assert not sold_again(noted, postgres)


def test_planted_a_note_known_by_the_text_of_the_address_is_caught(noted, postgres, monkeypatch):
    def by_text(where, note, *, is_named):
        found = opening._read(note)
        return found if found is not None and found.database == opening._database(where) else None

    monkeypatch.setattr(opening, "_noted", by_text)
    assert sold_again(noted, postgres)


def test_a_note_of_an_earlier_release_knows_the_log_by_its_name(noted, postgres):
    told = noted.told()
    del told["log"]
    noted.note.write_text(json.dumps(told))
    assert not sold_again(noted, postgres)
    assert noted.told()["log"]  # from when it was opened last


def test_an_old_copy_from_before_the_first_account_is_refused(postgres, inside, tmp_path):
    import psycopg

    where, there = postgres(), postgres()
    given = {"signer": tmp_path / "ledger.key", "note": tmp_path / "note"}
    opening.opened(where, witness=inside.url, witness_key=str(inside.key), **given).close()
    copied(psycopg, where, there)
    for _ in range(2):  # the note says the log once it has an account
        with closing(opening.opened(where, **given)) as ledger:
            ledger.open(TERMS)
    with pytest.raises(RolledBack, match="rolled back"):
        opening.opened(respelt(there), **given)


def test_another_ledger_is_another_ledger(noted, postgres):
    """One that shares nothing but the name of its log has no witness; whoever names one gives it one."""
    there = postgres()
    with SqlLedger(there) as made:
        made.open(TERMS)
    with closing(noted.open(respelt(there))) as ledger:
        assert not isinstance(ledger, WitnessedLedger)
    assert noted.told()["database"] == opening._database(noted.where)


def test_no_ledger_begins_where_another_address_is_noted(noted, postgres, inside):
    there = respelt(postgres())
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"notes a witness .* there is no ledger in this database"):
            noted.open(there)
    given = {"witness": inside.url, "witness_key": str(inside.key)}
    with closing(noted.open(there, origin="example.org/second", **given)) as ledger:
        assert isinstance(ledger, WitnessedLedger)
    assert noted.told()["origin"] == "example.org/second"
