"""Clients of services, witnesses and nodes against one that lies: they end, and show nothing that steers.

A client is opened and asked once; what it makes of the lie is an error of its own kind.
"""

import contextlib
import http.client
import io
import json
import threading
from itertools import product
from types import SimpleNamespace

import pytest

from reticent import peers
from reticent.chain import node
from reticent.chain.node import Node
from reticent.errors import (
    ChainError,
    NodeUnavailable,
    NotMeasured,
    ParameterError,
    ReticentError,
    SourceError,
    StoreUnavailable,
    WitnessRefused,
    WitnessUnavailable,
)
from reticent.fleet.transport import Http
from reticent.ledger.witness import client as witness
from reticent.ledger.witness.client import WitnessClient
from reticent.query import remote
from reticent.query.remote import RemoteSession
from reticent.store.cid import RAW, Cid
from reticent.store.gateway import Gateway

from .lying import Liar, reply

SHORT_S = 0.3  # where a client must give up
LONG_S = 120.0  # where it must not, on a machine with much else to do
ESCAPE = "\x1b]0;owned\x07\x1b[2J\r\u202eevil\x9b31m\nsecond line"


def by_remote(url, timeout_s=LONG_S):
    with RemoteSession(f"{url}/census", "rk_secret", timeout_s=timeout_s) as session:
        return session.budget()


def by_witness(url, timeout_s=LONG_S):
    with contextlib.closing(WitnessClient(url, timeout_s=timeout_s)) as client:
        return client.logs()


def by_node(url, timeout_s=LONG_S):
    with contextlib.closing(Node(url, timeout_s=timeout_s)) as found:
        return found.number()


CLIENTS = {
    "remote": (by_remote, SourceError),
    "witness": (by_witness, WitnessUnavailable),
    "node": (by_node, NodeUnavailable),
}


def by_store(url):
    return Gateway(url, timeout_s=LONG_S).get(Cid.of(RAW, b"x"))


def by_transport(url):
    return Http(url, tries=1, timeout_s=LONG_S).fetch("survey")


CHUNK_CLIENTS = {
    "remote": CLIENTS["remote"],
    "witness": CLIENTS["witness"],
    "store": (by_store, StoreUnavailable),
    "transport": (by_transport, SourceError),
}


@pytest.fixture(params=CLIENTS)
def client(request, monkeypatch):
    monkeypatch.setattr(remote, "_TRIES", 1)
    monkeypatch.setattr(remote, "_PAUSES_S", (0.0, 0.0))
    return CLIENTS[request.param]


@pytest.fixture
def lying():
    """A function that starts a liar, who sends the given bytes, or what a function makes up."""
    with contextlib.ExitStack() as held:

        def start(tell):
            def told(line, request):
                tell(line, request) if callable(tell) else line.sendall(tell)

            return held.enter_context(contextlib.closing(Liar(told)))

        yield start


# Redirects


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
def test_no_redirect_is_followed(client, lying, status):
    other = lying(reply({"key": "x", "result": "0x1", "id": 1}))
    moved = lying(reply({}, status, Location=f"{other.url}/elsewhere"))
    with pytest.raises(ReticentError):
        client[0](moved.url)
    assert moved.heard
    assert other.heard == []


def test_planted_a_redirect_takes_what_is_sent_elsewhere(lying, monkeypatch):
    post = node.requests.Session.post

    def follows(self, url, **options):
        return post(self, url, **{**options, "allow_redirects": True})

    monkeypatch.setattr(node.requests.Session, "post", follows)
    other = lying(reply({"result": "0x1", "id": 1}))
    moved = lying(reply({}, "307 Temporary", Location=f"{other.url}/elsewhere"))
    with contextlib.suppress(ReticentError):
        by_node(moved.url)
    assert other.heard


# Time and size


def dripping(lying, head, part):
    found = []

    def tell(line, _):
        line.sendall(head)
        found[0].drip(line, part)

    found.append(lying(tell))
    return found[0]


