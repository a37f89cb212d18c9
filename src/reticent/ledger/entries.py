"""The entries of the log: canonical texts without data, and the commitments in them.

An entry is one line of ASCII: JSON with sorted keys, no spaces, whole numbers as decimal strings. Names,
keys and values appear as commitments only, HMAC-SHA-256 under a fresh 256-bit nonce that stays in the
database: destroying the nonce erases the committed data, and a guess cannot be tested against it.

Types are append-only: "ledger", "open", "request", "fulfil", "recover", "answer", "void", "audit". The exact
bytes are in docs/ledger-format.md.
"""

from __future__ import annotations

import hashlib
import json
import re

from reticent.errors import LedgerDamaged
from reticent.ledger.values import values_of as values_of
from reticent.ledger.values import values_text as values_text

NONCE_BYTES = 32
_INNER, _OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))
_INNER_END, _OUTER_END = (bytes([pad]) * (64 - NONCE_BYTES) for pad in (0x36, 0x5C))  # of the padded key

FIELDS = {
    "ledger": {"origin", "version"},
    "open": {"account", "cap", "commitment", "minimum", "neighbours", "unit"},
    "request": {"account", "charged", "commitment", "key", "measurement"},
    "fulfil": {"commitment", "measurement"},
    "recover": {"account", "head", "spent"},
    "answer": {"account", "commitment"},
    "void": {"head", "measurement"},
    "audit": {"claim", "commitment", "verdict"},
}

_NUMBER = "0|[1-9][0-9]{0,18}"
_SHAPES = {
    "account": _NUMBER,
    "cap": _NUMBER,
    "charged": _NUMBER,
    "claim": r"[ !#-\[\]-~]{1,200}",  # printable ASCII without quotes and backslashes
    "commitment": "[0-9a-f]{64}",
    "head": f"(?:{_NUMBER}):[0-9a-f]{{64}}",
    "key": _NUMBER,
    "measurement": _NUMBER,
    "minimum": _NUMBER,
    "neighbours": "[A-Z_]{1,40}",
    "origin": r'(?:[!#-*,-\[\]-~]|\\["\\]){1,200}',  # printable ASCII without space and plus
    "spent": _NUMBER,
    "unit": "[a-z0-9_]{1,40}",
    "verdict": "nothing_found|broken",
    "version": _NUMBER,
}


def _pattern(kind: str) -> re.Pattern[str]:
    """Return the pattern of canonical entries of a type, with a group per field in order of their names."""
    parts = [
        rf'"{field}":"{kind}"' if field == "type" else f'"{field}":"({_SHAPES[field]})"'
        for field in sorted(FIELDS[kind] | {"type"})
    ]
    return re.compile(r"\{" + ",".join(parts) + r"\}", re.ASCII)


PATTERNS = {kind: _pattern(kind) for kind in FIELDS}


def encode(kind: str, **fields: str | int) -> str:
    """Return the canonical text of an entry."""
    texts = sorted([*fields.items(), ("type", kind)])
    return "{" + ",".join([f'"{name}":{_quoted(field)}' for name, field in texts]) + "}"


def _quoted(field: str | int) -> str:
    return f'"{field}"' if isinstance(field, int) else json.dumps(field)


def decode(leaf: str) -> dict[str, str]:
    """Parse an entry, or raise LedgerDamaged if `encode` cannot have written it."""
    for pattern in PATTERNS.values():
        if pattern.fullmatch(leaf):
            entry: dict[str, str] = json.loads(leaf)
            return entry
    raise LedgerDamaged("an entry is not in canonical form")


def commitment(nonce: bytes, *parts: str) -> str:
    """Return the HMAC-SHA-256 over the parts, each preceded by its length in bytes as eight big-endian bytes.

    The nonce must be 32 bytes: HMAC itself cannot tell a shorter one from the same with zeros appended.
    """
    if type(nonce) is not bytes or len(nonce) != NONCE_BYTES:
        raise LedgerDamaged(f"a nonce must be {NONCE_BYTES} bytes")
    # RFC 2104 written out: half the time of `hmac.digest` on so short a message.
    message = nonce.translate(_INNER) + _INNER_END
    for part in parts:
        text = part.encode()
        message += len(text).to_bytes(8, "big") + text
    sha256 = hashlib.sha256
    return sha256(nonce.translate(_OUTER) + _OUTER_END + sha256(message).digest()).hexdigest()


def answer_parts(
    idempotency: str, verb: str, key: str, asked: int, information: int, charged: int
) -> tuple[str, ...]:
    """Return the texts that an "answer" entry commits to; the verb is "request" or "pay"."""
    return idempotency, verb, key, str(asked), str(information), str(charged)


def head_text(size: int, root: bytes) -> str:
    """Format a head as "recover" and "void" entries name it."""
    return f"{size}:{root.hex()}"
