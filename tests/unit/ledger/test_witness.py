"""The witness as a real process: it remembers, refuses what was rolled back or forked, and fails closed."""

import json
import shutil
import socket
import sqlite3
import threading
from contextlib import closing, suppress

import pytest

from reticent.errors import (
    LedgerDamaged,
    LedgerError,
    ParameterError,
    RolledBack,
    WitnessRefused,
    WitnessUnavailable,
)
from reticent.ledger import SqlLedger
from reticent.ledger.base import Order
from reticent.ledger.checkpoint import PublicKey, parse, verified
from reticent.ledger.verify import verify
from reticent.ledger.witness.client import WitnessClient, WitnessedLedger, guard

from .witness_process import KEY, ORIGIN, OTHER, TERMS, Inside, Process, put_back, units


@pytest.fixture
def ledger(witnessed):
    return witnessed


def spent(witness, ledger):
    """What the witness remembers, by account."""
    return witness.client().totals(ledger)


def test_the_witness_has_every_head_before_the_answer(ledger, witness):
    for i in range(5):
        grant = ledger.request(TERMS.name, f"q{i}", units(100))
        assert parse(witness.client().last(ORIGIN)[0])[0] == ledger.head()
        assert spent(witness, ledger) == ledger.totals() == {0: 100 * (i + 1)}
        ledger.fulfil(grant.pending[0].number, (i,))
        assert parse(witness.client().last(ORIGIN)[0])[0] == ledger.head()
    assert ledger.lag == 0
    assert (ledger._client.seen(ORIGIN), ledger._client.seen("nobody")) == (ledger.head().size, 0)
    assert (
        verify(ledger, witness=witness.client(), public_key=KEY.public_key()).witnessed == ledger.head().size
    )


def test_its_checkpoint_bears_both_signatures(ledger, witness):
    checkpoint, _ = witness.client().last(ORIGIN)
    assert verified(checkpoint, PublicKey(ORIGIN, KEY.public_key())) == ledger.head()
    assert verified(checkpoint, PublicKey.parse(witness.key)) == ledger.head()


def test_on_postgresql(postgres, witness):
    where, client = postgres(), witness.client()
    with closing(WitnessedLedger(where, client=client, key=KEY)) as one:
        one.open(TERMS)
        with closing(WitnessedLedger(where, client=witness.client(), key=KEY)) as two:
            for i in range(10):
                (one, two)[i % 2].request(TERMS.name, f"q{i}", units(10))
            assert parse(client.last(ORIGIN)[0])[0] == two.head()
        verify(one, witness=client)


def test_threads_share_commits_and_heads(ledger, witness):
    def ask(i):
        for j in range(5):
            ledger.request(TERMS.name, f"q{i}-{j}", units(10))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.balance(TERMS.name).spent == 400
    assert parse(witness.client().last(ORIGIN)[0])[0] == ledger.head()


def test_two_servers_on_one_ledger(database, ledger, witness):
    with closing(WitnessedLedger(database, client=witness.client(), key=KEY)) as second:
        for i in range(6):
            (ledger, second)[i % 2].request(TERMS.name, f"q{i}", units(10))
    assert parse(witness.client().last(ORIGIN)[0])[0] == ledger.head()


def test_it_survives_being_killed(ledger, witness):
    ledger.request(TERMS.name, "q", units(100))
    witness.kill()
    witness.start()
    assert parse(witness.client().last(ORIGIN)[0])[0] == ledger.head()
    ledger.request(TERMS.name, "r", units(100))
    assert spent(witness, ledger) == {0: 200}


# Unreachable


