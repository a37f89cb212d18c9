"""Child processes that end when this process does: by itself, by Ctrl-C, SIGTERM or SIGKILL."""

from __future__ import annotations

import atexit
import errno
import multiprocessing
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

_FIRST_PORT, _PORTS = 10_000, 20_000  # below those that systems give to outgoing connections
_GUARD = 'read pid && { read done || kill -9 "$pid"; }'
_PROGRAM = 'read go && exec "$@" </dev/null'


def free_port() -> int:
    """Return a port of this machine that nobody listens at, for a program that needs a port number.

    The system does not pick it: such ports are given to outgoing connections too, before the program binds.
    """
    while True:
        port = _FIRST_PORT + secrets.randbelow(_PORTS)
        with socket.socket() as place, suppress(OSError):  # in use: try another
            place.bind(("127.0.0.1", port))
            return port


class Companion:
    """A program that runs beside this process until it is closed, and no longer than this process.

    A shell in a session of its own waits at a pipe for a final message. If the pipe ends without one, this
    process is gone, and the shell kills the program. The program starts once that shell knows its process
    number, so that there is no moment at which nobody would end it.

    Args:
        command: Program and its arguments.
        said: File for the output and the errors of the program; by default they are discarded.
        environment: Environment variables of the program; by default those of this process.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        said: IO[bytes] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        output = subprocess.DEVNULL if said is None else said
        self._guard = subprocess.Popen(  # noqa: S603 - the lines above
            ["/bin/sh", "-c", _GUARD],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self._process = self._start(command, output, environment)
        except BaseException:
            self._end_guard()
            raise

    def _start(
        self, command: Sequence[str | Path], output: int | IO[bytes], environment: Mapping[str, str] | None
    ) -> subprocess.Popen[bytes]:
        path = None if environment is None else environment.get("PATH")
        if shutil.which(command[0], path=path) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(command[0]))
        process = subprocess.Popen(  # noqa: S603 - the caller names the program
            ["/bin/sh", "-c", _PROGRAM, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
        )
        try:
            self._tell(f"{process.pid}\n")
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # somebody killed it
                process.stdin.write(b"go\n")
                process.stdin.close()
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process

    def _tell(self, word: str) -> None:
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError):  # somebody killed the guard
            self._guard.stdin.write(word.encode())
            self._guard.stdin.flush()

    def _end_guard(self) -> None:
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError):
            self._guard.stdin.close()
        self._guard.wait()

    @property
    def pid(self) -> int:
        """Process number of the program."""
        return self._process.pid

    def is_running(self) -> bool:
        """Return whether the program is still running.

        Popen's own `poll` keeps a lock for ever if an interrupt comes at the wrong moment, and `close` waits.
        """
        if self._process.returncode is not None:
            return False
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:  # somebody else has waited for it
            return False

    def close(self) -> None:
        """Kill the program, if it has not ended."""
        self._process.kill()
        self._process.wait()
        if self._guard.returncode is None:
            self._tell("done\n")  # so that no other process is killed that gets its number
            self._end_guard()

    def __enter__(self) -> Companion:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def end_with_parent() -> None:
    """End this multiprocessing worker at once when the process that started it is gone."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def silence_teardown() -> None:
    """Discard what libraries write to standard error while the interpreter is torn down.

    DuckDB's binding (nanobind) lists its own objects there if a thread still refers to some: lines that are
    no JSON in the log of a service. Everything that the program itself has to say is written before: this
    function must be called before other exit handlers are registered, which then run first.
    """
    atexit.register(_discard_standard_error)


def _discard_standard_error() -> None:
    sys.stderr.flush()
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
