"""What another machine says over HTTP: read in bounded time, size and depth, and safe to show.

Services, witnesses and nodes are not trusted with more than their job. One that lies may refuse or answer
wrongly; it must not fill the memory, stall for ever, end the process or write to a terminal.
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
_SIGNS = re.compile(r'[][{}"\\]')
# What moves a cursor, turns the direction of writing or cannot be printed. Tabs and newlines may stay.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def one_line(words: object, longest: int = 200) -> str:
    """Words of a stranger as a short line that is safe to show."""
    return " ".join(_STEERING.sub(" ", str(words)[:longest]).split())


def harmless(value: Any) -> Any:
    """JSON of a stranger with no sign in its texts that steers a terminal."""
    if isinstance(value, str):
        return _STEERING.sub("\ufffd", value)
    if isinstance(value, list):
        return [harmless(one) for one in value]
    if isinstance(value, dict):
        return {harmless(name): harmless(one) for name, one in value.items()}
    return value


def read_json(raw: bytes, *, deepest: int = DEEPEST) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is none, lies deeper than that, or holds a number that is not finite.
    """
    text = raw.decode()
    if is_deeper(text, deepest):
        raise ValueError(f"JSON of more than {deepest} levels")
    return json.loads(text, parse_float=_finite, parse_constant=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number that is not finite")
    return number


def is_deeper(text: str, levels: int) -> bool:
    """Whether brackets stand within each other more than so many times, up to the first error at least.

    `json` leaves depth to the interpreter's limit on recursion, which anybody may have lifted (py_ecc, which
    web3 brings, makes it 100,000): then a text of brackets is no RecursionError but the end of the process.
    """
    depth, quoted, escaped = 0, False, -1
    for found in _SIGNS.finditer(text):
        at, sign = found.start(), found[0]
        if at == escaped:
            continue
        if sign == "\\":
            escaped = at + 1
        elif sign == '"':
            quoted = not quoted
        elif not quoted:
            depth += 1 if sign in "[{" else -1
            if depth > levels:
                return True
    return False


def is_here(host: str | None) -> bool:
    """Whether a name or address is of this machine, so that nobody on the way can listen."""
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
    """Send a request and read the whole reply. No redirect is followed.

    Args:
        connection: open or not.
        method: of HTTP.
        path: with its query.
        data: the body, if there is one.
        headers: of the request.
        seconds: that it may take in all; the timeout of a socket starts anew with every byte.
        most: bytes of the reply.

    Raises:
        OSError: it cannot be sent or takes too long.
        http.client.HTTPException: what comes is no reply, or is too long. Close the connection then.
    """
    if connection.sock is None:
        connection.connect()
    with _cut_after(connection.sock, seconds):
        connection.request(method, path, data, headers)
        reply = connection.getresponse()
        body = reply.read(most + 1)
    if len(body) > most:
        raise http.client.HTTPException(f"a reply of more than {most} bytes")
    return reply, body


@contextlib.contextmanager
def _cut_after(line: socket.socket, seconds: float) -> Iterator[None]:
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
    except (OSError, http.client.HTTPException, ValueError) as error:
        if late.is_set():
            raise TimeoutError("no whole reply in time") from error
        raise
    finally:
        watch.cancel()
    if late.is_set():
        raise TimeoutError("no whole reply in time")
