"""Files become the blocks that IPFS makes of them, and no others are read."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reticent.errors import ContentForged, ContentTooLarge
from reticent.store import cid_of
from reticent.store.cid import DAG_PB, RAW, Cid
from reticent.store.unixfs import LEAF_BYTES, PROFILE, Link, Shape, leaves_of, node_of

MODULES = Path(sys.prefix) / "node_modules"
SMALL = Shape(leaf_bytes=7, width=3)
NO_LIMIT = 1 << 62


def theirs(paths, *shape):
    """What npm's importer calls these files."""
    if shutil.which("node") is None or not (MODULES / "ipfs-unixfs-importer").is_dir():
        pytest.skip("npm's ipfs-unixfs-importer is not installed")
    command = ["node", str(Path(__file__).with_name("importer.mjs")), str(MODULES), *map(str, shape)]
    told = "".join(f"{path}\n" for path in paths)
    done = subprocess.run(command, input=told, capture_output=True, text=True, check=True, timeout=600)
    return done.stdout.split()


def files(folder, sizes, seed):
    """Files of these sizes, of random bytes; beyond 16 MiB of zeros with random beginnings and ends."""
    draw = np.random.default_rng(seed)
    for place, size in enumerate(sizes):
        path = folder / str(place)
        with path.open("wb") as file:
            edge = min(size, 16 << 20)
            file.write(draw.bytes(edge))
            if size > edge:
                file.truncate(size)
                file.seek(size - 1000)
                file.write(draw.bytes(1000))
        yield path


def opened(path, shape=PROFILE):
    with path.open("rb") as file:
        return str(cid_of(file, shape=shape))


def edges(unit, most):
    return [unit * times + off for times in range(1, most + 1) for off in (-1, 0, 1)]


def test_known_identifiers():
    assert str(cid_of(b"hello world\n")) == "bafkreifjjcie6lypi6ny7amxnfftagclbuxndqonfipmb64f2km2devei4"
    assert str(cid_of(b"")) == "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"


def test_identifiers_are_those_of_ipfs(tmp_path):
    """Below, at and above whole leaves."""
    sizes = [0, 1, 255, 256 << 10, *edges(LEAF_BYTES, 2), 5 * LEAF_BYTES + 17]
    paths = list(files(tmp_path, sizes, 1))
    assert [opened(path) for path in paths] == theirs(paths)


def test_deep_trees_are_those_of_ipfs(tmp_path):
    """The same code with small leaves and few links has up to five levels."""
    sizes = sorted({*range(0, 80), *edges(7 * 3, 4), *edges(7 * 9, 3), *edges(7 * 27, 4), 7 * 81 + 3})
    paths = list(files(tmp_path, sizes, 2))
    assert [opened(path, SMALL) for path in paths] == theirs(paths, SMALL.leaf_bytes, SMALL.width)


def test_planted_other_parameters_give_other_identifiers(tmp_path):
    paths = list(files(tmp_path, [3 * LEAF_BYTES], 3))
    assert [opened(path, Shape(256 << 10, 174)) for path in paths] != theirs(paths)


@pytest.mark.slow
def test_identifiers_of_200_files_are_those_of_ipfs(tmp_path):
    """One of them has more leaves than a node has links."""
    draw = np.random.default_rng(4)
    sizes = [int(size) for size in np.exp(draw.uniform(0.0, np.log(12 << 20), 195))]
    sizes += [LEAF_BYTES - 1, LEAF_BYTES, LEAF_BYTES + 1, 1024 * LEAF_BYTES, 1025 * LEAF_BYTES + 1]
    paths = list(files(tmp_path, sizes, 5))
    assert len(paths) == 200
    assert [opened(path) for path in paths] == theirs(paths)


# Reading


def written(content, shape=SMALL):
    """A file's blocks by their names, and the root."""
    blocks = {}
    root = cid_of(content, keep=lambda cid, block: blocks.__setitem__(cid, bytes(block)), shape=shape)
    return blocks, root


@pytest.mark.parametrize("size", [0, 1, 6, 7, 8, 20, 21, 22, 63, 64, 189, 190, 400])
def test_what_was_written_is_read(size):
    content = os.urandom(size)
    blocks, root = written(content)
    pieces = list(leaves_of(root, blocks.__getitem__, most=size, shape=SMALL))
    assert b"".join(pieces) == content
    assert all(len(piece) <= 7 for piece in pieces)


