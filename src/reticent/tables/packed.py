"""Files of rows that are compressed by gzip: `census.csv.gz` is read as `census.csv` would be.

A file counts as compressed by its first two bytes, which no text in UTF-8 begins with, and not by its name.
Several members, one after the other, are read as one; zeros after the last are padding.

A small archive can unfold without end, so its unpacked size is bounded by a multiple of its own size. The
bound is far above the ratio of tables (they shrink by 3 to 30), since whether it holds follows from all rows
together. `check_whole` looks before anything is paid for: an archive that is damaged, cut off, followed by
something else or too large is refused by name, whatever its rows are.
"""

from __future__ import annotations

import gzip
import zlib
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

from reticent import files
from reticent.errors import SourceError

SUFFIX = ".gz"
MAGIC = b"\x1f\x8b"
ALWAYS = 1 << 26  # bytes that any archive may unfold to
MOST_TIMES = 200  # its own size that it may unfold to beyond that
_BLOCK = 1 << 20


def opened(path: Path) -> IO[bytes]:
    """Open a file for reading bytes, unpacked if it is compressed.

    Raises:
        OSError: the file cannot be opened. Reading may raise SourceError: the archive is damaged or too
            large.
    """
    return cast("IO[bytes]", Unpacked(path)) if is_packed(path) else path.open("rb")


def is_packed(path: Path) -> bool:
    """Return whether a file begins as gzip does."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def without_suffix(name: str) -> str:
    """Return the name that a file had before it was compressed."""
    return name[: -len(SUFFIX)] if name.casefold().endswith(SUFFIX) else name


def check_whole(path: Path, called: str = "") -> None:
    """Refuse an archive that cannot be read to its end. Other files are not checked.

    Args:
        path: Path of the file.
        called: Name of the file in errors, if not its own: a client of a service need not know that.

    Raises:
        SourceError: the archive is damaged, cut off, followed by something else, compressed twice, or too
            large.
    """
    if is_packed(path):
        _check(path, called or path.name, files.stamp(path))


@lru_cache(maxsize=64)  # a session opens its rows once, a service again and again
def _check(path: Path, called: str, stamp: tuple[int, ...]) -> None:
    with Unpacked(path, called) as file:
        data = file.read(_BLOCK)
        if data.startswith(MAGIC):
            raise SourceError(f"{called} must be compressed once, it holds another archive")
        while data:
            data = file.read(_BLOCK)


class Unpacked:
    """The unpacked bytes of an archive, up to the allowed size.

    Raises:
        SourceError: raised while reading, with the fault of the archive and nothing of its content.
    """

    def __init__(self, path: Path, called: str = "") -> None:
        self._name, self._read = called or path.name, 0
        self._packed = path.open("rb")
        self._most = max(ALWAYS, MOST_TIMES * path.stat().st_size)
        self._file = gzip.GzipFile(fileobj=self._packed)

    def read(self, size: int) -> bytes:
        """Read some more bytes; the result is empty at the end only."""
        try:
            data = self._file.read(size)
        except (EOFError, OSError, zlib.error) as error:
            raise SourceError(
                f"{self._name} must be whole: its gzip data is damaged, cut off or followed by something else"
            ) from error
        self._read += len(data)
        if self._read > self._most:
            raise SourceError(
                f"{self._name} must unfold to at most {MOST_TIMES} times its size, or {ALWAYS:,} bytes: "
                "unpack it first if it is no mistake"
            )
        return data

    def close(self) -> None:
        """Close the archive."""
        self._file.close()
        self._packed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
