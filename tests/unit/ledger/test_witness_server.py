"""The witness's side: what it refuses, to whom it tells what, and what strangers cannot do to it."""

import base64
import http.client
import itertools
import socket
import sqlite3
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from urllib.parse import urlsplit

import pytest

from reticent import listening
from reticent.errors import LedgerDamaged, ParameterError, WitnessRefused
from reticent.ledger import SqlLedger
from reticent.ledger.checkpoint import LOG, PublicKey, parse, reader_text, signature_line
from reticent.ledger.merkle import EMPTY_ROOT
from reticent.ledger.witness import server as module
from reticent.ledger.witness import state as state_module
from reticent.ledger.witness.server import main, serve
from reticent.ledger.witness.state import Refused, WitnessState
from reticent.listening import TimedReader

from .witness_process import KEY, ORIGIN, OTHER, TERMS, Process, body, head_of, lines, units


@pytest.fixture
def witness(inside):
    """Asked over HTTP as any; in this process, so that `make mutation` sees which tests reach what."""
    return inside


def text_signed(size):
    """A checkpoint that the log's key signed, of a head that no log has."""
    text = head_of(3, {0: 5}).split("\n\n")[0].replace("\n3\n", f"\n{size}\n") + "\n"
    return f"{text}\n{signature_line(text, ORIGIN, KEY)}"


def beside_a_bad_line():
    bad = PublicKey(ORIGIN, KEY.public_key()).id + bytes(64)
    return f"{head_of(3, {0: 5})}\u2014 {ORIGIN} {base64.b64encode(bad).decode()}\n"


NO_HEAD = "the checkpoint is not in the C2SP format: "
NOT_JSON, NO_OBJECT = "the request is not JSON", "the request must be a JSON object"
NO_AMOUNTS = "totals must map account numbers to units, as decimal texts"


@pytest.mark.parametrize(
    ("asked", "status", "why"),
    [
        (b"", 400, NOT_JSON),
        (b"{", 400, NOT_JSON),
        (b"[" * 60_000, 400, NOT_JSON),
        (b" " * 100_000, 400, NOT_JSON),
        (b"[]", 400, NO_OBJECT),
        (b"\xff\xfe", 400, NOT_JSON),
        (body(old_size="0"), 400, "old_size must be a whole number"),
        (body(old_size=-1), 400, "old_size must be a whole number"),
        (body(old_size=True), 400, "old_size must be a whole number"),
        (body(old_size=1.0), 400, "old_size must be a whole number"),
        (body(old_size=1 << 63), 400, "old_size must be a whole number"),
        (body(old_size=(1 << 63) - 1), 409, "the witness saw 0 entries"),
        (body(old_size=1), 409, "the witness saw 0 entries"),
        (body(proof=None), 400, "proof must be a list of at most 128 hashes"),
        (body(proof=["00" * 32] * 129), 400, "proof must be a list of at most 128 hashes"),
        (body(proof=["00" * 32] * 128), 409, "no proof that the first 0 entries are the same"),
        (body(proof=["zz"]), 400, "proof must hold hashes of 64 hexadecimal digits"),
        (body(proof=["00" * 32, 5]), 400, "proof must hold hashes of 64 hexadecimal digits"),
        (body(checkpoint=None), 400, "checkpoint must be a text of at most 8192 characters"),
        (body(checkpoint="x" * 8193), 400, "checkpoint must be a text of at most 8192 characters"),
        (body(checkpoint="x" * 8192), 400, "the checkpoint is not in the C2SP format"),
        (body(checkpoint=head_of(3, {0: 5}, key=OTHER)), 400, f"the checkpoint is not signed by {ORIGIN}"),
        (body(checkpoint=beside_a_bad_line()), 400, f"the checkpoint is not signed by {ORIGIN}"),
        (
            body(checkpoint=text_signed(1 << 63)),
            400,
            f"{NO_HEAD}size must be <= {(1 << 63) - 1}, got {1 << 63}",
        ),
        (
            body(checkpoint=text_signed(0)),
            400,
            f"{NO_HEAD}root must be the hash of nothing for a log of no entries",
        ),
        (body(checkpoint="\ud800"), 400, "checkpoint must be a text that UTF-8 can hold"),
        (body(totals=None), 400, "totals must map account numbers to units"),
        (body(totals=[]), 400, NO_OBJECT),
        (lines(body(totals=None)) + b"\n{", 400, NOT_JSON),
        (body(totals={"0": 5}), 400, NO_AMOUNTS),
        (body(totals={"x": "5"}), 400, NO_AMOUNTS),
        (body(totals={"0": "-5"}), 400, NO_AMOUNTS),
        (body(totals={"0": str(1 << 62)}), 400, "totals must be below 2^62"),
        (body(totals={str(1 << 62): "5"}), 400, "totals must be below 2^62"),
        (body(totals={"0": str((1 << 62) - 1)}), 400, "totals do not have the hash in the checkpoint"),
        (body(totals={}), 400, "totals do not have the hash in the checkpoint"),
        (body(key=None), 400, "key must be a text of at most 400 characters"),
        (body(key="x" * 401), 400, "key must be a text of at most 400 characters"),
        (body(key="x" * 400), 400, "a public key reads <name>+<key id>+<base64>"),
        (body(key=str(PublicKey("other", KEY.public_key()))), 400, "key must bear the name of the log"),
    ],
)
def test_bad_input_is_refused_in_one_line_and_nothing_is_remembered(witness, asked, status, why):
    got, answer = witness.ask("POST", "/add-checkpoint", asked)
    assert (got, answer) == (status, {"error": why, "checkpoint": None} if status == 409 else {"error": why})
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
    assert parse(witness.ask("GET", "/checkpoint?origin=reticent%2Fledger")[1]["checkpoint"])[0].size == 3


