"""HTTP as uvicorn speaks it, with bounds that it leaves open: headers must come in time, and be short.

Without these, connections that send a byte a minute take all places from others.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LONGEST_HEAD = 1 << 15  # bytes of address and headers
MOST_HEADERS = 100
HEAD_S = 10.0


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    _late: asyncio.TimerHandle | None = None
    _taken = 0
    _waiting = 0  # bytes since the headers began

    def connection_made(self, transport: Any) -> None:
        """Expect a request."""
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some bytes. A header without an end is not announced by the parser, and counted here."""
        super().data_received(data)
        self._waiting = self._waiting + len(data) if self._late is not None else 0
        if self._waiting > 2 * LONGEST_HEAD and not self.transport.is_closing():
            self.send_400_response("The headers are too long.")

    def on_message_begin(self) -> None:
        """Expect the rest of the headers."""
        self._taken = 0
        super().on_message_begin()
        self._expect()

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        self._take(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self._take(len(name) + len(value))
        if len(self.headers) >= MOST_HEADERS:
            raise httptools.HttpParserError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """All headers are there."""
        self._expect_nothing()
        super().on_headers_complete()

    def _take(self, size: int) -> None:
        self._taken += size
        if self._taken > LONGEST_HEAD:
            raise httptools.HttpParserError("the headers are too long")

    def _expect(self) -> None:
        self._expect_nothing()
        self._late = self.loop.call_later(HEAD_S, self._hang_up)

    def _expect_nothing(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _hang_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
