"""Entries: one way to write each, nothing else is read; commitments that tell nothing."""

import base64
import hashlib
import hmac
import json
import os
import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from reticent.errors import LedgerDamaged
from reticent.ledger import checkpoint, entries, merkle
from reticent.ledger.replay import Replay

PAGE = Path(__file__).parents[3] / "docs" / "ledger-format.md"
HASH = "ab" * 32
EXAMPLES = [
    entries.encode("ledger", origin="reticent/ledger", version=1),
    entries.encode("ledger", origin='a"b\\c', version=1),
    entries.encode(
        "open", account=0, cap=10, commitment=HASH, minimum=1, neighbours="REPLACE_ONE", unit="mu2"
    ),
    entries.encode("request", account=0, charged=5, commitment=HASH, key=0, measurement=0),
    entries.encode("fulfil", commitment=HASH, measurement=0),
    entries.encode("recover", account=0, head=entries.head_text(7, bytes(32)), spent=9),
    entries.encode("answer", account=0, commitment=HASH),
    entries.encode("void", head=entries.head_text(7, bytes(32)), measurement=0),
    entries.encode("audit", claim="Duchi: epsilon 1", commitment=HASH, verdict="broken"),
]


@pytest.mark.parametrize("leaf", EXAMPLES)
def test_an_entry_is_canonical_json(leaf):
    decoded = entries.decode(leaf)
    assert decoded == json.loads(leaf)
    assert json.dumps(decoded, sort_keys=True, separators=(",", ":")) == leaf
    kind = decoded.pop("type")
    assert set(decoded) == entries.FIELDS[kind]
    assert entries.encode(kind, **decoded) == leaf
    assert leaf.isascii()


@pytest.mark.parametrize("leaf", EXAMPLES)
def test_no_other_text_is_read_as_the_same_entry(leaf):
    """Every deletion, doubling and insertion of one character, and JSON that means the same."""
    told = json.loads(leaf)
    others = {leaf[:i] + leaf[i + 1 :] for i in range(len(leaf))}
    others |= {leaf[:i] + c + leaf[i:] for i in range(len(leaf) + 1) for c in " \n\t0+-.e\u0660\x00"}
    others |= {json.dumps(told), json.dumps(told, indent=1), json.dumps(dict(reversed(told.items())))}
    others |= {leaf + "\n", leaf[:-1] + ',"more":"1"}', "[" + leaf + "]"}
    for other in others - {leaf}:
        try:
            decoded = entries.decode(other)
        except LedgerDamaged:
            continue
        assert decoded != told, "another text for the same entry"
        assert json.dumps(decoded, sort_keys=True, separators=(",", ":")) == other


@pytest.mark.parametrize(
    "leaf",
    [
        "",
        "{}",
        "null",
        '{"type":"refund"}',
        '{"commitment":"' + HASH + '","measurement":0,"type":"fulfil"}',
        '{"commitment":"' + HASH + '","measurement":"00","type":"fulfil"}',
        '{"commitment":"' + HASH + '","measurement":"-1","type":"fulfil"}',
        '{"commitment":"' + HASH + '","measurement":"1e3","type":"fulfil"}',
        '{"commitment":"' + HASH + '","measurement":"12345678901234567890","type":"fulfil"}',
        '{"commitment":"' + HASH.upper() + '","measurement":"0","type":"fulfil"}',
        '{"origin":"two words","type":"ledger","version":"1"}',
        "[" * 100_000,
    ],
)
def test_bad_entries_are_refused(leaf):
    with pytest.raises(LedgerDamaged, match=r"^an entry is not in canonical form$"):
        entries.decode(leaf)


def test_the_one_way_to_write_an_entry():
    due = r'\{"commitment":"([0-9a-f]{64})","measurement":"(0|[1-9][0-9]{0,18})","type":"fulfil"\}'
    assert entries._pattern("fulfil") == re.compile(due, re.ASCII)
    leaf = '{"commitment":"' + HASH + '","measurement":"0","type":"fulfil"}'
    assert entries.encode("fulfil", measurement=0, commitment=HASH) == leaf
    assert {kind: entries._pattern(kind) for kind in entries.FIELDS} == entries.PATTERNS


def test_what_an_answer_commits_to():
    parts = entries.answer_parts("once", "request", "k", 5, 6, 7)
    assert parts == ("once", "request", "k", "5", "6", "7")


@given(st.binary(min_size=32, max_size=32), st.lists(st.text(), max_size=4))
def test_a_commitment_is_hmac_over_parts_with_their_lengths(nonce, parts):
    message = b"".join(len(p.encode()).to_bytes(8, "big") + p.encode() for p in parts)
    assert entries.commitment(nonce, *parts) == hmac.new(nonce, message, hashlib.sha256).hexdigest()


