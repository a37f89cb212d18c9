"""What the experiments on the service share: `reticent serve` as a process, its analysts, and its CPU.

The service is the one that people run, with a made-up census, a ledger in SQLite and secure noise; analysts
are threads of this process, each with a key and a connection of their own. Seconds are this machine's.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reticent.errors import SourceError
from reticent.processes import Companion, free_port
from reticent.query import census

ROWS = 5000  # as in the documents
INFORMATION = 1e-5  # of a question, so that the budget allows thousands
_START_S, _WAIT_S = 120.0, 120.0
_COMMAND = (sys.executable, "-m", "reticent")
_HOST = "127.0.0.1"


class Service:
    """A running service. Made by `serving`."""

    def __init__(self, process: Companion, port: int, owner: str) -> None:
        self.pid, self._port, self._owner = process.pid, port, owner
        self._numbers = count(1)

    def analyst(self) -> Analyst:
        """Somebody new who may ask."""
        owner = Analyst(self._port, self._owner)
        body = {"name": f"analyst-{next(self._numbers)}", "role": "analyst"}
        try:
            return Analyst(self._port, owner.call("/api/v1/keys", body)["key"])
        finally:
            owner.close()

    def questions(self, queries: int) -> list[str]:
        """New ones, which nobody asked before."""
        return [question(next(self._numbers)) for _ in range(queries)]


class Analyst:
    """A key and a connection."""

    def __init__(self, port: int, key: str) -> None:
        self._line = http.client.HTTPConnection(_HOST, port, timeout=_WAIT_S)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def ask(self, query: str) -> bool:
        """Ask for an answer; whether it was charged for."""
        body = {"query": query, "information": INFORMATION}
        return int(self.call("/api/v1/datasets/census/ask", body)["cost"]) > 0

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """One request and its reply."""
        self._line.request("POST", path, json.dumps(body), self._headers)
        reply = self._line.getresponse()
        told: dict[str, Any] = json.loads(reply.read())
        if reply.status not in (200, 201):
            raise SourceError(f"the service refused in an experiment: {told['error']['message']}")
        return told

    def close(self) -> None:
        """Hang up."""
        self._line.close()


def question(number: int) -> str:
    """One of very many questions that take the same work."""
    return f"SELECT COUNT(*) FROM census WHERE income > {number}"  # noqa: S608


@contextmanager
def serving(grid_s: float, seed: int) -> Iterator[Service]:
    """Start `reticent serve` on a census, and stop it.

    Args:
        grid_s: of the time grid; 0 for none.
        seed: of the census.

    Raises:
        SourceError: it does not start.
    """
    with TemporaryDirectory(prefix="reticent-service-") as place:
        folder, said = Path(place) / "census", Path(place) / "said.txt"
        census.write(folder, rows=ROWS, seed=seed)
        made = subprocess.run(  # noqa: S603
            [*_COMMAND, "key", "make", str(folder), "owner", "--role", "owner"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        port = free_port()
        options = ["--port", str(port), "--grid", str(grid_s), "--rate", "1000000"]
        with said.open("wb") as log, Companion([*_COMMAND, "serve", str(folder), *options], log) as process:
            _await(process, port, said)
            yield Service(process, port, made.stdout.strip())


def _await(process: Companion, port: int, said: Path) -> None:
    """Wait until it answers."""
    end = time.monotonic() + _START_S
    while process.is_running() and time.monotonic() < end:
        with contextlib.suppress(OSError, http.client.HTTPException):
            line = http.client.HTTPConnection(_HOST, port, timeout=5.0)
            with contextlib.closing(line):
                line.request("GET", "/health")
                if line.getresponse().status == 200:
                    return
        time.sleep(0.05)
    reason = " ".join(said.read_text(errors="replace").split())[-200:]
    raise SourceError(f"the service does not start: {reason}")


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and all its threads, in the kernel's ticks.

    Raises:
        SourceError: this machine has no /proc.
    """
    try:
        told = Path(f"/proc/{pid}/stat").read_text()
    except OSError as error:
        raise SourceError("CPU of a process is read from /proc, which is not here") from error
    user, system = told.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
