"""HTTP as uvicorn speaks it, with bounds that it leaves open.

Headers must come in time, and be short; replies must be taken in time. Of too many connections that wait for
a request the oldest is cut. Without these, connections that send or read a byte a minute take all places.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LONGEST_HEAD = 1 << 15  # bytes of address and headers
MOST_HEADERS = 100
MOST_WAITING = 2048  # connections without a request
HEAD_S = 10.0
TAKE_S = 10.0
LEAST_TAKEN = 1 << 15  # bytes of a long reply that a client must read in that time


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    _idle: ClassVar[dict[BoundedProtocol, None]] = {}  # those without a request, the oldest first
    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _taken = 0
    _waiting = 0  # bytes since the headers began

    def connection_made(self, transport: Any) -> None:
        """Expect a request."""
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._expect_nothing()
        self._unstick()
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

    def on_response_complete(self) -> None:
        """A reply is written: the next request may come, within uvicorn's time."""
        super().on_response_complete()
        if not self.pipeline and not self.transport.is_closing():
            self._wait()

    def timeout_keep_alive_handler(self) -> None:
        """No request came."""
        self._hang_up()

    def pause_writing(self) -> None:
        """The client reads slowly: see how slowly."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """It has read most of it."""
        super().resume_writing()
        self._unstick()

    def _take(self, size: int) -> None:
        self._taken += size
        if self._taken > LONGEST_HEAD:
            raise httptools.HttpParserError("the headers are too long")

    def _expect(self) -> None:
        self._expect_nothing()
        self._late = self.loop.call_later(HEAD_S, self._hang_up)
        self._wait()

    def _expect_nothing(self) -> None:
        self._idle.pop(self, None)
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _wait(self) -> None:
        self._idle[self] = None
        if len(self._idle) > MOST_WAITING:
            next(iter(self._idle))._hang_up()

    def _watch(self) -> None:
        self._stuck = self.loop.call_later(TAKE_S, self._look, self.transport.get_write_buffer_size())

    def _look(self, before: int) -> None:
        if self.transport.get_write_buffer_size() > before - LEAST_TAKEN:
            self.transport.abort()
        else:
            self._watch()

    def _unstick(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _hang_up(self) -> None:
        self._expect_nothing()
        if not self.transport.is_closing():
            self.transport.abort()  # closing would wait until all is read
