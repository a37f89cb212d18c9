"""Signed heads in the C2SP checkpoint format (a signed note), with Ed25519, and the keys that sign them.

    <origin>
    <number of entries>
    <root hash, base64>
    totals <SHA-256 of the spent totals, base64>
    <empty line>
    -- <name> <base64 of key id || signature>

where `--` stands for an em dash. The fourth line is what C2SP calls an extension line. The log signs
everything up to and including the newline before the empty line. A witness adds a line of its own, a C2SP
cosignature: eight bytes of time and a signature over the lines "cosignature/v1" and "time <seconds>" and
the same text. A key id is the first four bytes of SHA-256(name || 0x0A || type || public key), type 0x01
for a log and 0x04 for a witness.

Lines of unknown keys are passed over, whatever their names; a line of a known key that does not verify makes
the whole note void, also beside one that does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from reticent.arguments import whole
from reticent.errors import LedgerDamaged, ParameterError
from reticent.files import tightened, write_new
from reticent.ledger.merkle import EMPTY_ROOT

LOG = 1  # C2SP signature type of a log: plain Ed25519
WITNESS = 4  # C2SP signature type of a witness: a cosignature with a time
MOST_SIGNATURES = 16

MOST = (1 << 63) - 1  # entries of a log, and seconds of a cosignature's time

_SIZE = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_NAME = re.compile(r"[!-*,-~]{1,200}", re.ASCII)  # printable ASCII without space and plus
_ANY_NAME = re.compile(r"[^\s+\x00-\x1f]+")  # names that signed notes allow to others
_HASH = re.compile(r"[A-Za-z0-9+/]{43}=", re.ASCII)
_DASH = "\u2014"
_FORMAT = "the checkpoint is not in the C2SP format"


@dataclass(frozen=True)
class Head:
    """A state of a log: how many entries, their root hash, and the hash of the spent totals."""

    origin: str
    size: int
    root: bytes
    totals: bytes

    def __post_init__(self) -> None:
        checked_name("origin", self.origin)
        whole("size", self.size, low=0, high=MOST)
        if len(self.root) != len(EMPTY_ROOT) or len(self.totals) != len(EMPTY_ROOT):
            raise ParameterError("root and totals must be hashes of 32 bytes")
        if self.size == 0 and self.root != EMPTY_ROOT:
            raise ParameterError("root must be the hash of nothing for a log of no entries")

    def text(self) -> str:
        """Return the lines of the head that are signed."""
        root, totals = (base64.b64encode(part).decode() for part in (self.root, self.totals))
        return f"{self.origin}\n{self.size}\n{root}\ntotals {totals}\n"


@dataclass(frozen=True)
class PublicKey:
    """A signer's name, C2SP signature type and Ed25519 key. `str` returns the C2SP verifier key."""

    name: str
    key: Ed25519PublicKey
    kind: int = LOG

    @property
    def id(self) -> bytes:
        """The first four bytes of SHA-256(name || 0x0A || type || public key)."""
        return hashlib.sha256(self.name.encode() + b"\n" + self._typed()).digest()[:4]

    def _typed(self) -> bytes:
        return bytes([self.kind]) + self.key.public_bytes_raw()

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{base64.b64encode(self._typed()).decode()}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Parse a verifier key `<name>+<key id>+<base64 of type || key>`."""
        parts = text.strip().split("+", 2)
        try:
            name, _, encoded = parts
            raw = base64.b64decode(encoded, validate=True)
            found = cls(checked_name("name", name), Ed25519PublicKey.from_public_bytes(raw[1:]), raw[0])
        except (ValueError, IndexError) as error:
            raise ParameterError("a public key reads <name>+<key id>+<base64>") from error
        if str(found) != text.strip() or found.kind not in (LOG, WITNESS):
            raise ParameterError("a public key reads <name>+<key id>+<base64>, and its id must fit")
        return found


def checked_name(field: str, name: str) -> str:
    """Validate a name for signed notes: printable ASCII without spaces and plus signs; return it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ParameterError(f"{field} must be 1 to 200 printable characters without spaces and '+'")
    return name


def key_id(name: str, public: Ed25519PublicKey) -> bytes:
    """Return the key id of a log's key."""
    return PublicKey(name, public).id


def signature_line(text: str, name: str, key: Ed25519PrivateKey) -> str:
    """Return a log's signature line over the text of a head."""
    return _line(name, key_id(name, key.public_key()) + key.sign(text.encode()))


def cosignature_line(text: str, name: str, key: Ed25519PrivateKey, seconds: int) -> str:
    """Return a witness's signature line over the text of a head that it saw at `seconds` since 1970."""
    seconds = whole("seconds", seconds, low=0, high=MOST)
    identity = PublicKey(name, key.public_key(), WITNESS).id
    signed = seconds.to_bytes(8, "big") + key.sign(_cosigned(text, seconds))
    return _line(name, identity + signed)


def _cosigned(text: str, seconds: int) -> bytes:
    return f"cosignature/v1\ntime {seconds}\n{text}".encode()


def _line(name: str, signed: bytes) -> str:
    return f"{_DASH} {name} {base64.b64encode(signed).decode()}\n"


