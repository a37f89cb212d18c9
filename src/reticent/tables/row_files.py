"""The files that may hold rows of a data set or of a training.

A declaration may come from somebody else, and so may the name of a file in it. Whatever path leads there (a
link, another name of the same file, capitals where the disk knows none), the rows are never what Reticent
itself writes or reads: declarations, ledgers, notebooks, snapshots, keys, the service's own files, compressed
or not; nor anything hidden. Two looks, since either can be got around: at the real path, and at the file.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from reticent.errors import ParameterError, SourceError
from reticent.tables import packed

# Names and suffixes of Reticent's files, in small letters. A folder of one of these names is Reticent's own.
_FOLDERS = (".reticent", ".service")
_FILES = (
    ".yaml",
    ".yml",
    ".key",
    ".pem",
    ".lock",
    ".sqlite",
    ".sqlite-wal",
    ".sqlite-shm",
    ".sqlite-journal",
)
# Bytes that they begin with: a ledger, a device's ledger, keys, enrolments, chains, what is signed.
_BEGINNINGS = (b"SQLite format 3\0", b"reticent device ledger", b"-----BEGIN ", b"{")
_KEY = re.compile(rb"\s*(0x)?[0-9a-fA-F]{64}\s*")
_LOOK = 200  # bytes


def located(field: str, given: str, base: Path, *, is_inside: bool = False) -> Path:
    """Return the real path of a file that shall hold rows.

    Args:
        field: Name of the field that names the file, for errors.
        given: Name of the file, relative to `base` if it is not absolute.
        base: Folder that the declaration lies in.
        is_inside: True if the file must lie in `base` itself; a file elsewhere is not even opened.

    Raises:
        ParameterError: there is no such file, or it may not be a source.
    """
    path = _real(base / given)
    is_beside = path is not None and path.parent == base.resolve()
    if is_inside and (Path(given).is_absolute() or (path is not None and not is_beside)):
        raise ParameterError(f"{field} must be a file in the service's folder, got {given!r:.80}")
    told, begins = (None, b"") if path is None else _looked_at(path)
    if path is None or told is None:
        shown = str(base / given)
        shown = shown if shown.isprintable() and len(shown) < 1000 else f"{given!r:.80}"
        raise ParameterError(f"{field} must be a file, there is none at {shown}")
    if _is_ours_by_name(path, base.resolve()) or _is_ours_by_content(begins) or _is_a_link(told, path, base):
        raise ParameterError(
            f"{field} must be a file with rows: no declaration, key or ledger, nothing hidden and "
            f"nothing in a folder of Reticent's own, got {given!r:.80}"
        )
    return path


def located_folder(field: str, given: str, base: Path) -> Path:
    """Return the real path of a folder of row files; each file is yet to be checked by `located`.

    Raises:
        ParameterError: there is no such folder, or it is Reticent's own or hidden.
    """
    path = _real(base / given)
    if path is None or not path.is_dir():
        raise ParameterError(
            f"{field} must be a file or a folder, there is none at {str(base / given)!r:.200}"
        )
    if _is_ours_by_name(path / "rows", base.resolve()):
        raise ParameterError(
            f"{field} must be a folder with rows, not hidden and none of Reticent's own, got {given!r:.80}"
        )
    return path


def _real(path: Path) -> Path | None:
    """Return the real path that a path leads to; None if it leads nowhere."""
    try:
        real = os.path.realpath(path, strict=True)
    except (OSError, ValueError, RuntimeError):  # RuntimeError: links that go in circles
        return None
    return Path(real[1:] if real.startswith("//") else real)  # POSIX leaves two slashes as they are


def _looked_at(path: Path) -> tuple[os.stat_result | None, bytes]:
    """Return the status and the first bytes of a file; None for the status if it cannot be read."""
    try:
        told = path.stat()
        if stat.S_ISREG(told.st_mode):  # another kind could wait for ever
            with packed.opened(path) as file:
                return told, file.read(_LOOK)
    except SourceError:  # a damaged archive: its reader reports that
        return told, b""
    except (OSError, ValueError):
        pass
    return None, b""


def _is_ours_by_name(path: Path, base: Path) -> bool:
    """Return whether names on the path show a file of Reticent.

    A hidden folder that the declaration lies in too is no sign.
    """
    shared = Path(os.path.commonpath([path, base]))
    below = path.relative_to(shared).parts
    folders = (name.casefold() for name in path.parts[:-1])
    return (
        any(name.startswith(".") for name in below)
        or any(name.endswith(_FOLDERS) for name in folders)
        or _is_our_name(path.name)
    )


def _is_our_name(name: str) -> bool:
    return name.startswith(".") or packed.without_suffix(name).casefold().endswith(_FILES)


def _is_ours_by_content(begins: bytes) -> bool:
    """Return whether the first bytes show a file of Reticent.

    No table begins so: in a CSV these would be names of columns.

    A DuckDB database does, one in 256: its first bytes are a checksum, its name comes after.
    """
    if begins[8:12] == b"DUCK" and b"\0" in begins[12:20]:  # then a number of 8 bytes: no text
        return False
    return begins.lstrip().startswith(_BEGINNINGS) or _KEY.fullmatch(begins) is not None


def _is_a_link(told: os.stat_result, path: Path, base: Path) -> bool:
    """Return whether the file is one of Reticent's beside the declaration or source, by another name."""
    if told.st_nlink == 1:
        return False
    for one in itertools.chain.from_iterable(map(_ours_in, {base, path.parent})):
        with contextlib.suppress(OSError):
            if os.path.samestat(told, one.stat()):
                return True
    return False


def _ours_in(folder: Path) -> Iterator[Path]:
    for one in folder.iterdir():
        if one.is_dir():
            if one.name.startswith(".") or one.name.casefold().endswith(_FOLDERS):
                yield from one.rglob("*")
        elif _is_our_name(one.name):
            yield one
