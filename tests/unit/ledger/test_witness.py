"""The witness as a real process: it remembers, refuses what was rolled back or forked, and fails closed."""

import http.client
import json
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.errors import LedgerDamaged, LedgerError, ParameterError, RolledBack, WitnessUnavailable
from reticent.ledger import Amount, SqlLedger, Terms, Unit
from reticent.ledger.checkpoint import LOG, Head, PublicKey, parse, sign, totals_hash, verified
from reticent.ledger.recovery import recover
from reticent.ledger.verify import verify
from reticent.ledger.witness import WitnessClient, WitnessedLedger, guard
from reticent.ledger.witness_server import WitnessState
from reticent.privacy import Neighbours

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
MU2 = (Unit.MU2, Neighbours.REPLACE_ONE)
TERMS = Terms("canary-account", *MU2, "canary-subject", 10_000)
ORIGIN = "reticent/ledger"


def units(amount):
    return Amount(amount, *MU2)


class Process:
    """A witness in a process of its own."""

    def __init__(self, directory, *options):
        self.directory, self.options, self.port = directory, options, "0"
        self.start()

    def start(self):
        command = [sys.executable, "-m", "reticent.ledger.witness_server", "--dir", str(self.directory)]
        self.process = subprocess.Popen(
            [*command, "--port", self.port, *self.options], stdout=subprocess.PIPE, text=True
        )
        words = self.process.stdout.readline().split()
        assert words[0] == "witness"
        self.url, self.key = words[1], words[2]
        self.port = str(urlsplit(self.url).port)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def client(self, **options):
        return WitnessClient(self.url, key=self.key, **options)

    def ask(self, method, path, body=None, headers=None):
        parts = urlsplit(self.url)
        with closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)) as connection:
            data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    process = Process(tmp_path_factory.mktemp("elsewhere"))
    yield process
    process.kill()


@pytest.fixture
def witness(running):
    """A running witness that remembers nothing yet."""
    if running.process.poll() is not None:
        running.start()
    with closing(sqlite3.connect(running.directory / "witness.db")) as db:
        for table in ("log", "total", "abandoned", "permit"):
            db.execute(f"DELETE FROM {table}")
        db.commit()
    return running


@pytest.fixture
def ledger(database, witness):
    with closing(WitnessedLedger(database, client=witness.client(), key=KEY)) as made:
        made.open(TERMS)
        yield made


def test_the_witness_has_every_head_before_the_answer(ledger, witness):
    for i in range(5):
        grant = ledger.request(TERMS.name, f"q{i}", units(100))
        checkpoint, totals = witness.client().last(ORIGIN)
        assert parse(checkpoint)[0] == ledger.head()
        assert totals == ledger.totals() == {0: 100 * (i + 1)}
        ledger.fulfil(grant.pending[0].number, (i,))
        assert parse(witness.client().last(ORIGIN)[0])[0] == ledger.head()
    assert ledger.lag == 0
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
    assert witness.client().last(ORIGIN)[1] == {0: 200}


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
    assert witness.client().last(ORIGIN)[1] == {0: 100}


def test_control_a_plain_hook_answers_a_retry_unwitnessed(database, witness):
    """Planted bug: only commits tell the witness. The retry of a failed call writes nothing and gets by."""
    client = witness.client()
    with closing(SqlLedger(database, key=KEY, after_commit=client.push)) as naive:
        naive.open(TERMS)
        witness.kill()
        with pytest.raises(WitnessUnavailable):
            naive.request(TERMS.name, "q", units(100))
        assert naive.request(TERMS.name, "q", units(100)).pending, "answered, and nobody elsewhere knows"


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
                with server.accept()[0] as connection:
                    connection.recv(4096)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        client = WitnessClient(f"http://127.0.0.1:{server.getsockname()[1]}", timeout_s=5)
        with pytest.raises(WitnessUnavailable):
            client.logs()
        client.close()


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


