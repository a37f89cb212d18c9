"""Content identifiers of IPFS: version 1, SHA-256, of raw bytes or of a node that points at others.

An identifier in text is `b` and the base 32 of version, codec, kind of hash, its length and the hash. Each
has one text only: others of the same bytes (upper case, base 58) are refused, so that texts can be compared.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from typing import Any

from reticent.errors import ContentForged, ParameterError

RAW, DAG_PB = 0x55, 0x70
CODECS = {RAW: "raw", DAG_PB: "dag-pb"}
LENGTH = 36  # bytes: version, codec, 0x12 for SHA-256, 32 for its length, the hash
_TEXT = re.compile("b[a-z2-7]{58}")


@dataclass(frozen=True)
class Cid:
    """An identifier of a block of content, computed from its bytes.

    Attributes:
        codec: Codec of the block, `RAW` or `DAG_PB`.
        digest: SHA-256 of the block.

    Reference: multiformats, CIDv1; multihash 0x12.
    """

    codec: int
    digest: bytes

    def __post_init__(self) -> None:
        if self.codec not in CODECS or len(self.digest) != 32:
            raise ParameterError("a CID must be raw or dag-pb, with a SHA-256 of 32 bytes")

    @classmethod
    def of(cls, codec: int, block: bytes | memoryview) -> Cid:
        """Return the identifier of a block."""
        return cls(codec, hashlib.sha256(block).digest())

    @classmethod
    def parse(cls, text: Any) -> Cid:
        """Parse the text of an identifier.

        Raises:
            ParameterError: The text is no identifier, or not one of the kinds used here.
        """
        rule = "must be CIDv1 in base 32 (b...), of raw or dag-pb and sha2-256"
        if not isinstance(text, str) or not _TEXT.fullmatch(text):
            raise ParameterError(f"cid {rule}, got {text!r:.80}")
        raw = base64.b32decode(text[1:].upper() + "=" * (-(len(text) - 1) % 8))
        found = cls.of_bytes(raw, text)
        if str(found) != text:  # base 32 leaves two bits over
            raise ParameterError(f"cid {rule}, got {text!r:.80}")
        return found

    @classmethod
    def of_bytes(cls, raw: bytes, shown: str = "other bytes") -> Cid:
        """Parse the bytes of an identifier."""
        if len(raw) != LENGTH or raw[0] != 1 or raw[1] not in CODECS or raw[2:4] != b"\x12\x20":
            raise ParameterError(f"cid must be version 1, raw or dag-pb, sha2-256, got {shown!r:.80}")
        return cls(raw[1], raw[4:])

    def __bytes__(self) -> bytes:
        return bytes((1, self.codec, 0x12, 0x20)) + self.digest

    def __str__(self) -> str:
        return "b" + base64.b32encode(bytes(self)).decode("ascii").rstrip("=").lower()

    def checked(self, block: bytes) -> bytes:
        """Return a block, if it has this identifier.

        Raises:
            ContentForged: The block has another identifier.
        """
        if hashlib.sha256(block).digest() != self.digest:
            raise ContentForged(f"what came is not the content of {self}")
        return block