def test_without_the_witness_nothing_is_answered_and_the_charge_stands(ledger, witness):
    witness.kill()
    with pytest.raises(WitnessUnavailable, match="cannot be reached"):
        ledger.request(TERMS.name, "q", units(100), idempotency="once")
    assert ledger.balance(TERMS.name).spent == 100
    for ask in (
        lambda: ledger.request(TERMS.name, "q", units(100), idempotency="once"),
        lambda: ledger.request(TERMS.name, "q", units(50)),
        lambda: ledger.pending(TERMS.name),
        lambda: ledger.reading(TERMS.name, "q"),
    ):
        with pytest.raises(WitnessUnavailable):
            ask()
    witness.start()
    grant = ledger.request(TERMS.name, "q", units(100), idempotency="once")
    assert (grant.charged, grant.remaining, len(grant.pending)) == (100, 9900, 1)
    assert ledger.balance(TERMS.name).spent == 100, "the retry charged nothing"
    assert spent(witness, ledger) == {0: 100}


def test_control_a_plain_hook_answers_a_reader_unwitnessed(database, witness):
    """Planted bug: only commits tell the witness. Looking up what a failed call left gets by."""
    client = witness.client()
    with closing(SqlLedger(database, key=KEY, after_commit=client.push)) as naive:
        naive.open(TERMS)
        witness.kill()
        for _ in range(2):  # the second writes nothing, and is not answered either
            with pytest.raises(WitnessUnavailable):
                naive.request(TERMS.name, "q", units(100))
        assert naive.pending(TERMS.name), "answered, and nobody elsewhere knows"


def test_an_optional_witness_may_lag_with_a_warning(database, witness):
    with closing(WitnessedLedger(database, client=witness.client(), key=KEY, optional=True)) as ledger:
        ledger.open(TERMS)
        witness.kill()
        with pytest.warns(RuntimeWarning, match="goes on without it"):
            grant = ledger.request(TERMS.name, "q", units(100))
        assert (grant.charged, ledger.lag) == (100, 1)
        witness.start()
        ledger.request(TERMS.name, "r", units(1))
        assert ledger.lag == 0
    witness.kill()
    with (
        pytest.warns(RuntimeWarning, match="goes on without it"),
        closing(WitnessedLedger(database, client=witness.client(), key=KEY, optional=True)),
    ):
        pass


def test_a_ledger_does_not_start_without_its_witness(database, witness):
    witness.kill()
    with pytest.raises(WitnessUnavailable):
        WitnessedLedger(database, client=witness.client(), key=KEY)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", b"\x00" * 999])
def test_something_else_at_its_address_is_no_witness(answer):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            for _ in range(2):
                with suppress(OSError), server.accept()[0] as connection:  # the client may be gone
                    connection.recv(4096)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        client = WitnessClient(f"http://127.0.0.1:{server.getsockname()[1]}", timeout_s=120)
        with pytest.raises(WitnessUnavailable):
            client.logs()
        client.close()
        server.shutdown(socket.SHUT_RDWR)  # whoever still accepts is told
        thread.join()


def test_an_impostor_is_not_believed(database, witness, tmp_path):
    """Another witness at the same address, with another key: its signature does not count."""
    right = witness.key
    witness.kill()
    impostor = Process(tmp_path / "impostor")
    try:
        with pytest.raises(LedgerDamaged, match="not signed by"):
            WitnessedLedger(database, client=WitnessClient(impostor.url, key=right), key=KEY)
        WitnessedLedger(
            database, client=WitnessClient(impostor.url), key=KEY
        ).close()  # control: no key given
    finally:
        impostor.kill()


# Rolled back and forked


def test_a_restored_backup_is_refused_at_start(restored, witness):
    with pytest.raises(RolledBack, match="has 3 entries, the witness saw 6: it was rolled back"):
        WitnessedLedger(restored, client=witness.client(), key=KEY)
    with closing(SqlLedger(restored, key=KEY)) as alone:  # the control: alone it starts, verifies and spends
        verify(alone)
        with pytest.raises(RolledBack, match="has 3 entries"):
            verify(alone, witness=witness.client())
        assert alone.balance(TERMS.name).spent == 100


