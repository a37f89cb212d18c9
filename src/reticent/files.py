"""Files that are written completely or not at all, that are identified, and that only their owner can read.

A crash while writing leaves the earlier content. `not_for_release` names the folder in which commands put
the results of private records without a mechanism.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, TypeVar

if TYPE_CHECKING:  # devices start without it: it takes longer to load than a report takes to make
    from pathlib import Path

Place = TypeVar("Place", str, "Path")

FULL = "the disk is full"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_PROBE_BYTES = 1 << 16


def is_out_of_space(error: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, says that a disk or a quota is full.

    Engines that raise errors of their own (DuckDB, Arrow) are recognised by the system's messages in their
    texts, which are looked at here and never passed on.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            return True
        if getattr(error, "sqlite_errorname", "") in ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"):
            return True
        text = str(error)
        if any(os.strerror(code) in text for code in _NO_SPACE) or FULL in text:
            return True
        error = error.__cause__ or error.__context__
    return False


def is_full(folder: str | os.PathLike[str]) -> bool:
    """Return whether nothing more can be written to a folder because its disk or a quota is full."""
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return error.errno in _NO_SPACE
    return False


@contextmanager
def appearing(path: str | os.PathLike[str], *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a file to write, which replaces any file of its name once it is complete and on the disk.

    Args:
        path: Path of the file.
        mode: Rights of the file, less what the umask takes away; 0o600 for its owner alone.
    """
    folder, name = os.path.split(path)
    draft = os.path.join(folder, f".{name}.{os.urandom(8).hex()}")  # noqa: PTH118
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)  # noqa: PTH105
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)  # noqa: PTH108


@contextmanager
def new_file(path: str | os.PathLike[str], *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a file to write, which gets a name that nobody has once it is complete and on the disk.

    If writing fails, on a full disk or by an interrupt, nothing is left of it.

    Args:
        path: Path of the new file.
        mode: Rights of the file, less what the umask takes away; 0o600 for its owner alone.

    Raises:
        FileExistsError: There is something under this name.
    """
    folder, name = os.path.split(path)
    draft = os.path.join(folder, f".{name}.{os.urandom(8).hex()}")  # noqa: PTH118
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(path))
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _link_or_rename(draft, os.fsdecode(path))
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)  # noqa: PTH108


def write_new(path: str | os.PathLike[str], content: str | bytes, *, mode: int = 0o666) -> None:
    """Write a new file, completely or not at all; see `new_file`. Texts are written in UTF-8."""
    with new_file(path, mode=mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def _link_or_rename(draft: str, path: str) -> None:
    """Give a complete file its name, unless something has that name."""
    try:
        os.link(draft, path)
    except FileExistsError as error:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
    except OSError as error:
        if error.errno in (*_NO_SPACE, errno.EIO):
            raise
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))  # a file system without hard links
        os.replace(draft, path)  # noqa: PTH105


def identity(path: Path) -> str:
    """Return a text that identifies a file, however the file is called or written to.

    The number of a removed file is soon given to another file, so the time of creation is included. Where
    the system does not tell that time, the device is; its number may change when the machine is restarted.

    Raises:
        OSError: The file cannot be looked at.
    """
    told = path.stat()
    born = born_ns(path)
    return (
        f"device {told.st_dev}, inode {told.st_ino}" if born is None else f"inode {told.st_ino}, born {born}"
    )


def born_ns(file: Path | int) -> int | None:
    """Return the time in nanoseconds at which a file, by its path or open, was created, if the system tells.

    Python does not ask Linux for it.
    """
    told = getattr(os.stat(file), "st_birthtime_ns", None)  # noqa: PTH116
    if told is not None:
        return int(told)
    import ctypes

    try:
        ask = ctypes.CDLL(None).statx
    except (AttributeError, OSError, TypeError):  # another system
        return None
    held = ctypes.create_string_buffer(256)  # struct statx: its mask first, the birth at byte 80
    place = (file, b"", 0x1000) if isinstance(file, int) else (-100, os.fsencode(file), 0)
    if ask(*place, 0x800, held) or not struct.unpack_from("=I", held)[0] & 0x800:
        return None
    seconds, parts = struct.unpack_from("=qI", held, 80)
    return int(seconds) * 10**9 + int(parts)


def stamp(path: Path) -> tuple[int, ...]:
    """Return numbers that change with every change of a file: nobody can set when its system last changed it.

    Anybody may set the time of the content alone, and images do, all of them alike.

    Raises:
        OSError: The file cannot be looked at.
    """
    told = path.stat()
    return told.st_mtime_ns, told.st_ctime_ns, told.st_size, told.st_ino


NOT_FOR_RELEASE = "simulation only, not for release"


def secluded(folder: Place, *, whole: bool = False) -> Place:
    """Create a folder of ours that its owner alone can enter, or restrict the rights of an existing one.

    Only for folders that Reticent alone writes to; a folder that a person named may hold anything (`made`).

    Args:
        folder: Path of the folder.
        whole: True to restrict everything in the folder, too. Nobody else gets there; a copy would keep its
            rights.

    Raises:
        OSError: Others can enter the folder, and its rights are not ours to change.
    """
    made(folder)
    tightened(folder)
    if not whole:
        return folder
    top: str = os.fspath(folder)
    for place, folders, names in os.walk(top):
        inside: list[str] = folders + names
        for name in inside:
            one = os.path.join(place, name)  # noqa: PTH118
            if not os.path.islink(one):  # noqa: PTH114
                tightened(one)
    return folder


def made(folder: Place) -> Place:
    """Create a folder for its owner alone, with its missing parents; an existing folder stays unchanged."""
    if not os.path.isdir(folder):  # noqa: PTH112
        path: str = os.fspath(folder)
        made(os.path.dirname(path.rstrip(os.sep)) or os.curdir)  # noqa: PTH120
        try:
            os.mkdir(folder, 0o700)  # noqa: PTH102
        except FileExistsError:
            if not os.path.isdir(folder):  # noqa: PTH112
                raise
    return folder


def private(path: Path) -> Path:
    """Create an empty file that its owner alone can read, or restrict a file and SQLite's files beside it.

    An existing file is not opened: closing it again would drop the locks of those who have it open in this
    process.

    Raises:
        OSError: Others can read the file, and its rights are not ours to change.
    """
    try:
        os.close(os.open(path.resolve(), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        for beside in ("", "-wal", "-shm", "-journal", ".lock"):
            tightened(path.with_name(path.name + beside))
    return path


def tightened(path: Place) -> Place:
    """Remove the rights of others from a file or folder of ours, if it exists: earlier releases left some.

    Raises:
        OSError: Others have rights, and they are not ours to take away.
    """
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116
        if mode & 0o077:
            os.chmod(path, mode & 0o700)  # noqa: PTH101
    except FileNotFoundError:
        pass
    except OSError as error:
        reason = "others than its owner have rights to it, and it is not ours to change: chmod go= it first"
        raise OSError(error.errno, reason, str(path)) from error
    return path


def not_for_release(out: Path) -> Path:
    """Create the folder beside `out` for results that may not be released: named so, for its owner alone."""
    return secluded(out.with_name(f"{out.name}-{NOT_FOR_RELEASE.replace(', ', '-').replace(' ', '-')}"))
