"""Checkpoints: the C2SP format to the byte, several signatures, keys, and everything else refused."""

import base64
import dataclasses
import hashlib
import os
import stat

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.errors import LedgerDamaged, ParameterError
from reticent.ledger import checkpoint as cp
from reticent.ledger.checkpoint import WITNESS, Head, PublicKey

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
HEAD = Head("example.org/ledger", 5, hashlib.sha256(b"root").digest(), cp.totals_hash({0: 3, 1: 4}))
SIGNED = cp.sign(HEAD, HEAD.origin, KEY)
COSIGNED = SIGNED + cp.cosignature_line(HEAD.text(), "witness", OTHER, 1_800_000_000)
LOG_KEY = PublicKey(HEAD.origin, KEY.public_key())
WITNESS_KEY = PublicKey("witness", OTHER.public_key(), WITNESS)


def test_the_text_is_the_format():
    root, totals = (base64.b64encode(part).decode() for part in (HEAD.root, HEAD.totals))
    lines = SIGNED.split("\n")
    assert lines[:5] == ["example.org/ledger", "5", root, f"totals {totals}", ""]
    dash, name, signature = lines[5].split(" ")
    raw = base64.b64decode(signature)
    public = KEY.public_key().public_bytes_raw()
    assert (dash, name, lines[6:]) == ("\u2014", "example.org/ledger", [""])
    assert raw[:4] == hashlib.sha256(b"example.org/ledger\n\x01" + public).digest()[:4]
    KEY.public_key().verify(raw[4:], "\n".join(lines[:4]).encode() + b"\n")


def test_a_cosignature_is_over_time_and_text():
    raw = base64.b64decode(COSIGNED.split("\n")[6].split(" ")[2])
    public = OTHER.public_key().public_bytes_raw()
    assert raw[:4] == hashlib.sha256(b"witness\n\x04" + public).digest()[:4]
    assert int.from_bytes(raw[4:12], "big") == 1_800_000_000
    message = b"cosignature/v1\ntime 1800000000\n" + HEAD.text().encode()
    OTHER.public_key().verify(raw[12:], message)


def test_both_signatures_verify():
    assert cp.verified(COSIGNED, LOG_KEY) == HEAD
    assert cp.verified(COSIGNED, WITNESS_KEY) == HEAD
    assert cp.verify(SIGNED, HEAD.origin, KEY.public_key()) == HEAD
    assert cp.parse(COSIGNED)[0] == HEAD
    assert cp.signed_by(COSIGNED, LOG_KEY) + cp.signed_by(COSIGNED, WITNESS_KEY) == COSIGNED.split("\n\n")[1]


def test_signing_again_gives_the_same_bytes():
    """Ed25519 is deterministic: a head has one signature by one key."""
    assert cp.sign(HEAD, HEAD.origin, KEY) == SIGNED
    assert cp.signature_line(HEAD.text(), HEAD.origin, KEY) == SIGNED.split("\n\n")[1]
    assert SIGNED + cp.cosignature_line(HEAD.text(), "witness", OTHER, 1_800_000_000) == COSIGNED
    assert cp.cosignature_line(HEAD.text(), "witness", OTHER, 1_800_000_001) not in COSIGNED


@pytest.mark.parametrize(
    "signer",
    [
        PublicKey(HEAD.origin, OTHER.public_key()),
        PublicKey("somebody", KEY.public_key()),
        PublicKey(HEAD.origin, KEY.public_key(), WITNESS),
        PublicKey("witness", OTHER.public_key()),
        PublicKey("witness", KEY.public_key(), WITNESS),
    ],
)
def test_a_signature_of_somebody_else_is_refused(signer):
    with pytest.raises(LedgerDamaged, match="not signed by"):
        cp.verified(COSIGNED, signer)


