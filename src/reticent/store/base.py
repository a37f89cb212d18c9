"""The base of every store: blocks by identifier, verified whenever they are read, and files of blocks.

Evolution: a new kind of store is a subclass with `_fetch` and `_keep`, and a line in `places`. This module
alone verifies that a block is the requested one; no subclass is asked about it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import final

from reticent.arguments import whole
from reticent.store import unixfs
from reticent.store.cid import Cid
from reticent.store.unixfs import Content

MOST_BYTES = 1 << 30  # of a file, where the caller says nothing


class Store(ABC):
    """A store of blocks by their hash, which threads may share."""

    @abstractmethod
    def _fetch(self, cid: Cid) -> bytes:
        """Return some bytes, at most `unixfs.MOST_BLOCK_BYTES`: those of the block, if the store is honest.

        Raises:
            ContentMissing: There is no such block.
            StoreUnavailable: The store cannot be asked.
        """

    @abstractmethod
    def _keep(self, cid: Cid, block: bytes) -> None:
        """Store a block under its identifier.

        Storing a block twice does nothing more.

        Raises:
            StoreFull: There is no room.
            StoreUnavailable: The store cannot be asked, or does not confirm that it stored the block.
        """

    def _finish(self, root: Cid) -> None:  # noqa: B027 - most have nothing to do
        """Finish a file, when all its blocks are stored."""

    def close(self) -> None:  # noqa: B027
        """Close the connections of the store."""

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @final
    def block(self, cid: Cid) -> bytes:
        """Return a block, verified.

        Raises:
            ContentForged: The store gave another block.
            ContentMissing: The store has no such block.
            StoreUnavailable: The store cannot be asked.
        """
        return cid.checked(self._fetch(cid))

    @final
    def put_block(self, codec: int, block: bytes) -> Cid:
        """Store a block, and return its identifier."""
        whole("bytes of a block", len(block), low=0, high=unixfs.MOST_BLOCK_BYTES)
        cid = Cid.of(codec, block)
        self._keep(cid, block)
        return cid

    @final
    def put(self, content: Content) -> Cid:
        """Store a file, and return its identifier, which is the same everywhere.

        A crash leaves some of its blocks, which nothing points at; putting it again ends what was begun.
        """
        root = unixfs.cid_of(content, keep=lambda cid, block: self._keep(cid, bytes(block)))
        self._finish(root)
        return root

    @final
    def pieces(self, cid: Cid, *, most: int = MOST_BYTES) -> Iterator[bytes]:
        """Return a file in pieces of at most 1 MiB, each verified before it is given out.

        Raises:
            ContentTooLarge: The file has more than `most` bytes; nothing of it is given out then.
            ContentForged: The content does not match the identifier, or is no file of the profile.
            ContentMissing: A block is missing.
        """
        return unixfs.leaves_of(cid, self.block, most=whole("most", most, low=0))

    @final
    def get(self, cid: Cid, *, most: int = MOST_BYTES) -> bytes:
        """Return a whole file; errors as of `pieces`."""
        return b"".join(self.pieces(cid, most=most))
