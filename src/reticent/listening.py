"""Small HTTP servers for strangers: one deadline for a request, few connections from one address.

A handler provides the answers. A client that drips bytes, opens connections or goes away takes nothing from
other clients. No log says who asked when.
"""

from __future__ import annotations

import io
import socket
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOST_CONNECTIONS = 64
MOST_PER_ADDRESS = 16
TIMEOUT_S = 10.0  # for a complete request, from the moment the server waits for it

_clock = time.monotonic


class TimedReader(io.RawIOBase):
    """A reader of a socket until a deadline, which does not move when a byte arrives."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._deadline = connection, 0.0

    def start(self, seconds: float) -> None:
        """Set the deadline, in seconds from now."""
        self._deadline = _clock() + seconds

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the bytes that have arrived, or wait for some; raise TimeoutError at the deadline."""
        left = self._deadline - _clock()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class TimedHandler(BaseHTTPRequestHandler):
    """A request handler that reads each request within `TIMEOUT_S`."""

    protocol_version = "HTTP/1.1"
    sys_version = ""
    disable_nagle_algorithm = True

    def setup(self) -> None:
        """Prepare to read each request under one deadline, however its bytes are dealt out."""
        super().setup()
        self.rfile.close()
        self._source = TimedReader(self.connection)
        self.rfile = io.BufferedReader(self._source)

    def handle_one_request(self) -> None:
        """Serve a request; `TimeoutError` in it closes the connection."""
        self._source.start(TIMEOUT_S)
        super().handle_one_request()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Log nothing: who asked when is nobody's business."""


class PlainHandler(TimedHandler):
    """A request handler that sends one body, and closes if a part of the request was not read."""

    _left = 0  # bytes of the request that were not read

    def _say(self, status: int, words: str) -> None:
        self._send(status, words.encode() + b"\n", "text/plain; charset=utf-8", {})

    def _send(self, status: int, body: bytes, kind: str, headers: dict[str, str]) -> None:
        self.close_connection = self.close_connection or bool(self._left)  # the remainder stays unread
        self.connection.settimeout(TIMEOUT_S)
        self.send_response(status)
        told = {"Content-Type": kind, "Content-Length": str(len(body)), **headers}
        if self.close_connection:
            told["Connection"] = "close"
        for name, value in told.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class BoundedServer(ThreadingHTTPServer):
    """A server with a thread for each connection, and limits on connections in all and by address."""

    daemon_threads = True
    request_queue_size = 2 * MOST_CONNECTIONS

    def __init__(self, handler: type[TimedHandler], host: str = "127.0.0.1", port: int = 0) -> None:
        self._guard = threading.Lock()
        self._connected: Counter[str] = Counter()  # by address
        super().__init__((host, port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a request in a thread, if one is free and not too many serve this address."""
        address = client_address[0]
        with self._guard:
            free = self._connected.total() < MOST_CONNECTIONS and self._connected[address] < MOST_PER_ADDRESS
            if free:
                self._connected[address] += 1
        if free:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._guard:
                self._connected[client_address[0]] -= 1
                self._connected += Counter()  # forget addresses that left

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: a client that goes away, or is too slow, is no news."""

    @property
    def url(self) -> str:
        """Address at which the server listens."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"