def test_parts_cannot_be_moved_between_fields():
    nonce = os.urandom(32)
    assert entries.commitment(nonce, "ab", "c") != entries.commitment(nonce, "a", "bc")
    assert entries.commitment(nonce, "abc") != entries.commitment(nonce, "abc", "")
    plain = hmac.digest(nonce, b"ab" + b"c", "sha256")  # control: without lengths they can
    assert plain == hmac.digest(nonce, b"a" + b"bc", "sha256")


def test_a_nonce_is_32_bytes():
    nonce = os.urandom(31)
    assert hmac.digest(nonce, b"x", "sha256") == hmac.digest(nonce + b"\0", b"x", "sha256"), (
        "HMAC cannot tell"
    )
    for wrong in (nonce, nonce + b"\0\0", b"", "x" * 32, None):
        with pytest.raises(LedgerDamaged, match="32 bytes"):
            entries.commitment(wrong, "x")


def test_the_same_text_never_commits_to_the_same_twice():
    assert len({entries.commitment(os.urandom(32), "alice") for _ in range(1000)}) == 1000


@given(st.lists(st.integers(-(1 << 62), 1 << 62)))
def test_values_survive_the_text(values):
    assert entries.values_of(entries.values_text(values)) == tuple(values)


# The worked example of docs/ledger-format.md, recomputed with hashlib, hmac and Ed25519 alone


@pytest.fixture(scope="module")
def example():
    (block,) = re.findall(r"^```json\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    return json.loads(block)


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def mth(hashes):
    if len(hashes) == 1:
        return hashes[0]
    k = 1 << (len(hashes) - 1).bit_length() - 1
    return sha256(b"\x01", mth(hashes[:k]), mth(hashes[k:]))


def test_the_page_entries_and_hashes(example):
    leaves = [sha256(b"\x00", leaf.encode()) for leaf in example["entries"]]
    assert [leaf.hex() for leaf in leaves] == example["leaf_hashes"]
    assert [mth(leaves[: i + 1]).hex() for i in range(len(leaves))] == example["roots"]
    for leaf in example["entries"]:
        assert json.dumps(json.loads(leaf), sort_keys=True, separators=(",", ":")) == leaf
    assert {json.loads(leaf)["type"] for leaf in example["entries"]} == set(entries.FIELDS)
    for number, opening in example["openings"].items():
        parts = [part.encode() for part in opening["parts"]]
        message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        told = json.loads(example["entries"][int(number)])["commitment"]
        assert hmac.digest(bytes.fromhex(opening["nonce"]), message, "sha256").hex() == told


def test_the_page_head(example):
    text, signatures = example["checkpoint"].split("\n\n")
    text += "\n"
    root = base64.b64encode(bytes.fromhex(example["roots"][-1])).decode()
    totals = base64.b64encode(sha256(example["totals"].encode())).decode()
    assert text == f"example.org/ledger\n9\n{root}\ntotals {totals}\n"
    time = example["witness_time"]
    due = []
    for who, kind, before, message in (
        ("log_key", b"\x01", b"", text.encode()),
        ("witness_key", b"\x04", time.to_bytes(8, "big"), f"cosignature/v1\ntime {time}\n{text}".encode()),
    ):
        private = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(example[who]["private"]))
        public = private.public_key().public_bytes_raw()
        name = example[who]["public"].split("+")[0]
        identity = sha256(name.encode(), b"\n", kind, public)[:4]
        assert example[who]["public"] == f"{name}+{identity.hex()}+{base64.b64encode(kind + public).decode()}"
        signed = base64.b64encode(identity + before + private.sign(message)).decode()
        due.append(f"\u2014 {name} {signed}\n")
    assert signatures == "".join(due)


def test_the_page_against_our_code(example):
    replay = Replay()
    replay.read(example["entries"])
    for who in ("log_key", "witness_key"):
        signer = checkpoint.PublicKey.parse(example[who]["public"])
        assert checkpoint.verified(example["checkpoint"], signer) == replay.head()
    proofs = [
        [bytes.fromhex(h) for h in example[name]] for name in ("inclusion_of_2_in_9", "consistency_of_3_in_9")
    ]
    leaf, roots = bytes.fromhex(example["leaf_hashes"][2]), [bytes.fromhex(root) for root in example["roots"]]
    assert merkle.verify_inclusion(leaf, 2, 9, proofs[0], roots[8])
    assert merkle.verify_consistency(3, 9, proofs[1], roots[2], roots[8])
