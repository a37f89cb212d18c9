"""Every store gives what was put, verified; whoever lies, is full, slow or gone is named in one line."""

import http.client
import os
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from reticent.errors import (
    ContentForged,
    ContentMissing,
    ContentTooLarge,
    ParameterError,
    StoreFull,
    StoreUnavailable,
)
from reticent.store import Cid, Directory, Gateway, Kubo, at, cid_of
from reticent.store.cid import DAG_PB, RAW
from reticent.store.server import StoreServer
from reticent.store.unixfs import LEAF_BYTES

TOKEN = "a token of more than sixteen letters"
ABSENT = Cid.of(RAW, b"nobody has this")


@contextmanager
def running(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def served(tmp_path):
    """A store behind HTTP that whoever has the token writes to."""
    with running(StoreServer(Directory(tmp_path / "served", capacity=8 << 20), token=TOKEN)) as server:
        yield server


@pytest.fixture(params=["directory", "gateway", "kubo"])
def store(request, tmp_path, served):
    kinds = {
        "directory": lambda: Directory(tmp_path / "here", capacity=8 << 20),
        "gateway": lambda: Gateway(served.url, token=TOKEN),
        "kubo": lambda: Kubo(served.url, token=TOKEN),
    }
    with kinds[request.param]() as found:
        yield found


# What every store does


@pytest.mark.parametrize("size", [0, 1, LEAF_BYTES, LEAF_BYTES + 1, 3 * LEAF_BYTES + 17])
def test_what_was_put_is_got(store, size):
    content = os.urandom(size)
    cid = store.put(content)
    assert cid == cid_of(content) == store.put(content)
    assert store.get(cid, most=size) == content


def test_nobody_has_it(store):
    with pytest.raises(ContentMissing, match=str(ABSENT)):
        store.get(ABSENT)


def test_more_than_allowed(store):
    cid = store.put(bytes(2 * LEAF_BYTES))
    with pytest.raises(ContentTooLarge):
        store.get(cid, most=2 * LEAF_BYTES - 1)


def test_a_store_that_is_full_keeps_nothing_of_the_block(store):
    with pytest.raises(StoreFull):
        store.put(os.urandom(9 << 20))
    with pytest.raises(ParameterError, match="bytes of a block must be <= 1048576"):
        store.put_block(RAW, bytes(LEAF_BYTES + 1))


def test_many_threads_share_a_store(store):
    contents = [os.urandom(1000) for _ in range(8)]
    found = [b""] * 8

    def work(place):
        found[place] = store.get(store.put(contents[place]))

    threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == contents


# A folder


def test_a_block_that_was_damaged_is_refused_and_put_anew(tmp_path):
    store = Directory(tmp_path)
    cid = store.put(b"as it was")
    (path,) = tmp_path.glob("*/b*")
    for damaged in (b"as it is!", b"", b"longer than it was", bytes(3 << 20)):
        path.write_bytes(damaged)
        with pytest.raises(ContentForged):
            store.get(cid)
    store.put(b"as it was")
    assert store.get(cid) == b"as it was"
    assert Directory(tmp_path).has(cid)


def test_what_a_folder_holds_counts_when_it_is_opened_again(tmp_path):
    Directory(tmp_path).put(bytes(1000))
    with pytest.raises(StoreFull, match="holds 1000 of at most 1500 bytes"):
        Directory(tmp_path, capacity=1500).put(b"x" * 501)
    assert not list(tmp_path.rglob(".*")), "no draft is left"


def test_a_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="cannot be used"):
        Directory(tmp_path / "file")


# Over HTTP


def raw_request(server, method, path, body=None, headers=None):
    line = http.client.HTTPConnection(*server.server_address[:2], timeout=30)
    try:
        line.request(method, path, body, headers or {})
        reply = line.getresponse()
        return reply.status, dict(reply.headers), reply.read()
    finally:
        line.close()