@pytest.mark.parametrize("more", [1, 3, 7])
def test_a_fork_is_refused_at_start(restored, witness, more):
    with closing(SqlLedger(restored, key=KEY)) as alone:
        for i in range(more):
            alone.request(TERMS.name, f"other {i}", units(400))
        verify(alone)
        with pytest.raises(RolledBack):
            guard(alone, witness.client())
        with pytest.raises(RolledBack):
            witness.client().push(alone)
        with pytest.raises(RolledBack):
            verify(alone, witness=witness.client())
    with pytest.raises(
        RolledBack, match="rolled back$" if more < 3 else "forked from the 6 that the witness saw$"
    ):
        WitnessedLedger(restored, client=witness.client(), key=KEY)


def test_a_new_ledger_under_an_old_name_is_refused(tmp_path, ledger, witness):
    with pytest.raises(RolledBack):
        WitnessedLedger(tmp_path / "new.db", client=witness.client(), key=KEY)


def test_a_rollback_while_running_is_found_at_the_next_commit(ledger, database, witness):
    """The tables are put back under a running ledger: the witness refuses the next head."""
    with closing(sqlite3.connect(database)) as db:
        before = {
            table: db.execute(f"SELECT * FROM {table}").fetchall() for table in ("head", "account", "entry")
        }
    for i in range(3):
        ledger.request(TERMS.name, f"q{i}", units(100))
    with closing(sqlite3.connect(database)) as db:
        for table in ("measurement", "bought", "head", "account", "entry"):
            db.execute(f"DELETE FROM {table}")
        for table, rows in before.items():
            db.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)
        db.commit()
    with pytest.raises(RolledBack):
        ledger.request(TERMS.name, "q", units(1))


def rolled_back(database, tmp_path, witness):
    """A running ledger whose file is put back to before two charges, by SQLite's own backup (T9)."""
    ledger = WitnessedLedger(database, client=witness.client(), key=KEY)
    ledger.open(TERMS)
    with closing(sqlite3.connect(database)) as now, closing(sqlite3.connect(tmp_path / "b.db")) as kept:
        now.backup(kept)
        for i in range(2):
            grant = ledger.request(TERMS.name, f"k{i}", units(50))
            ledger.fulfil(grant.pending[0].number, [1])
        kept.backup(now)
    return ledger


def ask_until_it_is_as_long(ledger):
    """What callers do who go on after errors: pay, measure, record, read; until the log is as long again."""
    said = []
    for key in ("x", "y"):
        for call in (
            lambda key=key: ledger.request_many([Order(TERMS.name, key, units(50))]),
            lambda key=key: ledger.request(TERMS.name, key, units(50)),
            lambda: [ledger.fulfil(m.number, [9]) for m in SqlLedger.pending(ledger, TERMS.name)],
            lambda key=key: ledger.reading(TERMS.name, key),
            lambda: ledger.pending(TERMS.name),
            lambda: ledger.balance(TERMS.name),
            lambda: ledger.accounts(),
            lambda: ledger.open(TERMS),
        ):
            try:
                said.append(call())
            except RolledBack as error:
                said.append(error)
    return said


def test_a_rollback_while_running_sticks(database, tmp_path, witness):
    with closing(rolled_back(database, tmp_path, witness)) as ledger:
        said = ask_until_it_is_as_long(ledger)
        assert all(isinstance(one, RolledBack) for one in said)
        assert "until the ledger is opened again" in str(said[-1])
        with pytest.raises(RolledBack):
            ledger.fulfil(0, [1])
    with pytest.raises(RolledBack):
        WitnessedLedger(database, client=witness.client(), key=KEY)


def test_control_sizes_alone_let_a_rolled_back_ledger_answer(database, tmp_path, witness, monkeypatch):
    """Planted bugs: only sizes are compared, and what was found is forgotten."""
    monkeypatch.setattr(WitnessedLedger, "_not_rolled_back", lambda self: None)
    monkeypatch.setattr(WitnessClient, "signed", lambda self, head: self.seen(head.origin) == head.size)
    with closing(rolled_back(database, tmp_path, witness)) as ledger:
        readings = [one for one in ask_until_it_is_as_long(ledger) if not isinstance(one, RolledBack)]
        assert any(getattr(one, "information", 0) for one in readings), (
            "released, and never charged elsewhere"
        )


