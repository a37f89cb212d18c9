"""The ledger on a server: connections that are lost, commits that are none."""

import threading
import time
from contextlib import suppress

import pytest

from reticent.errors import (
    BudgetExceeded,
    CommitUnknown,
    LedgerError,
)
from reticent.ledger import SqlLedger, sql
from reticent.ledger.store import TryAgain, _first_line

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
            connection.execute("SELECT pg_terminate_backend(%s)", (held.info.backend_pid,))
    time.sleep(0.1)


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
