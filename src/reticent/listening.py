"""Small HTTP servers that strangers may reach: one deadline for a request, few connections of one address.

What they answer is given by a handler. A client that drips bytes, opens connections or goes away takes
nothing from others. Who asked when is written nowhere.
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
TIMEOUT_S = 10.0  # for all of a request, from when it is waited for

_clock = time.monotonic


class TimedReader(io.RawIOBase):
    """Reads a socket until a deadline, which does not move when a byte arrives."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._deadline = connection, 0.0

    def start(self, seconds: float) -> None:
        """Set the deadline."""
        self._deadline = _clock() + seconds

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has arrived, or wait for some; TimeoutError at the deadline."""
        left = self._deadline - _clock()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class TimedHandler(BaseHTTPRequestHandler):
    """Serves requests, each read within `TIMEOUT_S`."""

    protocol_version = "HTTP/1.1"
    sys_version = ""
    disable_nagle_algorithm = True

    def setup(self) -> None:
        """Read under one deadline for each request, however its bytes are dealt out."""
        super().setup()
        self.rfile.close()
        self._source = TimedReader(self.connection)
        self.rfile = io.BufferedReader(self._source)

    def handle_one_request(self) -> None:
        """Serve a request; `TimeoutError` in it closes the connection."""
        self._source.start(TIMEOUT_S)
        super().handle_one_request()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Say nothing: who asked when is nobody's business."""


class PlainHandler(TimedHandler):
    """Answers with one body, and closes where something of the request was not read."""

    _left = 0  # bytes of the request that were not read

    def _say(self, status: int, words: str) -> None:
        self._send(status, words.encode() + b"\n", "text/plain; charset=utf-8", {})

    def _send(self, status: int, body: bytes, kind: str, headers: dict[str, str]) -> None:
        self.close_connection = self.close_connection or bool(self._left)  # what was sent stays unread
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
    """A thread for each connection, as long as there are few in all and of one address."""

    daemon_threads = True
    request_queue_size = 2 * MOST_CONNECTIONS

    def __init__(self, handler: type[TimedHandler], host: str = "127.0.0.1", port: int = 0) -> None:
        self._guard = threading.Lock()
        self._connected: Counter[str] = Counter()  # by address
        super().__init__((host, port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve in a thread, if one is free, and not too many serve this address."""
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
        """A client that goes away, or is too slow, is no news."""

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"
