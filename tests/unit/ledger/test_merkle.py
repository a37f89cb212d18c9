"""The tree of RFC 9162 against known roots, a slow second definition, and every mutation of a proof."""

import hashlib
import random

import pytest

from reticent.errors import ParameterError
from reticent.ledger import merkle
from reticent.ledger.merkle import (
    EMPTY_ROOT,
    Frontier,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root_of,
    verify_consistency,
    verify_inclusion,
)

# The classic inputs of the Certificate Transparency test suites, and the roots of their prefixes.
INPUTS = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
SIZES = 130


def mth(leaves):
    """MTH of RFC 9162, 2.1.1, word for word: the slow second definition."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    return hashlib.sha256(b"\x01" + mth(leaves[:k]) + mth(leaves[k:])).digest()


class Tree:
    """Perfect nodes in a dictionary, and the roots of all prefixes."""

    def __init__(self, count):
        self.data = [b"entry %d" % i for i in range(count)]
        self.leaves = [leaf_hash(data) for data in self.data]
        self.nodes, frontier, self.roots = {}, Frontier(), [EMPTY_ROOT]
        for leaf in self.leaves:
            for level, index, node in frontier.append(leaf):
                self.nodes[level, index] = node
            self.roots.append(frontier.root())

    def node(self, level, index):
        return self.nodes[level, index]


@pytest.fixture(scope="module")
def tree():
    return Tree(SIZES)


@pytest.mark.parametrize("size", range(len(INPUTS) + 1))
def test_known_roots(size):
    leaves = [leaf_hash(bytes.fromhex(text)) for text in INPUTS[:size]]
    assert root_of(leaves).hex() == ROOTS[size]


def test_roots_are_those_of_the_definition(tree):
    for size in range(SIZES + 1):
        assert tree.roots[size] == mth(tree.data[:size])


@pytest.mark.parametrize("start", [0, 1, 2, 3, 7, 8, 21, 64, 100])
def test_extending_is_appending(tree, start):
    for stop in range(start, SIZES + 1):
        one, many, made = Frontier(), Frontier(), set()
        for leaf in tree.leaves[:start]:
            one.append(leaf)
        many.extend(tree.leaves[:start])
        for leaf in tree.leaves[start:stop]:
            made.update(one.append(leaf)[1:])
        assert set(many.extend(tree.leaves[start:stop])) == made
        assert (one.size, one.hashes) == (many.size, many.hashes)
        assert many.root() == tree.roots[stop]


def test_appending_tells_the_nodes_it_completes():
    """Leaf first, then every perfect subtree that ends in it, by level and index."""
    frontier, data = Frontier(), [b"entry %d" % i for i in range(16)]
    for i in range(16):
        made = frontier.append(leaf_hash(data[i]))
        ending = [level for level in range(5) if (i + 1) % (1 << level) == 0]
        assert made == [(k, i >> k, mth(data[i + 1 - (1 << k) : i + 1])) for k in ending]
        assert frontier.size == i + 1


def test_a_frontier_must_fit_its_size():
    with pytest.raises(ValueError, match="hashes must be 2 for 3 leaves, got 1"):
        Frontier(3, [EMPTY_ROOT])


def test_every_inclusion_proof_holds_for_its_place_alone(tree):
    for size in range(1, SIZES + 1):
        for index in range(size):
            proof, root = inclusion_proof(index, size, tree.node), tree.roots[size]
            assert verify_inclusion(tree.leaves[index], index, size, proof, root)
            assert not verify_inclusion(tree.leaves[index], index, size, [*proof, root], root)
            assert not verify_inclusion(tree.leaves[index], index, size, proof[:-1], root) or not proof
            assert not verify_inclusion(tree.leaves[index], index + 1, size, proof, root)
            assert not verify_inclusion(tree.leaves[index - 1], index, size, proof, root) or size == 1
    assert not verify_inclusion(tree.leaves[0], -1, 1, [], tree.roots[1])
    assert not verify_inclusion(tree.leaves[0], 0, 0, [], tree.roots[0])


def test_every_consistency_proof_holds_for_its_sizes_alone(tree):
    for size in range(SIZES + 1):
        for old in range(size + 1):
            proof, roots = consistency_proof(old, size, tree.node), tree.roots
            assert verify_consistency(old, size, proof, roots[old], roots[size])
            assert not verify_consistency(old, size, [*proof, roots[size]], roots[old], roots[size])
            if proof:
                assert not verify_consistency(old, size, proof[:-1], roots[old], roots[size])
                assert not verify_consistency(old, size, proof[1:], roots[old], roots[size])
            if 0 < old < size:  # every log follows from the empty one
                assert not verify_consistency(size, old, proof, roots[size], roots[old])
                assert not verify_consistency(old, size, proof, roots[old], roots[size - 1])
                assert not verify_consistency(old, size, proof, roots[size], roots[size])
                assert not verify_consistency(old, size, [], roots[old], roots[size])
    assert not verify_consistency(-1, 3, [], tree.roots[0], tree.roots[3])


def flipped(node, bit):
    return bytes(byte ^ (1 << bit % 8 if i == bit // 8 else 0) for i, byte in enumerate(node))


@pytest.mark.parametrize(("old", "size"), [(1, 2), (3, 7), (4, 8), (6, 8), (20, 33), (64, 130), (100, 130)])
def test_every_flipped_bit_and_every_swap_is_rejected(tree, old, size):
    inclusion, consistency = inclusion_proof(old, size, tree.node), consistency_proof(old, size, tree.node)
    if old == size:
        inclusion = []
    roots, leaf = tree.roots, tree.leaves[old] if old < size else None
    for place in range(len(inclusion)):
        for bit in range(256):
            wrong = [*inclusion]
            wrong[place] = flipped(wrong[place], bit)
            assert not verify_inclusion(leaf, old, size, wrong, roots[size])
    for place in range(len(consistency)):
        for bit in range(256):
            wrong = [*consistency]
            wrong[place] = flipped(wrong[place], bit)
            assert not verify_consistency(old, size, wrong, roots[old], roots[size])
    for proof, check in (
        (inclusion, lambda p: verify_inclusion(leaf, old, size, p, roots[size])),
        (consistency, lambda p: verify_consistency(old, size, p, roots[old], roots[size])),
    ):
        for i in range(len(proof)):
            for j in range(i):
                wrong = [*proof]
                wrong[i], wrong[j] = wrong[j], wrong[i]
                assert wrong == proof or not check(wrong)
    for bit in range(256):
        assert not verify_inclusion(flipped(leaf, bit), old, size, inclusion, roots[size])
        assert not verify_consistency(old, size, consistency, flipped(roots[old], bit), roots[size])
        assert not verify_consistency(old, size, consistency, roots[old], flipped(roots[size], bit))


def cut(left, right, place):
    """The same 64 bytes under a node, cut elsewhere."""
    both = left + right
    return both[:place], both[place:]


@pytest.mark.parametrize("place", [0, 1, 31, 33, 64])
def test_a_hash_of_another_length_is_refused(tree, place):
    """A node hashes its children without a mark between them: nothing beside 64 bytes is a child too."""
    leaf, sibling = cut(tree.leaves[0], tree.leaves[1], place)
    assert merkle.node_hash(leaf, sibling) == tree.roots[2]
    assert not verify_inclusion(leaf, 0, 2, [sibling], tree.roots[2])
    old_root, rest = cut(tree.roots[2], merkle.node_hash(*tree.leaves[2:4]), place)
    assert merkle.node_hash(old_root, rest) == tree.roots[4]
    assert not verify_consistency(2, 4, [rest], old_root, tree.roots[4])
    for wrong in (b"", tree.roots[2][:-1], tree.roots[2] + b"\x00"):
        assert not verify_inclusion(wrong, 0, 1, [], wrong)
        assert not verify_consistency(2, 2, [], wrong, wrong)
        with pytest.raises(ParameterError, match="hashes must be of 32 bytes each"):
            Frontier(1, [wrong])


def test_control_without_the_length_an_empty_leaf_is_in_every_log(tree, monkeypatch):
    """Planted bug: hashes of any length."""
    monkeypatch.setattr(merkle, "_are_hashes", lambda given: True)
    leaf, sibling = cut(tree.leaves[0], tree.leaves[1], 0)
    assert verify_inclusion(leaf, 0, 2, [sibling], tree.roots[2])


def test_the_empty_tree_has_one_root_and_begins_every_log(tree):
    for size in range(5):
        assert consistency_proof(0, size, tree.node) == []
        assert verify_consistency(0, size, [], EMPTY_ROOT, tree.roots[size])
        for root in (bytes(32), tree.roots[1]):
            assert not verify_consistency(0, size, [], root, root)
            assert not verify_consistency(0, size, [], root, tree.roots[size])
    assert not verify_consistency(0, 3, [tree.roots[3]], EMPTY_ROOT, tree.roots[3])
    assert not verify_consistency(0, 0, [], EMPTY_ROOT, tree.roots[1])


@pytest.mark.parametrize(("index", "size"), [(0, 0), (-1, 3), (3, 3), (4, 3), (0, -1)])
def test_no_path_leads_to_a_leaf_that_is_not_there(tree, index, size):
    with pytest.raises(ParameterError, match=rf"index must be >= 0 and < {size}, got {index}"):
        inclusion_proof(index, size, tree.node)


@pytest.mark.parametrize(("old", "size"), [(-1, 3), (4, 3), (0, -1)])
def test_no_proof_leads_to_a_shorter_log(tree, old, size):
    with pytest.raises(ParameterError, match=rf"old must be >= 0 and <= {size}, got {old}"):
        consistency_proof(old, size, tree.node)


def test_random_sizes_far_out():
    rng = random.Random(9162)
    nodes = {}

    def node(level, index):
        """A tree of 2^40 leaves, all alike, without keeping it."""
        if level not in nodes:
            nodes[level] = (
                leaf_hash(b"x") if level == 0 else merkle.node_hash(nodes[level - 1], node(level - 1, 0))
            )
        return nodes[level]

    for level in range(41):
        node(level, 0)
    for _ in range(300):
        size = rng.randrange(2, 1 << 40)
        old = rng.randrange(1, size)
        roots = [merkle.range_hash(0, n, node) for n in (old, size)]
        assert verify_inclusion(leaf_hash(b"x"), old, size, inclusion_proof(old, size, node), roots[1])
        assert verify_consistency(old, size, consistency_proof(old, size, node), *roots)


def test_control_a_tree_without_prefixes_would_take_a_node_for_a_leaf(monkeypatch):
    """Planted bug: without 0x00 and 0x01, two entries and their parent are one and the same entry."""
    left, right = b"a" * 32, b"b" * 32
    fake = left + right
    assert leaf_hash(fake) != merkle.node_hash(left, right)
    monkeypatch.setattr(merkle, "leaf_hash", lambda data: hashlib.sha256(data).digest())
    monkeypatch.setattr(merkle, "node_hash", lambda a, b: hashlib.sha256(a + b).digest())
    assert merkle.leaf_hash(fake) == merkle.node_hash(left, right)
