"""A local chain on this machine, for demonstrations, tests and measurements: Foundry's anvil.

It comes from the npm package `@foundry-rs/anvil`; `make` puts it beside the virtual environment. Its keys are
known to everybody.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from reticent.chain.keys import Key
from reticent.chain.node import Node
from reticent.errors import ChainError, NodeUnavailable
from reticent.processes import Companion, free_port

_START_S = 120.0


def find_anvil() -> str | None:
    """Return the anvil of RETICENT_ANVIL, beside the interpreter, or on the PATH; None if there is none."""
    if given := os.environ.get("RETICENT_ANVIL"):
        return given
    beside = sorted(Path(sys.prefix).glob("node_modules/@foundry-rs/anvil-*/bin/anvil*"))
    return str(beside[0]) if beside else shutil.which("anvil")


class Anvil:
    """A running anvil process, until the `with` block ends.

    Args:
        block_time_s: Seconds between blocks; without it, every transaction gets a block at once.
        arguments: Further arguments of anvil itself.

    Raises:
        ChainError: There is no anvil on this machine, or it does not start.
    """

    def __init__(self, *arguments: str, block_time_s: float | None = None) -> None:
        program = find_anvil()
        if program is None:
            raise ChainError("there is no anvil on this machine: npm install -g @foundry-rs/anvil")
        port = self._port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._folder = tempfile.TemporaryDirectory(prefix="anvil-")
        self._process: Companion | None = None
        config, said = Path(self._folder.name) / "config.json", Path(self._folder.name) / "errors.txt"
        options = ["--port", str(port), "--config-out", str(config), "--silent", *arguments]
        if block_time_s is not None:
            options += ["--block-time", str(block_time_s)]
        try:
            with said.open("wb") as errors:
                self._process = Companion([program, *options], errors)
            self.keys = self._await(self._process, config)
        except BaseException as error:
            reason = said.read_text(errors="replace") or str(error)
            self.close()
            if isinstance(error, (OSError, NodeUnavailable)):
                raise ChainError(f"anvil does not start: {' '.join(reason.split())[:200]}") from error
            raise

    def _await(self, process: Companion, config: Path) -> list[Key]:
        """Wait until anvil answers, and return its keys.

        If the process ended, another process answers at its port.
        """
        end = time.monotonic() + _START_S
        while process.is_running() and time.monotonic() < end:
            try:
                # A node that is made and dropped again and again would lose interrupts, see `cli.entry`.
                socket.create_connection(("127.0.0.1", self._port), timeout=_START_S).close()
                Node(self.url).close()
                told = json.loads(config.read_text())
            except (NodeUnavailable, OSError, json.JSONDecodeError):  # not, or half written
                time.sleep(0.02)
            else:
                if process.is_running():
                    return [Key(one) for one in told["private_keys"]]
        raise NodeUnavailable(f"it does not answer after {_START_S:g} s")

    @property
    def pid(self) -> int:
        """The process id of anvil."""
        assert self._process is not None
        return self._process.pid

    def close(self) -> None:
        """Stop anvil.

        Nothing of its chain is kept.
        """
        if self._process is not None:
            self._process.close()
        self._folder.cleanup()

    def __enter__(self) -> Anvil:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
