"""The edge's HTTP/1.1 client to the provider: persistent connections, without a thread for each call.

`fleet.transport` does the same for devices, one call at a time; an edge has many batches under way in one
event loop. What comes back is bounded in size and time, whatever the provider sends.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import cast
from urllib.parse import urlsplit

import httptools

from reticent.errors import ParameterError, SourceError

_AGAIN = (429, 502, 503, 504)  # come later
_PAUSES_S = (0.1, 0.2, 0.4, 0.8)  # between tries
_TIMEOUT_S = 20.0
_MOST_KEPT = 8


class _Lost(Exception):
    """The connection ended, or said what no provider says."""


class _Exchange(asyncio.Protocol):
    """One connection, one call at a time."""

    def __init__(self) -> None:
        self._told: asyncio.Future[tuple[int, bytes]] | None = None
        self._body, self._most, self._is_kept = bytearray(), 0, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is another class

    def begin(self, content: bytes, most: int) -> asyncio.Future[tuple[int, bytes]]:
        """Send a request; the status and the body of the reply, of at most so many bytes."""
        self._told = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._body.clear()
        self._most = most
        self.transport.write(content)
        return self._told

    def data_received(self, data: bytes) -> None:
        """Some bytes of a reply; without a request there is none."""
        if self._told is None or self._told.done():
            self.transport.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._body += body
        if len(self._body) > self._most:
            self._fail()

    def on_message_complete(self) -> None:
        """All of it."""
        self._is_kept = bool(self._parser.should_keep_alive())  # it is known here alone
        if self._told is not None and not self._told.done():
            self._told.set_result((self._parser.get_status_code(), bytes(self._body)))

    def connection_lost(self, exc: Exception | None) -> None:
        """It ended."""
        self._fail()

    def _fail(self) -> None:
        if self._told is not None and not self._told.done():
            self._told.set_exception(_Lost())
        self.transport.abort()

    @property
    def is_kept(self) -> bool:
        """Whether another call may follow."""
        return self._is_kept and not self.transport.is_closing()


class ProviderLine:
    """HTTP client that posts bytes to one path, and returns the expected number of bytes.

    Args:
        url: URL of the service, `https` or `http`.
        path: Path below the URL.

    Raises:
        ParameterError: It is no such address.
    """

    def __init__(self, url: str, path: str) -> None:
        place = urlsplit(url)
        if place.scheme not in ("http", "https") or not place.hostname or place.username is not None:
            raise ParameterError("url must be https://host or http://host, with no name in it")
        self._host, self._secured = place.hostname, place.scheme == "https"
        self._port = place.port or (443 if self._secured else 80)
        self._head = (
            f"POST {place.path.rstrip('/')}/{path} HTTP/1.1\r\nHost: {place.netloc}\r\n"
            "Content-Type: application/octet-stream\r\nContent-Length: "
        ).encode("ascii")
        self._kept: list[_Exchange] = []

    async def send(self, content: bytes, due: int) -> bytes:
        """Send bytes until they arrive, and return the reply if it has the expected size.

        Raises:
            SourceError: They did not arrive, or were refused.
        """
        for pause in (*_PAUSES_S, None):
            reason = "cannot be reached"
            try:
                status, body = await self._exchanged(content, due)
                if status == 200 and len(body) == due:
                    return body
                reason = f"answered {status}" if status != 200 else "answered in another size"
                if status not in _AGAIN:
                    break
            except (OSError, _Lost, TimeoutError):
                pass
            if pause is not None:
                await asyncio.sleep(pause)
        raise SourceError(f"the service at {self._host} {reason}")

    async def _exchanged(self, content: bytes, due: int) -> tuple[int, bytes]:
        while self._kept and self._kept[-1].transport.is_closing():
            self._kept.pop()
        line = self._kept.pop() if self._kept else await self._opened()
        request = self._head + f"{len(content)}\r\n\r\n".encode() + content
        late = asyncio.get_running_loop().call_later(_TIMEOUT_S, line.transport.abort)
        try:
            found = await line.begin(request, max(due, 1 << 12))
        except BaseException:
            line.transport.abort()
            raise
        finally:
            late.cancel()
        if line.is_kept and len(self._kept) < _MOST_KEPT:
            self._kept.append(line)
        else:
            line.transport.abort()
        return found

    async def _opened(self) -> _Exchange:
        context = ssl.create_default_context() if self._secured else None
        async with asyncio.timeout(_TIMEOUT_S):
            loop = asyncio.get_running_loop()
            _, line = await loop.create_connection(_Exchange, self._host, self._port, ssl=context)
        return line

    def close(self) -> None:
        """End all connections."""
        while self._kept:
            self._kept.pop().transport.abort()