def test_a_pipe_that_gives_little_at_once_has_the_same_name():
    class Pipe(io.RawIOBase):
        def __init__(self, content):
            self.left = content

        def read(self, size=-1):
            part, self.left = self.left[: min(size, 5)], self.left[min(size, 5) :]
            return part

    content = os.urandom(100)
    assert cid_of(Pipe(content), shape=SMALL) == cid_of(content, shape=SMALL)


@pytest.mark.parametrize("size", [5, 50])
def test_more_than_allowed_is_refused_before_anything_is_given_out(size):
    blocks, root = written(bytes(size))
    asked = []

    def block(cid):
        asked.append(cid)
        return blocks[cid]

    with pytest.raises(ContentTooLarge, match=f"at most {size - 1} bytes, got {size}"):
        list(leaves_of(root, block, most=size - 1, shape=SMALL))
    assert asked == [root]


def reads(blocks, root):
    """What becomes of a file that somebody made: refused, or its bytes."""
    try:
        return b"".join(leaves_of(root, lambda cid: blocks[cid], most=NO_LIMIT, shape=SMALL))
    except (ContentForged, KeyError):
        return None


def test_every_changed_byte_of_a_root_is_refused():
    """Its name is made anew, as somebody who lies would: so a file has one name."""
    content = os.urandom(60)
    blocks, root = written(content)
    node = blocks[root]
    for place in range(len(node)):
        for bit in (1, 0x40, 0x80):
            other = bytearray(node)
            other[place] ^= bit
            name = Cid.of(DAG_PB, other)
            assert reads(blocks | {name: bytes(other)}, name) is None, place


def forged(*links, codec=DAG_PB):
    block = node_of(list(links))
    return {Cid.of(codec, block): block}, Cid.of(codec, block)


def leaf(content):
    return Link(Cid.of(RAW, content), len(content), len(content))


@pytest.mark.parametrize(
    "links",
    [
        [leaf(b"abc")],  # one link where the leaf itself would be the file
        [leaf(b"abcdefg")],
        [leaf(b"abc"), leaf(b"abcdefg")],  # a short leaf first
        [leaf(b"abcdefgh"), leaf(b"a")],  # a leaf that is too long
        [leaf(b"abcdefg")] * 4,  # more links than a node has
        [Link(Cid.of(RAW, b"abcdefg"), 7, 7), Link(Cid.of(RAW, b"ab"), 3, 3)],  # a size that is not so
        [leaf(b"abcdefg"), Link(Cid.of(DAG_PB, b"a"), 1, 1)],  # a node where a leaf should be
    ],
)
def test_other_layouts_are_refused(links):
    blocks, root = forged(*links)
    leaves = {Cid.of(RAW, one): one for one in (b"abc", b"abcdefg", b"abcdefgh", b"a", b"ab")}
    assert reads(blocks | leaves | {Cid.of(DAG_PB, b"a"): b"a"}, root) is None


def test_a_file_that_unfolds_is_refused():
    """30 levels of nodes that each point at the same node, as a gigabyte from a kilobyte."""
    blocks, link = {}, leaf(b"abcdefg")
    for _ in range(30):
        more, root = forged(link, link, link)
        blocks |= more
        link = Link(root, 3 * link.size, len(more[root]) + 3 * link.total)
    with pytest.raises(ContentTooLarge):
        list(leaves_of(link.cid, blocks.__getitem__, most=1 << 30, shape=SMALL))


@pytest.mark.parametrize("node", [b"", b"\x12", b"\x12\x7f", b"\x0a\xff", b"\x12\x00" * 50, b"\xff" * 100])
def test_no_bytes_are_an_error_of_ours(node):
    assert reads({Cid.of(DAG_PB, node): node}, Cid.of(DAG_PB, node)) is None


def test_no_other_name_of_the_same_file_is_read():
    """A node below whose total is said otherwise: the root's name differs, the bytes do not."""
    content = os.urandom(60)
    blocks, root = written(content)
    tree = [Cid.of(DAG_PB, block) for block in blocks.values() if block[:1] == b"\x12" and len(block) > 40]
    below = [cid for cid in tree if cid != root]
    links = [Link(cid, 21 if cid != below[-1] else 18, 1000) for cid in below]
    more, other = forged(*links)
    assert reads(blocks | more, other) is None
    honest = [
        Link(cid, link.size, len(blocks[cid]) + link.size) for cid, link in zip(below, links, strict=True)
    ]
    assert forged(*honest)[1] == root, "only the totals were wrong"
