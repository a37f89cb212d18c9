"""Crashes injected at every durable step of some code, one after the other.

A child process runs the code and ends at once (`os._exit`, nothing is flushed or rolled back) at its n-th
call of a primitive that writes, syncs, renames, commits or sends, before the call is done. The parent then
looks at what was left behind. n = 1, 2, ... until the code comes to its end, so every point is tried, in the
same order each time. What one primitive left is what is there before the next: only calls of Python
functions, which may consist of many steps, are ended before and after.
"""

from __future__ import annotations

import importlib
import os
import select
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

CRASHED = 77  # exit codes of a child
COMPLETED = 0
FAILED = 1
THE_END = "the end"

FILE_CALLS = frozenset(
    {
        "posix.write",
        "posix.pwrite",
        "posix.fsync",
        "posix.fdatasync",
        "posix.ftruncate",
        "posix.truncate",
        "posix.rename",
        "posix.replace",
        "posix.link",
        "posix.unlink",
        "posix.rmdir",
        "posix.mkdir",
        "io.open",  # it may create or truncate
        "FileIO.write",
        "FileIO.truncate",
        "BufferedWriter.write",
        "BufferedWriter.flush",
        "BufferedWriter.close",
        "TextIOWrapper.write",
        "TextIOWrapper.flush",
        "TextIOWrapper.close",
        "_IOBase.__exit__",
        "_IOBase.writelines",
    }
)
SQLITE_CALLS = frozenset(  # psycopg's methods have the same names
    {
        "Connection.execute",
        "Connection.executemany",
        "Connection.executescript",
        "Connection.commit",
        "Connection.__exit__",
        "Cursor.execute",
        "Cursor.executemany",
        "Cursor.executescript",
    }
)
SOCKET_CALLS = frozenset({"socket.send", "socket.sendall", "socket.sendmsg"})
DURABLE_CALLS = FILE_CALLS | SQLITE_CALLS | SOCKET_CALLS


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """One place where the code under test was ended.

    Attributes:
        number: Number of the crash, from 1.
        call: Name of the primitive, e.g. "posix.fsync"; "the end" of a process that came to its end.
        is_after: Whether the call was done.
    """

    number: int
    call: str
    is_after: bool

    def __str__(self) -> str:
        return f"crash {self.number}, {'after' if self.is_after else 'before'} {self.call}"


def enumerate_crashes(
    run: Callable[..., object],
    *,
    prepare: Callable[[], object] | None = None,
    calls: Collection[str] = DURABLE_CALLS,
    max_points: int = 5000,
) -> Iterator[CrashPoint]:
    """Yield each crash point of a function after a child process was ended there.

    The state that a crash left behind is on disk when its point is yielded. The caller judges it, and puts
    the state back before the next one. The last point is the end of the function.

    Args:
        run: Function that runs in the child process. It opens what it needs itself.
        prepare: Function that runs in the child process before, without crash points; what it returns is
            passed to `run`.
        calls: Names of primitives: `module.name` of a C function of a module, `Class.method` of a method of
            a C type, `Class.method` or the name of a Python function.
        max_points: Number of points beyond which the function counts as endless.

    Raises:
        AssertionError: If the function fails by itself, or has too many points or none.
    """
    for number in range(1, max_points + 1):
        code, text = _run_child(lambda: _crash_at(number, run, prepare, calls))  # noqa: B023 - called at once
        if code == COMPLETED:
            assert number > 1, "the code under test called none of the primitives"
            yield CrashPoint(number, THE_END, True)
            return
        assert code == CRASHED, f"the code under test failed by itself before crash {number}:\n{text}"
        side, _, call = text.partition(" ")
        yield CrashPoint(number, call, side == "after")
    raise AssertionError(f"more than {max_points} crash points")


def enumerate_pauses(
    run: Callable[[], object],
    meanwhile: Callable[[], object],
    *,
    calls: Collection[str] = DURABLE_CALLS,
    patience_s: float | None = None,
    max_points: int = 5000,
) -> Iterator[CrashPoint]:
    """Yield each point of a function after it was paused there while another function ran.

    Both run in child processes. The first is paused before its n-th call of a primitive; the second runs
    then, and the first goes on. Where the first holds a lock that the second needs, the second cannot end
    before the first goes on: `patience_s` bounds the wait for it. The yielded state is that after both.

    Args:
        run: Function that is paused.
        meanwhile: Function that runs while the other is paused; after the end of it at the last point.
        calls: Names of primitives, as in `enumerate_crashes`.
        patience_s: Seconds after which a blocked `meanwhile` is left waiting; None if it is never blocked.
        max_points: Number of points beyond which the function counts as endless.
    """
    for number in range(1, max_points + 1):
        paused, resumed = os.pipe(), os.pipe()
        pause = _Pause(paused[1], resumed[0])
        first = _start_child(lambda: _stop_at(number, run, calls, pause))  # noqa: B023 - called at once
        os.close(paused[1])
        with os.fdopen(paused[0], "rb") as pipe:
            text = pipe.readline().decode().strip()  # nothing if it ended before
            second = _start_child(meanwhile)
            select.select([second.report], [], [], patience_s)
            os.write(resumed[1], b"x")
        for child in (first, second):
            code, message = child.wait()
            assert code == COMPLETED, message
        for end in resumed:
            os.close(end)
        if not text:
            assert number > 1, "the code under test called none of the primitives"
            yield CrashPoint(number, THE_END, True)
            return
        side, _, call = text.partition(" ")
        yield CrashPoint(number, call, side == "after")
    raise AssertionError(f"more than {max_points} points")


