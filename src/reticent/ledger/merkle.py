"""The Merkle tree of RFC 9162, section 2.1: hashes, growing, proofs and their verification.

The tree is stored as perfect subtrees: node (level, index) covers leaves [index 2^level, (index+1) 2^level).
Proofs read such nodes through a function, so that any store will do.

Whatever is handed in as a hash must have the length of one: a node hashes its children without a mark
between them, so a shorter left one with a longer right one would pass for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

from reticent.errors import ParameterError

Node = Callable[[int, int], bytes]

EMPTY_ROOT = sha256(b"").digest()
_HASH_BYTES = len(EMPTY_ROOT)


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of an entry: SHA-256(0x00 || data)."""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node: SHA-256(0x01 || left || right)."""
    return sha256(b"\x01" + left + right).digest()


def _are_hashes(given: Iterable[bytes]) -> bool:
    return all(len(one) == _HASH_BYTES for one in given)


def _paired(row: list[bytes]) -> list[bytes]:
    """Return the level above an even number of neighbouring nodes."""
    return [sha256(b"\x01" + left + right).digest() for left, right in zip(row[::2], row[1::2], strict=True)]


class Frontier:
    """The perfect subtrees at the right edge, largest first: enough to append and to compute the root."""

    def __init__(self, size: int = 0, hashes: Sequence[bytes] = ()) -> None:
        if len(hashes) != size.bit_count():
            raise ParameterError(f"hashes must be {size.bit_count()} for {size} leaves, got {len(hashes)}")
        if not _are_hashes(hashes):
            raise ParameterError(f"hashes must be of {_HASH_BYTES} bytes each")
        self.size = size
        self.hashes = list(hashes)

    def append(self, leaf: bytes) -> list[tuple[int, int, bytes]]:
        """Add a leaf hash; return the perfect nodes (level, index, hash) that it completes, leaf first."""
        return [(0, self.size, leaf), *self._join(0, leaf, 1)]

    def _join(self, level: int, current: bytes, lowest: int) -> list[tuple[int, int, bytes]]:
        """Add a perfect subtree of 2^level leaves; return the nodes above it that it completes."""
        made: list[tuple[int, int, bytes]] = []
        index = self.size >> level
        self.size += 1 << level
        while index & 1:
            current = node_hash(self.hashes.pop(), current)
            level, index = level + 1, index >> 1
            if level >= lowest:
                made.append((level, index, current))
        self.hashes.append(current)
        return made

    def extend(self, leaves: Sequence[bytes], lowest: int = 1) -> list[tuple[int, int, bytes]]:
        """Add leaf hashes; return the perfect nodes that they complete, from the level `lowest` >= 1 on.

        The result is the tree that `append` builds, made level by level: several times as fast.
        """
        if len(leaves) == 1:
            return self._join(0, leaves[0], lowest)
        made: list[tuple[int, int, bytes]] = []
        taken = 0
        while taken < len(leaves):
            start = self.size
            fits = (len(leaves) - taken).bit_length() - 1
            level = min(fits, (start & -start).bit_length() - 1) if start else fits
            block = 1 << level
            row = list(leaves[taken : taken + block])
            taken += block
            for up in range(1, level + 1):
                row = _paired(row)
                if up >= lowest:
                    first = start >> up
                    made.extend([(up, first + i, one) for i, one in enumerate(row)])
            made += self._join(level, row[0], lowest)
        return made

    def root(self) -> bytes:
        """Return the root hash of the tree so far."""
        if not self.hashes:
            return EMPTY_ROOT
        current = self.hashes[-1]
        for left in reversed(self.hashes[:-1]):
            current = node_hash(left, current)
        return current


def root_of(leaves: Iterable[bytes]) -> bytes:
    """Return the root hash over leaf hashes."""
    frontier = Frontier()
    frontier.extend(list(leaves))
    return frontier.root()


def range_hash(start: int, stop: int, node: Node) -> bytes:
    """Return the hash of leaves [start, stop); start is a multiple of the largest power of two that fits."""
    size = stop - start
    level = size.bit_length() - 1
    if size == 1 << level:
        return node(level, start >> level)
    split = start + (1 << level)
    return node_hash(range_hash(start, split, node), range_hash(split, stop, node))


def inclusion_proof(index: int, size: int, node: Node) -> list[bytes]:
    """Return the audit path of leaf `index` in the tree of `size` leaves. RFC 9162, 2.1.3.1."""
    if not 0 <= index < size:
        raise ParameterError(f"index must be >= 0 and < {size}, got {index}")
    return _path(index, 0, size, node)


def _path(index: int, start: int, stop: int, node: Node) -> list[bytes]:
    if stop - start == 1:
        return []
    split = start + (1 << (stop - start - 1).bit_length() - 1)
    if index < split:
        return [*_path(index, start, split, node), range_hash(split, stop, node)]
    return [*_path(index, split, stop, node), range_hash(start, split, node)]


def consistency_proof(old: int, size: int, node: Node) -> list[bytes]:
    """Return a proof that the tree of `old` leaves is a prefix of the tree of `size`. RFC 9162, 2.1.4.1.

    The RFC asks for 0 < old < size. From the empty tree, and from a tree to itself, the proof is empty, as in
    C2SP tlog-witness.
    """
    if not 0 <= old <= size:
        raise ParameterError(f"old must be >= 0 and <= {size}, got {old}")
    return _subproof(old, 0, size, node, whole=True) if 0 < old < size else []


def _subproof(old: int, start: int, stop: int, node: Node, *, whole: bool) -> list[bytes]:
    if old == stop:
        return [] if whole else [range_hash(start, stop, node)]
    split = start + (1 << (stop - start - 1).bit_length() - 1)
    if old <= split:
        return [*_subproof(old, start, split, node, whole=whole), range_hash(split, stop, node)]
    return [*_subproof(old, split, stop, node, whole=False), range_hash(start, split, node)]


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Check an audit path. RFC 9162, 2.1.3.2."""
    if not 0 <= index < size or not _are_hashes((leaf, root, *proof)):
        return False
    position, last, current = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if position & 1 or position == last:
            current = node_hash(sibling, current)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            current = node_hash(current, sibling)
        position, last = position >> 1, last >> 1
    return last == 0 and current == root


def verify_consistency(old: int, size: int, proof: Sequence[bytes], old_root: bytes, root: bytes) -> bool:
    """Check that the tree (old, old_root) is a prefix of (size, root). RFC 9162, 2.1.4.2."""
    if not 0 <= old <= size or not _are_hashes((old_root, root, *proof)):
        return False
    if old == 0 and old_root != EMPTY_ROOT:
        return False
    if old == size:
        return not proof and old_root == root
    if old == 0:
        return not proof
    path = list(proof) if old & (old - 1) else [old_root, *proof]
    if not path:
        return False
    position, last = old - 1, size - 1
    while position & 1:
        position, last = position >> 1, last >> 1
    first = second = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if position & 1 or position == last:
            first, second = node_hash(sibling, first), node_hash(sibling, second)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            second = node_hash(second, sibling)
        position, last = position >> 1, last >> 1
    return last == 0 and first == old_root and second == root
