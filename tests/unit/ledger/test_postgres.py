"""The ledger on a server: connections that are lost, commits that are none."""

import secrets
import sys
import threading
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from reticent.errors import (
    BudgetExceeded,
    CommitUnknown,
    LedgerDamaged,
    LedgerError,
)
from reticent.ledger import SqlLedger
from reticent.ledger.base import Order
from reticent.ledger.sql import ledger as sql
from reticent.ledger.sql import postgres_store as store_module
from reticent.ledger.sql.postgres_store import PostgresStore, _first_line
from reticent.ledger.sql.store import TryAgain

from .sql_ledgers import amount, consistent, terms


@pytest.fixture
def server(postgres):
    with SqlLedger(postgres()) as made:
        made.open(terms())
        yield made


def disconnect(ledger):
    """Let the server cut every connection of the ledger."""
    import psycopg

    with psycopg.connect(ledger._store._url, autocommit=True) as connection:
        for held in ledger._store._connections.values():
            ended = connection.execute("SELECT pg_terminate_backend(%s, 60000)", (held.info.backend_pid,))
            assert ended.fetchone() == (True,), "it waits until the backend is gone"


def test_a_connection_lost_while_idle_is_made_anew(server):
    assert server.request("a", "k", amount(1)).charged == 1
    server.balance("a")
    disconnect(server)
    assert server.request("a", "l", amount(1)).charged == 1
    with server._store.reading():
        pass
    assert server.balance("a").spent == 2


def test_a_connection_lost_in_a_transaction_writes_nothing(server):
    def work(batch):
        batch.request(terms(), "k", 10, None)
        disconnect(server)

    with pytest.raises(LedgerError, match="PostgreSQL cannot be used") as caught:
        server._write(sql._Job(work))
    assert "\n" not in str(caught.value)
    assert server.request("a", "k", amount(10)).charged == 10
    assert server.balance("a").spent == 10


def test_a_connection_lost_while_committing_is_not_known(server, monkeypatch):
    commit = type(server._store)._commit

    def cut(store):
        monkeypatch.undo()
        disconnect(server)
        commit(store)

    monkeypatch.setattr(type(server._store), "_commit", cut)
    with pytest.raises(
        CommitUnknown,
        match=r"^the connection to PostgreSQL was lost while committing: "
        r"ask again with the same idempotency key$",
    ):
        server.request("a", "k", amount(10), idempotency="once")
    assert server.request("a", "k", amount(10), idempotency="once").charged == 10
    assert server.balance("a").spent == 10


def failed_and_committed(store):
    """Commit a transaction in which a statement failed."""
    import psycopg

    with store.writing():
        store.run("UPDATE account SET subject = 'lost'")
        with suppress(psycopg.errors.DivisionByZero):
            store.run("SELECT 1 / 0")


def test_a_commit_that_was_none_is_no_success(server):
    with pytest.raises(LedgerError, match="PostgreSQL did not commit: it answered ROLLBACK"):
        failed_and_committed(server._store)
    assert server.balance("a").terms.subject == "one person"
    assert server.request("a", "k", amount(10)).charged == 10


def test_the_check_finds_a_commit_that_is_taken_on_trust(server, monkeypatch):
    monkeypatch.setattr(
        type(server._store), "_commit", lambda store: store._connections[True].execute("COMMIT")
    )
    failed_and_committed(server._store)
    assert server.balance("a").terms.subject == "one person", "nothing was written, and nobody was told"


def test_a_transaction_that_gave_way_is_run_again(server, monkeypatch):
    import psycopg

    commit, left = type(server._store)._commit, [3]

    def give_way(store):
        if left[0]:
            left[0] -= 1
            raise psycopg.errors.SerializationFailure
        commit(store)

    monkeypatch.setattr(type(server._store), "_commit", give_way)
    assert server.request("a", "k", amount(10)).charged == 10
    left[0] = 99
    with pytest.raises(
        TryAgain, match=r"^the ledger cannot be used: PostgreSQL gave way to another transaction$"
    ):
        server.request("a", "l", amount(10))
    monkeypatch.undo()
    assert server.balance("a").spent == 10
    assert consistent(server)