def test_any_reader_of_a_trustless_gateway_reads_it(served):
    cid = served.store.put(b"hello world\n")
    for path, accept in ((f"/ipfs/{cid}?format=raw", "*/*"), (f"/ipfs/{cid}", "application/vnd.ipld.raw")):
        status, headers, body = raw_request(served, "GET", path, headers={"Accept": accept})
        assert (status, body) == (200, b"hello world\n")
        assert headers["Content-Type"] == "application/vnd.ipld.raw"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "immutable" in headers["Cache-Control"]
    status, headers, body = raw_request(served, "HEAD", f"/ipfs/{cid}?format=raw")
    assert (status, headers["Content-Length"], body) == (200, "12", b"")


FORM = {"Content-Type": "multipart/form-data; boundary=x"}
BLOCK = b'--x\r\nContent-Disposition: form-data; name="data"\r\n\r\nblock\r\n--x--\r\n'
MAY = {"Authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", f"/ipfs/{ABSENT}?format=raw", None, {}, 404),
        ("GET", f"/ipfs/{ABSENT}", None, {}, 406),
        ("GET", "/ipfs/../../etc/passwd?format=raw", None, {}, 400),
        ("GET", "/ipfs/%2e%2e?format=raw", None, {}, 400),
        ("GET", "/", None, {}, 404),
        ("POST", "/api/v0/block/put", BLOCK, FORM, 401),
        ("POST", "/api/v0/block/put", BLOCK, FORM | {"Authorization": "Bearer wrong"}, 401),
        ("POST", "/api/v0/block/put", BLOCK, FORM | MAY, 200),
        ("POST", "/api/v0/block/put?cid-codec=dag-cbor", BLOCK, FORM | MAY, 400),
        ("POST", "/api/v0/block/put?mhtype=md5", BLOCK, FORM | MAY, 400),
        ("POST", "/api/v0/block/put", b"block", MAY, 400),
        ("POST", "/api/v0/block/put", b"--x\r\nblock", FORM | MAY, 400),
        ("POST", "/api/v0/block/put", BLOCK[:-7] + BLOCK, FORM | MAY, 400),
        ("POST", "/api/v0/block/put", None, FORM | MAY | {"Content-Length": str(LEAF_BYTES + 5000)}, 413),
        ("POST", "/api/v0/block/put", b"", FORM | MAY | {"Content-Length": "-1"}, 411),
        ("POST", "/api/v0/pin/add?arg=x", b"", MAY, 400),
        ("POST", "/api/v0/pin/add?arg=" + str(ABSENT), b"", MAY, 400),
        ("POST", "/api/v0/block/get?arg=x", b"", {}, 400),
        ("POST", "/api/v0/files/rm", b"", MAY, 404),
        ("DELETE", f"/ipfs/{ABSENT}", None, MAY, 501),
    ],
)
def test_what_is_asked_wrongly_is_refused_and_changes_nothing(served, method, path, body, headers, status):
    got, _, said = raw_request(served, method, path, body, headers)
    assert got == status
    if status == 200:
        assert str(Cid.of(RAW, b"block")) in said.decode()
    else:
        assert not served.store.has(Cid.of(RAW, b"block"))


@pytest.mark.parametrize(
    ("is_open", "headers", "status"),
    [(False, {}, 403), (True, {}, 200), (True, {"Origin": "https://page.example"}, 403)],
)
def test_without_a_token(tmp_path, is_open, headers, status):
    """Open to this machine, it is not open to pages that a browser of this machine shows."""
    with running(StoreServer(Directory(tmp_path), is_open=is_open)) as server:
        assert raw_request(server, "POST", "/api/v0/block/put", BLOCK, FORM | headers)[0] == status


def test_a_damaged_block_is_not_served(served, tmp_path):
    cid = served.store.put(b"as it was")
    (path,) = (tmp_path / "served").glob("*/b*")
    path.write_bytes(b"as it is!")
    status, _, body = raw_request(served, "GET", f"/ipfs/{cid}?format=raw")
    assert (status, body) == (502, b"the block cannot be read\n")


# Stores that lie