ENDLESS = {
    "body": (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "headers": (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


# Of a node urllib3 reads the headers, at most 64 KiB a line: docs/limits.md says so.
UNBOUND = {("node", "headers"), ("node", "continue")}
PAIRS = [pair for pair in product(CLIENTS, ENDLESS) if pair not in UNBOUND]


@pytest.mark.parametrize(("client", "what"), PAIRS, indirect=["client"])
def test_what_drips_for_ever_ends(client, lying, what):
    liar = dripping(lying, *ENDLESS[what])
    with pytest.raises(client[1]):
        client[0](liar.url, SHORT_S)


class ManualTimer:
    """A timer whose time is over when the test says so."""

    def __init__(self, started, function):
        self._started, self._function = started, function

    def start(self):
        self._started.append(self._function)

    def cancel(self):
        pass


@pytest.fixture
def end_time(monkeypatch):
    """A function that ends the time of every reply that is being read."""
    started = []
    make_timer = lambda seconds, function: ManualTimer(started, function)  # noqa: E731
    monkeypatch.setattr(peers, "threading", SimpleNamespace(Event=threading.Event, Timer=make_timer))

    def end():
        for function in started:
            function()

    return end


@pytest.mark.parametrize("is_planted", [False, True])
def test_a_timeout_of_the_socket_alone_waits_for_ever(lying, monkeypatch, end_time, is_planted):
    """Planted: a reply that has a timeout for each byte, and none for all of it."""
    monkeypatch.setattr(remote, "_TRIES", 1)
    if is_planted:
        monkeypatch.setattr(peers, "cut_after", lambda line, seconds: contextlib.nullcontext())
    sent, errors, ended = threading.Semaphore(0), [], threading.Event()

    def tell(line, _):
        line.sendall(ENDLESS["body"][0])
        with contextlib.suppress(OSError):
            while not ended.wait(0.01):
                line.sendall(b"x")
                sent.release()

    liar = lying(tell)

    def ask():
        try:
            by_remote(liar.url)
        except ReticentError as error:
            errors.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(5):
        assert sent.acquire(timeout=LONG_S)
    end_time()
    if is_planted:
        for _ in range(20):
            assert sent.acquire(timeout=LONG_S)
        assert asking.is_alive()
        ended.set()
        liar.close()
    asking.join(LONG_S)
    assert not asking.is_alive()
    ended.set()
    assert [type(error) for error in errors] == [SourceError]


def test_what_is_too_long_is_not_kept(client, lying, monkeypatch):
    monkeypatch.setattr(remote, "_LONGEST_REPLY", 1000)
    monkeypatch.setattr(witness, "MOST_BYTES", 1000)
    monkeypatch.setattr(node, "_MOST_BYTES", 1000)
    good = {"key": "x", "result": "0x1", "id": 1, "more": "x" * 2000}
    liar = lying(reply(good))
    with pytest.raises(client[1]):
        client[0](liar.url)


# JSON


@pytest.mark.parametrize(
    "raw",
    [b"[" * 100_000, b'{"a":' * 200 + b"1" + b"}" * 200, b'{"x": NaN}', b'{"x": -Infinity}', b'{"x": 1e999}',
     b"\xff", b"", b"{", b'{"x": ' + b"9" * 5000 + b"}"],
)  # fmt: skip
def test_json_that_is_refused(client, lying, raw):
    with pytest.raises(ValueError):
        peers.read_json(raw)
    liar = lying(reply(raw))
    with pytest.raises(client[1]):
        client[0](liar.url)


def test_deep_json_never_reaches_the_parser(monkeypatch):
    """Where recursion is allowed to go deep, the parser would end the process."""
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("parsed"))
    with pytest.raises(ValueError, match="levels"):
        peers.read_json(b"[" * 1_000_000)


BOMBS = {
    "objects": b'{"a":[' + b"{}," * 3000 + b"{}]}",
    "lists": b'{"a":[' + b"[]," * 3000 + b"[]]}",
    "numbers": b'{"a":[' + b"0," * 3000 + b"0]}",
    "texts": b'{"a":[' + b'"\\"",' * 3000 + b"0]}",
    "fields": b'{"a":{' + b",".join(b'"%x":0' % one for one in range(3000)) + b"}}",
    "no json": b'{"a":[' + b"{}," * 3000,
}


@pytest.mark.parametrize("what", BOMBS)
def test_many_parts_never_reach_the_parser(monkeypatch, what):
    """64 MB of `{},` took 3.2 GB and 25 s, beyond every timeout."""
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("parsed"))
    with pytest.raises(ValueError, match="2000 parts"):
        peers.read_json(BOMBS[what], most=2000)


def test_a_reply_of_many_parts_is_refused(client, lying, monkeypatch):
    monkeypatch.setattr(peers, "MOST_PARTS", 2000)
    monkeypatch.setattr(peers.read_json, "__kwdefaults__", {"deepest": 100, "most": 2000})
    bomb = reply({"key": "x", "result": "0x1", "id": 1, "logs": [{}] * 3000})
    with pytest.raises(client[1]):
        client[0](lying(bomb).url)


@pytest.mark.parametrize("what", sorted(set(BOMBS) - {"no json"}))
def test_planted_depth_alone_lets_bombs_through(what):
    """As it was."""
    assert not peers.is_deeper(BOMBS[what].decode(), 100)
    assert len(json.loads(BOMBS[what])["a"]) >= 3000


def test_what_stands_in_texts_is_no_part():
    told = {"a": "[{," * 3000, "b": '\\"[,' * 3000, "c": "\\"}
    assert peers.read_json(json.dumps(told).encode(), most=10) == told


def test_the_largest_answer_has_room():
    cell = {"labels": ["x"] * 8, "value": 1.5, "standard_error": 1.5, "low": 0.0, "high": 1.0}
    raw = json.dumps({"cells": [cell] * (1 << 16)}).encode()
    assert not peers.is_deeper(raw.decode(), 100, peers.MOST_PARTS)


@pytest.mark.parametrize("text", ['"' * 9999, '\\"' * 9999, '"' + "\\" * 9999, '"a\\', '"\\"', '""', '"['])
def test_texts_that_do_not_end_are_read_once(text):
    assert not peers.is_deeper(text, 1)


# Chunks

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class RecordingReader:
    """The file of a reply, and how many bytes were asked of it at once."""

    def __init__(self, content):
        self.file, self.sizes = io.BytesIO(content), []

    def read(self, size=-1):
        self.sizes.append(size)
        return self.file.read(size)

    def readline(self, size=-1):
        self.sizes.append(size)
        return self.file.readline(size)

    def close(self):
        pass


def read_chunked(content):
    """The body that `_read_chunks` makes of bytes on the wire, and the sizes that it read at once."""
    reply = http.client.HTTPResponse.__new__(http.client.HTTPResponse)
    reply.fp = RecordingReader(content)
    return b"".join(peers._read_chunks(reply)), reply.fp.sizes


def test_chunks_are_put_together_in_bounded_pieces():
    content = b"3;name=value\r\nabc\r\n" + b"1FFFF \r\n" + b"x" * 0x1FFFF + b"\r\n0\r\nTrailer: 1\r\n\r\n"
    body, sizes = read_chunked(content)
    assert body == b"abc" + b"x" * 0x1FFFF
    assert 0 < min(sizes) <= max(sizes) <= peers._PIECE


BAD_CHUNKS = {
    "minus one": b"-1\r\n" + b"x" * 100,
    "minus five": b"-5\r\nabcde\r\n",
    "plus": b"+3\r\nabc\r\n0\r\n\r\n",
    "prefix": b"0x3\r\nabc\r\n0\r\n\r\n",
    "underscore": b"1_0\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n",
    "space first": b" 3\r\nabc\r\n0\r\n\r\n",
    "no size": b"\r\nabc",
    "no number": b"zz\r\nabc\r\n",
    "other digits": "\u0663\r\nabc\r\n0\r\n\r\n".encode(),
    "cut in a chunk": b"3\r\nab",
    "cut in a size": b"3",
    "cut before its end": b"0\r\n",
    "longer than its size": b"3\r\nabcd\r\n0\r\n\r\n",
    "sixteen digits": b"f" * 16 + b"\r\nabc",
    "long extension": b"3;" + b"x" * 5000 + b"\r\nabc\r\n0\r\n\r\n",
    "many trailers": b"0\r\n" + b"Trailer: 1\r\n" * 1000 + b"\r\n",
}


@pytest.mark.parametrize("content", BAD_CHUNKS.values(), ids=BAD_CHUNKS)
def test_chunks_of_no_sound_size_are_refused(content):
    with pytest.raises(http.client.HTTPException):
        read_chunked(content)


@pytest.mark.parametrize("client", CHUNK_CLIENTS)
@pytest.mark.parametrize("content", [b"-1\r\n" + b"x" * 100, b"-5\r\nabcde\r\n"], ids=["minus-1", "minus-5"])
def test_a_negative_chunk_is_an_error_of_each_client(client, content, lying, monkeypatch):
    monkeypatch.setattr(remote, "_TRIES", 1)
    ask, error = CHUNK_CLIENTS[client]
    liar = lying(CHUNKED + content)
    with pytest.raises(error):
        ask(liar.url)


@pytest.mark.parametrize("size", [-1, -5])
def test_planted_reader_of_the_standard_library_reads_without_bound(size):
    """`http.client` passes a negative size on to the file, or ends in an error that no client expects."""
    reply = http.client.HTTPResponse.__new__(http.client.HTTPResponse)
    reply.fp, reply.chunked, reply.chunk_left, reply._method = (
        RecordingReader(f"{size}\r\n".encode() + b"x" * 100_000), True, None, "GET",
    )  # fmt: skip
    with contextlib.suppress(ValueError, http.client.HTTPException):
        reply.read(10)
    assert min(reply.fp.sizes) < 0


def test_json_as_we_write_it_is_read():
    told = {"a": [1, 2.5, None, True, "x\n\ty"], "b": {"c": "\u00e9\u200d"}}
    assert peers.harmless(peers.read_json(json.dumps(told).encode())) == told


# What is shown


def refusing(message):
    """Bytes in which each kind of client finds an error with a message."""
    return {
        "remote": reply({"error": {"type": "bad_request", "message": message}}, "400 Bad Request"),
        "witness": reply({"error": message}, "403 Forbidden"),
        "node": reply({"error": {"message": message}, "id": 1}),
    }


EXPECTED = {"remote": ParameterError, "witness": WitnessRefused, "node": ChainError}


def said_by(name, lying, monkeypatch, message=ESCAPE):
    monkeypatch.setattr(remote, "_TRIES", 1)
    with pytest.raises(EXPECTED[name]) as caught:
        CLIENTS[name][0](lying(refusing(message)[name]).url)
    return str(caught.value)


def is_plain(text):
    return all(sign.isprintable() for sign in text)


@pytest.mark.parametrize("name", CLIENTS)
def test_no_escape_reaches_a_terminal(name, lying, monkeypatch):
    text = said_by(name, lying, monkeypatch)
    assert "second line" in text
    assert is_plain(text)


@pytest.mark.parametrize("name", CLIENTS)
def test_planted_words_shown_as_they_came_reach_a_terminal(name, lying, monkeypatch):
    monkeypatch.setattr(peers, "one_line", lambda words, longest=200: str(words))
    monkeypatch.setattr(peers, "harmless", lambda value: value)
    assert not is_plain(said_by(name, lying, monkeypatch))


@pytest.mark.parametrize("name", CLIENTS)
def test_long_words_are_cut(name, lying, monkeypatch):
    assert len(said_by(name, lying, monkeypatch, "x" * 100_000)) < 2000


def test_texts_in_replies_hold_no_escapes(lying):
    liar = lying(reply({"description": ESCAPE, ESCAPE: [ESCAPE]}))
    with RemoteSession(f"{liar.url}/census", "rk_secret") as session:
        assert is_plain(repr(session.described).replace("\n", ""))
        assert "\x1b" not in json.dumps(session.described, ensure_ascii=False)


# The key of a service


@pytest.mark.parametrize(
    ("host", "here"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("LOCALHOST", True),
     ("10.0.0.1", False), ("example.org", False), ("localhost.example.org", False),
     ("127.0.0.1.example.org", False), ("0", False), ("", False), (None, False)],
)  # fmt: skip
def test_what_is_here(host, here):
    assert peers.is_here(host) is here


def test_no_key_travels_in_the_clear_unless_told(lying, monkeypatch):
    monkeypatch.setattr(peers, "is_here", lambda host: False)  # as if it were another machine
    liar = lying(reply({}))
    with pytest.raises(ParameterError, match=r"https://.*insecure=True"):
        RemoteSession(f"{liar.url}/census", "rk_secret")
    assert liar.heard == []
    RemoteSession(f"{liar.url}/census", "rk_secret", insecure=True).close()
    assert b"rk_secret" in liar.heard[0]


def test_planted_a_client_that_thinks_all_is_here_sends_its_key(lying, monkeypatch):
    monkeypatch.setattr(peers, "is_here", lambda host: True)
    liar = lying(reply({}))
    RemoteSession(f"{liar.url}/census", "rk_secret").close()
    assert b"rk_secret" in liar.heard[0]


# What a lying service makes a client do


@pytest.mark.parametrize("again", ["1000000000", "9" * 60_000, "1e9", "-1", "\xb2", "inf", "Wed, 1 Jan 3000"])
def test_a_service_cannot_make_one_sleep(lying, monkeypatch, again):
    slept = []
    monkeypatch.setattr(remote.time, "sleep", slept.append)
    busy = reply({"error": {"type": "busy", "message": "later"}}, "503 Busy", Retry_After=again)
    with pytest.raises(SourceError, match="later"):
        RemoteSession(f"{lying(busy).url}/census", "rk_secret")
    assert sum(slept) <= 3 * remote._PAUSES_S[1]


WRONG = [
    {},
    {"answer": 1},
    {"answer": {"query": []}},
    {"error": 1},
    {"cap": "x", "minimum": [], "spent": None},
]


@pytest.mark.parametrize("told", WRONG)
@pytest.mark.parametrize(
    "ask",
    [
        lambda session: session.ask("SELECT COUNT(*) FROM census", error=1.0),
        lambda session: session.price("SELECT COUNT(*) FROM census", error=1.0),
        lambda session: session.known("SELECT COUNT(*) FROM census"),
        lambda session: session.rehearse("SELECT COUNT(*) FROM census", error=1.0),
        lambda session: session.balance(),
        lambda session: session.questions(),
    ],
    ids=["ask", "price", "known", "rehearse", "balance", "questions"],
)
def test_replies_of_no_shape_are_the_services_fault(lying, told, ask):
    with (
        RemoteSession(f"{lying(reply(told)).url}/census", "rk_secret") as session,
        pytest.raises(SourceError, match=r"not as Reticent does|does not answer as Reticent does"),
    ):
        ask(session)


@pytest.mark.parametrize(
    "told",
    [{"type": "budget_exceeded", "asked": "x", "left": "1"},
     {"type": "budget_exceeded", "asked": "9" * 5000, "left": "1"},
     {"type": "budget_exceeded", "asked": "1" + "0" * 400, "left": "1", "reachable_error": 1.0},
     {"type": "budget_exceeded", "asked": "5", "left": "1", "reachable_error": 1.0, "best": {"query": 1}}],
)  # fmt: skip
def test_refusals_of_no_shape_are_the_services_fault(lying, told):
    def tell(line, request):
        line.sendall(reply({}) if request.startswith(b"GET") else reply({"error": told}, "409 Conflict"))

    with (
        RemoteSession(f"{lying(tell).url}/census", "rk_secret") as session,
        pytest.raises(SourceError, match="does not answer as Reticent does"),
    ):
        session.ask("SELECT COUNT(*) FROM census", error=1.0)


def test_a_job_without_end_and_questions_without_end(lying):
    count = iter(range(10**9))

    def tell(line, request):
        if b"/ask" in request:
            told = {"job": "x"}
        elif b"/answers" in request:
            told = {"answers": [{"key": str(next(count)), "query": {"kind": "count"}}], "size": 10**18}
        else:
            told = {"state": "running"}
        line.sendall(reply(told))

    with RemoteSession(f"{lying(tell).url}/census", "rk_secret", wait_s=0.2) as session:
        with pytest.raises(NotMeasured):
            session.ask("SELECT COUNT(*) FROM census", error=1.0)
        with pytest.raises(SourceError, match="ever more questions"):
            session.questions()


def test_questions_are_kept_up_to_a_number(lying, monkeypatch):
    monkeypatch.setattr(remote, "_MOST_QUESTIONS", 20)
    count = iter(range(10**9))

    def tell(line, _):
        listed = [{"key": str(next(count)), "query": {"kind": "count"}} for _ in range(8)]
        line.sendall(reply({"answers": listed, "size": 10**18}))

    liar = lying(tell)
    with (
        RemoteSession(f"{liar.url}/census", "rk_secret") as session,
        pytest.raises(SourceError, match="ever more questions"),
    ):
        session.questions()
    assert len(liar.heard) == 1 + 3


def test_the_same_questions_again_and_again_end(lying):
    told = {"answers": [{"key": "a", "query": {"kind": "count"}}], "size": 10**18}
    with RemoteSession(f"{lying(reply(told)).url}/census", "rk_secret") as session:
        assert list(session.questions()) == ["a"]


def test_a_witness_of_endless_heads_ends(monkeypatch):
    client = WitnessClient("http://127.0.0.1:1")
    heads = {"heads": [[10**18, "00" * 32]] * 1000}
    monkeypatch.setattr(client, "_fresh", lambda *_, **__: (200, heads))
    with pytest.raises(WitnessUnavailable, match="more heads than it keeps"):
        for _ in client.heads("x", 10**18):
            pass