def test_every_changed_character_is_refused():
    for i, char in enumerate(COSIGNED):
        for other in {"0", "A", "\n", " ", ""} - {char}:
            changed = COSIGNED[:i] + other + COSIGNED[i + 1 :]
            refused = 0
            for signer in (LOG_KEY, WITNESS_KEY):
                try:
                    assert cp.verified(changed, signer) == HEAD
                except LedgerDamaged:
                    refused += 1
            assert refused


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        SIGNED[:-1],
        SIGNED + "\n",
        SIGNED + "x\n",
        SIGNED.replace("\n", "\r\n"),
        SIGNED.replace("5\n", "05\n", 1),
        SIGNED.replace("5\n", "-5\n", 1),
        SIGNED.replace("5\n", "5.0\n", 1),
        SIGNED.replace("5\n", "\u0665\n", 1),
        SIGNED.replace("totals ", "totals  "),
        SIGNED.replace("totals ", "total "),
        SIGNED.replace("\u2014", "-"),
        SIGNED.replace("\n\n", "\nmore\n\n"),
        SIGNED.replace("example.org/ledger\n5", "two words\n5"),
        HEAD.text(),
        HEAD.text() + "\n",
        SIGNED + SIGNED.split("\n\n")[1] * 16,
        HEAD.text() + "\n\u2014 name " + base64.b64encode(b"1234").decode() + "\n",
        HEAD.text() + "\n\u2014 name !!!!\n",
        SIGNED + SIGNED.split("\n\n")[1].replace(" example", " ex ample"),
        SIGNED + SIGNED.split("\n\n")[1].replace(" example", " ex\u2003ample"),
        SIGNED + SIGNED.split("\n\n")[1].replace(" example", " ex+ample"),
        SIGNED + SIGNED.split("\n\n")[1].replace(" example", " ex\x1bample"),
        SIGNED + SIGNED.split("\n\n")[1].replace(" example", " ex\ud800ample"),
        SIGNED.replace("5\n", f"{1 << 63}\n", 1),
        SIGNED.replace("5\n", "0\n", 1),
    ],
)
def test_the_parser_is_strict(text):
    with pytest.raises(LedgerDamaged, match="C2SP"):
        cp.parse(text)


def test_the_parser_takes_what_just_fits():
    line = SIGNED.split("\n\n")[1]
    head, pairs = cp.parse(HEAD.text() + "\n" + line * 16)
    assert (head, pairs) == (HEAD, cp.parse(SIGNED)[1] * 16)
    shortest = "\n\u2014 name " + base64.b64encode(b"12345").decode() + "\n"
    assert cp.parse(HEAD.text() + shortest)[1] == [("name", b"12345")]
    longest = Head("x" * 200, 2**63 - 1, HEAD.root, HEAD.totals)
    assert cp.parse(cp.sign(longest, "y" * 200, KEY))[0] == longest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 1 << 63}, "size must be <= 9223372036854775807"),
        ({"size": -1}, "size must be >= 0"),
        ({"size": 0}, "root must be the hash of nothing for a log of no entries"),
        ({"root": b""}, "root and totals must be hashes of 32 bytes"),
        ({"totals": bytes(33)}, "root and totals must be hashes of 32 bytes"),
    ],
)
def test_a_head_that_no_log_has_is_refused(changes, message):
    with pytest.raises(ParameterError, match=message):
        dataclasses.replace(HEAD, **changes)


def line_of(signer, signature):
    return f"\u2014 {signer.name} {base64.b64encode(signer.id + signature).decode()}\n"


@pytest.mark.parametrize("signer", [LOG_KEY, WITNESS_KEY])
@pytest.mark.parametrize("bad", [b"\x00", bytes(7), bytes(8), bytes(64), bytes(72), bytes(1000)])
def test_a_bad_signature_beside_a_good_one_of_the_same_key_voids_the_note(signer, bad):
    """C2SP signed-note: a known key whose signature fails makes the note one to refuse, in any order."""
    text, lines = COSIGNED.split("\n\n")
    for note in (COSIGNED + line_of(signer, bad), f"{text}\n\n{line_of(signer, bad)}{lines}"):
        with pytest.raises(LedgerDamaged, match=f"not signed by {signer.name}"):
            cp.verified(note, signer)
        other = WITNESS_KEY if signer is LOG_KEY else LOG_KEY
        assert cp.verified(note, other) == HEAD  # to whom it is the line of an unknown key