class Lying(BaseHTTPRequestHandler):
    """Answers everything with what the server was given."""

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, body, headers = self.server.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def liar():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Lying)
    server.daemon_threads = True
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    with running(server):
        yield server


@pytest.mark.parametrize("kind", [Gateway, Kubo])
@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ((200, b"another block", {}), ContentForged, "is not the content"),
        ((200, b"", {}), ContentForged, "is not the content"),
        ((200, bytes(3 << 20), {}), StoreUnavailable, "cannot be reached"),
        ((302, b"", {"Location": "http://127.0.0.1:1/"}), StoreUnavailable, "redirects"),
        ((503, b"\x1b[2Jgo\naway", {}), StoreUnavailable, r"refused \(503\): \[2Jgo away"),
        ((204, b"", {}), StoreUnavailable, "refused"),
    ],
)
def test_a_reader_believes_no_store(liar, kind, answer, error, words):
    liar.answer = answer
    with kind(liar.url) as store, pytest.raises(error, match=words) as caught:
        store.get(ABSENT)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_planted_a_reader_that_does_not_verify_is_caught(liar, monkeypatch):
    liar.answer = (200, b"another block", {})
    monkeypatch.setattr(Cid, "checked", lambda self, block: block)
    with Gateway(liar.url) as store:
        assert store.get(ABSENT) == b"another block"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((200, b'{"Key": "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"}', {}), ContentForged),
        ((200, b"kept, believe me", {}), StoreUnavailable),
        ((200, b"[]", {}), StoreUnavailable),
        ((507, b"", {}), StoreFull),
        ((401, b"no", {}), StoreUnavailable),
    ],
)
def test_a_writer_believes_no_store(liar, answer, error):
    liar.answer = answer
    with Kubo(liar.url) as store, pytest.raises(error):
        store.put(b"some content")


def test_kubo_pins_the_file_as_a_whole_and_says_if_it_cannot(liar, monkeypatch):
    monkeypatch.setattr(Kubo, "_keep", lambda *_: None)
    liar.answer = (500, b"no", {})
    with Kubo(liar.url) as store:
        store.put(b"one leaf is pinned already")
        with pytest.raises(StoreUnavailable, match="refused"):
            store.put(bytes(LEAF_BYTES + 1))


def test_kubo_says_that_a_block_is_nowhere(liar):
    with Kubo(liar.url) as store:
        for words in (
            b"block was not found locally (offline): ipld: could not find x",
            b"context deadline exceeded",
        ):
            liar.answer = (500, words, {})
            with pytest.raises(ContentMissing):
                store.get(ABSENT)


def test_nobody_is_there():
    for kind in (Gateway, Kubo):
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1 cannot be reached"):
            kind("http://127.0.0.1:9", timeout_s=5.0).get(ABSENT)


def test_a_connection_that_was_closed_meanwhile_is_opened_again(tmp_path, served):
    with Gateway(served.url, token=TOKEN) as store:
        cid = store.put(b"kept")
        for line in store._idle:
            line.sock.close()
        assert store.get(cid) == b"kept"


# Addresses


@pytest.mark.parametrize(
    ("place", "kind"), [("http://h:1", Gateway), ("kubo+https://h", Kubo), ("x", Directory)]
)
def test_which_store_an_address_means(place, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert type(at(place)) is kind


@pytest.mark.parametrize(
    "place", ["ftp://h", "http://", "http://u:p@h", "http://h:99999", "kubo+h", "http://[h"]
)
def test_what_is_no_address(place):
    with pytest.raises(ParameterError, match=r"must read http\(s\)://host:port"):
        at(place)


def test_a_token_is_not_sent_where_others_listen():
    with pytest.raises(ParameterError, match="must begin with https://"):
        Gateway("http://store.example", token=TOKEN)
    with pytest.raises(ParameterError, match="printable"):
        Gateway("https://store.example", token="a\r\nb")


def test_nodes_are_blocks_too(store):
    block = b"\x0a\x02\x08\x02"
    cid = store.put_block(DAG_PB, block)
    assert store.block(cid) == block
