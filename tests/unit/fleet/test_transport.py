"""Reports arrive over lines that fail: the same bytes again, in bounded size, and no key in plain."""

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from reticent.errors import ParameterError, SourceError
from reticent.fleet import transport
from reticent.fleet.transport import Http, publishing
from reticent.processes import free_port

from ..collect import broker

REPORT = bytes(range(64))


@contextlib.contextmanager
def service(*replies):
    """A service that answers in turn: a status, or None to hang up. The last one stays."""
    left, seen = list(replies), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append((self.command, self.path, content, self.headers.get("Authorization")))
            status = left.pop(0) if len(left) > 1 else left[0]
            if status is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(b"told")

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/api/", seen
        finally:
            server.shutdown()
            thread.join()


def test_what_fails_is_sent_again_as_it_was():
    pauses = []
    with service(None, 503, 429, None, 200) as (url, seen):
        assert Http(url, pause=pauses.append).send("reports", REPORT) == b"told"
    assert seen == [("POST", "/api/reports", REPORT, None)] * 5
    assert pauses == [0.1, 0.2, 0.4, 0.8]


def test_it_is_fetched_with_a_key_from_this_machine():
    with service(503, 200) as (url, seen):
        assert Http(url, key="k", pause=lambda _: None).fetch("/round") == b"told"
    assert seen == [("GET", "/api/round", b"", "Bearer k")] * 2


@pytest.mark.parametrize("status", [301, 400, 401, 413, 500])
def test_a_refusal_is_told_and_not_repeated(status):
    told = pytest.raises(SourceError, match=f"the service at 127.0.0.1 answered {status}")
    with service(status) as (url, seen), told:
        Http(url, pause=pytest.fail).send("reports", REPORT)
    assert len(seen) == 1, "and no redirect is followed"


def test_it_gives_up_in_words():
    with service(503) as (url, seen), pytest.raises(SourceError, match="answered 503"):
        Http(url, tries=3, pause=lambda _: None).send("reports", REPORT)
    assert len(seen) == 3
    with pytest.raises(SourceError, match=r"cannot be reached \(ConnectionRefusedError\)"):
        Http(url, tries=2, pause=lambda _: None).fetch("round")


def test_a_reply_is_bounded(monkeypatch):
    """Planted beside it: the same reply within the bound is taken."""
    with service(200) as (url, _):
        assert Http(url, tries=1).fetch("round") == b"told"
        monkeypatch.setattr(transport, "LONGEST_REPLY", 3)
        with pytest.raises(SourceError, match=r"cannot be reached \(HTTPException\)"):
            Http(url, tries=1).fetch("round")


def test_no_key_goes_in_plain_to_another_machine(monkeypatch):
    def refused(url):
        try:
            Http(url, key="secret")
        except ParameterError as error:
            return "secret" not in str(error)
        return False

    others = ["http://example.org", "http://10.0.0.1:80", "http://localhost.example.org"]
    assert [refused(one) for one in others] == [True] * 3
    for url in ("https://example.org", "http://127.0.0.1:1", "http://localhost", "http://[::1]:1"):
        assert not refused(url)
    Http("http://example.org")
    monkeypatch.setattr(transport.peers, "is_here", lambda host: True)  # planted
    assert not any(refused(one) for one in others)


@pytest.mark.parametrize("url", ["", "example.org", "ftp://example.org", "http://", "https://me@example.org"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ParameterError, match="url must be"):
        Http(url)


def test_a_broker_has_all_of_them_when_it_is_left(tmp_path):
    client = pytest.importorskip("paho.mqtt.client")
    got, ready, done = [], threading.Event(), threading.Event()

    def message(_, __, one):
        got.append(bytes(one.payload))
        if len(got) == 50:
            done.set()

    with broker.running(tmp_path) as port:
        reader = client.Client(client.CallbackAPIVersion.VERSION2)
        reader.on_message, reader.on_subscribe = message, lambda *_: ready.set()
        reader.connect("127.0.0.1", port)
        reader.loop_start()
        reader.subscribe("reticent/reports", 1)
        assert ready.wait(120)
        with publishing("127.0.0.1", port) as publish:
            for number in range(50):
                publish(REPORT + bytes([number]))
        assert done.wait(120)
        reader.disconnect()
        reader.loop_stop()
    assert sorted(set(got)) == [REPORT + bytes([number]) for number in range(50)]


def test_a_broker_that_is_not_there_is_told():
    pytest.importorskip("paho.mqtt.client")
    with pytest.raises(SourceError, match=r"the broker at 127\.0\.0\.1 cannot be reached"):
        publishing("127.0.0.1", free_port()).__enter__()
    with pytest.raises(ParameterError, match="a password is not sent in plain"):
        publishing("broker.example.org", 1883, username="me", password="x").__enter__()


def test_a_broker_that_acknowledges_nothing_is_told(monkeypatch):
    """Planted: somebody listens and never answers."""
    pytest.importorskip("paho.mqtt.client")
    monkeypatch.setattr(transport, "_LATEST_S", 0.05)
    told = pytest.raises(SourceError, match="did not acknowledge 1 of 1 reports")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with told, publishing("127.0.0.1", port) as publish:
            publish(REPORT)
