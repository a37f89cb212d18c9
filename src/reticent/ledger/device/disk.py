"""The file system calls of a device's ledger: open, lock, write in order, make durable, replace.

Every call on the file system that changes a ledger file or its mark is made here.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import threading
import time
import weakref
from collections.abc import Iterator
from io import FileIO
from typing import Any

from reticent.errors import LedgerError, ParameterError, ParameterTypeError, StorageUnavailable
from reticent.ledger.device.records import HEAD

try:
    import fcntl
except ImportError:  # no POSIX file locks here
    fcntl = None  # type: ignore[assignment]

_POLL_S = 0.01
_PAGE = 4096  # what a power loss keeps or loses as a whole, or a multiple of it


def checked_path(given: Any) -> str:
    """Return the path of a ledger, with its folder resolved and its own name unchanged."""
    try:
        text = os.fsdecode(os.fsencode(given))
    except (TypeError, UnicodeError) as error:
        raise ParameterTypeError(f"path must be the path of a file, got {type(given).__name__}") from error
    if not text or "\0" in text:
        raise ParameterError("path must be the path of a file, got an empty one or one with a NUL")
    folder, name = os.path.split(os.path.abspath(text))  # noqa: PTH100
    return os.path.join(os.path.realpath(folder), name)  # noqa: PTH118


def sync(descriptor: int) -> None:
    """Flush a file to the disk, past the disk's cache if the system has a call for it (macOS, iOS)."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full)


def sync_directory(path: str) -> None:
    """Make the names in the folder of a path durable."""
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)  # noqa: PTH120
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(file: FileIO, text: bytes, at: int) -> None:
    """Write all of the bytes at a position in the file and make them durable."""
    done = 0
    while done < len(text):
        done += os.pwrite(file.fileno(), text[done:], at + done)
    sync(file.fileno())


def in_order(text: bytes, at: int) -> Iterator[tuple[bytes, int]]:
    """Yield the parts of a record to make durable one after the other, each with its position.

    A power loss may keep a later page of one write and lose an earlier one. So the head is durable before
    the pages after it, and all of them before the last: while a page can be missing, the record is seen to
    end too early. A record within one page is one part.
    """
    end = at + len(text)
    first, headed, last = (place + -place % _PAGE for place in (at, at + HEAD, end - _PAGE))
    places = [at, *sorted({cut for cut in (first, headed, last) if at < cut <= last}), end]
    for place, until in itertools.pairwise(places):
        yield text[place - at : until - at], place


def check_locks() -> None:
    """Refuse a system on which two processes could have the same ledger open."""
    if fcntl is None:
        raise LedgerError("a device ledger needs POSIX file locks, which this system lacks")


def lock(file: FileIO) -> bool:
    """Try to lock a file, and return whether that succeeded or another holder has the lock."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for(file: FileIO, patience: float, otherwise: str) -> None:
    """Lock a file, and wait for the lock up to a time limit."""
    deadline = time.monotonic() + patience
    while not lock(file):
        if time.monotonic() >= deadline:
            raise LedgerError(otherwise)
        time.sleep(_POLL_S)


@contextlib.contextmanager
def trouble(what: str) -> Iterator[None]:
    """Convert errors of the operating system into StorageUnavailable errors of the ledger."""
    try:
        yield
    except OSError as error:
        raise StorageUnavailable(f"the ledger {what}: {error.strerror or error}") from error


def shorten(file: FileIO, size: int) -> None:
    """Truncate a file to a number of bytes."""
    os.ftruncate(file.fileno(), size)


def acquired(path: str, patience: float) -> FileIO:
    """Open and lock the file that is at the path once the lock is acquired."""
    deadline = time.monotonic() + patience
    while True:
        if os.path.islink(path):  # noqa: PTH114
            raise LedgerError(f"{path} is a link: a ledger has one name, give that")
        file = opened(path, os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise LedgerError(f"{path} is not a plain file")
            if lock(file) and is_at(path, status):  # compaction elsewhere may have replaced it
                if status.st_nlink > 1:
                    raise LedgerError(many_names(path, status))
                return file
        except BaseException:
            file.close()
            raise
        file.close()
        if time.monotonic() >= deadline:
            raise LedgerError(f"the ledger {path} is in use")
        time.sleep(_POLL_S)


def is_at(path: str, status: os.stat_result) -> bool:
    """Return whether the path leads to the file with this status."""
    try:
        return os.path.samestat(status, os.stat(path, follow_symlinks=False))  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return False


def many_names(path: str, status: os.stat_result) -> str:
    """Return the error message for a ledger file that has more than one name."""
    return f"the ledger {path} has {status.st_nlink} names (hard links): it must have one"


def replacement(path: str, text: bytes) -> FileIO:
    """Replace the file at the path by a new locked file with this content, and return the new file."""
    beside = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside)  # left by a crash  # noqa: PTH108
    fresh = opened(beside, os.O_CREAT | os.O_EXCL)
    try:
        if not lock(fresh):
            raise BlockingIOError(f"{beside} is in use")
        write(fresh, text, 0)
        os.replace(beside, path)  # noqa: PTH105
    except BaseException:
        fresh.close()
        with contextlib.suppress(OSError):
            os.unlink(beside)  # noqa: PTH108
        raise
    return fresh


# A lock belongs to every process with the open file, and a forked child has the parent's files: it must close
# them, or the lock outlives the parent there. No fork comes between the opening of a file and its entry here.
_FILES: weakref.WeakSet[FileIO] = weakref.WeakSet()
_FORKING = threading.RLock()


def opened(path: str, flags: int) -> FileIO:
    """Open a file, readable and writable by its owner, that forked children close."""
    with _FORKING:
        file = FileIO(os.open(path, flags | os.O_RDWR | os.O_CLOEXEC, 0o600), "r+")
        _FILES.add(file)
    return file


def _before_fork() -> None:
    _FORKING.acquire()


def _after_fork() -> None:
    _FORKING.release()


def _let_go() -> None:
    """Close the parent's ledger files in a forked child."""
    for file in list(_FILES):
        file.close()
    _FORKING.release()


if fcntl is not None:
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_let_go)
