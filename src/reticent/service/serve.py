"""Running the service: one process or several, that share the folder and the ledger."""

from __future__ import annotations

import atexit
import json
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from reticent.errors import ParameterError
from reticent.processes import end_with_parent, silence_teardown
from reticent.service.protocol import BoundedProtocol
from reticent.service.settings import Settings

LOGGER = "reticent.service"  # whose lines are JSON already
_VARIABLE = "RETICENT_SERVICE"  # how a worker is told its settings
_KEEP_ALIVE_S = 15
_MOST_CONNECTIONS = 4096  # of one process, most of them idle
_END_S = 30  # that replies may take once the process shall end
_MOST_LINES = 10_000  # of the log, that wait to be written
_OPTIONS: dict[str, Any] = {
    "log_config": None,
    "access_log": False,
    "server_header": False,
    "date_header": False,
    "timeout_keep_alive": _KEEP_ALIVE_S,
    "timeout_graceful_shutdown": _END_S,
    "limit_concurrency": _MOST_CONNECTIONS,
    "http": BoundedProtocol,
    "ws": "none",
}


def serve(
    settings: Settings,
    application: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    say: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until interrupted. With several workers each is a process of its own.

    Args:
        settings: Settings of the service.
        application: Name of the function that makes the application, `module:name`, by `made`.
        host: Host name or address to listen on.
        port: Port to listen on; 0 for any that is free.
        workers: Number of processes.
        say: Function that is called with the address, once folder, ledger and port are found to be good.
    """
    with listen(host, port) as place:  # what is wrong with the address is said here, once
        port = place.getsockname()[1]
    os.environ[_VARIABLE] = json.dumps(asdict(settings), default=str)
    say(address(host, port))
    uvicorn.run(
        application,
        factory=True,
        host=host,
        port=port,
        workers=workers if workers > 1 else None,
        **_OPTIONS,
    )


@contextmanager
def running(app: FastAPI, place: socket.socket) -> Iterator[None]:
    """Serve in a thread of this process, at a socket that listens already, while the block runs."""
    server = uvicorn.Server(uvicorn.Config(app, **_OPTIONS))
    thread = threading.Thread(target=server.run, args=([place],), name="service")
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the service did not start")
            time.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        thread.join()


def run(app: ASGIApp, place: socket.socket) -> None:
    """Serve another application in this process, at a socket that listens already, until interrupted."""
    uvicorn.Server(uvicorn.Config(app, **_OPTIONS)).run([place])


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 for any that is free. Raises ParameterError where that cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).split(" (while")[0]
        raise ParameterError(
            f"host and port must be free to listen at, got {host}:{port} ({reason})"
        ) from error


def address(host: str, port: int) -> str:
    """Return the address at which a browser finds the service."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def made(create: Callable[[Settings], FastAPI]) -> FastAPI:
    """Return the application of a worker, from the settings that `serve` left."""
    end_with_parent()
    silence_teardown()
    told: dict[str, Any] = json.loads(os.environ[_VARIABLE])
    told["folder"] = Path(told["folder"])
    _log_aside()
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # not in the format
    logging._srcfile = None  # nor who called: see Python's logging HOWTO
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return create(Settings(**told))


def _log_aside() -> None:
    """Write the log in a thread: a disk or a reader that is slow must not stop the service."""
    lines: queue.Queue[logging.LogRecord] = queue.Queue(_MOST_LINES)
    written = logging.StreamHandler()
    written.setFormatter(logging.Formatter("%(message)s"))
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[_Aside(lines)])
    listener = QueueListener(lines, written)
    listener.start()
    atexit.register(listener.stop)  # which writes what waits


class _Aside(QueueHandler):
    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """A line of JSON: ours as it is; of others no text, since that could hold data."""
        if record.name != LOGGER:
            kind = type(record.exc_info[1]).__name__ if record.exc_info else None
            told = {"event": "log", "logger": record.name, "level": record.levelname, "type": kind}
            record.msg, record.args, record.exc_info = json.dumps(told), None, None
        prepared: logging.LogRecord = super().prepare(record)
        return prepared

    def enqueue(self, record: logging.LogRecord) -> None:
        """Let a line wait; what is too much is dropped."""
        with suppress(queue.Full):
            self.queue.put_nowait(record)
