"""Verification on PostgreSQL: tampering there, and tables that are not plain."""

from contextlib import closing

import pytest

from reticent.errors import LedgerDamaged, LedgerError
from reticent.ledger import SqlLedger
from reticent.ledger import verify as module
from reticent.ledger.verify import verify

from .tampered_ledgers import TERMS, filled

ON_POSTGRESQL = [
    'UPDATE entry SET leaf = replace(leaf, \'"charged":"9"\', \'"charged":"8"\')',
    "DELETE FROM entry WHERE number = 9",
    "INSERT INTO entry SELECT max(number) + 1, max(leaf) FROM entry",
    "UPDATE account SET spent = spent - 1 WHERE id = 0",
    "UPDATE account SET subject = 'x' WHERE id = 0",
    "UPDATE bought SET requested = requested + 1, information = information + 1 WHERE id = 1",
    "UPDATE bought SET sums = '1,2' WHERE id = 1",
    "UPDATE bought SET nonce = decode(repeat('00', 32), 'hex') WHERE id = 1",
    "UPDATE measurement SET recorded = '1,2' WHERE recorded IS NULL",
    "UPDATE measurement SET recorded = NULL, nonce = NULL WHERE number = 1",
    "UPDATE head SET measurements = measurements + 1",
    "DELETE FROM head",
    "UPDATE meta SET setting = 'other' WHERE name = 'origin'",
    "UPDATE answered SET idempotency = 'other' WHERE idempotency = 'call-5'",
    "UPDATE answered SET nonce = decode(repeat('00', 32), 'hex') WHERE idempotency = 'call-5'",
    "DELETE FROM answered WHERE idempotency = 'call-5'",
    "INSERT INTO answered SELECT account, 'other', verb, name, asked, information, 0, entry, nonce "
    "FROM answered WHERE idempotency = 'call-5'",
    "CREATE FUNCTION f() RETURNS trigger AS 'BEGIN RETURN NULL; END' LANGUAGE plpgsql; "
    "CREATE TRIGGER t BEFORE UPDATE ON account FOR EACH ROW EXECUTE FUNCTION f()",
]


def test_tampering_on_postgresql_is_detected(postgres):
    import psycopg

    where = postgres()
    filled(where, 15).close()
    order = [
        *("meta", "head", "account", "bought", "measurement"),
        *("question", "answered", "entry", "node"),
    ]
    with psycopg.connect(where, autocommit=True) as db:
        for table in order:
            db.execute(f"CREATE TABLE saved_{table} AS SELECT * FROM {table}")
        for sql in ON_POSTGRESQL:
            db.execute(sql)
            with pytest.raises(LedgerError), closing(SqlLedger(where)) as ledger:
                verify(ledger)
            db.execute("DROP FUNCTION IF EXISTS f CASCADE")
            db.execute(f"TRUNCATE {', '.join(order)}")
            for table in order:
                db.execute(f"INSERT INTO {table} SELECT * FROM saved_{table}")
        with closing(SqlLedger(where)) as ledger:
            verify(ledger)


NOT_PLAIN = [
    "CREATE RULE r AS ON UPDATE TO account DO INSTEAD NOTHING",
    "ALTER TABLE answered ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE answered FORCE ROW LEVEL SECURITY",
    "CREATE POLICY p ON account USING (spent = 0)",
    "CREATE FUNCTION f() RETURNS trigger AS 'BEGIN RETURN NULL; END' LANGUAGE plpgsql; "
    "CREATE TRIGGER t BEFORE UPDATE ON account FOR EACH ROW EXECUTE FUNCTION f()",
    "ALTER TABLE node RENAME TO kept; CREATE VIEW node AS SELECT * FROM kept",
    "ALTER TABLE node RENAME TO kept; CREATE MATERIALIZED VIEW node AS SELECT * FROM kept",
    "CREATE TABLE more () INHERITS (entry)",
    "ALTER TABLE node SET UNLOGGED",
]


def changed(postgres, sql):
    """A ledger of a few entries to whose tables something was done."""
    import psycopg

    where = postgres()
    with SqlLedger(where) as ledger:
        ledger.open(TERMS[0])
    with psycopg.connect(where, autocommit=True) as db:
        db.execute(sql)
    return closing(SqlLedger(where))


@pytest.mark.parametrize("sql", NOT_PLAIN)
def test_tables_on_postgresql_must_be_plain(postgres, sql):
    with changed(postgres, sql) as ledger, pytest.raises(LedgerDamaged, match="triggers, rules or views"):
        verify(ledger)


@pytest.mark.parametrize("sql", NOT_PLAIN)
def test_control_rows_alone_do_not_show_it(postgres, monkeypatch, sql):
    """Planted: nobody asks how the tables are kept."""
    monkeypatch.setattr(module, "_NOT_PLAIN", "SELECT 0")
    with changed(postgres, sql) as ledger:
        assert verify(ledger).size == 2
