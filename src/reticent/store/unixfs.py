"""A file as blocks: IPFS's profile `unixfs-v1-2025`, which gives everybody the same identifier.

Leaves are the file cut into 1 MiB, as they are. Above them nodes of at most 1,024 links each, level on level,
until one is left. A file of one leaf is that leaf. So the size of a file says how all its blocks look, and
`nodes` and `leaves` of a reader are checked against that: the server of a file chooses nothing.

Reference: IPIP-499, profile `unixfs-v1-2025`; dag-pb (links before data) and UnixFS, type File.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from reticent.errors import ContentForged, ContentTooLarge
from reticent.store.cid import DAG_PB, LENGTH, RAW, Cid

LEAF_BYTES = 1 << 20
WIDTH = 1024
MOST_BLOCK_BYTES = LEAF_BYTES  # nodes are smaller: 1,024 links of at most 68 bytes

Content = bytes | bytearray | memoryview | BinaryIO
Keep = Callable[[Cid, bytes | memoryview], None]


@dataclass(frozen=True)
class Shape:
    """The sizes by which files are cut.

    Another shape gives other identifiers: it is for tests of deep trees.
    """

    leaf_bytes: int = LEAF_BYTES
    width: int = WIDTH

    def span(self, size: int) -> int:
        """Return the bytes under one link of the root of a file of more than one leaf."""
        span = self.leaf_bytes
        while span * self.width < size:
            span *= self.width
        return span


PROFILE = Shape()


@dataclass(frozen=True)
class Link:
    """A block as the node above sees it.

    Attributes:
        cid: Identifier of the block.
        size: Bytes of the file under the block.
        total: Bytes of the block and of all blocks under it.
    """

    cid: Cid
    size: int
    total: int


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _sized(tag: int, content: bytes) -> bytes:
    return bytes((tag,)) + _varint(len(content)) + content


def node_of(links: list[Link]) -> bytes:
    """Return the one block that points at other blocks, in their order."""
    pointers = b"".join(
        _sized(0x12, _sized(0x0A, bytes(link.cid)) + b"\x12\x00\x18" + _varint(link.total)) for link in links
    )
    size = _varint(sum(link.size for link in links))
    data = b"\x08\x02\x18" + size + b"".join(b"\x20" + _varint(link.size) for link in links)
    return pointers + _sized(0x0A, data)


def cid_of(content: Content, *, keep: Keep | None = None, shape: Shape = PROFILE) -> Cid:
    """Return the identifier of a file, from bytes or from an open file at its current position.

    Args:
        content: Content of the file.
        keep: Function called with every block, those below first; None to compute the identifier alone.
        shape: Shape of the blocks; by default the profile's.
    """
    level: list[Link] = []
    for leaf in _leaves(content, shape.leaf_bytes):
        cid = Cid.of(RAW, leaf)
        if keep is not None:
            keep(cid, leaf)
        level.append(Link(cid, len(leaf), len(leaf)))
    while len(level) > 1:
        level = [_parent(level[at : at + shape.width], keep) for at in range(0, len(level), shape.width)]
    return level[0].cid


def _parent(links: list[Link], keep: Keep | None) -> Link:
    block = node_of(links)
    cid = Cid.of(DAG_PB, block)
    if keep is not None:
        keep(cid, block)
    return Link(cid, sum(link.size for link in links), len(block) + sum(link.total for link in links))


def _leaves(content: Content, leaf_bytes: int) -> Iterator[memoryview]:
    """Yield the file in pieces; one empty piece for an empty file."""
    if isinstance(content, (bytes, bytearray, memoryview)):
        view = memoryview(content).cast("B")
        yield from (view[at : at + leaf_bytes] for at in range(0, max(1, len(view)), leaf_bytes))
        return
    first = True
    while (leaf := _filled(content, leaf_bytes)) or first:
        yield memoryview(leaf)
        first = False


def _filled(file: BinaryIO, size: int) -> bytes:
    """Read a number of bytes of a file, fewer at its end only: a pipe gives what it has."""
    found = file.read(size)
    if len(found) == size or not found:
        return found
    parts, left = [found], size - len(found)
    while left and (found := file.read(left)):
        parts.append(found)
        left -= len(found)
    return b"".join(parts)


# Reading


def leaves_of(
    root: Cid, block: Callable[[Cid], bytes], *, most: int, shape: Shape = PROFILE
) -> Iterator[bytes]:
    """Yield the pieces of a file, in order, each checked when it comes.

    Args:
        root: Identifier of the file.
        block: Function that gets a block, which `Cid.checked` has verified already.
        most: Bytes that the file may have.
        shape: Shape of the blocks; by default the profile's.

    Raises:
        ContentForged: The blocks are no file of the profile.
        ContentTooLarge: The file has more bytes than `most`; none of it was given out.
    """
    first = block(root)
    if root.codec == RAW:
        _within(root, len(first), most)
        if len(first) > shape.leaf_bytes:
            raise _otherwise(root)
        yield first
        return
    size = _size_of(root, first)
    _within(root, size, most)
    if size <= shape.leaf_bytes:
        raise _otherwise(root)
    yield from _under(Link(root, size, 0), first, shape.span(size), block, shape)


def _under(
    over: Link, node: bytes, span: int, block: Callable[[Cid], bytes], shape: Shape
) -> Iterator[bytes]:
    """Yield the leaves under a node, of which each link but the last has `span` bytes.

    Args:
        over: Link to the node; the total of a root is not known (0).
        node: Block of the node.
        span: Bytes under each link but the last.
        block: Function that gets another block.
        shape: Shape of the blocks.
    """
    below = [min(span, over.size - at) for at in range(0, over.size, span)]
    links = _links(over.cid, node, below, RAW if span == shape.leaf_bytes else DAG_PB)
    if over.total and over.total != len(node) + sum(link.total for link in links):
        raise _otherwise(over.cid)
    for link in links:
        found = block(link.cid)
        if span > shape.leaf_bytes:
            yield from _under(link, found, span // shape.width, block, shape)
        elif len(found) == link.size:
            yield found
        else:
            raise _otherwise(over.cid)


def _links(cid: Cid, node: bytes, sizes: Iterable[int], codec: int) -> list[Link]:
    """Return the links of a node, if it is the one block that points at blocks of such sizes.

    Only the identifiers and totals are read; the node made of them must be this one, byte for byte.
    """
    links, at = [], 0
    for size in sizes:
        if node[at : at + 1] != b"\x12":
            raise _otherwise(cid)
        length, at = _number(cid, node, at + 1)
        end = at + length
        if node[at : at + 2] != bytes((0x0A, LENGTH)):
            raise _otherwise(cid)
        raw = node[at + 2 : at + 2 + LENGTH]
        if len(raw) != LENGTH or raw[:4] != bytes((1, codec, 0x12, 0x20)):
            raise _otherwise(cid)
        total, at = _number(cid, node, at + 2 + LENGTH + 3)
        if at != end or (codec == RAW and total != size):
            raise _otherwise(cid)
        links.append(Link(Cid(codec, raw[4:]), size, total))
    if node_of(links) != node:
        raise _otherwise(cid)
    return links


def _size_of(cid: Cid, node: bytes) -> int:
    """Return the size of the file that a node states; `_links` checks whether it is true."""
    at = 0
    while node[at : at + 1] == b"\x12":
        length, at = _number(cid, node, at + 1)
        at += length
    if node[at : at + 1] != b"\x0a":
        raise _otherwise(cid)
    _, at = _number(cid, node, at + 1)
    if node[at : at + 3] != b"\x08\x02\x18":
        raise _otherwise(cid)
    return _number(cid, node, at + 3)[0]


def _number(cid: Cid, node: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it."""
    number = 0
    for shift in range(0, 63, 7):
        if at >= len(node):
            raise _otherwise(cid)
        byte = node[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise _otherwise(cid)


def _within(cid: Cid, size: int, most: int) -> None:
    if size > most:
        raise ContentTooLarge(f"{cid} must have at most {most} bytes, got {size}")


def _otherwise(cid: Cid) -> ContentForged:
    return ContentForged(f"{cid} is no file of the profile unixfs-v1-2025")