def test_a_rollback_is_found_by_a_reader_at_the_same_size(database, tmp_path, witness):
    """Another process lengthens the log that was put back; the first that asks here only reads."""
    with closing(rolled_back(database, tmp_path, witness)) as ledger:
        with closing(SqlLedger(database)) as other:
            for i in range(4):
                other.request(TERMS.name, f"other {i}", units(10))
        assert ledger.lag == 0, "as many entries as the witness saw"
        with pytest.raises(RolledBack, match="forked"):
            ledger.reading(TERMS.name, "other 0")
        with pytest.raises(RolledBack, match="opened again"):
            ledger.pending(TERMS.name)


def test_amounts_put_back_alone_are_found_by_a_reader(database, ledger):
    """The log stays, the account's row says less: the hash of the totals is not the one signed."""
    ledger.request(TERMS.name, "q", units(100))
    ledger.reading(TERMS.name, "q")
    with closing(SqlLedger(database)) as other, other._store.writing():
        held = other._account(TERMS.name)
        held.spent = 0
        other._store.run("UPDATE account SET spent = 0, seal = ?", (held.seal(),))
    with pytest.raises(RolledBack):
        ledger.reading(TERMS.name, "q")


def test_a_ledger_that_is_ahead_brings_the_witness_up_to_date(database, ledger, witness):
    """A crash between commit and telling: the witness hears of the entries at the next start."""
    ledger.close()
    with closing(SqlLedger(database, key=KEY)) as silent:
        silent.request(TERMS.name, "q", units(100))
        assert spent(witness, silent) == {0: 0}
        WitnessedLedger(database, client=witness.client(), key=KEY).close()
        assert spent(witness, silent) == {0: 100}


def test_a_client_that_is_dropped_closes_its_connection(witness):
    client = witness.client()
    client.logs()
    connection = client._connection
    assert connection.sock is not None
    del client
    assert connection.sock is None


@pytest.mark.parametrize("url", ["", "x", "ftp://a", "http://", "file:///etc/passwd"])
def test_a_bad_address_is_refused(url):
    with pytest.raises(ParameterError, match="address of a witness"):
        WitnessClient(url)


@pytest.mark.parametrize("url", ["http://localhost:1", "https://localhost:1/below/"])
def test_nobody_at_an_address_is_said_to_be_so(url):
    with pytest.raises(WitnessUnavailable, match=f"the witness at {url} cannot be reached"):
        WitnessClient(url).logs()


def test_the_key_of_a_log_is_not_one_of_a_witness():
    with pytest.raises(ParameterError, match="that of a witness"):
        WitnessClient("http://localhost:1", key=PublicKey(ORIGIN, KEY.public_key()))


def test_a_witnessed_ledger_needs_a_signing_key(database, witness):
    with closing(SqlLedger(database)) as ledger, pytest.raises(LedgerError, match="signing key"):
        guard(ledger, witness.client())


# A witness that refuses, and one whose old answers come again


def test_a_refusal_after_the_commit_says_that_it_was_written(database, tmp_path):
    """L1: the witness serves another key. The charge stands, and the error is not "nothing was written"."""
    witness = Inside(tmp_path / "w", trusted=[PublicKey(ORIGIN, OTHER.public_key())])
    try:
        client = witness.client()
        with closing(SqlLedger(database, key=KEY)) as ledger:
            ledger.open(TERMS)
            ledger._after_commit = client.push
            with pytest.raises(WitnessRefused, match="the witness refused: the checkpoint is not signed"):
                ledger.request(TERMS.name, "q", units(5))
            assert ledger.balance(TERMS.name).spent == 5
        assert issubclass(WitnessRefused, WitnessUnavailable)
        for optional in (False, True):  # it may be missing, but not refuse
            with pytest.raises(WitnessRefused):
                WitnessedLedger(database, client=client, key=KEY, optional=optional)
        client.close()
    finally:
        witness.close()


class Replaying(WitnessClient):
    """A client whose way to the witness is held by somebody who repeats what it said before."""

    kept = None

    def _exchange(self, method, path, data):
        if self.kept is None or not path.startswith("/checkpoint"):
            return super()._exchange(method, path, data)
        return self.kept