def test_pages_that_do_not_exist_and_bodies_that_are_too_large(witness):
    no_page, too_large = (404, {"error": "no such page"}), (413, {"error": "the request is too large"})
    nobody = (404, {"error": "the witness never saw a log of that origin"})
    assert witness.ask("GET", "/nope") == witness.ask("POST", "/nope", b"") == no_page
    assert witness.ask("GET", "/checkpoint?origin=nobody") == witness.ask("GET", "/checkpoint") == nobody
    assert witness.ask("POST", "/totals", {"origin": ORIGIN, "signature": ""}) == nobody
    no_text = (400, {"error": "origin must be a text that UTF-8 can hold"})
    assert witness.ask("POST", "/totals", {"origin": "\udfff", "signature": ""}) == no_text
    never = {"error": f"the witness never saw the log {ORIGIN}"}
    assert witness.ask("POST", "/recover", body(old_root="00")) == (404, never)
    most = module.MOST_FIRST_BYTES + state_module.MOST_BYTES
    for length in ("-1", "99999999999", str(most + 1)):
        assert witness.ask("POST", "/add-checkpoint", b"", {"Content-Length": length}) == too_large
    with sent(witness, b"POST /recover HTTP/1.1\r\nContent-Length: %d\r\n\r\n[]\n" % most) as connection:
        assert NO_OBJECT.encode() in connection.makefile("rb").read(), "so much may be announced"
    with sent(witness, b"POST /totals HTTP/1.1\r\n\r\n") as connection:
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 411")
    assert answer.endswith(b'{"error": "the request must tell its length"}')
    for query in (
        "",
        "?origin=x",
        "?origin=x&most=1",
        "?origin=x&most=1&skip=-1",
        "?origin=x&most=1e3&skip=0",
    ):
        wrong = (400, {"error": "most and skip must be whole numbers"})
        assert witness.ask("GET", f"/heads{query}") == wrong
    for most in (0, 10**18, 10**19 - 1):  # the last is more than SQLite could compare
        assert witness.ask("GET", f"/heads?origin=x&most={most}&skip=0") == (200, {"heads": []})


