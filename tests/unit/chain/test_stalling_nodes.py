"""A node that keeps a connection busy for ever is cut: a timeout of a socket starts anew with every byte."""

import contextlib
from itertools import count, repeat

import pytest

from reticent import peers
from reticent.chain.node import Node
from reticent.errors import NodeUnavailable

from ..lying import Liar, reply

CONTENT = b'{"id": 1, "jsonrpc": "2.0", "result": "0x7a69"}'
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
CHUNK = b"%x\r\n%s\r\n0\r\n" % (len(CONTENT), CONTENT)
STALLS = {  # what comes first, what is then sent again and again, and how an honest node would end
    "interim replies": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", reply(CONTENT)),
    "trailers": (HEAD + b"\r\n" + CHUNK, b"X: y\r\n", b"\r\n"),
}


def open_node(stall, *, times, timeout_s):
    """Open a node that sends a part so many times before it ends its reply; None for ever."""
    begin, part, end = STALLS[stall]

    def tell(line, request):
        line.sendall(begin)
        for _ in count() if times is None else repeat(None, times):
            line.sendall(part)
        line.sendall(end)

    liar = Liar(tell)
    try:
        with contextlib.closing(Node(liar.url, timeout_s=timeout_s)) as node:
            return node.chain_id
    finally:
        liar.close()


@pytest.mark.parametrize("stall", STALLS)
def test_a_node_that_never_ends_its_reply_is_cut(stall):
    with pytest.raises(NodeUnavailable, match=r"does not answer within 0\.1 s"):
        open_node(stall, times=None, timeout_s=0.1)


@pytest.mark.parametrize("stall", STALLS)
def test_a_node_that_ends_its_reply_in_time_is_heard(stall):
    assert open_node(stall, times=50, timeout_s=600.0) == 31337


@pytest.mark.parametrize("stall", STALLS)
def test_planted_node_without_a_cut_is_found(stall, monkeypatch):
    """Without the cut, time that is over ends nothing: the node of earlier releases read on."""
    used = []

    @contextlib.contextmanager
    def never_cut(line, seconds):
        used.append(seconds)
        yield

    monkeypatch.setattr(peers, "cut_after", never_cut)
    assert open_node(stall, times=50, timeout_s=600.0) == 31337
    assert len(used) == 2  # head and body of the reply are both under the cut