def replayed(witness, told):
    client = Replaying(witness.url, key=witness.key)
    client.kept = told
    return client


@pytest.fixture
def old_answers(database, ledger, witness, tmp_path):
    """A ledger is put back to a head that the witness signed; what the witness said then, and of nobody."""
    ledger.close()
    nonce, client = "0" * 64, witness.client()
    told = [
        client._exchange("GET", f"/checkpoint?origin={origin}&nonce={nonce}", None)
        for origin in ("reticent%2Fledger", "nobody")
    ]
    shutil.copyfile(database, tmp_path / "b.db")
    with closing(WitnessedLedger(database, client=client, key=KEY)) as on:
        on.request(TERMS.name, "q", units(100))
    put_back(database, tmp_path / "b.db")
    return told


def test_an_old_answer_does_not_hide_a_rollback(database, witness, old_answers):
    unsigned = [(200, old_answers[0][1], ""), (404, b"{}", ""), (404, b"{}", "no base64")]
    for told in (*old_answers, *unsigned):
        with pytest.raises(LedgerDamaged, match="not signed by reticent/witness, or is an old one"):
            WitnessedLedger(database, client=replayed(witness, told), key=KEY)
        with closing(SqlLedger(database)) as alone, pytest.raises(LedgerDamaged, match="an old one"):
            verify(alone, witness=replayed(witness, told))
    with pytest.raises(RolledBack):
        WitnessedLedger(database, client=witness.client(), key=KEY)


def test_control_without_a_nonce_it_does(database, witness, old_answers, monkeypatch):
    """Planted bug: whatever the witness once signed is believed; the rollback shows at the next charge."""
    monkeypatch.setattr("reticent.ledger.witness.client.holds", lambda *given: True)
    with closing(WitnessedLedger(database, client=replayed(witness, old_answers[0]), key=KEY)) as ledger:
        assert ledger.balance(TERMS.name).spent == 0
        with closing(SqlLedger(database)) as alone:
            verify(alone, witness=replayed(witness, old_answers[0]))
        with pytest.raises(RolledBack):
            ledger.request(TERMS.name, "q", units(1))


# T22: what leaves


def test_no_name_key_subject_or_value_leaves_the_tables(database, witness, capfd):
    """Canaries in every private place; then a search of entries, heads, the witness and every error."""
    canaries = ["canary-account", "canary-subject", "canary-key", "canary-call", "7777123", "8888321"]
    said = []
    with closing(WitnessedLedger(database, client=witness.client(), key=KEY)) as ledger:
        ledger.open(TERMS)
        grant = ledger.request(TERMS.name, "canary-key", units(100), idempotency="canary-call")
        ledger.fulfil(grant.pending[0].number, (7777123, -8888321))
        said += ledger.leaves()
        said += [ledger.checkpoint(), json.dumps(witness.client().record(ORIGIN))]
        said.append(json.dumps(witness.client().logs()))
        witness.kill()
        with pytest.raises(WitnessUnavailable) as error:
            ledger.request(TERMS.name, "canary-key-2", units(100), idempotency="canary-call-2")
        said.append(str(error.value))
        witness.start()
    for table, column in (("account", "subject"), ("bought", "name"), ("measurement", "recorded")):
        copy = database.with_name(f"{table}.db")
        shutil.copyfile(database, copy)
        with closing(sqlite3.connect(copy)) as db:
            db.execute(f"UPDATE {table} SET {column} = {column} || '0' WHERE {column} IS NOT NULL")
            db.commit()
        with closing(SqlLedger(copy)) as ledger, pytest.raises(LedgerDamaged) as error:
            verify(ledger)
        said.append(str(error.value))
    said += [path.read_bytes().decode("latin-1") for path in witness.directory.iterdir()]
    said += [*capfd.readouterr()]
    assert not [canary for canary in canaries for text in said if canary in text]
    assert all(canary in database.read_bytes().decode("latin-1") for canary in canaries), (
        "the search can find"
    )
