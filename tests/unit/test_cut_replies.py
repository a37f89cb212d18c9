"""A reply that is cut in its body is an error of the client's own kind, and never a shorter reply."""

import contextlib
import json
import socket

import pytest
import requests
import urllib3

from reticent import peers
from reticent.chain import node as node_module
from reticent.chain.node import Node
from reticent.errors import NodeUnavailable, SourceError, StoreUnavailable, WitnessUnavailable
from reticent.federated.split.line import EdgeError, Line
from reticent.fleet.transport import Http
from reticent.ledger.witness.client import WitnessClient
from reticent.query import remote
from reticent.query.remote import RemoteSession
from reticent.store import Cid
from reticent.store.gateway import Gateway
from reticent.store.unixfs import cid_of

from .lying import Liar, reply

CONTENT = json.dumps({"id": 1, "jsonrpc": "2.0", "result": "0x7a69", "key": "x"}).encode()
TIMEOUT_S = 60.0


def ask_service(url):
    with RemoteSession(f"{url}/census", "rk_secret", timeout_s=TIMEOUT_S) as session:
        return session.budget()


def ask_witness(url):
    with contextlib.closing(WitnessClient(url, timeout_s=TIMEOUT_S)) as client:
        return client.logs()


def ask_node(url):
    with contextlib.closing(Node(url, timeout_s=TIMEOUT_S)) as client:
        return client.chain_id


def ask_store(url):
    with contextlib.closing(Gateway(url, timeout_s=TIMEOUT_S)) as store:
        return store.block(Cid.parse(str(cid_of(CONTENT))))


def ask_operator(url):
    return Http(url, tries=1, timeout_s=TIMEOUT_S).fetch("surveys")


def ask_edge(url):
    with Line(url, "task", patience_s=0.0) as line:
        return line.end()


CLIENTS = {
    "service": (ask_service, SourceError),
    "witness": (ask_witness, WitnessUnavailable),
    "node": (ask_node, NodeUnavailable),
    "store": (ask_store, StoreUnavailable),
    "operator": (ask_operator, SourceError),
    "edge": (ask_edge, EdgeError),
}

LONGER = f"Content-Length: {len(CONTENT) + 7}\r\n\r\n".encode()
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
CUTS = {
    "before the body": LONGER,
    "in the body": LONGER + CONTENT[:10],
    "after a whole JSON text": LONGER + CONTENT,
    "before the first chunk": CHUNKED,
    "in a chunk": CHUNKED + b"40\r\n" + CONTENT[:10],
    "after a chunk": CHUNKED + f"{len(CONTENT):x}\r\n".encode() + CONTENT + b"\r\n",
    "in the length of a chunk": CHUNKED + f"{len(CONTENT):x}\r\n".encode() + CONTENT + b"\r\n4",
}


def cut_reply(line, part):
    line.sendall(b"HTTP/1.1 200 OK\r\n" + part)
    line.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def cutting(monkeypatch):
    """Return a function that starts a server which ends every reply at the given place."""
    monkeypatch.setattr(remote, "_TRIES", 1)
    monkeypatch.setattr(remote, "_PAUSES_S", (0.0, 0.0))
    with contextlib.ExitStack() as opened:

        def start(part):
            server = Liar(lambda line, _: cut_reply(line, part))
            return opened.enter_context(contextlib.closing(server))

        yield start


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_cut_reply_is_an_error_of_the_client(cutting, client, cut):
    ask, error = CLIENTS[client]
    with pytest.raises(error):
        ask(cutting(CUTS[cut]).url)


def test_planted_http_client_alone_takes_a_cut_reply_for_a_whole_one(cutting, monkeypatch):
    """The old fault of the bounded reader: without its check, a device trusts half of a document."""

    class NeverCut(int):
        def __bool__(self):
            return False

    read = peers.http.client.HTTPResponse.read

    def read_without_length(self, amount=None):
        part = read(self, amount)
        if self.length is not None:
            self.length = NeverCut(self.length)
        return part

    monkeypatch.setattr(peers.http.client.HTTPResponse, "read", read_without_length)
    assert ask_operator(cutting(CUTS["in the body"]).url) == CONTENT[:10]


# A node: the programs that follow a chain wait out NodeUnavailable, and nothing else


def test_one_cut_reply_of_a_node_is_asked_for_again():
    """As with a connection that the node closed while it was idle."""
    cuts = iter([CUTS["in the body"], CUTS["in a chunk"]])

    def answer(line, request):
        identity = json.loads(request.partition(b"\r\n\r\n")[2])["id"]
        if (part := next(cuts, None)) is not None and identity > 1:
            return cut_reply(line, part)
        return line.sendall(reply({"id": identity, "jsonrpc": "2.0", "result": "0x7a69"}))

    with contextlib.closing(Liar(answer)) as server, contextlib.closing(Node(server.url)) as node:
        assert node.number() == 0x7A69
        assert len(server.heard) == 3


def test_a_node_that_stalls_in_a_body_is_too_late(monkeypatch):
    """`urllib3` has a timeout of its own, which is not that of `requests`."""

    def stall(self, body):
        raise urllib3.exceptions.ReadTimeoutError(None, "http://secret@host", "Read timed out.")

    monkeypatch.setattr(Node, "_exchange", stall)
    with pytest.raises(NodeUnavailable, match=r"does not answer within 5 s$"):
        Node("http://127.0.0.1:1", timeout_s=5)


def test_a_cut_reply_shows_no_secret(cutting):
    server = cutting(CUTS["in the body"])
    with pytest.raises(NodeUnavailable, match=r"does not answer \(ProtocolError\)$") as caught:
        ask_node(server.url.replace("//", "//name:c0ffee@") + "/c0ffee")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_planted_a_node_that_knows_errors_of_requests_alone_lets_others_through(cutting, monkeypatch):
    """The old fault: reading the body raises errors of `urllib3`, which no caller expects."""
    monkeypatch.setattr(node_module, "_FAILED_EXCHANGE", (requests.RequestException, ValueError, OSError))
    with pytest.raises(urllib3.exceptions.ProtocolError):
        ask_node(cutting(CUTS["in the body"]).url)