def test_a_server_that_serialises_everything_is_no_obstacle(postgres):
    import psycopg

    url = postgres()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'")
    try:
        with SqlLedger(url) as one, SqlLedger(url) as other:
            one.open(terms(cap=40))
            granted = []

            def work(ledger, name):
                for i in range(30):
                    try:
                        granted.append(ledger.request("a", f"{name}{i}", amount(1)).charged)
                    except BudgetExceeded:
                        granted.append(0)

            threads = [threading.Thread(target=work, args=pair) for pair in ((one, "x"), (other, "y"))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sum(granted) == 40 == one.balance("a").spent
            assert len(granted) == 60
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER DATABASE postgres RESET default_transaction_isolation")


def test_an_error_is_told_in_one_line_even_if_it_says_nothing():
    assert _first_line(OSError("one\ntwo")) == "one"
    assert _first_line(TimeoutError()) == "TimeoutError"


def test_an_unreachable_server_is_said_to_be_so():
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError, match="PostgreSQL cannot be used") as caught:
        SqlLedger("postgresql://nobody@127.0.0.1:9/none?connect_timeout=2")
    assert "\n" not in str(caught.value)


# Where the tables are


@pytest.fixture
def database_of(postgres):
    """A fresh database: its address without any schema, and a way to run a statement in it."""
    import psycopg

    place = postgres().split("&options")[0]
    name = f"fresh_{secrets.token_hex(4)}"
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    parts = urlsplit(place)
    url = parts._replace(path=f"/{name}").geturl()

    def run(statement):
        with psycopg.connect(url, autocommit=True) as connection:
            found = connection.execute(statement)
            return found.fetchall() if found.description else None

    return url, run


def schemas(run, table="account"):
    return run(f"SELECT schemaname FROM pg_tables WHERE tablename = '{table}' ORDER BY 1")


def led_astray(url, run):
    """Spend, and then let the database's search path lead to a copy from before."""
    with SqlLedger(url) as ledger:
        ledger.open(terms())
    (place,) = schemas(run)[0]
    run("CREATE SCHEMA astray")
    for (table,) in run(f"SELECT tablename FROM pg_tables WHERE schemaname = '{place}'"):
        run(f"CREATE TABLE astray.{table} (LIKE {place}.{table} INCLUDING ALL)")
        run(f"INSERT INTO astray.{table} SELECT * FROM {place}.{table}")
    with SqlLedger(url) as ledger:
        ledger.request("a", "k", amount(7))
    name = urlsplit(url).path[1:]
    run(f"ALTER DATABASE {name} SET search_path = astray, {place}")


def test_no_search_path_leads_to_other_tables(database_of):
    url, run = database_of
    led_astray(url, run)
    assert schemas(run) == [("astray",), ("reticent",)]
    with SqlLedger(url) as ledger:
        assert ledger.balance("a").spent == 7
        ledger._store._drop(write=False)  # whoever connects anew looks there too
        assert ledger.balance("a").spent == 7


def test_planted_a_search_path_of_the_database_leads_to_an_old_copy(database_of, monkeypatch):
    url, run = database_of
    led_astray(url, run)
    connect = PostgresStore._connected

    def trusting(self, *, write):
        connection = connect(self, write=write)
        connection.execute("RESET search_path")
        return connection

    monkeypatch.setattr(PostgresStore, "_connected", trusting)
    with SqlLedger(url) as ledger:
        assert ledger.balance("a").spent == 0


OPERATOR = """
CREATE SCHEMA evil;
CREATE TABLE evil.ran (times INT);
CREATE FUNCTION evil.same(name, name) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO evil.ran VALUES (1); RETURN $1::text OPERATOR(pg_catalog.=) $2::text;
END $$;
CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = name, FUNCTION = evil.same);
"""


def operators_that_ran(url, run):
    """How often an operator in the database's search path acted with the rights of who opened the ledger."""
    with SqlLedger(url) as ledger:
        ledger.open(terms())
    run(OPERATOR)
    run(f"ALTER DATABASE {urlsplit(url).path[1:]} SET search_path = evil, pg_catalog")
    with SqlLedger(url) as ledger:
        assert ledger.request("a", "k", amount(7)).charged == 7
    return len(run("SELECT 1 FROM evil.ran"))


def test_no_operator_of_a_search_path_runs(database_of):
    """An operator of whoever may set the path ran as the service, and set what was spent to nothing."""
    assert operators_that_ran(*database_of) == 0