@pytest.fixture
def restored(database, ledger, tmp_path):
    """A ledger that went on, put back to an older copy of itself; returns its path."""
    ledger.request(TERMS.name, "early", units(100))
    ledger.close()
    shutil.copyfile(database, tmp_path / "backup.db")
    with closing(WitnessedLedger(database, client=ledger._client, key=KEY)) as on:
        on.request(TERMS.name, "late", units(300))
        on.open(Terms("late-account", *MU2, "late-subject", 500))
        on.request("late-account", "q", units(40))
    for file in database.parent.glob("ledger.db*"):
        if file.suffix != ".lock":
            file.unlink()
    shutil.copyfile(tmp_path / "backup.db", database)
    return database


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
    with pytest.raises(RolledBack, match="rolled back" if more < 3 else "forked"):
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


def test_a_ledger_that_is_ahead_brings_the_witness_up_to_date(database, ledger, witness):
    """A crash between commit and telling: the witness hears of the entries at the next start."""
    ledger.close()
    with closing(SqlLedger(database, key=KEY)) as silent:
        silent.request(TERMS.name, "q", units(100))
    assert witness.client().last(ORIGIN)[1] == {0: 0}
    WitnessedLedger(database, client=witness.client(), key=KEY).close()
    assert witness.client().last(ORIGIN)[1] == {0: 100}


# Recovery


def allow(witness):
    with closing(WitnessState(witness.directory)) as state:
        state.allow_recovery(ORIGIN)


def test_recovery_charges_everything_that_was_seen(restored, witness):
    lost = Terms("late-account", *MU2, "late-subject", 500)
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        with pytest.raises(LedgerError, match="has not allowed"):
            recover(ledger, witness.client(), lost={1: lost})
        allow(witness)
        with pytest.raises(LedgerError, match="does not know accounts 1: give their terms"):
            recover(ledger, witness.client())
        for wrong, why in (
            ({0: lost, 1: lost}, "accounts 0 are not lost"),
            ({1: Terms("late-account", *MU2, "late-subject", 39)}, "had spent more than the cap"),
            ({1: Terms(TERMS.name, *MU2, "late-subject", 500)}, "name that is taken"),
            ({1: Terms("sealed:1", *MU2, "late-subject", 500)}, "name that is taken"),
        ):
            with pytest.raises(LedgerError, match=why):
                recover(ledger, witness.client(), lost=wrong)
        assert ledger.head().size == 3, "nothing was written"
        done = recover(ledger, witness.client(), lost={1: lost})
        assert (done.abandoned.size, done.charged) == (6, {0: 300, 1: 40})
        assert (done.reopened, done.sealed) == ((1,), ())
        assert ledger.totals() == {0: 400, 1: 40}
        assert [leaf for leaf in ledger.leaves() if f'"head":"6:{done.abandoned.root.hex()}"' in leaf]
        report = verify(ledger, witness=witness.client())
        assert (report.recoveries, report.witnessed) == (2, ledger.head().size)
    with closing(WitnessedLedger(restored, client=witness.client(), key=KEY)) as again:
        again.request(TERMS.name, "late", units(300))
        assert again.balance(TERMS.name).spent == 700, "what was lost is paid again"
    record = witness.client().record(ORIGIN)
    assert [parse(text)[0] for text in record["abandoned"]] == [done.abandoned]
    assert not record["recovery"], "allowed once"
    assert "abandoned" in json.dumps(witness.client().logs())


def test_lost_accounts_can_be_sealed(restored, witness):
    allow(witness)
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        done = recover(ledger, witness.client(), seal_lost=True)
        assert (done.sealed, done.charged[1]) == ((1,), 40)
        sealed = ledger.balance("sealed:1")
        assert sealed.remaining == 0
        verify(ledger, witness=witness.client())
        ledger.open(Terms("late-account", *MU2, "late-subject", 500))
        assert ledger.totals() == {0: 400, 1: 40, 2: 0}, "a new number: the old one stays spent"