def test_control_taking_any_good_line_would_pass_the_bad_one():
    """Planted bug: the first line that verifies decides."""
    note = COSIGNED + line_of(LOG_KEY, bytes(64))
    head, pairs = cp.parse(note)
    mine = [signed[4:] for name, signed in pairs if (name, signed[:4]) == (LOG_KEY.name, LOG_KEY.id)]
    assert [cp._holds(head.text(), one, LOG_KEY) for one in mine] == [True, False]


@pytest.mark.parametrize("name", ["w\u00eftness.example", "\u8a3c\u4eba", "witness", "x" * 300, "\x7f"])
def test_lines_of_unknown_keys_are_passed_over_whatever_their_name(name):
    line = f"\u2014 {name} {base64.b64encode(os.urandom(2500)).decode()}\n"
    assert cp.verified(COSIGNED + line, LOG_KEY) == HEAD
    assert cp.verified(COSIGNED + line, WITNESS_KEY) == HEAD


def test_several_good_lines_of_one_key_are_one_signature():
    later = cp.cosignature_line(HEAD.text(), "witness", OTHER, 1_800_003_600)
    assert cp.signed_by(COSIGNED + later, WITNESS_KEY) == COSIGNED.split("\n")[6] + "\n"
    assert cp.verified(COSIGNED + SIGNED.split("\n\n")[1], LOG_KEY) == HEAD


@pytest.mark.parametrize(
    ("seconds", "holds"), [(0, True), (2**63 - 1, True), (2**63, False), (2**64 - 1, False)]
)
def test_a_time_is_below_2_to_the_63(seconds, holds):
    """C2SP tlog-cosignature: a time that others read as negative is none, though the key did sign it."""
    signed = seconds.to_bytes(8, "big") + OTHER.sign(cp._cosigned(HEAD.text(), seconds))
    note = SIGNED + line_of(WITNESS_KEY, signed)
    if holds:
        assert cp.verified(note, WITNESS_KEY) == HEAD
        assert SIGNED + cp.cosignature_line(HEAD.text(), "witness", OTHER, seconds) == note
        return
    with pytest.raises(LedgerDamaged, match="not signed by witness"):
        cp.verified(note, WITNESS_KEY)
    with pytest.raises(ParameterError, match="seconds must be <= 9223372036854775807"):
        cp.cosignature_line(HEAD.text(), "witness", OTHER, seconds)


def test_control_a_time_of_2_to_the_63_is_signed_well(monkeypatch):
    """Planted bug: no ceiling. The signature itself is good, so nothing else would refuse it."""
    monkeypatch.setattr(cp, "MOST", 2**64)
    signed = (2**63).to_bytes(8, "big") + OTHER.sign(cp._cosigned(HEAD.text(), 2**63))
    assert cp.verified(SIGNED + line_of(WITNESS_KEY, signed), WITNESS_KEY) == HEAD


def test_loose_bits_at_the_end_of_base64_are_refused():
    line = SIGNED.split("\n")[2]
    loose = line[:-2] + chr(ord(line[-2]) + 1) + "="
    assert base64.b64decode(loose) == base64.b64decode(line), "the control: Python does not mind"
    with pytest.raises(LedgerDamaged, match="C2SP"):
        cp.parse(SIGNED.replace(line, loose))


@pytest.mark.parametrize("origin", ["", "two words", "a+b", "a\nb", "\u00e9", "x" * 201, 5, None])
def test_an_origin_that_would_break_the_note_is_refused(origin):
    with pytest.raises(ParameterError, match="origin must be"):
        Head(origin, 0, bytes(32), bytes(32))