@dataclass(frozen=True, slots=True)
class _Pause:
    """A stop of a child process: it writes where it is, and waits until it may go on."""

    paused: int
    resumed: int

    def __call__(self, text: str) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        os.write(self.paused, f"{text}\n".encode())
        os.read(self.resumed, 1)


def _stop_at(
    number: int, run: Callable[[], object], calls: Collection[str], stop: Callable[[str], object]
) -> object:
    crasher = _Crasher(number, frozenset(calls), stop)
    threading.setprofile(crasher)
    sys.setprofile(crasher)
    try:
        return run()
    finally:
        sys.setprofile(None)


def run_to_end(run: Callable[[], object]) -> None:
    """Run a function to its end in a child process, so that this one opens and starts nothing.

    Raises:
        AssertionError: If the function fails; with its traceback.
    """
    code, text = _run_child(run)
    assert code == COMPLETED, text


def preload_modules(run: Callable[[], object]) -> None:
    """Import here what a function imports when it runs, so that each of many children need not.

    Args:
        run: Function that runs once, in a child process.
    """

    def report_modules() -> NoReturn:
        run()
        _end_child(COMPLETED, "\n".join(sorted(sys.modules)))

    code, text = _run_child(report_modules)
    assert code == COMPLETED, text
    for name in text.split("\n"):
        with suppress(ImportError):  # a name that is no module of its own
            importlib.import_module(name)


def _crash_at(
    number: int,
    run: Callable[..., object],
    prepare: Callable[[], object] | None,
    calls: Collection[str],
) -> object:
    """Run a function in this process, which ends at the given crash point."""
    arguments = () if prepare is None else (prepare(),)
    return _stop_at(number, lambda: run(*arguments), calls, lambda text: _end_child(CRASHED, text))


class _Crasher:
    """A profile function that counts calls of primitives, and stops the process at one of them."""

    def __init__(self, number: int, calls: frozenset[str], stop: Callable[[str], object]) -> None:
        self._left = number
        self._calls = calls
        self._stop = stop
        self._lock = threading.Lock()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "c_call":
            name = _builtin_name(argument)
        elif event in ("call", "return"):
            name = frame.f_code.co_qualname
        else:
            return
        if name in self._calls:
            with self._lock:
                self._left -= 1
                is_here = self._left == 0
            if is_here:
                self._stop(f"{'after' if event == 'return' else 'before'} {name}")


def _builtin_name(function: object) -> str:
    """Return `module.name` of a module's function, `Class.method` of a method of a C type."""
    name: str = getattr(function, "__qualname__", "")
    module = getattr(function, "__module__", None)
    return f"{module}.{name}" if module and "." not in name else name


_report_pipe = -1  # in a child: where it reports how it ended


def _end_child(code: int, text: str) -> NoReturn:
    os.write(_report_pipe, text.encode())
    os._exit(code)


@dataclass(frozen=True, slots=True)
class _Child:
    """A fork of this process, and the pipe through which it reports how it ended."""

    pid: int
    report: int

    def wait(self) -> tuple[int, str]:
        """Return its exit code and its report."""
        with os.fdopen(self.report, "rb") as pipe:
            text = pipe.read().decode()
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status), text


def _start_child(run: Callable[[], object]) -> _Child:
    """Run a function in a fork of this process."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        global _report_pipe
        _report_pipe = write_end
        try:
            os.close(read_end)
            run()
        except BaseException:
            sys.setprofile(None)
            _end_child(FAILED, traceback.format_exc()[-4000:])
        os._exit(COMPLETED)
    os.close(write_end)
    return _Child(child, read_end)


def _run_child(run: Callable[[], object]) -> tuple[int, str]:
    """Run a function in a fork of this process; return its exit code and what it reported."""
    return _start_child(run).wait()