def test_a_fork_is_recovered_only_as_a_fork(restored, witness):
    allow(witness)
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        for i in range(5):
            ledger.request(TERMS.name, f"other {i}", units(1))
        with pytest.raises(RolledBack, match="find out why"):
            recover(ledger, witness.client(), seal_lost=True)
        done = recover(ledger, witness.client(), seal_lost=True, accept_fork=True)
        assert done.charged == {0: 295, 1: 40}
        verify(ledger, witness=witness.client())


def test_nothing_to_recover(ledger, witness, tmp_path):
    allow(witness)
    with pytest.raises(LedgerError, match="nothing to recover"):
        recover(ledger, witness.client())
    with (
        closing(SqlLedger(tmp_path / "b.db", origin="other", key=KEY)) as other,
        pytest.raises(LedgerError, match="never saw the log other"),
    ):
        recover(other, witness.client())


def test_an_account_that_cannot_hold_what_was_seen_is_another_one(restored, witness, tmp_path):
    allow(witness)
    with closing(SqlLedger(tmp_path / "other.db", key=KEY)) as other:
        other.open(Terms(TERMS.name, *MU2, "x", 10))
        with pytest.raises(RolledBack, match="account 0 is another one"):
            recover(other, witness.client(), seal_lost=True)


def test_the_witness_does_not_take_less_even_in_a_recovery(restored, witness):
    """A liar skips `recover` and asks the witness to forget: the totals must not fall."""
    allow(witness)
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        client = witness.client()
        seen = parse(client.last(ORIGIN)[0])[0]
        with pytest.raises(LedgerError, match="witness saw"):
            client.recover(ledger, seen)
    assert parse(witness.client().last(ORIGIN)[0])[0] == seen
    assert witness.client().record(ORIGIN)["recovery"], "the permit is not used up"


# What the server refuses


def head_of(size, totals, root=bytes(32), origin=ORIGIN, key=KEY):
    return sign(Head(origin, size, root, totals_hash(totals)), origin, key)


def body(**changes):
    told = {
        "old_size": 0,
        "proof": [],
        "checkpoint": head_of(3, {0: 5}),
        "totals": {"0": "5"},
        "key": str(PublicKey(ORIGIN, KEY.public_key(), LOG)),
    }
    told.update(changes)
    return {name: field for name, field in told.items() if field is not None}


@pytest.mark.parametrize(
    ("asked", "status", "why"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b"[]", 400, "JSON object"),
        (b"\xff\xfe", 400, "not JSON"),
        (body(old_size="0"), 400, "old_size"),
        (body(old_size=-1), 400, "old_size"),
        (body(old_size=True), 400, "old_size"),
        (body(old_size=1.0), 400, "old_size"),
        (body(old_size=1 << 70), 400, "old_size"),
        (body(proof=None), 400, "proof"),
        (body(proof=["zz"]), 400, "proof"),
        (body(proof=["00" * 32] * 129), 400, "proof"),
        (body(proof=["00" * 32]), 409, "no proof"),
        (body(checkpoint=None), 400, "checkpoint"),
        (body(checkpoint="x" * 9000), 400, "checkpoint"),
        (body(checkpoint="x"), 400, "C2SP"),
        (body(checkpoint=head_of(3, {0: 5}, key=OTHER)), 400, "not signed"),
        (body(totals=[]), 400, "totals"),
        (body(totals={"0": 5}), 400, "totals"),
        (body(totals={"x": "5"}), 400, "totals"),
        (body(totals={"0": "-5"}), 400, "totals"),
        (body(totals={"0": str(1 << 62)}), 400, "2\\^62"),
        (body(totals={"0": "6"}), 400, "hash"),
        (body(totals={}), 400, "hash"),
        (body(key=None), 400, "key"),
        (body(key="x"), 400, "public key"),
        (body(key=str(PublicKey("other", KEY.public_key()))), 400, "name of the log"),
        (body(old_size=1), 409, "saw 0 entries"),
    ],
)
def test_bad_input_is_refused_in_one_line_and_nothing_is_remembered(witness, asked, status, why):
    got, answer = witness.ask("POST", "/add-checkpoint", asked)
    assert got == status
    assert re.search(why, answer["error"])
    assert "\n" not in answer["error"]
    assert witness.ask("GET", "/logs")[1]["logs"] == []


