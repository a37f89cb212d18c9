"""A store in a folder: a file for each block, named by its identifier, whole or not there."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from reticent.arguments import whole
from reticent.errors import ContentMissing, StoreFull, StoreUnavailable
from reticent.files import appearing
from reticent.store.base import Store
from reticent.store.cid import Cid
from reticent.store.unixfs import MOST_BLOCK_BYTES

_FULL = (errno.ENOSPC, errno.EDQUOT)


class Directory(Store):
    """A store of blocks in a folder, in 32 x 32 folders by the last letters of their names.

    Args:
        folder: Folder of the store, created if it is missing.
        capacity: Bytes of all blocks together, as this process counts them; None for the capacity of the
            disk.
    """

    def __init__(self, folder: str | os.PathLike[str], *, capacity: int | None = None) -> None:
        self._folder = Path(folder)
        self._capacity = None if capacity is None else whole("capacity", capacity, low=0)
        self._guard = threading.Lock()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._held = 0 if capacity is None else sum(one.stat().st_size for one in self._all())
        except OSError as error:
            raise StoreUnavailable(f"the folder {self._folder} cannot be used: {error.strerror}") from error

    def _all(self) -> list[Path]:
        return [one for one in self._folder.glob("??/b*") if one.is_file()]

    def _path(self, cid: Cid) -> Path:
        name = str(cid)
        return self._folder / name[-3:-1] / name  # the last letter holds fewer bits

    def has(self, cid: Cid) -> bool:
        """Return whether the folder has a block of that identifier."""
        return self._path(cid).is_file()

    def _fetch(self, cid: Cid) -> bytes:
        try:
            with self._path(cid).open("rb") as file:
                return file.read(MOST_BLOCK_BYTES + 1)
        except FileNotFoundError as error:
            raise ContentMissing(f"there is no {cid} in {self._folder}") from error
        except OSError as error:
            raise StoreUnavailable(f"the folder {self._folder} cannot be read: {error.strerror}") from error

    def _keep(self, cid: Cid, block: bytes) -> None:
        path = self._path(cid)
        with self._guard:
            if path.is_file() and path.stat().st_size == len(block) and path.read_bytes() == block:
                return  # one that was damaged is written anew
            if self._capacity is not None and self._held + len(block) > self._capacity:
                raise StoreFull(f"the store holds {self._held} of at most {self._capacity} bytes")
            try:
                path.parent.mkdir(exist_ok=True)
                with appearing(path) as file:
                    file.write(block)
            except OSError as error:
                if error.errno in _FULL:
                    raise StoreFull("the disk of the store is full") from error
                raise StoreUnavailable(f"{self._folder} cannot be written: {error.strerror}") from error
            self._held += len(block)
