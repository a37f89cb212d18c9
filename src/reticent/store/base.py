"""What every store is: blocks by their identifier, verified whenever they are read, and files made of them.

How the family may evolve: a new kind of store is a subclass with `_fetch` and `_keep`, and a line in
`places`. That what is read is what was asked for is decided here, once, and no subclass is asked about it.
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
    """Blocks by their hash. Threads may share one."""

    @abstractmethod
    def _fetch(self, cid: Cid) -> bytes:
        """Some bytes, at most `unixfs.MOST_BLOCK_BYTES`: those of the block, if the store is honest.

        Raises:
            ContentMissing: there is no such block.
            StoreUnavailable: it cannot be asked.
        """

    @abstractmethod
    def _keep(self, cid: Cid, block: bytes) -> None:
        """Keep a block that is called so. Keeping one twice does nothing more.

        Raises:
            StoreFull: there is no room.
            StoreUnavailable: it cannot be asked, or does not say that it kept it.
        """

    def _finish(self, root: Cid) -> None:  # noqa: B027 - most have nothing to do
        """Called when all blocks of a file are kept."""

    def close(self) -> None:  # noqa: B027
        """Close what is open."""

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @final
    def block(self, cid: Cid) -> bytes:
        """A block, verified.

        Raises:
            ContentForged: the store gave another one.
            ContentMissing: it has none.
            StoreUnavailable: it cannot be asked.
        """
        return cid.checked(self._fetch(cid))

    @final
    def put_block(self, codec: int, block: bytes) -> Cid:
        """Keep a block."""
        whole("bytes of a block", len(block), low=0, high=unixfs.MOST_BLOCK_BYTES)
        cid = Cid.of(codec, block)
        self._keep(cid, block)
        return cid

    @final
    def put(self, content: Content) -> Cid:
        """Keep a file; return what it is called, everywhere.

        A crash leaves some of its blocks, which nothing points at; putting it again ends what was begun.
        """
        root = unixfs.cid_of(content, keep=lambda cid, block: self._keep(cid, bytes(block)))
        self._finish(root)
        return root

    @final
    def pieces(self, cid: Cid, *, most: int = MOST_BYTES) -> Iterator[bytes]:
        """A file in pieces of at most 1 MiB, each verified before it is given out.

        Raises:
            ContentTooLarge: it has more than `most` bytes; nothing of it is given out then.
            ContentForged: it is not what it is called, or no file of the profile.
            ContentMissing: a block is missing.
        """
        return unixfs.leaves_of(cid, self.block, most=whole("most", most, low=0))

    @final
    def get(self, cid: Cid, *, most: int = MOST_BYTES) -> bytes:
        """A whole file; errors as of `pieces`."""
        return b"".join(self.pieces(cid, most=most))