def test_two_requests_on_one_connection(witness):
    """An answer is signed for the question that brought a nonce, not for the next one."""
    place = urlsplit(witness.url)
    with closing(http.client.HTTPConnection(place.hostname, place.port, timeout=120)) as connection:
        for method, page, sent_along, signed in (
            ("GET", "/logs?nonce=" + "0a" * 32, None, True),
            ("POST", "/add-checkpoint", lines(body()), False),
            ("GET", "/logs?nonce=" + "0A" * 32, None, False),
            ("GET", "/logs", None, False),
        ):
            connection.request(method, page, sent_along)
            answer = connection.getresponse()
            assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
            assert (answer.headers["Server"], answer.headers["Connection"]) == ("reticent-witness ", None)
            assert (module.SIGNATURE in answer.headers) == signed
            assert int(answer.headers["Content-Length"]) == len(answer.read())
            assert connection.sock is not None, "kept open"


def test_a_witness_that_cannot_write_says_so(inside):
    inside.state._connection.close()
    assert inside.ask("POST", "/add-checkpoint", body()) == (503, {"error": "the witness cannot write"})


def test_the_totals_may_be_as_long_as_they_may(inside, monkeypatch):
    length = len(lines(body()).split(b"\n")[1])
    monkeypatch.setattr(state_module, "MOST_STRANGER_BYTES", length - 1)
    refused = inside.ask("POST", "/add-checkpoint", body())
    assert refused == (413, {"error": "the request is too large"})
    monkeypatch.setattr(state_module, "MOST_STRANGER_BYTES", length)
    assert inside.ask("POST", "/add-checkpoint", body())[0] == 200


def test_every_log_is_shown_with_what_was_abandoned(inside):
    early = body(checkpoint=head_of(3, {0: 0}, origin="early"), totals={"0": "0"})
    early["key"] = str(PublicKey("early", KEY.public_key(), LOG))
    for asked in (body(), early):
        assert inside.ask("POST", "/add-checkpoint", asked)[0] == 200
    before = inside.state.last(ORIGIN)
    assert inside.state.logs() == {
        "key": str(inside.key),
        "logs": [
            {"origin": "early", "checkpoint": inside.state.last("early")["checkpoint"], "abandoned": 0},
            {"origin": ORIGIN, "checkpoint": before["checkpoint"], "abandoned": 0},
        ],
    }
    asked = body(old_size=3, old_root="00" * 32, checkpoint=head_of(3, {0: 5}, root=b"x" * 32))
    not_allowed = "the operator of the witness has not allowed a recovery from this head"
    assert inside.ask("POST", "/recover", asked) == (403, {"error": not_allowed})
    inside.allow()
    assert [*inside.ask("POST", "/recover", asked)[1]] == ["cosignature"]
    after = inside.state.last(ORIGIN)
    assert (after["abandoned"], after["recovery"]) == ([before["checkpoint"]], False)
    assert after["key"] == body()["key"]
    assert [log["abandoned"] for log in inside.ask("GET", "/logs")[1]["logs"]] == [0, 1]
    roots = [[3, (b"x" * 32).hex()], [3, "00" * 32]]
    assert inside.state.heads(ORIGIN, 3, 0) == {"heads": roots}, "the newest first"
    with pytest.raises(ParameterError, match=r"^the witness never saw a log of that origin$"):
        inside.allow("nobody")


def test_cosignatures_tell_the_hour_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(state_module.time, "time", lambda: 2 * 3600 + 3599.9)
    with closing(WitnessState(tmp_path / "a" / "b")) as state:
        assert state._connection.execute("PRAGMA busy_timeout").fetchone() == (60_000,)
        assert state._connection.isolation_level is None, "transactions begin and end where they are written"
        line = state.add(body())["cosignature"]
        assert state.last(ORIGIN)["checkpoint"] == body()["checkpoint"] + line
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert int.from_bytes(base64.b64decode(line.split(" ")[2])[4:12], "big") == 7200
    with pytest.raises(ParameterError, match=r"^name must be 1 to 200 printable"):
        WitnessState(tmp_path / "c", name="a b")


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