def test_what_follows_must_follow(witness):
    assert witness.ask("POST", "/add-checkpoint", body())[0] == 200
    assert witness.ask("POST", "/add-checkpoint", body(old_size=3))[0] == 200, "the same again is no harm"
    for wrong, why in (
        (body(), "saw 3 entries"),
        (body(old_size=3, checkpoint=head_of(2, {0: 5})), "saw 3 entries"),
        (body(old_size=3, checkpoint=head_of(3, {0: 5}, root=b"x" * 32)), "no proof"),
        (body(old_size=3, checkpoint=head_of(4, {0: 5})), "no proof"),
        (body(old_size=3, checkpoint=head_of(3, {0: 4}), totals={"0": "4"}), "spent less"),
    ):
        status, answer = witness.ask("POST", "/add-checkpoint", wrong)
        assert (status, why in answer["error"]) == (409, True), answer
        assert parse(answer["checkpoint"])[0].size == 3
    status, answer = witness.ask(
        "POST", "/add-checkpoint", body(old_size=3, checkpoint=head_of(3, {0: 5}, key=OTHER))
    )
    assert status == 400, "the key of first use stays"
    assert witness.ask("GET", "/checkpoint?origin=reticent%2Fledger")[1]["totals"] == {"0": "5"}


def test_pages_that_do_not_exist_and_bodies_that_are_too_large(witness):
    assert witness.ask("GET", "/nope")[0] == 404
    assert witness.ask("POST", "/nope", b"")[0] == 404
    assert witness.ask("GET", "/checkpoint?origin=nobody")[0] == 404
    assert witness.ask("GET", "/checkpoint")[0] == 404
    assert witness.ask("POST", "/add-checkpoint", b"", {"Content-Length": "99999999999"})[0] == 413
    assert witness.ask("POST", "/add-checkpoint", b"", {"Content-Length": "-1"})[0] == 413
    assert witness.ask("POST", "/recover", body(old_root="00"))[0] == 404


def test_a_witness_may_serve_chosen_logs_only(tmp_path):
    process = Process(tmp_path / "w", "--log-key", str(PublicKey("chosen", KEY.public_key())))
    try:
        assert process.ask("POST", "/add-checkpoint", body())[0] == 403
        chosen = body(checkpoint=head_of(3, {0: 5}, origin="chosen"), key=None)
        assert process.ask("POST", "/add-checkpoint", chosen)[0] == 200
        forged = body(checkpoint=head_of(3, {0: 5}, origin="chosen", key=OTHER), old_size=3)
        assert process.ask("POST", "/add-checkpoint", forged)[0] == 400
    finally:
        process.kill()


def test_silent_connections_do_not_stop_it(witness):
    parts = urlsplit(witness.url)
    idle = [socket.create_connection((parts.hostname, parts.port)) for _ in range(20)]
    start = time.monotonic()
    assert witness.ask("GET", "/logs")[0] == 200
    assert time.monotonic() - start < 5
    for connection in idle:
        connection.close()


@pytest.mark.parametrize("url", ["", "x", "ftp://a", "http://", "file:///etc/passwd"])
def test_a_bad_address_is_refused(url):
    with pytest.raises(ParameterError, match="address of a witness"):
        WitnessClient(url)


def test_the_key_of_a_log_is_not_one_of_a_witness():
    with pytest.raises(ParameterError, match="that of a witness"):
        WitnessClient("http://localhost:1", key=PublicKey(ORIGIN, KEY.public_key()))


def test_a_witnessed_ledger_needs_a_signing_key(database, witness):
    with closing(SqlLedger(database)) as ledger, pytest.raises(LedgerError, match="signing key"):
        guard(ledger, witness.client())


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
