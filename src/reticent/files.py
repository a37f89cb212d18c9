"""Files that are whole or not there, what tells one from another, and what is for its owner alone.

A crash while writing leaves what was there before. `not_for_release` is where commands put what comes from
private records without a mechanism.
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

if TYPE_CHECKING:  # a device that starts goes without it: it takes longer to load than a report to make
    from pathlib import Path

Place = TypeVar("Place", str, "Path")

FULL = "the disk is full"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_PROBE_BYTES = 1 << 16


def is_out_of_space(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, says that a disk or a quota is full.

    Engines that raise errors of their own (DuckDB, Arrow) are known by the system's words in their texts,
    which are looked at here and never passed on.
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
    """Whether nothing more can be written to a folder because its disk or a quota is full."""
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
    """A file to write, which takes its name, over one that is there, when it is whole and on the disk.

    Args:
        path: its name.
        mode: its rights, less what the umask takes away; 0o600 for its owner alone.
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
    """Yield a file to write, which gets a name that nobody has once it is whole and on the disk.

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
    """Write a new file, whole or not at all; see `new_file`. Texts are written in UTF-8."""
    with new_file(path, mode=mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def _link_or_rename(draft: str, path: str) -> None:
    """Let a whole file have its name, unless something has it."""
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
    """What a file keeps however it is called or written to, and no other file has: a text.

    The number of a file that was removed is soon given to another one, so the moment of its making belongs to
    it. Where that is not told, the device does; it may have another number once the machine is started again.

    Raises:
        OSError: it cannot be looked at.
    """
    told = path.stat()
    born = born_ns(path)
    return (
        f"device {told.st_dev}, inode {told.st_ino}" if born is None else f"inode {told.st_ino}, born {born}"
    )


def born_ns(file: Path | int) -> int | None:
    """When a file, by its path or open, was made, in nanoseconds, if the system tells.

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
    """What changes with every change of a file: nobody sets when its system last changed it.

    The time of its content alone anybody may set, and images do, all of them alike.

    Raises:
        OSError: it cannot be looked at.
    """
    told = path.stat()
    return told.st_mtime_ns, told.st_ctime_ns, told.st_size, told.st_ino


NOT_FOR_RELEASE = "simulation only, not for release"


def secluded(folder: Place, *, whole: bool = False) -> Place:
    """A folder of ours that its owner alone can enter: made so, or tightened if it is there.

    For folders that nobody but Reticent writes to; one that a person named may hold anything (`made`).

    Args:
        folder: its path.
        whole: tighten all that is in it, too. Nobody else gets there; a copy would keep the rights.

    Raises:
        OSError: others can enter it, and it is not ours to change.
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
    """A folder that its owner alone can enter, with all on the way to it that are missing; else as it is."""
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
    """A file that its owner alone can read: made so, empty, or tightened with what SQLite keeps beside it.

    One that is there is not opened: closing it again would drop the locks of whoever has it open in this
    process.

    Raises:
        OSError: others can read it, and it is not ours to change.
    """
    try:
        os.close(os.open(path.resolve(), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        for beside in ("", "-wal", "-shm", "-journal", ".lock"):
            tightened(path.with_name(path.name + beside))
    return path


def tightened(path: Place) -> Place:
    """A file or folder of ours, if it is there, without any rights of others: earlier releases left some.

    Raises:
        OSError: others have rights, and they are not ours to take away.
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
    """The folder beside `out` for what may not be released with it: its name says so, its owner enters it."""
    return secluded(out.with_name(f"{out.name}-{NOT_FOR_RELEASE.replace(', ', '-').replace(' ', '-')}"))