def test_who_is_not_chosen_is_told_so(tmp_path):
    with closing(WitnessState(tmp_path, trusted=[PublicKey("chosen", KEY.public_key())])) as state:
        with pytest.raises(Refused, match="the witness does not serve this log") as refused:
            state.add(body())
        assert refused.value.status == 403


def test_a_recovery_from_another_head_is_told_the_last_one(inside):
    assert inside.ask("POST", "/add-checkpoint", body())[0] == 200
    inside.allow()
    for wrong in ({"old_size": 2}, {"old_root": "11" * 32}, {"old_root": None}):
        asked = body(**{"old_size": 3, "old_root": "00" * 32, **wrong})
        status, answer = inside.ask("POST", "/recover", asked)
        assert (status, answer["error"]) == (409, "the witness saw 3 entries")
        assert parse(answer["checkpoint"])[0].size == 3


def test_the_first_of_a_name_may_be_anybody_only_at_home_or_by_request(tmp_path, monkeypatch, capsys):
    """Whoever comes first takes a name, and 10,000 names fill the witness."""
    for host in ("0.0.0.0", "10.1.2.3", "::", "example.org", ""):
        with pytest.raises(
            ParameterError,
            match=r"^a witness that others can reach serves chosen logs: "
            r"give --log-key, or --open to serve any$",
        ):
            serve(tmp_path / "w", host=host, port=0)
    with pytest.raises(SystemExit):
        main(["--dir", str(tmp_path / "w"), "--host", "0.0.0.0"])
    assert "give --log-key" in capsys.readouterr().err
    assert not (tmp_path / "w").exists()

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.WitnessServer, "serve_forever", interrupted)
    key = str(PublicKey(ORIGIN, KEY.public_key(), LOG))
    for args in (
        ["--host", "0.0.0.0", "--open"],
        ["--host", "0.0.0.0", "--log-key", key],
        ["--host", "127.0.0.1"],
        ["--host", "localhost"],
    ):
        assert main(["--dir", str(tmp_path / "w"), *args]) == 0