@pytest.mark.parametrize("key", [LOG_KEY, WITNESS_KEY])
def test_a_public_key_survives_its_text(key):
    assert PublicKey.parse(f"{key}\n") == key
    assert hash(PublicKey.parse(str(key))) == hash(key)
    assert key != PublicKey(key.name, KEY.public_key(), 3)
    text = str(key)
    for i, char in enumerate(text):
        other = "0" if char != "0" else "1"
        with pytest.raises(ParameterError, match="public key"):
            PublicKey.parse(text[:i] + other + text[i + 1 :])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a+b",
        "a+b+c",
        "a+00000000+",
        "+00000000+AQ==",
        f"{LOG_KEY}!",
        f"{LOG_KEY}".replace("+", "+\n"),
    ],
)
def test_a_bad_public_key_is_refused(text):
    with pytest.raises(ParameterError, match=r"^a public key reads <name>\+<key id>\+<base64>$"):
        PublicKey.parse(text)


def test_a_public_key_must_fit_its_id():
    name, identity, encoded = str(LOG_KEY).split("+", 2)
    other = f"{name}+{WITNESS_KEY.id.hex()}+{encoded}"
    rule = r"^a public key reads <name>\+<key id>\+<base64>, and its id must fit$"
    for text in (other, f"{name}+{identity.upper()}+{encoded}", str(PublicKey(name, KEY.public_key(), 3))):
        with pytest.raises(ParameterError, match=rule):
            PublicKey.parse(text)


def test_public_keys_differ_by_name_kind_and_key():
    keys = [
        LOG_KEY,
        WITNESS_KEY,
        PublicKey("somebody", KEY.public_key()),
        PublicKey(HEAD.origin, OTHER.public_key()),
        PublicKey(HEAD.origin, KEY.public_key(), WITNESS),
    ]
    assert len({hash(key) for key in keys}) == len(set(keys)) == len(keys)
    assert str(LOG_KEY) != LOG_KEY
    assert cp.key_id(HEAD.origin, KEY.public_key()) == LOG_KEY.id


def test_a_key_file_is_made_once_and_for_its_owner_alone(tmp_path):
    path = tmp_path / "key"
    made = cp.load_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert cp.load_key(path).private_bytes_raw() == made.private_bytes_raw()
    assert cp.read_key(path).private_bytes_raw() == made.private_bytes_raw()
    path.write_text("ab" * 31)
    with pytest.raises(ParameterError, match="no signing key"):
        cp.read_key(path)
    with pytest.raises(OSError, match="No such file"):
        cp.read_key(tmp_path / "none")


def test_totals_are_hashed_in_order_of_number():
    assert cp.totals_hash({10: 5, 9: 7}) == hashlib.sha256(b"9 7\n10 5\n").digest()
    assert cp.totals_hash({}) == hashlib.sha256(b"").digest()
    assert cp.totals_hash({1: 23}) != cp.totals_hash({12: 3})
    assert len({cp.totals_hash({0: n}) for n in range(100)}) == 100


def test_a_random_signature_never_verifies():
    for _ in range(100):
        fake = cp.key_id(HEAD.origin, KEY.public_key()) + os.urandom(64)
        text = f"{HEAD.text()}\n\u2014 {HEAD.origin} {base64.b64encode(fake).decode()}\n"
        with pytest.raises(LedgerDamaged, match="not signed"):
            cp.verified(text, LOG_KEY)


def test_bare_signatures_hold_for_their_text_and_key_alone():
    text = cp.answer_text("nonce", b"body\x00\xff")
    assert text == b"reticent-witness-answer/v1\nnonce\nbody\x00\xff"
    assert cp.reader_text(HEAD) == b"reticent-witness-totals/v1\n" + HEAD.text().encode()
    signature = base64.b64encode(OTHER.sign(text)).decode()
    assert cp.holds(text, signature, WITNESS_KEY)
    assert not cp.holds(text + b"x", signature, WITNESS_KEY)
    assert not cp.holds(cp.answer_text("other", b"body\x00\xff"), signature, WITNESS_KEY)
    assert not cp.holds(text, signature, LOG_KEY)
    for wrong in (signature[:-4], "", "!", signature + "!", signature[:8] + "\n" + signature[8:]):
        assert not cp.holds(text, wrong, WITNESS_KEY)
