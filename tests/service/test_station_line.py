"""The edge's line to the provider: what arrives is whole and of the size that is due, or it is told."""

import asyncio

import pytest

from reticent.apps.stations import line
from reticent.apps.stations.line import ProviderLine
from reticent.errors import ParameterError, SourceError

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabcd"
CUT_SHORT = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab"  # and never the rest


def exchanged(monkeypatch, replies, *, calls=1, pauses=(0.0, 0.0, 0.0, 0.0)):
    """What calls to a provider return that says these things, one for each request; and what it was sent."""
    monkeypatch.setattr(line, "_PAUSES_S", pauses)
    waiting, seen, connections = list(replies), [], []

    def set_timeout():
        """Be patient with the next reply, unless it is one that never comes whole."""
        is_cut_short = bool(waiting) and waiting[0] == CUT_SHORT
        monkeypatch.setattr(line, "_TIMEOUT_S", 0.5 if is_cut_short else 600.0)

    async def served(reader, writer):
        connections.append(writer)
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length:")[2].split()[0])
                seen.append(await reader.readexactly(size))
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            reply = waiting.pop(0) if waiting else OK
            set_timeout()
            if reply is None:
                break
            writer.write(reply)
            await writer.drain()
        writer.close()

    async def run():
        server = await asyncio.start_server(served, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        set_timeout()
        made = ProviderLine(f"http://127.0.0.1:{port}/below/", "points")
        try:
            return [await made.send(b"points", 4) for _ in range(calls)]
        finally:
            made.close()
            server.close()
            for one in connections:
                one.close()

    return asyncio.run(run()), seen, len(connections)


def test_a_connection_is_kept_between_calls(monkeypatch):
    assert exchanged(monkeypatch, [], calls=3) == ([b"abcd"] * 3, [b"points"] * 3, 1)


def test_one_that_the_provider_ends_is_opened_again(monkeypatch):
    ending = OK.replace(b"content-length", b"connection: close\r\ncontent-length")
    found, seen, connections = exchanged(monkeypatch, [ending, ending], calls=2)
    assert (found, seen, connections) == ([b"abcd"] * 2, [b"points"] * 2, 2)


@pytest.mark.parametrize(
    "trouble",
    [
        None,  # hangs up
        b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 429 Later\r\ncontent-length: 0\r\n\r\n",
        b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n" + bytes(1 << 14),
        CUT_SHORT,
    ],
)
def test_the_same_is_sent_again_until_it_arrives(monkeypatch, trouble):
    found, seen, _ = exchanged(monkeypatch, [trouble, trouble])
    assert (found, seen) == ([b"abcd"], [b"points"] * 3)


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (b"HTTP/1.1 404 None\r\ncontent-length: 0\r\n\r\n", "answered 404"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", "answered in another size"),
        (b"HTTP/1.1 302 There\r\nlocation: http://elsewhere\r\ncontent-length: 0\r\n\r\n", "answered 302"),
    ],
)
def test_refusals_and_other_sizes_are_told_at_once(monkeypatch, reply, told):
    with pytest.raises(SourceError, match=told):
        exchanged(monkeypatch, [reply])


def test_it_is_given_up_in_the_end(monkeypatch):
    with pytest.raises(SourceError, match=r"the service at 127\.0\.0\.1 cannot be reached"):
        exchanged(monkeypatch, [None] * 5)


@pytest.mark.parametrize("url", ["x", "ftp://host", "http://", "https://me@host", "//host"])
def test_addresses(url):
    with pytest.raises(ParameterError, match="url must be https://host or http://host"):
        ProviderLine(url, "points")