def sign(head: Head, name: str, key: Ed25519PrivateKey) -> str:
    """Sign a head and return the checkpoint: the head's lines, an empty line, one signature."""
    return head.text() + "\n" + signature_line(head.text(), name, key)


def signed_note(head: Head, signer: PublicKey, signature: bytes) -> str:
    """Return the checkpoint with a signature made elsewhere, which is not verified."""
    return head.text() + "\n" + _line(signer.name, signer.id + signature)


def parse(checkpoint: str) -> tuple[Head, list[tuple[str, bytes]]]:
    """Split a checkpoint into its head and its (name, key id || signature) pairs; nothing is verified."""
    text, separator, signatures = checkpoint.partition("\n\n")
    lines, signed = text.split("\n"), signatures.split("\n")
    if not separator or len(lines) != 4 or signed.pop() or not 0 < len(signed) <= MOST_SIGNATURES:
        raise LedgerDamaged(_FORMAT)
    origin, size, root, totals = lines
    if not (
        _NAME.fullmatch(origin)
        and _SIZE.fullmatch(size)
        and _HASH.fullmatch(root)
        and totals.startswith("totals ")
        and _HASH.fullmatch(totals[7:])
    ):
        raise LedgerDamaged(_FORMAT)
    try:
        head = Head(origin, int(size), base64.b64decode(root), base64.b64decode(totals[7:]))
    except ParameterError as error:
        raise LedgerDamaged(f"{_FORMAT}: {error}") from error
    if head.text() != text + "\n":  # base64 with loose last bits
        raise LedgerDamaged(_FORMAT)
    return head, [_pair(line) for line in signed]


def _pair(line: str) -> tuple[str, bytes]:
    dash, _, rest = line.partition(" ")
    name, _, encoded = rest.partition(" ")
    try:
        name.encode()  # a lone surrogate is no UTF-8
        signed = base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error) as error:
        raise LedgerDamaged(_FORMAT) from error
    canonical = base64.b64encode(signed).decode() == encoded
    if dash != _DASH or not _ANY_NAME.fullmatch(name) or len(signed) < 5 or not canonical:
        raise LedgerDamaged(_FORMAT)
    return name, signed


def verify(checkpoint: str, name: str, public: Ed25519PublicKey) -> Head:
    """Return the head if the log `name` signed it with this key, or raise LedgerDamaged."""
    return verified(checkpoint, PublicKey(name, public))


def verified(checkpoint: str, signer: PublicKey) -> Head:
    """Return the head if `signer`, a log or a witness, signed it, or raise LedgerDamaged."""
    signed_by(checkpoint, signer)
    return parse(checkpoint)[0]


def signed_by(checkpoint: str, signer: PublicKey) -> str:
    """Return the verified line with which `signer` signed the checkpoint, or raise LedgerDamaged.

    A single line under this name and key id that does not verify is enough to refuse all of them. If several
    lines verify (their times may differ), the first is returned.
    """
    head, pairs = parse(checkpoint)
    lines = [signed for name, signed in pairs if name == signer.name and signed[:4] == signer.id]
    if not lines or not all(_holds(head.text(), signed[4:], signer) for signed in lines):
        raise LedgerDamaged(f"the checkpoint is not signed by {signer.name}")
    return _line(signer.name, lines[0])


def _holds(text: str, signature: bytes, signer: PublicKey) -> bool:
    message = text.encode()
    if signer.kind == WITNESS:
        seconds, signature = int.from_bytes(signature[:8], "big"), signature[8:]
        if seconds > MOST:
            return False
        message = _cosigned(text, seconds)
    try:
        signer.key.verify(signature, message)
    except InvalidSignature:
        return False
    return True


def answer_text(nonce: str, body: bytes) -> bytes:
    """Return the bytes that a witness signs for an answer to a request with a nonce."""
    return f"reticent-witness-answer/v1\n{nonce}\n".encode() + body


def reader_text(head: Head) -> bytes:
    """Return the bytes that a log signs to read its totals at a head."""
    return f"reticent-witness-totals/v1\n{head.text()}".encode()


def holds(text: bytes, signature: str, signer: PublicKey) -> bool:
    """Return whether `signature` is the signer's Ed25519 signature, in base64, on a text that is no head."""
    try:
        signer.key.verify(base64.b64decode(signature, validate=True), text)
    except (InvalidSignature, ValueError):
        return False
    return True


def totals_hash(totals: dict[int, int]) -> bytes:
    """Return the SHA-256 of one line "<account number> <units spent>" per account, in order of number."""
    text = "".join([f"{number} {totals[number]}\n" for number in sorted(totals)])
    return hashlib.sha256(text.encode()).digest()


def read_key(path: str | os.PathLike[str]) -> Ed25519PrivateKey:
    """Read a signing key: 64 hexadecimal digits and a newline."""
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(tightened(Path(path)).read_text().strip()))
    except ValueError:  # the error may hold the key
        raise ParameterError(f"{os.fspath(path)} holds no signing key") from None


def load_key(path: str | os.PathLike[str]) -> Ed25519PrivateKey:
    """Read the signing key at `path`, or create one there, readable by its owner alone."""
    if Path(path).exists():
        return read_key(path)
    key = Ed25519PrivateKey.generate()
    write_new(path, key.private_bytes_raw().hex() + "\n", mode=0o600)
    return key