def test_a_witness_of_which_nothing_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module.WitnessServer, "serve_forever", lambda self: None)
    for options, name in (([], state_module.NAME), (["--name", "mine"], "mine")):
        assert main(["--dir", str(tmp_path / name), *options]) == 0
        kind, url, key = capsys.readouterr().out.split()
        assert (kind, urlsplit(url).hostname, PublicKey.parse(key).name) == ("witness", "127.0.0.1", name)
        assert urlsplit(url).port > 1023, "a free one"
    with pytest.raises(SystemExit):
        main(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert " Remember the last head of privacy ledgers. options: " in told
    assert " --dir DIR where the witness keeps its state --host HOST --port PORT --name NAME " in told
    assert " --log-key LOG_KEY serve only logs with these keys " in told
    assert told.endswith(" --open serve any log, beyond this machine too")
    with pytest.raises(SystemExit):
        main([])
    assert "the following arguments are required: --dir" in capsys.readouterr().err


# To whom it tells what was spent


def totals_asked(witness, key, checkpoint=None):
    head = parse(checkpoint or witness.ask("GET", "/checkpoint?origin=reticent%2Fledger")[1]["checkpoint"])[0]
    signature = base64.b64encode(key.sign(reader_text(head))).decode()
    return witness.ask("POST", "/totals", {"origin": ORIGIN, "signature": signature})


def test_what_was_spent_is_told_to_the_log_alone(witness):
    first = body()
    assert witness.ask("POST", "/add-checkpoint", first)[0] == 200
    for page in ("/checkpoint?origin=reticent%2Fledger", "/logs", f"/heads?origin={ORIGIN}&most=9&skip=0"):
        status, answer = witness.ask("GET", page)
        assert status == 200
        assert "totals" not in str(answer).replace("\\ntotals ", ""), "the hash in the head is all there is"
    assert totals_asked(witness, KEY) == (200, {"totals": {"0": "5"}})
    assert totals_asked(witness, OTHER)[0] == 403
    for signature in ("", "x", "A" * 88, 5, None, "A" * 200, "A" * 201):
        status, answer = witness.ask("POST", "/totals", {"origin": ORIGIN, "signature": signature})
        known = isinstance(signature, str) and len(signature) <= 200
        why = "only the log itself may read what was spent, and at the last head"
        why = why if known else "signature must be a text of at most 200 characters"
        assert (status, answer) == (403 if known else 400, {"error": why})
    status, answer = witness.ask("POST", "/totals", {"origin": "x" * 201, "signature": ""})
    assert (status, answer) == (400, {"error": "origin must be a text of at most 200 characters"})
    again = body(old_size=3, checkpoint=head_of(3, {0: 6}), totals={"0": "6"})
    assert witness.ask("POST", "/add-checkpoint", again)[0] == 200
    assert totals_asked(witness, KEY, first["checkpoint"])[0] == 403, (
        "who recorded an old request learns nothing"
    )


def test_a_client_with_another_key_is_refused(witnessed, witness, database):
    with (
        closing(SqlLedger(database, key=OTHER)) as ledger,
        pytest.raises(WitnessRefused, match="only the log"),
    ):
        witness.client().totals(ledger)
    with closing(SqlLedger(database.with_name("b.db"), origin="nobody", key=KEY)) as ledger:
        assert witness.client().totals(ledger) == {}


# Strangers


def sent(witness, part, source="127.0.0.1"):
    where = urlsplit(witness.url)
    connection = socket.create_connection((where.hostname, where.port), 120, source_address=(source, 0))
    with suppress(OSError):  # the witness may have closed it already
        connection.sendall(part)
    return connection


@contextmanager
def crowd(witness, count):
    """So many connections from one other address, none of which ends its request."""
    with ExitStack() as held:
        for _ in range(count):
            held.enter_context(sent(witness, b"GET /logs HTTP/1.1\r\n", source="127.0.0.2"))
        yield


def announced(asked, length):
    return b"POST /add-checkpoint HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % length + lines(asked) + b"\n"


@pytest.mark.parametrize(
    ("asked", "length", "status"),
    [
        (body(totals=None), 2 << 20, b"413"),  # a new name
        (body(totals=None, checkpoint=head_of(3, {0: 5}, key=OTHER)), 2 << 20, b"400"),  # signed by nobody
        (body(totals=None, checkpoint="x"), 1000, b"400"),
        (body(totals=None), 100 << 20, b"413"),
    ],
)
def test_a_stranger_is_refused_before_the_totals_are_read(witness, asked, length, status):
    """The answer comes although no byte of the totals was sent."""
    with sent(witness, announced(asked, length)) as connection:
        answer = connection.makefile("rb").read()
    assert answer.split()[1] == status
    assert b"Connection: close" in answer


def test_a_known_log_may_send_more_with_a_new_head_only(inside):
    assert inside.ask("POST", "/add-checkpoint", body())[0] == 200
    shown = body(totals=None, old_size=3)  # which anybody can have from the witness
    with sent(inside, announced(shown, 2 << 20)) as connection:
        assert connection.makefile("rb").read().split()[1] == b"413"
    longer = body(totals=None, old_size=3, checkpoint=head_of(4, {0: 5}))
    assert inside.state.most_totals(longer) == state_module.MOST_BYTES
    assert inside.state.most_totals(shown) == state_module.MOST_STRANGER_BYTES
    inside.allow()
    assert inside.state.most_totals(shown) == state_module.MOST_BYTES, "a recovery may make the log shorter"


def test_a_known_log_is_held_to_its_key_before_the_totals_are_read(inside):
    """Another key under its name, sent along with a new head that it signed."""
    assert inside.ask("POST", "/add-checkpoint", body())[0] == 200
    other = str(PublicKey(ORIGIN, OTHER.public_key(), LOG))
    forged = body(totals=None, old_size=3, checkpoint=head_of(4, {0: 5}, key=OTHER), key=other)
    with pytest.raises(LedgerDamaged, match="not signed"):
        inside.state.most_totals(forged)


def test_a_witness_that_is_full_goes_on_with_the_logs_it_has(inside, monkeypatch):
    monkeypatch.setattr(state_module, "MOST_LOGS", 1)
    assert inside.ask("POST", "/add-checkpoint", body())[0] == 200
    key = str(PublicKey("other", KEY.public_key(), LOG))
    other = body(checkpoint=head_of(3, {0: 5}, origin="other"), key=key)
    refused = (403, {"error": "the witness serves no more logs"})
    assert inside.ask("POST", "/add-checkpoint", other) == refused
    assert inside.ask("POST", "/add-checkpoint", body(old_size=3))[0] == 200


def test_a_trusted_log_may_begin_with_many_accounts(tmp_path):
    with closing(WitnessState(tmp_path, trusted=[PublicKey(ORIGIN, KEY.public_key())])) as state:
        assert state.most_totals(body()) == state_module.MOST_BYTES


def test_many_accounts_are_witnessed(witness):
    """More than fits into a first line."""
    spent = dict.fromkeys(range(40_000), 1)
    big = body(checkpoint=head_of(3, spent), totals={str(number): "1" for number in spent})
    assert len(lines(big)) > 4 * module.MOST_FIRST_BYTES
    assert witness.ask("POST", "/add-checkpoint", big)[0] == 200


def test_one_deadline_for_all_of_a_request(monkeypatch):
    """A byte a second does not move it."""
    now = [0.0]
    monkeypatch.setattr(listening, "_clock", lambda: now[0])
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rb", 0) as plain:
        reader = TimedReader(ours)
        reader.start(10.0)
        for _ in range(9):
            now[0] += 1
            theirs.send(b"x")
            assert reader.read(1) == b"x"
        now[0] += 1
        theirs.send(b"x")
        with pytest.raises(TimeoutError):
            reader.read(1)
        ours.settimeout(10.0)  # planted, as it was: ten seconds for each read
        assert plain.read(1) == b"x"
        reader.start(10.0)  # the next request
        theirs.send(b"y")
        assert reader.read(1) == b"y"


@pytest.mark.parametrize("drip", [b"a: b\r\n", b"a"])
def test_who_drips_is_cut_off(inside, monkeypatch, drip):
    monkeypatch.setattr(listening, "TIMEOUT_S", 0.2)
    with sent(inside, b"GET /logs HTTP/1.1\r\n") as connection:
        connection.settimeout(0.02)
        for _ in range(3000):
            try:
                connection.sendall(drip)
                if connection.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            pytest.fail("still connected")


def test_a_body_that_drips_is_cut_off(inside, monkeypatch):
    with monkeypatch.context() as impatient:
        impatient.setattr(listening, "TIMEOUT_S", 0.2)
        with sent(inside, announced(body(totals=None), 1000)) as connection:
            assert connection.recv(1000) == b"", "no answer: what was asked never came"
    assert inside.ask("GET", "/logs")[1]["logs"] == []


def waited_for(condition):
    for _ in range(12_000):
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_one_address_does_not_take_every_place(witness):
    with crowd(witness, 80):
        assert witness.ask("GET", "/logs")[0] == 200


def test_places_are_given_back(inside, monkeypatch):
    monkeypatch.setattr(listening, "TIMEOUT_S", 600.0)  # no connection ends by itself
    for _ in range(3):
        with crowd(inside, 30):
            assert waited_for(lambda: inside.server._connected["127.0.0.2"] == listening.MOST_PER_ADDRESS)
        assert waited_for(lambda: not inside.server._connected)
    assert inside.ask("GET", "/logs")[0] == 200


def test_control_without_a_limit_by_address_it_does(inside, monkeypatch):
    """Planted bug, as it was: one address holds all places."""
    monkeypatch.setattr(listening, "MOST_PER_ADDRESS", 1000)
    monkeypatch.setattr(listening, "TIMEOUT_S", 600.0)
    with crowd(inside, listening.MOST_CONNECTIONS):
        assert waited_for(lambda: inside.server._connected.total() == listening.MOST_CONNECTIONS)
        with pytest.raises((OSError, http.client.HTTPException)):
            inside.ask("GET", "/logs")


# Earlier heads


@pytest.fixture
def remembering(tmp_path, monkeypatch):
    """A state that keeps few heads, and the sizes that it remembers after 200 heads."""
    monkeypatch.setattr(state_module, "KEPT_HEADS", 10)
    monkeypatch.setattr(state_module, "_THINNING", 4)
    monkeypatch.setattr(state_module, "verify_consistency", lambda *given: True)
    with closing(WitnessState(tmp_path / "w")) as state:
        for size in range(1, 201):
            root = size.to_bytes(32, "big")
            state.add(
                body(old_size=size - 1, checkpoint=head_of(size, {0: size}, root), totals={"0": str(size)})
            )
            assert len(state.heads(ORIGIN, 10**6, 0)["heads"]) <= 10 + 5 * 5 + 4, "of five doublings"
        yield state


def test_earlier_heads_are_thinned_and_bounded(remembering):
    heads = remembering.heads(ORIGIN, 10**6, 0)["heads"]
    sizes = [size for size, _ in heads]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[:10] == list(range(200, 190, -1)), "all of the last ones"
    assert min(sizes) < 100, "some of the oldest"
    gaps = [a - b for a, b in itertools.pairwise(sizes)]
    assert gaps[:10] == [1] * 10
    assert max(gaps[-3:]) >= 16, "ever fewer"
    assert all(root == size.to_bytes(32, "big").hex() for size, root in heads)
    assert [size for size, _ in remembering.heads(ORIGIN, 195, 2)["heads"]][:3] == [193, 192, 191]
    assert remembering.heads("nobody", 10**6, 0) == {"heads": []}


def test_the_same_head_again_is_remembered_once(remembering):
    """Who sends a checkpoint that the witness shows, again and again, cannot push earlier heads out."""
    before = remembering.heads(ORIGIN, 10**6, 0)
    root = (200).to_bytes(32, "big")
    for _ in range(100):
        remembering.add(body(old_size=200, checkpoint=head_of(200, {0: 200}, root), totals={}))
    assert remembering.heads(ORIGIN, 10**6, 0) == before


def test_a_client_reads_all_pages(witnessed, witness, monkeypatch):
    for i in range(20):
        witnessed.request(TERMS.name, f"q{i}", units(1))
    client = witness.client()
    whole = list(client.heads(ORIGIN, 1000))
    assert [size for size, _ in whole] == list(range(22, 0, -1))
    assert all(witnessed.root(size) == root for size, root in whole)
    exchange, pages = client._exchange, []

    def paged(method, path, data):
        pages.append(path)
        return exchange(method, path, data)

    monkeypatch.setattr(client, "_exchange", paged)
    assert list(client.heads(ORIGIN, 5)) == whole[-5:]
    assert len(pages) == 2
    assert EMPTY_ROOT not in dict(whole).values()


def test_a_state_of_an_older_witness_is_taken_over(tmp_path):
    """It has no heads, and a permit that names none: the permit does not count."""
    with closing(WitnessState(tmp_path / "w")) as state:
        state.add(body())
    with closing(sqlite3.connect(tmp_path / "w" / "witness.db")) as db:
        db.executescript("DROP TABLE head; DROP TABLE allowed; CREATE TABLE permit (origin TEXT PRIMARY KEY)")
        db.execute("INSERT INTO permit VALUES (?)", (ORIGIN,))
        db.commit()
    with closing(WitnessState(tmp_path / "w")) as state:
        assert not state.last(ORIGIN)["recovery"]
        assert state.heads(ORIGIN, 9, 0) == {"heads": []}
        state.allow_recovery(ORIGIN)
        assert state.last(ORIGIN)["recovery"]