def test_planted_looking_before_the_path_is_bound_runs_one(database_of, monkeypatch):
    """As it was."""
    settle = PostgresStore._settle

    def first(self, *, migrate):
        with self._psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(store_module._IN_SCHEMA, (self.schema,)).fetchone()
        settle(self, migrate=migrate)

    monkeypatch.setattr(PostgresStore, "_settle", first)
    assert operators_that_ran(*database_of) > 0


def swallowed(url, run):
    """What is granted while a trigger, as a policy for a role would, keeps accounts as they are."""
    with SqlLedger(url) as ledger:
        ledger.open(terms())
    (place,) = schemas(run)[0]
    run("CREATE FUNCTION public.kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
    run(f"CREATE TRIGGER kept BEFORE UPDATE ON {place}.account FOR EACH ROW EXECUTE FUNCTION public.kept()")
    granted = 0
    with SqlLedger(url) as ledger:
        for key in "abcd":
            with suppress(LedgerDamaged):
                granted += ledger.request("a", key, amount(400)).charged
        assert ledger.balance("a").spent == 0
    return granted


def test_a_charge_that_the_database_does_not_write_is_not_granted(database_of):
    """Row level security hid a row from an UPDATE: 1,600 of 1,000 were granted, and nothing was spent."""
    assert swallowed(*database_of) == 0


def test_planted_charges_that_are_not_looked_after_pass_the_cap(database_of, monkeypatch):
    """As it was."""
    monkeypatch.setattr(store_module, "check_written", lambda found, due: None)
    assert swallowed(*database_of) > 1000


def test_many_rows_are_looked_after_too(database_of):
    url, run = database_of
    with SqlLedger(url) as ledger:
        ledger.open(terms())
        (place,) = schemas(run)[0]
        run("CREATE FUNCTION public.kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
        run(f"CREATE TRIGGER kept BEFORE INSERT ON {place}.entry FOR EACH ROW EXECUTE FUNCTION public.kept()")
        orders = [Order("a", f"k{one}", amount(1)) for one in range(9)]
        with pytest.raises(LedgerDamaged, match="a policy, trigger or rule is in the way"):
            ledger.request_many(orders)
        assert ledger.balance("a").spent == 0


def test_a_ledger_of_an_earlier_release_is_brought_along(database_of):
    url, run = database_of
    before = f"{url}&options=-csearch_path%3Dpublic"
    with SqlLedger(before) as ledger:
        ledger.open(terms())
        ledger.request("a", "k", amount(7))
    with pytest.raises(LedgerError, match="lies in the schema public, and looking changes nothing"):
        SqlLedger(url, create=False, migrate=False)
    assert schemas(run) == [("public",)]
    for _ in range(2):
        with SqlLedger(url) as ledger:
            assert ledger.balance("a").spent == 7
            assert consistent(ledger)
        assert schemas(run) == [("reticent",)]
    with pytest.raises(LedgerError, match="the ledger of the schema public was moved"):
        SqlLedger(before)
    assert schemas(run) == [("reticent",)], "nor is one made anew where an earlier release looks"
    assert schemas(run, "head") == [("public",), ("reticent",)]


def test_an_address_names_one_schema(database_of):
    url, _ = database_of
    with pytest.raises(LedgerError, match="must name one schema"):
        SqlLedger(f"{url}&options=-csearch_path%3D%24user")


# What is said of a server


@pytest.mark.parametrize("database", ["none", "away"])
def test_errors_say_neither_host_nor_port(database_of, database, capsys, monkeypatch):
    from reticent.apps import main

    url, _ = database_of
    parts = urlsplit(url)
    asked = (
        parts._replace(path="/nowhere").geturl()
        if database == "none"
        else "postgresql://ann:pw@127.0.0.1:1/x"
    )
    with pytest.raises(
        LedgerError, match=r"^PostgreSQL cannot be used: (connection refused|does not exist)$"
    ) as caught:
        SqlLedger(asked)
    assert caught.value.__cause__ is not None  # for --debug
    monkeypatch.setattr(sys, "argv", ["reticent", "ledger", "show", asked])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    for part in ("127.0.0.1", "port", "socket", "ann", "pw", "nowhere", str(parts.hostname)):
        assert part not in said.removeprefix("error: PostgreSQL cannot be used")
    monkeypatch.setattr(sys, "argv", ["reticent", "--debug", "ledger", "show", asked])
    with pytest.raises(LedgerError) as caught:
        main()
    assert "failed" in str(caught.value.__cause__)
