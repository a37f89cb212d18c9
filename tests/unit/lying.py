"""A server that answers whatever a test makes up: the other side of every client of ours, when it lies."""

import contextlib
import json
import re
import socket
import threading


class Liar:
    """Listens on this machine and gives each request to `tell(line, request)`.

    Attributes:
        url: where.
        heard: the requests, as bytes, headers and body.
    """

    def __init__(self, tell):
        self._tell, self.heard = tell, []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._ended = threading.Event()
        self._lines = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self):
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            self._lines.append(line)
            thread = threading.Thread(target=self._serve, args=(line,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, line):
        with contextlib.suppress(OSError), contextlib.closing(line), line.makefile("rb") as read:
            while head := read.readline():
                while not head.endswith(b"\r\n\r\n"):
                    head += read.readline()
                size = re.search(rb"(?i)content-length: *([0-9]+)", head)
                request = head + read.read(int(size[1]) if size else 0)
                self.heard.append(request)
                self._tell(line, request)

    def drip(self, line, part):
        """Send a part again and again, slowly, until the other side leaves or the test ends."""
        with contextlib.suppress(OSError):
            while not self._ended.wait(0.02):
                line.sendall(part)

    def close(self):
        self._ended.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for line in self._lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)


def reply(body, status="200 OK", **headers):
    """Bytes of a reply; `body` is JSON or bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    told = {"Content-Length": len(content), **{name.replace("_", "-"): one for name, one in headers.items()}}
    lines = "".join(f"{name}: {one}\r\n" for name, one in told.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode("latin-1") + content
