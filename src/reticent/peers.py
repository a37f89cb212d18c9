"""HTTP exchanges with other machines: replies read in bounded time, size and depth, and safe to show.

Services, witnesses and nodes are not trusted with more than their job. A peer that lies may refuse or
answer wrongly; it must not fill the memory, stall for ever, end the process or write to a terminal.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import math
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

DEEPEST = 100  # lists and objects within each other
MOST_PARTS = 1 << 21  # values of one reply; the largest answer has a million
_PIECE = 1 << 16  # bytes that are read at once
_MAX_LINE_BYTES = 4096  # between chunks
_MAX_TRAILERS = 100
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n")
# A complete text, or one that does not end, or a sign between texts. No part of it is looked at twice.
_MARKS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[][{},]', re.DOTALL)
# Signs that move a cursor, turn the direction of writing or cannot be printed. Tabs and newlines may stay.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def one_line(words: object, longest: int = 200) -> str:
    """Return a text of another machine as a short line that is safe to show."""
    return " ".join(_STEERING.sub(" ", str(words)[:longest]).split())


def harmless(value: Any) -> Any:
    """Replace the signs in the texts of a JSON value that could steer a terminal."""
    if isinstance(value, str):
        return _STEERING.sub("\ufffd", value)
    if isinstance(value, list):
        for place, one in enumerate(value):  # in place: there may be no memory for a second copy
            value[place] = harmless(one)
    elif isinstance(value, dict):
        for name in list(value):
            one = harmless(value.pop(name))
            value[harmless(name)] = one
    return value


def read_json(raw: bytes, *, deepest: int = DEEPEST, most: int = MOST_PARTS) -> Any:
    """Parse a JSON text within limits of depth and size.

    Raises:
        ValueError: The text is no JSON, is too deep, has too many parts, or a number that is not finite.
    """
    text = raw.decode()
    if is_deeper(text, deepest, most):
        raise ValueError(f"JSON of more than {deepest} levels or {most} parts")
    return json.loads(text, parse_float=_finite, parse_constant=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number that is not finite")
    return number


def is_deeper(text: str, levels: int, most: int | None = None) -> bool:
    """Return whether a JSON text nests deeper than allowed or has too many values, up to its first error.

    `json` leaves depth to the interpreter's limit on recursion, which anybody may have lifted (py_ecc, which
    web3 brings, makes it 100,000): then a text of brackets is no RecursionError but the end of the process.

    Args:
        text: JSON text.
        levels: Maximum depth.
        most: Maximum number of values: each takes much more memory than its letters (`{},` 70 bytes).
    """
    depth, parts = 0, 0
    for found in _MARKS.finditer(text):
        sign = text[found.start()]
        if sign == '"':
            continue
        if sign in "]}":
            depth -= 1
            continue
        parts += 1
        depth += sign != ","
        if depth > levels or (most is not None and parts > most):
            return True
    return False


def is_here(host: str | None) -> bool:
    """Return whether a host name or address is this machine, so that nobody in between can listen."""
    try:
        return ipaddress.ip_address(str(host)).is_loopback
    except ValueError:
        return str(host).lower() == "localhost"


def exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    data: bytes | None,
    headers: dict[str, str],
    *,
    seconds: float,
    most: int,
) -> tuple[http.client.HTTPResponse, bytes]:
    """Send a request and read the complete reply. No redirect is followed.

    Args:
        connection: HTTP connection, open or not.
        method: HTTP method.
        path: Path with its query.
        data: Request body, if there is one.
        headers: Request headers.
        seconds: Time limit for the whole exchange; the timeout of a socket starts anew with every byte.
        most: Maximum size of the reply in bytes.

    Raises:
        OSError: The request cannot be sent or takes too long.
        http.client.HTTPException: The reply is malformed, cut or too long. Close the connection then.
    """
    if connection.sock is None:
        connection.connect()
    with cut_after(connection.sock, seconds):
        connection.request(method, path, data, headers)
        reply = connection.getresponse()
        pieces = _read_chunks(reply) if reply.chunked else iter(lambda: reply.read(_PIECE), b"")
        body = bytearray()
        for piece in pieces:
            body += piece
            if len(body) > most:
                reply.close()  # the unread remainder holds the socket
                raise http.client.HTTPException(f"a reply of more than {most} bytes")
        reply.close()
    if reply.length:  # `http.client` takes a body that was cut for a complete one if it is read in pieces
        raise http.client.IncompleteRead(b"", reply.length)
    return reply, bytes(body)


def _read_chunks(reply: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the body of a chunked reply in pieces of bounded size.

    `http.client` takes whatever `int` takes for the size of a chunk. A size of -1 makes it read without
    bound, and others end in errors that callers do not expect.

    Reference: RFC 9112, section 7.1.
    """
    while size := _read_chunk_size(reply):
        while size:
            piece = reply.fp.read(min(size, _PIECE))
            if not piece:
                raise http.client.IncompleteRead(b"", size)
            size -= len(piece)
            yield piece
        if reply.fp.read(2) != b"\r\n":
            raise http.client.HTTPException("a chunk longer than its size")
    for _ in range(_MAX_TRAILERS):
        if _read_line(reply) in (b"\r\n", b"\n"):
            return
    raise http.client.HTTPException(f"a reply with more than {_MAX_TRAILERS} trailers")


def _read_chunk_size(reply: http.client.HTTPResponse) -> int:
    match = _CHUNK_SIZE.fullmatch(_read_line(reply))
    if match is None:
        raise http.client.HTTPException("a chunk whose size is no hexadecimal number of at most 15 digits")
    return int(match[1], 16)


def _read_line(reply: http.client.HTTPResponse) -> bytes:
    line: bytes = reply.fp.readline(_MAX_LINE_BYTES + 1)
    if len(line) > _MAX_LINE_BYTES or not line.endswith(b"\n"):
        raise http.client.HTTPException("a line between chunks that is too long or does not end")
    return line


@contextlib.contextmanager
def cut_after(line: socket.socket, seconds: float) -> Iterator[None]:
    """Shut a socket down unless the block ends in time, so that no peer can stall it.

    Args:
        line: Connected socket that the block reads from or writes to.
        seconds: Time that the block may take in all.

    Raises:
        TimeoutError: The time was over before the block ended, whatever that made of it.
    """
    late = threading.Event()

    def cut() -> None:
        late.set()
        with contextlib.suppress(OSError, ValueError):
            line.shutdown(socket.SHUT_RDWR)

    watch = threading.Timer(seconds, cut)
    watch.daemon = True
    watch.start()
    try:
        yield
    except Exception as error:  # each library tells a socket that was shut down in its own way
        if late.is_set():
            raise TimeoutError("no whole reply in time") from error
        raise
    finally:
        watch.cancel()
    if late.is_set():
        raise TimeoutError("no whole reply in time")
